/* workers_assignment: gives clients of jobs to sessions, and starts jobs, in the order of
 * workers_matching.h. */
#include "services/coordinator/workers.h"

#include <stdlib.h>

#include "services/base/log.h"
#include "services/base/time.h"
#include "services/coordinator/coordinator.h"
#include "services/coordinator/jobs_initial.h"
#include "services/coordinator/jobs_lifecycle.h"
#include "services/coordinator/jobs_live.h"
#include "services/coordinator/jobs_rounds.h"
#include "services/coordinator/loop_transaction.h"
#include "services/coordinator/provenance.h"
#include "services/coordinator/workers_matching.h"

int64_t workers_count_free_slots(const struct tally_coordinator *coordinator,
                                 const struct hosted_job *job)
{
    return session_n_free_for(&coordinator->workers->sessions, job);
}

bool workers_can_be_served(const struct tally_coordinator *coordinator,
                           const struct hosted_job *job)
{
    return session_n_serving(&coordinator->workers->sessions, job) > 0;
}

/* Counts clients, at unbound workers, of the jobs that the caller counts. */
static int64_t count_assigned(const struct tally_coordinator *coordinator,
                              bool counts(const struct hosted_job *))
{
    int64_t n = 0;
    TALLY_LIST_EACH(node, &coordinator->jobs->marks.active)
    {
        const struct hosted_job *job = TALLY_LIST_MEMBER(struct hosted_job, in_active, node);
        n += counts(job) ? job->supply.n_assigned : 0;
    }
    return n;
}

/* Slots that a queued job could have if it waited for them: free ones, and those of jobs that
 * progress, n_assigned in all. A paused job keeps its own for as long as its owner likes, so no job
 * waits for them. Workers bound to the queued job have clients of no other. */
static int64_t count_coming_slots(const struct tally_coordinator *coordinator,
                                  const struct hosted_job *job, int64_t n_assigned)
{
    return workers_count_free_slots(coordinator, job) + n_assigned -
           session_n_refused_assigned(job, hosted_job_is_progressing);
}

/* Whether a queued job lacks nothing but slots and memory to start, and perhaps an initial point
 * that a present worker offers. */
static bool may_start(const struct tally_coordinator *coordinator, const struct hosted_job *job)
{
    return hosted_job_may_start(job) &&
           (!workers_lacks_start(job) || workers_find_start(coordinator, job) != NULL);
}

/* Describes a job to matching. n_assigned: clients of jobs that progress. */
static struct match_job describe_job(const struct tally_coordinator *coordinator,
                                     const struct hosted_job *job, int64_t n_assigned,
                                     const struct jobs_memory_use *use)
{
    return (struct match_job){.is_prepared = may_start(coordinator, job),
                              .is_unsolved = jobs_memory_is_unsolved(job),
                              .has_memory = jobs_memory_is_free(use, job),
                              .will_have_memory = jobs_memory_will_be_free(use, job),
                              .needed = hosted_job_n_lacking(job),
                              .n_free = workers_count_free_slots(coordinator, job),
                              .n_coming = count_coming_slots(coordinator, job, n_assigned)};
}

/* ---- What other replicas need to know ---- */

int64_t workers_count_moving_slots(const struct tally_coordinator *coordinator)
{
    int64_t n = 0;
    for (const struct session *s = coordinator->workers->sessions.first; s != NULL; s = s->next) {
        bool moves = s->pinned_job[0] == '\0';
        for (uint32_t i = 0; i < s->n_assignments && moves; i++) {
            moves = hosted_job_is_progressing(s->assignments[i].job);
        }
        n += moves ? s->n_slots : 0;
    }
    return n;
}

