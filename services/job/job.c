#include "services/job/job.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "codec/numeric/checksum.h"
#include "services/job/footprint.h"
#include "services/job/lifecycle.h"
#include "services/job/reasons.h"

enum { N_BROADCASTS = 16 }; /* kept for clients that are a little behind */
/* Together they may be so long in any case, else no longer than the point: nobody is sent more. */
enum { KEPT_BROADCAST_BITS = 8 * 64 * 1024 };
enum { STATE_VERSION = 1, CHANGE_VERSION = 1 };

/* Telemetry of one update. */
static const uint64_t LOSS_BITS = 64;    /* a float64 */
static const uint64_t CLIPPED_BITS = 32; /* a uint32 */

/* What the engine remembers of a client: its last accepted message, to recognise it again. */
struct client {
    int64_t round; /* 0 = none yet */
    uint64_t digest;
    uint64_t formula_bits, payload_bits;
    double loss; /* of the open round */
    struct tally_report report;
    bool absent; /* is not waited for if the policy allows */
};

_Static_assert(sizeof(struct client) <= TALLY_FOOTPRINT_ENGINE_CLIENT, "as footprint.h says");

struct tally_job {
    struct tally_job_spec spec;
    union tally_algorithm_params params; /* of the spec, with what was estimated */
    struct tally_setting setting;
    const struct tally_algorithm *algorithm;
    enum tally_job_status status;
    char reason[TALLY_REASON_CAPACITY];
    struct tally_progress progress;
    double *x;                   /* double[dim]; NULL, like all vectors, until it starts */
    struct tally_checksum saved; /* of what is saved, up to and with x */

    struct tally_job_round open;
    int64_t *sums; /* int64[dim], of the open round */
    struct tally_bits received_bits;
    uint64_t telemetry_bits;
    struct client *clients; /* [M] */
    int64_t n_awaited;      /* clients that are present and have not answered the open round */

    struct tally_scratch scratch;
    struct tally_decision decision;
    struct tally_message broadcasts[N_BROADCASTS]; /* that led to iterate k at k % N_BROADCASTS */
    int64_t oldest_broadcast;                      /* iterate of the oldest one kept */
};

/* What is saved begins with it; see "Saving" below. */
struct state_header {
    uint32_t version, dim, clients, zero;
};

static struct state_header state_header(const struct tally_job *job)
{
    return (struct state_header){STATE_VERSION, (uint32_t)job->setting.dim, job->setting.clients,
                                 0};
}

/* Sums up the point for both who need it, whenever it has changed. Returns the checksum of the
 * point alone. */
static uint64_t sum_point(struct tally_job *job)
{
    const struct state_header header = state_header(job);
    struct tally_checksum point = tally_checksum_begin(TALLY_CHECKSUM_SEED);
    job->saved = tally_checksum_begin(TALLY_CHECKSUM_SEED);
    tally_checksum_add(&job->saved, &header, sizeof header);
    tally_checksum_add_to_both(&job->saved, &point, job->x, job->setting.dim * sizeof *job->x);
    return tally_checksum_end(&point);
}

/* Whether it has its vectors; not if it was cancelled, or failed, before it could start. */
static bool has_started(const struct tally_job *job)
{
    return job->x != NULL;
}

static bool is_open(const struct tally_job *job)
{
    return job->status == TALLY_JOB_RUNNING || job->status == TALLY_JOB_PAUSED;
}

static bool has_regret(const struct tally_job *job)
{
    return job->spec.reference.type != TALLY_REFERENCE_NONE;
}

static void check_invariants(const struct tally_job *job)
{
    const struct tally_progress *progress = &job->progress;
    assert(progress->time_step >= 0 && progress->time_step <= job->spec.horizon);
    assert(job->open.received >= 0 && job->open.received <= job->spec.clients);
    assert(progress->round >= 0 && progress->iterate >= 1);
    assert(job->status != TALLY_JOB_COMPLETED || progress->time_step == job->spec.horizon);
    assert(job->n_awaited >= 0 && job->n_awaited <= job->spec.clients - job->open.received);
    (void)progress;
}

static enum tally_status move(struct tally_job *job, enum tally_job_event event,
                              struct tally_error *err)
{
    enum tally_status status = tally_job_move(&job->status, event, err);
    check_invariants(job);
    return status;
}

/* The algorithm cannot continue, because of the error `why`. */
static void fail_algorithm(struct tally_job *job, const struct tally_error *why)
{
    if (why->status == TALLY_NOT_FINITE) {
        TALLY_REASON_WRITE(job->reason, DIVERGED, why->message);
    } else {
        TALLY_REASON_WRITE(job->reason, ALGORITHM_FAILED, why->message);
    }
    move(job, TALLY_EVENT_FAIL, NULL);
}

static void drop_vectors(struct tally_job *job)
{
    free(job->x);
    free(job->sums);
    free(job->clients);
    tally_scratch_fini(&job->scratch);
    job->x = NULL;
    job->sums = NULL;
    job->clients = NULL;
}

void tally_job_free(struct tally_job *job)
{
    if (job == NULL) {
        return;
    }
    drop_vectors(job);
    tally_message_fini(&job->decision.broadcast);
    for (int i = 0; i < N_BROADCASTS; i++) {
        tally_message_fini(&job->broadcasts[i]);
    }
    free(job);
}

/* Memory that every update or round goes through, not set; free() frees it. Long vectors come on
 * huge pages where the system has some for those who ask: adding up takes a sixth less time. */
