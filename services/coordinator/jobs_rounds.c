#include "services/coordinator/jobs_rounds.h"

#include <string.h>

#include "services/base/log.h"
#include "services/base/time.h"
#include "services/coordinator/coordinator.h"
#include "services/coordinator/jobs_live.h"
#include "services/coordinator/loop_transaction.h"
#include "services/coordinator/provenance.h"

/* Workers that were refused, or lost their coordinator, try again within a second. */
enum { RETURN_MS = 1500 };

/* What follows from closed rounds. */

void rounds_restart_clock(struct hosted_job *job)
{
    job->round_opened_ms = job->deadline_from_ms = tally_monotonic_ms();
    job->waits_since_ms = tally_realtime_ms();
    job->deadline_noted = false;
}

void rounds_restart_clock_after_outage(struct hosted_job *job)
{
    rounds_restart_clock(job);
    job->round_opened_ms += RETURN_MS;
    job->deadline_from_ms += RETURN_MS;
}

void rounds_restart_clocks_after_outage(struct tally_coordinator *coordinator)
{
    for (struct hosted_job *job = coordinator->jobs->first; job != NULL; job = job->next) {
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
        tally_log_real("loss", tally_progress_loss(&row->progress)),
        tally_log_unsigned("uplink_payload_bits", row->progress.bits.uplink.payload_bits),
        tally_log_unsigned("downlink_payload_bits", row->progress.bits.downlink.payload_bits));
}

/* Logs the missing clients only if they differ from those of the previous round. */
static void note_missing(struct hosted_job *job, const struct tally_round_record *record)
{
    const bool is_full = record->received == tally_job_spec_answers(&job->spec);
    if (job->spec.over_selection > 0 && (is_full || record->cut)) {
        return; /* surplus clients are late in every round */
    }
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

/* Marks clients of the new round that have no worker as absent, unless the job has just been read
 * from the store: their workers may return. */
static void note_vacant(struct hosted_job *job)
{
    uint32_t n;
    const uint32_t *cohort = tally_job_cohort(job->engine, &n);
    const bool may_be = job->slots != NULL && job->n_vacant > 0 && hosted_job_is_settled(job);
    for (uint32_t i = 0; may_be && i < n; i++) {
        struct client_slot *slot = &job->slots[cohort[i]];
        if (slot->session == NULL && !slot->absent) {
            slot->absent = true;
            hosted_job_mark_absence(job);
        }
    }
}

void rounds_note_closed(struct tally_coordinator *coordinator, struct hosted_job *job)
{
    if (job->row.status != TALLY_JOB_PAUSED) { /* it has been waiting since it was paused */
        rounds_restart_clock(job);
    }
    coordinator->jobs->ops->ready(coordinator, job);
    note_vacant(job);
    if (tally_job_status_is_terminal(job->row.status)) {
        coordinator->jobs->match_due = true;
        log_end(job);
    }
}

bool rounds_has_closed(const struct hosted_job *job, const struct tally_job_outcome *outcome)
{
    return outcome->n_records > 0 || outcome->surveyed ||
           tally_job_status_is_terminal(tally_job_status(job->engine));
}

enum tally_status rounds_put_closed(struct tally_coordinator *coordinator, struct hosted_job *job,
                                    const struct tally_job_outcome *outcome,
                                    struct tally_error *err)
{
    /* First, because they take as much memory as the state. If the round cannot be stored, nothing
     * of the transaction is. The next round may have the number of this one (a survey, a last
     * evaluation). */
    hosted_job_forget_task(job);
    if (outcome->surveyed) { /* no answer of the round whose number it had has arrived yet */
        pending_forget(&coordinator->transaction->pending, job);
    } else {
        pending_drop(&coordinator->transaction->pending, job);
    }
    enum tally_status status =
        hosted_job_put_rounds(coordinator->store, job, outcome, tally_realtime_ms(), err);
    if (status == TALLY_OK) {
        status = provenance_put(coordinator->store, job, coordinator->config.environment,
                                job->row.progress.round, err);
    }
    if (jobs_check_write(coordinator, job, status, err) != TALLY_OK) {
        return status;
    }
    for (int i = 0; i < outcome->n_records; i++) {
        const struct tally_round_record *record = &outcome->records[i];
        coordinator->transaction->uncommitted.closed++;
        if (!record->cut) {
            coordinator->transaction->uncommitted.dropped_answers +=
                (uint64_t)(tally_job_spec_answers(&job->spec) - record->received);
        }
        note_missing(job, record);
    }
    rounds_note_closed(coordinator, job);
    return TALLY_OK;
}

bool rounds_store_is_well(const struct tally_coordinator *coordinator)
{
    return coordinator->transaction->error.status == TALLY_OK;
}

/* Absent clients. */

/* Tells the engine of one job which clients are absent; that may close rounds. */
static void settle_job(struct tally_coordinator *coordinator, struct hosted_job *job)
{
    struct tally_error err = TALLY_ERROR_INIT;
    /* A job whose start was not stored is queued again after it was reloaded, and may still have
     * slots. Its engine has no clients yet; they get workers from those present when it starts
     * again. */
    const bool has_clients =
        job->slots != NULL && tally_job_status(job->engine) != TALLY_JOB_QUEUED;
    for (uint32_t m = 0; has_clients && m < job->row.clients; m++) {
        const bool absent = job->slots[m].absent;
        if (tally_job_is_absent(job->engine, m) == absent) {
            continue;
        }
        struct tally_job_outcome outcome;
        tally_job_set_absent(job->engine, m, absent, &outcome);
        if (rounds_has_closed(job, &outcome) &&
            (rounds_put_closed(coordinator, job, &outcome, &err) != TALLY_OK ||
             tally_job_status_is_terminal(job->row.status))) {
            return; /* not stored, so the engine is reloaded and gets it again */
        }
    }
    job->absence_changed = false;
}

void rounds_settle_absence(struct tally_coordinator *coordinator)
{
    if (coordinator->draining || !coordinator->jobs->marks.absence_changed) {
        return; /* workers that leave because the service shuts down are not absent */
    }
    coordinator->jobs->marks.absence_changed = false;
    for (struct hosted_job *job = coordinator->jobs->first; job != NULL; job = job->next) {
        if (!job->absence_changed) {
            continue;
        }
        const bool may_close = job->spec.policy == TALLY_POLICY_DROP;
        if (!job->needs_reload && !tally_job_status_is_terminal(tally_job_status(job->engine)) &&
            (!may_close || (rounds_store_is_well(coordinator) &&
                            transaction_begin_write(coordinator->transaction, NULL) == TALLY_OK))) {
            settle_job(coordinator, job);
        }
        if (job->absence_changed) { /* the engine does not know it: tries again later */
            hosted_job_mark_absence(job);
        }
    }
}
