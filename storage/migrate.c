#include "storage/migrate.h"

#include "storage/backends.h"
#include "storage/digest.h"

/* Rows and bytes sent to the target at a time, so that they fit into memory. */
enum { ROWS_PER_FLUSH = 4096, BYTES_PER_FLUSH = 4 << 20 };

struct copying {
    struct tally_store *from;
    struct tally_store *to;
    const struct tally_store_progress *progress;
    int64_t n_rows;   /* of the source */
    int64_t n_copied; /* of them */
    int64_t job_key;  /* of the current job */
    int64_t n_unsent;
    size_t n_unsent_bytes;
    struct tally_buffer document, state, idempotency_key; /* state: or a model's point */
};

/* Counts a row of `n` bytes that the target has received. Flushes the rows if there are many. */
static enum tally_status count_row(struct copying *copying, size_t n, struct tally_error *err)
{
    copying->n_copied++;
    copying->n_unsent++;
    copying->n_unsent_bytes += n;
    if (copying->n_unsent < ROWS_PER_FLUSH && copying->n_unsent_bytes < BYTES_PER_FLUSH) {
        return TALLY_OK;
    }
    copying->n_unsent = 0;
    copying->n_unsent_bytes = 0;
    if (copying->progress != NULL && !copying->progress->tell(copying->progress->context, "copying",
                                                              copying->n_copied, copying->n_rows)) {
        return tally_fail(err, TALLY_CANCELLED, NULL, "stopped before the end");
    }
    return copying->to->ops->flush(copying->to, err);
}

/* Copies the row of a job and its document. */
static enum tally_status copy_row(struct copying *copying, const struct tally_store_job *job,
                                  struct tally_error *err)
{
    struct tally_store *from = copying->from;
    bool has_key = false;
    uint64_t digest = 0;
    int64_t key = 0;
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
    if (status == TALLY_OK) {
        status = copying->to->ops->job_insert(
            copying->to, job, (const char *)copying->document.data, copying->document.size,
            has_key ? (const char *)copying->idempotency_key.data : NULL, digest, &key, err);
    }
    copying->n_copied++; /* the document */
    return status == TALLY_OK ? count_row(copying, copying->document.size, err) : status;
}

static enum tally_status copy_state(struct copying *copying, struct tally_error *err)
{
    struct tally_store *from = copying->from;
    struct tally_error why = TALLY_ERROR_INIT;
    copying->state.size = 0;
    enum tally_status status = from->ops->state_get(from, copying->job_key, &copying->state, &why);
    if (status == TALLY_NOT_FOUND) {
        return TALLY_OK; /* the job has not begun */
    }
    if (status != TALLY_OK) {
        return tally_fail(err, status, NULL, "%s", why.message);
    }
    status = copying->to->ops->state_put(copying->to, copying->job_key, copying->state.data,
                                         copying->state.size, err);
    return status == TALLY_OK ? count_row(copying, copying->state.size, err) : status;
}

static enum tally_status copy_update(void *context, const struct tally_store_update *update,
                                     struct tally_error *err)
{
    struct copying *copying = context;
    enum tally_status status =
        copying->to->ops->update_insert(copying->to, copying->job_key, update, err);
    return status == TALLY_OK ? count_row(copying, update->n_body, err) : status;
}

static enum tally_status copy_round(void *context, const struct tally_round_record *record,
                                    struct tally_error *err)
{
    struct copying *copying = context;
    enum tally_status status =
        copying->to->ops->round_insert(copying->to, copying->job_key, record, err);
    return status == TALLY_OK ? count_row(copying, sizeof *record, err) : status;
}

static enum tally_status copy_model(void *context, const struct tally_store_model *model,
                                    struct tally_error *err)
{
    struct copying *copying = context;
    struct tally_store *from = copying->from;
    copying->state.size = 0;
    enum tally_status status =
        from->ops->model_get(from, copying->job_key, model->slot, &copying->state, err);
    if (status == TALLY_OK) {
        status = copying->to->ops->model_put(copying->to, copying->job_key, model,
                                             copying->state.data, err);
    }
    return status == TALLY_OK ? count_row(copying, copying->state.size, err) : status;
}

static enum tally_status copy_job(void *context, const struct tally_store_job *job,
                                  struct tally_error *err)
{
    struct copying *copying = context;
    struct tally_store *from = copying->from;
    copying->job_key = job->key;
    enum tally_status status = copy_row(copying, job, err);
    if (status == TALLY_OK) {
        status = copy_state(copying, err);
    }
    if (status == TALLY_OK) {
        status = tally_store_walk_updates(from, job, copy_update, copying, err);
    }
    if (status == TALLY_OK) {
        status = from->ops->round_list(from, job->key, 0, INT64_MAX, copy_round, copying, err);
    }
    return status == TALLY_OK ? from->ops->model_list(from, job->key, copy_model, copying, err)
                              : status;
}