static void *vector_new(size_t n)
{
    enum { HUGE_PAGE_BYTES = 2 << 20, LONG_BYTES = 2 * HUGE_PAGE_BYTES };
    if (n < LONG_BYTES) {
        return malloc(n);
    }
    const size_t whole = (n + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    void *vector = aligned_alloc(HUGE_PAGE_BYTES, whole);
    if (vector != NULL) {
        (void)madvise(vector, whole, MADV_HUGEPAGE);
    }
    return vector;
}

/* What a queued job has no need of; the point is the initial one. */
static enum tally_status make_vectors(struct tally_job *job, struct tally_error *err)
{
    const size_t dim = job->setting.dim;
    job->x = vector_new(dim * sizeof *job->x);
    job->sums = vector_new(dim * sizeof *job->sums);
    job->clients = calloc(job->setting.clients, sizeof *job->clients);
    if (tally_scratch_init(&job->scratch, dim, TALLY_SCRATCH_SERVER, err) != TALLY_OK ||
        job->x == NULL || job->sums == NULL || job->clients == NULL) {
        drop_vectors(job);
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a job of dim %zu", dim);
    }
    tally_job_spec_initial_point(&job->spec, job->x);
    job->progress.x_checksum = sum_point(job);
    return TALLY_OK;
}

static enum tally_status make_queued(const struct tally_job_spec *spec, struct tally_job **ret_job,
                                     struct tally_error *err)
{
    struct tally_job *job = calloc(1, sizeof *job);
    if (job == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a job");
    }
    job->spec = *spec;
    job->params = spec->params;
    job->setting = tally_job_spec_setting(&job->spec);
    job->setting.params = &job->params;
    job->algorithm = tally_job_spec_algorithm(spec);
    job->progress.iterate = 1;
    job->progress.f_star = has_regret(job) ? 0 : NAN;
    job->progress.cumulative_regret = has_regret(job) ? 0 : NAN;
    job->progress.stage = job->algorithm->first_stage(&spec->params);
    job->oldest_broadcast = 2;
    *ret_job = job;
    return TALLY_OK;
}

/* Makes the initial point for as long as its checksum takes. */
static enum tally_status sum_initial_point(struct tally_job *job, struct tally_error *err)
{
    enum tally_status status = tally_job_make_initial_point(&job->spec, &job->x, err);
    if (status == TALLY_OK) {
        job->progress.x_checksum = sum_point(job);
    }
    drop_vectors(job);
    return status;
}

enum tally_status tally_job_new(const struct tally_job_spec *spec, struct tally_job **ret_job,
                                struct tally_error *err)
{
    struct tally_job *job;
    enum tally_status status = make_queued(spec, &job, err);
    if (status == TALLY_OK) {
        status = sum_initial_point(job, err);
        if (status != TALLY_OK) {
            tally_job_free(job);
            return status;
        }
        *ret_job = job;
    }
    return status;
}

enum tally_status tally_job_make_initial_point(const struct tally_job_spec *spec, double **ret_x,
                                               struct tally_error *err)
{
    const size_t dim = tally_objective_spec_dim(&spec->objective);
    double *x = vector_new(dim * sizeof *x);
    if (x == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a point of dim %zu", dim);
    }
    tally_job_spec_initial_point(spec, x);
    *ret_x = x;
    return TALLY_OK;
}

/* Rounds. */

static void add_record(struct tally_job *job, struct tally_round_record *record,
                       struct tally_job_outcome *outcome)
{
    struct tally_progress *progress = &job->progress;
    progress->round++;
    progress->time_step += record->samples;
    progress->cumulative_regret +=
        (double)(record->samples * job->spec.clients) * (progress->loss - progress->f_star);
    tally_ledger_add(&progress->bits, &record->bits);
    record->round = progress->round;
    record->time_step = progress->time_step;
    record->loss = progress->loss;
    record->cumulative_regret = progress->cumulative_regret;
    if (outcome != NULL) {
        outcome->records[outcome->n_records++] = *record;
    }
    check_invariants(job);
}

/* Round (k, j) would pass T: what is left of the horizon counts in the regret, nothing is sent. */
static void cut_at_horizon(struct tally_job *job, struct tally_job_outcome *outcome)
{
    struct tally_progress *progress = &job->progress;
    struct tally_round_record record = {.iterate = progress->iterate,
                                        .stage = progress->stage,
                                        .samples = job->spec.horizon - progress->time_step,
                                        .cut = true};
    record.bits.telemetry_bits = job->telemetry_bits;
    if (job->open.evaluate) {
        tally_job_list_missing(job, record.missing);
    }
    add_record(job, &record, outcome);
    job->open = (struct tally_job_round){0};
    job->n_awaited = 0;
    move(job, TALLY_EVENT_COMPLETE, NULL);
}

/* Opens the round after the closed ones, or ends the job. */
static void open_round(struct tally_job *job, struct tally_job_outcome *outcome)
{
    struct tally_progress *progress = &job->progress;
    memset(job->sums, 0, job->setting.dim * sizeof *job->sums);
    job->received_bits = (struct tally_bits){0};
    job->telemetry_bits = 0;
    job->open = (struct tally_job_round){.round = progress->round + 1,
                                         .iterate = progress->iterate,
                                         .evaluate = !progress->has_loss};
    job->n_awaited = 0;
    for (int64_t m = 0; m < job->spec.clients; m++) {
        job->n_awaited += !job->clients[m].absent;
    }
    int64_t left = job->spec.horizon - progress->time_step;
    if (left == 0) {
        move(job, TALLY_EVENT_COMPLETE, NULL);
        return;
    }
    struct tally_error why = TALLY_ERROR_INIT;
    if (job->algorithm->plan(&job->setting, progress->stage, &job->open.plan, &why) != TALLY_OK) {
        fail_algorithm(job, &why);
        return;
    }
    if (job->open.plan.samples > left) {
        job->open.plan.samples = left;
        job->open.plan.cut = true;
        if (progress->has_loss) {
            cut_at_horizon(job, outcome);
        }
    }
    check_invariants(job);
}

/* Leaves the newest, and those before it that are shorter with it than the point. */
static void drop_long_broadcasts(struct tally_job *job)
{
    const uint64_t point_bits = 64 * (uint64_t)job->setting.dim;
    const uint64_t most = point_bits > KEPT_BROADCAST_BITS ? point_bits : KEPT_BROADCAST_BITS;
    uint64_t bits = tally_job_broadcast(job, job->progress.iterate)->bits.payload_bits;
    int64_t first = job->progress.iterate;
    while (first > job->oldest_broadcast &&
           (bits += tally_job_broadcast(job, first - 1)->bits.payload_bits) <= most) {
        first--;
    }
    for (; job->oldest_broadcast < first; job->oldest_broadcast++) {
        struct tally_message *dropped = &job->broadcasts[job->oldest_broadcast % N_BROADCASTS];
        if (job->decision.broadcast.payload.data == NULL) {
            job->decision.broadcast = *dropped; /* its buffer is used again */
            *dropped = (struct tally_message){0};
        }
        tally_message_fini(dropped);
    }
}

static void keep_broadcast(struct tally_job *job)
{
    struct tally_progress *progress = &job->progress;
    struct tally_message *slot = &job->broadcasts[progress->iterate % N_BROADCASTS];
    struct tally_message old = *slot;
    *slot = job->decision.broadcast;
    job->decision.broadcast = old; /* its buffer is used again */
    if (progress->iterate - job->oldest_broadcast >= N_BROADCASTS) {
        job->oldest_broadcast = progress->iterate - N_BROADCASTS + 1;
    }
    drop_long_broadcasts(job);
}

/* The server takes its own broadcast like every client, from the encoded message. */
static enum tally_status take_broadcast(struct tally_job *job, struct tally_round_record *record,
                                        struct tally_error *err)
{
    struct tally_progress *progress = &job->progress;
    struct tally_message_view view = tally_message_view(&job->decision.broadcast);
    enum tally_status status =
        job->algorithm->apply(&job->setting, &view, &job->scratch, job->x, err);
    if (status != TALLY_OK) {
        return status;
    }
    record->bits.downlink = job->decision.broadcast.bits;
    record->bits.delivered_payload_bits =
        job->decision.broadcast.bits.payload_bits * job->setting.clients;
    progress->iterate++;
    progress->has_loss = false;
    progress->x_checksum = sum_point(job);
    keep_broadcast(job);
    return TALLY_OK;
}

static void take_losses(struct tally_job *job)
{
    if (!job->open.evaluate) {
        return;
    }
    double sum = 0;
    for (int64_t m = 0; m < job->spec.clients; m++) {
        sum += tally_job_has_received(job, (uint32_t)m) ? job->clients[m].loss : 0;
    }
    job->progress.loss = sum / (double)job->open.received;
    job->progress.has_loss = true;
}

static bool is_opening(const struct tally_job *job)
{
    const struct tally_opening *opening = job->algorithm->opening;
    return opening != NULL && opening->opens(&job->params);
}

/* The estimates of the clients that answered. */
static enum tally_status estimate(struct tally_job *job, struct tally_round_record *record,
                                  struct tally_error *err)
{
    const struct tally_opening *opening = job->algorithm->opening;
    struct tally_report *reports = calloc((size_t)job->open.received, sizeof *reports);
    if (reports == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the clients' reports");
    }
    int64_t n = 0;
    for (uint32_t m = 0; m < job->setting.clients; m++) {
        if (tally_job_has_received(job, m)) {
            reports[n++] = job->clients[m].report;
        }
    }
    struct tally_estimates estimates;
    enum tally_status status = opening->conclude(&job->setting, &job->open.plan, reports, n,
                                                 &estimates, &record->bits.control_bits, err);
    free(reports);
    if (status == TALLY_OK) {
        job->progress.estimates = estimates;
        opening->adopt(&estimates, &job->params);
    }
    return status;
}

static void close_opening(struct tally_job *job, struct tally_job_outcome *outcome)
{
    struct tally_error why = TALLY_ERROR_INIT;
    struct tally_round_record record = {.iterate = job->open.iterate,
                                        .stage = job->open.plan.stage,
                                        .samples = job->open.plan.samples,
                                        .received = job->open.received};
    tally_job_list_missing(job, record.missing);
    record.bits.uplink = job->received_bits;
    record.bits.telemetry_bits = job->telemetry_bits;
    if (estimate(job, &record, &why) != TALLY_OK) {
        fail_algorithm(job, &why);
        return;
    }
    job->progress.stage = job->algorithm->first_stage(&job->params);
    add_record(job, &record, outcome);
    open_round(job, outcome);
}

static void close_round(struct tally_job *job, struct tally_job_outcome *outcome)
{
    struct tally_error why = TALLY_ERROR_INIT;
    take_losses(job);
    if (job->open.plan.cut) {
        cut_at_horizon(job, outcome);
        return;
    }
    if (is_opening(job)) {
        close_opening(job, outcome);
        return;
    }
    job->decision.passed = false;
    job->decision.norm = 0;
    enum tally_status status = job->algorithm->decide(&job->setting, &job->open.plan, job->sums,
                                                      job->open.received, (uint32_t)job->open.round,
                                                      job->x, &job->scratch, &job->decision, &why);
    struct tally_round_record record = {.iterate = job->open.iterate,
                                        .stage = job->open.plan.stage,
                                        .samples = job->open.plan.samples,
                                        .received = job->open.received,
                                        .norm = job->decision.norm,
                                        .passed = job->decision.passed};
    tally_job_list_missing(job, record.missing);
    record.bits.uplink = job->received_bits;
    record.bits.telemetry_bits = job->telemetry_bits;
    record.bits.control_bits = !job->decision.passed;
    double loss = job->progress.loss;
    if (status == TALLY_OK && job->decision.passed) {
        status = take_broadcast(job, &record, &why);
    }
    job->progress.loss = loss; /* of the point that the round queried */
    if (status != TALLY_OK) {
        fail_algorithm(job, &why);
        return;
    }
    job->progress.stage = job->decision.next_stage;
    add_record(job, &record, outcome);
    open_round(job, outcome);
}

/* Closes the round if it has all that it waits for. */
static void close_if_complete(struct tally_job *job, struct tally_job_outcome *outcome)
{
    const bool may_drop =
        job->spec.policy != TALLY_POLICY_WAIT &&
        job->open.received >= (job->spec.quorum > 0 ? job->spec.quorum : job->spec.clients);
    const bool waits_for_none = job->spec.policy == TALLY_POLICY_DROP && job->n_awaited == 0;
    if (job->open.received == job->spec.clients ||
        (may_drop && (job->open.overdue || waits_for_none))) {
        close_round(job, outcome);
    }
}

/* Messages. */

static uint64_t digest_of(const struct tally_job_update *update)
{
    struct {
        uint64_t payload_bits, clipped, has_loss;
        double loss;
    } rest = {update->payload_bits, update->clipped, update->has_loss,
              update->has_loss ? update->loss : 0};
    uint64_t sum = tally_digest64(update->payload, update->n_payload);
    return tally_checksum64_more(sum, &rest, sizeof rest);
}

struct tally_receipt tally_job_receipt(const struct tally_job *job, uint32_t client)
{
    static const struct client NONE = {0};
    const struct client *from = has_started(job) ? &job->clients[client] : &NONE;
    return (struct tally_receipt){.round = from->round,
                                  .digest = from->digest,
                                  .formula_bits = from->formula_bits,
                                  .payload_bits = from->payload_bits};
}

/* The same with the update's digest. */
static enum tally_status compare(const struct tally_receipt *receipt,
                                 const struct tally_job_update *update, uint64_t digest,
                                 struct tally_job_outcome *outcome, struct tally_error *err)
{
    if (receipt->digest != digest) {
        return tally_fail(err, TALLY_ALREADY_EXISTS, "round",
                          "client %u has sent another message for round %lld", update->client,
                          (long long)update->round);
    }
    outcome->duplicate = true;
    outcome->bits = (struct tally_bits){.formula_bits = receipt->formula_bits,
                                        .payload_bits = receipt->payload_bits,
                                        .messages = receipt->payload_bits != 0,
                                        .clipped = update->clipped}; /* in the digest */
    return TALLY_OK;
}

enum tally_status tally_receipt_compare(const struct tally_receipt *receipt,
                                        const struct tally_job_update *update,
                                        struct tally_job_outcome *ret_outcome,
                                        struct tally_error *err)
{
    struct tally_job_outcome outcome = {0};
    enum tally_status status = compare(receipt, update, digest_of(update), &outcome, err);
    if (status == TALLY_OK) {
        *ret_outcome = outcome;
    }
    return status;
}

static enum tally_status fail_closed(const struct tally_job *job, struct tally_error *err)
{
    return tally_fail(err, TALLY_FAILED_PRECONDITION, "job_id", "the job is %s",
                      tally_job_status_name(job->status));
}

/* OK if the update is one that the open round lacks; a duplicate fills the outcome. */
static enum tally_status admit(const struct tally_job *job, const struct tally_job_update *update,
                               uint64_t digest, struct tally_job_outcome *outcome,
                               struct tally_error *err)
{
    if (update->client >= job->setting.clients) {
        return tally_fail(err, TALLY_OUT_OF_RANGE, "client", "client %u outside [0, %u]",
                          update->client, job->setting.clients - 1);
    }
    if (!has_started(job)) {
        return fail_closed(job, err);
    }
    const struct tally_receipt receipt = tally_job_receipt(job, update->client);
    if (receipt.round != 0 && receipt.round == update->round) {
        return compare(&receipt, update, digest, outcome, err);
    }
    if (!is_open(job)) {
        return fail_closed(job, err);
    }
    if (update->round != job->open.round) {
        return tally_fail(err, TALLY_FAILED_PRECONDITION, "round",
                          "round %lld is not open, round %lld is", (long long)update->round,
                          (long long)job->open.round);
    }
    return TALLY_OK;
}

static enum tally_status check_telemetry(const struct tally_job *job,
                                         const struct tally_job_update *update,
                                         struct tally_error *err)
{
    const bool may_lack_loss = !has_regret(job) && !update->has_loss;
    if (update->has_loss != job->open.evaluate && !may_lack_loss) {
        return tally_fail(err, TALLY_MALFORMED, "loss", "round %lld %s", (long long)update->round,
                          job->open.evaluate ? "needs a loss; only a job whose reference is none "
                                               "takes clients that have gradients alone"
                                             : "takes no loss");
    }
    if (update->has_loss && !isfinite(update->loss)) {
        return tally_fail(err, TALLY_MALFORMED, "loss", "the loss is not finite");
    }
    if (update->clipped > job->setting.dim) {
        return tally_fail(err, TALLY_MALFORMED, "clipped", "clipped %u is above dim %zu",
                          update->clipped, job->setting.dim);
    }
    return TALLY_OK;
}

/* Checks the message and adds it to the sums. */
static enum tally_status take_message(struct tally_job *job, const struct tally_job_update *update,
                                      struct tally_report *ret_report, struct tally_bits *ret_bits,
                                      struct tally_error *err)
{
    if (job->open.plan.cut) {
        if (update->n_payload != 0 || update->payload_bits != 0 || update->clipped != 0) {
            return tally_fail(err, TALLY_MALFORMED, "payload",
                              "round %lld takes no gradient message", (long long)update->round);
        }
        *ret_bits = (struct tally_bits){0};
        return TALLY_OK;
    }
    struct tally_message_view view = {.payload = update->payload,
                                      .n_payload = update->n_payload,
                                      .payload_bits = update->payload_bits,
                                      .grid = job->open.plan.grid};
    enum tally_status status =
        is_opening(job)
            ? job->algorithm->opening->receive(&job->setting, &view, ret_report, ret_bits, err)
            : job->algorithm->receive(&job->setting, &job->open.plan, &view, &job->scratch,
                                      job->sums, ret_bits, err);
    ret_bits->clipped = update->clipped;
    return status;
}

enum tally_status tally_job_receive(struct tally_job *job, const struct tally_job_update *update,
                                    struct tally_job_outcome *ret_outcome, struct tally_error *err)
{
    uint64_t digest = digest_of(update);
    struct tally_job_outcome outcome = {0};
    enum tally_status status = admit(job, update, digest, &outcome, err);
    if (status != TALLY_OK) {
        return status;
    }
    if (outcome.duplicate) {
        *ret_outcome = outcome;
        return TALLY_OK;
    }
    struct tally_report report = {0};
    status = check_telemetry(job, update, err);
    if (status == TALLY_OK) {
        status = take_message(job, update, &report, &outcome.bits, err);
    }
    if (status != TALLY_OK) {
        return status;
    }
    struct client *client = &job->clients[update->client];
    job->n_awaited -= !client->absent;
    *client = (struct client){.round = update->round,
                              .digest = digest,
                              .formula_bits = outcome.bits.formula_bits,
                              .payload_bits = outcome.bits.payload_bits,
                              .loss = update->has_loss ? update->loss : NAN,
                              .report = report,
                              .absent = client->absent};
    tally_bits_add(&job->received_bits, &outcome.bits);
    job->telemetry_bits += update->has_loss ? LOSS_BITS : 0;
    job->telemetry_bits += job->open.plan.cut ? 0 : CLIPPED_BITS;
    job->open.received++;
    check_invariants(job);
    close_if_complete(job, &outcome);
    *ret_outcome = outcome;
    return TALLY_OK;
}

/* Stragglers. */

void tally_job_set_absent(struct tally_job *job, uint32_t client, bool absent,
                          struct tally_job_outcome *ret_outcome)
{
    *ret_outcome = (struct tally_job_outcome){0};
    if (tally_job_is_absent(job, client) == absent) {
        return;
    }
    job->clients[client].absent = absent;
    if (!is_open(job)) {
        return;
    }
    if (!tally_job_has_received(job, client)) {
        job->n_awaited += absent ? -1 : 1;
    }
    check_invariants(job);
    close_if_complete(job, ret_outcome);
}

static void fail_overdue(struct tally_job *job)
{
    char missing[TALLY_MISSING_CAPACITY];
    tally_job_list_missing(job, missing);
    TALLY_REASON_WRITE(job->reason, QUORUM_MISSED, (long long)job->open.round,
                       (long long)job->open.received, (long long)job->spec.clients,
                       (long long)job->spec.round_deadline_ms, (long long)job->spec.quorum,
                       missing);
    move(job, TALLY_EVENT_FAIL, NULL);
}

enum tally_status tally_job_overdue(struct tally_job *job, struct tally_job_outcome *ret_outcome,
                                    struct tally_error *err)
{
    *ret_outcome = (struct tally_job_outcome){0};
    if (job->status != TALLY_JOB_RUNNING) {
        return tally_fail(err, TALLY_FAILED_PRECONDITION, NULL, "the job is %s",
                          tally_job_status_name(job->status));
    }
    job->open.overdue = true;
    if (job->spec.policy == TALLY_POLICY_WAIT) {
        return TALLY_OK;
    }
    if (job->spec.policy == TALLY_POLICY_FAIL && job->open.received < job->spec.quorum) {
        fail_overdue(job);
        return TALLY_OK;
    }
    for (uint32_t m = 0; m < job->setting.clients; m++) {
        if (!tally_job_has_received(job, m) && !job->clients[m].absent) {
            job->clients[m].absent = true;
            job->n_awaited--;
        }
    }
    close_if_complete(job, ret_outcome);
    return TALLY_OK;
}

/* Events. */

enum tally_status tally_job_start(struct tally_job *job, double f_star, struct tally_error *err)
{
    enum tally_status status =
        job->status == TALLY_JOB_QUEUED && !has_started(job) ? make_vectors(job, err) : TALLY_OK;
    if (status == TALLY_OK) {
        status = move(job, TALLY_EVENT_START, err);
    }
    if (status == TALLY_OK) {
        job->progress.f_star = has_regret(job) ? f_star : NAN;
        job->progress.has_f_star = has_regret(job);
        open_round(job, NULL);
    }
    return status;
}

enum tally_status tally_job_pause(struct tally_job *job, struct tally_error *err)
{
    return move(job, TALLY_EVENT_PAUSE, err);
}

enum tally_status tally_job_resume(struct tally_job *job, struct tally_error *err)
{
    enum tally_status status = move(job, TALLY_EVENT_RESUME, err);
    if (status == TALLY_OK) {
        job->open.overdue = false;
    }
    return status;
}

enum tally_status tally_job_cancel(struct tally_job *job, struct tally_error *err)
{
    return move(job, TALLY_EVENT_CANCEL, err);
}

enum tally_status tally_job_fail(struct tally_job *job, const char *reason, struct tally_error *err)
{
    enum tally_status status = move(job, TALLY_EVENT_FAIL, err);
    if (status == TALLY_OK) {
        snprintf(job->reason, sizeof job->reason, "%s", reason);
    }
    return status;
}

/* Looking at it. */

enum tally_job_status tally_job_status(const struct tally_job *job)
{
    return job->status;
}

const char *tally_job_reason(const struct tally_job *job)
{
    return job->reason;
}

const struct tally_job_spec *tally_job_get_spec(const struct tally_job *job)
{
    return &job->spec;
}

const struct tally_progress *tally_job_progress(const struct tally_job *job)
{
    return &job->progress;
}

const double *tally_job_point(const struct tally_job *job, size_t *ret_dim)
{
    *ret_dim = job->setting.dim;
    return job->x;
}

const struct tally_job_round *tally_job_open_round(const struct tally_job *job)
{
    return &job->open;
}

bool tally_job_has_received(const struct tally_job *job, uint32_t client)
{
    return has_started(job) && job->clients[client].round == job->open.round;
}

bool tally_job_is_absent(const struct tally_job *job, uint32_t client)
{
    return has_started(job) && job->clients[client].absent;
}

/* Appends " first" or " first-last" if it and " ..." still fit. */
static bool append_range(char *text, size_t *at, int64_t first, int64_t last)
{
    static const char more[] = " ...";
    char range[48];
    const char *space = *at == 0 ? "" : " ";
    const int n = first == last ? snprintf(range, sizeof range, "%s%lld", space, (long long)first)
                                : snprintf(range, sizeof range, "%s%lld-%lld", space,
                                           (long long)first, (long long)last);
    const bool fits = *at + (size_t)n + sizeof more <= TALLY_MISSING_CAPACITY;
    const char *added = fits ? range : more;
    memcpy(text + *at, added, strlen(added) + 1);
    *at += strlen(added);
    return fits;
}

static void list_clients(const struct tally_job *job,
                         bool (*is_listed)(const struct tally_job *, uint32_t),
                         char ret_text[TALLY_MISSING_CAPACITY])
{
    const int64_t n = job->spec.clients;
    size_t at = 0;
    bool fits = true;
    memset(ret_text, 0, TALLY_MISSING_CAPACITY);
    for (int64_t m = 0; fits && m < n; m++) {
        const int64_t first = m;
        while (m < n && is_listed(job, (uint32_t)m)) {
            m++;
        }
        if (m > first) {
            fits = append_range(ret_text, &at, first, m - 1);
        }
    }
}

static bool is_missing(const struct tally_job *job, uint32_t client)
{
    return !tally_job_has_received(job, client);
}

void tally_job_list_missing(const struct tally_job *job, char ret_text[TALLY_MISSING_CAPACITY])
{
    list_clients(job, is_missing, ret_text);
}

bool tally_job_awaits(const struct tally_job *job, uint32_t client)
{
    const bool is_left_out =
        job->spec.policy == TALLY_POLICY_DROP && job->n_awaited > 0 && job->clients[client].absent;
    return is_missing(job, client) && !is_left_out;
}

void tally_job_list_awaited(const struct tally_job *job, char ret_text[TALLY_MISSING_CAPACITY])
{
    list_clients(job, tally_job_awaits, ret_text);
}

const struct tally_message *tally_job_broadcast(const struct tally_job *job, int64_t iterate)
{
    bool kept = iterate >= job->oldest_broadcast && iterate <= job->progress.iterate;
    return kept ? &job->broadcasts[iterate % N_BROADCASTS] : NULL;
}

/* Saving. The bytes of a state: version, dim, clients (3 x u32 and 4 bytes of zero), x, then per
 * client round, digest, formula and payload bits, last tally_checksum64 of all that. Those of a
 * change: a header, per broadcast its head and payload, the clients as above, last tally_checksum64
 * of all that. In the machine's little-endian order. */

enum { STATE_HEADER_BYTES = 16, STATE_CLIENT_BYTES = 32, STATE_CHECKSUM_BYTES = 8 };

_Static_assert(sizeof(struct state_header) == STATE_HEADER_BYTES, "no padding");

struct change_header {
    uint32_t version, n_broadcasts; /* at most N_BROADCASTS */
    int64_t round, iterate;         /* closed, and reached by the broadcasts */
};

struct broadcast_head {
    double step;
    uint64_t intervals, payload_bits, n_payload; /* the last in bytes */
};

_Static_assert(sizeof(struct change_header) == 24 && sizeof(struct broadcast_head) == 32,
               "no padding");

static void append_clients(const struct tally_job *job, struct tally_buffer *out)
{
    for (uint32_t m = 0; m < job->setting.clients; m++) {
        const struct client *client = &job->clients[m];
        const uint64_t words[4] = {(uint64_t)client->round, client->digest, client->formula_bits,
                                   client->payload_bits};
        tally_buffer_append(out, words, sizeof words);
    }
}

enum tally_status tally_job_save_state(const struct tally_job *job, struct tally_buffer *out)
{
    const struct state_header header = state_header(job);
    const size_t x_bytes = job->setting.dim * sizeof *job->x;
    const size_t start = out->size;
    if (!has_started(job)) {
        return TALLY_FAILED_PRECONDITION;
    }
    struct tally_checksum sum = job->saved;
    enum tally_status status = tally_buffer_reserve(
        out, sizeof header + x_bytes + (size_t)job->setting.clients * STATE_CLIENT_BYTES +
                 STATE_CHECKSUM_BYTES);
    if (status != TALLY_OK) {
        return status;
    }
    tally_buffer_append(out, &header, sizeof header);
    tally_buffer_append(out, job->x, x_bytes);
    append_clients(job, out);
    const uint8_t *clients = out->data + start + sizeof header + x_bytes;
    tally_checksum_add(&sum, clients, (size_t)job->setting.clients * STATE_CLIENT_BYTES);
    const uint64_t checksum = tally_checksum_end(&sum);
    return tally_buffer_append(out, &checksum, sizeof checksum);
}

size_t tally_job_change_bytes(const struct tally_job *job, int64_t since)
{
    if (since > job->progress.iterate || since + 1 < job->oldest_broadcast) {
        return SIZE_MAX;
    }
    size_t n = sizeof(struct change_header) + (size_t)job->setting.clients * STATE_CLIENT_BYTES +
               STATE_CHECKSUM_BYTES;
    for (int64_t k = since + 1; k <= job->progress.iterate; k++) {
        n += sizeof(struct broadcast_head) + tally_job_broadcast(job, k)->payload.size;
    }
    return n;
}

enum tally_status tally_job_save_change(const struct tally_job *job, int64_t since,
                                        struct tally_buffer *out, struct tally_error *err)
{
    const int64_t iterate = job->progress.iterate;
    const size_t n = tally_job_change_bytes(job, since);
    if (n == SIZE_MAX) {
        return tally_fail(err, TALLY_FAILED_PRECONDITION, NULL,
                          "the broadcasts from iterate %lld to %lld are not kept", (long long)since,
                          (long long)iterate);
    }
    const size_t start = out->size;
    if (tally_buffer_reserve(out, n) != TALLY_OK) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for %zu bytes of state", n);
    }
    const struct change_header header = {CHANGE_VERSION, (uint32_t)(iterate - since),
                                         job->progress.round, iterate};
    tally_buffer_append(out, &header, sizeof header);
    for (int64_t k = since + 1; k <= iterate; k++) {
        const struct tally_message *broadcast = tally_job_broadcast(job, k);
        const struct broadcast_head head = {broadcast->grid.step, broadcast->grid.intervals,
                                            broadcast->bits.payload_bits, broadcast->payload.size};
        tally_buffer_append(out, &head, sizeof head);
        tally_buffer_append(out, broadcast->payload.data, broadcast->payload.size);
    }
    append_clients(job, out);
    const uint64_t checksum = tally_checksum64(out->data + start, out->size - start);
    return tally_buffer_append(out, &checksum, sizeof checksum);
}

