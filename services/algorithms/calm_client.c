/* A client of CALM in one round: its queries, its own steps and its message; calm.c has the method.
 */
#include <math.h>
#include <string.h>

#include "codec/dithered/dithered.h"
#include "services/algorithms/calm.h"
#include "services/objectives/loss_path.h"

int64_t calm_message_samples(const struct tally_round_plan *plan)
{
    return plan->samples > 0 ? plan->samples : CALM_OPENING_SAMPLES;
}

static enum tally_status diverged(const struct tally_client_task *task, struct tally_error *err)
{
    return tally_fail(err, TALLY_NOT_FINITE, NULL,
                      "the steps of client %u diverged; step_size %g is too large", task->client,
                      task->setting->params->calm.step_size);
}

/* One query: adds its prediction to scratch->wide.reals and moves scratch->local. */
static enum tally_status query(const struct tally_client_task *task, struct tally_rng *rng,
                               double step, double pull, struct tally_scratch *scratch,
                               struct tally_error *err)
{
    const struct tally_setting *setting = task->setting;
    const double length = setting->params->calm.step_size;
    double *w = scratch->local, *sum = scratch->wide.reals;
    const double *g = scratch->gradient, *x = task->x;
    enum tally_status status = tally_objective_local_gradient(
        task->objective, task->client, w, setting->minibatch, rng, scratch->gradient, err);
    if (status != TALLY_OK) {
        return status;
    }
    for (size_t i = 0; i < setting->dim; i++) {
        const double away = w[i] - x[i];
        sum[i] += away - length * g[i];
        w[i] -= step * (g[i] + pull * away);
    }
    tally_domain_project(&setting->domain, w, setting->dim);
    return TALLY_OK;
}

/* The queries of the round, from x on, with a client's own steps in between. */
static enum tally_status walk_queries(const struct tally_client_task *task,
                                      struct tally_scratch *scratch, struct tally_loss_path *path,
                                      struct tally_error *err)
{
    const struct tally_setting *setting = task->setting;
    const int64_t samples = calm_message_samples(task->plan);
    const bool repeats = task->plan->samples == 0;
    const struct tally_calm_constants constants = calm_walk_constants(setting, task->plan);
    struct tally_calm_walk walk;
    tally_calm_walk_begin(&walk, &constants, task->plan->facts.distance);
    struct tally_rng rng;
    tally_rng_init(&rng, setting->key, task->client, task->round - repeats, TALLY_RNG_SAMPLING);
    memcpy(scratch->local, task->x, setting->dim * sizeof *task->x);
    memset(scratch->wide.reals, 0, setting->dim * sizeof *scratch->wide.reals);
    enum tally_status status = TALLY_OK;
    for (int64_t i = 0; status == TALLY_OK && i < samples; i++) {
        if (task->evaluate) {
            status = tally_loss_path_visit(path, i, scratch->local, err);
        }
        if (status == TALLY_OK) {
            const double step = tally_calm_walk_next(&walk);
            status = query(task, &rng, step, walk.pull, scratch, err);
        }
    }
    for (size_t i = 0; status == TALLY_OK && i < setting->dim; i++) {
        scratch->vector[i] = (float)(scratch->wide.reals[i] / (double)samples);
    }
    return status;
}

static enum tally_status make_path(const struct tally_client_task *task,
                                   struct tally_scratch *scratch, double *ret_loss,
                                   struct tally_error *err)
{
    struct tally_loss_path path = {0};
    if (task->evaluate && !tally_loss_path_init(&path, task->objective, task->plan->samples,
                                                task->setting->evaluate_every)) {
        tally_loss_path_fini(&path);
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory to evaluate dim %zu",
                          task->setting->dim);
    }
    enum tally_status status = walk_queries(task, scratch, &path, err);
    if (status == TALLY_OK && task->evaluate) {
        status = tally_loss_path_mean(&path, ret_loss, err);
        if (status == TALLY_OK && !isfinite(*ret_loss)) {
            status = diverged(task, err);
        }
    }
    tally_loss_path_fini(&path);
    return status;
}

enum tally_status calm_encode(const struct tally_setting *setting, const struct tally_grid *grid,
                              const struct tally_rng *rng, struct tally_scratch *scratch,
                              struct tally_message *message, struct tally_error *err)
{
    const struct tally_vector vector = {
        .y = scratch->vector, .dim = setting->dim, .grid = grid, .rng = rng};
    struct tally_level_stats stats;
    uint64_t clipped;
    enum tally_status status =
        tally_dithered_encode(&vector, scratch->levels, &message->payload, &stats, &clipped, err);
    if (status == TALLY_OK) {
        message->grid = *grid;
        message->bits = (struct tally_bits){.formula_bits = stats.formula_bits,
                                            .payload_bits = stats.payload_bits,
                                            .messages = 1,
                                            .clipped = clipped};
    }
    return status;
}

static enum tally_status send(const struct tally_client_task *task, struct tally_scratch *scratch,
                              struct tally_message *message, struct tally_error *err)
{
    const struct tally_round_plan *plan = task->plan;
    if (!tally_dithered_grid_is_valid(&plan->grid)) {
        return tally_fail(err, TALLY_OUT_OF_RANGE, "quantizer_step",
                          "step %g with %u intervals and scale %u is not a valid quantizer",
                          plan->grid.step, plan->grid.intervals, plan->grid.scale);
    }
    struct tally_rng rng;
    tally_rng_init(&rng, task->setting->key, task->client, task->round, TALLY_RNG_UPLINK);
    enum tally_status status = calm_encode(task->setting, &plan->grid, &rng, scratch, message, err);
    if (status == TALLY_NOT_FINITE) {
        return diverged(task, err);
    }
    if (status == TALLY_OK && plan->max_bits > 0 && message->bits.payload_bits > plan->max_bits) {
        message->payload.size = 0;
        message->bits = (struct tally_bits){0};
    }
    return status;
}

enum tally_status calm_client_step(const struct tally_client_task *task,
                                   struct tally_scratch *scratch,
                                   struct tally_client_answer *answer, struct tally_error *err)
{
    if (tally_scratch_widen(scratch, task->setting->dim, err) != TALLY_OK) {
        return TALLY_NO_MEMORY;
    }
    if (task->plan->stage == 0) {
        return calm_report(task, scratch, answer, err);
    }
    enum tally_status status = make_path(task, scratch, &answer->loss, err);
    return status != TALLY_OK || task->plan->cut ? status
                                                 : send(task, scratch, &answer->message, err);
}
