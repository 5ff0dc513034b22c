#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "services/base/time.h"
#include "services/coordinator/jobs_lifecycle.h"
#include "services/coordinator/jobs_live.h"
#include "services/coordinator/loop.h"
#include "services/coordinator/workers.h"
#include "tests/harness.h"
#include "tests/unit/services/coordinator/job_in_store.h"
#include "tests/unit/services/coordinator/scene.h"

/* Submits a job of one client whose f(x*) need not be solved. */
static struct hosted_job *submit(struct scene *scene, int64_t job_deadline_ms)
{
    struct tally_error err = TALLY_ERROR_INIT;
    struct tally_job_spec spec = job_in_store_spec();
    struct hosted_job *job = NULL;
    spec.reference.type = TALLY_REFERENCE_NONE;
    spec.job_deadline_ms = job_deadline_ms;
    TALLY_ASSERT_STATUS(jobs_create(scene->coordinator, &spec, NULL, 0, &job, &err), TALLY_OK,
                        &err);
    CU_ASSERT_PTR_NOT_NULL_FATAL(job);
    return job;
}

/* The detail as text. Takes it. */
static struct tally_buffer text_of(struct tally_json *detail)
{
    struct tally_buffer text = {0};
    CU_ASSERT_PTR_NOT_NULL_FATAL(detail);
    CU_ASSERT_EQUAL_FATAL(tally_json_dump(detail, 0, &text), TALLY_OK);
    tally_json_free(detail);
    return text;
}

static void expect_same_bytes(const struct tally_buffer *a, const struct tally_buffer *b)
{
    CU_ASSERT_EQUAL_FATAL(a->size, b->size);
    CU_ASSERT_EQUAL(memcmp(a->data, b->data, a->size), 0);
}

/* Its document is not parsed again, and the job is not read back. */
static void test_coordinator_queue__a_new_job_is_what_the_store_has_of_it(void)
{
    struct scene scene;
    struct tally_store_job row;
    struct tally_error err = TALLY_ERROR_INIT;
    struct hosted_job *again = NULL;
    scene_init(&scene);
    const struct hosted_job *job = submit(&scene, 1000000);
    TALLY_ASSERT_STATUS(jobs_read_row(scene.coordinator, job->row.id, &row, &err), TALLY_OK, &err);
    TALLY_ASSERT_STATUS(hosted_job_load(scene.store, &row, &again, &err), TALLY_OK, &err);
    CU_ASSERT_PTR_NOT_NULL_FATAL(again);
    CU_ASSERT_EQUAL(memcmp(&job->spec, &again->spec, sizeof job->spec), 0);
    CU_ASSERT_EQUAL(job->started_bytes, again->started_bytes);
    CU_ASSERT_EQUAL(job->solving_bytes, again->solving_bytes);
    CU_ASSERT_EQUAL(job->row.key, again->row.key);
    CU_ASSERT_EQUAL(job->n_vacant, again->n_vacant);
    expect_same_bytes(&job->document, &again->document);
    struct tally_buffer made = text_of(hosted_job_new_detail(job, NULL));
    struct tally_buffer read = text_of(hosted_job_detail(&row, &again->document, NULL, NULL));
    expect_same_bytes(&made, &read);
    TALLY_ASSERT_STATUS(tally_buffer_append(&made, "", 1), TALLY_OK, NULL);
    CU_ASSERT_PTR_NOT_NULL(strstr((const char *)made.data, "\"x_checksum\": \""));
    tally_buffer_fini(&made);
    tally_buffer_fini(&read);
    hosted_job_free(again);
    scene_fini(&scene);
}

/* Waits until the solver's thread is done with n jobs, and takes all of them at once. */
static void take_together(struct scene *scene, uint64_t n)
{
    uint64_t n_done = 0, more;
    while (n_done < n) {
        if (read(scene->coordinator->loop->wake_fd, &more, sizeof more) == sizeof more) {
            n_done += more;
        } else {
            (void)sched_yield();
        }
    }
    jobs_take_prepared(scene->coordinator);
}

/* Otherwise the work at a submission grows with the queue whenever the next job is prepared before
 * the loop has taken the last one. */