static void load_clients(struct tally_job *job, const uint8_t *bytes)
{
    for (uint32_t m = 0; m < job->setting.clients; m++, bytes += STATE_CLIENT_BYTES) {
        uint64_t words[4];
        memcpy(words, bytes, sizeof words);
        job->clients[m] = (struct client){.round = (int64_t)words[0],
                                          .digest = words[1],
                                          .formula_bits = words[2],
                                          .payload_bits = words[3]};
    }
}

static enum tally_status fail_change(struct tally_error *err, const char *what)
{
    return tally_fail(err, TALLY_DATA_LOSS, NULL, "a stored change of the state %s", what);
}

/* Moves the point by one stored broadcast, at *at, which is advanced; `end` is behind what may be
 * read. */
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
    const struct tally_message_view view = {.payload = *at,
                                            .n_payload = head.n_payload,
                                            .payload_bits = head.payload_bits,
                                            .grid = {head.step, (uint32_t)head.intervals}};
    *at += head.n_payload;
    struct tally_error why = TALLY_ERROR_INIT;
    enum tally_status status =
        job->algorithm->apply(&job->setting, &view, &job->scratch, job->x, &why);
    if (status == TALLY_NO_MEMORY) {
        return tally_fail(err, status, NULL, "%s", why.message);
    }
    return status == TALLY_OK ? status : fail_change(err, why.message);
}

