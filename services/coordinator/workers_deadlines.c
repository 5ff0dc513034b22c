/* workers_deadlines: silent sessions, and rounds and jobs past their deadline. */
#include <stdio.h>

#include "services/base/log.h"
#include "services/base/time.h"
#include "services/coordinator/coordinator.h"
#include "services/coordinator/jobs_lifecycle.h"
#include "services/coordinator/jobs_live.h"
#include "services/coordinator/jobs_rounds.h"
#include "services/coordinator/loop.h"
#include "services/coordinator/loop_transaction.h"
#include "services/coordinator/workers.h"
#include "services/job/job_reasons.h"

void workers_check_sessions(struct tally_coordinator *coordinator, int64_t now_ms)
{
    struct session_table *sessions = &coordinator->workers->sessions;
    const int64_t timeout_ms = coordinator->config.session_timeout_ms;
    struct session *session = session_find_due(sessions, now_ms, timeout_ms);
    while (session != NULL) {
        struct session *next = session->next_due;
        struct tally_http_motion motion;
        if (session->poll.request != NULL) {
            workers_mark_ready(coordinator, session);
            session = next;
            continue;
        }
        (void)session_motion(session, now_ms, &motion); /* bytes of a message are contact */
        if (session_due_ms(session, timeout_ms) <= now_ms) {
            tally_log(TALLY_LOG_WARN, tally_log_event("session timed out"),
                      tally_log_text("worker", session->name),
                      tally_log_integer("clients", session->n_assignments));
            coordinator->workers->counts.lost++;
            workers_end_session(coordinator, session);
        }
        session = next;
    }
}

/* Of a time limit, the share that a single stall uses up at most. */
enum { LIMIT_SHARES = 4 };

/* Moves the begin of a wait that may last limit_ms. If every turn stalls, waits still end, after
 * several turns: each has served what had arrived, so what is silent in all of them is silent. */
static int64_t later(int64_t since_ms, int64_t now_ms, int64_t stalled_ms, int64_t limit_ms)
{
    const int64_t share_ms = limit_ms / LIMIT_SHARES;
    const int64_t counted_ms = share_ms < STALL_MS ? share_ms : STALL_MS;
    const int64_t moved_ms = since_ms + stalled_ms - counted_ms;
    return since_ms >= now_ms ? since_ms : moved_ms < now_ms ? moved_ms : now_ms;
}

void workers_forgive_stall(struct tally_coordinator *coordinator, int64_t now_ms,
                           int64_t stalled_ms)
{
    tally_log(TALLY_LOG_WARN, tally_log_event("the loop has stalled"),
              tally_log_integer("ms", stalled_ms));
    for (struct session *s = coordinator->workers->sessions.first; s != NULL; s = s->next) {
        s->last_contact_ms =
            later(s->last_contact_ms, now_ms, stalled_ms, coordinator->config.session_timeout_ms);
    }
    for (struct hosted_job *job = coordinator->jobs->first; job != NULL; job = job->next) {
        job->deadline_from_ms =
            later(job->deadline_from_ms, now_ms, stalled_ms, job->spec.round_deadline_ms);
    }
}

static void note_waiting(const struct tally_coordinator *coordinator, const struct hosted_job *job,
                         int64_t now_ms)
{
    struct tally_waiting waiting;
    if (workers_job_waiting(coordinator, job, now_ms, &waiting)) {
        tally_log(TALLY_LOG_WARN, tally_log_event("round waits past its deadline"),
                  tally_log_text("job", job->row.id),
                  tally_log_integer("round", tally_job_open_round(job->engine)->round),
                  tally_log_text("clients", waiting.clients),
                  tally_log_text("waits", waiting.text));
    }
}

/* Handles the open round, whose deadline has passed, as the policy requires. */
static void end_round(struct tally_coordinator *coordinator, struct hosted_job *job, int64_t now_ms)
{
    struct tally_error err = TALLY_ERROR_INIT;
    struct tally_job_outcome outcome;
    const bool may_close = job->spec.policy != TALLY_POLICY_WAIT;
    if ((may_close && transaction_begin_write(coordinator->transaction, &err) != TALLY_OK) ||
        tally_job_overdue(job->engine, &outcome, &err) != TALLY_OK) {
        return;
    }
    for (uint32_t m = 0; m < job->row.clients; m++) { /* the clients that missed the deadline */
        struct client_slot *slot = &job->slots[m];
        slot->absent = slot->absent || tally_job_is_absent(job->engine, m);
        if (slot->absent && slot->session != NULL) {
            slot->session->may_be_absent = true;
        }
    }
    if (rounds_has_closed(job, &outcome)) {
        rounds_put_closed(coordinator, job, &outcome, &err);
        return;
    }
    job->deadline_noted = true;
    note_waiting(coordinator, job, now_ms);
}

