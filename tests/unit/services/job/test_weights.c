/* Jobs whose clients are weighted by their numbers of points: 5 clients with 13, 13, 13, 12 and 12
 * points. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codec/numeric/checksum.h"
#include "services/algorithms/weights.h"
#include "services/job/job_local.h"
#include "tests/harness.h"
#include "tests/unit/services/job/job_host.h"

enum { CLIENTS = 5, DIM = 6, STEPS = 7 };

static const uint32_t POINTS[CLIENTS] = {13, 13, 13, 12, 12};

static struct job_host HOST;

static int algorithm_of(const struct tally_algorithm *algorithm)
{
    int i = 0;
    while (TALLY_ALGORITHMS[i] != algorithm) {
        i++;
    }
    return i;
}

static struct tally_job_spec weighted_spec(const struct tally_algorithm *algorithm)
{
    struct tally_job_spec spec = job_host_spec();
    spec.algorithm = algorithm_of(algorithm);
    spec.params = algorithm->defaults();
    spec.params.baseline.step_size = 0.02;
    spec.params.baseline.local_steps = STEPS;
    spec.params.baseline.levels = 5;
    spec.horizon = 10 * STEPS + 2; /* 10 rounds and a cut one */
    spec.objective.weighting = TALLY_WEIGHTING_POINTS;
    return spec;
}

/* Reads the message of a minibatch_sgd client: its mean gradient. */
static void gradient_of(uint32_t client, float *ret_gradient)
{
    memcpy(ret_gradient, HOST.updates[client].payload.data, DIM * sizeof *ret_gradient);
}

/* The step and the loss are weighted means over the messages received, in exact arithmetic. */
static void expect_round(const uint32_t *clients, int n, const double *before)
{
    const struct tally_round_record *record = &HOST.records[HOST.n_records - 1];
    size_t dim;
    const double *after = tally_job_point(HOST.job, &dim);
    double weight = 0, loss = 0;
    long double sums[DIM] = {0};
    for (int i = 0; i < n; i++) {
        const uint32_t m = clients[i];
        float gradient[DIM];
        gradient_of(m, gradient);
        weight += POINTS[m];
        loss += POINTS[m] * HOST.updates[m].loss;
        for (size_t k = 0; k < DIM; k++) {
            sums[k] += POINTS[m] * roundl((long double)gradient[k] * 0x1p40L);
        }
    }
    CU_ASSERT_DOUBLE_EQUAL(record->loss, loss / weight, 1e-14 * fabs(record->loss));
    for (size_t k = 0; k < DIM; k++) {
        const double mean = (double)(sums[k] * 0x1p-40L / (long double)weight);
        CU_ASSERT_DOUBLE_EQUAL(after[k], (double)(float)(before[k] - 0.02 * mean),
                               1e-7 * fabs(after[k])); /* one float32 apart at most */
    }
}

static void test_job_weights__means_are_those_of_all_points(void)
{
    const struct tally_job_spec spec = weighted_spec(&TALLY_MINIBATCH_SGD);
    const uint32_t all[CLIENTS] = {0, 1, 2, 3, 4};
    job_host_init(&HOST, &spec);
    for (int round = 0; round < 3; round++) {
        double before[DIM];
        size_t dim;
        memcpy(before, tally_job_point(HOST.job, &dim), sizeof before);
        job_host_compute(&HOST);
        for (int i = 0; i < CLIENTS; i++) {
            job_host_send(&HOST, all[i]);
        }
        CU_ASSERT_EQUAL_FATAL(HOST.n_records, round + 1);
        const struct tally_round_record *record = &HOST.records[round];
        double f = 0;
        expect_round(all, CLIENTS, before);
        CU_ASSERT_EQUAL(tally_objective_losses(HOST.objective, before, 1, &f, NULL), TALLY_OK);
        CU_ASSERT_DOUBLE_EQUAL(record->loss, f, 1e-12 * f);
        CU_ASSERT_EQUAL(record->bits.uplink.payload_bits, CLIENTS * 32 * DIM);
    }
    job_host_fini(&HOST);
}

