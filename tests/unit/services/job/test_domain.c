/* Jobs over a ball or a box: every point is inside, and both sides project alike. */
#include "services/objectives/solve/domain.h"

#include <math.h>

#include "services/job/job_local.h"
#include "tests/harness.h"
#include "tests/unit/services/job/job_host.h"
#include "tests/unit/services/local_run.h"

enum { N_ALGORITHMS = 5 };

static const struct tally_domain DOMAINS[] = {
    {.type = TALLY_DOMAIN_BALL, .radius = 0.3},
    {.type = TALLY_DOMAIN_BOX, .lower = -0.2, .upper = 0.3},
};

static struct tally_job_spec spec_of(int algorithm, const struct tally_domain *domain)
{
    struct tally_job_spec spec = job_host_spec();
    spec.algorithm = algorithm;
    if (algorithm > 0) {
        spec.params.baseline = (struct tally_baseline_params){
            .step_size = 0.06, .local_steps = 10, .levels = 3, .server_step_size = 2};
    }
    spec.domain = *domain;
    /* f(x*) is given, so the regret does not depend on the set over which it would be solved. */
    spec.reference = (struct tally_reference){.type = TALLY_REFERENCE_VALUE, .value = 0};
    return spec;
}

/* Server and client agree after every step (job_host_compute compares the checksums). */
static void test_job_domain__every_iterate_is_inside(void)
{
    for (int a = 0; a < N_ALGORITHMS; a++) {
        for (size_t d = 0; d < 2; d++) {
            const struct tally_job_spec spec = spec_of(a, &DOMAINS[d]);
            struct job_host host;
            job_host_init(&host, &spec);
            int n_inside = 0, n_rounds = 0;
            while (tally_job_status(host.job) == TALLY_JOB_RUNNING) {
                size_t dim;
                const double *x = tally_job_point(host.job, &dim);
                n_inside += tally_domain_is_inside(&spec.domain, x, dim);
                n_rounds++;
                job_host_round(&host);
            }
            CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_COMPLETED);
            CU_ASSERT_EQUAL(n_inside, n_rounds);
            CU_ASSERT_TRUE(tally_job_progress(host.job)->iterate > 3);
            job_host_fini(&host);
        }
    }
}

static double norm_of(const double *x, size_t dim)
{
    double square = 0;
    for (size_t i = 0; i < dim; i++) {
        square += x[i] * x[i];
    }
    return sqrt(square);
}

static void test_job_domain__initial_point_is_projected(void)
{
    const struct tally_job_spec spec = spec_of(0, &DOMAINS[0]);
    double x[6];
    tally_job_spec_initial_point(&spec, x); /* of norm 12 without a domain */
    CU_ASSERT_DOUBLE_EQUAL(norm_of(x, 6), 0.3, 1e-15);
    struct tally_domain away = {.type = TALLY_DOMAIN_BOX, .lower = 1, .upper = 2};
    struct tally_job_spec zeros = spec_of(0, &away);
    zeros.initial_point.type = TALLY_INITIAL_ZEROS;
    tally_job_spec_initial_point(&zeros, x);
    CU_ASSERT_TRUE(x[0] == 1 && x[5] == 1);
}

static void test_job_domain__alone_and_with_a_host_the_bits_are_the_same(void)
{
    for (int a = 0; a < N_ALGORITHMS; a++) {
        for (size_t d = 0; d < 2; d++) {
            const struct tally_job_spec spec = spec_of(a, &DOMAINS[d]);
            struct tally_job_spec whole = spec;
            whole.domain = (struct tally_domain){0};
            struct job_host host;
            struct tally_job *alone, *free_one;
            job_host_init(&host, &spec);
            job_host_run(&host);
            CU_ASSERT_EQUAL_FATAL(local_run(&spec, NULL, NULL, &alone, NULL), TALLY_OK);
            CU_ASSERT_EQUAL_FATAL(local_run(&whole, NULL, NULL, &free_one, NULL), TALLY_OK);
            const struct tally_progress *progress = tally_job_progress(host.job);
            CU_ASSERT_TRUE(job_same_progress(tally_job_progress(alone), progress));
            CU_ASSERT_NOT_EQUAL(tally_job_progress(free_one)->x_checksum, progress->x_checksum);
            tally_job_free(alone);
            tally_job_free(free_one);
            job_host_fini(&host);
        }
    }
}

