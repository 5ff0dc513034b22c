#include "storage/backends/migrate.h"

#include "storage/backends/backends.h"
#include "storage/walk.h"

/* Rows per transaction of the target, rounds per page of the source, and bytes of updates after
 * which the target is made to take them: what is lost by a kill, and what memory holds at a time.
 */
enum { ROWS_PER_TRANSACTION = 4096, ROUNDS_PER_PAGE = 1000, BYTES_PER_FLUSH = 4 << 20 };

struct copying {
    struct tally_store *from;
    struct tally_store *to;
    const struct tally_store_progress *progress;
    struct tally_migrate_report *report;
    int64_t n_rows;    /* of the source */
    int64_t n_passed;  /* copied, or there already */
    int64_t n_pending; /* written in the open transaction */
    bool in_transaction;
    int64_t job_key; /* of the present job */
    int64_t last_round;
    size_t n_unflushed_bytes;
    struct tally_buffer document, state, idempotency_key;
};

static enum tally_status open_transaction(struct copying *copying, struct tally_error *err)
{
    enum tally_status status =
        copying->in_transaction ? TALLY_OK : copying->to->ops->begin(copying->to, err);
    copying->in_transaction = status == TALLY_OK;
    return status;
}

static enum tally_status close_transaction(struct copying *copying, struct tally_error *err)
{
    if (!copying->in_transaction) {
        return TALLY_OK;
    }
    copying->in_transaction = false;
    enum tally_status status = copying->to->ops->commit(copying->to, err);
    copying->report->n_copied_rows += status == TALLY_OK ? copying->n_pending : 0;
    copying->n_pending = 0;
    return status;
}

/* After writes that may stand alone: ends the transaction if it is large enough. */
static enum tally_status settle(struct copying *copying, struct tally_error *err)
{
    if (copying->progress != NULL && !copying->progress->tell(copying->progress->context, "copying",
                                                              copying->n_passed, copying->n_rows)) {
        return tally_fail(err, TALLY_CANCELLED, NULL, "stopped before the end");
    }
    return copying->n_pending >= ROWS_PER_TRANSACTION ? close_transaction(copying, err) : TALLY_OK;
}

static enum tally_status count_row(struct copying *copying, enum tally_status status)
{
    copying->n_pending += status == TALLY_OK;
    copying->n_passed += status == TALLY_OK;
    return status;
}

static enum tally_status copy_row(struct copying *copying, const struct tally_store_job *job,
                                  struct tally_error *err)
{
    struct tally_store *from = copying->from;
    bool has_key = false;
    uint64_t digest = 0;
    copying->document.size = 0;
    copying->idempotency_key.size = 0;
    enum tally_status status =
        from->ops->request_get(from, job->key, &copying->idempotency_key, &has_key, &digest, err);
    if (status == TALLY_OK) {
        status = from->ops->document_get(from, job->key, &copying->document, err);
    }
    if (status == TALLY_OK && tally_buffer_append(&copying->idempotency_key, "", 1) != TALLY_OK) {
        status = tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for an idempotency key");
    }
    if (status != TALLY_OK) {
        return status;
    }
    status = copying->to->import->job_insert(
        copying->to, job, (const char *)copying->document.data, copying->document.size,
        has_key ? (const char *)copying->idempotency_key.data : NULL, digest, err);
    count_row(copying, status); /* the row, and its document */
    return count_row(copying, status);
}

static enum tally_status copy_state(struct copying *copying, struct tally_error *err)
{
    struct tally_store *from = copying->from;
    struct tally_error why = TALLY_ERROR_INIT;
    copying->state.size = 0;
    enum tally_status status = from->ops->state_get(from, copying->job_key, &copying->state, &why);
    if (status == TALLY_NOT_FOUND) {
        return TALLY_OK; /* it has not begun */
    }
    if (status != TALLY_OK) {
        return tally_fail(err, status, NULL, "%s", why.message);
    }
    return count_row(copying,
                     copying->to->ops->state_put(copying->to, copying->job_key, copying->state.data,
                                                 copying->state.size, err));
}

