#include "services/coordinator/jobs_rounds.h"

#include "services/coordinator/loop_transaction.h"
#include "services/coordinator/session.h"
#include "services/coordinator/workers.h"
#include "tests/harness.h"
#include "tests/unit/services/coordinator/scene.h"

/* Sets up two workers with one client each, of which client 0 has sent its update. */
static struct hosted_job *half_a_round(struct scene *scene, enum tally_policy policy,
                                       uint64_t *ret_absent)
{
    scene_init(scene);
    const uint64_t a = scene_join(scene, "a", 1), b = scene_join(scene, "b", 1);
    struct hosted_job *job = scene_add_job(scene, 2, policy, 1);
    CU_ASSERT_EQUAL_FATAL(job->row.status, TALLY_JOB_RUNNING);
    const bool a_is_first = job->slots[0].session->id == a;
    scene_update(scene, a_is_first ? a : b, job, 0);
    scene_turn(scene);
    CU_ASSERT_EQUAL_FATAL(job->row.progress.round, 0);
    *ret_absent = a_is_first ? b : a;
    return job;
}

static void test_coordinator_rounds__policy_drop_closes_without_the_absent(void)
{
    struct scene scene;
    uint64_t absent;
    const struct hosted_job *job = half_a_round(&scene, TALLY_POLICY_DROP, &absent);
    scene_leave(&scene, absent);
    scene_turn(&scene);
    CU_ASSERT_EQUAL(job->row.progress.round, 1);
    CU_ASSERT_TRUE(job->slots[1].absent);
    TALLY_ASSERT_TEXT(job->noted_missing, "1");
    CU_ASSERT_EQUAL(scene.coordinator->transaction->counts.rounds.dropped_answers, 1);
    scene_fini(&scene);
}

static void test_coordinator_rounds__policy_wait_waits(void)
{
    struct scene scene;
    uint64_t absent;
    const struct hosted_job *job = half_a_round(&scene, TALLY_POLICY_WAIT, &absent);
    scene_leave(&scene, absent);
    scene_turn(&scene);
    CU_ASSERT_EQUAL(job->row.progress.round, 0);
    scene_fini(&scene);
}

/* The client is reassigned to another worker within a turn, so the round has no gap. */
static void test_coordinator_rounds__a_reassigned_client_was_never_absent(void)
{
    struct scene scene;
    uint64_t absent;
    const struct hosted_job *job = half_a_round(&scene, TALLY_POLICY_DROP, &absent);
    scene_join(&scene, "spare", 1);
    scene_leave(&scene, absent);
    scene_turn(&scene);
    CU_ASSERT_EQUAL(job->row.progress.round, 0);
    CU_ASSERT_FALSE(job->slots[1].absent);
    TALLY_ASSERT_TEXT(job->slots[1].session->name, "spare");
    scene_fini(&scene);
}

/* A failing store would undo every attempt. */
static void test_coordinator_rounds__nothing_closes_while_the_store_fails(void)
{
    struct scene scene;
    uint64_t absent;
    struct tally_error full = TALLY_ERROR_INIT, ok = TALLY_ERROR_INIT;
    const struct hosted_job *job = half_a_round(&scene, TALLY_POLICY_DROP, &absent);
    struct session *session = session_by_id(&scene.coordinator->workers->sessions, absent);
    CU_ASSERT_PTR_NOT_NULL_FATAL(session);
    tally_fail(&full, TALLY_STORE, NULL, "disk full");
    transaction_note_store(scene.coordinator->transaction, &full);
    workers_end_session(scene.coordinator, session);
    rounds_settle_absence(scene.coordinator);
    CU_ASSERT_EQUAL(tally_job_progress(job->engine)->round, 0);
    transaction_note_store(scene.coordinator->transaction, &ok);
    rounds_settle_absence(scene.coordinator);
    CU_ASSERT_EQUAL(tally_job_progress(job->engine)->round, 1);
    scene_turn(&scene);
    scene_fini(&scene);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_coordinator_rounds__policy_drop_closes_without_the_absent),
    TALLY_TEST(test_coordinator_rounds__policy_wait_waits),
    TALLY_TEST(test_coordinator_rounds__a_reassigned_client_was_never_absent),
    TALLY_TEST(test_coordinator_rounds__nothing_closes_while_the_store_fails),
};
TALLY_SUITE(coordinator_rounds, TESTS);
