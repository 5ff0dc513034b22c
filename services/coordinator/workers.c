#include "services/coordinator/workers.h"
#include "services/base/alloc.h"

#include <stdlib.h>

#include "services/coordinator/coordinator.h"
#include "services/coordinator/jobs_live.h"

/* Up to MAX_WAIT_MS of workers_long_polls.c. */
static const double POLL_SECONDS[] = {0.001, 0.01, 0.1, 0.5, 1, 2.5, 5, 10, 20, 30};
enum { N_POLL_SECONDS = sizeof POLL_SECONDS / sizeof POLL_SECONDS[0] };
_Static_assert(sizeof POLL_SECONDS / sizeof POLL_SECONDS[0] <= HISTOGRAM_MAX_BOUNDS,
               "buckets of polls");

void workers_new(struct tally_coordinator *coordinator)
{
    struct workers *workers = tally_xcalloc(1, sizeof *workers);
    for (int i = 0; i < N_POLL_KINDS; i++) {
        workers->counts.polls[i].bounds = POLL_SECONDS;
        workers->counts.polls[i].n_bounds = N_POLL_SECONDS;
    }
    tally_list_init(&workers->ready);
    coordinator->workers = workers;
}

void workers_free(struct workers *workers)
{
    if (workers != NULL) {
        session_table_fini(&workers->sessions);
        tally_buffer_fini(&workers->answer);
        free(workers);
    }
}

void workers_mark_ready(struct tally_coordinator *coordinator, struct session *session)
{
    if (!tally_list_has(&session->in_ready)) {
        tally_list_prepend(&coordinator->workers->ready, &session->in_ready);
    }
}

/* A client that has a slot and does not take part in the open round, from `*at` on; false = none.
 */
static bool next_idle(const struct hosted_job *job, const struct tally_list_node **at,
                      uint32_t *ret_client)
{
    for (; *at != &job->assigned.head; *at = (*at)->next) {
        const struct client_slot *slot =
            TALLY_LIST_MEMBER(const struct client_slot, in_assigned, *at);
        *ret_client = (uint32_t)(slot - job->slots);
        if (!tally_job_is_drawn(job->engine, *ret_client)) {
            *at = (*at)->next;
            return true;
        }
    }
    return false;
}

void workers_fill_cohort(struct tally_coordinator *coordinator, struct hosted_job *job)
{
    uint32_t n, idle;
    const uint32_t *cohort = tally_job_cohort(job->engine, &n);
    const struct tally_list_node *at = job->assigned.head.next;
    const bool has_idle = tally_job_spec_slots(&job->spec) < job->row.clients ||
                          tally_job_round_only_evaluates(tally_job_open_round(job->engine));
    const bool may_fill = job->n_vacant > 0 && hosted_job_is_settled(job) && has_idle &&
                          job->spec.objective.data.sharding != TALLY_SHARDING_LOCAL;
    for (uint32_t i = 0; may_fill && i < n; i++) {
        if (job->slots[cohort[i]].session == NULL && next_idle(job, &at, &idle)) {
            session_replace_client(job, idle, cohort[i]);
            workers_mark_ready(coordinator, job->slots[cohort[i]].session);
        }
    }
}

/* For sessions without a client in the open round, the job has no work. */
static void mark_cohort_ready(struct tally_coordinator *coordinator, struct hosted_job *job)
{
    uint32_t n;
    const uint32_t *cohort = tally_job_cohort(job->engine, &n);
    for (uint32_t i = 0; i < n; i++) {
        if (job->slots[cohort[i]].session != NULL) {
            workers_mark_ready(coordinator, job->slots[cohort[i]].session);
        }
    }
}

void workers_mark_job_ready(struct tally_coordinator *coordinator, struct hosted_job *job)
{
    if (tally_job_status(job->engine) == TALLY_JOB_RUNNING && job->slots != NULL) {
        workers_fill_cohort(coordinator, job);
        mark_cohort_ready(coordinator, job);
        return;
    }
    for (int64_t m = 0; job->slots != NULL && m < job->row.clients; m++) {
        if (job->slots[m].session != NULL) {
            workers_mark_ready(coordinator, job->slots[m].session);
        }
    }
}

void workers_end_session(struct tally_coordinator *coordinator, struct session *session)
{
    if (session->poll.request != NULL) {
        poll_finish_idle(coordinator, session);
    }
    tally_list_remove(&session->in_ready);
    session_free(&coordinator->workers->sessions, session);
    coordinator->jobs->match_due = true;
}

void workers_mark_all_ready(struct tally_coordinator *coordinator)
{
    for (struct session *s = coordinator->workers->sessions.first; s != NULL; s = s->next) {
        workers_mark_ready(coordinator, s);
    }
}

void workers_session_heard(struct session *session)
{
    for (uint32_t i = 0; session->may_be_absent && i < session->n_assignments; i++) {
        const struct assignment *assigned = &session->assignments[i];
        struct client_slot *slot = &assigned->job->slots[assigned->client];
        if (slot->absent) {
            slot->absent = false;
            hosted_job_mark_absence(assigned->job);
        }
    }
    session->may_be_absent = false;
}
