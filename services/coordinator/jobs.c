/* jobs: the live jobs, and the transaction that a step's writes share. */
#include <stdio.h>
#include <string.h>

#include "codec/checksum.h"
#include "services/coordinator/internal.h"
#include "services/program/log.h"
#include "services/program/time.h"

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
    job->next = NULL;
    restart_clock(job);
    struct hosted_job **bucket = &coordinator->jobs_by_id[bucket_of(job->row.id)];
    job->next_of_id = *bucket;
    *bucket = job;
    *coordinator->last_job = job;
    coordinator->last_job = &job->next;
    coordinator->n_jobs++;
    coordinator->assignment_changed = true;
}

enum tally_status prepare_job(struct tally_coordinator *coordinator, struct hosted_job *job,
                              struct tally_error *err)
{
    if (job->prepared || job->row.status != TALLY_JOB_QUEUED) {
        return TALLY_OK;
    }
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

enum tally_status begin_write(struct tally_coordinator *coordinator, struct tally_error *err)
{
    coordinator->must_commit = true;
    return begin_update(coordinator, err);
}

enum tally_status begin_update(struct tally_coordinator *coordinator, struct tally_error *err)
{
    if (coordinator->transaction_failed || coordinator->begin_failed) {
        return tally_fail(err, TALLY_STORE, NULL, "the store cannot be written: %s",
                          coordinator->store_error.message);
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
