/* Updates that the engine refuses or counts only once: duplicates, invalid ones, and those for a
 * job that is not running. */
#include "services/job/job.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness.h"
#include "tests/unit/services/job/job_host.h"

/* Runs the standard job without incident. Every disturbed run must end the same. */
static struct job_look undisturbed(void)
{
    struct job_host host;
    job_host_init_standard(&host);
    job_host_run(&host);
    struct job_look look = job_look(host.job);
    job_host_fini(&host);
    return look;
}

/* Every message of the run is sent three times; the two copies change nothing. */
static void test_job_refusals__duplicates_get_the_same_answer_and_change_nothing(void)
{
    struct job_look expected = undisturbed();
    struct job_host host;
    job_host_init_standard(&host);
    while (!tally_job_status_is_terminal(tally_job_status(host.job))) {
        job_host_compute(&host);
        for (uint32_t m = 0; m < 5; m++) {
            struct tally_job_outcome first = job_host_send(&host, m), again;
            CU_ASSERT_FALSE(first.duplicate);
            struct job_look before = job_look(host.job);
            for (uint32_t copy = 0; copy < 2; copy++) {
                CU_ASSERT_EQUAL(tally_job_receive(host.job, &host.updates[m * copy], &again, NULL),
                                TALLY_OK);
                CU_ASSERT_TRUE(again.duplicate);
                CU_ASSERT_EQUAL(again.n_records, 0);
                CU_ASSERT_EQUAL(memcmp(&again.bits, &host.bits[m * copy], sizeof again.bits), 0);
            }
            struct job_look after = job_look(host.job);
            CU_ASSERT_TRUE(job_looks_same(&before, &after));
            job_look_fini(&before);
            job_look_fini(&after);
        }
    }
    struct job_look look = job_look(host.job);
    CU_ASSERT_TRUE(job_looks_same(&look, &expected));
    job_look_fini(&look);
    job_look_fini(&expected);
    job_host_fini(&host);
}

/* Sends a bad update: expects the right status and an unchanged engine. */
static void expect_refused(struct job_host *host, const struct tally_update *update,
                           enum tally_status status, const char *field)
{
    struct job_look before = job_look(host->job);
    struct tally_job_outcome outcome = {.n_records = 77}; /* written only on success */
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_job_receive(host->job, update, &outcome, &err), status, &err);
    TALLY_ASSERT_TEXT(err.field, field);
    CU_ASSERT_EQUAL(outcome.n_records, 77);
    CU_ASSERT_FALSE(outcome.duplicate);
    struct job_look after = job_look(host->job);
    CU_ASSERT_TRUE(job_looks_same(&before, &after));
    job_look_fini(&before);
    job_look_fini(&after);
}

