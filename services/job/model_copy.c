#include "services/job/model_copy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/numeric/checksum.h"
#include "codec/utf8.h"
#include "services/algorithms/weights.h"

/* The last evaluation of a model, for the case that its update has to be computed again. */
struct evaluated {
    uint32_t round, mark, client;
    struct tally_metric metrics[TALLY_METRICS_MOST];
    size_t n;
    char failure[TALLY_FAILURE_CAPACITY]; /* "" = it has not failed */
};

struct tally_model_copy {
    struct tally_job_spec spec;
    struct tally_setting setting;
    const struct tally_algorithm *algorithm;
    const struct tally_objective *objective;
    int64_t iterate;
    double *x; /* double[dim] */
    double
        *next; /* double[dim]: a broadcast is applied here, so that a failure leaves x as it was */
    struct tally_scratch scratch;
    struct tally_client_answer answer;
    struct evaluated evaluated;
    enum tally_shift_start shift_start;
    struct tally_shift **shifts; /* [clients], each made when it is needed; NULL: not kept */
};

void tally_model_copy_free(struct tally_model_copy *copy)
{
    if (copy != NULL) {
        free(copy->x);
        free(copy->next);
        for (uint32_t m = 0; copy->shifts != NULL && m < copy->setting.clients; m++) {
            free(copy->shifts[m]);
        }
        free(copy->shifts);
        tally_scratch_fini(&copy->scratch);
        tally_message_fini(&copy->answer.message);
        free(copy);
    }
}

enum tally_status tally_model_copy_new(const struct tally_job_spec *spec,
                                       const struct tally_objective *objective,
                                       struct tally_model_copy **ret_copy, struct tally_error *err)
{
    struct tally_model_copy *copy = calloc(1, sizeof *copy);
    if (copy == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a model copy");
    }
    copy->spec = *spec;
    copy->setting = tally_job_spec_setting(&copy->spec);
    copy->algorithm = tally_job_spec_algorithm(spec);
    copy->objective = objective;
    copy->iterate = 1;
    size_t dim = copy->setting.dim;
    copy->x = calloc(dim, sizeof *copy->x);
    copy->next = calloc(dim, sizeof *copy->next);
    enum tally_status status = tally_scratch_init(&copy->scratch, dim, TALLY_SCRATCH_CLIENT, err);
    copy->shift_start = copy->algorithm->shift_start != NULL
                            ? copy->algorithm->shift_start(&copy->setting)
                            : TALLY_SHIFT_NONE;
    const bool keeps_shifts = copy->shift_start != TALLY_SHIFT_NONE;
    copy->shifts = keeps_shifts ? calloc(copy->setting.clients, sizeof(void *)) : NULL;
    if (status != TALLY_OK || copy->x == NULL || copy->next == NULL ||
        (keeps_shifts && copy->shifts == NULL)) {
        tally_model_copy_free(copy);
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for vectors of dim %zu", dim);
    }
    tally_job_spec_initial_point(&copy->spec, copy->x);
    *ret_copy = copy;
    return TALLY_OK;
}

void tally_model_copy_use(struct tally_model_copy *copy, const struct tally_objective *objective)
{
    copy->objective = objective;
}

int64_t tally_model_copy_iterate(const struct tally_model_copy *copy)
{
    return copy->iterate;
}

uint64_t tally_model_copy_checksum(const struct tally_model_copy *copy)
{
    return tally_checksum64(copy->x, copy->setting.dim * sizeof *copy->x);
}

enum tally_status tally_model_copy_apply(struct tally_model_copy *copy, int64_t iterate,
                                         const struct tally_message_view *broadcast,
                                         struct tally_error *err)
{
    if (iterate != copy->iterate + 1) {
        return tally_fail(err, TALLY_FAILED_PRECONDITION, "broadcasts",
                          "broadcast to iterate %lld cannot follow iterate %lld",
                          (long long)iterate, (long long)copy->iterate);
    }
    memcpy(copy->next, copy->x, copy->setting.dim * sizeof *copy->x);
    struct tally_message_view view = *broadcast;
    view.number = (uint32_t)iterate;
    enum tally_status status =
        copy->algorithm->apply(&copy->setting, &view, &copy->scratch, copy->next, err);
    if (status == TALLY_OK) {
        double *old = copy->x;
        copy->x = copy->next;
        copy->next = old;
        copy->iterate = iterate;
    }
    return status;
}

