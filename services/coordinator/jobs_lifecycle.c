#include "services/coordinator/jobs_lifecycle.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "codec/utf8.h"
#include "services/base/log.h"
#include "services/base/time.h"
#include "services/coordinator/coordinator.h"
#include "services/coordinator/hosted_job.h"
#include "services/coordinator/jobs_prepare.h"
#include "services/coordinator/jobs_rounds.h"
#include "services/coordinator/loop.h"
#include "services/coordinator/loop_transaction.h"
#include "services/job/document.h"
#include "services/job/document_faults.h"
#include "services/job/job_advice.h"
#include "services/job/job_footprint.h"
#include "services/job/job_reasons.h"

/* ---- New jobs ---- */

/* Names are shown in tables and logs. Only new jobs are checked, so that stored documents stay
 * readable. */
static enum tally_status check_name(const char *name, struct tally_error *err)
{
    const size_t control = tally_utf8_find_control(name);
    return name[control] == '\0' ? TALLY_OK
                                 : tally_fail(err, TALLY_INVALID_ARGUMENT, "name",
                                              "name has a control character at byte %zu", control);
}

/* Checks limits of this coordinator that do not concern the validity of the document. */
static enum tally_status check_clients(const struct tally_coordinator *coordinator,
                                       const struct tally_job_spec *spec, struct tally_error *err)
{
    const int64_t limit = coordinator->config.max_clients;
    return spec->clients <= limit
               ? TALLY_OK
               : tally_fail(err, TALLY_OUT_OF_RANGE, "clients",
                            "%lld clients exceed this coordinator's limit, --max-clients %lld",
                            (long long)spec->clients, (long long)limit);
}

static enum tally_status check_dim(const struct tally_coordinator *coordinator,
                                   const struct tally_job_spec *spec, struct tally_error *err)
{
    const int64_t limit = coordinator->config.max_dim;
    const int64_t dim = (int64_t)tally_objective_spec_dim(&spec->objective);
    return dim <= limit
               ? TALLY_OK
               : tally_fail(err, TALLY_OUT_OF_RANGE, tally_objective_dim_field(&spec->objective),
                            "dim %lld is above this coordinator's --max-dim %lld", (long long)dim,
                            (long long)limit);
}

/* The store could not hold a larger state; no other job could then continue. */
static enum tally_status check_state(const struct tally_coordinator *coordinator,
                                     const struct tally_job_spec *spec, struct tally_error *err)
{
    (void)coordinator;
    const int64_t n = tally_footprint_state(spec);
    return n <= STATE_MOST_BYTES
               ? TALLY_OK
               : tally_fail(err, TALLY_OUT_OF_RANGE, "clients",
                            "the job's state would have about %lld bytes; the limit is %d: "
                            "algorithm %s keeps vectors for each of %lld clients",
                            (long long)n, (int)STATE_MOST_BYTES,
                            tally_job_spec_algorithm(spec)->name, (long long)spec->clients);
}

/* A longer update would be refused however often it is posted. Whether one passes whose length
 * depends on the data, or on its metrics, only shows when it is posted. */
static enum tally_status check_update(const struct tally_coordinator *coordinator,
                                      const struct tally_job_spec *spec, struct tally_error *err)
{
    const int64_t payload = tally_footprint_update(spec), n = payload + TALLY_UPDATE_BYTES;
    const int64_t limit = (int64_t)coordinator->config.max_body_bytes;
    return payload == 0 || n <= limit
               ? TALLY_OK
               : tally_fail(err, TALLY_OUT_OF_RANGE, tally_footprint_update_field(spec),
                            "an update has about %lld bytes, more than this coordinator's "
                            "--max-body-bytes %lld",
                            (long long)n, (long long)limit);
}

static enum tally_status check_text(const struct tally_coordinator *coordinator,
                                    const struct tally_job_spec *spec, struct tally_error *err)
{
    (void)coordinator;
    return check_name(spec->name, err);
}

