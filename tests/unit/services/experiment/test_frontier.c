#include "services/experiment/frontier.h"

#include <malloc.h>
#include <math.h>
#include <string.h>

#include "services/algorithms/baseline.h"
#include "tests/harness.h"
#include "tests/unit/services/experiment/shipped_jobs.h"

static struct tally_frontier_point point_of(const struct tally_algorithm *algorithm, double radius,
                                            double up, double down, double regret)
{
    return (struct tally_frontier_point){
        .reading = "loud",
        .radius = radius,
        .algorithm = algorithm,
        .params.baseline = {.step_size = 0.5, .local_steps = 100, .levels = 3},
        .regret = {regret, 1},
        .bits = {{up, up, up, 7}, {down, down, down, 9}},
        .counted = {up, down}};
}

static struct tally_frontier_point points[7];
static struct tally_frontier make_frontier(void)
{
    points[0] = point_of(&TALLY_FEDAVG, 2, 100, 100, 5);
    points[1] = point_of(&TALLY_FEDAVG, 1, 300, 300, 4);
    points[2] = point_of(&TALLY_FEDAVG, 1, 200, 100, 9);
    points[3] = point_of(&TALLY_FEDAVG, 1, 200, 200, 10);
    points[4] = point_of(&TALLY_FEDPAQ, 1, 400, 400, 8);
    points[5] = point_of(&TALLY_FEDAVG, 1, 300, 300, 3);
    struct tally_frontier frontier = {
        .first_seed = 1, .n_seeds = 2, .points = points, .n_points = 6};
    tally_frontier_sort(&frontier);
    return frontier;
}

static void test_experiment_frontier__front_has_what_nothing_beats(void)
{
    const struct tally_frontier frontier = make_frontier();
    static const double regrets[] = {9, 10, 3, 4, 8, 5};
    static const bool is_on_front[] = {true, false, true, false, true, true};
    for (size_t i = 0; i < 6; i++) {
        CU_ASSERT_DOUBLE_EQUAL(frontier.points[i].regret.mean, regrets[i], 0);
        CU_ASSERT_EQUAL(frontier.points[i].on_front, is_on_front[i]);
    }
}

/* Schedules form a family of their own: a point that only a schedule beats stays on the front of
 * the others. */
static void test_experiment_frontier__schedules_have_a_front_of_their_own(void)
{
    struct tally_frontier frontier = make_frontier();
    frontier.points[1].params.baseline.step_decay = 0.25;
    frontier.points[2].params.baseline.local_steps_growth = 0.5;
    tally_frontier_sort(&frontier);
    static const double regrets[] = {9, 4, 10, 3, 8, 5};
    static const bool is_scheduled[] = {false, false, true, true, false, false};
    struct tally_buffer text = {0};
    for (size_t i = 0; i < 6; i++) {
        const struct tally_frontier_point *point = &frontier.points[i];
        CU_ASSERT_DOUBLE_EQUAL(point->regret.mean, regrets[i], 0);
        CU_ASSERT_EQUAL(tally_frontier_is_scheduled(point), is_scheduled[i]);
        CU_ASSERT_TRUE(point->on_front);
    }
    TALLY_ASSERT_STATUS(tally_frontier_csv(&frontier, &text), TALLY_OK, NULL);
    TALLY_ASSERT_STATUS(tally_buffer_append(&text, "", 1), TALLY_OK, NULL);
    CU_ASSERT_PTR_NOT_NULL(strstr((const char *)text.data, ",200,200,,,0.25,0,,,,,\n"));
    tally_buffer_fini(&text);
}

static void test_experiment_frontier__csv_and_json_tell_the_points(void)
{
    struct tally_frontier frontier = make_frontier();
    frontier.n_points = 1;
    struct tally_buffer text = {0};
    TALLY_ASSERT_STATUS(tally_frontier_csv(&frontier, &text), TALLY_OK, NULL);
    TALLY_ASSERT_STATUS(tally_buffer_append(&text, "", 1), TALLY_OK, NULL);
    CU_ASSERT_PTR_NOT_NULL(
        strstr((const char *)text.data,
               "\nloud,1,fedavg,0.5,100,,,,,,,9,1,200,100,200,100,1,200,100,,,,,,,,,\n"));
    text.size = 0;
    struct tally_json *json = tally_frontier_json(&frontier);
    TALLY_ASSERT_STATUS(tally_json_dump(json, 0, &text), TALLY_OK, NULL);
    TALLY_ASSERT_STATUS(tally_buffer_append(&text, "", 1), TALLY_OK, NULL);
    TALLY_ASSERT_TEXT(
        (const char *)text.data,
        "{\"experiment\": \"synthetic\", \"seeds\": [1, 2], \"points\": [{\"reading\": \"loud\", "
        "\"radius\": 1.0, \"algorithm\": \"fedavg\", \"parameters\": {\"step_size\": 0.5, "
        "\"local_steps\": 100}, \"regret\": {\"mean\": 9.0, \"std\": 1.0}, "
        "\"uplink\": {\"formula\": 200.0, \"payload\": 200.0, \"control\": 7.0, "
        "\"entropy_payload\": 200.0}, "
        "\"downlink\": {\"formula\": 100.0, \"payload\": 100.0, \"control\": 9.0, "
        "\"entropy_payload\": 100.0}, "
        "\"on_front\": true}], \"limits\": []}");
    tally_json_free(json);
    tally_buffer_fini(&text);
}

/* FedAvg with a server optimizer counts as a method of its own, and so does EF21 with random
 * coordinates. */