/* Sends every invalid variant of client 2's update, with one error each. */
static void send_all_that_is_wrong(struct job_host *host)
{
    const struct tally_job_round open = *tally_job_open_round(host->job);
    const struct tally_update good = host->updates[2];
    struct tally_update bad = good;
    bad.client = 5;
    expect_refused(host, &bad, TALLY_OUT_OF_RANGE, "client");
    bad.client = UINT32_MAX;
    expect_refused(host, &bad, TALLY_OUT_OF_RANGE, "client");

    const uint32_t rounds[] = {(uint32_t)open.round + 1, (uint32_t)open.round - 1, 0, UINT32_MAX};
    for (size_t i = 0; i < sizeof rounds / sizeof rounds[0]; i++) {
        bad = good;
        bad.round = rounds[i];
        /* Client 2 has sent other bytes for the previous round, which is closed. */
        bool sent = bad.round == open.round - 1 && bad.round > 0;
        expect_refused(host, &bad, sent ? TALLY_ALREADY_EXISTS : TALLY_FAILED_PRECONDITION,
                       "round");
    }
    bad = good;
    bad.has_loss = !bad.has_loss;
    bad.loss = 1;
    expect_refused(host, &bad, TALLY_MALFORMED, "loss");
    const double losses[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
    for (size_t i = 0; open.evaluate && i < 3; i++) {
        bad = good;
        bad.loss = losses[i];
        expect_refused(host, &bad, TALLY_MALFORMED, "loss");
    }
    bad = good;
    bad.clipped = 7; /* above dim 6 */
    expect_refused(host, &bad, TALLY_MALFORMED, "clipped");
    bad.clipped = UINT32_MAX;
    expect_refused(host, &bad, TALLY_MALFORMED, "clipped");

    const uint8_t junk[40] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    bad = good;
    bad.payload.data = junk;
    bad.payload.size = sizeof junk;
    bad.payload_bits = 8 * sizeof junk;
    expect_refused(host, &bad, TALLY_MALFORMED, "payload");
    bad.payload_bits = UINT64_MAX;
    expect_refused(host, &bad, TALLY_MALFORMED, "payload");
    if (open.plan.cut) {
        bad = good;
        bad.clipped = 1;
        expect_refused(host, &bad, TALLY_MALFORMED, "payload");
        bad = good;
        bad.payload_bits = 1;
        expect_refused(host, &bad, TALLY_MALFORMED, "payload");
        return;
    }
    bad = good;
    bad.payload.data = NULL;
    bad.payload.size = 0;
    bad.payload_bits = 0;
    expect_refused(host, &bad, TALLY_MALFORMED, "payload");
    bad = good;
    bad.payload_bits++;
    expect_refused(host, &bad, TALLY_MALFORMED, "payload");
    bad = good;
    bad.payload.size--;
    expect_refused(host, &bad, TALLY_MALFORMED, "payload");
}

/* Sends all of them in every round, before and between good messages. The job ends as if
 * undisturbed, so no sum, loss or counter was changed either. */
static void expect_undisturbed(const struct tally_job_spec *spec)
{
    struct job_host host;
    job_host_init(&host, spec);
    job_host_run(&host);
    struct job_look expected = job_look(host.job);
    job_host_fini(&host);
    job_host_init(&host, spec);
    while (!tally_job_status_is_terminal(tally_job_status(host.job))) {
        job_host_compute(&host);
        send_all_that_is_wrong(&host);
        job_host_send(&host, 4);
        send_all_that_is_wrong(&host);
        for (uint32_t m = 0; m < 4; m++) {
            job_host_send(&host, m);
        }
    }
    struct job_look look = job_look(host.job);
    CU_ASSERT_TRUE(job_looks_same(&look, &expected));
    job_look_fini(&look);
    job_look_fini(&expected);
    job_host_fini(&host);
}

static void test_job_refusals__bad_updates_change_nothing(void)
{
    struct tally_job_spec spec = job_host_spec();
    expect_undisturbed(&spec);
    spec.params.ceal.first_stage = 6; /* does not fit: the round is only evaluated */
    spec.horizon = 5;
    expect_undisturbed(&spec);
}

/* A client that has answered may not send a different answer, not even by one bit of one member. */
static void test_job_refusals__other_bytes_for_the_same_round_already_exist(void)
{
    struct job_host host;
    job_host_init_standard(&host);
    job_host_compute(&host);
    job_host_send(&host, 1);
    const struct tally_update good = host.updates[1];
    struct tally_update bad = good;
    uint8_t *payload = malloc(good.payload.size);
    CU_ASSERT_PTR_NOT_NULL_FATAL(payload);
    for (size_t bit = 0; bit < 8 * good.payload.size; bit++) {
        memcpy(payload, good.payload.data, good.payload.size);
        payload[bit / 8] ^= (uint8_t)(1 << bit % 8);
        bad.payload.data = payload;
        expect_refused(&host, &bad, TALLY_ALREADY_EXISTS, "round");
    }
    bad = good;
    bad.payload.size--;
    expect_refused(&host, &bad, TALLY_ALREADY_EXISTS, "round");
    bad = good;
    bad.payload_bits++;
    expect_refused(&host, &bad, TALLY_ALREADY_EXISTS, "round");
    bad = good;
    bad.clipped ^= 1;
    expect_refused(&host, &bad, TALLY_ALREADY_EXISTS, "round");
    bad = good;
    bad.loss = nextafter(bad.loss, 0);
    expect_refused(&host, &bad, TALLY_ALREADY_EXISTS, "round");
    bad = good;
    bad.has_loss = false;
    expect_refused(&host, &bad, TALLY_ALREADY_EXISTS, "round");
    bad = host.updates[3]; /* another client's bytes under client 1's number */
    bad.client = 1;
    expect_refused(&host, &bad, TALLY_ALREADY_EXISTS, "round");
    free(payload);
    job_host_fini(&host);
}

static void test_job_refusals__closed_round_is_refused_once_the_next_is_answered(void)
{
    struct job_host host;
    job_host_init_standard(&host);
    job_host_round(&host);
    const struct tally_update old = host.updates[0];
    uint8_t *payload = malloc(old.payload.size);
    CU_ASSERT_PTR_NOT_NULL_FATAL(payload);
    memcpy(payload, old.payload.data, old.payload.size);
    struct tally_update late = old;
    late.payload.data = payload;
    struct tally_job_outcome outcome;
    CU_ASSERT_EQUAL(tally_job_receive(host.job, &late, &outcome, NULL), TALLY_OK);
    CU_ASSERT_TRUE(outcome.duplicate); /* the last message of a client is remembered */
    job_host_compute(&host);
    job_host_send(&host, 0);
    expect_refused(&host, &late, TALLY_FAILED_PRECONDITION, "round");
    free(payload);
    job_host_fini(&host);
}

static void test_job_refusals__nothing_is_received_before_the_start(void)
{
    struct job_host host;
    job_host_init_standard(&host);
    job_host_compute(&host);
    tally_job_free(host.job);
    CU_ASSERT_EQUAL_FATAL(tally_job_new(&host.spec, &host.job, NULL), TALLY_OK);
    expect_refused(&host, &host.updates[0], TALLY_FAILED_PRECONDITION, "job_id");
    job_host_fini(&host);
}

/* Updates in flight still count while a job is paused, and rounds close, but the job stays
 * paused. */
static void test_job_refusals__paused_job_takes_what_is_under_way(void)
{
    struct job_look expected = undisturbed();
    struct job_host host;
    job_host_init_standard(&host);
    struct tally_error err = TALLY_ERROR_INIT;
    CU_ASSERT_EQUAL(tally_job_start(host.job, 0, "", NULL), TALLY_FAILED_PRECONDITION);
    CU_ASSERT_EQUAL(tally_job_resume(host.job, NULL), TALLY_FAILED_PRECONDITION);
    job_host_compute(&host);
    job_host_send(&host, 0);
    TALLY_ASSERT_STATUS(tally_job_pause(host.job, &err), TALLY_OK, &err);
    CU_ASSERT_EQUAL(tally_job_pause(host.job, NULL), TALLY_FAILED_PRECONDITION);
    for (uint32_t m = 1; m < 5; m++) {
        job_host_send(&host, m);
    }
    CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_PAUSED);
    CU_ASSERT_EQUAL(host.n_records, 1);
    CU_ASSERT_EQUAL(tally_job_open_round(host.job)->round, 2);
    TALLY_ASSERT_STATUS(tally_job_resume(host.job, &err), TALLY_OK, &err);
    job_host_run(&host);
    struct job_look look = job_look(host.job);
    CU_ASSERT_TRUE(job_looks_same(&look, &expected));
    CU_ASSERT_EQUAL(tally_job_pause(host.job, NULL), TALLY_FAILED_PRECONDITION);
    CU_ASSERT_EQUAL(tally_job_cancel(host.job, NULL), TALLY_FAILED_PRECONDITION);
    CU_ASSERT_EQUAL(tally_job_fail(host.job, "late", NULL), TALLY_FAILED_PRECONDITION);
    TALLY_ASSERT_TEXT(tally_job_reason(host.job), "");
    job_look_fini(&look);
    job_look_fini(&expected);
    job_host_fini(&host);
}