static enum tally_status copy_all(struct tally_store *from, struct tally_store *to, int64_t n_rows,
                                  const struct tally_store_progress *progress,
                                  struct tally_error *err)
{
    struct copying copying = {.from = from, .to = to, .progress = progress, .n_rows = n_rows};
    enum tally_status status =
        from->ops->job_list(from, -1, INT64_MAX, INT64_MAX, copy_job, &copying, err);
    tally_buffer_fini(&copying.document);
    tally_buffer_fini(&copying.state);
    tally_buffer_fini(&copying.idempotency_key);
    return status;
}

/* Copies the tables of a digest for the report. */
static void note(const struct tally_store_digest *digest,
                 struct tally_table_digest ret_tables[TALLY_N_TABLES])
{
    for (int i = 0; i < TALLY_N_TABLES; i++) {
        ret_tables[i] = tally_store_digest_table(digest, (enum tally_table)i);
    }
}

/* Requires that the digest covers everything in the source: no slot reads updates of rounds that
 * are not open, or records without a round. */
static enum tally_status require_all(const struct tally_store_report *found,
                                     const struct tally_table_digest tables[TALLY_N_TABLES],
                                     struct tally_error *err)
{
    const struct {
        enum tally_table table;
        int64_t n_rows;
    } counts[] = {{TALLY_TABLE_JOBS, found->n_jobs},
                  {TALLY_TABLE_UPDATES, found->n_updates},
                  {TALLY_TABLE_ROUNDS, found->n_rounds},
                  {TALLY_TABLE_MODELS, found->n_models}};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        const int64_t n_read = tables[counts[i].table].n_rows;
        if (n_read != counts[i].n_rows) {
            return tally_fail(err, TALLY_DATA_LOSS, NULL,
                              "the source has %lld rows of %s, of which its jobs use only %lld",
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
        status = tally_store_digest_read(
            store, progress, "reading",
            3 * found.n_jobs + found.n_rounds + found.n_updates + found.n_models, digest, err);
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

static enum tally_status see_job(void *context, const struct tally_store_job *job,
                                 struct tally_error *err)
{
    (void)job;
    (void)err;
    *(bool *)context = true;
    return TALLY_OK;
}

/* For a target that already has jobs: succeeds if they are those of the source, because an earlier
 * migration completed, and fails otherwise. */
static enum tally_status compare(struct tally_store *to, const struct tally_store_digest *source,
                                 const struct tally_store_progress *progress,
                                 struct tally_migrate_report *report, struct tally_error *err)
{
    struct tally_error why = TALLY_ERROR_INIT;
    enum tally_status status = verify(to, source, progress, report, &why);
    if (status == TALLY_OK) {
        report->was_there = true;
        return TALLY_OK;
    }
    return tally_fail(err, status == TALLY_DATA_LOSS ? TALLY_FAILED_PRECONDITION : status, NULL,
                      status == TALLY_DATA_LOSS
                          ? "the target has jobs already, and nothing was changed (%s)"
                          : "%s",
                      why.message);
}

/* Fills the target in one transaction, whose rows are read back and compared before the commit. */
static enum tally_status fill(struct tally_store *from, struct tally_store *to,
                              const struct tally_store_digest *source,
                              const struct tally_store_progress *progress,
                              struct tally_migrate_report *report, struct tally_error *err)
{
    const int64_t n_rows = tally_store_digest_rows(source);
    bool has_jobs = false;
    enum tally_status status = to->ops->begin(to, err);
    if (status == TALLY_OK) {
        status = to->ops->job_list(to, -1, INT64_MAX, 1, see_job, &has_jobs, err);
    }
    if (has_jobs) {
        to->ops->rollback(to);
        return compare(to, source, progress, report, err);
    }
    if (status == TALLY_OK) {
        status = copy_all(from, to, n_rows, progress, err);
    }
    if (status == TALLY_OK) {
        status = verify(to, source, progress, report, err);
    }
    if (status == TALLY_OK) {
        status = to->ops->commit(to, err);
        report->n_copied_rows = status == TALLY_OK ? n_rows : 0;
    }
    to->ops->rollback(to);
    return status;
}

/* Reports that `uri` has the wrong kind for the argument `field`, without showing its password. */
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
    const struct tally_store_options writing = {.filling = true};
    struct tally_store *source = NULL;
    struct tally_store *target = NULL;
    struct tally_store_digest digest = {0};
    *ret_report = (struct tally_migrate_report){0};
    enum tally_status status = require_kinds(from, to, err);
    if (status == TALLY_OK) {
        status = tally_store_open(from, &reading, &source, err);
    }
    if (status == TALLY_OK) { /* before the source is read, which may take a long time */
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
