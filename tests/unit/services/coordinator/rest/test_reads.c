#include <stdio.h>
#include <string.h>

#include "services/coordinator/calls/calls.h"
#include "services/coordinator/turn/turn.h"
#include "services/coordinator/workers/workers.h"
#include "tests/harness.h"
#include "tests/unit/services/coordinator/scene.h"

/* Far more rounds than can be read and written in the time that a turn gives to reads. */
enum { MANY_ROUNDS = 20000, MANY_TURNS = 1000000 };

/* Stores a job that has ended after n rounds. */
static struct tally_store_job insert_ended(struct scene *scene, const char *id, int n)
{
    struct tally_store *store = scene->store;
    struct tally_error err = TALLY_ERROR_INIT;
    struct tally_store_job row = {.status = TALLY_JOB_COMPLETED,
                                  .created_ms = 1,
                                  .finished_ms = 2,
                                  .clients = 1,
                                  .dim = 1,
                                  .horizon = n + 1,
                                  .progress = {.round = n, .iterate = 1}};
    snprintf(row.id, sizeof row.id, "%s", id);
    TALLY_ASSERT_STATUS(store->ops->begin(store, &err), TALLY_OK, &err);
    TALLY_ASSERT_STATUS(store->ops->job_insert(store, &row, "{}", 2, NULL, 0, &row.key, &err),
                        TALLY_OK, &err);
    TALLY_ASSERT_STATUS(store->ops->job_update(store, &row, &err), TALLY_OK, &err);
    for (int i = 1; i <= n; i++) {
        const struct tally_round_record record = {.round = i, .time_step = i, .iterate = 1};
        TALLY_ASSERT_STATUS(store->ops->round_insert(store, row.key, &record, &err), TALLY_OK,
                            &err);
    }
    TALLY_ASSERT_STATUS(store->ops->commit(store, &err), TALLY_OK, &err);
    return row;
}

static void delete_job_row(struct scene *scene, const struct tally_store_job *row)
{
    struct tally_store *store = scene->store;
    TALLY_ASSERT_STATUS(store->ops->begin(store, NULL), TALLY_OK, NULL);
    TALLY_ASSERT_STATUS(store->ops->job_delete(store, row->key, NULL), TALLY_OK, NULL);
    TALLY_ASSERT_STATUS(store->ops->commit(store, NULL), TALLY_OK, NULL);
}

/* Runs turns until the request has its response. */
static void wait_for(struct scene *scene, const struct tally_http_request *request)
{
    for (int i = 0; request->status == 0 && i < MANY_TURNS; i++) {
        scene_turn(scene);
    }
    CU_ASSERT_NOT_EQUAL_FATAL(request->status, 0);
}

static int count(const char *text, const char *part)
{
    int n = 0;
    for (const char *at = strstr(text, part); at != NULL; at = strstr(at + 1, part)) {
        n++;
    }
    return n;
}

static void test_coordinator_reads__a_long_one_leaves_time_for_others(void)
{
    struct scene scene;
    scene_init(&scene);
    insert_ended(&scene, "long", MANY_ROUNDS);
    struct tally_http_request *csv = scene_get(&scene, "/v1/jobs/long/rounds.csv");
    struct tally_http_request *series = scene_get(&scene, "/v1/jobs/long/series");
    struct tally_http_request *job = scene_get(&scene, "/v1/jobs/long");
    struct tally_http_request *health = scene_get(&scene, "/healthz");
    scene_turn(&scene);
    CU_ASSERT_EQUAL(health->status, 200);
    CU_ASSERT_EQUAL(job->status, 200);
    CU_ASSERT_EQUAL(csv->status, 0);
    CU_ASSERT_EQUAL(series->status, 0);
    const uint64_t session = scene_join(&scene, "w", 1); /* is answered in its turn */
    CU_ASSERT_EQUAL(csv->status, 0);
    scene_leave(&scene, session);
    wait_for(&scene, csv);
    wait_for(&scene, series);
    CU_ASSERT_EQUAL(csv->status, 200);
    CU_ASSERT_EQUAL(count(fake_response_text(csv), "\n"), MANY_ROUNDS + 1);
    CU_ASSERT_EQUAL(series->status, 200);
    CU_ASSERT_PTR_NOT_NULL(strstr(fake_response_text(series), "\"rounds\": 20000"));
    scene_fini(&scene);
}