static enum tally_status copy_update(void *context, const struct tally_store_update *update,
                                     struct tally_error *err)
{
    struct copying *copying = context;
    struct tally_store *to = copying->to;
    enum tally_status status =
        count_row(copying, to->ops->update_insert(to, copying->job_key, update, err));
    copying->n_unflushed_bytes += update->n_body;
    if (status == TALLY_OK && copying->n_unflushed_bytes > BYTES_PER_FLUSH) {
        copying->n_unflushed_bytes = 0;
        status = to->ops->flush(to, err);
    }
    return status;
}

static enum tally_status copy_round(void *context, const struct tally_round_record *record,
                                    struct tally_error *err)
{
    struct copying *copying = context;
    copying->last_round = record->round;
    return count_row(copying,
                     copying->to->ops->round_insert(copying->to, copying->job_key, record, err));
}

static enum tally_status see_round(void *context, const struct tally_round_record *record,
                                   struct tally_error *err)
{
    (void)record;
    (void)err;
    *(bool *)context = true;
    return TALLY_OK;
}

/* How many rounds of the job, from the first on, the target has: they are written in order. */
static enum tally_status find_last_round(struct copying *copying, int64_t n_rounds,
                                         struct tally_error *err)
{
    struct tally_store *to = copying->to;
    int64_t low = 0;
    int64_t high = n_rounds;
    enum tally_status status = TALLY_OK;
    /* Invariant: `low` rounds are there, or low = 0; more than `high` are not. */
    for (int64_t middle = n_rounds - 1; low < high && status == TALLY_OK;
         middle = low + (high - low) / 2) {
        bool has_more = false;
        status = to->ops->round_list(to, copying->job_key, middle, 1, see_round, &has_more, err);
        if (has_more) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    copying->last_round = low;
    copying->n_passed += low;
    return status;
}

static enum tally_status copy_rounds(struct copying *copying, struct tally_error *err)
{
    struct tally_store *from = copying->from;
    enum tally_status status = TALLY_OK;
    int64_t before = 0;
    do {
        before = copying->last_round;
        status = open_transaction(copying, err);
        if (status == TALLY_OK) {
            status = from->ops->round_list(from, copying->job_key, before, ROUNDS_PER_PAGE,
                                           copy_round, copying, err);
        }
        if (status == TALLY_OK) {
            status = settle(copying, err);
        }
    } while (status == TALLY_OK && copying->last_round > before);
    return status;
}

/* Whether the target has the job, under the same key. */
static enum tally_status find_job(struct copying *copying, const struct tally_store_job *job,
                                  bool *ret_is_there, struct tally_error *err)
{
    struct tally_store_job there;
    struct tally_error why = TALLY_ERROR_INIT;
    enum tally_status status = copying->to->ops->job_get(copying->to, job->id, &there, &why);
    *ret_is_there = status == TALLY_OK;
    if (status == TALLY_NOT_FOUND) {
        return TALLY_OK;
    }
    if (status != TALLY_OK) {
        return tally_fail(err, status, NULL, "%s", why.message);
    }
    return there.key == job->key ? TALLY_OK
                                 : tally_fail(err, TALLY_DATA_LOSS, NULL,
                                              "job %s has key %lld in the target, not %lld",
                                              job->id, (long long)there.key, (long long)job->key);
}

static enum tally_status copy_job(void *context, const struct tally_store_job *job,
                                  struct tally_error *err)
{
    struct copying *copying = context;
    bool is_there = false;
    copying->job_key = job->key;
    copying->last_round = 0;
    enum tally_status status = open_transaction(copying, err);
    if (status == TALLY_OK) {
        status = find_job(copying, job, &is_there, err);
    }
    if (status != TALLY_OK) {
        return status;
    }
    if (is_there) {
        status = find_last_round(copying, job->progress.round, err);
        return status == TALLY_OK ? copy_rounds(copying, err) : status;
    }
    status = copy_row(copying, job, err);
    if (status == TALLY_OK) {
        status = copy_state(copying, err);
    }
    if (status == TALLY_OK) {
        status = copying->from->ops->update_list(copying->from, job->key, job->progress.round + 1,
                                                 copy_update, copying, err);
    }
    if (status == TALLY_OK) { /* only now: from here on it is not copied again */
        status = settle(copying, err);
    }
    return status == TALLY_OK ? copy_rounds(copying, err) : status;
}

static enum tally_status copy_all(struct tally_store *from, struct tally_store *to, int64_t n_rows,
                                  const struct tally_store_progress *progress,
                                  struct tally_migrate_report *report, struct tally_error *err)
{
    struct copying copying = {
        .from = from, .to = to, .progress = progress, .report = report, .n_rows = n_rows};
    enum tally_status status = tally_store_walk_jobs(from, copy_job, &copying, err);
    if (status == TALLY_OK) {
        status = close_transaction(&copying, err);
    }
    to->ops->rollback(to);
    tally_buffer_fini(&copying.document);
    tally_buffer_fini(&copying.state);
    tally_buffer_fini(&copying.idempotency_key);
    return status;
}

/* The tables of a digest, as they are reported. */
static void note(const struct tally_store_digest *digest,
                 struct tally_table_digest ret_tables[TALLY_N_TABLES])
{
    for (int i = 0; i < TALLY_N_TABLES; i++) {
        ret_tables[i] = tally_store_digest_table(digest, (enum tally_table)i);
    }
}

/* Everything that the source has is in its digest: an update of another round than the open one, or
 * a record without a round, is not read by any slot. */
static enum tally_status require_all(const struct tally_store_report *found,
                                     const struct tally_table_digest tables[TALLY_N_TABLES],
                                     struct tally_error *err)
{
    const struct {
        enum tally_table table;
        int64_t n_rows;
    } counts[] = {{TALLY_TABLE_JOBS, found->n_jobs},
                  {TALLY_TABLE_UPDATES, found->n_updates},
                  {TALLY_TABLE_ROUNDS, found->n_rounds}};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        const int64_t n_read = tables[counts[i].table].n_rows;
        if (n_read != counts[i].n_rows) {
            return tally_fail(err, TALLY_DATA_LOSS, NULL,
                              "the source has %lld rows of %s, of which %lld belong to a job's "
                              "course",
                              (long long)counts[i].n_rows, TALLY_TABLE_NAMES[counts[i].table],
                              (long long)n_read);
        }
    }
    return TALLY_OK;
}

