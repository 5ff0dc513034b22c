/* live_jobs: the live jobs, and the transaction that a step's writes share. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/numeric/checksum.h"
#include "services/base/log.h"
#include "services/base/time.h"
#include "services/coordinator/internal.h"
#include "services/job/reasons.h"

/* The memory of a job with so many coordinates goes back to the system when it ends: some MB. */
enum { LARGE_DIM = 100000 };

static size_t bucket_of(const char *id)
{
    return tally_checksum64(id, strlen(id)) & (JOB_BUCKETS - 1);
}

struct hosted_job *find_job(const struct tally_coordinator *coordinator, const char *id)
{
    struct hosted_job *job = coordinator->jobs_by_id[bucket_of(id)];
    while (job != NULL && strcmp(job->row.id, id) != 0) {
        job = job->next_of_id;
    }
    return job;
}

void forget_job_id(struct tally_coordinator *coordinator, const struct hosted_job *job)
{
    struct hosted_job **at = &coordinator->jobs_by_id[bucket_of(job->row.id)];
    while (*at != job) {
        at = &(*at)->next_of_id;
    }
    *at = job->next_of_id;
}

void add_job(struct tally_coordinator *coordinator, struct hosted_job *job)
{
    struct hosted_job **at = coordinator->last_job; /* keys ascend */
    if (coordinator->replicas != NULL) { /* those of jobs that come from others may be old */
        at = &coordinator->jobs;
    }
    while (*at != NULL && (*at)->row.key < job->row.key) {
        at = &(*at)->next;
    }
    restart_clock(job);
    job->marks = &coordinator->marks;
    job->next = *at;
    *at = job;
    if (job->next == NULL) {
        coordinator->last_job = &job->next;
    }
    struct hosted_job **bucket = &coordinator->jobs_by_id[bucket_of(job->row.id)];
    job->next_of_id = *bucket;
    *bucket = job;
    coordinator->n_jobs++;
    coordinator->assignment_changed = true;
    events_adopt_job(coordinator, job);
}

void drop_job(struct tally_coordinator *coordinator, struct hosted_job **at)
{
    struct hosted_job *job = *at;
    session_release_job(&coordinator->sessions, job);
    events_forget_job(job);
    preparer_forget(coordinator->preparer, job->row.id);
    forget_job_id(coordinator, job);
    *at = job->next;
    if (*at == NULL) {
        coordinator->last_job = at;
    }
    coordinator->n_jobs--;
    coordinator->assignment_changed = true;
    const bool is_large = job->row.dim >= LARGE_DIM;
    hosted_job_free(job);
    if (is_large) {
        (void)malloc_trim(0);
    }
}

/* Loading. */

enum tally_status collect_row(void *rows, const struct tally_store_job *row,
                              struct tally_error *err)
{
    struct job_rows *list = rows;
    if (list->n == list->capacity) {
        size_t capacity = list->capacity == 0 ? 16 : 2 * list->capacity;
        struct tally_store_job *grown = realloc(list->rows, capacity * sizeof *grown);
        if (grown == NULL) {
            return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the stored jobs");
        }
        list->rows = grown;
        list->capacity = capacity;
    }
    list->rows[list->n++] = *row;
    return TALLY_OK;
}

enum tally_status bury_job(struct tally_store *store, struct tally_store_job *row,
                           const struct tally_error *why, struct tally_error *err)
{
    row->status = TALLY_JOB_FAILED;
    row->finished_ms = tally_realtime_ms();
    TALLY_REASON_WRITE(row->reason, STORED_JOB_DAMAGED, why->message);
    tally_log(TALLY_LOG_ERROR, tally_log_event("stored job is damaged"),
              tally_log_text("job", row->id), tally_log_problem(why));
    enum tally_status status = store->ops->begin(store, err);
    if (status == TALLY_OK) {
        status = store->ops->job_update(store, row, err);
        if (status != TALLY_OK) {
            store->ops->rollback(store);
            return status;
        }
        status = store->ops->commit(store, err);
    }
    return status;
}

enum tally_status load_job(struct tally_coordinator *coordinator, struct tally_store_job *row,
                           const char *event, struct tally_error *err)
{
    struct hosted_job *job;
    struct tally_error why = TALLY_ERROR_INIT;
    enum tally_status status = hosted_job_load(coordinator->store, row, &job, &why);
    if (status == TALLY_DATA_LOSS) {
        return bury_job(coordinator->store, row, &why, err);
    }
    if (status == TALLY_NO_MEMORY) {
        tally_log(TALLY_LOG_ERROR, tally_log_event("job waits for memory to be loaded"),
                  tally_log_text("job", row->id), tally_log_problem(&why));
        status = hosted_job_load_later(coordinator->store, row, &job, &why);
    }
    if (status != TALLY_OK) {
        return tally_fail(err, status, why.field, "%s", why.message);
    }
    add_job(coordinator, job);
    restart_clock_after_outage(job);
    memory_note_loaded(coordinator, job);
    tally_log(TALLY_LOG_INFO, tally_log_event(event), tally_log_text("job", row->id),
              tally_log_text("status", tally_job_status_name(row->status)),
              tally_log_integer("round", row->progress.round),
              tally_log_integer("received", tally_job_open_round(job->engine)->received));
    return prepare_job(coordinator, job, err);
}

