#include <string.h>

#include "services/coordinator/workers.h"
#include "tests/harness.h"
#include "tests/unit/services/coordinator/scene.h"

enum { CLIENTS = 4, DIM = 4 /* of scene_add_job() */ };

/* Returns how many of the request's n updates are acknowledged; those after them are put off. */
static uint32_t count_taken(struct tally_http_request *request, uint32_t n)
{
    struct tally_update_response response;
    struct tally_update_result result;
    struct tally_error err = TALLY_ERROR_INIT;
    CU_ASSERT_EQUAL_FATAL(request->status, 200);
    TALLY_ASSERT_STATUS(tally_update_response_decode(request->response.data, request->response.size,
                                                     &response, &err),
                        TALLY_OK, &err);
    if (response.n_results == 0) {
        return n;
    }
    CU_ASSERT_EQUAL_FATAL(response.n_results, n);
    uint32_t n_taken = 0, n_put_off = 0;
    for (uint32_t i = 0; i < n; i++) {
        TALLY_ASSERT_STATUS(tally_update_response_next(&response, &result, &err), TALLY_OK, &err);
        if (result.code[0] == '\0') {
            CU_ASSERT_EQUAL(n_put_off, 0);
            n_taken++;
        } else {
            CU_ASSERT_STRING_EQUAL(result.code, "unavailable");
            CU_ASSERT_PTR_NOT_NULL(strstr(result.message, "post it again"));
            n_put_off++;
        }
    }
    return n_taken;
}

/* A worker with all clients of a running job. */
static struct hosted_job *begin(struct scene *scene, uint64_t *ret_session)
{
    scene_init(scene);
    *ret_session = scene_join(scene, "w", CLIENTS);
    struct hosted_job *job = scene_add_job(scene, CLIENTS, TALLY_POLICY_WAIT, CLIENTS);
    CU_ASSERT_EQUAL_FATAL(tally_job_status(job->engine), TALLY_JOB_RUNNING);
    CU_ASSERT_EQUAL_FATAL(job->row.dim, DIM);
    return job;
}

/* Room for one update and a part of the second; the budget of the next turn is whole again. */
static void test_coordinator_updates__those_beyond_a_turns_budget_are_put_off(void)
{
    struct scene scene;
    uint64_t session;
    struct hosted_job *job = begin(&scene, &session);
    scene.coordinator->workers->n_decoded = MOST_DECODED - DIM - 1;
    struct tally_http_request *all = scene_updates(&scene, session, job, 0, CLIENTS);
    scene_turn(&scene);
    CU_ASSERT_EQUAL(count_taken(all, CLIENTS), 2);
    CU_ASSERT_EQUAL(tally_job_open_round(job->engine)->received, 2);
    struct tally_http_request *rest = scene_updates(&scene, session, job, 2, 2);
    scene_turn(&scene);
    CU_ASSERT_EQUAL(count_taken(rest, 2), 2);
    CU_ASSERT_EQUAL(job->row.progress.round, 1);
    scene_fini(&scene);
}

/* The budget is that of all requests together, but each request gets on. */
static void test_coordinator_updates__each_request_has_one_taken(void)
{
    struct scene scene;
    uint64_t session;
    struct hosted_job *job = begin(&scene, &session);
    scene.coordinator->workers->n_decoded = MOST_DECODED - DIM;
    struct tally_http_request *first = scene_updates(&scene, session, job, 0, 2);
    struct tally_http_request *second = scene_updates(&scene, session, job, 1, 3);
    struct tally_http_request *third = scene_updates(&scene, session, job, 2, 2);
    scene_turn(&scene);
    CU_ASSERT_EQUAL(count_taken(first, 2), 1);
    CU_ASSERT_EQUAL(count_taken(second, 3), 1);
    CU_ASSERT_EQUAL(count_taken(third, 2), 1);
    CU_ASSERT_EQUAL(tally_job_open_round(job->engine)->received, 3);
    scene_fini(&scene);
}

/* ---- What is stored ---- */

struct stored {
    struct tally_buffer body;
    uint32_t client;
    int n;
};

static enum tally_status keep_stored(void *context, const struct tally_store_update *update,
                                     struct tally_error *err)
{
    (void)err;
    struct stored *stored = context;
    stored->n++;
    stored->client = update->client;
    return tally_buffer_append(&stored->body, update->body, update->n_body);
}

/* Also a field that this program does not know, and one that comes twice. */
static void test_coordinator_updates__the_stored_bytes_are_the_received_ones(void)
{
    static const uint8_t FIRST[] = {0xF0, 0x01, 5, /* field 30 */
                                    0x08, 3 /* client */};
    struct scene scene;
    uint64_t session;
    struct tally_error err = TALLY_ERROR_INIT;
    struct hosted_job *job = begin(&scene, &session);
    struct tally_update_request message = {.session = session, .round = 1};
    struct tally_buffer body = {0}, field = {0}, sent = {0};
    struct stored stored = {.n = 0};
    memcpy(message.job_id, job->row.id, sizeof job->row.id);
    scene_encode_update(job, 2, &field);
    CU_ASSERT_TRUE_FATAL(field.size + sizeof FIRST < 128); /* so a length takes one byte */
    CU_ASSERT_EQUAL(tally_buffer_append(&sent, FIRST, sizeof FIRST), TALLY_OK);
    CU_ASSERT_EQUAL(tally_buffer_append(&sent, field.data + 2, field.size - 2), TALLY_OK);
    CU_ASSERT_EQUAL(tally_buffer_append(&body, (uint8_t[]){field.data[0], (uint8_t)sent.size}, 2),
                    TALLY_OK);
    CU_ASSERT_EQUAL(tally_buffer_append(&body, sent.data, sent.size), TALLY_OK);
    CU_ASSERT_EQUAL(tally_update_request_end(&message, &body), TALLY_OK);
    struct tally_http_request *request = scene_post_update(&scene, &body);
    scene_turn(&scene);
    CU_ASSERT_EQUAL_FATAL(request->status, 200);
    TALLY_ASSERT_STATUS(
        scene.store->ops->update_list(scene.store, job->row.key, 1, keep_stored, &stored, &err),
        TALLY_OK, &err);
    CU_ASSERT_EQUAL(stored.n, 1);
    CU_ASSERT_EQUAL(stored.client, 2);
    CU_ASSERT_EQUAL_FATAL(stored.body.size, sent.size);
    CU_ASSERT_EQUAL(memcmp(stored.body.data, sent.data, sent.size), 0);
    TALLY_ASSERT_STATUS(hosted_job_reload(scene.store, job, &err), TALLY_OK, &err);
    CU_ASSERT_TRUE(tally_job_has_received(job->engine, 2));
    tally_buffer_fini(&stored.body);
    tally_buffer_fini(&field);
    tally_buffer_fini(&sent);
    scene_fini(&scene);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_coordinator_updates__those_beyond_a_turns_budget_are_put_off),
    TALLY_TEST(test_coordinator_updates__each_request_has_one_taken),
    TALLY_TEST(test_coordinator_updates__the_stored_bytes_are_the_received_ones),
};
TALLY_SUITE(coordinator_updates, TESTS);