int64_t workers_find_next_to_start(const struct tally_coordinator *coordinator)
{
    const int64_t n_assigned = count_assigned(coordinator, hosted_job_is_progressing);
    const struct jobs_memory_use use = jobs_memory_use(coordinator);
    for (const struct hosted_job *job = coordinator->jobs->first; job != NULL; job = job->next) {
        if (may_start(coordinator, job) && jobs_memory_will_be_free(&use, job) &&
            count_coming_slots(coordinator, job, n_assigned) >= hosted_job_n_lacking(job)) {
            return job->row.key;
        }
    }
    return 0;
}

/* Slots that a running job lacks after its workers have had time to return. */
static int64_t count_unfilled(const struct tally_coordinator *coordinator,
                              const struct hosted_job *job)
{
    return tally_job_status(job->engine) == TALLY_JOB_RUNNING && hosted_job_is_settled(job)
               ? hosted_job_n_lacking(job) - workers_count_free_slots(coordinator, job)
               : 0;
}

void workers_find_lacking_job(const struct tally_coordinator *coordinator, int64_t n_elsewhere,
                              int64_t n_free_elsewhere, int64_t *ret_key, int64_t *ret_slots)
{
    const int64_t n_assigned = count_assigned(coordinator, hosted_job_is_progressing);
    const struct jobs_memory_use use = jobs_memory_use(coordinator);
    *ret_key = *ret_slots = 0;
    for (const struct hosted_job *job = coordinator->jobs->first; job != NULL; job = job->next) {
        struct match_job match = describe_job(coordinator, job, n_assigned, &use);
        match.is_prepared = hosted_job_may_start(job); /* workers elsewhere may offer its start */
        if (job->needs_reload || (match.is_prepared && !match.has_memory)) {
            continue;
        }
        const int64_t lacking = match.is_prepared ? match_lacking(&match, n_free_elsewhere)
                                                  : count_unfilled(coordinator, job);
        if (lacking > 0 && lacking <= n_elsewhere) {
            *ret_key = job->row.key;
            *ret_slots = lacking;
            return;
        }
    }
}

/* ---- Started jobs ---- */

static void fill_job(struct tally_coordinator *coordinator, struct hosted_job *job)
{
    struct session_table *sessions = &coordinator->workers->sessions;
    uint32_t client = 0;
    struct session *session = NULL;
    int64_t n_free = workers_count_free_slots(coordinator, job);
    for (; job->n_vacant > 0 && n_free > 0; n_free--) {
        if (session == NULL || session_n_free(session) == 0) {
            session = session_next_free(sessions, job, session);
        }
        while (job->slots[client].session != NULL) {
            client++;
        }
        session_assign(sessions, session, job, client);
        workers_mark_ready(coordinator, session);
    }
    if (tally_job_status(job->engine) == TALLY_JOB_RUNNING) {
        workers_fill_cohort(coordinator, job);
    }
}

/* Takes up to n clients away from another stuck job whose workers may serve `job`. Returns how
 * many. */
static int64_t take_clients(struct tally_coordinator *coordinator, const struct hosted_job *job,
                            struct hosted_job *other, int64_t n)
{
    int64_t taken = 0;
    for (uint32_t m = 0; m < other->row.clients && taken < n; m++) {
        const struct session *session = other->slots[m].session;
        if (session != NULL && session_serves(session, job)) {
            session_unassign(&coordinator->workers->sessions, other, m);
            taken++;
        }
    }
    return taken;
}

/* n_assigned: clients of all stuck jobs at unbound workers. */
static bool can_borrow(const struct hosted_job *job, int64_t n_assigned)
{
    return match_can_borrow(hosted_job_n_lacking(job), n_assigned - job->supply.n_assigned,
                            session_n_refused_assigned(job, hosted_job_is_stuck));
}