static enum tally_status check_webhook(const struct tally_coordinator *coordinator,
                                       const struct tally_job_spec *spec, struct tally_error *err)
{
    return webhook_url_check(&coordinator->config.webhooks, spec->webhook, err);
}

static const struct limit {
    enum tally_status (*check)(const struct tally_coordinator *coordinator,
                               const struct tally_job_spec *spec, struct tally_error *err);
    bool is_of_runs; /* does not concern an imported job, which runs no more */
} LIMITS[] = {
    {check_text, false},
    {check_webhook, true},
    {check_clients, false},
    {check_dim, false},
    {check_state, false},
    {check_update, true},
    {jobs_memory_check_started, false},
    {jobs_memory_check_solving, true},
};
enum { N_LIMITS = sizeof LIMITS / sizeof LIMITS[0] };

enum tally_status jobs_check_new(const struct tally_coordinator *coordinator,
                                 const struct tally_job_spec *spec, struct tally_error *err)
{
    const int64_t n = coordinator->jobs->n, limit = coordinator->config.max_jobs;
    enum tally_status status = TALLY_OK;
    for (size_t i = 0; status == TALLY_OK && i < N_LIMITS; i++) {
        status = LIMITS[i].check(coordinator, spec, err);
    }
    if (status == TALLY_OK && n >= limit) {
        status = tally_fail(err, TALLY_RESOURCE_EXHAUSTED, NULL,
                            "%lld jobs are queued or running, the limit is %lld", (long long)n,
                            (long long)limit);
    }
    return status;
}

enum tally_status jobs_check_imported(const struct tally_coordinator *coordinator,
                                      const struct tally_job_spec *spec, struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    for (size_t i = 0; status == TALLY_OK && i < N_LIMITS; i++) {
        status = LIMITS[i].is_of_runs ? TALLY_OK : LIMITS[i].check(coordinator, spec, err);
    }
    return status;
}

struct tally_json *jobs_new_faults(const struct tally_coordinator *coordinator,
                                   const struct tally_job_spec *spec)
{
    struct tally_json *faults = tally_json_array();
    bool ok = faults != NULL;
    for (size_t i = 0; ok && i < N_LIMITS; i++) {
        struct tally_error err = TALLY_ERROR_INIT;
        ok = LIMITS[i].check(coordinator, spec, &err) == TALLY_OK ||
             tally_document_add_fault(faults, "limit", &err);
    }
    return tally_json_if_complete(faults, ok);
}

/* Hexadecimal digits of a job id: short enough to type, random enough never to repeat (the store
 * would refuse the second). */
enum { N_ID_DIGITS = 12 };
static enum tally_status draw_job_id(char ret_id[TALLY_JOB_ID_CAPACITY], struct tally_error *err)
{
    uint64_t word;
    if (getrandom(&word, sizeof word, 0) != (ssize_t)sizeof word) {
        return tally_fail(err, TALLY_INTERNAL, NULL, "no random bytes for a job id");
    }
    snprintf(ret_id, TALLY_JOB_ID_CAPACITY, "%0*" PRIx64, N_ID_DIGITS,
             word >> (64 - 4 * N_ID_DIGITS));
    return TALLY_OK;
}

bool jobs_may_be_id(const char *id)
{
    return strlen(id) == N_ID_DIGITS && strspn(id, "0123456789abcdef") == N_ID_DIGITS;
}

