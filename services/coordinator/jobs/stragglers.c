/* stragglers: rounds and jobs that do not wait for ever: deadlines, and who is absent.
 *
 * A slot knows whether its client is absent: its worker's session has ended and nobody has taken
 * the client over, or it has missed a round's deadline and its worker has not been heard of since.
 * Once in a turn, after all that could change it, the engine is told what has changed. So a client
 * that is handed from one worker to another within a turn was never absent, and nothing is
 * forgotten when a failed commit takes the engine back. */
#include <stdio.h>
#include <string.h>

#include "services/base/log.h"
#include "services/base/time.h"
#include "services/coordinator/internal.h"
#include "services/job/reasons.h"

/* Workers that were refused, or lost their coordinator, try again after a second at the latest. */
enum { RETURN_MS = 1500 };

/* What follows from closed rounds. */

void restart_clock(struct hosted_job *job)
{
    job->round_opened_ms = job->deadline_from_ms = tally_monotonic_ms();
    job->waits_since_ms = tally_realtime_ms();
    job->deadline_noted = false;
}

void restart_clock_after_outage(struct hosted_job *job)
{
    restart_clock(job);
    job->round_opened_ms += RETURN_MS;
    job->deadline_from_ms += RETURN_MS;
}

void restart_clocks_after_outage(struct tally_coordinator *coordinator)
{
    for (struct hosted_job *job = coordinator->jobs; job != NULL; job = job->next) {
        job->deadline_from_ms = tally_monotonic_ms() + RETURN_MS;
    }
}

static void log_end(const struct hosted_job *job)
{
    const struct tally_store_job *row = &job->row;
    tally_log(
        TALLY_LOG_INFO, tally_log_event("job ended"), tally_log_text("job", row->id),
        tally_log_text("status", tally_job_status_name(row->status)),
        tally_log_text("reason", row->reason), tally_log_integer("rounds", row->progress.round),
        tally_log_real("cumulative_regret", row->progress.cumulative_regret),
        tally_log_unsigned("uplink_payload_bits", row->progress.bits.uplink.payload_bits),
        tally_log_unsigned("downlink_payload_bits", row->progress.bits.downlink.payload_bits));
}

/* Says it when other clients are missing than in the round before, not in every round. */
static void note_missing(struct hosted_job *job, const struct tally_round_record *record)
{
    if (strcmp(job->noted_missing, record->missing) == 0) {
        return;
    }
    memcpy(job->noted_missing, record->missing, sizeof job->noted_missing);
    if (record->missing[0] != '\0') {
        tally_log(TALLY_LOG_WARN, tally_log_event("round closed without all clients"),
                  tally_log_text("job", job->row.id), tally_log_integer("round", record->round),
                  tally_log_integer("received", record->received),
                  tally_log_text("missing", record->missing));
    } else {
        tally_log(TALLY_LOG_INFO, tally_log_event("all clients answer again"),
                  tally_log_text("job", job->row.id), tally_log_integer("round", record->round));
    }
}

void after_round(struct tally_coordinator *coordinator, struct hosted_job *job)
{
    if (job->row.status != TALLY_JOB_PAUSED) { /* it has been waiting since it was paused */
        restart_clock(job);
    }
    mark_job_ready(coordinator, job);
    if (tally_job_status_is_terminal(job->row.status)) {
        coordinator->assignment_changed = true;
        log_end(job);
    }
}

bool has_closed(const struct hosted_job *job, const struct tally_job_outcome *outcome)
{
    return outcome->n_records > 0 || tally_job_status_is_terminal(tally_job_status(job->engine));
}

enum tally_status put_closed(struct tally_coordinator *coordinator, struct hosted_job *job,
                             const struct tally_job_outcome *outcome, struct tally_error *err)
{
    enum tally_status status =
        hosted_job_put_rounds(coordinator->store, job, outcome, tally_realtime_ms(), err);
    if (write_failed(coordinator, status, err) != TALLY_OK) {
        return status;
    }
    pending_drop(&coordinator->pending, job);
    for (int i = 0; i < outcome->n_records; i++) {
        const struct tally_round_record *record = &outcome->records[i];
        coordinator->uncommitted.rounds++;
        if (!record->cut) {
            coordinator->uncommitted.dropped_answers +=
                (uint64_t)(job->row.clients - record->received);
        }
        note_missing(job, record);
    }
    after_round(coordinator, job);
    return TALLY_OK;
}

/* If the store has failed, the clock tries nothing until it is seen to have recovered: every try
 * would be undone, and said in the log. */
static bool is_store_well(const struct tally_coordinator *coordinator)
{
    return coordinator->store_error.status == TALLY_OK;
}

/* Who is absent. */

void hear_of(const struct session *session)
{
    for (uint32_t i = 0; i < session->n_assignments; i++) {
        const struct assignment *played = &session->assignments[i];
        struct client_slot *slot = &played->job->slots[played->client];
        if (slot->absent) {
            slot->absent = false;
            mark_absence(played->job);
        }
    }
}

