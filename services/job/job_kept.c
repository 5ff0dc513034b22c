#include "services/job/job_kept.h"

#include <string.h>

#include "services/job/job_engine.h"

struct kept_header {
    int64_t stage;
    uint64_t n; /* messages */
};

struct message_header {
    uint64_t client, payload_bits, n_payload; /* the last in bytes */
};

_Static_assert(sizeof(struct kept_header) == 16 && sizeof(struct message_header) == 24,
               "no padding");

/* Longer messages save little, and take memory. */
enum { STATE_PER_KEPT = 8 };

void job_kept_fini(struct job_kept *kept)
{
    tally_buffer_fini(&kept->messages);
}

static void forget(struct job_kept *kept)
{
    kept->round = 0;
    kept->n = 0;
    kept->messages.size = 0;
}

void job_kept_open(struct tally_job *job)
{
    struct job_kept *kept = &job->open_kept;
    forget(kept);
    if (job->memory != NULL) {
        kept->round = job->open.round;
        kept->iterate = job->progress.iterate;
        kept->stage = job->progress.stage;
    }
}

void job_kept_add(struct tally_job *job, const struct tally_update *update)
{
    struct job_kept *kept = &job->open_kept;
    const struct message_header header = {update->client, update->payload_bits,
                                          update->payload.size};
    const size_t n = sizeof header + update->payload.size;
    const size_t state = job->setting.dim * sizeof *job->x + job_memory_bytes(job);
    if (kept->round == 0) {
        return;
    }
    if (kept->messages.size + n > state / STATE_PER_KEPT ||
        tally_buffer_reserve(&kept->messages, n) != TALLY_OK) {
        tally_buffer_fini(&kept->messages);
        forget(kept);
        return;
    }
    tally_buffer_append(&kept->messages, &header, sizeof header);
    tally_buffer_append(&kept->messages, update->payload.data, update->payload.size);
    kept->n++;
}

void job_kept_close(struct tally_job *job, bool decided)
{
    const struct job_kept closed = job->closed_kept;
    job->closed_kept = job->open_kept;
    job->open_kept = closed;
    if (!decided) {
        forget(&job->closed_kept);
    }
}

size_t job_kept_bytes(const struct tally_job *job, const struct tally_saved *since)
{
    const struct job_kept *kept = &job->closed_kept;
    return kept->round == 0 || kept->round != job->progress.round ||
                   since->round != kept->round - 1 || since->iterate != kept->iterate
               ? SIZE_MAX
               : sizeof(struct kept_header) + kept->messages.size;
}

void job_kept_save(const struct tally_job *job, struct tally_buffer *out)
{
    const struct job_kept *kept = &job->closed_kept;
    const struct kept_header header = {kept->stage, kept->n};
    tally_buffer_append(out, &header, sizeof header);
    tally_buffer_append(out, kept->messages.data, kept->messages.size);
}

static enum tally_status fail_kept(struct tally_error *err, const char *what)
{
    return tally_fail(err, TALLY_DATA_LOSS, NULL, "the kept messages of a round %s", what);
}

static enum tally_status load_message(struct tally_job *job, const uint8_t **at, const uint8_t *end,
                                      struct tally_error *err)
{
    struct message_header header;
    if ((size_t)(end - *at) < sizeof header) {
        return fail_kept(err, "are cut short");
    }
    memcpy(&header, *at, sizeof header);
    *at += sizeof header;
    if (header.n_payload > (size_t)(end - *at) || header.client > UINT32_MAX) {
        return fail_kept(err, "are cut short");
    }
    const struct tally_update update = {.client = (uint32_t)header.client,
                                        .round = (uint32_t)job->open.round,
                                        .payload_bits = header.payload_bits,
                                        .payload = {*at, (size_t)header.n_payload}};
    *at += header.n_payload;
    return job_receive_again(job, &update, err);
}

/* Opens the round as it was, without what is not needed to close it. */
static enum tally_status open_again(struct tally_job *job, int64_t round, int64_t iterate,
                                    int64_t stage, struct tally_error *err)
{
    job->open = (struct tally_job_round){.round = round, .iterate = iterate};
    job->progress.round = round - 1;
    job->progress.iterate = iterate;
    job_open_sums(job);
    job_clients_open_round(&job->clients, round);
    return job->algorithm->plan(&job->setting, stage, job->memory, &job->open.plan, err);
}

enum tally_status job_kept_load(struct tally_job *job, int64_t round, int64_t iterate,
                                const uint8_t **at, const uint8_t *end, struct tally_error *err)
{
    struct kept_header header;
    struct tally_error why = TALLY_ERROR_INIT;
    struct tally_round_record record = {.round = round};
    if ((size_t)(end - *at) < sizeof header) {
        return fail_kept(err, "are cut short");
    }
    memcpy(&header, *at, sizeof header);
    *at += sizeof header;
    enum tally_status status = open_again(job, round, iterate, header.stage, &why);
    for (uint64_t i = 0; i < header.n && status == TALLY_OK; i++) {
        status = load_message(job, at, end, &why);
    }
    if (status == TALLY_OK) {
        status = job_decide(job, &record, &why);
    }
    job->open = (struct tally_job_round){0};
    job->clients.n_awaited = 0;
    if (status == TALLY_NO_MEMORY) {
        return tally_fail(err, status, NULL, "%s", why.message);
    }
    return status == TALLY_OK ? status : fail_kept(err, why.message);
}