enum tally_status jobs_create(struct tally_coordinator *coordinator,
                              const struct tally_job_spec *spec, const char *key, uint64_t digest,
                              struct hosted_job **ret_job, struct tally_error *err)
{
    struct tally_store *store = coordinator->store;
    struct hosted_job *job = NULL;
    enum tally_status status = hosted_job_new(spec, &job, err);
    if (status == TALLY_OK) {
        status = draw_job_id(job->row.id, err);
    }
    if (status == TALLY_OK) {
        status = transaction_begin_write(coordinator->transaction, err);
    }
    if (status == TALLY_OK) {
        status = store->ops->job_insert(store, &job->row, (const char *)job->document.data,
                                        job->document.size, key, digest, &job->row.key, err);
        if (status != TALLY_ALREADY_EXISTS) { /* this error changes nothing */
            transaction_check(coordinator->transaction, status, err);
        }
    }
    if (status != TALLY_OK) {
        hosted_job_free(job);
        return status;
    }
    jobs_add(coordinator, job);
    hosted_job_mark_touched(job); /* it has been inserted */
    *ret_job = job;
    jobs_prepare(coordinator, job);
    return TALLY_OK;
}

/* ---- Changes ---- */

enum tally_status jobs_change(struct tally_coordinator *coordinator, struct hosted_job *job,
                              change_fn *change, struct tally_error *err)
{
    if (job->needs_reload) {
        return transaction_fail(coordinator->transaction, err);
    }
    enum tally_status status = transaction_begin_write(coordinator->transaction, err);
    if (status == TALLY_OK) {
        status = change(job->engine, err);
    }
    if (status != TALLY_OK) {
        return status;
    }
    status = hosted_job_put_row(coordinator->store, job, tally_realtime_ms(), err);
    if (jobs_check_write(coordinator, job, status, err) != TALLY_OK) {
        return status;
    }
    coordinator->jobs->match_due = true;
    rounds_restart_clock(job);
    coordinator->jobs->ops->ready(coordinator, job);
    tally_log(TALLY_LOG_INFO, tally_log_event("job changed"), tally_log_text("job", job->row.id),
              tally_log_text("status", tally_job_status_name(job->row.status)));
    return TALLY_OK;
}

/* ---- Deletion ---- */

static void log_deleted(const struct tally_store_job *row)
{
    tally_log(TALLY_LOG_INFO, tally_log_event("job deleted"), tally_log_text("job", row->id));
}

enum tally_status jobs_delete_live(struct tally_coordinator *coordinator, struct hosted_job *job,
                                   struct tally_error *err)
{
    struct transaction *transaction = coordinator->transaction;
    enum tally_status status = job->needs_reload ? transaction_fail(transaction, err)
                                                 : transaction_begin_write(transaction, err);
    if (status == TALLY_OK && !tally_job_status_is_terminal(job->row.status)) {
        status = jobs_change(coordinator, job, tally_job_cancel, err);
    }
    if (status != TALLY_OK) {
        return status;
    }
    pending_forget(&transaction->pending, job); /* or the commit would store them */
    hosted_job_mark_touched(job);
    status = coordinator->store->ops->job_delete(coordinator->store, job->row.key, err);
    if (transaction_check(transaction, status, err) == TALLY_OK) {
        job->is_deleted = true;
        coordinator->jobs->marks.ended = true;
        log_deleted(&job->row);
    }
    return status;
}

enum tally_status jobs_delete_ended(struct tally_coordinator *coordinator,
                                    const struct tally_store_job *row, struct tally_error *err)
{
    struct tally_store *store = coordinator->store;
    enum tally_status status = transaction_begin_write(coordinator->transaction, err);
    if (status != TALLY_OK) {
        return status;
    }
    status = store->ops->job_delete(store, row->key, err);
    if (status == TALLY_OK) {
        status = store->ops->flush(store, err); /* another replica may have been faster */
    }
    if (status == TALLY_NOT_FOUND) {
        return status;
    }
    if (transaction_check(coordinator->transaction, status, err) == TALLY_OK) {
        ended_forget(&coordinator->jobs->ended, row->key);
        coordinator->jobs->ops->deleted(coordinator, row);
        log_deleted(row);
    }
    return status;
}

/* The work of one second. Reading a page takes about a millisecond, but a job may have a million
 * rounds. */