static void test_coordinator_queue__jobs_prepared_together_match_alone(void)
{
    struct scene scene;
    scene_init(&scene);
    struct live_jobs *jobs = scene.coordinator->jobs;
    const struct hosted_job *first = submit(&scene, 0), *second = submit(&scene, 0);
    take_together(&scene, 2);
    CU_ASSERT_TRUE(first->prepared && second->prepared);
    CU_ASSERT_FALSE(jobs->match_due);
    jobs->lacks_memory = true; /* until the queue is walked */
    workers_assign_slots(scene.coordinator);
    CU_ASSERT_TRUE(jobs->lacks_memory);
    jobs->lacks_memory = false;
    scene_fini(&scene);
}

static void test_coordinator_queue__jobs_prepared_together_start(void)
{
    struct scene scene;
    scene_init(&scene);
    scene_join(&scene, "w", 2);
    const struct hosted_job *first = submit(&scene, 0), *second = submit(&scene, 0);
    take_together(&scene, 2);
    workers_assign_slots(scene.coordinator);
    CU_ASSERT_EQUAL(tally_job_status(first->engine), TALLY_JOB_RUNNING);
    CU_ASSERT_EQUAL(tally_job_status(second->engine), TALLY_JOB_RUNNING);
    scene_fini(&scene);
}

/* What is changed behind the coordinator's back shows whether it looks. */
static void test_coordinator_queue__a_waiting_job_costs_nothing_each_tick(void)
{
    struct scene scene;
    scene_init(&scene);
    struct hosted_job *job = submit(&scene, 0);
    take_together(&scene, 1);
    scene_turn(&scene); /* commits */
    scene_turn(&scene);
    jobs_prune_active(scene.coordinator->jobs);
    CU_ASSERT_FALSE(tally_list_has(&job->in_active));
    job->spec.job_deadline_ms = 1;
    job->row.created_ms = 1;
    job->wire_in_bytes = 1;
    job->prepare_error.status = TALLY_INTERNAL;
    workers_check_deadlines(scene.coordinator, tally_monotonic_ms());
    jobs_flush_wire(scene.coordinator, true);
    jobs_fail_unprepared(scene.coordinator);
    CU_ASSERT_EQUAL(tally_job_status(job->engine), TALLY_JOB_QUEUED);
    CU_ASSERT_EQUAL(job->row.wire_in_bytes, 0);
    scene_fini(&scene);
}

static void test_coordinator_queue__the_deadline_of_a_waiting_job_ends_it(void)
{
    enum { HOUR_MS = 3600000 };
    struct scene scene;
    scene_init(&scene);
    struct tally_coordinator *coordinator = scene.coordinator;
    const struct hosted_job *late = submit(&scene, 3 * HOUR_MS), *never = submit(&scene, 0);
    const struct hosted_job *early = submit(&scene, 1);
    take_together(&scene, 3);
    while (tally_job_status(early->engine) == TALLY_JOB_QUEUED) {
        workers_check_deadlines(coordinator, tally_monotonic_ms());
    }
    CU_ASSERT_EQUAL(tally_job_status(early->engine), TALLY_JOB_FAILED);
    CU_ASSERT_EQUAL(tally_job_status(late->engine), TALLY_JOB_QUEUED);
    CU_ASSERT_EQUAL(tally_job_status(never->engine), TALLY_JOB_QUEUED);
    CU_ASSERT_EQUAL(coordinator->jobs->next_deadline_ms, late->row.created_ms + 3 * HOUR_MS);
    scene_fini(&scene);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_coordinator_queue__a_new_job_is_what_the_store_has_of_it),
    TALLY_TEST(test_coordinator_queue__jobs_prepared_together_match_alone),
    TALLY_TEST(test_coordinator_queue__jobs_prepared_together_start),
    TALLY_TEST(test_coordinator_queue__a_waiting_job_costs_nothing_each_tick),
    TALLY_TEST(test_coordinator_queue__the_deadline_of_a_waiting_job_ends_it),
};
TALLY_SUITE(coordinator_queue, TESTS);