/* With policy drop, the means are over the messages received. */
static void test_job_weights__missing_clients_count_for_nothing(void)
{
    struct tally_job_spec spec = weighted_spec(&TALLY_MINIBATCH_SGD);
    spec.policy = TALLY_POLICY_DROP;
    spec.quorum = 1;
    const uint32_t some[] = {4, 1, 3};
    job_host_init(&HOST, &spec);
    double before[DIM];
    size_t dim;
    memcpy(before, tally_job_point(HOST.job, &dim), sizeof before);
    job_host_compute(&HOST);
    for (int i = 0; i < 3; i++) {
        job_host_send(&HOST, some[i]);
    }
    struct tally_job_outcome outcome;
    CU_ASSERT_EQUAL(tally_job_overdue(HOST.job, &outcome, NULL), TALLY_OK);
    CU_ASSERT_EQUAL_FATAL(outcome.n_records, 1);
    HOST.records[HOST.n_records++] = outcome.records[0];
    expect_round(some, 3, before);
    job_host_fini(&HOST);
}

/* Returns a checksum of x and the regret after two rounds whose updates arrive in the given
 * order. */
static uint64_t run_in_order(const struct tally_job_spec *spec, const uint32_t *order)
{
    job_host_init(&HOST, spec);
    for (int round = 0; round < 2; round++) {
        job_host_compute(&HOST);
        for (int i = 0; i < CLIENTS; i++) {
            job_host_send(&HOST, order[i]);
        }
    }
    uint64_t sum = tally_job_progress(HOST.job)->x_checksum;
    sum ^= tally_checksum64(&tally_job_progress(HOST.job)->cumulative_regret, sizeof(double));
    job_host_fini(&HOST);
    return sum;
}

static void test_job_weights__order_of_arrival_does_not_matter(void)
{
    const struct tally_algorithm *const all[] = {&TALLY_MINIBATCH_SGD, &TALLY_FEDAVG, &TALLY_FEDPAQ,
                                                 &TALLY_FEDCOM};
    const uint32_t orders[][CLIENTS] = {{0, 1, 2, 3, 4}, {4, 3, 2, 1, 0}, {3, 0, 4, 2, 1}};
    for (size_t a = 0; a < sizeof all / sizeof all[0]; a++) {
        struct tally_job_spec spec = weighted_spec(all[a]);
        const uint64_t sum = run_in_order(&spec, orders[0]);
        CU_ASSERT_EQUAL(run_in_order(&spec, orders[1]), sum);
        CU_ASSERT_EQUAL(run_in_order(&spec, orders[2]), sum);
        spec.objective.weighting = TALLY_WEIGHTING_EQUAL;
        CU_ASSERT_NOT_EQUAL(run_in_order(&spec, orders[0]), sum);
    }
}

/* All shards have 13 points: weights change neither the point nor f nor f(x*). */
static void test_job_weights__equal_shards_change_no_bit(void)
{
    for (int a = 0; TALLY_ALGORITHMS[a] != NULL; a++) {
        if (!TALLY_ALGORITHMS[a]->takes_weights) {
            continue;
        }
        struct tally_job_spec spec = weighted_spec(TALLY_ALGORITHMS[a]);
        struct tally_progress progress[2];
        spec.objective.data.synthetic_linear.points = 13 * CLIENTS;
        for (int weighting = 0; weighting < 2; weighting++) {
            spec.objective.weighting = weighting;
            job_host_init(&HOST, &spec);
            job_host_run(&HOST);
            progress[weighting] = *tally_job_progress(HOST.job);
            job_host_fini(&HOST);
        }
        CU_ASSERT_TRUE(job_same_progress(&progress[0], &progress[1]));
    }
}

/* If clients move on their own and all have f, the loss is the plain mean of what they report: the
 * regret weights all queries equally. */