enum { RETENTION_PAGE = 50, RETENTION_DELETIONS = 5 };

/* Between two looks, a second apart; adjustments are slower (adjtimex: 0.05 %). */
enum { JUMP_MS = 1000 };

/* The time by which ended jobs are old: the wall clock's, but a jump forward counts only after
 * keep_ended_ms. By then, the jobs that had ended before it are old in any case. If it counted at
 * once, a clock that is wrong for a moment would delete every job. */
static int64_t retention_now(struct retention *retention, int64_t keep_ended_ms)
{
    const int64_t passed_ms = tally_monotonic_ms();
    const int64_t ahead_ms = tally_realtime_ms() - passed_ms; /* constant unless the clock is set */
    const bool is_first = retention->now_ms == 0;
    const bool is_jump = !is_first && ahead_ms - retention->ahead_ms > JUMP_MS;
    if (is_jump && retention->jumped_ms == 0) {
        retention->jumped_ms = passed_ms;
        tally_log(TALLY_LOG_WARN, tally_log_event("the clock has jumped forward"),
                  tally_log_integer("ms", ahead_ms - retention->ahead_ms));
    }
    if (!is_jump || passed_ms - retention->jumped_ms >= keep_ended_ms) {
        retention->ahead_ms = ahead_ms;
        retention->jumped_ms = 0;
    }
    return passed_ms + retention->ahead_ms;
}

static bool has_expired(const struct tally_coordinator *coordinator,
                        const struct tally_store_job *row)
{
    const struct tally_coordinator_config *config = &coordinator->config;
    const bool is_old = config->keep_ended_ms > 0 && row->finished_ms + config->keep_ended_ms <=
                                                         coordinator->jobs->retention.now_ms;
    const bool is_one_too_many = config->keep_ended_jobs > 0 &&
                                 coordinator->jobs->retention.n_kept >= config->keep_ended_jobs;
    return is_old || is_one_too_many;
}

/* Deletes the expired jobs of a page. Returns false if it stopped before the end of the page. */
static bool delete_of_page(struct tally_coordinator *coordinator, const struct job_rows *page)
{
    struct retention *retention = &coordinator->jobs->retention;
    int n_left = RETENTION_DELETIONS;
    for (size_t i = 0; i < page->n; i++) {
        const struct tally_store_job *row = &page->rows[i];
        const bool is_live =
            !tally_job_status_is_terminal(row->status) || jobs_find(coordinator, row->id) != NULL;
        const bool expires = !is_live && has_expired(coordinator, row);
        retention->n_kept += !is_live && !expires;
        if (expires) {
            const enum tally_status status =
                n_left-- > 0 ? jobs_delete_ended(coordinator, row, NULL) : TALLY_RESOURCE_EXHAUSTED;
            if (status != TALLY_OK && status != TALLY_NOT_FOUND) {
                return false;
            }
        }
        retention->before_key = row->key;
    }
    return true;
}

void jobs_delete_expired(struct tally_coordinator *coordinator)
{
    struct tally_store *store = coordinator->store;
    struct retention *retention = &coordinator->jobs->retention;
    const bool is_on =
        coordinator->config.keep_ended_ms > 0 || coordinator->config.keep_ended_jobs > 0;
    if (!is_on || coordinator->draining) {
        return;
    }
    retention->now_ms = retention_now(retention, coordinator->config.keep_ended_ms);
    if (retention->before_key == 0) {
        retention->before_key = INT64_MAX;
        retention->n_kept = 0;
    }
    struct job_rows page = {0};
    const enum tally_status status = store->ops->job_list(
        store, -1, retention->before_key, RETENTION_PAGE, jobs_collect_row, &page, NULL);
    if (status == TALLY_OK && delete_of_page(coordinator, &page) && page.n < RETENTION_PAGE) {
        retention->before_key = 0;
    }
    free(page.rows);
}