static void test_experiment_frontier__methods_have_their_own_fronts_and_constants(void)
{
    struct tally_frontier frontier = make_frontier();
    frontier.n_points = 7;
    struct tally_baseline_params *params[7];
    static const struct tally_algorithm *const algorithms[] = {
        &TALLY_FEDAVG, &TALLY_FEDAVG, &TALLY_SCAFFOLD, &TALLY_FEDPROX,
        &TALLY_DIANA,  &TALLY_EF21,   &TALLY_EF21};
    for (int i = 0; i < 7; i++) {
        points[i] = point_of(algorithms[i], 1, 100 + i, 100, 9);
        params[i] = &points[i].params.baseline;
    }
    params[1]->server_optimizer = (struct tally_server_optimizer){
        .type = TALLY_FEDADAM, .step_size = 0.03, .beta1 = 0.3, .beta2 = 0.99, .tau = 0.001};
    params[2]->server_step_size = 10;
    params[3]->mu = 0.1;
    params[5]->k = 6;
    params[6]->k = 10;
    params[6]->compressor = TALLY_RAND_K;
    tally_frontier_sort(&frontier);
    static const char *const methods[] = {"diana",  "ef21",    "ef21_rand_k", "fedadam",
                                          "fedavg", "fedprox", "scaffold"};
    static const char *const endings[] = {",,,,,,,3,\n",       ",,,,,,,,6\n", ",,,,,,,,10\n",
                                          ",,,,0.03,0.3,,,\n", ",,,,,,,,\n",  ",,,,,,0.1,,\n",
                                          ",,,,10,,,,\n"};
    struct tally_buffer text = {0};
    TALLY_ASSERT_STATUS(tally_frontier_csv(&frontier, &text), TALLY_OK, NULL);
    TALLY_ASSERT_STATUS(tally_buffer_append(&text, "", 1), TALLY_OK, NULL);
    const char *line = strchr((const char *)text.data, '\n');
    for (int i = 0; i < 7; i++) {
        const char *name = methods[i], *end = strchr(line + 1, '\n');
        TALLY_ASSERT_TEXT(tally_frontier_method(&frontier.points[i]), name);
        CU_ASSERT_TRUE(frontier.points[i].on_front);
        CU_ASSERT_EQUAL(strncmp(line, "\nloud,1,", 8), 0);
        CU_ASSERT_EQUAL(strncmp(line + 8, name, strlen(name)), 0);
        CU_ASSERT_EQUAL(strncmp(end + 1 - strlen(endings[i]), endings[i], strlen(endings[i])), 0);
        line = end;
    }
    text.size = 0;
    struct tally_json *json = tally_frontier_json(&frontier);
    TALLY_ASSERT_STATUS(tally_json_dump(json, 0, &text), TALLY_OK, NULL);
    TALLY_ASSERT_STATUS(tally_buffer_append(&text, "", 1), TALLY_OK, NULL);
    CU_ASSERT_PTR_NOT_NULL(strstr(
        (const char *)text.data,
        "\"algorithm\": \"fedadam\", \"parameters\": {\"step_size\": 0.5, \"local_steps\": 100, "
        "\"server_optimizer\": {\"type\": \"fedadam\", \"step_size\": 0.03, \"beta1\": 0.3, "
        "\"beta2\": 0.99, \"tau\": 0.001}}, "));
    tally_json_free(json);
    tally_buffer_fini(&text);
}

/* The documents have every combination that the frontier is made of, on each reading and radius.
 * There are many, so each takes little memory. */
static void test_experiment_frontier__documents_have_every_point(void)
{
    enum { BYTES_EACH_MOST = 4000 }; /* a spec alone has 15,000 */
    static const struct {
        const char *document;
        size_t n_rows, n_trials;
    } readings[] = {{"frontier-loud", 4047, 20085}, {"frontier-quiet", 4782, 20820}};
    for (size_t i = 0; i < 2; i++) {
        const size_t before = mallinfo2().uordblks;
        struct tally_sweep sweep = shipped_sweep(readings[i].document, NULL, true, 1, 1);
        /* Sanitizers count nothing there. */
        const size_t bytes_each = (mallinfo2().uordblks - before) / readings[i].n_trials;
        CU_ASSERT_TRUE(bytes_each < BYTES_EACH_MOST);
        size_t n_at[4] = {0}, n_trials = 0, n_calm = 0;
        for (size_t row = 0; row < sweep.n_rows; row++) {
            const struct tally_job_spec spec = spec_of(&sweep.rows[row].trials[0]);
            const double radius = spec.initial_point.radius;
            n_at[(size_t)radius]++;
            n_trials += sweep.rows[row].n_trials;
            if (spec.budget.uplink_bits > 0) {
                CU_ASSERT_DOUBLE_EQUAL(spec.params.calm.initial_variance,
                                       (radius * radius + 1) / 30, 0);
                n_calm++;
            }
        }
        CU_ASSERT_EQUAL(sweep.n_rows, readings[i].n_rows);
        CU_ASSERT_EQUAL(n_trials, readings[i].n_trials);
        CU_ASSERT_TRUE(n_at[1] == n_at[2] && n_at[2] == n_at[3]);
        CU_ASSERT_EQUAL(n_calm, 24);
        tally_sweep_fini(&sweep);
    }
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_experiment_frontier__front_has_what_nothing_beats),
    TALLY_TEST(test_experiment_frontier__schedules_have_a_front_of_their_own),
    TALLY_TEST(test_experiment_frontier__methods_have_their_own_fronts_and_constants),
    TALLY_TEST(test_experiment_frontier__csv_and_json_tell_the_points),
    TALLY_TEST(test_experiment_frontier__documents_have_every_point),
};
TALLY_SUITE(experiment_frontier, TESTS);
