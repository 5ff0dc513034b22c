#include "storage/memory_job.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_ROUNDS = 16 };

static struct tally_blob *blob_new(const void *bytes, size_t n)
{
    struct tally_blob *blob = malloc(sizeof *blob + n);
    if (blob != NULL) {
        blob->n_owners = 1;
        blob->n = n;
        if (n > 0) {
            memcpy(blob->bytes, bytes, n);
        }
    }
    return blob;
}

static void blob_share(struct tally_blob *blob)
{
    if (blob != NULL) {
        blob->n_owners++;
    }
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
    drop_changes(content);
    blob_release(content->state);
    free(content->changes);
    free(content->updates);
    free(content);
}

/* NULL without memory. One element more than needed, so that NULL means only that. */
static struct tally_memory_content *content_copy(const struct tally_memory_content *from)
{
    struct tally_memory_content *copy = malloc(sizeof *copy);
    struct tally_memory_update *updates = calloc(from->n_updates + 1, sizeof *updates);
    struct tally_memory_change *changes = calloc(from->n_changes + 1, sizeof *changes);
    if (copy == NULL || updates == NULL || changes == NULL) {
        free(copy);
        free(updates);
        free(changes);
        return NULL;
    }
    *copy = *from;
    copy->updates = updates;
    copy->changes = changes;
    blob_share(copy->state);
    for (size_t i = 0; i < from->n_changes; i++) {
        changes[i] = from->changes[i];
        blob_share(changes[i].bytes);
    }
    for (size_t i = 0; i < from->n_updates; i++) {
        updates[i] = from->updates[i];
        blob_share(updates[i].body);
    }
    return copy;
}

struct tally_memory_job *tally_memory_job_new(const struct tally_store_job *row,
                                              const char *document, size_t n_document,
                                              const char *idempotency_key, uint64_t request_digest)
{
    struct tally_memory_job *job = calloc(1, sizeof *job);
    if (job == NULL) {
        return NULL;
    }
    job->now = content_copy(&(struct tally_memory_content){.job = *row});
    job->document = blob_new(document, n_document);
    job->idempotency_key = idempotency_key != NULL ? strdup(idempotency_key) : NULL;
    job->request_digest = request_digest;
    if (job->now == NULL || job->document == NULL ||
        (idempotency_key != NULL && job->idempotency_key == NULL)) {
        tally_memory_job_free(job);
        return NULL;
    }
    return job;
}

void tally_memory_job_free(struct tally_memory_job *job)
{
    if (job != NULL) {
        content_free(job->now);
        content_free(job->before);
        free(job->rounds);
        blob_release(job->document);
        free(job->idempotency_key);
        free(job);
    }
}

enum tally_status tally_memory_job_touch(struct tally_memory_job *job)
{
    if (job->before == NULL) {
        job->before = content_copy(job->now);
    }
    return job->before != NULL ? TALLY_OK : TALLY_NO_MEMORY;
}

/* Settles the rounds of the bracket; from the end, where they mostly are. */
static void settle_rounds(struct tally_memory_job *job, bool keep)
{
    for (size_t i = job->n_rounds; job->n_new_rounds > 0; i--) {
        struct tally_memory_round *round = &job->rounds[i - 1];
        if (!round->is_new) {
            continue;
        }
        job->n_new_rounds--;
        round->is_new = false;
        if (!keep) {
            memmove(round, round + 1, (job->n_rounds - i) * sizeof *round);
            job->n_rounds--;
        }
    }
}

void tally_memory_job_commit(struct tally_memory_job *job)
{
    content_free(job->before);
    job->before = NULL;
    settle_rounds(job, true);
}

void tally_memory_job_rollback(struct tally_memory_job *job)
{
    if (job->before != NULL) {
        content_free(job->now);
        job->now = job->before;
        job->before = NULL;
    }
    settle_rounds(job, false);
}

enum tally_status tally_memory_job_put_state(struct tally_memory_job *job, const void *bytes,
                                             size_t n)
{
    assert(job->before != NULL);
    struct tally_blob *state = blob_new(bytes, n);
    if (state == NULL) {
        return TALLY_NO_MEMORY;
    }
    blob_release(job->now->state);
    job->now->state = state;
    drop_changes(job->now);
    return TALLY_OK;
}

enum tally_status tally_memory_job_add_change(struct tally_memory_job *job, int64_t round,
                                              const void *bytes, size_t n)
{
    assert(job->before != NULL);
    struct tally_memory_content *now = job->now;
    size_t at = now->n_changes;
    while (at > 0 && now->changes[at - 1].round > round) {
        at--;
    }
    if (at > 0 && now->changes[at - 1].round == round) {
        return TALLY_ALREADY_EXISTS;
    }
    struct tally_memory_change *changes =
        realloc(now->changes, (now->n_changes + 1) * sizeof *changes);
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

enum tally_status tally_memory_job_add_update(struct tally_memory_job *job,
                                              const struct tally_store_update *update)
{
    assert(job->before != NULL);
    struct tally_memory_content *now = job->now;
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
        realloc(now->updates, (now->n_updates + 1) * sizeof *updates);
    if (updates == NULL) {
        return TALLY_NO_MEMORY;
    }
    now->updates = updates;
    struct tally_blob *body = blob_new(update->body, update->n_body);
    if (body == NULL) {
        return TALLY_NO_MEMORY;
    }
    memmove(updates + at + 1, updates + at, (now->n_updates - at) * sizeof *updates);
    updates[at] = (struct tally_memory_update){update->round, update->client, body};
    now->n_updates++;
    return TALLY_OK;
}

enum tally_status tally_memory_job_add_round(struct tally_memory_job *job,
                                             const struct tally_round_record *record)
{
    assert(job->before != NULL);
    size_t at = job->n_rounds;
    while (at > 0 && job->rounds[at - 1].record.round > record->round) {
        at--;
    }
    if (at > 0 && job->rounds[at - 1].record.round == record->round) {
        return TALLY_ALREADY_EXISTS;
    }
    if (job->n_rounds == job->rounds_capacity) {
        const size_t capacity = job->n_rounds == 0 ? FIRST_ROUNDS : 2 * job->n_rounds;
        struct tally_memory_round *rounds = realloc(job->rounds, capacity * sizeof *rounds);
        if (rounds == NULL) {
            return TALLY_NO_MEMORY;
        }
        job->rounds = rounds;
        job->rounds_capacity = capacity;
    }
    struct tally_memory_round *round = &job->rounds[at];
    memmove(round + 1, round, (job->n_rounds - at) * sizeof *round);
    *round = (struct tally_memory_round){.record = *record, .is_new = true};
    job->n_rounds++;
    job->n_new_rounds++;
    return TALLY_OK;
}

void tally_memory_job_drop_updates(struct tally_memory_job *job, int64_t through_round)
{
    assert(job->before != NULL);
    struct tally_memory_content *now = job->now;
    size_t n = 0;
    while (n < now->n_updates && now->updates[n].round <= through_round) {
        blob_release(now->updates[n++].body);
    }
    now->n_updates -= n;
    memmove(now->updates, now->updates + n, now->n_updates * sizeof *now->updates);
}