enum tally_status jobs_fail(struct tally_coordinator *coordinator, struct hosted_job *job,
                            const char *reason, struct tally_error *err)
{
    enum tally_status status = transaction_begin_write(coordinator->transaction, err);
    if (status == TALLY_OK) {
        status = tally_job_fail(job->engine, reason, err);
    }
    if (status == TALLY_OK) {
        status = hosted_job_put_row(coordinator->store, job, tally_realtime_ms(), err);
        jobs_check_write(coordinator, job, status, err);
    }
    if (status == TALLY_OK) {
        tally_log(TALLY_LOG_WARN, tally_log_event("job failed"), tally_log_text("job", job->row.id),
                  tally_log_text("reason", reason));
    }
    return status;
}

enum tally_status jobs_stop(struct tally_coordinator *coordinator, struct hosted_job *job,
                            double seconds, struct tally_error *err)
{
    struct tally_job_outcome outcome;
    enum tally_status status = transaction_begin_write(coordinator->transaction, err);
    if (status == TALLY_OK) {
        status = tally_job_stop(job->engine, seconds, &outcome, err);
    }
    if (status == TALLY_OK) {
        status = rounds_put_closed(coordinator, job, &outcome, err);
    }
    return status;
}

/* ---- Wire counters ---- */

static bool wire_has_moved(const struct hosted_job *job)
{
    return !job->is_deleted && (job->wire_in_bytes != job->row.wire_in_bytes ||
                                job->wire_out_bytes != job->row.wire_out_bytes ||
                                job->recovery_bits != job->row.recovery_bits);
}

static bool traffic_is_due(const struct hosted_job *job, bool is_last)
{
    const int64_t since_ms = tally_monotonic_ms() - job->traffic_stored_ms;
    return !job->is_deleted && job->traffic != NULL && job->traffic_has_moved &&
           (is_last || since_ms >= TRAFFIC_STORED_EVERY_MS);
}

static void put_wire(struct tally_coordinator *coordinator, struct hosted_job *job, bool is_last)
{
    const bool has_traffic = traffic_is_due(job, is_last);
    if ((has_traffic || wire_has_moved(job)) &&
        transaction_begin_write(coordinator->transaction, NULL) == TALLY_OK) {
        struct tally_error err = TALLY_ERROR_INIT;
        enum tally_status status =
            hosted_job_put_row(coordinator->store, job, tally_realtime_ms(), &err);
        if (status == TALLY_OK && has_traffic) {
            status = hosted_job_put_traffic(coordinator->store, job, &err);
        }
        jobs_check_write(coordinator, job, status, &err);
    }
}

void jobs_flush_wire(struct tally_coordinator *coordinator, bool is_last)
{
    TALLY_LIST_EACH(node, &coordinator->jobs->marks.active)
    {
        struct hosted_job *job = TALLY_LIST_MEMBER(struct hosted_job, in_active, node);
        if (!job->needs_reload) {
            put_wire(coordinator, job, is_last);
        }
    }
}

/* ---- Jobs that have ended, or lost a transaction ---- */

void jobs_retire(struct tally_coordinator *coordinator)
{
    struct hosted_job **at = &coordinator->jobs->first;
    if (!coordinator->jobs->marks.ended) {
        return;
    }
    coordinator->jobs->marks.ended = false;
    while (*at != NULL) {
        struct hosted_job *job = *at;
        if (job->needs_reload || !tally_job_status_is_terminal(job->row.status)) {
            at = &job->next;
            continue;
        }
        coordinator->jobs->ops->ending(coordinator, job);
        put_wire(coordinator, job, true);
        coordinator->jobs->ops->ready(coordinator, job);
        coordinator->jobs->ops->ended(coordinator, &job->row);
        if (job->is_deleted) {
            coordinator->jobs->ops->deleted(coordinator, &job->row);
        } else {
            ended_remember(&coordinator->jobs->ended, job);
        }
        jobs_remove(coordinator, at);
    }
}