static enum tally_status read_source(const char *uri, struct tally_store *store,
                                     const struct tally_store_progress *progress,
                                     struct tally_store_digest *digest,
                                     struct tally_migrate_report *report, struct tally_error *err)
{
    struct tally_store_report found;
    enum tally_status status = tally_store_verify(uri, progress, &found, err);
    if (status == TALLY_OK) {
        status = tally_store_digest_read(store, progress, "reading",
                                         3 * found.n_jobs + found.n_rounds + found.n_updates,
                                         digest, err);
    }
    if (status == TALLY_OK) {
        note(digest, report->source);
        report->has_source = true;
        status = require_all(&found, report->source, err);
    }
    return status;
}

/* Reads the target back and compares. */
static enum tally_status verify(struct tally_store *to, const struct tally_store_digest *source,
                                const struct tally_store_progress *progress,
                                struct tally_migrate_report *report, struct tally_error *err)
{
    struct tally_store_digest target;
    enum tally_status status = tally_store_digest_read(
        to, progress, "verifying", tally_store_digest_rows(source), &target, err);
    if (status == TALLY_OK) {
        note(&target, report->target);
        report->has_target = true;
        status = tally_store_digest_compare(source, "the source", &target, "the target", err);
    }
    tally_store_digest_fini(&target);
    return status;
}

