/* job_saving: a job's state as bytes, and back.
 *
 * A state is a snapshot followed by any number of changes. Each change leads from the round of the
 * snapshot or change before it to a later round. If the point is long, a change is far shorter than
 * a snapshot, because it has the broadcasts instead of the point. The byte order is that of the
 * machine, little-endian:
 *
 *     snapshot   u32 dim, clients
 *                f64 x[dim]
 *                i64 round
 *                per client: i64 round, u64 digest, formula_bits, payload_bits
 *                the scaling of the features, if a survey gives it (job_survey.h)
 *                the memory of an algorithm that has one (algorithm.h)
 *                u64 tally_checksum64 of all that
 *
 *     change     u64 n_broadcasts; i64 round, iterate                  those that it leads to
 *                per broadcast: f64 step; u64 intervals, payload_bits, n_payload; the payload
 *                per client: as above
 *                u64 tally_checksum64 of the change so far
 *
 * If the algorithm has a memory, a change is that of one round, and has instead of the broadcasts
 *
 *                i64 stage before the round; u64 n_messages
 *                per message: u64 client, payload_bits, n_payload; the payload
 *
 * No change begins before the survey has closed, so none has the scaling.
 *
 * To load it, the round is closed once more with these messages (job_kept.h).
 *
 * The state of a job with cohorts (job_cohort.h) must not grow with the number of clients. There
 * "per client" means each client of the cohort, in order, for each of the last 16 closed rounds or,
 * in a change, for each of its rounds (job_clients.h). The algorithms of these jobs send a
 * broadcast in every round, except in a last round that is cut, so iterate k is reached after k - 1
 * closed rounds.
 *
 * A change of the format needs a new schema version (storage/round_columns.h).
 *
 * The checksum of a snapshot is that of header and point, which job_sum_point() computes whenever
 * the point changes (with the point's own checksum, in one pass), continued over the rest. */
#include <string.h>

#include "services/job/job_engine.h"

enum { CHECKSUM_BYTES = 8 };
_Static_assert((int)JOB_RECEIPT_ROUNDS >= (int)JOB_BROADCASTS_MOST,
               "a change has receipts that are kept");

struct snapshot_header {
    uint32_t dim, clients;
};

struct change_header {
    uint64_t n_broadcasts; /* at most JOB_BROADCASTS_MOST */
    int64_t round, iterate;
};

struct broadcast_head {
    double step;
    uint64_t intervals, payload_bits, n_payload; /* the last in bytes */
};

_Static_assert(sizeof(struct snapshot_header) == 8 && sizeof(struct change_header) == 24 &&
                   sizeof(struct broadcast_head) == 32,
               "no padding");

static bool has_cohorts(const struct tally_job *job)
{
    return job->setting.cohort < job->setting.clients;
}

static struct snapshot_header snapshot_header(const struct tally_job *job)
{
    return (struct snapshot_header){(uint32_t)job->setting.dim, job->clients.n};
}

/* The number of rounds whose receipts a snapshot after `round` has. */
static int64_t receipt_rounds(int64_t round)
{
    return round < JOB_RECEIPT_ROUNDS ? round : JOB_RECEIPT_ROUNDS;
}

/* The number of rounds in a change from iterate `since` to `round`; arbitrary if these are
 * damaged. */
static int64_t changed_rounds(int64_t since, int64_t round)
{
    return (int64_t)((uint64_t)round - (uint64_t)since + 1);
}

/* Bytes that follow the point in a snapshot after `round`, without the checksum. */
static size_t rest_bytes(const struct tally_job *job, int64_t round)
{
    return sizeof round + job_clients_saved_bytes(&job->clients, receipt_rounds(round)) +
           job_survey_saved_bytes(&job->survey) + job_memory_bytes(job);
}

uint64_t job_sum_point(struct tally_job *job)
{
    const struct snapshot_header header = snapshot_header(job);
    struct tally_checksum point = tally_checksum_begin(TALLY_CHECKSUM_SEED);
    job->saved = tally_checksum_begin(TALLY_CHECKSUM_SEED);
    tally_checksum_add(&job->saved, &header, sizeof header);
    tally_checksum_add_to_both(&job->saved, &point, job->x, job->setting.dim * sizeof *job->x);
    return tally_checksum_end(&point);
}