/* Goes on by the change at *at, which is advanced, after the one that `last` heads; a round of 0 is
 * none. */
static enum tally_status load_change(struct tally_job *job, const uint8_t **at, const uint8_t *end,
                                     struct change_header *last, struct tally_error *err)
{
    const uint8_t *const start = *at;
    const size_t clients_bytes = (size_t)job->setting.clients * STATE_CLIENT_BYTES;
    struct change_header header;
    if ((size_t)(end - start) < sizeof header + clients_bytes + STATE_CHECKSUM_BYTES) {
        return fail_change(err, "is cut short");
    }
    memcpy(&header, start, sizeof header);
    if (header.version != CHANGE_VERSION || header.n_broadcasts > N_BROADCASTS ||
        header.round <= last->round ||
        (last->round > 0 && header.iterate != last->iterate + header.n_broadcasts)) {
        return fail_change(err, "does not follow what is before it");
    }
    *at = start + sizeof header;
    enum tally_status status = TALLY_OK;
    for (uint32_t i = 0; i < header.n_broadcasts && status == TALLY_OK; i++) {
        status = load_broadcast(job, at, end, err);
    }
    if (status == TALLY_OK && (size_t)(end - *at) < clients_bytes + STATE_CHECKSUM_BYTES) {
        status = fail_change(err, "is cut short");
    }
    if (status != TALLY_OK) {
        return status;
    }
    load_clients(job, *at);
    *at += clients_bytes;
    uint64_t checksum;
    memcpy(&checksum, *at, sizeof checksum);
    if (checksum != tally_checksum64(start, (size_t)(*at - start))) {
        return fail_change(err, "has another checksum");
    }
    *at += STATE_CHECKSUM_BYTES;
    *last = header;
    return TALLY_OK;
}

