#include "services/coordinator/jobs_lifecycle.h"
#include "services/coordinator/jobs_live.h"
#include "services/coordinator/loop_transaction.h"
#include "tests/harness.h"
#include "tests/unit/services/coordinator/job_in_store.h"
#include "tests/unit/services/coordinator/scene.h"

/* Its cancellation is rolled back, after which it is queued again. */
static void test_coordinator_unsolved__a_job_that_is_queued_again_is_solved(void)
{
    struct scene scene;
    scene_init(&scene);
    struct tally_coordinator *coordinator = scene.coordinator;
    struct tally_job_spec spec = job_in_store_spec();
    struct hosted_job *job = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    const int64_t enough_bytes = coordinator->config.max_job_bytes;
    coordinator->config.max_job_bytes = 1; /* the solver has to wait */
    TALLY_ASSERT_STATUS(jobs_create(coordinator, &spec, NULL, 0, &job, &err), TALLY_OK, &err);
    CU_ASSERT_PTR_NOT_NULL_FATAL(job);
    scene_turn(&scene);
    CU_ASSERT_EQUAL(job->prepare_began_ms, 0);
    TALLY_ASSERT_STATUS(jobs_change(coordinator, job, tally_job_cancel, &err), TALLY_OK, &err);
    (void)tally_fail(&err, TALLY_STORE, NULL, "the disk is full");
    transaction_check(coordinator->transaction, TALLY_STORE, &err);
    scene_turn(&scene);
    CU_ASSERT_EQUAL(job->row.status, TALLY_JOB_QUEUED);
    CU_ASSERT_FALSE(job->needs_reload);
    coordinator->config.max_job_bytes = enough_bytes;
    coordinator->jobs->match_due = true;
    scene_turn(&scene);
    CU_ASSERT_NOT_EQUAL(job->prepare_began_ms, 0);
    scene_fini(&scene);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_coordinator_unsolved__a_job_that_is_queued_again_is_solved),
};
TALLY_SUITE(coordinator_unsolved, TESTS);