/* Saving. */

enum tally_status tally_job_save_state(const struct tally_job *job, struct tally_buffer *out)
{
    const struct snapshot_header header = snapshot_header(job);
    const size_t x_bytes = job->setting.dim * sizeof *job->x;
    const size_t start = out->size;
    if (!job_has_started(job)) {
        return TALLY_FAILED_PRECONDITION;
    }
    const int64_t round = job->progress.round;
    struct tally_checksum sum = job->saved;
    enum tally_status status = tally_buffer_reserve(
        out, sizeof header + x_bytes + rest_bytes(job, round) + CHECKSUM_BYTES);
    if (status != TALLY_OK) {
        return status;
    }
    tally_buffer_append(out, &header, sizeof header);
    tally_buffer_append(out, job->x, x_bytes);
    tally_buffer_append(out, &round, sizeof round);
    job_clients_save(&job->clients, round, receipt_rounds(round), out);
    job_survey_save(&job->survey, out);
    tally_buffer_append(out, job->memory, job_memory_bytes(job));
    tally_checksum_add(&sum, out->data + start + sizeof header + x_bytes, rest_bytes(job, round));
    const uint64_t checksum = tally_checksum_end(&sum);
    return tally_buffer_append(out, &checksum, sizeof checksum);
}

enum tally_status tally_job_make_state(const struct tally_job_spec *spec,
                                       const struct tally_progress *progress, const char *schedule,
                                       const double *x, struct tally_buffer *out,
                                       struct tally_error *err)
{
    struct tally_job *job;
    enum tally_status status = job_make_queued(spec, &job, err);
    if (status != TALLY_OK) {
        return status;
    }
    status = job_make_vectors(job, err);
    if (status == TALLY_OK) {
        job_begin_memory(job, 0, schedule);
        memcpy(job->x, x, job->setting.dim * sizeof *x);
        job->progress = *progress;
        (void)job_sum_point(job);
        status = tally_job_save_state(job, out);
    }
    tally_job_free(job);
    return status == TALLY_OK ? status : tally_fail(err, status, NULL, "no memory for a state");
}

/* Bytes of the broadcasts in a change; SIZE_MAX if they are not kept. */
static size_t broadcasts_bytes(const struct tally_job *job, int64_t since)
{
    if (since > job->progress.iterate || since + 1 < job->broadcasts.oldest) {
        return SIZE_MAX;
    }
    size_t n = 0;
    for (int64_t k = since + 1; k <= job->progress.iterate; k++) {
        n += sizeof(struct broadcast_head) + tally_job_broadcast(job, k)->payload.size;
    }
    return n;
}

size_t tally_job_change_bytes(const struct tally_job *job, const struct tally_saved *since)
{
    const size_t n =
        job->memory != NULL ? job_kept_bytes(job, since) : broadcasts_bytes(job, since->iterate);
    return n == SIZE_MAX
               ? n
               : sizeof(struct change_header) + n +
                     job_clients_saved_bytes(&job->clients,
                                             changed_rounds(since->iterate, job->progress.round)) +
                     CHECKSUM_BYTES;
}

static void save_broadcasts(const struct tally_job *job, int64_t since, struct tally_buffer *out)
{
    for (int64_t k = since + 1; k <= job->progress.iterate; k++) {
        const struct tally_message *broadcast = tally_job_broadcast(job, k);
        const struct broadcast_head head = {broadcast->grid.step, broadcast->grid.intervals,
                                            broadcast->bits.payload_bits, broadcast->payload.size};
        tally_buffer_append(out, &head, sizeof head);
        tally_buffer_append(out, broadcast->payload.data, broadcast->payload.size);
    }
}