/* Fills the job from the other stuck jobs, which get their slots back when it has ended. */
static void borrow_slots(struct tally_coordinator *coordinator, struct hosted_job *job)
{
    const int64_t needed = hosted_job_n_lacking(job);
    int64_t n = 0;
    TALLY_LIST_EACH(node, &coordinator->jobs->marks.active)
    {
        struct hosted_job *other = TALLY_LIST_MEMBER(struct hosted_job, in_active, node);
        if (other != job && hosted_job_is_stuck(other)) {
            n += take_clients(coordinator, job, other, needed - n);
        }
    }
    tally_log(TALLY_LOG_INFO, tally_log_event("job gets the slots of other waiting jobs"),
              tally_log_text("job", job->row.id), tally_log_integer("clients", needed));
    fill_job(coordinator, job);
}

/* ---- Queued jobs ---- */

/* Whether no later attempt can make the job's initial point. */
static bool is_final(enum tally_status status)
{
    return status == TALLY_INVALID_ARGUMENT || status == TALLY_DATA_LOSS;
}

/* Starts a queued job whose f(x*) is known and that has the slots it needs. */
static void start_job(struct tally_coordinator *coordinator, struct hosted_job *job)
{
    struct tally_error err = TALLY_ERROR_INIT;
    double *initial = NULL;
    hosted_job_mark_active(job);
    enum tally_status status = jobs_initial_make(coordinator, job, &initial, &err);
    if (is_final(status)) {
        tally_error_wrap(&err, "%s", err.field);
        if (jobs_fail_preparation(coordinator, job, err.message) != TALLY_OK) {
            coordinator->jobs->match_failed = true;
        }
        return;
    }
    if (status == TALLY_OK) {
        status = hosted_job_make_slots(job, &err);
    }
    if (status == TALLY_OK) {
        fill_job(coordinator, job);
        status = transaction_begin_write(coordinator->transaction, &err);
    }
    if (status == TALLY_OK) {
        status = tally_job_start_from(job->engine, initial, job->f_star, job->schedule, &err);
    }
    free(initial);
    if (status == TALLY_OK) {
        /* An outcome in which no round has closed, but the state must be stored from now on. */
        const struct tally_job_outcome none = {0};
        status = hosted_job_put_rounds(coordinator->store, job, &none, tally_realtime_ms(), &err);
        if (status == TALLY_OK) {
            status =
                provenance_put(coordinator->store, job, coordinator->config.environment, 1, &err);
        }
        jobs_check_write(coordinator, job, status, &err);
    }
    if (status != TALLY_OK) {
        tally_log(TALLY_LOG_ERROR, tally_log_event("job not started"),
                  tally_log_text("job", job->row.id), tally_log_problem(&err));
        coordinator->jobs->match_failed = true;
        return;
    }
    free(job->start);
    job->start = NULL;
    rounds_restart_clock(job);
    workers_mark_job_ready(coordinator, job);
    tally_log(TALLY_LOG_INFO, tally_log_event("job started"), tally_log_text("job", job->row.id),
              tally_log_text("algorithm", job->row.algorithm),
              tally_log_integer("clients", job->row.clients), tally_log_real("f_star", job->f_star),
              tally_log_real("smoothness", job->curvature.smoothness),
              tally_log_real("strong_convexity", job->curvature.strong_convexity));
}

/* A start that was not stored has left slots to a job that may not be the next to start. */
static void release_unstarted(struct tally_coordinator *coordinator, struct hosted_job *job)
{
    for (uint32_t m = 0; m < job->row.clients && job->n_vacant < job->row.clients; m++) {
        if (job->slots[m].session != NULL) {
            session_unassign(&coordinator->workers->sessions, job, m);
        }
    }
    hosted_job_drop_slots(job);
}

/* Whether an older job at another replica goes first. */
static bool is_held_back(struct replica_view *view, const struct hosted_job *job)
{
    const bool held = view->held_back_key != 0 && view->held_back_key < job->row.key;
    view->has_held_back = view->has_held_back || held;
    return held;
}

