#include "services/coordinator/rest_events.h"

#include <stdio.h>
#include <string.h>

#include "tests/harness.h"
#include "tests/unit/services/coordinator/scene.h"

/* Event streams check their job ten times per second. This makes them check it at once. */
static void look_now(struct scene *scene)
{
    scene->coordinator->events->has_more = true;
    scene_turn(scene);
}

static struct tally_http_request *watch(struct scene *scene, const struct hosted_job *job)
{
    static char path[64];
    snprintf(path, sizeof path, "/v1/jobs/%s/events", job->row.id);
    struct tally_http_request *request = scene_get(scene, path);
    scene_turn(scene);
    return request;
}

static int count(const char *text, const char *needle)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, needle)) != NULL; at += strlen(needle)) {
        n++;
    }
    return n;
}

static void test_coordinator_events__begin_with_the_cursor_and_the_job(void)
{
    struct scene scene;
    scene_init(&scene);
    const struct hosted_job *job = scene_add_job(&scene, 1, TALLY_POLICY_WAIT, 1);
    struct tally_http_request *stream = watch(&scene, job);
    CU_ASSERT_EQUAL(stream->status, 200);
    const char *text = fake_response_text(stream);
    CU_ASSERT_EQUAL(strncmp(text, "retry: 1000\nid: 0\n\nevent: job\n", 30), 0);
    CU_ASSERT_FALSE(stream->stream.ended);
    scene_fini(&scene);
}

static void test_coordinator_events__end_with_the_job(void)
{
    struct scene scene;
    char path[64];
    scene_init(&scene);
    const struct hosted_job *job = scene_add_job(&scene, 1, TALLY_POLICY_WAIT, 1);
    struct tally_http_request *stream = watch(&scene, job);
    snprintf(path, sizeof path, "/v1/jobs/%s/cancel", job->row.id);
    scene_post(&scene, path);
    look_now(&scene); /* `job` has been freed */
    look_now(&scene);
    CU_ASSERT_TRUE(stream->stream.ended);
    CU_ASSERT_PTR_NOT_NULL(strstr(fake_response_text(stream), "cancelled"));
    scene_fini(&scene);
}

/* A stream sends each stored round once, in order. */
static void test_coordinator_events__each_round_once(void)
{
    struct scene scene;
    scene_init(&scene);
    const uint64_t session = scene_join(&scene, "w", 1);
    struct hosted_job *job = scene_add_job(&scene, 1, TALLY_POLICY_WAIT, 1);
    for (int i = 0; i < 2; i++) {
        scene_update(&scene, session, job, 0);
        scene_turn(&scene);
    }
    CU_ASSERT_EQUAL_FATAL(job->row.progress.round, 2);
    static char path[64];
    snprintf(path, sizeof path, "/v1/jobs/%s/events", job->row.id);
    struct tally_http_request *stream = &scene.requests[scene.n_requests++];
    stream->method = "GET";
    stream->path = path;
    stream->query_name = "after";
    stream->query_value = "0";
    tally_coordinator_on_request(scene.coordinator, stream);
    scene_turn(&scene);
    look_now(&scene);
    const char *text = fake_response_text(stream);
    CU_ASSERT_EQUAL(count(text, "event: round\n"), 2);
    const char *first = strstr(text, "id: 1\n"), *second = strstr(text, "id: 2\n");
    CU_ASSERT_TRUE(first != NULL && second != NULL && first < second);
    scene_fini(&scene);
}

static void test_coordinator_events__are_limited(void)
{
    struct scene scene;
    scene_init(&scene);
    const struct hosted_job *job = scene_add_job(&scene, 1, TALLY_POLICY_WAIT, 1);
    CU_ASSERT_EQUAL(watch(&scene, job)->status, 200);
    CU_ASSERT_EQUAL(watch(&scene, job)->status, 200);
    CU_ASSERT_EQUAL(watch(&scene, job)->status, 429);
    CU_ASSERT_EQUAL(scene.coordinator->events->n_streams, 2);
    scene_fini(&scene);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_coordinator_events__begin_with_the_cursor_and_the_job),
    TALLY_TEST(test_coordinator_events__end_with_the_job),
    TALLY_TEST(test_coordinator_events__each_round_once),
    TALLY_TEST(test_coordinator_events__are_limited),
};
TALLY_SUITE(coordinator_events, TESTS);