void jobs_mark_lost(struct tally_coordinator *coordinator, uint64_t number)
{
    for (struct hosted_job *job = coordinator->jobs->first; job != NULL; job = job->next) {
        if (job->touched_in == number && !job->needs_reload) {
            job->needs_reload = true;
            hosted_job_mark_active(job);
            job->waits_since_ms = tally_realtime_ms();
        }
    }
    coordinator->jobs->match_failed = true; /* jobs started by it are queued again */
}

/* Ends a job that cannot be reloaded. Returns whether its end is stored. */
static bool end_damaged_job(struct tally_coordinator *coordinator, const struct hosted_job *job,
                            const struct tally_error *why)
{
    struct tally_store *store = coordinator->store;
    struct tally_store_job row;
    if (store->ops->job_get(store, job->row.id, &row, NULL) != TALLY_OK ||
        (!tally_job_status_is_terminal(row.status) &&
         jobs_end_damaged_row(store, &row, why, NULL) != TALLY_OK)) {
        return false;
    }
    coordinator->jobs->ops->ended(coordinator, &row);
    return true;
}

static bool some_need_reload(const struct tally_coordinator *coordinator)
{
    TALLY_LIST_EACH(node, &coordinator->jobs->marks.active)
    {
        if (TALLY_LIST_MEMBER(struct hosted_job, in_active, node)->needs_reload) {
            return true;
        }
    }
    return false;
}

/* Lets polls whose response found no memory be tried again. */
static void ready_active(struct tally_coordinator *coordinator)
{
    TALLY_LIST_EACH(node, &coordinator->jobs->marks.active)
    {
        coordinator->jobs->ops->ready(coordinator,
                                      TALLY_LIST_MEMBER(struct hosted_job, in_active, node));
    }
}

void jobs_reload(struct tally_coordinator *coordinator)
{
    struct hosted_job **at = &coordinator->jobs->first;
    if (!some_need_reload(coordinator)) {
        ready_active(coordinator);
        return;
    }
    while (*at != NULL) {
        struct hosted_job *job = *at;
        struct tally_error err = TALLY_ERROR_INIT;
        const bool reloads = job->needs_reload;
        enum tally_status status = TALLY_OK;
        if (reloads) {
            status = hosted_job_reload(coordinator->store, job, &err);
            if (status == TALLY_DATA_LOSS && !coordinator->jobs->ops->leads(coordinator, job)) {
                status = TALLY_FAILED_PRECONDITION; /* its leader writes while we read */
            } else {
                transaction_note_damage(coordinator->transaction, &err);
            }
        }
        if (status == TALLY_NOT_FOUND || /* its insertion was rolled back */
            (status == TALLY_DATA_LOSS && end_damaged_job(coordinator, job, &err))) {
            jobs_remove(coordinator, at);
            continue;
        }
        if (reloads && status == TALLY_OK) {
            hosted_job_mark_absence(job); /* the new engine does not know it yet */
            rounds_restart_clock_after_outage(job);
            coordinator->jobs->match_failed = true; /* it may be queued again and have slots */
            coordinator->jobs->unsolved = coordinator->jobs->first; /* ... and wait for f(x*) */
        }
        if (!job->needs_reload) {
            coordinator->jobs->ops->ready(coordinator, job);
        }
        at = &job->next;
    }
}

/* ---- F(x*), the curvature of f and the schedule, which a queued job needs to start
 * (jobs_prepare.h). */

void jobs_prepare(struct tally_coordinator *coordinator, struct hosted_job *job)
{
    if (job->prepared || job->row.status != TALLY_JOB_QUEUED) {
        return;
    }
    if (job->solving_bytes > 0) {
        jobs_memory_solve_next(coordinator);
        return;
    }
    job->prepare_began_ms = tally_monotonic_ms();
    preparer_submit(coordinator->jobs->preparer, job->row.id, &job->spec);
}