enum tally_status tally_model_copy_load(struct tally_model_copy *copy, int64_t iterate,
                                        const uint8_t *snapshot, size_t n, struct tally_error *err)
{
    size_t need = copy->setting.dim * sizeof *copy->x;
    if (n != need) {
        return tally_fail(err, TALLY_MALFORMED, "snapshot", "snapshot of %zu bytes instead of %zu",
                          n, need);
    }
    memcpy(copy->x, snapshot, n);
    copy->iterate = iterate;
    return TALLY_OK;
}

void tally_model_copy_start_at(struct tally_model_copy *copy, const float *weights)
{
    for (size_t i = 0; i < copy->setting.dim; i++) {
        copy->x[i] = (double)weights[i];
    }
    tally_domain_project(&copy->setting.domain, copy->x, copy->setting.dim);
    copy->iterate = 1;
}

/* Gets the client's shift, creating one without messages if there is none. *ret_shift is NULL if
 * the job keeps no shifts. */
static enum tally_status shift_of(struct tally_model_copy *copy, uint32_t client,
                                  struct tally_shift **ret_shift, struct tally_error *err)
{
    *ret_shift = NULL;
    if (copy->shifts == NULL) {
        return TALLY_OK;
    }
    const size_t dim = copy->setting.dim;
    if (copy->shifts[client] == NULL) {
        double *x = malloc(dim * sizeof *x);
        copy->shifts[client] = x != NULL ? malloc(tally_shift_bytes(dim)) : NULL;
        if (copy->shifts[client] == NULL) {
            free(x);
            return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the shift of client %u",
                              client);
        }
        /* A given point is here only as long as the copy is at it; later the coordinator sends the
         * shift. */
        if (tally_initial_point_is_given(&copy->spec.initial_point)) {
            memcpy(x, copy->x, dim * sizeof *x);
        } else {
            tally_job_spec_initial_point(&copy->spec, x);
        }
        tally_shift_begin(copy->shifts[client], copy->shift_start == TALLY_SHIFT_POINT ? x : NULL,
                          dim);
        free(x);
    }
    *ret_shift = copy->shifts[client];
    return TALLY_OK;
}

enum tally_status tally_model_copy_set_shift(struct tally_model_copy *copy, uint32_t client,
                                             int64_t round, const uint8_t *vector, size_t n,
                                             struct tally_error *err)
{
    const size_t dim = copy->setting.dim;
    struct tally_shift *shift;
    if (copy->shifts == NULL || client >= copy->setting.clients || round < 0 ||
        (n != 0 && n != dim * sizeof(float))) {
        return tally_fail(err, TALLY_MALFORMED, "shifts", "client %u has no shift of %zu bytes",
                          client, n);
    }
    if (shift_of(copy, client, &shift, err) != TALLY_OK) {
        return TALLY_NO_MEMORY;
    }
    if (n > 0) {
        tally_shift_load(shift, (uint64_t)round, vector, dim);
    } else if (!tally_shift_return(shift, (uint64_t)round, dim)) {
        return tally_fail(err, TALLY_DATA_LOSS, "shifts",
                          "the shift of client %u after round %lld is not here", client,
                          (long long)round);
    }
    return TALLY_OK;
}

/* Evaluates the point, the model that the last round made. A failure is only noted: the round does
 * not need the evaluation. */
static enum tally_status evaluate_model(struct tally_model_copy *copy,
                                        const struct tally_update *update, struct tally_error *err)
{
    struct evaluated *evaluated = &copy->evaluated;
    struct tally_error why = TALLY_ERROR_INIT;
    float *weights = copy->scratch.vector;
    for (size_t i = 0; i < copy->setting.dim; i++) {
        weights[i] = (float)copy->x[i];
    }
    *evaluated = (struct evaluated){.round = 0};
    const enum tally_status status =
        tally_objective_evaluate_model(copy->objective, update->client, update->round - 1, weights,
                                       evaluated->metrics, &evaluated->n, &why);
    if (status != TALLY_OK && status != TALLY_FAILED_PRECONDITION) {
        return tally_fail(err, status, why.field, "%s", why.message);
    }
    if (status != TALLY_OK) {
        evaluated->n = 0;
        snprintf(evaluated->failure, sizeof evaluated->failure, "%.*s",
                 (int)sizeof evaluated->failure - 1, why.message);
        evaluated
            ->failure[tally_utf8_valid_prefix(evaluated->failure, strlen(evaluated->failure))] =
            '\0';
    }
    evaluated->round = update->round;
    evaluated->mark = update->mark;
    evaluated->client = update->client;
    return TALLY_OK;
}