/* Goes on by all changes, which lead to the progress. */
static enum tally_status load_changes(struct tally_job *job, const uint8_t *at, size_t n,
                                      struct tally_error *err)
{
    const uint8_t *const end = at + n;
    struct change_header last = {0};
    enum tally_status status = TALLY_OK;
    while (at < end && status == TALLY_OK) {
        status = load_change(job, &at, end, &last, err);
    }
    if (status == TALLY_OK && last.round > 0 &&
        (last.round != job->progress.round || last.iterate != job->progress.iterate)) {
        return fail_change(err, "does not lead to the progress");
    }
    return status;
}

static enum tally_status load_state(struct tally_job *job, const uint8_t *state, size_t n,
                                    struct tally_error *err)
{
    const size_t x_bytes = job->setting.dim * sizeof *job->x;
    const size_t body =
        STATE_HEADER_BYTES + x_bytes + (size_t)job->setting.clients * STATE_CLIENT_BYTES;
    struct state_header header = {0};
    if (n >= body + STATE_CHECKSUM_BYTES) {
        memcpy(&header, state, sizeof header);
    }
    if (header.version != STATE_VERSION || header.dim != job->setting.dim ||
        header.clients != job->setting.clients) {
        return tally_fail(err, TALLY_DATA_LOSS, NULL,
                          "stored state of %zu bytes does not fit the job", n);
    }
    uint64_t checksum;
    memcpy(&checksum, state + body, sizeof checksum);
    if (checksum != tally_checksum64(state, body)) {
        return tally_fail(err, TALLY_DATA_LOSS, NULL, "stored state has another checksum");
    }
    memcpy(job->x, state + STATE_HEADER_BYTES, x_bytes);
    load_clients(job, state + STATE_HEADER_BYTES + x_bytes);
    const size_t whole = body + STATE_CHECKSUM_BYTES;
    return load_changes(job, state + whole, n - whole, err);
}