enum tally_status jobs_fail_preparation(struct tally_coordinator *coordinator,
                                        struct hosted_job *job, const char *why)
{
    struct tally_error err = TALLY_ERROR_INIT;
    char reason[TALLY_REASON_CAPACITY];
    TALLY_REASON_WRITE(reason, PREPARATION_FAILED, why);
    return jobs_fail(coordinator, job, reason, &err);
}

/* Fails the job if it cannot be prepared. */
static void fail_if_unprepared(struct tally_coordinator *coordinator, struct hosted_job *job)
{
    if (job->prepare_error.status == TALLY_OK || job->row.status != TALLY_JOB_QUEUED) {
        return;
    }
    coordinator->jobs->has_unprepared = true; /* until its failure is stored */
    if (!job->needs_reload && tally_job_status(job->engine) == TALLY_JOB_QUEUED) {
        jobs_fail_preparation(coordinator, job, job->prepare_error.message);
    }
}

void jobs_fail_unprepared(struct tally_coordinator *coordinator)
{
    if (!coordinator->jobs->has_unprepared) {
        return;
    }
    coordinator->jobs->has_unprepared = false;
    for (struct hosted_job *job = coordinator->jobs->first; job != NULL; job = job->next) {
        fail_if_unprepared(coordinator, job);
    }
}

/* Takes what is known about f. Curvature and schedule are stored at once, to be shown while the job
 * waits for workers. */
static void take_preparation(struct tally_coordinator *coordinator, struct hosted_job *job,
                             const struct tally_local_preparation *preparation)
{
    job->prepared = true;
    job->prepare_took_ms = tally_monotonic_ms() - job->prepare_began_ms;
    job->f_star = preparation->f_star;
    job->curvature = preparation->curvature;
    memcpy(job->schedule, preparation->schedule, sizeof job->schedule);
    rounds_restart_clock(job);
    if (!(job->curvature.smoothness > 0) && job->schedule[0] == '\0') {
        return;
    }
    struct tally_error err = TALLY_ERROR_INIT;
    enum tally_status status = transaction_begin_write(coordinator->transaction, &err);
    if (status == TALLY_OK) { /* on failure, the row is written again at the start */
        status = hosted_job_put_row(coordinator->store, job, tally_realtime_ms(), &err);
        jobs_check_write(coordinator, job, status, &err);
    }
    const struct tally_advice advice = tally_advise(&job->spec, &job->curvature);
    for (int i = 0; i < advice.n; i++) {
        tally_log(TALLY_LOG_WARN, tally_log_event("job has questionable parameters"),
                  tally_log_text("job", job->row.id), tally_log_text("warning", advice.texts[i]));
    }
}

void jobs_take_prepared(struct tally_coordinator *coordinator)
{
    uint64_t count;
    ssize_t n = read(coordinator->loop->wake_fd, &count, sizeof count);
    (void)n; /* EAGAIN: nothing woke us */
    struct prepared result;
    while (preparer_take(coordinator->jobs->preparer, &result)) {
        struct live_jobs *jobs = coordinator->jobs;
        struct hosted_job *job = jobs_find(coordinator, result.job_id);
        /* Jobs that wait for memory may get some now. */
        jobs->match_due |= jobs->lacks_memory || job == NULL;
        if (job != NULL && !tally_list_has(&job->in_prepared)) {
            tally_list_append(&jobs->prepared, &job->in_prepared);
        }
        if (job == NULL || job->row.status != TALLY_JOB_QUEUED) {
            continue; /* cancelled meanwhile */
        }
        if (result.status == TALLY_OK) {
            job->columns = (struct known_columns){.digest = result.columns};
            job->data_digest = result.data_digest;
            take_preparation(coordinator, job, &result.preparation);
        } else {
            job->prepare_error = result.err;
            job->prepare_error.status = result.status;
            fail_if_unprepared(coordinator, job);
        }
    }
}
