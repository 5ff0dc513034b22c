#include "services/coordinator/workers.h"

#include <stdio.h>
#include <string.h>

#include "services/base/time.h"
#include "services/coordinator/loop_transaction.h"
#include "tests/harness.h"
#include "tests/unit/services/coordinator/scene.h"

enum { LATER_MS = 10 * WAITING_AFTER_MS };

/* Returns what the job waits for if its round has been open for a long time. */
static struct tally_waiting look(struct scene *scene, const struct hosted_job *job)
{
    struct tally_waiting waiting;
    CU_ASSERT_TRUE(
        workers_job_waiting(scene->coordinator, job, tally_monotonic_ms() + LATER_MS, &waiting));
    return waiting;
}

static void test_coordinator_waiting__a_queued_job_waits_for_slots(void)
{
    struct scene scene;
    scene_init(&scene);
    scene_join(&scene, "w", 1);
    const struct hosted_job *job = scene_add_job(&scene, 3, TALLY_POLICY_WAIT, 3);
    const struct tally_waiting waiting = look(&scene, job);
    CU_ASSERT_EQUAL(waiting.what, TALLY_WAITS_FOR_WORKERS);
    CU_ASSERT_PTR_NOT_NULL(strstr(waiting.text, "3 clients, 1 slot is free"));
    scene_fini(&scene);
}

static void test_coordinator_waiting__an_unprepared_job_waits_for_its_optimum(void)
{
    struct scene scene;
    scene_init(&scene);
    struct hosted_job *job = scene_add_job(&scene, 1, TALLY_POLICY_WAIT, 1);
    job->prepared = false;
    CU_ASSERT_EQUAL(look(&scene, job).what, TALLY_WAITS_FOR_REFERENCE);
    scene_fini(&scene);
}

/* A round that has just opened is work in progress. */
static void test_coordinator_waiting__a_round_waits_only_after_a_while(void)
{
    struct scene scene;
    struct tally_waiting waiting;
    scene_init(&scene);
    const uint64_t session = scene_join(&scene, "slow", 2);
    struct hosted_job *job = scene_add_job(&scene, 2, TALLY_POLICY_WAIT, 2);
    CU_ASSERT_FALSE(
        workers_job_waiting(scene.coordinator, job, job->round_opened_ms + 1, &waiting));
    scene_update(&scene, session, job, 1);
    scene_turn(&scene);
    waiting = look(&scene, job);
    CU_ASSERT_EQUAL(waiting.what, TALLY_WAITS_FOR_CLIENTS);
    CU_ASSERT_EQUAL(waiting.n_clients, 1);
    CU_ASSERT_EQUAL_FATAL(waiting.n_workers, 1);
    TALLY_ASSERT_TEXT(waiting.workers[0], "slow");
    TALLY_ASSERT_TEXT(waiting.clients, "0");
    scene_fini(&scene);
}

/* A message on a slow link is on its way between the worker and the coordinator. */
static void set_motion(struct scene *scene, uint64_t id, struct tally_http_motion *motion)
{
    struct session *session = session_by_id(&scene->coordinator->workers->sessions, id);
    CU_ASSERT_PTR_NOT_NULL_FATAL(session);
    session->line.peer = (struct http_peer *)motion; /* for fake_http */
}

static void test_coordinator_waiting__says_how_far_a_message_has_got(void)
{
    struct scene scene;
    struct tally_http_motion motion = {.is_upload = true, .n = 639, .n_whole = 1000};
    struct tally_http_motion down = {.n = 7, .n_whole = 7};
    scene_init(&scene);
    set_motion(&scene, scene_join(&scene, "one", 1), &motion);
    set_motion(&scene, scene_join(&scene, "two", 2), &down);
    const struct hosted_job *job = scene_add_job(&scene, 3, TALLY_POLICY_WAIT, 3);
    scene_turn(&scene);
    const uint32_t client = job->slots[0].session->n_slots == 1 ? 0 : 2;
    char text[64];
    snprintf(text, sizeof text, "; client %u is sending, 63 %%", client);
    const struct tally_waiting waiting = look(&scene, job);
    CU_ASSERT_PTR_NOT_NULL(strstr(waiting.text, text));
    CU_ASSERT_PTR_NOT_NULL(strstr(waiting.text, "; worker two is receiving, 99 %"));
    motion.n_whole = 0; /* of a chunked body */
    CU_ASSERT_PTR_NOT_NULL(strstr(look(&scene, job).text, " is sending"));
    CU_ASSERT_PTR_NULL(strstr(look(&scene, job).text, "is sending,"));
    scene_fini(&scene);
}

