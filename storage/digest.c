#include "storage/digest.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codec/numeric/checksum.h"
#include "storage/allocate.h"
#include "storage/round_columns.h"

/* Rows between two progress reports. */
enum { ROWS_PER_TELL = 1024 };

const char *const TALLY_TABLE_NAMES[TALLY_N_TABLES] = {"jobs",    "job_documents", "job_states",
                                                       "updates", "rounds",        "models"};

/* Adds a value and its length, so that the end of one cannot be taken for the start of the next. */
static uint64_t add_bytes(uint64_t sum, const void *bytes, size_t n)
{
    const uint64_t length = n;
    sum = tally_checksum64_more(sum, &length, sizeof length);
    return n > 0 ? tally_checksum64_more(sum, bytes, n) : sum;
}

static uint64_t add_int64(uint64_t sum, int64_t value)
{
    return add_bytes(sum, &value, sizeof value);
}

static uint64_t add_real(uint64_t sum, double value)
{
    if (isnan(value)) {
        value = (double)NAN; /* stores do not keep the other bits of a NaN */
    }
    return add_bytes(sum, &value, sizeof value);
}

static uint64_t add_row(uint64_t sum, const struct tally_columns *columns, const void *row)
{
    for (int i = 0; i < columns->n_columns; i++) {
        const struct tally_column *column = &columns->column[i];
        const void *member = (const char *)row + column->offset;
        switch (column->kind) {
        case TALLY_COLUMN_INT64:
        case TALLY_COLUMN_UINT64:
            sum = add_bytes(sum, member, sizeof(int64_t));
            break;
        case TALLY_COLUMN_REAL:
            sum = add_real(sum, *(const double *)member);
            break;
        case TALLY_COLUMN_BOOL:
            sum = add_int64(sum, *(const bool *)member ? 1 : 0);
            break;
        case TALLY_COLUMN_TEXT:
            sum = add_bytes(sum, member, strlen(member));
            break;
        case TALLY_COLUMN_STATUS:
            sum = add_int64(sum, (int64_t) * (const enum tally_job_status *)member);
            break;
        }
    }
    return sum;
}

struct reading {
    struct tally_store *store;
    const struct tally_store_progress *progress;
    const char *what;
    int64_t n_rows;
    int64_t n_done;
    struct tally_store_digest *digest;
    struct tally_job_digest *job; /* the current one */
    struct tally_buffer value;
};

static enum tally_status count(struct reading *reading, enum tally_table table, uint64_t checksum,
                               struct tally_error *err)
{
    reading->job->tables[table].n_rows++;
    reading->job->tables[table].checksum = checksum;
    if (reading->n_done++ % ROWS_PER_TELL == 0 && reading->progress != NULL &&
        !reading->progress->tell(reading->progress->context, reading->what, reading->n_done,
                                 reading->n_rows)) {
        return tally_fail(err, TALLY_CANCELLED, NULL, "stopped before the end");
    }
    return TALLY_OK;
}

/* A table's checksum so far. */
static uint64_t sum_of(const struct reading *reading, enum tally_table table)
{
    return reading->job->tables[table].checksum;
}

static enum tally_status read_row(struct reading *reading, const struct tally_store_job *job,
                                  struct tally_error *err)
{
    bool has_key = false;
    uint64_t digest = 0;
    reading->value.size = 0;
    enum tally_status status = reading->store->ops->request_get(
        reading->store, job->key, &reading->value, &has_key, &digest, err);
    if (status != TALLY_OK) {
        return status;
    }
    uint64_t sum = add_int64(sum_of(reading, TALLY_TABLE_JOBS), job->key);
    sum = add_row(sum, &TALLY_JOB_COLUMNS, job);
    sum = add_int64(sum, has_key ? 1 : 0);
    sum = add_bytes(sum, reading->value.data, reading->value.size);
    sum = add_bytes(sum, &digest, sizeof digest);
    return count(reading, TALLY_TABLE_JOBS, sum, err);
}

/* Reads a document or a state; a job may be without a state. */
static enum tally_status read_value(struct reading *reading, enum tally_table table,
                                    struct tally_error *err)
{
    const struct tally_store_ops *ops = reading->store->ops;
    const bool is_state = table == TALLY_TABLE_STATES;
    struct tally_error why = TALLY_ERROR_INIT;
    reading->value.size = 0;
    enum tally_status status = (is_state ? ops->state_get : ops->document_get)(
        reading->store, reading->job->key, &reading->value, &why);
    if (is_state && status == TALLY_NOT_FOUND) {
        return TALLY_OK;
    }
    if (status != TALLY_OK) {
        return tally_fail(err, status, NULL, "%s", why.message);
    }
    return count(reading, table,
                 add_bytes(sum_of(reading, table), reading->value.data, reading->value.size), err);
}