static void test_coordinator_reads__rounds_are_those_that_were_closed_at_the_request(void)
{
    struct scene scene;
    scene_init(&scene);
    const struct tally_store_job row = insert_ended(&scene, "long", MANY_ROUNDS);
    struct tally_http_request *csv = scene_get(&scene, "/v1/jobs/long/rounds.csv");
    scene_turn(&scene);
    CU_ASSERT_EQUAL(csv->status, 0);
    const struct tally_round_record record = {.round = MANY_ROUNDS + 1, .iterate = 1};
    struct tally_store *store = scene.store;
    TALLY_ASSERT_STATUS(store->ops->begin(store, NULL), TALLY_OK, NULL);
    TALLY_ASSERT_STATUS(store->ops->round_insert(store, row.key, &record, NULL), TALLY_OK, NULL);
    TALLY_ASSERT_STATUS(store->ops->commit(store, NULL), TALLY_OK, NULL);
    wait_for(&scene, csv);
    CU_ASSERT_EQUAL(count(fake_response_text(csv), "\n"), MANY_ROUNDS + 1);
    scene_fini(&scene);
}

static void test_coordinator_reads__a_job_deleted_meanwhile_is_not_cut_short(void)
{
    static const char *const PATHS[] = {"/v1/jobs/long/rounds.csv", "/v1/jobs/long/series"};
    for (size_t i = 0; i < sizeof PATHS / sizeof PATHS[0]; i++) {
        struct scene scene;
        scene_init(&scene);
        const struct tally_store_job row = insert_ended(&scene, "long", MANY_ROUNDS);
        struct tally_http_request *request = scene_get(&scene, PATHS[i]);
        scene_turn(&scene);
        CU_ASSERT_EQUAL(request->status, 0);
        delete_job_row(&scene, &row);
        wait_for(&scene, request);
        CU_ASSERT_EQUAL(request->status, 404);
        scene_fini(&scene);
    }
}

static enum tally_status list_damaged_rounds(struct tally_store *store, int64_t job_key,
                                             int64_t after_round, int64_t limit,
                                             tally_store_round_fn *each, void *context,
                                             struct tally_error *err)
{
    (void)store, (void)job_key, (void)after_round, (void)limit, (void)each, (void)context;
    return tally_fail(err, TALLY_DATA_LOSS, NULL, "a damaged page");
}

static void test_coordinator_reads__damage_behind_the_first_piece_is_noted(void)
{
    struct scene scene;
    scene_init(&scene);
    insert_ended(&scene, "long", MANY_ROUNDS);
    struct tally_http_request *csv = scene_get(&scene, "/v1/jobs/long/rounds.csv");
    scene_turn(&scene);
    CU_ASSERT_EQUAL(csv->status, 0);
    const struct tally_store_ops *whole = scene.store->ops;
    struct tally_store_ops damaged = *whole;
    damaged.round_list = list_damaged_rounds;
    scene.store->ops = &damaged;
    wait_for(&scene, csv);
    scene.store->ops = whole;
    CU_ASSERT_EQUAL(csv->status, 500);
    struct tally_http_request *ready = scene_get(&scene, "/readyz");
    wait_for(&scene, ready);
    CU_ASSERT_EQUAL(ready->status, 503);
    scene_fini(&scene);
}

static void test_coordinator_reads__clients_may_leave_between_pieces(void)
{
    struct scene scene;
    scene_init(&scene);
    insert_ended(&scene, "long", MANY_ROUNDS);
    struct tally_http_request *csv = scene_get(&scene, "/v1/jobs/long/rounds.csv");
    struct tally_http_request *series = scene_get(&scene, "/v1/jobs/long/series");
    scene_turn(&scene);
    tally_coordinator_on_abandoned(scene.coordinator, csv);
    csv->status = 499;
    scene_turn(&scene);
    wait_for(&scene, series); /* the other one is not disturbed */
    CU_ASSERT_EQUAL(series->status, 200);
    CU_ASSERT_EQUAL(csv->response.size, 0);
    scene_fini(&scene); /* nothing leaks */
}