/* The worker has no cursor, as if the response to its last poll had broken off. */
static void test_coordinator_waiting__a_broadcast_that_breaks_off_is_counted(void)
{
    struct scene scene;
    struct tally_http_motion motion = {.n = 1, .n_whole = 2};
    scene_init(&scene);
    const uint64_t session = scene_join(&scene, "w", 1);
    struct hosted_job *job = scene_add_job(&scene, 1, TALLY_POLICY_WAIT, 1);
    set_motion(&scene, session, &motion);
    for (int round = 1; round <= 3; round++) {
        for (int attempt = 1; attempt <= 3; attempt++) {
            const struct tally_http_request *poll = scene_poll(&scene, session, 0);
            scene_turn(&scene);
            CU_ASSERT_EQUAL(poll->status, 200);
            char text[64] = "; client 0 is receiving, 50 %";
            if (round > 1 && attempt > 1) { /* the first task has no broadcast */
                snprintf(text, sizeof text, "; client 0 is receiving, 50 %%, attempt %d", attempt);
            }
            const struct tally_waiting waiting = look(&scene, job);
            const char *found = strstr(waiting.text, text);
            CU_ASSERT_PTR_NOT_NULL_FATAL(found);
            TALLY_ASSERT_TEXT(found, text); /* up to the end */
        }
        scene_update(&scene, session, job, 0);
        scene_turn(&scene);
    }
    scene_fini(&scene);
}

/* Whether the job says at that time that client 0 is sending, half of its message. */
static bool is_sending(struct scene *scene, const struct hosted_job *job, int64_t now_ms)
{
    struct tally_waiting waiting;
    CU_ASSERT_TRUE(workers_job_waiting(scene->coordinator, job, now_ms, &waiting));
    return strstr(waiting.text, "; client 0 is sending, 50 %") != NULL;
}

static void test_coordinator_waiting__a_message_that_stands_still_is_not_sending(void)
{
    struct scene scene;
    struct tally_http_motion motion = {.is_upload = true, .n = 1, .n_whole = 2};
    scene_init(&scene);
    const int64_t timeout_ms = scene.coordinator->config.session_timeout_ms;
    set_motion(&scene, scene_join(&scene, "w", 1), &motion);
    const struct hosted_job *job = scene_add_job(&scene, 1, TALLY_POLICY_WAIT, 1);
    const int64_t now_ms = tally_monotonic_ms() + LATER_MS;
    motion.quiet_ms = timeout_ms / 2;
    CU_ASSERT_TRUE(is_sending(&scene, job, now_ms));
    motion.quiet_ms++;
    CU_ASSERT_FALSE(is_sending(&scene, job, now_ms));
    scene_fini(&scene);
}

/* A worker that is behind a proxy says how far it has got, until the message has broken off. */
static void test_coordinator_waiting__what_a_worker_said_is_not_repeated_for_long(void)
{
    struct scene scene;
    scene_init(&scene);
    const int64_t timeout_ms = scene.coordinator->config.session_timeout_ms;
    const uint64_t session = scene_join(&scene, "w", 1);
    struct hosted_job *job = scene_add_job(&scene, 1, TALLY_POLICY_WAIT, 1);
    const int64_t before_ms = tally_monotonic_ms();
    scene_progress(&scene, session, 1, 2);
    const int64_t after_ms = tally_monotonic_ms();
    CU_ASSERT_TRUE(is_sending(&scene, job, before_ms + timeout_ms / 2));
    CU_ASSERT_FALSE(is_sending(&scene, job, after_ms + timeout_ms / 2 + 1));
    scene_progress(&scene, session, 1, 2);
    scene_update(&scene, session, job, 0); /* it has arrived */
    scene_turn(&scene);
    CU_ASSERT_FALSE(is_sending(&scene, job, tally_monotonic_ms() + LATER_MS));
    scene_fini(&scene);
}

