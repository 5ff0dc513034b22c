#include "services/coordinator/workers.h"

#include <string.h>

#include "services/coordinator/loop.h"
#include "tests/harness.h"
#include "tests/unit/services/coordinator/scene.h"

enum { LONG_MS = 25000 }; /* longer than any test */

/* Returns the kind of the poll's response, which must have arrived. */
static enum tally_poll_kind kind_of(struct tally_http_request *poll)
{
    static struct tally_poll_response response; /* large */
    struct tally_error err = TALLY_ERROR_INIT;
    CU_ASSERT_EQUAL_FATAL(poll->status, 200);
    TALLY_ASSERT_STATUS(
        tally_poll_response_decode(poll->response.data, poll->response.size, &response, &err),
        TALLY_OK, &err);
    const enum tally_poll_kind kind = response.kind;
    tally_poll_response_fini(&response);
    return kind;
}

static void test_coordinator_long_polls__a_poll_waits_for_a_task(void)
{
    struct scene scene;
    scene_init(&scene);
    const uint64_t session = scene_join(&scene, "w", 1);
    struct tally_http_request *poll = scene_poll(&scene, session, LONG_MS);
    scene_turn(&scene);
    CU_ASSERT_EQUAL(poll->status, 0);
    scene_add_job(&scene, 1, TALLY_POLICY_WAIT, 1);
    scene_turn(&scene);
    CU_ASSERT_EQUAL(kind_of(poll), TALLY_POLL_TASK);
    scene_fini(&scene);
}

static void test_coordinator_long_polls__without_a_wait_it_is_idle_at_once(void)
{
    struct scene scene;
    scene_init(&scene);
    const uint64_t session = scene_join(&scene, "w", 1);
    struct tally_http_request *poll = scene_poll(&scene, session, 0);
    scene_turn(&scene);
    CU_ASSERT_EQUAL(kind_of(poll), TALLY_POLL_IDLE);
    scene_fini(&scene);
}

/* The worker has abandoned the first poll. It still needs a response, or its connection stays
 * open. */
static void test_coordinator_long_polls__a_new_poll_ends_the_old_one(void)
{
    struct scene scene;
    scene_init(&scene);
    const uint64_t session = scene_join(&scene, "w", 1);
    struct tally_http_request *first = scene_poll(&scene, session, LONG_MS);
    scene_turn(&scene);
    struct tally_http_request *second = scene_poll(&scene, session, LONG_MS);
    scene_turn(&scene);
    CU_ASSERT_EQUAL(kind_of(first), TALLY_POLL_IDLE);
    CU_ASSERT_EQUAL(second->status, 0);
    scene_fini(&scene);
}

static void test_coordinator_long_polls__no_task_for_a_round_that_has_the_update(void)
{
    struct scene scene;
    scene_init(&scene);
    const uint64_t a = scene_join(&scene, "a", 1), b = scene_join(&scene, "b", 1);
    struct hosted_job *job = scene_add_job(&scene, 2, TALLY_POLICY_WAIT, 2);
    const bool a_is_first = job->slots[0].session->id == a;
    const uint64_t first = a_is_first ? a : b, second = a_is_first ? b : a;
    struct tally_http_request *update = scene_update(&scene, first, job, 0);
    scene_turn(&scene);
    CU_ASSERT_EQUAL(update->status, 200);
    struct tally_http_request *waits = scene_poll(&scene, first, LONG_MS);
    struct tally_http_request *works = scene_poll(&scene, second, LONG_MS);
    scene_turn(&scene);
    CU_ASSERT_EQUAL(waits->status, 0);
    CU_ASSERT_EQUAL(kind_of(works), TALLY_POLL_TASK);
    scene_update(&scene, second, job, 1); /* closes the round: the next one has tasks for both */
    scene_turn(&scene);
    CU_ASSERT_EQUAL(job->row.progress.round, 1);
    CU_ASSERT_EQUAL(kind_of(waits), TALLY_POLL_TASK);
    scene_fini(&scene);
}

static void test_coordinator_long_polls__a_paused_job_gives_no_tasks(void)
{
    struct scene scene;
    char path[64];
    scene_init(&scene);
    const uint64_t session = scene_join(&scene, "w", 1);
    struct hosted_job *job = scene_add_job(&scene, 1, TALLY_POLICY_WAIT, 1);
    snprintf(path, sizeof path, "/v1/jobs/%s/pause", job->row.id);
    scene_post(&scene, path);
    scene_turn(&scene);
    struct tally_http_request *poll = scene_poll(&scene, session, LONG_MS);
    scene_turn(&scene);
    CU_ASSERT_EQUAL(poll->status, 0);
    snprintf(path, sizeof path, "/v1/jobs/%s/resume", job->row.id);
    scene_post(&scene, path);
    scene_turn(&scene);
    CU_ASSERT_EQUAL(kind_of(poll), TALLY_POLL_TASK);
    scene_fini(&scene);
}

static void test_coordinator_long_polls__refused_while_shutting_down(void)
{
    struct scene scene;
    scene_init(&scene);
    const uint64_t session = scene_join(&scene, "w", 1);
    struct tally_http_request *poll = scene_poll(&scene, session, LONG_MS);
    scene_turn(&scene);
    tally_coordinator_drain(scene.coordinator);
    scene_turn(&scene);
    CU_ASSERT_EQUAL(poll->status, 503);
    scene_fini(&scene);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_coordinator_long_polls__a_poll_waits_for_a_task),
    TALLY_TEST(test_coordinator_long_polls__without_a_wait_it_is_idle_at_once),
    TALLY_TEST(test_coordinator_long_polls__a_new_poll_ends_the_old_one),
    TALLY_TEST(test_coordinator_long_polls__no_task_for_a_round_that_has_the_update),
    TALLY_TEST(test_coordinator_long_polls__a_paused_job_gives_no_tasks),
    TALLY_TEST(test_coordinator_long_polls__refused_while_shutting_down),
};
TALLY_SUITE(coordinator_long_polls, TESTS);
