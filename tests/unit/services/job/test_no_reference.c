/* Jobs whose f(x*) is unknown, and clients that have only gradients. */
#include <math.h>
#include <string.h>

#include "services/job/job_local.h"
#include "tests/harness.h"
#include "tests/unit/services/job/job_host.h"

static struct tally_job_spec unknown(void)
{
    struct tally_job_spec spec = job_host_spec();
    spec.reference.type = TALLY_REFERENCE_NONE;
    return spec;
}

static bool has_no_regret(const struct tally_progress *progress)
{
    return !progress->has_f_star && isnan(progress->f_star) && isnan(progress->cumulative_regret);
}

/* Everything but the regret is the same as with a reference. */
static void test_job_no_reference__the_regret_is_unknown_and_nothing_else(void)
{
    const struct tally_job_spec spec = unknown(), solved = job_host_spec();
    struct job_host host, other;
    job_host_init(&host, &spec);
    job_host_init(&other, &solved);
    CU_ASSERT_TRUE(has_no_regret(tally_job_progress(host.job)));
    job_host_run(&host);
    job_host_run(&other);
    const struct tally_progress *progress = tally_job_progress(host.job);
    CU_ASSERT_TRUE(has_no_regret(progress));
    CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_COMPLETED);
    CU_ASSERT_EQUAL(progress->x_checksum, tally_job_progress(other.job)->x_checksum);
    CU_ASSERT_EQUAL_FATAL(host.n_records, other.n_records);
    for (int i = 0; i < host.n_records; i++) {
        CU_ASSERT_TRUE(isnan(host.records[i].cumulative_regret));
        host.records[i].cumulative_regret = other.records[i].cumulative_regret;
        CU_ASSERT_TRUE(job_same_record(&host.records[i], &other.records[i])); /* the loss too */
    }
    job_host_fini(&host);
    job_host_fini(&other);
}

static void test_job_no_reference__it_is_unknown_before_the_start_and_after_a_restore(void)
{
    const struct tally_job_spec spec = unknown();
    struct tally_job *job, *again;
    CU_ASSERT_EQUAL_FATAL(tally_job_new(&spec, &job, NULL), TALLY_OK);
    CU_ASSERT_TRUE(has_no_regret(tally_job_progress(job)));
    CU_ASSERT_EQUAL(tally_job_start(job, 3, "", NULL),
                    TALLY_OK); /* the host's value does not count */
    CU_ASSERT_TRUE(has_no_regret(tally_job_progress(job)));
    struct tally_buffer state = {0};
    CU_ASSERT_EQUAL_FATAL(tally_job_save_state(job, &state), TALLY_OK);
    CU_ASSERT_EQUAL_FATAL(tally_job_restore(&spec, TALLY_JOB_RUNNING, tally_job_progress(job),
                                            state.data, state.size, &again, NULL),
                          TALLY_OK);
    CU_ASSERT_TRUE(has_no_regret(tally_job_progress(again)));
    tally_job_free(again);
    struct tally_progress progress = *tally_job_progress(job);
    progress.has_f_star = true; /* of another job */
    CU_ASSERT_EQUAL(tally_job_restore(&spec, TALLY_JOB_RUNNING, &progress, state.data, state.size,
                                      &again, NULL),
                    TALLY_DATA_LOSS);
    tally_buffer_fini(&state);
    tally_job_free(job);
}

static bool no_loss(const struct tally_objective *objective)
{
    (void)objective;
    return false;
}

/* Removes the loss from the host's objective; `ret_ops` must outlive the host. */
static void take_away_the_loss(struct job_host *host, struct tally_objective_ops *ret_ops)
{
    *ret_ops = *host->objective->ops;
    ret_ops->has_loss = no_loss;
    host->objective->ops = ret_ops;
}

static void test_job_no_reference__clients_may_have_gradients_alone(void)
{
    for (int a = 0; a < 5; a++) {
        struct tally_job_spec spec = unknown();
        spec.algorithm = a;
        if (a > 0) {
            spec.params.baseline = (struct tally_baseline_params){
                .step_size = 0.02, .local_steps = 7, .levels = 3, .server_step_size = 2};
        }
        struct tally_objective_ops ops;
        struct job_host host, other;
        job_host_init(&host, &spec);
        job_host_init(&other, &spec);
        take_away_the_loss(&host, &ops);
        job_host_run(&host);
        job_host_run(&other);
        const struct tally_progress *progress = tally_job_progress(host.job);
        CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_COMPLETED);
        CU_ASSERT_EQUAL(progress->x_checksum, tally_job_progress(other.job)->x_checksum);
        CU_ASSERT_EQUAL(progress->round, tally_job_progress(other.job)->round);
        for (int i = 0; i < host.n_records; i++) {
            CU_ASSERT_TRUE(isnan(host.records[i].loss));
            CU_ASSERT_FALSE(isnan(other.records[i].loss));
        }
        /* Without losses there is no telemetry for them. */
        CU_ASSERT_TRUE(progress->bits.telemetry_bits <
                       tally_job_progress(other.job)->bits.telemetry_bits);
        job_host_fini(&host);
        job_host_fini(&other);
    }
}