/* If the message is seen here, what the worker says does not outlast its connection. */
static void test_coordinator_waiting__a_connection_that_has_closed_is_not_sending(void)
{
    struct scene scene;
    struct tally_http_motion motion = {.is_upload = true, .n = 1, .n_whole = 2};
    scene_init(&scene);
    const uint64_t session = scene_join(&scene, "w", 1);
    const struct hosted_job *job = scene_add_job(&scene, 1, TALLY_POLICY_WAIT, 1);
    scene_progress(&scene, session, 1, 2); /* while the proxy holds it */
    set_motion(&scene, session, &motion);
    scene_progress(&scene, session, 1, 2);
    CU_ASSERT_TRUE(is_sending(&scene, job, tally_monotonic_ms() + LATER_MS));
    set_motion(&scene, session, NULL);
    CU_ASSERT_FALSE(is_sending(&scene, job, tally_monotonic_ms() + LATER_MS));
    scene_fini(&scene);
}

/* Bytes that move are contact, and the silence begins when they stop. */
static void test_coordinator_waiting__moving_bytes_keep_a_session(void)
{
    struct scene scene;
    struct tally_http_motion motion = {.is_upload = true, .has_moved = true, .quiet_ms = 10};
    scene_init(&scene);
    struct tally_coordinator *coordinator = scene.coordinator;
    const struct session_table *sessions = &coordinator->workers->sessions;
    const int64_t timeout_ms = coordinator->config.session_timeout_ms;
    set_motion(&scene, scene_join(&scene, "w", 1), &motion);
    int64_t now_ms = tally_monotonic_ms();
    for (int i = 0; i < 3; i++) {
        now_ms += timeout_ms + 1000;
        workers_check_sessions(coordinator, now_ms);
        CU_ASSERT_EQUAL_FATAL(sessions->n_sessions, 1);
        CU_ASSERT_EQUAL(sessions->first->last_contact_ms, now_ms - 10);
    }
    motion.has_moved = false; /* acknowledgements without a byte do not count */
    workers_check_sessions(coordinator, now_ms + timeout_ms - 10);
    CU_ASSERT_EQUAL(sessions->n_sessions, 1);
    workers_check_sessions(coordinator, now_ms + timeout_ms + 1000);
    CU_ASSERT_EQUAL(sessions->n_sessions, 0);
    scene_fini(&scene);
}

static void test_coordinator_waiting__a_paused_job_waits_to_be_resumed(void)
{
    struct scene scene;
    char path[64];
    scene_init(&scene);
    scene_join(&scene, "w", 1);
    struct hosted_job *job = scene_add_job(&scene, 1, TALLY_POLICY_WAIT, 1);
    snprintf(path, sizeof path, "/v1/jobs/%s/pause", job->row.id);
    scene_post(&scene, path);
    scene_turn(&scene);
    CU_ASSERT_EQUAL(look(&scene, job).what, TALLY_WAITS_FOR_RESUME);
    scene_fini(&scene);
}

static void test_coordinator_waiting__a_failed_store_comes_first(void)
{
    struct scene scene;
    struct tally_error full = TALLY_ERROR_INIT;
    scene_init(&scene);
    scene_join(&scene, "w", 1);
    struct hosted_job *job = scene_add_job(&scene, 1, TALLY_POLICY_WAIT, 1);
    tally_fail(&full, TALLY_STORE, NULL, "disk full");
    transaction_note_store(scene.coordinator->transaction, &full);
    const struct tally_waiting waiting = look(&scene, job);
    CU_ASSERT_EQUAL(waiting.what, TALLY_WAITS_FOR_STORE);
    CU_ASSERT_PTR_NOT_NULL(strstr(waiting.text, "disk full"));
    scene_fini(&scene);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_coordinator_waiting__a_queued_job_waits_for_slots),
    TALLY_TEST(test_coordinator_waiting__an_unprepared_job_waits_for_its_optimum),
    TALLY_TEST(test_coordinator_waiting__a_round_waits_only_after_a_while),
    TALLY_TEST(test_coordinator_waiting__says_how_far_a_message_has_got),
    TALLY_TEST(test_coordinator_waiting__a_broadcast_that_breaks_off_is_counted),
    TALLY_TEST(test_coordinator_waiting__a_message_that_stands_still_is_not_sending),
    TALLY_TEST(test_coordinator_waiting__what_a_worker_said_is_not_repeated_for_long),
    TALLY_TEST(test_coordinator_waiting__a_connection_that_has_closed_is_not_sending),
    TALLY_TEST(test_coordinator_waiting__moving_bytes_keep_a_session),
    TALLY_TEST(test_coordinator_waiting__a_paused_job_waits_to_be_resumed),
    TALLY_TEST(test_coordinator_waiting__a_failed_store_comes_first),
};
TALLY_SUITE(coordinator_waiting, TESTS);
