#include "services/coordinator/jobs_live.h"
#include "services/base/alloc.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/numeric/checksum.h"
#include "services/base/log.h"
#include "services/base/time.h"
#include "services/coordinator/coordinator.h"
#include "services/coordinator/jobs_lifecycle.h"
#include "services/coordinator/jobs_prepare.h"
#include "services/coordinator/jobs_rounds.h"
#include "services/coordinator/loop.h"
#include "services/coordinator/loop_transaction.h"
#include "services/coordinator/webhook_queue.h"
#include "services/coordinator/webhooks.h"
#include "services/job/document.h"
#include "services/job/job_reasons.h"

/* From this dimension on, a job's memory, some MB, is returned to the system when the job ends. */
enum { LARGE_DIM = 100000 };

enum tally_status live_jobs_new(struct tally_coordinator *coordinator, const struct jobs_ops *ops,
                                struct tally_error *err)
{
    struct live_jobs *jobs = tally_xcalloc(1, sizeof *jobs);
    jobs->ops = ops;
    ended_init(&jobs->ended);
    jobs->last = &jobs->first;
    tally_list_init(&jobs->marks.active);
    tally_list_init(&jobs->prepared);
    jobs->next_deadline_ms = INT64_MAX;
    jobs->marks.transaction = &coordinator->transaction->number;
    jobs->memory.limit = coordinator->config.max_job_bytes;
    coordinator->jobs = jobs;
    return preparer_new(coordinator->loop->wake_fd, coordinator->config.data_dir, &jobs->preparer,
                        err);
}

void live_jobs_free(struct live_jobs *jobs)
{
    while (jobs != NULL && jobs->first != NULL) {
        struct hosted_job *job = jobs->first;
        jobs->first = job->next;
        hosted_job_free(job);
    }
    if (jobs != NULL) {
        ended_fini(&jobs->ended);
        preparer_free(jobs->preparer);
        free(jobs);
    }
}

static size_t bucket_of(const char *id)
{
    return tally_checksum64(id, strlen(id)) & (JOB_BUCKETS - 1);
}

struct hosted_job *jobs_find(const struct tally_coordinator *coordinator, const char *id)
{
    struct hosted_job *job = coordinator->jobs->by_id[bucket_of(id)];
    while (job != NULL && strcmp(job->row.id, id) != 0) {
        job = job->next_of_id;
    }
    return job;
}

static void forget_id(struct live_jobs *jobs, const struct hosted_job *job)
{
    struct hosted_job **at = &jobs->by_id[bucket_of(job->row.id)];
    while (*at != job) {
        at = &(*at)->next_of_id;
    }
    *at = job->next_of_id;
}

void jobs_prune_active(struct live_jobs *jobs)
{
    struct tally_list_node *node = jobs->marks.active.head.next;
    while (node != &jobs->marks.active.head) {
        struct hosted_job *job = TALLY_LIST_MEMBER(struct hosted_job, in_active, node);
        node = node->next;
        if (tally_job_status(job->engine) == TALLY_JOB_QUEUED && !job->needs_reload &&
            job->slots == NULL) {
            tally_list_remove(&job->in_active);
        }
    }
}

/* Where the job belongs in the list. Keys ascend, but those of jobs from other replicas may be old.
 */
static struct hosted_job **place_of(const struct hosted_job *job, struct live_jobs *jobs)
{
    const bool is_empty = jobs->last == &jobs->first;
    const struct hosted_job *newest =
        is_empty ? NULL
                 : (const struct hosted_job *)((const char *)jobs->last -
                                               offsetof(struct hosted_job, next));
    if (newest == NULL || newest->row.key < job->row.key) {
        return jobs->last;
    }
    struct hosted_job **at = &jobs->first;
    while (*at != NULL && (*at)->row.key < job->row.key) {
        at = &(*at)->next;
    }
    return at;
}

void jobs_note_deadline(struct live_jobs *jobs, const struct hosted_job *job)
{
    const int64_t deadline_ms = job->row.created_ms + job->spec.job_deadline_ms;
    if (job->spec.job_deadline_ms > 0 && deadline_ms < jobs->next_deadline_ms) {
        jobs->next_deadline_ms = deadline_ms;
    }
}