/* Tells the engine of one job; rounds may close by that. */
static void settle_job(struct tally_coordinator *coordinator, struct hosted_job *job)
{
    struct tally_error err = TALLY_ERROR_INIT;
    /* A job whose start was not stored is queued again when it has been read back, and may still
     * have slots. Its engine has no clients; they get workers, who are there, when it starts again.
     */
    const bool has_clients =
        job->slots != NULL && tally_job_status(job->engine) != TALLY_JOB_QUEUED;
    for (uint32_t m = 0; has_clients && m < job->row.clients; m++) {
        const bool absent = job->slots[m].absent;
        if (tally_job_is_absent(job->engine, m) == absent) {
            continue;
        }
        struct tally_job_outcome outcome;
        tally_job_set_absent(job->engine, m, absent, &outcome);
        if (has_closed(job, &outcome) &&
            (put_closed(coordinator, job, &outcome, &err) != TALLY_OK ||
             tally_job_status_is_terminal(job->row.status))) {
            return; /* not stored: the engine is read back, and told again */
        }
    }
    job->absence_changed = false;
}

void settle_absence(struct tally_coordinator *coordinator)
{
    if (coordinator->draining || !coordinator->marks.absence_changed) {
        return; /* workers that go with the service are no reason to do without them */
    }
    coordinator->marks.absence_changed = false;
    for (struct hosted_job *job = coordinator->jobs; job != NULL; job = job->next) {
        if (!job->absence_changed) {
            continue;
        }
        const bool may_close = job->spec.policy == TALLY_POLICY_DROP;
        if (!job->needs_reload && !tally_job_status_is_terminal(tally_job_status(job->engine)) &&
            (!may_close ||
             (is_store_well(coordinator) && begin_write(coordinator, NULL) == TALLY_OK))) {
            settle_job(coordinator, job);
        }
        if (job->absence_changed) { /* it could not be told: later */
            mark_absence(job);
        }
    }
}

/* Deadlines. */

static void note_waiting(const struct tally_coordinator *coordinator, const struct hosted_job *job,
                         int64_t now_ms)
{
    struct tally_waiting waiting;
    if (job_waiting(coordinator, job, now_ms, &waiting)) {
        tally_log(TALLY_LOG_WARN, tally_log_event("round waits past its deadline"),
                  tally_log_text("job", job->row.id),
                  tally_log_integer("round", tally_job_open_round(job->engine)->round),
                  tally_log_text("clients", waiting.clients),
                  tally_log_text("waits", waiting.text));
    }
}

/* The open round's time is over. */
static void end_round(struct tally_coordinator *coordinator, struct hosted_job *job, int64_t now_ms)
{
    struct tally_error err = TALLY_ERROR_INIT;
    struct tally_job_outcome outcome;
    const bool may_close = job->spec.policy != TALLY_POLICY_WAIT;
    if ((may_close && begin_write(coordinator, &err) != TALLY_OK) ||
        tally_job_overdue(job->engine, &outcome, &err) != TALLY_OK) {
        return;
    }
    for (uint32_t m = 0; m < job->row.clients; m++) { /* those that have missed it */
        job->slots[m].absent = job->slots[m].absent || tally_job_is_absent(job->engine, m);
    }
    if (has_closed(job, &outcome)) {
        put_closed(coordinator, job, &outcome, &err);
        return;
    }
    job->deadline_noted = true;
    note_waiting(coordinator, job, now_ms);
}

/* The job's own time is over. */
static void end_job(struct tally_coordinator *coordinator, struct hosted_job *job, int64_t now_ms)
{
    struct tally_waiting waiting;
    if (!job_waiting(coordinator, job, now_ms, &waiting)) {
        snprintf(waiting.text, sizeof waiting.text, "in round %lld, at time step %lld of %lld",
                 (long long)tally_job_open_round(job->engine)->round,
                 (long long)job->row.progress.time_step, (long long)job->row.horizon);
    }
    char reason[TALLY_REASON_CAPACITY];
    TALLY_REASON_WRITE(reason, JOB_DEADLINE_PASSED, (long long)job->spec.job_deadline_ms,
                       tally_job_status_name(job->row.status), waiting.text);
    struct tally_error err = TALLY_ERROR_INIT;
    if (fail_job(coordinator, job, reason, &err) == TALLY_OK) {
        after_round(coordinator, job);
    }
}

void check_deadlines(struct tally_coordinator *coordinator, int64_t now_ms)
{
    const int64_t unix_ms = tally_realtime_ms();
    if (coordinator->draining) {
        return; /* nobody is given work any more */
    }
    for (struct hosted_job *job = coordinator->jobs; job != NULL; job = job->next) {
        const enum tally_job_status status = tally_job_status(job->engine);
        const struct tally_job_spec *spec = &job->spec;
        if (job->needs_reload || tally_job_status_is_terminal(status) ||
            !is_store_well(coordinator)) {
            continue;
        }
        if (spec->job_deadline_ms > 0 && unix_ms >= job->row.created_ms + spec->job_deadline_ms) {
            end_job(coordinator, job, now_ms);
        } else if (spec->round_deadline_ms > 0 && status == TALLY_JOB_RUNNING &&
                   !job->deadline_noted &&
                   now_ms >= job->deadline_from_ms + spec->round_deadline_ms) {
            end_round(coordinator, job, now_ms);
        }
    }
}
