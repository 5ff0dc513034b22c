#include "services/coordinator/jobs_ended.h"

#include <stdlib.h>
#include <string.h>

/* Receipts of half a million clients. */
enum { MAX_BYTES = 16 * 1024 * 1024 };

struct ended_job {
    int64_t key;
    size_t n_bytes;
    struct tally_list_node node;
    struct ended_job *next; /* in the same bucket */
    uint32_t clients;
    struct tally_receipt receipts[];
};

static struct ended_job **bucket_of(struct ended_jobs *ended, int64_t key)
{
    return &ended->buckets[(uint64_t)key & (ENDED_BUCKETS - 1)];
}

static void forget(struct ended_jobs *ended, struct ended_job *job)
{
    struct ended_job **at = bucket_of(ended, job->key);
    while (*at != job) {
        at = &(*at)->next;
    }
    *at = job->next;
    tally_list_remove(&job->node);
    ended->n_bytes -= job->n_bytes;
    free(job);
}

static void forget_oldest(struct ended_jobs *ended)
{
    forget(ended, TALLY_LIST_MEMBER(struct ended_job, node, ended->jobs.head.previous));
}

void ended_init(struct ended_jobs *ended)
{
    *ended = (struct ended_jobs){.n_bytes = 0};
    tally_list_init(&ended->jobs);
}

void ended_fini(struct ended_jobs *ended)
{
    while (!tally_list_is_empty(&ended->jobs)) {
        forget_oldest(ended);
    }
}

static struct ended_job *find(struct ended_jobs *ended, int64_t key)
{
    struct ended_job *job = *bucket_of(ended, key);
    while (job != NULL && job->key != key) {
        job = job->next;
    }
    if (job != NULL) {
        tally_list_remove(&job->node);
        tally_list_prepend(&ended->jobs, &job->node);
    }
    return job;
}

void ended_forget(struct ended_jobs *ended, int64_t key)
{
    struct ended_job *job = find(ended, key);
    if (job != NULL) {
        forget(ended, job);
    }
}

/* NULL: out of memory. */
static struct ended_job *remember(struct ended_jobs *ended, const struct hosted_job *hosted)
{
    const size_t clients = (size_t)hosted->row.clients;
    const size_t n_bytes = sizeof(struct ended_job) + clients * sizeof(struct tally_receipt);
    struct ended_job *job = calloc(1, n_bytes);
    if (job == NULL) {
        return NULL;
    }
    job->key = hosted->row.key;
    job->n_bytes = n_bytes;
    job->clients = (uint32_t)clients;
    for (uint32_t m = 0; m < job->clients; m++) {
        job->receipts[m] = tally_job_receipt(hosted->engine, m);
    }
    while (!tally_list_is_empty(&ended->jobs) && ended->n_bytes + n_bytes > MAX_BYTES) {
        forget_oldest(ended);
    }
    struct ended_job **bucket = bucket_of(ended, job->key);
    job->next = *bucket;
    *bucket = job;
    tally_list_prepend(&ended->jobs, &job->node);
    ended->n_bytes += n_bytes;
    return job;
}

/* Whether the job ended while a round was open, whose answers the store may lack. */
static bool ended_in_round(const struct tally_store_job *row)
{
    return row->status != TALLY_JOB_COMPLETED || strcmp(row->progress.stopped.rule, "seconds") == 0;
}

void ended_remember(struct ended_jobs *ended, const struct hosted_job *job)
{
    const bool is_stored =
        !ended_in_round(&job->row) || tally_job_open_round(job->engine)->received == 0;
    size_t dim; /* a job that never started has received nothing */
    const bool has_started = tally_job_point(job->engine, &dim) != NULL;
    if (has_started && is_stored && find(ended, job->row.key) == NULL) {
        (void)remember(ended, job);
    }
}

static enum tally_status fail_ended(const struct tally_store_job *row, struct tally_error *err)
{
    return tally_fail(err, TALLY_FAILED_PRECONDITION, "job_id", "the job is %s",
                      tally_job_status_name(row->status));
}

/* OK if the update may have been received, as far as the row shows. The row's bits count the
 * messages of closed rounds, but not those of the round in which the job ended. In a job that has
 * completed, that round may have evaluated the last model, without messages. */
static enum tally_status check_row(const struct tally_store_job *row,
                                   const struct tally_update *update, struct tally_error *err)
{
    const int64_t n_closed = row->progress.round;
    const bool had_open_round =
        row->started_ms != 0 && (ended_in_round(row) || update->payload_bits == 0);
    const int64_t last = had_open_round ? n_closed + 1 : n_closed;
    if (update->client >= row->clients) {
        return tally_fail(err, TALLY_OUT_OF_RANGE, "client", "client %u outside [0, %lld]",
                          update->client, (long long)row->clients - 1);
    }
    if (update->round < 1 || update->round > last ||
        update->payload.size != update->payload_bits / 8 + (update->payload_bits % 8 > 0) ||
        (update->round <= n_closed &&
         update->payload_bits > row->progress.bits.uplink.payload_bits)) {
        return fail_ended(row, err);
    }
    return TALLY_OK;
}

static enum tally_status load(struct ended_jobs *ended, struct tally_store *store,
                              const struct tally_store_job *row, struct ended_job **ret_job,
                              struct tally_error *err)
{
    struct hosted_job *hosted;
    enum tally_status status = hosted_job_load(store, row, &hosted, err);
    if (status == TALLY_OK) {
        *ret_job = remember(ended, hosted);
        hosted_job_free(hosted);
        if (*ret_job == NULL) {
            status = tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a job that has ended");
        }
    }
    return status;
}

enum tally_status ended_receive(struct ended_jobs *ended, struct tally_store *store,
                                const struct tally_store_job *row,
                                const struct tally_update *update,
                                struct tally_job_outcome *ret_outcome, struct tally_error *err)
{
    enum tally_status status = check_row(row, update, err);
    struct ended_job *job = status == TALLY_OK ? find(ended, row->key) : NULL;
    if (status == TALLY_OK && job == NULL) {
        status = load(ended, store, row, &job, err);
    }
    if (status != TALLY_OK) {
        return status;
    }
    const struct tally_receipt *receipt = &job->receipts[update->client];
    /* A failure that comes late is no other message than the one with which the round closed. */
    if (receipt->round != update->round || update->failure[0] != '\0') {
        return fail_ended(row, err);
    }
    return tally_receipt_compare(receipt, update, ret_outcome, err);
}