enum tally_status tally_store_walk_updates(struct tally_store *store,
                                           const struct tally_store_job *job,
                                           tally_store_update_fn *each, void *context,
                                           struct tally_error *err)
{
    const int64_t rounds[] = {TALLY_STORE_WEBHOOK_ROUND, TALLY_STORE_PROVENANCE_ROUND,
                              TALLY_STORE_TRAFFIC_ROUND, TALLY_STORE_METRICS_ROUND,
                              job->progress.round + 1};
    enum tally_status status = TALLY_OK;
    for (size_t i = 0; status == TALLY_OK && i < sizeof rounds / sizeof *rounds; i++) {
        status = store->ops->update_list(store, job->key, rounds[i], each, context, err);
    }
    return status;
}

static enum tally_status add_update(void *context, const struct tally_store_update *update,
                                    struct tally_error *err)
{
    struct reading *reading = context;
    uint64_t sum = add_int64(sum_of(reading, TALLY_TABLE_UPDATES), update->round);
    reading->job->n_client_rows += update->round < 1;
    sum = add_int64(sum, update->client);
    sum = add_bytes(sum, update->body, update->n_body);
    return count(reading, TALLY_TABLE_UPDATES, sum, err);
}

static enum tally_status add_round(void *context, const struct tally_round_record *record,
                                   struct tally_error *err)
{
    struct reading *reading = context;
    return count(reading, TALLY_TABLE_ROUNDS,
                 add_row(sum_of(reading, TALLY_TABLE_ROUNDS), &TALLY_ROUND_COLUMNS, record), err);
}

static enum tally_status add_model(void *context, const struct tally_store_model *model,
                                   struct tally_error *err)
{
    struct reading *reading = context;
    reading->value.size = 0;
    enum tally_status status = reading->store->ops->model_get(reading->store, reading->job->key,
                                                              model->slot, &reading->value, err);
    if (status != TALLY_OK) { /* every model has a point */
        return status == TALLY_NOT_FOUND ? TALLY_DATA_LOSS : status;
    }
    const uint64_t sum = add_row(sum_of(reading, TALLY_TABLE_MODELS), &TALLY_MODEL_COLUMNS, model);
    return count(reading, TALLY_TABLE_MODELS,
                 add_bytes(sum, reading->value.data, reading->value.size), err);
}

static enum tally_status add_job(struct tally_store_digest *digest,
                                 const struct tally_store_job *job,
                                 struct tally_job_digest **ret_job, struct tally_error *err)
{
    void *jobs =
        tally_store_grow(digest->jobs, &digest->capacity, digest->n_jobs + 1, sizeof *digest->jobs);
    if (jobs == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for %zu jobs", digest->n_jobs);
    }
    digest->jobs = jobs;
    struct tally_job_digest *made = &digest->jobs[digest->n_jobs++];
    *made = (struct tally_job_digest){.key = job->key,
                                      .is_live = !tally_job_status_is_terminal(job->status)};
    memcpy(made->id, job->id, sizeof made->id);
    for (int i = 0; i < TALLY_N_TABLES; i++) {
        made->tables[i].checksum = TALLY_CHECKSUM_SEED;
    }
    *ret_job = made;
    return TALLY_OK;
}

static enum tally_status read_job(void *context, const struct tally_store_job *job,
                                  struct tally_error *err)
{
    struct reading *reading = context;
    const struct tally_store_ops *ops = reading->store->ops;
    enum tally_status status = add_job(reading->digest, job, &reading->job, err);
    if (status == TALLY_OK) {
        status = read_row(reading, job, err);
    }
    if (status == TALLY_OK) {
        status = read_value(reading, TALLY_TABLE_DOCUMENTS, err);
    }
    if (status == TALLY_OK) {
        status = read_value(reading, TALLY_TABLE_STATES, err);
    }
    if (status == TALLY_OK) {
        status = tally_store_walk_updates(reading->store, job, add_update, reading, err);
    }
    if (status == TALLY_OK) {
        status = ops->round_list(reading->store, job->key, 0, INT64_MAX, add_round, reading, err);
    }
    return status == TALLY_OK ? ops->model_list(reading->store, job->key, add_model, reading, err)
                              : status;
}

