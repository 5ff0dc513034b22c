/* The survey before the first round: who is asked, what it costs, what is kept. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "services/job/job_local.h"
#include "services/job/job_reasons.h"
#include "services/objectives/data/scaling.h"
#include "tests/harness.h"
#include "tests/unit/services/job/job_host.h"

enum { CLIENTS = 3, FEATURES = 2, SCALING_BITS = 8 * 3 * FEATURES * 8 };

static char folder[] = "/tmp/tally-test-XXXXXX";

static void write_file(int client, const char *text)
{
    char path[64];
    snprintf(path, sizeof path, "%s/p-%d.csv", folder, client);
    FILE *file = fopen(path, "w");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    fputs(text, file);
    fclose(file);
}

static void open_folder(void)
{
    strcpy(folder, "/tmp/tally-test-XXXXXX");
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(folder));
    write_file(0, "a,b,y\n1,100,1\n2,,0.5\n4,130,-1\n");
    write_file(1, "a,b,y\n-1,90,0\n0.5,70,2\n");
    write_file(2, "a,b,y\n3,110,1\n,20,0\n7,0,1\n1,1,1\n");
}

static void remove_folder(void)
{
    for (int m = 0; m < CLIENTS; m++) {
        char path[64];
        snprintf(path, sizeof path, "%s/p-%d.csv", folder, m);
        unlink(path);
    }
    CU_ASSERT_EQUAL(rmdir(folder), 0);
}

/* Least squares over the files of three clients. */
static struct tally_job_spec spec_of(double cohort, int policy, int64_t quorum)
{
    struct tally_job_spec spec = job_host_fedavg_spec(CLIENTS, cohort);
    struct tally_data_spec *data = &spec.objective.data;
    data->type = TALLY_DATA_CSV;
    data->sharding = TALLY_SHARDING_LOCAL;
    strcpy(data->table.file, "p-{client}.csv");
    strcpy(data->table.label, "y");
    data->table.features = FEATURES;
    data->table.standardize = true;
    data->table.missing = TALLY_MISSING_MEAN;
    spec.reference.type = TALLY_REFERENCE_VALUE;
    spec.horizon = 30;
    spec.policy = policy;
    spec.quorum = quorum;
    return spec;
}

/* The survey asks all clients, whatever the cohort and the policy, and no deadline ends it. */
static void test_job_survey__waits_for_all_clients(void)
{
    open_folder();
    struct job_host host;
    struct tally_job_spec spec = spec_of(2, TALLY_POLICY_DROP, 1);
    spec.round_deadline_ms = 10;
    job_host_init_in(&host, &spec, folder);
    uint32_t n;
    uint64_t bits = 0;
    struct tally_job_outcome outcome;
    CU_ASSERT_TRUE(tally_job_open_round(host.job)->surveys);
    CU_ASSERT_EQUAL(tally_job_open_round(host.job)->plan.samples, 0);
    (void)tally_job_cohort(host.job, &n);
    CU_ASSERT_EQUAL(n, CLIENTS);
    job_host_compute(&host);
    for (uint32_t m = 0; m < CLIENTS; m++) {
        bits += host.bits[m].payload_bits;
        CU_ASSERT_EQUAL(host.bits[m].payload_bits, 8 * host.updates[m].payload.size);
    }
    outcome = job_host_send(&host, 2);
    CU_ASSERT_EQUAL(outcome.bits.payload_bits, host.bits[2].payload_bits);
    outcome = job_host_send(&host, 0);
    CU_ASSERT_FALSE(outcome.surveyed);
    tally_job_set_absent(host.job, 1, true, &outcome);
    CU_ASSERT_FALSE(outcome.surveyed);
    CU_ASSERT_EQUAL(tally_job_overdue(host.job, &outcome, NULL), TALLY_OK);
    CU_ASSERT_FALSE(outcome.surveyed || tally_job_open_round(host.job)->overdue);
    CU_ASSERT_TRUE(tally_job_awaits(host.job, 1));
    char missing[TALLY_MISSING_CAPACITY];
    tally_job_list_awaited(host.job, missing);
    TALLY_ASSERT_TEXT(missing, "1");
    outcome = job_host_send(&host, 1);
    CU_ASSERT_TRUE(outcome.surveyed);
    CU_ASSERT_EQUAL(outcome.n_records, 0);
    CU_ASSERT_TRUE(tally_job_is_absent(host.job, 1));

    /* The first round has its cohort and its number, and no client has answered it. */
    CU_ASSERT_FALSE(tally_job_open_round(host.job)->surveys);
    CU_ASSERT_EQUAL(tally_job_open_round(host.job)->round, 1);
    (void)tally_job_cohort(host.job, &n);
    CU_ASSERT_EQUAL(n, 2);
    for (uint32_t m = 0; m < CLIENTS; m++) {
        CU_ASSERT_FALSE(tally_job_has_received(host.job, m));
    }
    CU_ASSERT_EQUAL(tally_job_progress(host.job)->round, 0);
    CU_ASSERT_EQUAL(tally_job_progress(host.job)->time_step, 0);
    job_host_round(&host);
    job_host_round(&host);
    CU_ASSERT_EQUAL_FATAL(host.n_records, 2);
    CU_ASSERT_EQUAL(host.records[0].bits.control_bits,
                    host.records[1].bits.control_bits + bits + SCALING_BITS);
    CU_ASSERT_EQUAL(host.records[0].bits.uplink.payload_bits,
                    host.records[1].bits.uplink.payload_bits);
    job_host_fini(&host);
    remove_folder();
}

