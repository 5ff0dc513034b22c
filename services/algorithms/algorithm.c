#include "services/algorithms/algorithm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const struct tally_algorithm *const TALLY_ALGORITHMS[] = {
#define TALLY_ALGORITHM_ROW(symbol, name) &TALLY_##symbol,
    TALLY_ALGORITHM_TABLE(TALLY_ALGORITHM_ROW) NULL
#undef TALLY_ALGORITHM_ROW
};
const char *const TALLY_ALGORITHM_NAMES[] = {
#define TALLY_ALGORITHM_NAME(symbol, name) #name,
    TALLY_ALGORITHM_TABLE(TALLY_ALGORITHM_NAME) NULL
#undef TALLY_ALGORITHM_NAME
};

size_t tally_algorithm_fields(const struct tally_algorithm *algorithm, bool trains,
                              struct tally_field ret_fields[TALLY_ALGORITHM_FIELDS_MOST])
{
    static const char *const OF_STEPS[] = {"step_size", "local_steps", "step_decay",
                                           "local_steps_growth"};
    size_t n = 0;
    for (size_t i = 0; i < algorithm->n_fields; i++) {
        bool is_left_out = false;
        for (size_t k = 0; trains && k < sizeof OF_STEPS / sizeof OF_STEPS[0]; k++) {
            is_left_out |= strcmp(algorithm->fields[i].name, OF_STEPS[k]) == 0;
        }
        if (!is_left_out) {
            ret_fields[n++] = algorithm->fields[i];
        }
    }
    return n;
}

enum tally_status tally_scratch_init(struct tally_scratch *scratch, size_t dim,
                                     enum tally_scratch_use use, struct tally_error *err)
{
    const bool is_client = use == TALLY_SCRATCH_CLIENT;
    *scratch = (struct tally_scratch){
        .gradient = is_client ? calloc(dim, sizeof *scratch->gradient) : NULL,
        .local = is_client ? calloc(dim, sizeof *scratch->local) : NULL,
        .vector = calloc(dim, sizeof *scratch->vector),
        .levels = calloc(dim, sizeof *scratch->levels),
    };
    if ((is_client && (scratch->gradient == NULL || scratch->local == NULL)) ||
        scratch->vector == NULL || scratch->levels == NULL) {
        tally_scratch_fini(scratch);
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for vectors of dim %zu", dim);
    }
    return TALLY_OK;
}

enum tally_status tally_scratch_widen(struct tally_scratch *scratch, size_t dim,
                                      struct tally_error *err)
{
    if (scratch->wide.reals == NULL) {
        scratch->wide.reals = calloc(dim, sizeof *scratch->wide.reals);
    }
    return scratch->wide.reals != NULL
               ? TALLY_OK
               : tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a vector of dim %zu", dim);
}

void tally_scratch_fini(struct tally_scratch *scratch)
{
    free(scratch->wide.reals);
    free(scratch->gradient);
    free(scratch->local);
    free(scratch->vector);
    free(scratch->levels);
    *scratch = (struct tally_scratch){0};
}

enum tally_status tally_client_loss(const struct tally_client_task *task, double *ret_loss,
                                    struct tally_error *err)
{
    if (!task->evaluate) {
        return TALLY_OK;
    }
    enum tally_status status =
        tally_objective_local_loss(task->objective, task->client, task->x, ret_loss, err);
    if (status == TALLY_OK && !isfinite(*ret_loss)) {
        status = tally_fail(err, TALLY_NOT_FINITE, NULL, "the loss of client %u is %s",
                            task->client, isnan(*ret_loss) ? "NaN" : "infinite");
    }
    return status;
}

enum tally_status tally_client_gradient(const struct tally_client_task *task,
                                        struct tally_scratch *scratch, struct tally_error *err)
{
    const struct tally_setting *setting = task->setting;
    struct tally_rng rng;
    tally_rng_init(&rng, setting->key, task->client, task->round, TALLY_RNG_SAMPLING);
    enum tally_status status = tally_objective_local_gradient(
        task->objective, task->client, task->x, task->plan->samples * setting->minibatch, &rng,
        scratch->gradient, err);
    for (size_t i = 0; status == TALLY_OK && i < setting->dim; i++) {
        scratch->vector[i] = (float)scratch->gradient[i];
    }
    return status;
}

enum tally_status tally_client_moments(const struct tally_client_task *task,
                                       struct tally_scratch *scratch, double *mean,
                                       double *ret_variance, struct tally_error *err)
{
    const struct tally_setting *setting = task->setting;
    const int64_t samples = task->plan->samples;
    const size_t dim = setting->dim;
    struct tally_rng rng;
    double squares = 0;
    tally_rng_init(&rng, setting->key, task->client, task->round, TALLY_RNG_SAMPLING);
    memset(mean, 0, dim * sizeof *mean);
    for (int64_t n = 1; n <= samples; n++) {
        enum tally_status status =
            tally_objective_local_gradient(task->objective, task->client, task->x,
                                           setting->minibatch, &rng, scratch->gradient, err);
        if (status != TALLY_OK) {
            return status;
        }
        for (size_t i = 0; i < dim; i++) {
            const double before = scratch->gradient[i] - mean[i];
            mean[i] += before / (double)n;
            squares += before * (scratch->gradient[i] - mean[i]);
        }
    }
    *ret_variance = samples > 1 ? squares / (double)(samples - 1) : 0;
    return TALLY_OK;
}

enum tally_status tally_message_of_vector(const struct tally_setting *setting,
                                          const struct tally_grid *grid,
                                          const struct tally_rng *rng,
                                          struct tally_scratch *scratch,
                                          struct tally_message *message, struct tally_error *err)
{
    const struct tally_vector vector = {
        .y = scratch->vector, .dim = setting->dim, .grid = grid, .rng = rng};
    struct tally_level_stats stats;
    uint64_t clipped;
    enum tally_status status = tally_quantize_encode(setting->encoding, &vector, scratch->levels,
                                                     &message->payload, &stats, &clipped, err);
    if (status != TALLY_OK) {
        return status;
    }
    message->grid = *grid;
    message->bits = (struct tally_bits){.formula_bits = stats.formula_bits,
                                        .payload_bits = stats.payload_bits,
                                        .messages = 1,
                                        .clipped = clipped};
    return TALLY_OK;
}

void tally_message_fini(struct tally_message *message)
{
    tally_buffer_fini(&message->payload);
}

struct tally_message_view tally_message_view(const struct tally_message *message)
{
    return (struct tally_message_view){.payload = message->payload.data,
                                       .n_payload = message->payload.size,
                                       .payload_bits = message->bits.payload_bits,
                                       .grid = message->grid};
}