enum tally_status tally_store_digest_read(struct tally_store *store,
                                          const struct tally_store_progress *progress,
                                          const char *what, int64_t n_rows,
                                          struct tally_store_digest *ret_digest,
                                          struct tally_error *err)
{
    struct reading reading = {
        .store = store, .progress = progress, .what = what, .n_rows = n_rows, .digest = ret_digest};
    *ret_digest = (struct tally_store_digest){0};
    enum tally_status status =
        store->ops->job_list(store, -1, INT64_MAX, INT64_MAX, read_job, &reading, err);
    tally_buffer_fini(&reading.value);
    return status;
}

void tally_store_digest_fini(struct tally_store_digest *digest)
{
    free(digest->jobs);
    *digest = (struct tally_store_digest){0};
}

struct tally_table_digest tally_store_digest_table(const struct tally_store_digest *digest,
                                                   enum tally_table table)
{
    struct tally_table_digest sum = {0, TALLY_CHECKSUM_SEED};
    for (size_t i = 0; i < digest->n_jobs; i++) {
        const struct tally_job_digest *job = &digest->jobs[i];
        sum.n_rows += job->tables[table].n_rows;
        sum.checksum = add_int64(sum.checksum, job->key);
        sum.checksum = add_int64(sum.checksum, job->tables[table].n_rows);
        sum.checksum = add_bytes(sum.checksum, &job->tables[table].checksum, sizeof(uint64_t));
    }
    return sum;
}

int64_t tally_store_digest_rows(const struct tally_store_digest *digest)
{
    int64_t n = 0;
    for (size_t i = 0; i < digest->n_jobs; i++) {
        for (int k = 0; k < TALLY_N_TABLES; k++) {
            n += digest->jobs[i].tables[k].n_rows;
        }
    }
    return n;
}

/* The job with this key, or NULL. */
static const struct tally_job_digest *find_job(const struct tally_store_digest *digest, int64_t key)
{
    size_t low = 0;
    size_t high = digest->n_jobs;
    while (low < high) { /* keys descend */
        const size_t middle = low + (high - low) / 2;
        if (digest->jobs[middle].key == key) {
            return &digest->jobs[middle];
        }
        if (digest->jobs[middle].key > key) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return NULL;
}

static enum tally_status compare_jobs(const struct tally_job_digest *a, const char *name_a,
                                      const struct tally_job_digest *b, const char *name_b,
                                      struct tally_error *err)
{
    for (int i = 0; i < TALLY_N_TABLES; i++) {
        const struct tally_table_digest *x = &a->tables[i];
        const struct tally_table_digest *y = &b->tables[i];
        if (x->n_rows != y->n_rows) {
            return tally_fail(
                err, TALLY_DATA_LOSS, NULL, "job %s: %s has %lld rows of %s, %s has %lld", a->id,
                name_a, (long long)x->n_rows, TALLY_TABLE_NAMES[i], name_b, (long long)y->n_rows);
        }
        if (x->checksum != y->checksum) {
            return tally_fail(err, TALLY_DATA_LOSS, NULL, "job %s: %s and %s differ in %s", a->id,
                              name_a, name_b, TALLY_TABLE_NAMES[i]);
        }
    }
    return TALLY_OK;
}

struct side {
    const struct tally_store_digest *digest;
    const char *name;
};

/* Finds the first job that one side has and the other lacks. */
static enum tally_status find_missing(const struct side *one, const struct side *other,
                                      struct tally_error *err)
{
    for (size_t i = 0; i < one->digest->n_jobs; i++) {
        const struct tally_job_digest *job = &one->digest->jobs[i];
        const struct tally_job_digest *same = find_job(other->digest, job->key);
        if (same == NULL || strcmp(same->id, job->id) != 0) {
            return tally_fail(err, TALLY_DATA_LOSS, NULL, "job %s is in %s and not in %s", job->id,
                              one->name, other->name);
        }
    }
    return TALLY_OK;
}

enum tally_status tally_store_digest_compare(const struct tally_store_digest *a, const char *name_a,
                                             const struct tally_store_digest *b, const char *name_b,
                                             struct tally_error *err)
{
    const struct side sides[2] = {{a, name_a}, {b, name_b}};
    enum tally_status status = find_missing(&sides[0], &sides[1], err);
    if (status == TALLY_OK) {
        status = find_missing(&sides[1], &sides[0], err);
    }
    for (size_t i = 0; i < a->n_jobs && status == TALLY_OK; i++) {
        status = compare_jobs(&a->jobs[i], name_a, find_job(b, a->jobs[i].key), name_b, err);
    }
    return status;
}