/* What a worker without the files of the others gets. */
static void test_job_survey__order_and_hosts_make_no_difference(void)
{
    static const uint32_t ORDERS[][CLIENTS] = {{0, 1, 2}, {2, 1, 0}, {1, 2, 0}};
    open_folder();
    const struct tally_job_spec spec = spec_of(0, TALLY_POLICY_WAIT, CLIENTS);
    double first[3 * FEATURES];
    uint64_t checksum = 0;
    for (size_t k = 0; k < sizeof ORDERS / sizeof *ORDERS; k++) {
        struct job_host host;
        size_t n;
        job_host_init_in(&host, &spec, folder);
        job_host_compute(&host);
        CU_ASSERT_PTR_NULL(tally_job_scaling(host.job, &n));
        for (int i = 0; i < CLIENTS; i++) {
            (void)job_host_send(&host, ORDERS[k][i]);
        }
        const double *numbers = tally_job_scaling(host.job, &n);
        CU_ASSERT_PTR_NOT_NULL_FATAL(numbers);
        CU_ASSERT_EQUAL_FATAL(n, sizeof first);
        if (k == 0) {
            memcpy(first, numbers, n);
            CU_ASSERT_DOUBLE_EQUAL(first[0], 17.5 / 8, 1e-15); /* one of the nine is missing */
            CU_ASSERT_EQUAL(host.objective->scaling, tally_scaling_digest(numbers, FEATURES));
        }
        CU_ASSERT_EQUAL(memcmp(first, numbers, n), 0);
        job_host_run(&host);
        CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_COMPLETED);
        checksum = tally_job_progress(host.job)->x_checksum;
        job_host_fini(&host);
    }
    struct tally_objective *objective = NULL;
    struct tally_job *job = NULL;
    CU_ASSERT_EQUAL_FATAL(tally_objective_new(&spec.objective, CLIENTS,
                                              tally_job_spec_setting(&spec).key, folder, &objective,
                                              NULL),
                          TALLY_OK);
    CU_ASSERT_EQUAL_FATAL(
        tally_local_run_on(&spec, objective, 0, &(struct tally_local_observer){0}, &job, NULL),
        TALLY_OK);
    CU_ASSERT_EQUAL(tally_job_progress(job)->x_checksum, checksum);
    tally_job_free(job);
    tally_objective_free(objective);
    remove_folder();
}

/* Sends the survey. */
static void survey(struct job_host *host)
{
    job_host_compute(host);
    for (uint32_t m = 0; m < CLIENTS; m++) {
        (void)job_host_send(host, m);
    }
}

static struct tally_job *restore(const struct job_host *host, const struct tally_job *job,
                                 const struct tally_buffer *state)
{
    struct tally_job *restored = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_job_restore(&host->spec, tally_job_status(job),
                                          tally_job_progress(job), state->data, state->size,
                                          &restored, &err),
                        TALLY_OK, &err);
    CU_ASSERT_PTR_NOT_NULL_FATAL(restored);
    return restored;
}

