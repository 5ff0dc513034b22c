/* job_messages: taking one client's update. Every check comes before the first change, so a refused
 * update leaves the job as it was. */
#include <math.h>
#include <stdio.h>

#include "services/job/job_engine.h"

/* Telemetry of one update. */
static const uint64_t LOSS_BITS = 64;    /* a float64 */
static const uint64_t CLIPPED_BITS = 32; /* a uint32 */

/* Excludes the metrics, which may include times: these differ if a worker computes a lost update
 * again. */
static uint64_t digest_of(const struct tally_update *update)
{
    struct {
        uint64_t payload_bits, clipped, has_loss;
        double loss;
    } rest = {update->payload_bits, update->clipped, update->has_loss,
              update->has_loss ? update->loss : 0};
    uint64_t sum = tally_digest64(update->payload.data, update->payload.size);
    return tally_checksum64_more(sum, &rest, sizeof rest);
}

struct tally_receipt tally_job_receipt(const struct tally_job *job, uint32_t client)
{
    const struct tally_receipt none = {.round = 0};
    if (!job_has_started(job)) {
        return none;
    }
    const struct tally_receipt *receipt = &job->clients.all[client].receipt;
    const bool is_old = job_clients_has_cohorts(&job->clients) &&
                        receipt->round <= job->progress.round - JOB_RECEIPT_ROUNDS;
    return is_old ? none : *receipt;
}

int64_t tally_job_metrics_round(const struct tally_job *job)
{
    return job->metrics.closed_round;
}

const uint32_t *tally_job_metrics_clients(const struct tally_job *job, uint32_t *ret_n)
{
    if (job->metrics.closed_round == 0) {
        *ret_n = 0;
        return NULL;
    }
    const struct tally_cohort *cohort =
        job_clients_recall(&job->clients, job->metrics.closed_round);
    *ret_n = cohort->n;
    return cohort->drawn;
}

size_t tally_job_client_metrics(const struct tally_job *job, uint32_t client,
                                struct tally_metric ret_metrics[TALLY_METRICS_MOST])
{
    if (job->metrics.closed_round == 0) {
        return 0;
    }
    const struct tally_cohort *cohort =
        job_clients_recall(&job->clients, job->metrics.closed_round);
    const uint32_t place = tally_cohort_place(cohort, client);
    return place < cohort->n ? job_metrics_of_client(&job->metrics, place, ret_metrics) : 0;
}

enum tally_status tally_job_restore_metrics(struct tally_job *job, int64_t round, uint32_t client,
                                            const struct tally_metric *metrics, size_t n,
                                            struct tally_error *err)
{
    const int64_t known = job->metrics.closed_round;
    uint32_t place = job->setting.cohort;
    if (job_has_started(job) && client < job->spec.clients && round >= 1) {
        place = tally_cohort_place(job_clients_recall(&job->clients, round), client);
    }
    if (place == job->setting.cohort || round > job->progress.round ||
        (known != 0 && known != round)) {
        return tally_fail(err, TALLY_MALFORMED, "metrics",
                          "metrics of client %u in round %lld are not of this job", client,
                          (long long)round);
    }
    return job_metrics_restore(&job->metrics, job->setting.cohort, round, place, metrics, n, err);
}

static enum tally_status compare(const struct tally_receipt *receipt,
                                 const struct tally_update *update, uint64_t digest,
                                 struct tally_job_outcome *ret_outcome, struct tally_error *err)
{
    if (receipt->digest != digest) {
        return tally_fail(err, TALLY_ALREADY_EXISTS, "round",
                          "client %u has sent another message for round %u", update->client,
                          update->round);
    }
    *ret_outcome =
        (struct tally_job_outcome){.duplicate = true,
                                   .bits = {.formula_bits = receipt->formula_bits,
                                            .payload_bits = receipt->payload_bits,
                                            .messages = receipt->payload_bits != 0,
                                            .clipped = update->clipped}}; /* in the digest */
    return TALLY_OK;
}

enum tally_status tally_receipt_compare(const struct tally_receipt *receipt,
                                        const struct tally_update *update,
                                        struct tally_job_outcome *ret_outcome,
                                        struct tally_error *err)
{
    return compare(receipt, update, digest_of(update), ret_outcome, err);
}