/* The target has jobs, and no migration is under way there. */
static enum tally_status look_at_jobs(struct tally_store *to,
                                      const struct tally_store_digest *source,
                                      const struct tally_store_progress *progress,
                                      struct tally_migrate_report *report, struct tally_error *err)
{
    struct tally_error why = TALLY_ERROR_INIT;
    enum tally_status status = verify(to, source, progress, report, &why);
    if (status == TALLY_OK) {
        return TALLY_OK; /* a second run of a migration that is done */
    }
    return tally_fail(err, status == TALLY_DATA_LOSS ? TALLY_FAILED_PRECONDITION : status, NULL,
                      status == TALLY_DATA_LOSS
                          ? "the target has jobs already, and nothing was changed (%s)"
                          : "%s",
                      why.message);
}

static enum tally_status fill(struct tally_store *from, struct tally_store *to,
                              const struct tally_store_digest *source,
                              const struct tally_store_progress *progress,
                              struct tally_migrate_report *report, struct tally_error *err)
{
    enum tally_status status =
        to->import->begin(to, tally_store_digest_checksum(source), &report->start, err);
    if (status != TALLY_OK) {
        return status;
    }
    if (report->start == TALLY_IMPORT_OCCUPIED) {
        return look_at_jobs(to, source, progress, report, err);
    }
    status = copy_all(from, to, tally_store_digest_rows(source), progress, report, err);
    if (status == TALLY_OK) {
        status = verify(to, source, progress, report, err);
    }
    return status == TALLY_OK ? to->import->end(to, err) : status;
}

/* `uri` has the wrong kind for the argument `field`. It is shown without its password. */
static enum tally_status fail_kind(const char *field, const char *form, const char *uri,
                                   struct tally_error *err)
{
    struct tally_buffer label = {0};
    const bool has_label = tally_store_label(uri, &label) == TALLY_OK;
    enum tally_status status = tally_fail(err, TALLY_INVALID_ARGUMENT, field,
                                          "a store is migrated %s \"%s\", not %s \"%.80s\"", field,
                                          form, field, has_label ? (const char *)label.data : "");
    tally_buffer_fini(&label);
    return status;
}

static enum tally_status require_kinds(const char *from, const char *to, struct tally_error *err)
{
    const char *location = "";
    const struct tally_store_backend *backend = tally_store_backend_of(from, &location);
    if (backend == NULL || !backend->can_be_migrated || location[0] == '\0') {
        return fail_kind("from", "sqlite:PATH", from, err);
    }
    backend = tally_store_backend_of(to, &location);
    return backend != NULL && backend->can_be_filled
               ? TALLY_OK
               : fail_kind("to", "postgres:CONNINFO", to, err);
}

enum tally_status tally_store_migrate(const char *from, const char *to,
                                      const struct tally_store_progress *progress,
                                      struct tally_migrate_report *ret_report,
                                      struct tally_error *err)
{
    const struct tally_store_options reading = {.read_only = true, .exclusive = true};
    const struct tally_store_options writing = {.importing = true};
    struct tally_store *source = NULL;
    struct tally_store *target = NULL;
    struct tally_store_digest digest = {0};
    *ret_report = (struct tally_migrate_report){0};
    enum tally_status status = require_kinds(from, to, err);
    if (status == TALLY_OK) {
        status = tally_store_open(from, &reading, &source, err);
    }
    if (status == TALLY_OK) { /* before the source is read, which may take long */
        status = tally_store_open(to, &writing, &target, err);
    }
    if (status == TALLY_OK) {
        status = read_source(from, source, progress, &digest, ret_report, err);
    }
    if (status == TALLY_OK) {
        status = fill(source, target, &digest, progress, ret_report, err);
    }
    if (target != NULL) {
        target->ops->close(target);
    }
    if (source != NULL) {
        source->ops->close(source);
    }
    tally_store_digest_fini(&digest);
    return status;
}