/* The regret is relative to the minimum of f inside, and no iterate is below it. Here the minimum
 * is on the boundary. */
static void test_job_domain__regret_is_against_the_minimum_inside(void)
{
    for (size_t d = 0; d < 2; d++) {
        struct tally_job_spec spec = spec_of(1, &DOMAINS[d]); /* minibatch_sgd: shared iterates */
        spec.reference = (struct tally_reference){.type = TALLY_REFERENCE_SOLVE};
        spec.horizon = 3000;
        struct tally_job_spec whole = spec;
        whole.domain = (struct tally_domain){0};
        struct job_host host, anywhere;
        job_host_init(&host, &spec);
        job_host_init(&anywhere, &whole);
        CU_ASSERT_TRUE(host.f_star > anywhere.f_star + 1e-3);
        job_host_run(&host);
        double least = host.records[0].loss;
        for (int i = 0; i < host.n_records; i++) {
            least = fmin(least, host.records[i].loss);
        }
        CU_ASSERT_TRUE(least >= host.f_star - 1e-12 && least < host.f_star + 0.05);
        CU_ASSERT_TRUE(tally_job_progress(host.job)->cumulative_regret > 0);
        job_host_fini(&host);
        job_host_fini(&anywhere);
    }
}

/* The checksum that each task carries reveals a side that does not project. (fedavg and fedpaq are
 * excluded: their server has nothing to project, because a mean of points inside is inside.) */
static void test_job_domain__one_side_alone_is_noticed(void)
{
    static const int ALGORITHMS[] = {0, 1, 4}; /* ceal, minibatch_sgd, fedcom */
    for (size_t i = 0; i < 3; i++) {
        const int a = ALGORITHMS[i];
        const struct tally_job_spec spec = spec_of(a, &DOMAINS[0]);
        struct tally_job_spec other = spec;
        other.domain = (struct tally_domain){.type = TALLY_DOMAIN_BALL, .radius = 0.30001};
        struct job_host host;
        job_host_init(&host, &spec);
        struct tally_model_copy *copy;
        CU_ASSERT_EQUAL_FATAL(tally_model_copy_new(&other, host.objective, &copy, NULL), TALLY_OK);
        size_t dim;
        const double *x = tally_job_point(host.job, &dim); /* both start from the same point */
        CU_ASSERT_EQUAL(tally_model_copy_load(copy, 1, (const uint8_t *)x, dim * sizeof *x, NULL),
                        TALLY_OK);
        bool noticed = false;
        while (!noticed && tally_job_status(host.job) == TALLY_JOB_RUNNING) {
            job_host_round(&host);
            const int64_t iterate = tally_job_progress(host.job)->iterate;
            if (iterate > tally_model_copy_iterate(copy)) {
                const struct tally_message_view view =
                    tally_message_view(tally_job_broadcast(host.job, iterate));
                CU_ASSERT_EQUAL(tally_model_copy_apply(copy, iterate, &view, NULL), TALLY_OK);
            }
            noticed = tally_model_copy_checksum(copy) != tally_job_progress(host.job)->x_checksum;
        }
        CU_ASSERT_TRUE(noticed);
        tally_model_copy_free(copy);
        job_host_fini(&host);
    }
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_job_domain__every_iterate_is_inside),
    TALLY_TEST(test_job_domain__initial_point_is_projected),
    TALLY_TEST(test_job_domain__alone_and_with_a_host_the_bits_are_the_same),
    TALLY_TEST(test_job_domain__regret_is_against_the_minimum_inside),
    TALLY_TEST(test_job_domain__one_side_alone_is_noticed),
};
TALLY_SUITE(job_domain, TESTS);