enum tally_status tally_job_save_change(const struct tally_job *job,
                                        const struct tally_saved *since, struct tally_buffer *out,
                                        struct tally_error *err)
{
    const int64_t iterate = job->progress.iterate;
    const size_t n = tally_job_change_bytes(job, since);
    if (n == SIZE_MAX) {
        return tally_fail(err, TALLY_FAILED_PRECONDITION, NULL,
                          "the messages from round %lld to %lld are not kept",
                          (long long)since->round, (long long)job->progress.round);
    }
    const size_t start = out->size;
    if (tally_buffer_reserve(out, n) != TALLY_OK) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for %zu bytes of state", n);
    }
    const struct change_header header = {(uint64_t)(iterate - since->iterate), job->progress.round,
                                         iterate};
    tally_buffer_append(out, &header, sizeof header);
    if (job->memory != NULL) {
        job_kept_save(job, out);
    } else {
        save_broadcasts(job, since->iterate, out);
    }
    job_clients_save(&job->clients, header.round, changed_rounds(since->iterate, header.round),
                     out);
    const uint64_t checksum = tally_checksum64(out->data + start, out->size - start);
    return tally_buffer_append(out, &checksum, sizeof checksum);
}

/* Loading. */

static enum tally_status fail_change(struct tally_error *err, const char *what)
{
    return tally_fail(err, TALLY_DATA_LOSS, NULL, "a stored change of the state %s", what);
}

/* Applies the stored broadcast at *at to the point and advances *at. `end` is one past the last
 * readable byte. */
static enum tally_status load_broadcast(struct tally_job *job, const uint8_t **at,
                                        const uint8_t *end, struct tally_error *err)
{
    struct broadcast_head head;
    if ((size_t)(end - *at) < sizeof head) {
        return fail_change(err, "is cut short");
    }
    memcpy(&head, *at, sizeof head);
    *at += sizeof head;
    if (head.n_payload > (size_t)(end - *at) || head.intervals > UINT32_MAX) {
        return fail_change(err, "is cut short");
    }
    const struct tally_message_view view = {
        .payload = *at,
        .n_payload = head.n_payload,
        .payload_bits = head.payload_bits,
        .grid = {.step = head.step, .intervals = (uint32_t)head.intervals}};
    *at += head.n_payload;
    struct tally_error why = TALLY_ERROR_INIT;
    enum tally_status status =
        job->algorithm->apply(&job->setting, &view, &job->scratch, job->x, &why);
    if (status == TALLY_NO_MEMORY) {
        return tally_fail(err, status, NULL, "%s", why.message);
    }
    return status == TALLY_OK ? status : fail_change(err, why.message);
}

/* Takes the steps of a change, which are at *at, and advances *at. */
static enum tally_status load_steps(struct tally_job *job, const struct change_header *header,
                                    const uint8_t **at, const uint8_t *end, struct tally_error *err)
{
    const int64_t since = (int64_t)((uint64_t)header->iterate - header->n_broadcasts);
    enum tally_status status = TALLY_OK;
    if (job->memory != NULL) {
        status = job_kept_load(job, header->round, since, at, end, err);
        return status != TALLY_OK || job->progress.iterate == header->iterate
                   ? status
                   : fail_change(err, "leads to another iterate");
    }
    for (uint64_t i = 0; i < header->n_broadcasts && status == TALLY_OK; i++) {
        status = load_broadcast(job, at, end, err);
    }
    return status;
}

/* Applies the change at *at and advances *at. *last is the header of the previous change or, with
 * an unknown iterate of 0, the snapshot's; on success it becomes the header of this change. */