static enum tally_status fail_closed(const struct tally_job *job, struct tally_error *err)
{
    return tally_fail(err, TALLY_FAILED_PRECONDITION, "job_id", "the job is %s",
                      tally_job_status_name(job->status));
}

enum tally_status tally_job_check_round(const struct tally_job *job, int64_t round, uint32_t mark,
                                        struct tally_error *err)
{
    if (round != job->open.round) {
        return tally_fail(err, TALLY_FAILED_PRECONDITION, "round",
                          "round %lld is not open, round %lld is", (long long)round,
                          (long long)job->open.round);
    }
    if (mark != 0 && mark != job->open.mark && job_has_stopped(job)) {
        return tally_fail(err, TALLY_FAILED_PRECONDITION, "mark",
                          "the job stops: round %lld takes no more updates", (long long)round);
    }
    if (mark != 0 && mark != job->open.mark && round == 1 && job->survey.features > 0) {
        return tally_fail(err, TALLY_FAILED_PRECONDITION, "mark",
                          job->open.surveys ? "the clients' points are still being surveyed"
                                            : "the survey of the clients' points has closed");
    }
    if (mark != 0 && mark != job->open.mark) {
        return tally_fail(err, TALLY_FAILED_PRECONDITION, "mark",
                          "the store has lost the point at which this update for round %lld was "
                          "computed",
                          (long long)round);
    }
    return TALLY_OK;
}

/* Whether the update, which differs from the client's message of the first round, may be an answer
 * to the survey, which had that number, and so comes too late. */
static bool may_be_late_survey(const struct tally_job *job, const struct tally_update *update,
                               uint64_t digest)
{
    return job->survey.features > 0 && update->round == 1 && job->open.round > 1 &&
           tally_job_receipt(job, update->client).digest != digest;
}

/* Returns OK if the open round still needs the update, or if the update is a duplicate; a duplicate
 * also sets *outcome. */
static enum tally_status admit(const struct tally_job *job, const struct tally_update *update,
                               uint64_t digest, struct tally_job_outcome *outcome,
                               struct tally_error *err)
{
    if (update->client >= job->clients.n) {
        return tally_fail(err, TALLY_OUT_OF_RANGE, "client", "client %u outside [0, %u]",
                          update->client, job->clients.n - 1);
    }
    const bool is_open = job_is_open(job);
    /* A different mark: not even a duplicate. So it is when a last evaluation, which has the number
     * of a round whose answers were withdrawn, has ended the job. */
    if ((is_open || job_has_stopped(job)) && update->round == job->open.round) {
        enum tally_status status = tally_job_check_round(job, update->round, update->mark, err);
        if (status != TALLY_OK) {
            return status;
        }
    }
    if (is_open && may_be_late_survey(job, update, digest)) {
        return tally_job_check_round(job, update->round, update->mark, err);
    }
    const struct tally_receipt receipt = tally_job_receipt(job, update->client);
    if (receipt.round != 0 && receipt.round == update->round) {
        return compare(&receipt, update, digest, outcome, err);
    }
    if (!is_open) {
        return fail_closed(job, err);
    }
    enum tally_status status = tally_job_check_round(job, update->round, update->mark, err);
    if (status == TALLY_OK && !tally_job_is_drawn(job, update->client)) {
        status =
            tally_fail(err, TALLY_FAILED_PRECONDITION, "client",
                       "client %u is not in the cohort of round %u", update->client, update->round);
    }
    return status;
}

/* The clients whose evaluations are kept: all of the cohort, or one. */
static uint32_t n_evaluators(const struct tally_job *job)
{
    return job->open.evaluator > 0 ? 1 : job->setting.cohort;
}

static enum tally_status check_evaluation(struct tally_job *job, const struct tally_update *update,
                                          struct tally_error *err)
{
    const enum tally_status status = job_metrics_check(
        &job->evaluation, n_evaluators(job), update->evaluation, update->n_evaluation, err);
    if (status == TALLY_MALFORMED && err != NULL) {
        snprintf(err->field, sizeof err->field, "evaluation");
    }
    return status;
}

/* Takes the client's evaluation of the point. One that was not asked for is left out: after a
 * restart another client may be the evaluator. */