/* A mean over only the clients that report a loss would be a different function. */
static void test_job_no_reference__one_silent_client_makes_the_loss_unknown(void)
{
    const struct tally_job_spec spec = unknown();
    struct job_host host;
    job_host_init(&host, &spec);
    job_host_compute(&host);
    for (uint32_t m = 0; m < 5; m++) {
        host.updates[m].has_loss = m != 3;
        job_host_send(&host, m);
    }
    CU_ASSERT_TRUE(isnan(host.records[0].loss));
    job_host_fini(&host);
}

/* The mean of finite losses is finite, even if their sum is not. If the regret is not, the job
 * fails, and the round has no record. */
static void test_job_no_reference__a_regret_that_overflows_fails_the_job(void)
{
    static const struct {
        bool is_known;
        double loss;
        const char *reason; /* NULL: the job goes on */
    } rows[] = {
        {false, 1.7e308, NULL},
        {true, 1.7e308,
         "diverged: the regret after round 1 is not finite: the loss is 1.7e+308, f(x*) "},
        {true, -3e307,
         "diverged: the regret after round 2 is not finite: the loss is -3e+307, f(x*) "},
        {false, 3e307, NULL},
        {true, 3e305, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct tally_job_spec spec = rows[i].is_known ? job_host_spec() : unknown();
        struct job_host host;
        job_host_init(&host, &spec);
        struct tally_progress before = {.round = 0};
        for (int round = 0; round < 2 && tally_job_status(host.job) == TALLY_JOB_RUNNING; round++) {
            before = *tally_job_progress(host.job);
            job_host_compute(&host);
            for (uint32_t m = 0; m < 5; m++) {
                host.updates[m].loss = rows[i].loss;
                job_host_send(&host, m);
            }
        }
        const char *reason = tally_job_reason(host.job);
        if (rows[i].reason != NULL) {
            CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_FAILED);
            CU_ASSERT_EQUAL(strncmp(reason, rows[i].reason, strlen(rows[i].reason)), 0);
            CU_ASSERT_EQUAL(tally_job_progress(host.job)->x_checksum, before.x_checksum);
            CU_ASSERT_TRUE(!rows[i].is_known || /* else there are NaNs in it */
                           job_same_progress(tally_job_progress(host.job), &before));
            CU_ASSERT_EQUAL(host.n_records, before.round);
        } else {
            CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_RUNNING);
            CU_ASSERT_DOUBLE_EQUAL(host.records[0].loss / rows[i].loss, 1, 1e-15);
        }
        job_host_fini(&host);
    }
}

static void test_job_no_reference__others_need_the_loss(void)
{
    struct tally_job_spec spec = job_host_spec();
    for (int i = 0; i < 2; i++) {
        spec.reference.type = i == 0 ? TALLY_REFERENCE_SOLVE : TALLY_REFERENCE_VALUE;
        struct tally_objective_ops ops;
        struct job_host host;
        struct tally_job_outcome outcome;
        struct tally_error err = TALLY_ERROR_INIT;
        job_host_init(&host, &spec);
        take_away_the_loss(&host, &ops);
        job_host_compute(&host);
        CU_ASSERT_EQUAL(tally_job_receive(host.job, &host.updates[0], &outcome, &err),
                        TALLY_MALFORMED);
        TALLY_ASSERT_TEXT(err.field, "loss");
        TALLY_ASSERT_TEXT(err.message, "round 1 needs a loss; clients may omit it only in jobs "
                                       "whose reference is none");
        CU_ASSERT_FALSE(tally_job_has_received(host.job, 0));
        job_host_fini(&host);
    }
    spec.reference.type = TALLY_REFERENCE_NONE; /* a reported loss must be a number */
    struct job_host host;
    struct tally_job_outcome outcome;
    job_host_init(&host, &spec);
    job_host_compute(&host);
    host.updates[0].loss = NAN;
    CU_ASSERT_EQUAL(tally_job_receive(host.job, &host.updates[0], &outcome, NULL), TALLY_MALFORMED);
    job_host_fini(&host);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_job_no_reference__the_regret_is_unknown_and_nothing_else),
    TALLY_TEST(test_job_no_reference__it_is_unknown_before_the_start_and_after_a_restore),
    TALLY_TEST(test_job_no_reference__clients_may_have_gradients_alone),
    TALLY_TEST(test_job_no_reference__one_silent_client_makes_the_loss_unknown),
    TALLY_TEST(test_job_no_reference__a_regret_that_overflows_fails_the_job),
    TALLY_TEST(test_job_no_reference__others_need_the_loss),
};
TALLY_SUITE(job_no_reference, TESTS);