static enum tally_status load_change(struct tally_job *job, const uint8_t **at, const uint8_t *end,
                                     struct change_header *last, struct tally_error *err)
{
    const uint8_t *const start = *at;
    struct change_header header;
    if ((size_t)(end - start) < sizeof header + CHECKSUM_BYTES) {
        return fail_change(err, "is cut short");
    }
    memcpy(&header, start, sizeof header);
    if (header.n_broadcasts > JOB_BROADCASTS_MOST || header.round <= last->round ||
        (job->memory != NULL && header.round != last->round + 1) ||
        (last->iterate > 0 && header.iterate != last->iterate + (int64_t)header.n_broadcasts)) {
        return fail_change(err, "does not follow what is before it");
    }
    *at = start + sizeof header;
    enum tally_status status = load_steps(job, &header, at, end, err);
    const uint64_t since = (uint64_t)header.iterate - header.n_broadcasts;
    const int64_t n_rounds = changed_rounds((int64_t)since, header.round);
    const size_t clients_bytes = job_clients_saved_bytes(&job->clients, n_rounds);
    if (status == TALLY_OK && has_cohorts(job) &&
        (n_rounds < 0 || n_rounds > JOB_BROADCASTS_MOST + 1 || n_rounds > header.round)) {
        status = fail_change(err, "has rounds without broadcasts");
    }
    if (status == TALLY_OK && (size_t)(end - *at) < clients_bytes + CHECKSUM_BYTES) {
        status = fail_change(err, "is cut short");
    }
    if (status != TALLY_OK) {
        return status;
    }
    job_clients_load(&job->clients, header.round, n_rounds, *at);
    *at += clients_bytes;
    uint64_t checksum;
    memcpy(&checksum, *at, sizeof checksum);
    if (checksum != tally_checksum64(start, (size_t)(*at - start))) {
        return fail_change(err, "does not match its checksum");
    }
    *at += CHECKSUM_BYTES;
    *last = header;
    return TALLY_OK;
}

/* Applies all changes since the snapshot after `round`. They must lead to the progress. */
static enum tally_status load_changes(struct tally_job *job, int64_t round, const uint8_t *at,
                                      size_t n, struct tally_error *err)
{
    const uint8_t *const end = at + n;
    const struct tally_progress progress = job->progress;
    struct change_header last = {.round = round};
    enum tally_status status = TALLY_OK;
    while (at < end && status == TALLY_OK) {
        status = load_change(job, &at, end, &last, err);
    }
    job->progress = progress; /* closing rounds again has changed some of it */
    if (status == TALLY_OK && n > 0 &&
        (last.round != progress.round || last.iterate != progress.iterate)) {
        return fail_change(err, "does not lead to the progress");
    }
    return status;
}

/* The round after which a snapshot of n bytes was made; -1 if the snapshot is cut short. */
static int64_t round_of_snapshot(const struct tally_job *job, const uint8_t *state, size_t n)
{
    const size_t at = sizeof(struct snapshot_header) + job->setting.dim * sizeof *job->x;
    int64_t round = -1;
    if (n >= at + sizeof round) {
        memcpy(&round, state + at, sizeof round);
    }
    return round;
}

static enum tally_status load_state(struct tally_job *job, const uint8_t *state, size_t n,
                                    struct tally_error *err)
{
    const size_t x_bytes = job->setting.dim * sizeof *job->x;
    const int64_t round = round_of_snapshot(job, state, n);
    const size_t body =
        sizeof(struct snapshot_header) + x_bytes + (round < 0 ? n : rest_bytes(job, round));
    struct snapshot_header header = {0};
    if (n >= body + CHECKSUM_BYTES) {
        memcpy(&header, state, sizeof header);
    }
    if (header.dim != job->setting.dim || header.clients != job->clients.n) {
        return tally_fail(err, TALLY_DATA_LOSS, NULL,
                          "stored state of %zu bytes does not fit the job", n);
    }
    uint64_t checksum;
    memcpy(&checksum, state + body, sizeof checksum);
    if (checksum != tally_checksum64(state, body)) {
        return tally_fail(err, TALLY_DATA_LOSS, NULL, "stored state does not match its checksum");
    }
    memcpy(job->x, state + sizeof(struct snapshot_header), x_bytes);
    const uint8_t *at = state + sizeof(struct snapshot_header) + x_bytes + sizeof round;
    job_clients_load(&job->clients, round, receipt_rounds(round), at);
    at += job_clients_saved_bytes(&job->clients, receipt_rounds(round));
    if (job_survey_load(&job->survey, at, err) != TALLY_OK) {
        return TALLY_DATA_LOSS;
    }
    if (job->memory != NULL) {
        memcpy(job->memory, state + body - job_memory_bytes(job), job_memory_bytes(job));
        if (!job->algorithm->memory.is_valid(&job->setting, job->memory)) {
            return tally_fail(err, TALLY_DATA_LOSS, NULL,
                              "the stored memory of algorithm %s does not fit the job",
                              job->algorithm->name);
        }
    }
    const size_t whole = body + CHECKSUM_BYTES;
    return load_changes(job, round, state + whole, n - whole, err);
}