void jobs_add(struct tally_coordinator *coordinator, struct hosted_job *job)
{
    struct live_jobs *jobs = coordinator->jobs;
    struct hosted_job **at = place_of(job, jobs);
    rounds_restart_clock(job);
    jobs_note_deadline(jobs, job);
    job->marks = &jobs->marks;
    if (jobs->unsolved == NULL || job->row.key < jobs->unsolved->row.key) {
        jobs->unsolved = job;
    }
    /* A job that is not prepared can neither start nor be filled. */
    jobs->match_due |= job->prepared || job->row.status != TALLY_JOB_QUEUED || job->needs_reload;
    if (job->row.status != TALLY_JOB_QUEUED || job->needs_reload) {
        hosted_job_mark_active(job);
    }
    job->next = *at;
    *at = job;
    if (job->next == NULL) {
        coordinator->jobs->last = &job->next;
    }
    struct hosted_job **bucket = &coordinator->jobs->by_id[bucket_of(job->row.id)];
    job->next_of_id = *bucket;
    *bucket = job;
    coordinator->jobs->n++;
    coordinator->jobs->ops->added(coordinator, job);
}

void jobs_remove(struct tally_coordinator *coordinator, struct hosted_job **at)
{
    struct hosted_job *job = *at;
    coordinator->jobs->ops->removing(coordinator, job);
    preparer_forget(coordinator->jobs->preparer, job->row.id);
    forget_id(coordinator->jobs, job);
    tally_list_remove(&job->in_active);
    if (coordinator->jobs->unsolved == job) {
        coordinator->jobs->unsolved = job->next;
    }
    tally_list_remove(&job->in_prepared);
    *at = job->next;
    if (*at == NULL) {
        coordinator->jobs->last = at;
    }
    coordinator->jobs->n--;
    coordinator->jobs->n_removed++;
    coordinator->jobs->match_due = true;
    const bool is_large = job->row.dim >= LARGE_DIM;
    hosted_job_free(job);
    if (is_large) {
        tally_http_trim();
    }
}

/* Loading. */

enum tally_status jobs_collect_row(void *rows, const struct tally_store_job *row,
                                   struct tally_error *err)
{
    (void)err;
    struct job_rows *list = rows;
    if (list->n == list->capacity) {
        size_t capacity = list->capacity == 0 ? 16 : 2 * list->capacity;
        list->rows = tally_xrealloc(list->rows, capacity, sizeof *list->rows);
        list->capacity = capacity;
    }
    list->rows[list->n++] = *row;
    return TALLY_OK;
}

enum tally_status jobs_check_write(struct tally_coordinator *coordinator, struct hosted_job *job,
                                   enum tally_status status, const struct tally_error *err)
{
    if (status == TALLY_DATA_LOSS && job->damage == NULL) {
        job->damage = tally_xstrdup(err->message);
        hosted_job_mark_touched(job);
    }
    return transaction_check(coordinator->transaction, status, err);
}

/* Tells the webhook of a damaged job that it failed, if the document can still be read and the
 * webhook is not what is damaged. */
static enum tally_status notify_damage(struct tally_store *store, const struct tally_store_job *row,
                                       enum tally_job_status before, struct tally_error *err)
{
    struct tally_buffer document = {0};
    struct tally_job_spec spec;
    enum tally_status status = TALLY_OK;
    if (store->ops->document_get(store, row->key, &document, NULL) == TALLY_OK &&
        tally_document_parse((const char *)document.data, document.size, &spec, NULL) == TALLY_OK &&
        spec.webhook[0] != '\0') {
        status = webhook_queue_add(store, row, before, spec.webhook, row->finished_ms, err);
    }
    tally_buffer_fini(&document);
    return status == TALLY_DATA_LOSS ? TALLY_OK : status;
}

