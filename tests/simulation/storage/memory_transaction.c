/* memory_transaction: what a store object sees, and how its writes become visible to all.
 *
 *     write     goes to a draft of the job, with the token that the store object holds
 *     commit    checks the token of every job, checks for conflicts and reserves memory; then
 *               applies all drafts, which cannot fail
 *     rollback  frees the drafts */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "storage/allocate.h"
#include "tests/simulation/storage/memory_internal.h"

/* ---- What is visible ---- */

static int64_t key_of(const struct tally_memory_draft *draft)
{
    return draft->content->job.key;
}

/* Index of the first job, or draft, whose key is >= `job_key`. */
static size_t place_of_job(const struct tally_memory_database *database, int64_t job_key)
{
    size_t low = 0;
    size_t high = database->n_jobs;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (database->jobs[middle]->content->job.key < job_key) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static size_t place_of_draft(const struct tally_memory_store *memory, int64_t job_key)
{
    size_t low = 0;
    size_t high = memory->n_drafts;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (key_of(memory->drafts[middle]) < job_key) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

struct tally_memory_job *tally_memory_job_find(const struct tally_memory_database *database,
                                               int64_t job_key)
{
    const size_t at = place_of_job(database, job_key);
    return at < database->n_jobs && database->jobs[at]->content->job.key == job_key
               ? database->jobs[at]
               : NULL;
}

static struct tally_memory_draft *find_draft(const struct tally_memory_store *memory,
                                             int64_t job_key)
{
    const size_t at = place_of_draft(memory, job_key);
    return at < memory->n_drafts && key_of(memory->drafts[at]) == job_key ? memory->drafts[at]
                                                                          : NULL;
}

bool tally_memory_find(const struct tally_memory_store *memory, int64_t job_key,
                       struct tally_memory_view *ret_view)
{
    const struct tally_memory_draft *draft = find_draft(memory, job_key);
    const struct tally_memory_job *job =
        draft != NULL ? draft->job : tally_memory_job_find(memory->database, job_key);
    if (job == NULL || (draft != NULL && draft->is_deleted)) {
        return false;
    }
    *ret_view = (struct tally_memory_view){
        .job = job,
        .content = draft != NULL ? draft->content : job->content,
        .draft = draft,
    };
    return true;
}

bool tally_memory_find_after(const struct tally_memory_store *memory, int64_t job_key,
                             struct tally_memory_view *ret_view)
{
    const struct tally_memory_database *database = memory->database;
    bool found = false;
    while (!found && job_key != INT64_MAX) {
        const size_t i = place_of_job(database, job_key + 1);
        const size_t j = place_of_draft(memory, job_key + 1);
        job_key = i < database->n_jobs ? database->jobs[i]->content->job.key : INT64_MAX;
        if (j < memory->n_drafts && key_of(memory->drafts[j]) < job_key) {
            job_key = key_of(memory->drafts[j]);
        }
        found = tally_memory_find(memory, job_key, ret_view); /* otherwise it is deleted */
    }
    return found;
}

bool tally_memory_find_before(const struct tally_memory_store *memory, int64_t job_key,
                              struct tally_memory_view *ret_view)
{
    const struct tally_memory_database *database = memory->database;
    bool found = false;
    while (!found && job_key != INT64_MIN) {
        const size_t i = place_of_job(database, job_key);
        const size_t j = place_of_draft(memory, job_key);
        job_key = i > 0 ? database->jobs[i - 1]->content->job.key : INT64_MIN;
        if (j > 0 && key_of(memory->drafts[j - 1]) > job_key) {
            job_key = key_of(memory->drafts[j - 1]);
        }
        found = tally_memory_find(memory, job_key, ret_view); /* otherwise it is deleted */
    }
    return found;
}

/* Returns a committed job with that id. */
static const struct tally_memory_job *committed_id(const struct tally_memory_database *database,
                                                   const char *id)
{
    for (size_t i = 0; i < database->n_jobs; i++) {
        if (strcmp(database->jobs[i]->content->job.id, id) == 0) {
            return database->jobs[i];
        }
    }
    return NULL;
}

static const struct tally_memory_job *
committed_idempotency_key(const struct tally_memory_database *database, const char *key)
{
    for (size_t i = 0; i < database->n_jobs; i++) {
        const char *have = database->jobs[i]->idempotency_key;
        if (have != NULL && strcmp(have, key) == 0) {
            return database->jobs[i];
        }
    }
    return NULL;
}

bool tally_memory_find_id(const struct tally_memory_store *memory, const char *id,
                          struct tally_memory_view *ret_view)
{
    for (size_t i = 0; i < memory->n_drafts; i++) {
        const struct tally_memory_draft *draft = memory->drafts[i];
        if (draft->is_new && strcmp(draft->content->job.id, id) == 0) {
            return tally_memory_find(memory, key_of(draft), ret_view);
        }
    }
    const struct tally_memory_job *job = committed_id(memory->database, id);
    return job != NULL && tally_memory_find(memory, job->content->job.key, ret_view);
}

bool tally_memory_find_idempotency_key(const struct tally_memory_store *memory, const char *key,
                                       struct tally_memory_view *ret_view)
{
    for (size_t i = 0; i < memory->n_drafts; i++) {
        const struct tally_memory_draft *draft = memory->drafts[i];
        const char *have = draft->job->idempotency_key;
        if (draft->is_new && have != NULL && strcmp(have, key) == 0) {
            return tally_memory_find(memory, key_of(draft), ret_view);
        }
    }
    const struct tally_memory_job *job = committed_idempotency_key(memory->database, key);
    return job != NULL && tally_memory_find(memory, job->content->job.key, ret_view);
}

/* ---- Writing ---- */

enum tally_status tally_memory_fail(struct tally_memory_store *memory, struct tally_error *err)
{
    memory->is_broken = true;
    return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the in-memory store");
}

enum tally_status tally_memory_require_transaction(const struct tally_memory_store *memory,
                                                   struct tally_error *err)
{
    assert(memory->in_transaction);
    if (memory->is_fenced) {
        return tally_fail(err, TALLY_FAILED_PRECONDITION, NULL,
                          "a job of this transaction is led by another replica; roll back");
    }
    if (memory->is_lost) {
        return tally_fail(err, TALLY_STORE, NULL,
                          "the connection was lost in this transaction; roll back");
    }
    return memory->is_broken ? tally_fail(err, TALLY_STORE, NULL,
                                          "an earlier write of this transaction failed; roll back")
                             : TALLY_OK;
}

enum tally_status tally_memory_add_draft(struct tally_memory_store *memory,
                                         struct tally_memory_draft *draft, struct tally_error *err)
{
    struct tally_memory_draft **drafts =
        tally_store_grow(memory->drafts, &memory->drafts_capacity, memory->n_drafts + 1,
                         sizeof(struct tally_memory_draft *));
    if (drafts == NULL) {
        tally_memory_draft_free(draft);
        return tally_memory_fail(memory, err);
    }
    memory->drafts = drafts;
    const size_t at = place_of_draft(memory, key_of(draft));
    memmove(memory->drafts + at + 1, memory->drafts + at,
            (memory->n_drafts - at) * sizeof(struct tally_memory_draft *));
    memory->drafts[at] = draft;
    memory->n_drafts++;
    return TALLY_OK;
}

enum tally_status tally_memory_draft(struct tally_memory_store *memory, int64_t job_key,
                                     struct tally_memory_draft **ret_draft, struct tally_error *err)
{
    enum tally_status status = tally_memory_require_transaction(memory, err);
    if (status != TALLY_OK) {
        return status;
    }
    struct tally_memory_draft *draft = find_draft(memory, job_key);
    if (draft != NULL && draft->is_deleted) {
        return tally_fail(err, TALLY_NOT_FOUND, NULL, "no job with key %lld", (long long)job_key);
    }
    if (draft == NULL) {
        struct tally_memory_job *job = tally_memory_job_find(memory->database, job_key);
        if (job == NULL) {
            return tally_fail(err, TALLY_NOT_FOUND, NULL, "no job with key %lld",
                              (long long)job_key);
        }
        draft = tally_memory_draft_copy(job);
        if (draft == NULL) {
            return tally_memory_fail(memory, err);
        }
        const struct tally_lease *lease = tally_lease_find(&memory->held, job_key);
        draft->token = lease != NULL ? lease->token : TALLY_NO_TOKEN;
        status = tally_memory_add_draft(memory, draft, err);
        if (status != TALLY_OK) {
            return status;
        }
    }
    draft->n_writes++;
    *ret_draft = draft;
    return TALLY_OK;
}

/* ---- Ending ---- */

/* Whether the store object may write to the job of the draft at this moment. A job that has ended
 * has no leader, and needs none to be deleted. */
static bool is_proven(const struct tally_memory_store *memory,
                      const struct tally_memory_draft *draft)
{
    return draft->is_new ||
           (draft->is_deleted && tally_job_status_is_terminal(draft->job->content->job.status)) ||
           draft->job->token == draft->token ||
           (draft->token == TALLY_NO_TOKEN && memory->number == 0 && draft->job->leader == 0);
}

/* The fence: checks every draft. */
static enum tally_status prove(struct tally_memory_store *memory, struct tally_error *err)
{
    for (size_t i = 0; i < memory->n_drafts; i++) {
        const struct tally_memory_draft *draft = memory->drafts[i];
        if (!is_proven(memory, draft)) {
            memory->is_fenced = true;
            memory->counters.fenced_writes += draft->n_writes;
            tally_lease_drop(&memory->held, key_of(draft));
            (void)tally_fail(err, TALLY_FAILED_PRECONDITION, NULL,
                             "job with key %lld is led by another replica",
                             (long long)key_of(draft));
        }
    }
    return memory->is_fenced ? TALLY_FAILED_PRECONDITION : TALLY_OK;
}

/* Whether the transaction deletes the job, whose id and key are then free. */
static bool is_deleted_here(const struct tally_memory_store *memory,
                            const struct tally_memory_job *job)
{
    const struct tally_memory_draft *draft = find_draft(memory, job->content->job.key);
    return draft != NULL && draft->is_deleted;
}

/* Whether a committed job conflicts with a new one. */
static bool is_in_the_way(const struct tally_memory_store *memory,
                          const struct tally_memory_job *job)
{
    return job != NULL && !is_deleted_here(memory, job);
}

/* Checks for conflicts with what other store objects have committed meanwhile. */
static enum tally_status find_conflict(const struct tally_memory_store *memory,
                                       struct tally_error *err)
{
    for (size_t i = 0; i < memory->n_drafts; i++) {
        const struct tally_memory_draft *draft = memory->drafts[i];
        const char *idempotency_key = draft->job->idempotency_key;
        if (draft->version != draft->job->version) {
            return tally_fail(err, TALLY_STORE, NULL,
                              "another transaction wrote to the job with key %lld meanwhile",
                              (long long)key_of(draft));
        }
        if (draft->is_new &&
            is_in_the_way(memory, committed_id(memory->database, draft->content->job.id))) {
            return tally_fail(err, TALLY_ALREADY_EXISTS, NULL, "job \"%s\" exists",
                              draft->content->job.id);
        }
        if (draft->is_new && idempotency_key != NULL &&
            is_in_the_way(memory, committed_idempotency_key(memory->database, idempotency_key))) {
            return tally_fail(err, TALLY_ALREADY_EXISTS, NULL, "idempotency key \"%s\" was used",
                              idempotency_key);
        }
    }
    return TALLY_OK;
}

static enum tally_status prepare(struct tally_memory_store *memory, struct tally_error *err)
{
    struct tally_memory_database *database = memory->database;
    struct tally_memory_job **jobs = tally_store_grow(database->jobs, &database->jobs_capacity,
                                                      database->n_jobs + memory->n_drafts + 1,
                                                      sizeof(struct tally_memory_job *));
    enum tally_status status = jobs != NULL ? TALLY_OK : TALLY_NO_MEMORY;
    database->jobs = jobs != NULL ? jobs : database->jobs;
    for (size_t i = 0; i < memory->n_drafts && status == TALLY_OK; i++) {
        status = tally_memory_draft_prepare(memory->drafts[i]);
    }
    return status == TALLY_OK ? status : tally_memory_fail(memory, err);
}

/* Memory has been reserved. The replica that inserts a job leads it. */
static void insert(struct tally_memory_store *memory, const struct tally_memory_draft *draft)
{
    struct tally_memory_database *database = memory->database;
    const size_t at = place_of_job(database, key_of(draft));
    draft->job->leader = memory->number;
    draft->job->token = TALLY_NO_TOKEN + 1;
    memmove(database->jobs + at + 1, database->jobs + at,
            (database->n_jobs - at) * sizeof(struct tally_memory_job *));
    database->jobs[at] = draft->job;
    database->n_jobs++;
    if (memory->number != 0) { /* if there is no memory, the next take() returns the job */
        (void)tally_lease_put(&memory->held, key_of(draft), draft->job->token);
    }
}

/* Whether another store object's transaction has a draft of the job. */
static bool is_drafted(const struct tally_memory_store *memory, const struct tally_memory_job *job)
{
    bool found = false;
    for (const struct tally_memory_store *each = memory->database->first; each != NULL;
         each = each->next) {
        for (size_t i = 0; each != memory && !found && i < each->n_drafts; i++) {
            found = each->drafts[i]->job == job;
        }
    }
    return found;
}

static void delete (struct tally_memory_store *memory, const struct tally_memory_draft *draft)
{
    struct tally_memory_database *database = memory->database;
    struct tally_memory_job *job = draft->job;
    const int64_t key = key_of(draft);
    const size_t at = place_of_job(database, key);
    memmove(database->jobs + at, database->jobs + at + 1,
            (database->n_jobs - at - 1) * sizeof(struct tally_memory_job *));
    database->n_jobs--;
    database->last_deleted_key =
        key > database->last_deleted_key ? key : database->last_deleted_key;
    tally_lease_drop(&memory->held, key);
    if (is_drafted(memory, job)) { /* that transaction will find a different version and fail */
        job->next_deleted = database->deleted;
        database->deleted = job;
    } else {
        tally_memory_job_free(job);
    }
}

static void apply(struct tally_memory_store *memory)
{
    for (size_t i = 0; i < memory->n_drafts; i++) {
        struct tally_memory_draft *draft = memory->drafts[i];
        const struct tally_memory_draft applied = *draft;
        if (draft->is_new) {
            insert(memory, draft);
        }
        tally_memory_draft_apply(draft);
        if (applied.is_deleted) {
            delete (memory, &applied);
        }
    }
    memory->n_drafts = 0;
}

enum tally_status tally_memory_begin(struct tally_store *store, struct tally_error *err)
{
    (void)err;
    struct tally_memory_store *memory = memory_of(store);
    assert(!memory->in_transaction);
    tally_memory_reconnect(memory);
    memory->in_transaction = true;
    memory->is_broken = memory->is_fenced = false;
    return TALLY_OK;
}

/* Writes report their errors at once, except those of the fence. */
enum tally_status tally_memory_flush(struct tally_store *store, struct tally_error *err)
{
    struct tally_memory_store *memory = memory_of(store);
    enum tally_status status = tally_memory_require_transaction(memory, err);
    return status == TALLY_OK ? prove(memory, err) : status;
}

enum tally_status tally_memory_commit(struct tally_store *store, struct tally_error *err)
{
    struct tally_memory_store *memory = memory_of(store);
    enum tally_status status = tally_memory_flush(store, err);
    if (status == TALLY_OK) {
        status = find_conflict(memory, err);
    }
    if (status == TALLY_OK) {
        status = prepare(memory, err);
    }
    if (status == TALLY_OK) {
        apply(memory);
    }
    tally_memory_rollback(store); /* releases what is left of it */
    return status;
}

void tally_memory_rollback(struct tally_store *store)
{
    struct tally_memory_store *memory = memory_of(store);
    while (memory->n_drafts > 0) {
        tally_memory_draft_free(memory->drafts[--memory->n_drafts]);
    }
    memory->in_transaction = false;
}
