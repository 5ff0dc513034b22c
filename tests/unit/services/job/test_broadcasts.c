#include <string.h>

#include "tests/harness.h"
#include "tests/unit/services/job/job_host.h"

enum { KEPT = 16 };

/* Far from the minimum and with small steps: every round passes. */
static struct tally_job_spec long_way(void)
{
    struct tally_job_spec spec = job_host_spec();
    spec.params.ceal.step_size = 0.01;
    spec.params.ceal.first_stage = 3;
    spec.initial_point.radius = 50;
    spec.horizon = 200;
    return spec;
}

static void test_job_broadcasts__the_last_sixteen_are_kept(void)
{
    const struct tally_job_spec spec = long_way();
    struct job_host host;
    job_host_init(&host, &spec);
    for (int64_t iterate = 1; iterate <= 40; iterate++) {
        CU_ASSERT_EQUAL_FATAL(tally_job_progress(host.job)->iterate, iterate);
        for (int64_t k = -3; k <= iterate + 3; k++) {
            bool kept = k >= 2 && k > iterate - KEPT && k <= iterate;
            CU_ASSERT_EQUAL(tally_job_broadcast(host.job, k) != NULL, kept);
        }
        job_host_round(&host);
    }
    job_host_fini(&host);
}

/* A copy that is 16 broadcasts behind applies them one by one and reaches the very same point. */
static void test_job_broadcasts__a_late_copy_follows_by_them(void)
{
    const struct tally_job_spec spec = long_way();
    struct job_host host;
    job_host_init(&host, &spec);
    for (int i = 0; i < 5; i++) {
        job_host_round(&host);
    }
    struct tally_model_copy *late;
    CU_ASSERT_EQUAL_FATAL(tally_model_copy_new(&spec, host.objective, &late, NULL), TALLY_OK);
    size_t dim;
    const double *x = tally_job_point(host.job, &dim);
    const int64_t start = tally_job_progress(host.job)->iterate;
    CU_ASSERT_EQUAL(tally_model_copy_load(late, start, (const uint8_t *)x, dim * sizeof *x, NULL),
                    TALLY_OK);
    for (int i = 0; i < KEPT; i++) {
        job_host_round(&host);
    }
    CU_ASSERT_EQUAL_FATAL(tally_job_progress(host.job)->iterate, start + KEPT);
    for (int64_t k = start + 1; k <= start + KEPT; k++) {
        const struct tally_message *message = tally_job_broadcast(host.job, k);
        CU_ASSERT_PTR_NOT_NULL_FATAL(message);
        struct tally_message_view view = tally_message_view(message);
        CU_ASSERT_EQUAL(tally_model_copy_apply(late, k, &view, NULL), TALLY_OK);
    }
    CU_ASSERT_EQUAL(tally_model_copy_checksum(late), tally_job_progress(host.job)->x_checksum);
    tally_model_copy_free(late);
    job_host_fini(&host);
}

/* Broadcasts are not saved: a restored engine offers only those that it makes itself. */
static void test_job_broadcasts__restored_engine_starts_without(void)
{
    const struct tally_job_spec spec = long_way();
    struct job_host host;
    job_host_init(&host, &spec);
    for (int i = 0; i < 20; i++) {
        job_host_round(&host);
    }
    struct job_look look = job_look(host.job);
    tally_job_free(host.job);
    CU_ASSERT_EQUAL_FATAL(tally_job_restore(&spec, look.status, &look.progress, look.state.data,
                                            look.state.size, &host.job, NULL),
                          TALLY_OK);
    const int64_t start = look.progress.iterate;
    job_look_fini(&look);
    size_t dim;
    const double *x = tally_job_point(host.job, &dim);
    CU_ASSERT_EQUAL(
        tally_model_copy_load(host.copy, start, (const uint8_t *)x, dim * sizeof *x, NULL),
        TALLY_OK);
    for (int i = 0; i <= 20; i++) {
        for (int64_t k = start - 20; k <= start + 21; k++) {
            bool kept = k > start && k <= start + i && k > start + i - KEPT;
            CU_ASSERT_EQUAL(tally_job_broadcast(host.job, k) != NULL, kept);
        }
        job_host_round(&host);
    }
    job_host_fini(&host);
}

/* Long broadcasts are kept only while together they are shorter than the point: one of floats, but
 * not two. Below 64 KiB in total they are always kept. */
static void test_job_broadcasts__no_more_than_the_point_is_kept(void)
{
    static const struct {
        int64_t dim;
        int kept;
    } CASES[] = {{20000, 1}, {8192, 1}, {8191, 2}, {5000, 3}, {1024, 15}, {1000, 16}};
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        struct tally_job_spec spec = long_way();
        while (strcmp(tally_job_spec_algorithm(&spec)->name, "fedavg") != 0) {
            spec.algorithm++;
        }
        spec.params = TALLY_FEDAVG.defaults();
        spec.params.baseline.step_size = 0.001;
        spec.params.baseline.local_steps = 1;
        spec.objective.data.synthetic_linear.dim = CASES[i].dim;
        struct job_host host;
        job_host_init(&host, &spec);
        for (int64_t n = 1; n <= 18; n++) {
            job_host_round(&host);
            const int64_t iterate = tally_job_progress(host.job)->iterate;
            const int64_t first = iterate - (n < CASES[i].kept ? n : CASES[i].kept) + 1;
            CU_ASSERT_EQUAL_FATAL(iterate, n + 1);
            for (int64_t k = first - 2; k <= iterate; k++) {
                CU_ASSERT_EQUAL(tally_job_broadcast(host.job, k) != NULL, k >= first);
            }
        }
        job_host_fini(&host);
    }
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_job_broadcasts__the_last_sixteen_are_kept),
    TALLY_TEST(test_job_broadcasts__a_late_copy_follows_by_them),
    TALLY_TEST(test_job_broadcasts__restored_engine_starts_without),
    TALLY_TEST(test_job_broadcasts__no_more_than_the_point_is_kept),
};
TALLY_SUITE(job_broadcasts, TESTS);