static void test_job_survey__the_scaling_is_part_of_the_state(void)
{
    open_folder();
    for (int with_cohort = 0; with_cohort < 2; with_cohort++) {
        struct job_host host, expected;
        const struct tally_job_spec spec =
            spec_of(with_cohort ? 2 : 0, TALLY_POLICY_WAIT, with_cohort ? 2 : CLIENTS);
        job_host_init_in(&expected, &spec, folder);
        job_host_run(&expected);
        job_host_init_in(&host, &spec, folder);

        /* Killed within the survey: nothing is stored but the answers, which come again. */
        struct tally_job *restored = restore(&host, host.job, &(struct tally_buffer){0});
        CU_ASSERT_TRUE(tally_job_open_round(restored)->surveys);
        CU_ASSERT_EQUAL(tally_job_open_round(restored)->mark, tally_job_open_round(host.job)->mark);
        tally_job_free(host.job);
        host.job = restored;
        survey(&host);

        /* Killed after every round. */
        while (tally_job_status(host.job) == TALLY_JOB_RUNNING) {
            struct tally_buffer state = {0};
            size_t n, n_again;
            job_host_compute(&host); /* the copy follows before the broadcast is forgotten */
            CU_ASSERT_EQUAL_FATAL(tally_job_save_state(host.job, &state), TALLY_OK);
            const double *numbers = tally_job_scaling(host.job, &n);
            restored = restore(&host, host.job, &state);
            const double *again = tally_job_scaling(restored, &n_again);
            CU_ASSERT_PTR_NOT_NULL_FATAL(again);
            CU_ASSERT_EQUAL_FATAL(n_again, n);
            CU_ASSERT_TRUE(again != NULL && memcmp(numbers, again, n) == 0);
            CU_ASSERT_FALSE(tally_job_open_round(restored)->surveys);
            CU_ASSERT_EQUAL(tally_job_open_round(restored)->scaling,
                            tally_job_open_round(host.job)->scaling);
            tally_job_free(host.job);
            host.job = restored;
            job_host_round(&host);
            tally_buffer_fini(&state);
        }
        CU_ASSERT_TRUE(
            job_same_progress(tally_job_progress(host.job), tally_job_progress(expected.job)));
        CU_ASSERT_EQUAL(host.n_records, expected.n_records);
        CU_ASSERT_TRUE(job_same_record(&host.records[0], &expected.records[0]));
        job_host_fini(&host);
        job_host_fini(&expected);
    }
    remove_folder();
}

static void expect_refused(struct job_host *host, const struct tally_update *update,
                           enum tally_status status, const char *field)
{
    struct tally_job_outcome outcome;
    struct tally_error err = TALLY_ERROR_INIT;
    const int64_t received = tally_job_open_round(host->job)->received;
    CU_ASSERT_EQUAL(tally_job_receive(host->job, update, &outcome, &err), status);
    TALLY_ASSERT_TEXT(err.field, field);
    CU_ASSERT_EQUAL(tally_job_open_round(host->job)->received, received);
}

static void test_job_survey__other_messages_are_refused(void)
{
    open_folder();
    struct job_host host;
    const struct tally_job_spec spec = spec_of(0, TALLY_POLICY_WAIT, CLIENTS);
    job_host_init_in(&host, &spec, folder);
    job_host_compute(&host);
    struct tally_update update = host.updates[0];
    update.has_loss = true;
    expect_refused(&host, &update, TALLY_MALFORMED, "loss");
    update = host.updates[0];
    update.clipped = 1;
    expect_refused(&host, &update, TALLY_MALFORMED, "clipped");
    update = host.updates[0];
    update.payload_bits++;
    expect_refused(&host, &update, TALLY_MALFORMED, "payload_bits");
    update = host.updates[0];
    update.payload.size--;
    update.payload_bits -= 8;
    expect_refused(&host, &update, TALLY_MALFORMED, "payload");
    update = host.updates[0];
    update.mark++;
    expect_refused(&host, &update, TALLY_FAILED_PRECONDITION, "mark");
    update = host.updates[0];
    update.client = CLIENTS;
    expect_refused(&host, &update, TALLY_OUT_OF_RANGE, "client");

    /* A repeated message, and another one. */
    (void)job_host_send(&host, 0);
    CU_ASSERT_TRUE(job_host_send(&host, 0).duplicate);
    update = host.updates[1];
    update.client = 0;
    expect_refused(&host, &update, TALLY_ALREADY_EXISTS, "round");
    update = host.updates[2];
    (void)job_host_send(&host, 1);
    const uint32_t mark = host.updates[0].mark;
    (void)job_host_send(&host, 2);

    /* The survey has closed. Its answers are none of the first round, which has its number. */
    CU_ASSERT_NOT_EQUAL(tally_job_open_round(host.job)->mark, mark);
    expect_refused(&host, &host.updates[0], TALLY_FAILED_PRECONDITION, "mark");
    uint8_t late[100];
    update = host.updates[0];
    CU_ASSERT_FATAL(update.payload.size <= sizeof late);
    memcpy(late, update.payload.data, update.payload.size);
    update.payload.data = late;
    job_host_round(&host);
    expect_refused(&host, &update, TALLY_FAILED_PRECONDITION, "round");
    job_host_run(&host);
    CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_COMPLETED);
    job_host_fini(&host);
    remove_folder();
}