static void test_job_weights__losses_at_own_iterates_count_alike(void)
{
    const struct tally_job_spec spec = weighted_spec(&TALLY_FEDAVG);
    job_host_init(&HOST, &spec);
    job_host_compute(&HOST);
    double loss = 0;
    for (uint32_t m = 0; m < CLIENTS; m++) {
        loss += HOST.updates[m].loss;
    }
    for (uint32_t m = 0; m < CLIENTS; m++) {
        job_host_send(&HOST, m);
    }
    CU_ASSERT_EQUAL(HOST.records[0].loss, loss / CLIENTS);
    job_host_fini(&HOST);
}

/* The document of a job on a file does not state the number of points; the messages do. */
static struct tally_setting unknown_points(void)
{
    return (struct tally_setting){.clients = CLIENTS, .cohort = CLIENTS, .weighs_points = true};
}

static void expect_taken(const uint8_t *payload, size_t n_payload, uint64_t n_bits, uint32_t weight)
{
    const struct tally_setting setting = unknown_points();
    struct tally_message_view view = {
        .payload = payload, .n_payload = n_payload, .payload_bits = n_bits, .client = 1};
    struct tally_error err = TALLY_ERROR_INIT;
    const enum tally_status status = tally_weight_take(&setting, &view, &err);
    CU_ASSERT_EQUAL(status, weight > 0 ? TALLY_OK : TALLY_MALFORMED);
    if (weight > 0) {
        CU_ASSERT_EQUAL(view.weight, weight);
        CU_ASSERT_EQUAL(view.payload, payload + 4);
        CU_ASSERT_EQUAL(view.n_payload, n_payload - 4);
        CU_ASSERT_EQUAL(view.payload_bits, n_bits - 32);
    } else {
        TALLY_ASSERT_TEXT(err.field, "payload");
    }
}

static void test_job_weights__of_messages_are_checked(void)
{
    expect_taken((const uint8_t[]){1, 0, 0, 0}, 4, 32, 1);
    expect_taken((const uint8_t[]){0x39, 0x30, 0, 0, 7}, 5, 35, 12345);
    expect_taken((const uint8_t[]){0, 0, 0, 2}, 4, 32, TALLY_WEIGHT_MOST);
    expect_taken((const uint8_t[]){1, 0, 0, 2}, 4, 32, 0); /* above the limit */
    expect_taken((const uint8_t[]){0, 0, 0, 0}, 4, 32, 0);
    expect_taken((const uint8_t[]){255, 255, 255, 255}, 4, 32, 0);
    expect_taken((const uint8_t[]){1, 0, 0}, 3, 24, 0);
    expect_taken((const uint8_t[]){1, 0, 0, 0}, 4, 31, 0);
    expect_taken((const uint8_t[]){1, 0, 0}, 3, 32, 0);
    expect_taken(NULL, 0, 0, 0);
}

static void test_job_weights__that_are_known_cost_no_bit(void)
{
    struct tally_setting setting = unknown_points();
    CU_ASSERT_EQUAL(tally_weight_bits(&setting), 32);
    setting.points = 63;
    CU_ASSERT_EQUAL(tally_weight_bits(&setting), 0);
    for (uint32_t m = 0; m < CLIENTS; m++) {
        struct tally_message_view view = {.client = m};
        CU_ASSERT_EQUAL(tally_weight_take(&setting, &view, NULL), TALLY_OK);
        CU_ASSERT_EQUAL(view.weight, POINTS[m]);
    }
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_job_weights__means_are_those_of_all_points),
    TALLY_TEST(test_job_weights__missing_clients_count_for_nothing),
    TALLY_TEST(test_job_weights__order_of_arrival_does_not_matter),
    TALLY_TEST(test_job_weights__equal_shards_change_no_bit),
    TALLY_TEST(test_job_weights__losses_at_own_iterates_count_alike),
    TALLY_TEST(test_job_weights__of_messages_are_checked),
    TALLY_TEST(test_job_weights__that_are_known_cost_no_bit),
};
TALLY_SUITE(job_weights, TESTS);