/* One that holds no memory waits for a place among the cached series, which the others have. */
static void test_coordinator_reads__those_that_hold_much_do_not_stop_each_other(void)
{
    enum { SERIES = 17, ROUNDS = 2000 };
    struct scene scene;
    struct tally_http_request *requests[SERIES];
    char paths[SERIES][32];
    scene_init(&scene);
    struct calls *calls = scene.coordinator->calls;
    for (int i = 0; i < SERIES; i++) {
        char id[4];
        snprintf(id, sizeof id, "%d", i);
        snprintf(paths[i], sizeof paths[i], "/v1/jobs/%d/series", i);
        insert_ended(&scene, id, ROUNDS);
        requests[i] = scene_get(&scene, paths[i]);
    }
    while (calls->in_pieces.first != NULL) {
        scene_turn(&scene);
    }
    while (calls->begun.first->request != requests[SERIES - 1]) {
        call_queue_push(&calls->begun, call_queue_pop(&calls->begun));
    }
    calls->begun_bytes += (size_t)1 << 30;
    for (int i = 0; i < SERIES; i++) {
        wait_for(&scene, requests[i]);
        CU_ASSERT_EQUAL(requests[i]->status, 200);
    }
    scene_fini(&scene);
}

static void test_coordinator_reads__a_response_longer_than_may_be_held_is_refused(void)
{
    struct scene scene;
    scene_init(&scene);
    insert_ended(&scene, "long", MANY_ROUNDS);
    scene.coordinator->config.max_held_bytes = 100000;
    struct tally_http_request *csv = scene_get(&scene, "/v1/jobs/long/rounds.csv");
    wait_for(&scene, csv);
    CU_ASSERT_EQUAL(csv->status, 400);
    CU_ASSERT_PTR_NOT_NULL(strstr(fake_response_text(csv), "100000 bytes (--max-held-bytes)"));
    CU_ASSERT_PTR_NOT_NULL(strstr(fake_response_text(csv), "/v1/jobs/long/rounds"));
    scene_fini(&scene);
}

/* In both orders. */
static void test_coordinator_reads__lists_have_each_job_once(void)
{
    enum { JOBS = 333 };
    struct scene scene;
    scene_init(&scene);
    for (int i = 0; i < JOBS; i++) {
        char id[16];
        snprintf(id, sizeof id, "job-%03d", i);
        insert_ended(&scene, id, 0);
    }
    static const char *const SORTS[] = {"-created", "-id"};
    for (int k = 0; k < 2; k++) {
        struct tally_http_request *request = &scene.requests[scene.n_requests++];
        request->method = "GET";
        request->path = "/v1/jobs";
        request->query_name = "sort";
        request->query_value = SORTS[k];
        tally_coordinator_on_request(scene.coordinator, request);
        wait_for(&scene, request);
        CU_ASSERT_EQUAL(request->status, 200);
        CU_ASSERT_EQUAL(count(fake_response_text(request), "\"id\":"), 50); /* the default */
        CU_ASSERT_PTR_NOT_NULL(strstr(fake_response_text(request), "job-332"));
        CU_ASSERT_PTR_NULL(strstr(fake_response_text(request), "\"next_cursor\": null"));
    }
    struct tally_http_request *all = &scene.requests[scene.n_requests++];
    all->method = "GET";
    all->path = "/v1/jobs";
    all->query_name = "limit";
    all->query_value = "333";
    tally_coordinator_on_request(scene.coordinator, all);
    wait_for(&scene, all);
    const char *text = fake_response_text(all);
    for (int i = 0; i < JOBS; i++) {
        char id[32];
        snprintf(id, sizeof id, "\"job-%03d\"", i);
        CU_ASSERT_EQUAL(count(text, id), 1);
    }
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "\"next_cursor\": null"));
    scene_fini(&scene);
}

/* ---- Stalls ---- */

