#include <stdio.h>
#include <string.h>

#include "tests/harness.h"
#include "tests/unit/services/coordinator/scene.h"

/* Another replica may delete a job between two reads of one request: the row was found, but its
 * document no longer exists. */
static int64_t deleted_key;
static const struct tally_store_ops *real_ops;

static enum tally_status document_get(struct tally_store *store, int64_t key,
                                      struct tally_buffer *out, struct tally_error *err)
{
    return key == deleted_key
               ? tally_fail(err, TALLY_NOT_FOUND, NULL, "no document of a job with key %d", 2)
               : real_ops->document_get(store, key, out, err);
}

struct meanwhile {
    struct scene scene;
    struct tally_store_ops ops;
    char kept[TALLY_JOB_ID_CAPACITY], deleted[TALLY_JOB_ID_CAPACITY];
};

static void begin(struct meanwhile *test)
{
    scene_init(&test->scene);
    const struct hosted_job *kept = scene_add_job(&test->scene, 1, TALLY_POLICY_WAIT, 1);
    const struct hosted_job *deleted = scene_add_job(&test->scene, 1, TALLY_POLICY_WAIT, 1);
    memcpy(test->kept, kept->row.id, sizeof test->kept);
    memcpy(test->deleted, deleted->row.id, sizeof test->deleted);
    deleted_key = deleted->row.key;
    real_ops = test->scene.store->ops;
    test->ops = *real_ops;
    test->ops.document_get = document_get;
    test->scene.store->ops = &test->ops;
}

static void end(struct meanwhile *test)
{
    test->scene.store->ops = real_ops;
    scene_fini(&test->scene);
}

static void check_list(struct meanwhile *test, const char *order)
{
    struct tally_http_request *request = &test->scene.requests[test->scene.n_requests++];
    request->method = "GET";
    request->path = "/v1/jobs";
    request->query_name = order != NULL ? "sort" : NULL;
    request->query_value = order;
    tally_coordinator_on_request(test->scene.coordinator, request);
    scene_turn(&test->scene);
    const char *text = fake_response_text(request);
    CU_ASSERT_EQUAL(request->status, 200);
    CU_ASSERT_PTR_NOT_NULL(strstr(text, test->kept));
    CU_ASSERT_PTR_NULL(strstr(text, test->deleted));
}

static void test_coordinator_deleted_meanwhile__lists_leave_the_job_out(void)
{
    struct meanwhile test;
    begin(&test);
    check_list(&test, NULL);
    check_list(&test, "name");
    end(&test);
}

static void test_coordinator_deleted_meanwhile__requests_for_the_job_name_it(void)
{
    struct meanwhile test;
    char path[TALLY_JOB_ID_CAPACITY + 16], message[TALLY_JOB_ID_CAPACITY + 32];
    begin(&test);
    snprintf(path, sizeof path, "/v1/jobs/%s", test.deleted);
    snprintf(message, sizeof message, "there is no job %s", test.deleted);
    struct tally_http_request *request = scene_get(&test.scene, path);
    scene_turn(&test.scene);
    CU_ASSERT_EQUAL(request->status, 404);
    CU_ASSERT_PTR_NOT_NULL(strstr(fake_response_text(request), message));
    end(&test);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_coordinator_deleted_meanwhile__lists_leave_the_job_out),
    TALLY_TEST(test_coordinator_deleted_meanwhile__requests_for_the_job_name_it),
};
TALLY_SUITE(coordinator_deleted_meanwhile, TESTS);