enum tally_status jobs_end_damaged_row(struct tally_store *store, struct tally_store_job *row,
                                       const struct tally_error *why, struct tally_error *err)
{
    const enum tally_job_status before = row->status;
    row->status = TALLY_JOB_FAILED;
    row->finished_ms = tally_realtime_ms();
    TALLY_REASON_WRITE(row->reason, STORED_JOB_DAMAGED, why->message);
    tally_log(TALLY_LOG_ERROR, tally_log_event("stored job is damaged"),
              tally_log_text("job", row->id), tally_log_problem(why));
    enum tally_status status = store->ops->begin(store, err);
    if (status == TALLY_OK) {
        status = store->ops->job_update(store, row, err);
        if (status == TALLY_OK) {
            status = notify_damage(store, row, before, err);
        }
        if (status != TALLY_OK) {
            store->ops->rollback(store);
            return status;
        }
        status = store->ops->commit(store, err);
    }
    return status;
}

enum tally_status jobs_load(struct tally_coordinator *coordinator, struct tally_store_job *row,
                            const char *event, struct tally_error *err)
{
    struct hosted_job *job;
    struct tally_error why = TALLY_ERROR_INIT;
    enum tally_status status = hosted_job_load(coordinator->store, row, &job, &why);
    if (status == TALLY_DATA_LOSS) {
        status = jobs_end_damaged_row(coordinator->store, row, &why, err);
        webhooks_wake(coordinator, row->key);
        return status;
    }
    if (status == TALLY_NO_MEMORY) {
        tally_log(TALLY_LOG_ERROR, tally_log_event("job waits for memory to be loaded"),
                  tally_log_text("job", row->id), tally_log_problem(&why));
        status = hosted_job_load_later(coordinator->store, row, &job, &why);
    }
    if (status != TALLY_OK) {
        return tally_fail(err, status, why.field, "%s", why.message);
    }
    jobs_add(coordinator, job);
    job->arrived_ms = tally_monotonic_ms();
    rounds_restart_clock_after_outage(job);
    jobs_memory_note_loaded(coordinator, job);
    tally_log(TALLY_LOG_INFO, tally_log_event(event), tally_log_text("job", row->id),
              tally_log_text("status", tally_job_status_name(row->status)),
              tally_log_integer("round", row->progress.round),
              tally_log_integer("received", tally_job_open_round(job->engine)->received));
    jobs_prepare(coordinator, job);
    return TALLY_OK;
}

/* The store's error names the job by its key. */
static enum tally_status name_missing_job(enum tally_status status, const char *id,
                                          struct tally_error *err)
{
    if (status == TALLY_NOT_FOUND) {
        tally_error_clear(err);
        tally_fail(err, status, "id", "there is no job %s", id);
    }
    return status;
}

enum tally_status jobs_read_row(struct tally_coordinator *coordinator, const char *id,
                                struct tally_store_job *ret_row, struct tally_error *err)
{
    struct tally_store *store = coordinator->store;
    return name_missing_job(store->ops->job_get(store, id, ret_row, err), id, err);
}

enum tally_status jobs_read(struct tally_coordinator *coordinator, const char *id,
                            struct tally_store_job *ret_row, struct tally_buffer *document,
                            struct tally_error *err)
{
    struct tally_store *store = coordinator->store;
    enum tally_status status = jobs_read_row(coordinator, id, ret_row, err);
    if (status == TALLY_OK) { /* another replica may delete the job in between */
        status = store->ops->document_get(store, ret_row->key, document, err);
        status = name_missing_job(status, id, err);
    }
    return status;
}

enum tally_status jobs_load_all(struct tally_coordinator *coordinator, struct tally_error *err)
{
    struct tally_store *store = coordinator->store;
    struct job_rows live = {0};
    enum tally_status status = store->ops->job_list_live(store, jobs_collect_row, &live, err);
    for (size_t i = 0; status == TALLY_OK && i < live.n; i++) {
        status = jobs_load(coordinator, &live.rows[i], "job restored", err);
    }
    free(live.rows);
    return status;
}

enum tally_status jobs_is_live_elsewhere(struct tally_coordinator *coordinator, const char *job_id,
                                         bool *ret_is_elsewhere, struct tally_error *err)
{
    struct tally_store_job row;
    *ret_is_elsewhere = false;
    if (!coordinator->view.is_shared) {
        return TALLY_OK;
    }
    enum tally_status status = jobs_read_row(coordinator, job_id, &row, err);
    if (status == TALLY_OK) {
        *ret_is_elsewhere = !tally_job_status_is_terminal(row.status);
    }
    return status;
}