/* Adopts the estimates of a stored progress, if its opening round has closed. Returns false if they
 * cannot be of this job. */
static bool adopt_estimates(struct tally_job *job, const struct tally_progress *progress)
{
    return !job_is_opening(job) || progress->stage == 0 ||
           job->algorithm->opening->adopt(&job->setting, &progress->estimates, &job->params);
}

/* Whether a stored progress can be one of this job. */
static bool progress_fits(const struct tally_job *job, const struct tally_progress *progress,
                          bool has_state)
{
    bool open = job_is_open(job);
    bool complete = job->status == TALLY_JOB_COMPLETED;
    return progress->round >= 0 && progress->time_step >= 0 &&
           progress->time_step <= job->spec.horizon &&
           (!open || progress->has_f_star == job_has_regret(job)) &&
           (!complete || progress->time_step == job->spec.horizon ||
            progress->stopped.rule[0] != '\0') &&
           (has_state ? progress->iterate >= 1 : progress->round == 0);
}

static enum tally_status load(struct tally_job *job, const struct tally_progress *progress,
                              const uint8_t *state, size_t n, struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    if (!progress_fits(job, progress, n > 0) || !adopt_estimates(job, progress)) {
        return tally_fail(err, TALLY_DATA_LOSS, NULL,
                          "stored progress (round %lld, time step %lld) does not fit the job",
                          (long long)progress->round, (long long)progress->time_step);
    }
    if (n > 0) {
        job->progress = *progress;
        status = load_state(job, state, n, err);
        job_broadcasts_init(&job->broadcasts, progress->iterate); /* rounds closed again add some */
    } else { /* before the first round closed: the initial point */
        job->progress.f_star = progress->f_star;
        job->progress.has_f_star = progress->has_f_star;
        if (job_has_started(job)) {
            job_begin_memory(job, 0, "");
        } else {
            job->progress.x_checksum = progress->x_checksum;
        }
    }
    if (status == TALLY_OK && job_has_started(job) &&
        job->progress.x_checksum != job_sum_point(job)) {
        status = tally_fail(err, TALLY_DATA_LOSS, NULL, "stored point does not match its checksum");
    }
    return status;
}

enum tally_status tally_job_restore(const struct tally_job_spec *spec, enum tally_job_status status,
                                    const struct tally_progress *progress, const uint8_t *state,
                                    size_t n, struct tally_job **ret_job, struct tally_error *err)
{
    struct tally_job *job;
    enum tally_status result = job_make_queued(spec, &job, err);
    if (result != TALLY_OK) {
        return result;
    }
    const bool is_given = tally_initial_point_is_given(&spec->initial_point);
    job->status = status;
    if (n == 0 && is_given && job_is_open(job)) {
        result = tally_fail(err, TALLY_DATA_LOSS, NULL,
                            "the stored job has no state, which has its initial point");
    }
    if (result == TALLY_OK && (status != TALLY_JOB_QUEUED || n > 0) && (n > 0 || !is_given)) {
        result = job_make_vectors(job, err);
    }
    if (result == TALLY_OK) {
        result = load(job, progress, state, n, err);
    }
    if (result != TALLY_OK) {
        tally_job_free(job);
        return result;
    }
    if (job_is_open(job)) { /* the host passes in its updates again, one by one */
        job_clients_forget_after(&job->clients, job->progress.round);
        job_open_round(job, NULL);
    }
    *ret_job = job;
    return TALLY_OK;
}
