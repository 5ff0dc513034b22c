#include <stdio.h>
#include <string.h>

#include "tests/harness.h"
#include "tests/unit/services/coordinator/scene.h"

/* A worker that is pinned to a job ends when it is told that the job has ended or does not exist.
 * So it must not be told so of a job that another replica leads, or while the store fails. */
#define ID "0123456789ab"
static const struct tally_store_ops *real_ops;

static enum tally_status failing_job_get(struct tally_store *store, const char *id,
                                         struct tally_store_job *ret_job, struct tally_error *err)
{
    (void)store, (void)ret_job;
    return tally_fail(err, TALLY_STORE, NULL, "cannot read job %s", id);
}

static void insert_job(struct scene *scene, enum tally_job_status job_status)
{
    struct tally_store *store = scene->store;
    struct tally_error err = TALLY_ERROR_INIT;
    struct tally_store_job row = {
        .id = ID, .status = job_status, .created_ms = 1, .clients = 1, .dim = 1, .horizon = 9};
    TALLY_ASSERT_STATUS(store->ops->begin(store, &err), TALLY_OK, &err);
    TALLY_ASSERT_STATUS(store->ops->job_insert(store, &row, "{}", 2, NULL, 0, &row.key, &err),
                        TALLY_OK, &err);
    TALLY_ASSERT_STATUS(store->ops->job_update(store, &row, &err), TALLY_OK, &err);
    TALLY_ASSERT_STATUS(store->ops->commit(store, &err), TALLY_OK, &err);
}

static void expect(struct scene *scene, int status, const char *text)
{
    struct tally_http_request *request = scene_join_pinned(scene, "pinned", ID);
    CU_ASSERT_EQUAL(request->status, status);
    CU_ASSERT_PTR_NOT_NULL(strstr(fake_response_text(request), text));
}

static void test_coordinator_pinned_workers__a_job_of_another_replica_has_not_ended(void)
{
    static const enum tally_job_status LIVE[] = {TALLY_JOB_QUEUED, TALLY_JOB_RUNNING,
                                                 TALLY_JOB_PAUSED};
    for (size_t i = 0; i < sizeof LIVE / sizeof *LIVE; i++) {
        struct scene scene;
        scene_init(&scene);
        insert_job(&scene, LIVE[i]);
        expect(&scene, 503, "this coordinator does not have job " ID ": try again");
        scene_fini(&scene);
    }
}

static void test_coordinator_pinned_workers__an_ended_job_is_named_with_its_status(void)
{
    struct scene scene;
    scene_init(&scene);
    expect(&scene, 404, "there is no live job " ID);
    insert_job(&scene, TALLY_JOB_CANCELLED);
    expect(&scene, 200, "cancelled");
    scene_fini(&scene);
}

static void test_coordinator_pinned_workers__a_store_that_fails_says_nothing_of_the_job(void)
{
    struct scene scene;
    scene_init(&scene);
    insert_job(&scene, TALLY_JOB_RUNNING);
    real_ops = scene.store->ops;
    struct tally_store_ops ops = *real_ops;
    ops.job_get = failing_job_get;
    scene.store->ops = &ops;
    expect(&scene, 503, "cannot read job " ID);
    scene.store->ops = real_ops;
    scene_fini(&scene);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_coordinator_pinned_workers__a_job_of_another_replica_has_not_ended),
    TALLY_TEST(test_coordinator_pinned_workers__an_ended_job_is_named_with_its_status),
    TALLY_TEST(test_coordinator_pinned_workers__a_store_that_fails_says_nothing_of_the_job),
};
TALLY_SUITE(coordinator_pinned_workers, TESTS);