static void test_job_refusals__paused_job_may_complete(void)
{
    struct job_host host;
    job_host_init_standard(&host);
    CU_ASSERT_EQUAL(tally_job_pause(host.job, NULL), TALLY_OK);
    job_host_run(&host);
    CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_COMPLETED);
    job_host_fini(&host);
}

static void test_job_refusals__cancelled_and_failed_jobs_take_no_more(void)
{
    for (int failed = 0; failed < 2; failed++) {
        struct job_host host;
        job_host_init_standard(&host);
        job_host_compute(&host);
        job_host_send(&host, 0);
        if (failed) {
            CU_ASSERT_EQUAL(tally_job_fail(host.job, "disk on fire", NULL), TALLY_OK);
            CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_FAILED);
            TALLY_ASSERT_TEXT(tally_job_reason(host.job), "disk on fire");
        } else {
            CU_ASSERT_EQUAL(tally_job_cancel(host.job, NULL), TALLY_OK);
            CU_ASSERT_EQUAL(tally_job_status(host.job), TALLY_JOB_CANCELLED);
        }
        expect_refused(&host, &host.updates[1], TALLY_FAILED_PRECONDITION, "job_id");
        struct tally_job_outcome outcome; /* what was acknowledged stays acknowledged */
        CU_ASSERT_EQUAL(tally_job_receive(host.job, &host.updates[0], &outcome, NULL), TALLY_OK);
        CU_ASSERT_TRUE(outcome.duplicate);
        job_host_fini(&host);
    }
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_job_refusals__duplicates_get_the_same_answer_and_change_nothing),
    TALLY_TEST(test_job_refusals__bad_updates_change_nothing),
    TALLY_TEST(test_job_refusals__other_bytes_for_the_same_round_already_exist),
    TALLY_TEST(test_job_refusals__closed_round_is_refused_once_the_next_is_answered),
    TALLY_TEST(test_job_refusals__nothing_is_received_before_the_start),
    TALLY_TEST(test_job_refusals__paused_job_takes_what_is_under_way),
    TALLY_TEST(test_job_refusals__paused_job_may_complete),
    TALLY_TEST(test_job_refusals__cancelled_and_failed_jobs_take_no_more),
};
TALLY_SUITE(job_refusals, TESTS);