enum tally_status prepare_job(struct tally_coordinator *coordinator, struct hosted_job *job,
                              struct tally_error *err)
{
    if (job->prepared || job->row.status != TALLY_JOB_QUEUED) {
        return TALLY_OK;
    }
    if (job->solving_bytes > 0) {
        memory_solve_next(coordinator);
        return TALLY_OK;
    }
    job->prepare_began_ms = tally_monotonic_ms();
    return preparer_submit(coordinator->preparer, job->row.id, &job->spec, err);
}

enum tally_status read_row(struct tally_coordinator *coordinator, const char *id,
                           struct tally_store_job *ret_row, struct tally_error *err)
{
    enum tally_status status =
        coordinator->store->ops->job_get(coordinator->store, id, ret_row, err);
    if (status == TALLY_NOT_FOUND) {
        tally_error_clear(err);
        tally_fail(err, status, "id", "there is no job %s", id);
    }
    return status;
}

enum tally_status read_job(struct tally_coordinator *coordinator, const char *id,
                           struct tally_store_job *ret_row, struct tally_buffer *document,
                           struct tally_error *err)
{
    struct tally_store *store = coordinator->store;
    enum tally_status status = read_row(coordinator, id, ret_row, err);
    return status == TALLY_OK ? store->ops->document_get(store, ret_row->key, document, err)
                              : status;
}

void note_store(struct tally_coordinator *coordinator, const struct tally_error *said)
{
    if (coordinator->store_error.status == TALLY_OK && said->status != TALLY_OK) {
        coordinator->store_failed_ms = tally_realtime_ms();
    }
    if (coordinator->store_error.status != TALLY_OK && said->status == TALLY_OK) {
        restart_clocks_after_outage(coordinator);
    }
    coordinator->store_error = *said;
}

enum tally_status fail_write(const struct tally_coordinator *coordinator, struct tally_error *err)
{
    return coordinator->was_fenced
               ? tally_fail(err, TALLY_UNAVAILABLE, NULL,
                            "another coordinator leads a job that was to be written: try again")
               : tally_fail(err, TALLY_STORE, NULL, "the store cannot be written: %s",
                            coordinator->store_error.message);
}

enum tally_status begin_write(struct tally_coordinator *coordinator, struct tally_error *err)
{
    coordinator->must_commit = true;
    return begin_update(coordinator, err);
}

enum tally_status begin_update(struct tally_coordinator *coordinator, struct tally_error *err)
{
    if (coordinator->transaction_failed || coordinator->begin_failed) {
        return fail_write(coordinator, err);
    }
    if (coordinator->in_transaction) {
        return TALLY_OK;
    }
    struct tally_error why = TALLY_ERROR_INIT;
    enum tally_status status = coordinator->store->ops->begin(coordinator->store, &why);
    coordinator->in_transaction = status == TALLY_OK;
    coordinator->begin_failed = status != TALLY_OK;
    coordinator->metrics.store_errors[STORE_BEGIN] += status != TALLY_OK;
    if (status != TALLY_OK) {
        note_store(coordinator, &why);
        tally_fail(err, status, why.field, "%s", why.message);
    }
    return status;
}

void note_damage(struct tally_coordinator *coordinator, const struct tally_error *err)
{
    if (err->status == TALLY_DATA_LOSS && coordinator->damage.status == TALLY_OK) {
        coordinator->damage = *err;
        tally_log(TALLY_LOG_ERROR, tally_log_event("stored data is damaged"),
                  tally_log_problem(err));
    }
}

enum tally_status write_failed(struct tally_coordinator *coordinator, enum tally_status status,
                               const struct tally_error *err)
{
    if (status != TALLY_OK && coordinator->in_transaction && !coordinator->transaction_failed) {
        coordinator->transaction_failed = true;
        coordinator->was_fenced = status == TALLY_FAILED_PRECONDITION;
        if (coordinator->was_fenced) {
            return status; /* the store is well */
        }
        coordinator->metrics.store_errors[STORE_WRITE]++;
        struct tally_error why = TALLY_ERROR_INIT;
        tally_fail(&why, status, NULL, "%s",
                   err != NULL ? err->message : tally_status_info(status)->title);
        note_store(coordinator, &why);
        note_damage(coordinator, &why);
    }
    return status;
}

enum tally_status fail_job(struct tally_coordinator *coordinator, struct hosted_job *job,
                           const char *reason, struct tally_error *err)
{
    enum tally_status status = begin_write(coordinator, err);
    if (status == TALLY_OK) {
        status = tally_job_fail(job->engine, reason, err);
    }
    if (status == TALLY_OK) {
        status = hosted_job_put_row(coordinator->store, job, tally_realtime_ms(), err);
        write_failed(coordinator, status, err);
    }
    if (status == TALLY_OK) {
        tally_log(TALLY_LOG_WARN, tally_log_event("job failed"), tally_log_text("job", job->row.id),
                  tally_log_text("reason", reason));
    }
    return status;
}