/* A client whose features are not scaled as the job's computes nothing. */
static void test_job_survey__features_without_the_scaling_are_not_used(void)
{
    open_folder();
    struct job_host host;
    const struct tally_job_spec spec = spec_of(0, TALLY_POLICY_WAIT, CLIENTS);
    struct tally_update update;
    struct tally_bits bits;
    job_host_init_in(&host, &spec, folder);
    survey(&host);
    struct tally_job_round round = *tally_job_open_round(host.job);
    round.scaling ^= 1;
    CU_ASSERT_EQUAL(tally_model_copy_compute(host.copy, &round, 0, &update, &bits, NULL),
                    TALLY_FAILED_PRECONDITION);
    job_host_fini(&host);
    remove_folder();
}

static void test_job_survey__a_column_without_values_fails_the_job(void)
{
    open_folder();
    for (int m = 0; m < CLIENTS; m++) {
        write_file(m, "a,b,y\n1,?,1\n2,,0.5\n");
    }
    struct tally_job_spec spec = spec_of(0, TALLY_POLICY_WAIT, CLIENTS);
    struct tally_error err = TALLY_ERROR_INIT;
    struct tally_objective *objective = NULL;
    /* Who has all files knows at once. */
    CU_ASSERT_EQUAL(tally_objective_new(&spec.objective, CLIENTS, tally_job_spec_setting(&spec).key,
                                        folder, &objective, &err),
                    TALLY_INVALID_ARGUMENT);
    TALLY_ASSERT_TEXT(err.message, "column b has no value at any training point; remove it");
    struct tally_job *job = NULL;
    struct tally_job_outcome outcome = {0};
    CU_ASSERT_EQUAL_FATAL(tally_job_new(&spec, &job, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(tally_job_start(job, 0, "", NULL), TALLY_OK);
    static const uint8_t bytes[] = {2, 0, 2, 0, 3, 2, 0, 5, 2, 0, 0};
    for (uint32_t m = 0; m < CLIENTS; m++) {
        const struct tally_update update = {.round = 1,
                                            .client = m,
                                            .payload = {bytes, sizeof bytes},
                                            .payload_bits = 8 * sizeof bytes};
        TALLY_ASSERT_STATUS(tally_job_receive(job, &update, &outcome, &err), TALLY_OK, &err);
    }
    CU_ASSERT_EQUAL(tally_job_status(job), TALLY_JOB_FAILED);
    TALLY_ASSERT_TEXT(
        tally_job_reason(job),
        "survey_failed: column 1 (counted from 0) has no value at any training point; "
        "remove it");
    tally_job_free(job);
    remove_folder();
}

static void test_job_survey__may_be_paused_and_stopped(void)
{
    open_folder();
    struct job_host host;
    const struct tally_job_spec spec = spec_of(2, TALLY_POLICY_WAIT, 2);
    struct tally_job_outcome outcome;
    job_host_init_in(&host, &spec, folder);
    job_host_compute(&host);
    (void)job_host_send(&host, 0);
    CU_ASSERT_EQUAL(tally_job_pause(host.job, NULL), TALLY_OK);
    (void)job_host_send(&host, 1);
    CU_ASSERT_EQUAL(tally_job_resume(host.job, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(tally_job_stop(host.job, 1, &outcome, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_COMPLETED);
    CU_ASSERT_EQUAL(tally_job_progress(host.job)->round, 0);
    job_host_fini(&host);
    remove_folder();
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_job_survey__waits_for_all_clients),
    TALLY_TEST(test_job_survey__order_and_hosts_make_no_difference),
    TALLY_TEST(test_job_survey__the_scaling_is_part_of_the_state),
    TALLY_TEST(test_job_survey__other_messages_are_refused),
    TALLY_TEST(test_job_survey__features_without_the_scaling_are_not_used),
    TALLY_TEST(test_job_survey__a_column_without_values_fails_the_job),
    TALLY_TEST(test_job_survey__may_be_paused_and_stopped),
};
TALLY_SUITE(job_survey, TESTS);