/* Fails the job, whose own deadline has passed. */
static void end_job(struct tally_coordinator *coordinator, struct hosted_job *job, int64_t now_ms)
{
    struct tally_waiting waiting;
    if (!workers_job_waiting(coordinator, job, now_ms, &waiting)) {
        snprintf(waiting.text, sizeof waiting.text, "in round %lld, at time step %lld of %lld",
                 (long long)tally_job_open_round(job->engine)->round,
                 (long long)job->row.progress.time_step, (long long)job->row.horizon);
    }
    char reason[TALLY_REASON_CAPACITY];
    TALLY_REASON_WRITE(reason, JOB_DEADLINE_PASSED, (long long)job->spec.job_deadline_ms,
                       tally_job_status_name(job->row.status), waiting.text);
    struct tally_error err = TALLY_ERROR_INIT;
    if (jobs_fail(coordinator, job, reason, &err) == TALLY_OK) {
        rounds_note_closed(coordinator, job);
    }
}

/* Whether a worker evaluates the last model of the job, or may return to do so. */
static bool is_evaluating(struct tally_coordinator *coordinator, struct hosted_job *job)
{
    uint32_t n;
    const uint32_t *cohort = tally_job_cohort(job->engine, &n);
    if (tally_job_status(job->engine) != TALLY_JOB_RUNNING ||
        !tally_job_round_only_evaluates(tally_job_open_round(job->engine))) {
        return false;
    }
    workers_fill_cohort(coordinator, job); /* workers that were expected back may not have come */
    bool is_served = !hosted_job_is_settled(job);
    for (uint32_t i = 0; !is_served && i < n; i++) {
        is_served = job->slots[cohort[i]].session != NULL && tally_job_asks(job->engine, cohort[i]);
    }
    return is_served;
}

/* Has the last model of the job evaluated, whose `stop.seconds` have passed, or ends the job. */
static void stop_job(struct tally_coordinator *coordinator, struct hosted_job *job, double seconds)
{
    struct tally_error err = TALLY_ERROR_INIT;
    (void)jobs_stop(coordinator, job, seconds, &err); /* if it fails, it is tried again */
}

static void check_job(struct tally_coordinator *coordinator, struct hosted_job *job, int64_t now_ms,
                      int64_t unix_ms)
{
    const enum tally_job_status status = tally_job_status(job->engine);
    const struct tally_job_spec *spec = &job->spec;
    if (job->needs_reload || tally_job_status_is_terminal(status) ||
        !rounds_store_is_well(coordinator)) {
        return;
    }
    const double ran_s = (double)(unix_ms - job->row.started_ms) / 1000;
    const bool has_started = job->row.started_ms != 0 && status != TALLY_JOB_QUEUED;
    const bool is_time_up = has_started && spec->stop.seconds > 0 && ran_s >= spec->stop.seconds;
    if (is_time_up && !is_evaluating(coordinator, job)) {
        stop_job(coordinator, job, ran_s);
        return;
    }
    if (spec->job_deadline_ms > 0 && unix_ms >= job->row.created_ms + spec->job_deadline_ms) {
        end_job(coordinator, job, now_ms);
    } else if (spec->round_deadline_ms > 0 && status == TALLY_JOB_RUNNING && !job->deadline_noted &&
               now_ms >= job->deadline_from_ms + spec->round_deadline_ms) {
        end_round(coordinator, job, now_ms);
    }
}

void workers_check_deadlines(struct tally_coordinator *coordinator, int64_t now_ms)
{
    struct live_jobs *jobs = coordinator->jobs;
    const int64_t unix_ms = tally_realtime_ms();
    if (coordinator->draining) {
        return; /* no more work is handed out */
    }
    if (unix_ms < jobs->next_deadline_ms) { /* only rounds may be overdue */
        TALLY_LIST_EACH(node, &jobs->marks.active)
        {
            struct hosted_job *job = TALLY_LIST_MEMBER(struct hosted_job, in_active, node);
            check_job(coordinator, job, now_ms, unix_ms);
        }
        return;
    }
    jobs->next_deadline_ms = INT64_MAX;
    for (struct hosted_job *job = jobs->first; job != NULL; job = job->next) {
        check_job(coordinator, job, now_ms, unix_ms);
        if (!tally_job_status_is_terminal(job->row.status)) {
            jobs_note_deadline(jobs, job);
        }
    }
}