/* Starts queued jobs, oldest first. */
static void start_jobs(struct tally_coordinator *coordinator)
{
    int64_t n_assigned = count_assigned(coordinator, hosted_job_is_progressing);
    struct jobs_memory_use use = jobs_memory_use(coordinator);
    coordinator->jobs->lacks_memory = false;
    for (struct hosted_job *job = coordinator->jobs->first; job != NULL; job = job->next) {
        if (tally_job_status(job->engine) != TALLY_JOB_QUEUED) {
            continue;
        }
        const struct match_job match = describe_job(coordinator, job, n_assigned, &use);
        if (!match_is_candidate(&match)) {
            continue;
        }
        coordinator->jobs->lacks_memory |= !match.has_memory;
        if (is_held_back(&coordinator->view, job)) {
            break;
        }
        const enum match decision = match_queued(&match);
        if (decision == MATCH_WAIT) {
            break;
        }
        if (decision == MATCH_START && workers_lacks_start(job)) {
            if (workers_ask_start(coordinator, job)) {
                break; /* the slots stay free for it */
            }
        } else if (decision == MATCH_START && jobs_initial_is_unread(job)) {
            if (jobs_initial_read(coordinator, job)) {
                break; /* the same */
            }
        } else if (decision == MATCH_START) {
            start_job(coordinator, job);
            n_assigned = count_assigned(coordinator, hosted_job_is_progressing);
            use = jobs_memory_use(coordinator);
        }
    }
    coordinator->jobs->memory = use;
}

/* Whether a queued job that has just been prepared must be matched. If it could neither start nor
 * stop others, no other job can either, since nothing else has changed. */
static bool is_to_match(struct tally_coordinator *coordinator, const struct hosted_job *job)
{
    const int64_t n_assigned = count_assigned(coordinator, hosted_job_is_progressing);
    const struct jobs_memory_use use = jobs_memory_use(coordinator);
    const struct match_job match = describe_job(coordinator, job, n_assigned, &use);
    coordinator->jobs->memory = use;
    return match_is_candidate(&match) && (!match.has_memory || match_queued(&match) != MATCH_PASS);
}

void workers_assign_slots(struct tally_coordinator *coordinator)
{
    struct live_jobs *jobs = coordinator->jobs;
    jobs_prune_active(jobs);
    bool is_due = jobs->match_due;
    struct hosted_job *prepared;
    while ((prepared = TALLY_LIST_FIRST(struct hosted_job, in_prepared, &jobs->prepared)) != NULL) {
        tally_list_remove(&prepared->in_prepared);
        is_due = is_due || is_to_match(coordinator, prepared);
    }
    jobs->match_due = false;
    if (coordinator->draining || !is_due) {
        return;
    }
    TALLY_LIST_EACH(node, &jobs->marks.active)
    {
        struct hosted_job *job = TALLY_LIST_MEMBER(struct hosted_job, in_active, node);
        if (tally_job_status(job->engine) == TALLY_JOB_QUEUED) {
            release_unstarted(coordinator, job);
        }
    }
    TALLY_LIST_EACH(node, &jobs->marks.active)
    {
        struct hosted_job *job = TALLY_LIST_MEMBER(struct hosted_job, in_active, node);
        enum tally_job_status status = tally_job_status(job->engine);
        if (status == TALLY_JOB_RUNNING || status == TALLY_JOB_PAUSED) {
            fill_job(coordinator, job);
        }
    }
    int64_t n_assigned = count_assigned(coordinator, hosted_job_is_stuck);
    TALLY_LIST_EACH(node, &jobs->marks.active)
    {
        struct hosted_job *job = TALLY_LIST_MEMBER(struct hosted_job, in_active, node);
        if (tally_job_status(job->engine) == TALLY_JOB_RUNNING && hosted_job_is_stuck(job) &&
            can_borrow(job, n_assigned)) {
            borrow_slots(coordinator, job);
            n_assigned = count_assigned(coordinator, hosted_job_is_stuck);
        }
    }
    start_jobs(coordinator);
}
