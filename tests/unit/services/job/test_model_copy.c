#include "services/job/model_copy.h"

#include <math.h>
#include <string.h>

#include "codec/numeric/checksum.h"
#include "tests/harness.h"
#include "tests/unit/services/job/job_host.h"

static struct job_host HOST;

/* A host whose engine is one broadcast ahead of the copy. */
static void init_one_ahead(void)
{
    const struct tally_job_spec spec = job_host_spec();
    job_host_init(&HOST, &spec);
    while (tally_job_progress(HOST.job)->iterate < 2) {
        job_host_round(&HOST);
    }
    CU_ASSERT_EQUAL_FATAL(tally_model_copy_iterate(HOST.copy), 1);
}

static void test_job_model_copy__starts_where_the_engine_starts(void)
{
    const struct tally_job_spec spec = job_host_spec();
    job_host_init(&HOST, &spec);
    CU_ASSERT_EQUAL(tally_model_copy_iterate(HOST.copy), 1);
    CU_ASSERT_EQUAL(tally_model_copy_checksum(HOST.copy), tally_job_progress(HOST.job)->x_checksum);
    job_host_fini(&HOST);
    tally_model_copy_free(NULL);
}

static void test_job_model_copy__applies_only_the_next_broadcast(void)
{
    init_one_ahead();
    const uint64_t before = tally_model_copy_checksum(HOST.copy);
    struct tally_message_view view = tally_message_view(tally_job_broadcast(HOST.job, 2));
    const int64_t wrong[] = {0, 1, 3, -1, INT64_MAX};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct tally_error err = TALLY_ERROR_INIT;
        TALLY_ASSERT_STATUS(tally_model_copy_apply(HOST.copy, wrong[i], &view, &err),
                            TALLY_FAILED_PRECONDITION, &err);
    }
    CU_ASSERT_EQUAL(tally_model_copy_checksum(HOST.copy), before);
    CU_ASSERT_EQUAL(tally_model_copy_apply(HOST.copy, 2, &view, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(tally_model_copy_iterate(HOST.copy), 2);
    CU_ASSERT_EQUAL(tally_model_copy_checksum(HOST.copy), tally_job_progress(HOST.job)->x_checksum);
    CU_ASSERT_EQUAL(tally_model_copy_apply(HOST.copy, 2, &view, NULL), TALLY_FAILED_PRECONDITION);
    job_host_fini(&HOST);
}

static void test_job_model_copy__malformed_broadcast_leaves_the_point(void)
{
    init_one_ahead();
    const uint64_t before = tally_model_copy_checksum(HOST.copy);
    const struct tally_message_view good = tally_message_view(tally_job_broadcast(HOST.job, 2));
    struct tally_message_view bad[6];
    for (size_t i = 0; i < 6; i++) {
        bad[i] = good;
    }
    bad[0].payload_bits--;
    bad[1].n_payload--;
    bad[2].grid.intervals = 3;
    bad[3].grid.step = 0;
    bad[4].grid.intervals = 2; /* its levels exceed 1 */
    bad[5].n_payload = 0;
    for (size_t i = 0; i < 6; i++) {
        struct tally_error err = TALLY_ERROR_INIT;
        TALLY_ASSERT_STATUS(tally_model_copy_apply(HOST.copy, 2, &bad[i], &err), TALLY_MALFORMED,
                            &err);
        CU_ASSERT_EQUAL(tally_model_copy_iterate(HOST.copy), 1);
        CU_ASSERT_EQUAL(tally_model_copy_checksum(HOST.copy), before);
    }
    CU_ASSERT_EQUAL(tally_model_copy_apply(HOST.copy, 2, &good, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(tally_model_copy_checksum(HOST.copy), tally_job_progress(HOST.job)->x_checksum);
    job_host_fini(&HOST);
}

/* FORMAT.md: a snapshot is dim little-endian float64. */
static void test_job_model_copy__loads_a_snapshot_of_the_right_size(void)
{
    init_one_ahead();
    const uint64_t before = tally_model_copy_checksum(HOST.copy);
    uint8_t snapshot[49] = {0};
    const double x[6] = {1, -2.5, 0, 1e-300, 3, -0.0};
    memcpy(snapshot, x, sizeof x);
    CU_ASSERT_EQUAL(tally_model_copy_load(HOST.copy, 9, snapshot, 47, NULL), TALLY_MALFORMED);
    CU_ASSERT_EQUAL(tally_model_copy_load(HOST.copy, 9, snapshot, 49, NULL), TALLY_MALFORMED);
    CU_ASSERT_EQUAL(tally_model_copy_load(HOST.copy, 9, snapshot, 0, NULL), TALLY_MALFORMED);
    CU_ASSERT_EQUAL(tally_model_copy_iterate(HOST.copy), 1);
    CU_ASSERT_EQUAL(tally_model_copy_checksum(HOST.copy), before);
    CU_ASSERT_EQUAL(tally_model_copy_load(HOST.copy, 9, snapshot, 48, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(tally_model_copy_iterate(HOST.copy), 9);
    CU_ASSERT_EQUAL(tally_model_copy_checksum(HOST.copy), tally_checksum64(x, sizeof x));
    job_host_fini(&HOST);
}

/* The same client and round give the same bytes, whatever was computed before and by whichever
 * copy. */
static void test_job_model_copy__repeats_a_round_byte_for_byte(void)
{
    const struct tally_job_spec spec = job_host_spec();
    job_host_init(&HOST, &spec);
    job_host_compute(&HOST);
    struct tally_model_copy *other;
    CU_ASSERT_EQUAL_FATAL(tally_model_copy_new(&spec, HOST.objective, &other, NULL), TALLY_OK);
    for (uint32_t m = 5; m-- > 0;) {
        struct tally_update update;
        struct tally_bits bits;
        CU_ASSERT_EQUAL(tally_model_copy_compute(other, tally_job_open_round(HOST.job), m, &update,
                                                 &bits, NULL),
                        TALLY_OK);
        CU_ASSERT_EQUAL(update.client, m);
        CU_ASSERT_EQUAL(update.round, 1);
        CU_ASSERT_EQUAL_FATAL(update.payload.size, HOST.updates[m].payload.size);
        CU_ASSERT_EQUAL(
            memcmp(update.payload.data, HOST.updates[m].payload.data, update.payload.size), 0);
        CU_ASSERT_EQUAL(update.payload_bits, HOST.updates[m].payload_bits);
        CU_ASSERT_EQUAL(update.clipped, HOST.updates[m].clipped);
        CU_ASSERT_EQUAL(update.loss, HOST.updates[m].loss);
    }
    tally_model_copy_free(other);
    job_host_fini(&HOST);
}

/* The plan comes from the coordinator. The copy refuses an invalid plan before it computes
 * anything. */
static void test_job_model_copy__refuses_rounds_that_nobody_can_play(void)
{
    const struct tally_job_spec spec = job_host_spec();
    job_host_init(&HOST, &spec);
    const struct tally_job_round good = *tally_job_open_round(HOST.job);
    struct tally_job_round bad[10];
    for (size_t i = 0; i < 10; i++) {
        bad[i] = good;
    }
    bad[0].plan.samples = 0;
    bad[1].plan.samples = -1;
    bad[2].plan.samples = spec.horizon + 1;
    bad[3].plan.samples = INT64_MAX;
    bad[4].plan.grid.intervals++; /* odd */
    bad[5].plan.grid.intervals = 0;
    bad[6].plan.grid.step = 0;
    bad[7].plan.grid.step = (double)NAN;
    bad[8].plan.grid.step = -good.plan.grid.step;
    bad[9].plan.grid.step = (double)INFINITY;
    struct tally_update update;
    struct tally_bits bits;
    for (size_t i = 0; i < 10; i++) {
        struct tally_error err = TALLY_ERROR_INIT;
        TALLY_ASSERT_STATUS(tally_model_copy_compute(HOST.copy, &bad[i], 0, &update, &bits, &err),
                            TALLY_OUT_OF_RANGE, &err);
        TALLY_ASSERT_TEXT(err.field, i < 4 ? "samples" : "quantizer_step");
    }
    const uint32_t clients[] = {5, UINT32_MAX};
    for (size_t i = 0; i < 2; i++) {
        struct tally_error err = TALLY_ERROR_INIT;
        TALLY_ASSERT_STATUS(
            tally_model_copy_compute(HOST.copy, &good, clients[i], &update, &bits, &err),
            TALLY_OUT_OF_RANGE, &err);
    }
    job_host_fini(&HOST);
}

/* Logarithms may differ in the last bit between machines: the copy uses the announced grid. */
static void test_job_model_copy__plays_by_the_announced_grid(void)
{
    const struct tally_job_spec spec = job_host_spec();
    job_host_init(&HOST, &spec);
    const struct tally_setting setting = tally_job_spec_setting(&spec);
    struct tally_job_round round = *tally_job_open_round(HOST.job);
    round.plan.grid.step *= 1 + 0x1p-52;
    round.plan.grid.intervals = 2;
    struct tally_update update;
    struct tally_bits bits;
    CU_ASSERT_EQUAL_FATAL(tally_model_copy_compute(HOST.copy, &round, 0, &update, &bits, NULL),
                          TALLY_OK);
    int32_t levels[6];
    struct tally_level_stats stats;
    CU_ASSERT_EQUAL(setting.encoding->decode(update.payload.data, update.payload.size,
                                             update.payload_bits, 6, &round.plan.grid, levels,
                                             &stats, NULL),
                    TALLY_OK);
    CU_ASSERT_EQUAL(stats.payload_bits, bits.payload_bits);
    job_host_fini(&HOST);
}

/* In a cut round a client sends no message, and a loss only if requested. */
static void test_job_model_copy__sends_nothing_in_a_cut_round(void)
{
    const struct tally_job_spec spec = job_host_spec();
    job_host_init(&HOST, &spec);
    struct tally_job_round round = *tally_job_open_round(HOST.job);
    struct tally_update update;
    struct tally_bits bits;
    CU_ASSERT_EQUAL(tally_model_copy_compute(HOST.copy, &round, 2, &update, &bits, NULL), TALLY_OK);
    CU_ASSERT_TRUE(update.payload.size > 0); /* this message must not be sent again */
    const double loss = update.loss;
    round.plan.cut = true;
    CU_ASSERT_EQUAL(tally_model_copy_compute(HOST.copy, &round, 2, &update, &bits, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(update.payload.size, 0);
    CU_ASSERT_EQUAL(update.payload_bits, 0);
    CU_ASSERT_EQUAL(update.clipped, 0);
    CU_ASSERT_EQUAL(bits.messages, 0);
    CU_ASSERT_EQUAL(bits.formula_bits, 0);
    CU_ASSERT_TRUE(update.has_loss);
    CU_ASSERT_EQUAL(update.loss, loss);
    round.evaluate = false;
    CU_ASSERT_EQUAL(tally_model_copy_compute(HOST.copy, &round, 2, &update, &bits, NULL), TALLY_OK);
    CU_ASSERT_FALSE(update.has_loss);
    job_host_fini(&HOST);
}

static void test_job_model_copy__diverged_point_is_not_finite(void)
{
    const struct tally_job_spec spec = job_host_spec();
    job_host_init(&HOST, &spec);
    double x[6] = {1e60, 0, 0, 0, 0, 0};
    CU_ASSERT_EQUAL(tally_model_copy_load(HOST.copy, 1, (const uint8_t *)x, sizeof x, NULL),
                    TALLY_OK);
    struct tally_update update;
    struct tally_bits bits;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_model_copy_compute(HOST.copy, tally_job_open_round(HOST.job), 3,
                                                 &update, &bits, &err),
                        TALLY_NOT_FINITE, &err);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.message, "gradient of client 3: coordinate "));
    job_host_fini(&HOST);
}

/* A worker does not receive the shift of a client that has sent nothing yet, so the worker's
 * initial shift must equal the coordinator's. */
static void test_job_model_copy__shifts_begin_where_the_engines_begin(void)
{
    int n = 0;
    for (int a = 0; TALLY_ALGORITHMS[a] != NULL; a++) {
        if (TALLY_ALGORITHMS[a]->shift_start == NULL || TALLY_ALGORITHMS[a] == &TALLY_CALM) {
            continue;
        }
        struct tally_job_spec spec = job_host_spec();
        spec.algorithm = a;
        spec.params.baseline = (struct tally_baseline_params){
            .step_size = 0.1, .local_steps = 3, .levels = 4, .server_step_size = 1, .alpha = 0.5};
        spec.initial_point.type = TALLY_INITIAL_RANDOM_SPHERE;
        spec.initial_point.radius = 2;
        job_host_init(&HOST, &spec);
        const struct tally_job_round *open = tally_job_open_round(HOST.job);
        struct tally_update own, given;
        struct tally_bits bits;
        struct tally_model_copy *other = NULL;
        int64_t round;
        const float *shift = tally_job_shift(HOST.job, 3, &round);
        CU_ASSERT_EQUAL(round, 0);
        CU_ASSERT_EQUAL_FATAL(tally_model_copy_new(&spec, HOST.objective, &other, NULL), TALLY_OK);
        CU_ASSERT_EQUAL(tally_model_copy_set_shift(other, 3, 0, (const uint8_t *)shift,
                                                   6 * sizeof *shift, NULL),
                        TALLY_OK);
        CU_ASSERT_EQUAL(tally_model_copy_compute(HOST.copy, open, 3, &own, &bits, NULL), TALLY_OK);
        CU_ASSERT_EQUAL(tally_model_copy_compute(other, open, 3, &given, &bits, NULL), TALLY_OK);
        CU_ASSERT_EQUAL_FATAL(own.payload.size, given.payload.size);
        CU_ASSERT_EQUAL(memcmp(own.payload.data, given.payload.data, own.payload.size), 0);
        tally_model_copy_free(other);
        job_host_fini(&HOST);
        n++;
    }
    CU_ASSERT_TRUE(n >= 2); /* diana, scaffold */
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_job_model_copy__starts_where_the_engine_starts),
    TALLY_TEST(test_job_model_copy__applies_only_the_next_broadcast),
    TALLY_TEST(test_job_model_copy__malformed_broadcast_leaves_the_point),
    TALLY_TEST(test_job_model_copy__loads_a_snapshot_of_the_right_size),
    TALLY_TEST(test_job_model_copy__repeats_a_round_byte_for_byte),
    TALLY_TEST(test_job_model_copy__refuses_rounds_that_nobody_can_play),
    TALLY_TEST(test_job_model_copy__plays_by_the_announced_grid),
    TALLY_TEST(test_job_model_copy__sends_nothing_in_a_cut_round),
    TALLY_TEST(test_job_model_copy__diverged_point_is_not_finite),
    TALLY_TEST(test_job_model_copy__shifts_begin_where_the_engines_begin),
};
TALLY_SUITE(job_model_copy, TESTS);