/* Takes over the estimates of a stored progress, if its opening round has closed; false if they
 * cannot be of this job. */
static bool adopt_estimates(struct tally_job *job, const struct tally_progress *progress)
{
    return !is_opening(job) || progress->stage == 0 ||
           job->algorithm->opening->adopt(&progress->estimates, &job->params);
}

/* Whether a stored progress can be one of this job. */
static bool progress_fits(const struct tally_job *job, const struct tally_progress *progress,
                          bool has_state)
{
    bool open = is_open(job);
    bool complete = job->status == TALLY_JOB_COMPLETED;
    return progress->round >= 0 && progress->time_step >= 0 &&
           progress->time_step <= job->spec.horizon &&
           (!open || progress->has_f_star == has_regret(job)) &&
           (!complete || progress->time_step == job->spec.horizon) &&
           (has_state ? progress->iterate >= 1 : progress->round == 0);
}

/* The updates of the open round come again one by one, so those it had are forgotten. */
static void reopen_round(struct tally_job *job)
{
    for (uint32_t m = 0; m < job->setting.clients; m++) {
        if (job->clients[m].round > job->progress.round) {
            job->clients[m] = (struct client){0};
        }
    }
    open_round(job, NULL);
}

enum tally_status tally_job_restore(const struct tally_job_spec *spec, enum tally_job_status status,
                                    const struct tally_progress *progress, const uint8_t *state,
                                    size_t n, struct tally_job **ret_job, struct tally_error *err)
{
    struct tally_job *job;
    enum tally_status result = make_queued(spec, &job, err);
    if (result == TALLY_OK && (status != TALLY_JOB_QUEUED || n > 0)) {
        result = make_vectors(job, err);
        if (result != TALLY_OK) {
            tally_job_free(job);
        }
    }
    if (result != TALLY_OK) {
        return result;
    }
    job->status = status;
    if (!progress_fits(job, progress, n > 0) || !adopt_estimates(job, progress)) {
        result = tally_fail(err, TALLY_DATA_LOSS, NULL,
                            "stored progress (round %lld, time step %lld) does not fit the job",
                            (long long)progress->round, (long long)progress->time_step);
    } else if (n > 0) {
        job->progress = *progress;
        job->oldest_broadcast = progress->iterate + 1;
        result = load_state(job, state, n, err);
    } else { /* before the first round closed: the initial point */
        job->progress.f_star = progress->f_star;
        job->progress.has_f_star = progress->has_f_star;
        job->progress.x_checksum =
            has_started(job) ? job->progress.x_checksum : progress->x_checksum;
    }
    if (result == TALLY_OK && has_started(job) && job->progress.x_checksum != sum_point(job)) {
        result = tally_fail(err, TALLY_DATA_LOSS, NULL, "stored point has another checksum");
    }
    if (result != TALLY_OK) {
        tally_job_free(job);
        return result;
    }
    if (is_open(job)) {
        reopen_round(job);
    }
    *ret_job = job;
    return TALLY_OK;
}
