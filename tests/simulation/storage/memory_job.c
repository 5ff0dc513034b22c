#include "tests/simulation/storage/memory_job.h"

#include <stdlib.h>
#include <string.h>

#include "storage/allocate.h"

static struct tally_blob *blob_new(const void *bytes, size_t n)
{
    struct tally_blob *blob = calloc(1, sizeof *blob + n);
    if (blob != NULL) {
        blob->n_owners = 1;
        blob->n = n;
        if (n > 0) {
            memcpy(blob->bytes, bytes, n);
        }
    }
    return blob;
}

static struct tally_blob *blob_share(struct tally_blob *blob)
{
    if (blob != NULL) {
        blob->n_owners++;
    }
    return blob;
}

static void blob_release(struct tally_blob *blob)
{
    if (blob != NULL && --blob->n_owners == 0) {
        free(blob);
    }
}

static void drop_changes(struct tally_memory_content *content)
{
    while (content->n_changes > 0) {
        blob_release(content->changes[--content->n_changes].bytes);
    }
}

static void content_free(struct tally_memory_content *content)
{
    if (content == NULL) {
        return;
    }
    for (size_t i = 0; i < content->n_updates; i++) {
        blob_release(content->updates[i].body);
    }
    for (size_t i = 0; i < content->n_models; i++) {
        blob_release(content->models[i].point);
    }
    drop_changes(content);
    blob_release(content->state);
    free(content->models);
    free(content->changes);
    free(content->updates);
    free(content);
}

/* NULL = no memory. */
static struct tally_memory_content *content_copy(const struct tally_memory_content *from)
{
    struct tally_memory_content *copy = calloc(1, sizeof *copy);
    if (copy == NULL) {
        return NULL;
    }
    /* Room for one more row, so that NULL can only mean that there is no memory. */
    copy->updates =
        tally_store_grow(NULL, &copy->updates_capacity, from->n_updates + 1, sizeof *copy->updates);
    copy->changes =
        tally_store_grow(NULL, &copy->changes_capacity, from->n_changes + 1, sizeof *copy->changes);
    copy->models =
        tally_store_grow(NULL, &copy->models_capacity, from->n_models + 1, sizeof *copy->models);
    if (copy->updates == NULL || copy->changes == NULL || copy->models == NULL) {
        content_free(copy);
        return NULL;
    }
    copy->job = from->job;
    copy->state = blob_share(from->state);
    for (; copy->n_changes < from->n_changes; copy->n_changes++) {
        copy->changes[copy->n_changes] = from->changes[copy->n_changes];
        blob_share(copy->changes[copy->n_changes].bytes);
    }
    for (; copy->n_updates < from->n_updates; copy->n_updates++) {
        copy->updates[copy->n_updates] = from->updates[copy->n_updates];
        blob_share(copy->updates[copy->n_updates].body);
    }
    for (; copy->n_models < from->n_models; copy->n_models++) {
        copy->models[copy->n_models] = from->models[copy->n_models];
        blob_share(copy->models[copy->n_models].point);
    }
    return copy;
}

/* NULL for NULL, or if there is no memory. */
static char *copy_text(const char *text)
{
    const size_t n = text != NULL ? strlen(text) + 1 : 0;
    char *copy = text != NULL ? calloc(1, n) : NULL;
    return copy != NULL ? memcpy(copy, text, n) : NULL;
}

struct tally_memory_draft *tally_memory_draft_insert(const struct tally_store_job *row,
                                                     const char *document, size_t n_document,
                                                     const char *idempotency_key,
                                                     uint64_t request_digest)
{
    struct tally_memory_job *job = calloc(1, sizeof *job);
    struct tally_memory_draft *draft = calloc(1, sizeof *draft);
    if (job == NULL || draft == NULL) {
        free(job);
        free(draft);
        return NULL;
    }
    draft->job = job;
    draft->is_new = true;
    draft->content = content_copy(&(struct tally_memory_content){.job = *row});
    job->document = blob_new(document, n_document);
    job->idempotency_key = copy_text(idempotency_key);
    job->request_digest = request_digest;
    if (draft->content == NULL || job->document == NULL ||
        (idempotency_key != NULL && job->idempotency_key == NULL)) {
        tally_memory_draft_free(draft);
        return NULL;
    }
    return draft;
}