/* Lets the worker be silent for 1.5 times the timeout, and returns whether its session lives. */
static bool lives_after_silence(bool has_stalled)
{
    struct scene scene;
    scene_init(&scene);
    struct tally_coordinator *coordinator = scene.coordinator;
    struct session_table *sessions = &coordinator->workers->sessions;
    const int64_t timeout_ms = coordinator->config.session_timeout_ms;
    const uint64_t id = scene_join(&scene, "w", 1);
    struct session *session = session_by_id(sessions, id);
    session->last_contact_ms -= timeout_ms + timeout_ms / 2;
    session_set_timer(sessions, session, timeout_ms);
    if (has_stalled) { /* for most of that time */
        coordinator->turn->began_ms -= timeout_ms;
    }
    turn_hurry(coordinator->turn);
    scene_turn(&scene);
    const bool lives = session_by_id(sessions, id) != NULL;
    scene_fini(&scene);
    return lives;
}

static void test_coordinator_reads__a_stall_of_the_loop_is_no_silence_of_workers(void)
{
    CU_ASSERT_TRUE(lives_after_silence(true));
    CU_ASSERT_FALSE(lives_after_silence(false));
}

/* Each turn takes two seconds, and the sockets are served in between. */
static void test_coordinator_reads__stalls_in_every_turn_do_not_hide_silence(void)
{
    enum { TURN_MS = 2 * STALL_MS, MOST_TURNS = 20 };
    struct scene scene;
    scene_init(&scene);
    struct tally_coordinator *coordinator = scene.coordinator;
    struct session_table *sessions = &coordinator->workers->sessions;
    coordinator->config.session_timeout_ms = 15 * STALL_MS;
    const uint64_t id = scene_join(&scene, "w", 1);
    struct session *session;
    int n = 0;
    while ((session = session_by_id(sessions, id)) != NULL && n < MOST_TURNS) {
        session->last_contact_ms -= TURN_MS;
        session_set_timer(sessions, session, coordinator->config.session_timeout_ms);
        coordinator->turn->began_ms -= TURN_MS;
        turn_hurry(coordinator->turn);
        scene_turn(&scene);
        n++;
    }
    CU_ASSERT_PTR_NULL(session);
    CU_ASSERT_TRUE(n > 4); /* it is not the first ones that count */
    scene_fini(&scene);
}

static void test_coordinator_reads__a_stall_moves_deadlines_but_not_into_the_future(void)
{
    struct scene scene;
    scene_init(&scene);
    struct hosted_job *job = scene_add_job(&scene, 1, TALLY_POLICY_DROP, 1);
    job->deadline_from_ms = 500000;
    forgive_stall(scene.coordinator, 1000000, 200000);
    CU_ASSERT_EQUAL(job->deadline_from_ms, 700000 - STALL_MS);
    job->spec.round_deadline_ms = 100;
    forgive_stall(scene.coordinator, 1000000, 200000);
    CU_ASSERT_EQUAL(job->deadline_from_ms, 900000 - STALL_MS - 25);
    forgive_stall(scene.coordinator, 1000000, 400000);
    CU_ASSERT_EQUAL(job->deadline_from_ms, 1000000);
    job->deadline_from_ms = 1000500; /* after an outage */
    forgive_stall(scene.coordinator, 1000000, 400000);
    CU_ASSERT_EQUAL(job->deadline_from_ms, 1000500);
    scene_fini(&scene);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_coordinator_reads__a_long_one_leaves_time_for_others),
    TALLY_TEST(test_coordinator_reads__rounds_are_those_that_were_closed_at_the_request),
    TALLY_TEST(test_coordinator_reads__a_job_deleted_meanwhile_is_not_cut_short),
    TALLY_TEST(test_coordinator_reads__damage_behind_the_first_piece_is_noted),
    TALLY_TEST(test_coordinator_reads__clients_may_leave_between_pieces),
    TALLY_TEST(test_coordinator_reads__those_that_hold_much_do_not_stop_each_other),
    TALLY_TEST(test_coordinator_reads__a_response_longer_than_may_be_held_is_refused),
    TALLY_TEST(test_coordinator_reads__lists_have_each_job_once),
    TALLY_TEST(test_coordinator_reads__a_stall_of_the_loop_is_no_silence_of_workers),
    TALLY_TEST(test_coordinator_reads__stalls_in_every_turn_do_not_hide_silence),
    TALLY_TEST(test_coordinator_reads__a_stall_moves_deadlines_but_not_into_the_future),
};
TALLY_SUITE(coordinator_reads, TESTS);