/* Adds the evaluation of the point to the update. */
static enum tally_status add_evaluation(struct tally_model_copy *copy, struct tally_update *update,
                                        struct tally_error *err)
{
    const struct evaluated *evaluated = &copy->evaluated;
    const bool is_known = evaluated->round == update->round && evaluated->mark == update->mark &&
                          evaluated->client == update->client;
    enum tally_status status = is_known ? TALLY_OK : evaluate_model(copy, update, err);
    if (status == TALLY_OK) {
        memcpy(update->evaluation, evaluated->metrics, sizeof update->evaluation);
        update->n_evaluation = evaluated->n;
        memcpy(update->evaluation_failure, evaluated->failure, sizeof evaluated->failure);
    }
    return status;
}

/* Makes the update of the survey. */
static enum tally_status put_survey(const struct tally_model_copy *copy,
                                    struct tally_update *update, struct tally_bits *ret_bits,
                                    struct tally_error *err)
{
    const struct tally_buffer *survey;
    const enum tally_status status =
        tally_objective_survey(copy->objective, update->client, &survey, err);
    if (status == TALLY_OK) {
        update->payload = (struct tally_bytes){survey->data, survey->size};
        update->payload_bits = 8 * (uint64_t)survey->size;
        *ret_bits = (struct tally_bits){.formula_bits = update->payload_bits,
                                        .payload_bits = update->payload_bits,
                                        .messages = 1};
    }
    return status;
}

enum tally_status tally_model_copy_compute(struct tally_model_copy *copy,
                                           const struct tally_job_round *round, uint32_t client,
                                           struct tally_update *ret_update,
                                           struct tally_bits *ret_bits, struct tally_error *err)
{
    if (client >= copy->setting.clients) {
        return tally_fail(err, TALLY_OUT_OF_RANGE, "clients", "client %u outside [0, %u]", client,
                          copy->setting.clients - 1);
    }
    struct tally_update update = {
        .round = (uint32_t)round->round, .mark = round->mark, .client = client};
    struct tally_bits bits = {0};
    if (round->surveys) {
        const enum tally_status surveyed = put_survey(copy, &update, ret_bits, err);
        if (surveyed == TALLY_OK) {
            *ret_update = update;
        }
        return surveyed;
    }
    if (round->scaling != copy->objective->scaling) {
        return tally_fail(err, TALLY_FAILED_PRECONDITION, "objective.data",
                          "the features here are not scaled as those of the job");
    }
    enum tally_status status =
        tally_job_round_evaluates(round, client) ? add_evaluation(copy, &update, err) : TALLY_OK;
    if (status != TALLY_OK) {
        return status;
    }
    if (tally_job_round_only_evaluates(round)) {
        *ret_update = update;
        *ret_bits = bits;
        return TALLY_OK;
    }
    const int64_t least = copy->algorithm->repeats_opening ? 0 : 1;
    if (round->plan.samples < least || round->plan.samples > copy->spec.horizon) {
        return tally_fail(err, TALLY_OUT_OF_RANGE, "samples", "samples %lld outside [%lld, %lld]",
                          (long long)round->plan.samples, (long long)least,
                          (long long)copy->spec.horizon);
    }
    const bool evaluate = round->evaluate && tally_objective_has_loss(copy->objective);
    struct tally_shift *shift;
    status = shift_of(copy, client, &shift, err);
    if (status != TALLY_OK) {
        return status;
    }
    const struct tally_client_task task = {
        &copy->setting,         &round->plan, copy->objective, client,
        (uint32_t)round->round, copy->x,      evaluate,        shift};
    status = copy->algorithm->client_step(&task, &copy->scratch, &copy->answer, err);
    if (status == TALLY_OK) {
        status = tally_weight_put(&task, &copy->answer.message, err);
    }
    if (status != TALLY_OK) {
        return status;
    }
    status = tally_objective_metrics(copy->objective, client, update.round, copy->x, evaluate,
                                     update.metrics, &update.n_metrics, err);
    if (status != TALLY_OK) {
        return status;
    }
    if (!round->plan.cut || tally_weight_bits(&copy->setting) > 0) {
        bits = copy->answer.message.bits;
        update.payload = (struct tally_bytes){copy->answer.message.payload.data,
                                              copy->answer.message.payload.size};
        update.payload_bits = bits.payload_bits;
        update.clipped = (uint32_t)bits.clipped;
    }
    if (evaluate) {
        update.has_loss = true;
        update.loss = copy->answer.loss;
    }
    *ret_update = update;
    *ret_bits = bits;
    return TALLY_OK;
}