struct tally_memory_draft *tally_memory_draft_copy(struct tally_memory_job *job)
{
    struct tally_memory_draft *draft = calloc(1, sizeof *draft);
    if (draft == NULL) {
        return NULL;
    }
    draft->job = job;
    draft->version = job->version;
    draft->content = content_copy(job->content);
    if (draft->content == NULL) {
        tally_memory_draft_free(draft);
        return NULL;
    }
    return draft;
}

void tally_memory_draft_free(struct tally_memory_draft *draft)
{
    if (draft != NULL) {
        content_free(draft->content);
        free(draft->rounds.records);
        if (draft->is_new) {
            tally_memory_job_free(draft->job);
        }
        free(draft);
    }
}

void tally_memory_job_free(struct tally_memory_job *job)
{
    if (job != NULL) {
        content_free(job->content);
        free(job->rounds.records);
        blob_release(job->document);
        free(job->idempotency_key);
        free(job);
    }
}

/* Index of the first record whose round is >= `round`. */
static size_t place_of(const struct tally_memory_rounds *rounds, int64_t round)
{
    size_t low = 0;
    size_t high = rounds->n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (rounds->records[middle].round < round) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static bool has_round(const struct tally_memory_rounds *rounds, int64_t round)
{
    const size_t at = place_of(rounds, round);
    return at < rounds->n && rounds->records[at].round == round;
}

const struct tally_round_record *tally_memory_round_after(const struct tally_memory_rounds *rounds,
                                                          int64_t round)
{
    const size_t at = round < INT64_MAX ? place_of(rounds, round + 1) : rounds->n;
    return at < rounds->n ? &rounds->records[at] : NULL;
}

/* Makes room for n records. */
static enum tally_status reserve_rounds(struct tally_memory_rounds *rounds, size_t n)
{
    struct tally_round_record *records =
        tally_store_grow(rounds->records, &rounds->capacity, n, sizeof *records);
    if (records == NULL) {
        return TALLY_NO_MEMORY;
    }
    rounds->records = records;
    return TALLY_OK;
}

/* Replaces the record of the same round, if there is one. Precondition: there is room for the
 * record. */
static void put_round(struct tally_memory_rounds *rounds, const struct tally_round_record *record)
{
    struct tally_round_record *at = &rounds->records[place_of(rounds, record->round)];
    if (has_round(rounds, record->round)) {
        *at = *record;
        return;
    }
    memmove(at + 1, at, (size_t)(rounds->records + rounds->n - at) * sizeof *at);
    *at = *record;
    rounds->n++;
}

enum tally_status tally_memory_draft_prepare(struct tally_memory_draft *draft)
{
    struct tally_memory_rounds *rounds = &draft->job->rounds;
    return draft->rounds.n > 0 ? reserve_rounds(rounds, rounds->n + draft->rounds.n) : TALLY_OK;
}

void tally_memory_draft_apply(struct tally_memory_draft *draft)
{
    struct tally_memory_job *job = draft->job;
    content_free(job->content);
    job->content = draft->content;
    for (size_t i = 0; i < draft->rounds.n; i++) {
        put_round(&job->rounds, &draft->rounds.records[i]);
    }
    job->version++;
    free(draft->rounds.records);
    free(draft);
}

enum tally_status tally_memory_draft_put_state(struct tally_memory_draft *draft, const void *bytes,
                                               size_t n)
{
    struct tally_blob *state = blob_new(bytes, n);
    if (state == NULL) {
        return TALLY_NO_MEMORY;
    }
    blob_release(draft->content->state);
    draft->content->state = state;
    drop_changes(draft->content);
    return TALLY_OK;
}

enum tally_status tally_memory_draft_add_change(struct tally_memory_draft *draft, int64_t round,
                                                const void *bytes, size_t n)
{
    struct tally_memory_content *now = draft->content;
    size_t at = now->n_changes;
    while (at > 0 && now->changes[at - 1].round > round) {
        at--;
    }
    if (at > 0 && now->changes[at - 1].round == round) {
        return TALLY_ALREADY_EXISTS;
    }
    struct tally_memory_change *changes =
        tally_store_grow(now->changes, &now->changes_capacity, now->n_changes + 1, sizeof *changes);
    if (changes == NULL) {
        return TALLY_NO_MEMORY;
    }
    now->changes = changes;
    struct tally_blob *blob = blob_new(bytes, n);
    if (blob == NULL) {
        return TALLY_NO_MEMORY;
    }
    memmove(changes + at + 1, changes + at, (now->n_changes - at) * sizeof *changes);
    changes[at] = (struct tally_memory_change){round, blob};
    now->n_changes++;
    return TALLY_OK;
}

enum tally_status tally_memory_draft_add_update(struct tally_memory_draft *draft,
                                                const struct tally_store_update *update)
{
    struct tally_memory_content *now = draft->content;
    size_t at = 0;
    while (at < now->n_updates &&
           (now->updates[at].round < update->round || (now->updates[at].round == update->round &&
                                                       now->updates[at].client < update->client))) {
        at++;
    }
    if (at < now->n_updates && now->updates[at].round == update->round &&
        now->updates[at].client == update->client) {
        return TALLY_ALREADY_EXISTS;
    }
    struct tally_memory_update *updates =
        tally_store_grow(now->updates, &now->updates_capacity, now->n_updates + 1, sizeof *updates);
    if (updates == NULL) {
        return TALLY_NO_MEMORY;
    }
    now->updates = updates;
    struct tally_blob *body = blob_new(update->body, update->n_body);
    if (body == NULL) {
        return TALLY_NO_MEMORY;
    }
    memmove(now->updates + at + 1, now->updates + at, (now->n_updates - at) * sizeof *now->updates);
    now->updates[at] = (struct tally_memory_update){update->round, update->client, body};
    now->n_updates++;
    return TALLY_OK;
}

enum tally_status tally_memory_draft_add_round(struct tally_memory_draft *draft,
                                               const struct tally_round_record *record)
{
    if (has_round(&draft->job->rounds, record->round) || has_round(&draft->rounds, record->round)) {
        return TALLY_ALREADY_EXISTS;
    }
    const enum tally_status status = reserve_rounds(&draft->rounds, draft->rounds.n + 1);
    if (status == TALLY_OK) {
        put_round(&draft->rounds, record);
    }
    return status;
}

enum tally_status tally_memory_draft_update_round(struct tally_memory_draft *draft,
                                                  const struct tally_round_record *record)
{
    if (!has_round(&draft->job->rounds, record->round) &&
        !has_round(&draft->rounds, record->round)) {
        return TALLY_NOT_FOUND;
    }
    const enum tally_status status = reserve_rounds(&draft->rounds, draft->rounds.n + 1);
    if (status == TALLY_OK) {
        put_round(&draft->rounds, record);
    }
    return status;
}

enum tally_status tally_memory_draft_put_model(struct tally_memory_draft *draft,
                                               const struct tally_store_model *model,
                                               const void *bytes)
{
    struct tally_memory_content *now = draft->content;
    struct tally_memory_model *models =
        tally_store_grow(now->models, &now->models_capacity, now->n_models + 1, sizeof *models);
    struct tally_blob *point = models != NULL ? blob_new(bytes, (size_t)model->n_bytes) : NULL;
    now->models = models != NULL ? models : now->models;
    if (point == NULL) {
        return TALLY_NO_MEMORY;
    }
    size_t at = 0;
    while (at < now->n_models && models[at].row.slot < model->slot) {
        at++;
    }
    if (at < now->n_models && models[at].row.slot == model->slot) {
        blob_release(models[at].point);
    } else {
        memmove(models + at + 1, models + at, (now->n_models - at) * sizeof *models);
        now->n_models++;
    }
    models[at] = (struct tally_memory_model){*model, point};
    return TALLY_OK;
}

void tally_memory_draft_drop_updates(struct tally_memory_draft *draft, int64_t first_round,
                                     int64_t last_round)
{
    struct tally_memory_content *now = draft->content;
    size_t first = 0;
    while (first < now->n_updates && now->updates[first].round < first_round) {
        first++;
    }
    size_t end = first;
    while (end < now->n_updates && now->updates[end].round <= last_round) {
        blob_release(now->updates[end++].body);
    }
    memmove(now->updates + first, now->updates + end,
            (now->n_updates - end) * sizeof *now->updates);
    now->n_updates -= end - first;
}
