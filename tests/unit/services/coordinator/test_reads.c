#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/coordinator/calls.h"
#include "services/coordinator/jobs_lifecycle.h"
#include "services/coordinator/loop.h"
#include "services/coordinator/workers.h"
#include "tests/harness.h"
#include "tests/unit/services/coordinator/job_in_store.h"
#include "tests/unit/services/coordinator/scene.h"

/* Far more rounds than can be read and written in the time that a turn gives to reads. */
enum { MANY_ROUNDS = 20000, MANY_TURNS = 1000000 };

/* Stores a job that has ended after n rounds. */
static struct tally_store_job insert_ended_with(struct scene *scene, const char *id, int n,
                                                int clients)
{
    struct tally_store *store = scene->store;
    struct tally_error err = TALLY_ERROR_INIT;
    struct tally_store_job row = {.status = TALLY_JOB_COMPLETED,
                                  .created_ms = 1,
                                  .finished_ms = 2,
                                  .clients = clients,
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

static struct tally_store_job insert_ended(struct scene *scene, const char *id, int n)
{
    return insert_ended_with(scene, id, n, 1);
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

/* ---- Models ---- */

/* Beside a response in pieces, since its own pieces are short. */
static void test_coordinator_reads__a_long_model_leaves_time_for_others(void)
{
    enum { DIM = 1000000 };
    struct scene scene;
    scene_init(&scene);
    scene.coordinator->config.max_dim = DIM;
    insert_ended(&scene, "long", MANY_ROUNDS);
    struct tally_error err = TALLY_ERROR_INIT;
    struct tally_job_spec spec = job_in_store_spec();
    struct hosted_job *job = NULL;
    spec.reference.type = TALLY_REFERENCE_NONE;
    spec.objective.data.synthetic_linear.dim = DIM;
    TALLY_ASSERT_STATUS(jobs_create(scene.coordinator, &spec, NULL, 0, &job, &err), TALLY_OK, &err);
    CU_ASSERT_PTR_NOT_NULL_FATAL(job);
    char path[64];
    snprintf(path, sizeof path, "/v1/jobs/%s/model", job->row.id);
    struct tally_http_request *model = &scene.requests[scene.n_requests++];
    *model =
        (struct tally_http_request){.method = "GET", .path = path, .accept = "application/x-npy"};
    tally_coordinator_on_request(scene.coordinator, model);
    struct tally_http_request *csv = scene_get(&scene, "/v1/jobs/long/rounds.csv");
    scene_turn(&scene);
    CU_ASSERT_EQUAL(model->status, 0);
    wait_for(&scene, model);
    wait_for(&scene, csv);
    CU_ASSERT_EQUAL(model->status, 200);
    double *x = NULL;
    struct tally_buffer expected = {0};
    TALLY_ASSERT_STATUS(tally_job_make_initial_point(&spec, &x, &err), TALLY_OK, &err);
    CU_ASSERT_EQUAL_FATAL(tally_detail_npy(x, DIM, &expected), TALLY_OK);
    CU_ASSERT_EQUAL(expected.size, TALLY_NPY_HEADER_BYTES + DIM * sizeof *x);
    CU_ASSERT_EQUAL_FATAL(model->response.size, expected.size);
    CU_ASSERT_EQUAL(memcmp(model->response.data, expected.data, expected.size), 0);
    tally_buffer_fini(&expected);
    free(x);
    scene_fini(&scene);
}

/* ---- Single clients ---- */

enum { MANY_CLIENTS = 2 * CLIENT_METRICS_BLOCK + 3 };

/* Stores metrics of all clients but the last: of each, its number plus `round`. */
static void put_metrics(struct scene *scene, const struct tally_store_job *row, uint32_t round)
{
    struct tally_store *store = scene->store;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(store->ops->begin(store, &err), TALLY_OK, &err);
    TALLY_ASSERT_STATUS(store->ops->updates_delete(store, row->key, TALLY_STORE_METRICS_ROUND,
                                                   TALLY_STORE_METRICS_ROUND, &err),
                        TALLY_OK, &err);
    for (uint32_t first = 0; first < MANY_CLIENTS; first += CLIENT_METRICS_BLOCK) {
        struct tally_update_request block = {.round = round};
        struct tally_update update = {.n_metrics = 1, .metrics = {{.name = "accuracy"}}};
        struct tally_buffer body = {0};
        for (uint32_t m = first; m < MANY_CLIENTS - 1 && m < first + CLIENT_METRICS_BLOCK; m++) {
            update.client = m;
            update.metrics[0].value = m + round;
            CU_ASSERT_EQUAL_FATAL(tally_update_request_add(&update, &body), TALLY_OK);
        }
        strcpy(block.job_id, row->id);
        CU_ASSERT_EQUAL_FATAL(tally_update_request_end(&block, &body), TALLY_OK);
        const struct tally_store_update stored = {
            .client = first, .body = body.data, .n_body = body.size};
        TALLY_ASSERT_STATUS(store->ops->update_insert(store, row->key, &stored, &err), TALLY_OK,
                            &err);
        tally_buffer_fini(&body);
    }
    TALLY_ASSERT_STATUS(store->ops->commit(store, &err), TALLY_OK, &err);
}

static struct tally_http_request *get_page(struct scene *scene, const char *path, const char *name,
                                           const char *value)
{
    struct tally_http_request *request = &scene->requests[scene->n_requests++];
    request->method = "GET";
    request->path = path;
    request->query_name = name;
    request->query_value = value;
    tally_coordinator_on_request(scene->coordinator, request);
    return request;
}

/* Checks that the response has the n clients from `first` on, each once. */
static void expect_clients(struct tally_http_request *request, int first, int n)
{
    const char *text = fake_response_text(request);
    CU_ASSERT_EQUAL_FATAL(request->status, 200);
    CU_ASSERT_EQUAL(count(text, "\"client\":"), n);
    for (int i = 0; i < n && text != NULL; i++) { /* in order */
        char client[32];
        snprintf(client, sizeof client, "{\"client\": %d,", first + i);
        const char *at = strstr(text, client);
        CU_ASSERT_PTR_NOT_NULL(at);
        text = at;
    }
}

/* The next round replaces them before the response is made. */
static void test_coordinator_reads__clients_metrics_are_of_one_round(void)
{
    struct scene scene;
    scene_init(&scene);
    const struct tally_store_job row = insert_ended_with(&scene, "j", 2, MANY_CLIENTS);
    put_metrics(&scene, &row, 1);
    struct tally_http_request *all = get_page(&scene, "/v1/jobs/j/metrics", "limit", "10000");
    struct tally_http_request *health = scene_get(&scene, "/healthz");
    scene_turn(&scene);
    CU_ASSERT_EQUAL(health->status, 200);
    CU_ASSERT_EQUAL(all->status, 0); /* it does not fit into one turn */
    put_metrics(&scene, &row, 2);
    wait_for(&scene, all);
    expect_clients(all, 0, MANY_CLIENTS - 1);
    CU_ASSERT_PTR_NOT_NULL(strstr(fake_response_text(all), "\"round\": 1,"));
    CU_ASSERT_PTR_NOT_NULL(strstr(fake_response_text(all), "\"next_client\": null"));
    scene_fini(&scene);
}

static void test_coordinator_reads__pages_of_metrics_begin_and_end_within_blocks(void)
{
    static const struct {
        const char *first;
        int n, next; /* 0 = none */
    } PAGES[] = {{"0", 1000, 1000}, {"4095", 1000, 5095}, {"4096", 1000, 5096},
                 {"7500", 694, 0},  {"8193", 1, 0},       {"8194", 0, 0}};
    struct scene scene;
    scene_init(&scene);
    const struct tally_store_job row = insert_ended_with(&scene, "j", 2, MANY_CLIENTS);
    put_metrics(&scene, &row, 1);
    for (size_t i = 0; i < sizeof PAGES / sizeof PAGES[0]; i++) {
        struct tally_http_request *page =
            get_page(&scene, "/v1/jobs/j/metrics", "first", PAGES[i].first);
        char next[48] = "\"next_client\": null";
        if (PAGES[i].next > 0) {
            snprintf(next, sizeof next, "\"next_client\": %d\n", PAGES[i].next);
        }
        wait_for(&scene, page);
        expect_clients(page, (int)strtol(PAGES[i].first, NULL, 10), PAGES[i].n);
        CU_ASSERT_PTR_NOT_NULL(strstr(fake_response_text(page), next));
    }
    insert_ended(&scene, "none", 1);
    struct tally_http_request *none = scene_get(&scene, "/v1/jobs/none/metrics");
    wait_for(&scene, none);
    expect_clients(none, 0, 0);
    CU_ASSERT_PTR_NOT_NULL(strstr(fake_response_text(none), "\"round\": null"));
    scene_fini(&scene);
}

static void test_coordinator_reads__clients_traffic_leaves_time_for_others(void)
{
    static struct client_traffic clients[MANY_CLIENTS];
    struct scene scene;
    scene_init(&scene);
    struct tally_store_job row = insert_ended_with(&scene, "j", 1, MANY_CLIENTS);
    struct tally_store *store = scene.store;
    for (uint64_t m = 0; m < MANY_CLIENTS; m++) {
        clients[m] = (struct client_traffic){1, 8, {10, 20}};
    }
    row.wire_in_bytes = 10 * MANY_CLIENTS + 7;
    row.wire_out_bytes = 20 * MANY_CLIENTS + 9;
    TALLY_ASSERT_STATUS(store->ops->begin(store, NULL), TALLY_OK, NULL);
    TALLY_ASSERT_STATUS(store->ops->job_update(store, &row, NULL), TALLY_OK, NULL);
    TALLY_ASSERT_STATUS(traffic_put(store, &row, clients, NULL), TALLY_OK, NULL);
    TALLY_ASSERT_STATUS(store->ops->commit(store, NULL), TALLY_OK, NULL);
    struct tally_http_request *all = get_page(&scene, "/v1/jobs/j/traffic", "limit", "10000");
    scene_turn(&scene);
    CU_ASSERT_EQUAL(all->status, 0);
    wait_for(&scene, all);
    expect_clients(all, 0, MANY_CLIENTS);
    struct tally_http_request *page = get_page(&scene, "/v1/jobs/j/traffic", "first", "4095");
    wait_for(&scene, page);
    expect_clients(page, 4095, 1000);
    CU_ASSERT_PTR_NOT_NULL(strstr(fake_response_text(page), "\"next_client\": 5095,\n"));
    for (int i = 0; i < 2; i++) {
        struct tally_http_request *request = i == 0 ? all : page;
        CU_ASSERT_PTR_NOT_NULL(
            strstr(fake_response_text(request), "\"other_wire_bytes\": {\"in\": 7, \"out\": 9}"));
    }
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
    const int64_t timeout_ms = 15 * STALL_MS; /* the machine may have started a minute ago */
    coordinator->config.session_timeout_ms = timeout_ms;
    const uint64_t id = scene_join(&scene, "w", 1);
    struct session *session = session_by_id(sessions, id);
    session->last_contact_ms -= timeout_ms + timeout_ms / 2;
    session_set_timer(sessions, session, timeout_ms);
    if (has_stalled) { /* for most of that time */
        coordinator->loop->began_ms -= timeout_ms;
    }
    loop_hurry(coordinator->loop);
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
        coordinator->loop->began_ms -= TURN_MS;
        loop_hurry(coordinator->loop);
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
    workers_forgive_stall(scene.coordinator, 1000000, 200000);
    CU_ASSERT_EQUAL(job->deadline_from_ms, 700000 - STALL_MS);
    job->spec.round_deadline_ms = 100;
    workers_forgive_stall(scene.coordinator, 1000000, 200000);
    CU_ASSERT_EQUAL(job->deadline_from_ms, 900000 - STALL_MS - 25);
    workers_forgive_stall(scene.coordinator, 1000000, 400000);
    CU_ASSERT_EQUAL(job->deadline_from_ms, 1000000);
    job->deadline_from_ms = 1000500; /* after an outage */
    workers_forgive_stall(scene.coordinator, 1000000, 400000);
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
    TALLY_TEST(test_coordinator_reads__a_long_model_leaves_time_for_others),
    TALLY_TEST(test_coordinator_reads__clients_metrics_are_of_one_round),
    TALLY_TEST(test_coordinator_reads__pages_of_metrics_begin_and_end_within_blocks),
    TALLY_TEST(test_coordinator_reads__clients_traffic_leaves_time_for_others),
    TALLY_TEST(test_coordinator_reads__a_stall_of_the_loop_is_no_silence_of_workers),
    TALLY_TEST(test_coordinator_reads__stalls_in_every_turn_do_not_hide_silence),
    TALLY_TEST(test_coordinator_reads__a_stall_moves_deadlines_but_not_into_the_future),
};
TALLY_SUITE(coordinator_reads, TESTS);