static void take_evaluation(struct tally_job *job, const struct tally_update *update)
{
    if (!tally_job_round_evaluates(&job->open, update->client)) {
        return;
    }
    const uint32_t place = job->open.evaluator > 0 ? 0 : job->clients.all[update->client].place;
    job_metrics_take(&job->evaluation, place, job->clients.all[update->client].weight,
                     update->evaluation, update->n_evaluation);
    job->telemetry_bits += job_metrics_bits(update->evaluation, update->n_evaluation);
    if (update->evaluation_failure[0] != '\0') {
        job_note_setback(job, update->evaluation_failure);
    }
}

static enum tally_status check_telemetry(struct tally_job *job, const struct tally_update *update,
                                         struct tally_error *err)
{
    const bool may_lack_loss = !job_has_regret(job) && !update->has_loss;
    if (update->has_loss != job->open.evaluate && !may_lack_loss) {
        return tally_fail(err, TALLY_MALFORMED, "loss", "round %u %s", update->round,
                          job->open.evaluate ? "needs a loss; clients may omit it only in jobs "
                                               "whose reference is none"
                                             : "takes no loss");
    }
    if (update->has_loss && !isfinite(update->loss)) {
        return tally_fail(err, TALLY_MALFORMED, "loss", "the loss is not finite");
    }
    if (update->clipped > job->setting.dim) {
        return tally_fail(err, TALLY_MALFORMED, "clipped", "clipped %u is above dim %zu",
                          update->clipped, job->setting.dim);
    }
    enum tally_status status = job_metrics_check(&job->metrics, job->setting.cohort,
                                                 update->metrics, update->n_metrics, err);
    if (status == TALLY_OK && tally_job_round_evaluates(&job->open, update->client)) {
        status = check_evaluation(job, update, err);
    }
    return status;
}

/* The shift that the algorithm keeps for the client; NULL if none. */
static struct tally_shift *shift_of(const struct tally_job *job, uint32_t client)
{
    return job->memory != NULL && job->algorithm->memory.shift != NULL
               ? job->algorithm->memory.shift(&job->setting, job->memory, client)
               : NULL;
}

const float *tally_job_shift(const struct tally_job *job, uint32_t client, int64_t *ret_round)
{
    uint64_t round = 0;
    const struct tally_shift *shift = shift_of(job, client);
    const float *vector =
        shift == NULL ? NULL
                      : tally_shift_in(shift, (uint64_t)job->open.round, job->setting.dim, &round);
    *ret_round = (int64_t)round;
    return vector;
}

/* Checks a message of a round that the horizon cuts: it must be empty except for its weight, which
 * has been removed before. */
static enum tally_status check_cut(const struct tally_message_view *view, uint32_t clipped,
                                   struct tally_error *err)
{
    return view->n_payload == 0 && view->payload_bits == 0 && clipped == 0
               ? TALLY_OK
               : tally_fail(err, TALLY_MALFORMED, "payload", "round %u takes no gradient message",
                            view->number);
}

/* Decodes the message and adds it to the sums. */
static enum tally_status add_message(struct tally_job *job, const struct tally_update *update,
                                     struct job_client *answer, struct tally_bits *ret_bits,
                                     struct tally_error *err)
{
    struct tally_message_view view = {.payload = update->payload.data,
                                      .n_payload = update->payload.size,
                                      .payload_bits = update->payload_bits,
                                      .grid = job->open.plan.grid,
                                      .client = update->client,
                                      .number = (uint32_t)job->open.round,
                                      .shift = shift_of(job, update->client)};
    *ret_bits = (struct tally_bits){0};
    if (tally_job_round_only_evaluates(&job->open)) { /* which has no weight: the last one counts */
        const bool is_known = tally_job_receipt(job, update->client).round != 0;
        answer->weight = is_known ? job->clients.all[update->client].weight : 0;
        return check_cut(&view, update->clipped, err);
    }
    enum tally_status status = tally_weight_take(&job->setting, &view, err);
    if (status != TALLY_OK) {
        return status;
    }
    if (job->open.plan.cut) {
        status = check_cut(&view, update->clipped, err);
    } else if (job_is_opening(job)) {
        status =
            job->algorithm->opening->receive(&job->setting, &view, &answer->report, ret_bits, err);
    } else {
        status = job->algorithm->receive(&job->setting, &job->open.plan, &view, &job->scratch,
                                         job->sums, ret_bits, err);
        answer->report.norm = job->scratch.square;
    }
    const uint64_t weight_bits = tally_weight_bits(&job->setting);
    ret_bits->formula_bits += weight_bits;
    ret_bits->payload_bits += weight_bits;
    ret_bits->messages |= weight_bits > 0;
    ret_bits->clipped = update->clipped;
    answer->weight = view.weight;
    return status;
}

/* Counts an answer whose message was added to the sums, at the costs `bits`. */
static void count(struct tally_job *job, const struct tally_update *update, uint64_t digest,
                  struct job_client *answer, const struct tally_bits *bits)
{
    answer->receipt =
        (struct tally_receipt){update->round, digest, bits->formula_bits, bits->payload_bits};
    job_clients_accept(&job->clients, update->client, answer);
    tally_weights_add(&job->weights, answer->weight);
    tally_bits_add(&job->received_bits, bits);
    job->open.received++;
}

enum tally_status job_receive_again(struct tally_job *job, const struct tally_update *update,
                                    struct tally_error *err)
{
    struct job_client answer = {.loss = NAN};
    struct tally_bits bits;
    if (update->client >= job->clients.n || !tally_job_is_drawn(job, update->client) ||
        tally_job_has_received(job, update->client)) {
        return tally_fail(err, TALLY_DATA_LOSS, NULL, "have one of a client %u that sent none",
                          update->client);
    }
    const enum tally_status status = add_message(job, update, &answer, &bits, err);
    if (status == TALLY_OK) {
        count(job, update, 0, &answer, &bits);
    }
    return status;
}

/* Takes a client's survey of its points. */
static enum tally_status receive_survey(struct tally_job *job, const struct tally_update *update,
                                        uint64_t digest, struct tally_job_outcome *outcome,
                                        struct tally_error *err)
{
    const uint64_t bits = 8 * (uint64_t)update->payload.size;
    struct job_client answer = {.loss = NAN, .receipt = {update->round, digest, bits, bits}};
    if (update->has_loss || update->clipped != 0) {
        return tally_fail(err, TALLY_MALFORMED, update->has_loss ? "loss" : "clipped",
                          "a survey takes neither a loss nor clipped coordinates");
    }
    if (update->payload_bits != bits) {
        return tally_fail(err, TALLY_MALFORMED, "payload_bits",
                          "%llu bits for a survey of %zu bytes",
                          (unsigned long long)update->payload_bits, update->payload.size);
    }
    const enum tally_status status =
        job_survey_receive(&job->survey, update->payload.data, update->payload.size, err);
    if (status != TALLY_OK) {
        return status;
    }
    job_clients_accept(&job->clients, update->client, &answer);
    job->open.received++;
    outcome->bits = (struct tally_bits){.formula_bits = bits, .payload_bits = bits, .messages = 1};
    job_check_invariants(job);
    job_close_if_complete(job, outcome);
    return TALLY_OK;
}

enum tally_status tally_job_receive(struct tally_job *job, const struct tally_update *update,
                                    struct tally_job_outcome *ret_outcome, struct tally_error *err)
{
    const uint64_t digest = digest_of(update);
    struct tally_job_outcome outcome = {0};
    struct job_client answer = {.loss = update->has_loss ? update->loss : NAN};
    enum tally_status status = admit(job, update, digest, &outcome, err);
    if (status == TALLY_OK && outcome.duplicate) {
        *ret_outcome = outcome;
        return TALLY_OK;
    }
    if (status == TALLY_OK && job->open.surveys) {
        status = receive_survey(job, update, digest, &outcome, err);
        if (status == TALLY_OK) {
            *ret_outcome = outcome;
        }
        return status;
    }
    if (status == TALLY_OK) {
        status = check_telemetry(job, update, err);
    }
    if (status == TALLY_OK) {
        status = add_message(job, update, &answer, &outcome.bits, err);
    }
    if (status != TALLY_OK) {
        return status;
    }
    count(job, update, digest, &answer, &outcome.bits);
    job_kept_add(job, update);
    job->telemetry_bits += update->has_loss ? LOSS_BITS : 0;
    job->telemetry_bits += job->open.plan.cut ? 0 : CLIPPED_BITS;
    job->telemetry_bits += job_metrics_bits(update->metrics, update->n_metrics);
    job_metrics_take(&job->metrics, job->clients.all[update->client].place, answer.weight,
                     update->metrics, update->n_metrics);
    take_evaluation(job, update);
    job_check_invariants(job);
    job_close_if_complete(job, &outcome);
    *ret_outcome = outcome;
    return TALLY_OK;
}
