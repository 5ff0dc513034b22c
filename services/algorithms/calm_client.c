/* A client of CALM in one round: its queries, its own steps and its message; calm.c has the method.
 *
 * While the job averages, a client steps by the recursion (calm/calm_model.h) and sends the mean of
 * its queries' predictions. While the job travels (calm/calm_travel.h), the client takes plain
 * gradient steps and sends its displacement:
 *
 *     w_1 = x;  w_{i+1} = w_i - e_i g_i
 *     sends Q(w_{n+1} - x)
 *
 * The task gives the step length e and the noise s of one query (variance per coordinate). e_i is e
 * while gradients scatter no more than s, and shorter otherwise. A client measures the scatter by
 * the differences of successive gradients. It starts from s in every round and keeps nothing
 * between rounds, so any worker can take the client over. */
#include <math.h>
#include <string.h>

#include "codec/dithered/dithered.h"
#include "services/algorithms/calm.h"
#include "services/algorithms/calm/calm_travel.h"
#include "services/objectives/loss_path.h"

int64_t calm_message_samples(const struct tally_round_plan *plan)
{
    return plan->facts.repeats + plan->samples;
}

static enum tally_status diverged(const struct tally_client_task *task, struct tally_error *err)
{
    return tally_fail(err, TALLY_NOT_FINITE, NULL,
                      "the steps of client %u diverged; step_size %g is too large", task->client,
                      calm_step_size(task->setting, &task->plan->facts));
}

/* What a client keeps between queries. */
struct course {
    struct tally_rng rng;
    struct tally_calm_walk walk; /* while the job averages */
    double seen;                 /* while the job travels: noise of one query */
    int64_t queries;             /* made so far */
};

static bool travels(const struct tally_client_task *task)
{
    return task->plan->facts.travel_step > 0;
}

/* Adds the prediction of the gradient at w to scratch->wide.reals and moves w. */
static void average(const struct tally_client_task *task, struct course *course,
                    struct tally_scratch *scratch)
{
    const double length = calm_step_size(task->setting, &task->plan->facts);
    const double step = tally_calm_walk_next(&course->walk), pull = course->walk.pull;
    double *w = scratch->local, *sum = scratch->wide.reals;
    const double *g = scratch->gradient, *x = task->x;
    for (size_t i = 0; i < task->setting->dim; i++) {
        const double away = w[i] - x[i];
        sum[i] += away - length * g[i];
        w[i] -= step * (g[i] + pull * away);
    }
}

/* The same for the gradient of an earlier query, which was made at x. */
static void average_repeated(const struct tally_client_task *task, struct course *course,
                             struct tally_scratch *scratch)
{
    const double length = calm_step_size(task->setting, &task->plan->facts);
    const double step = tally_calm_walk_repeat(&course->walk),
                 pull = 1 / length + course->walk.pull;
    double *w = scratch->local, *sum = scratch->wide.reals;
    const double *g = scratch->gradient, *x = task->x;
    for (size_t i = 0; i < task->setting->dim; i++) {
        sum[i] -= length * g[i];
        w[i] -= step * (g[i] + pull * (w[i] - x[i]));
    }
}

/* The squared difference of two successive gradients is twice the noise of one. s has the weight of
 * the gradients of an opening round. A new difference has at least LEAST_WEIGHT, so old ones fade.
 */
static void see_noise(struct course *course, double difference)
{
    static const double LEAST_WEIGHT = 0.05;
    const double weight = 1 / (double)(CALM_OPENING_SAMPLES + course->queries);
    course->seen += (difference / 2 - course->seen) * fmax(weight, LEAST_WEIGHT);
}

/* Moves w along the gradient at w. The previous gradient is in scratch->wide.reals. */
static void travel(const struct tally_client_task *task, struct course *course,
                   struct tally_scratch *scratch)
{
    const struct tally_walk_facts *facts = &task->plan->facts;
    const size_t dim = task->setting->dim;
    double *w = scratch->local, *before = scratch->wide.reals, squares = 0;
    const double *g = scratch->gradient;
    for (size_t i = 0; i < dim; i++) {
        squares += (g[i] - before[i]) * (g[i] - before[i]);
        before[i] = g[i];
    }
    if (course->queries > 0) {
        see_noise(course, squares / (double)dim);
    }
    const double step = tally_calm_travel_step(
        facts->travel_step, 1 / calm_step_size(task->setting, facts), course->seen, facts->noise);
    for (size_t i = 0; i < dim; i++) {
        w[i] -= step * g[i];
    }
}

/* Makes one query at scratch->local, and moves that point. */
static enum tally_status query(const struct tally_client_task *task, struct course *course,
                               struct tally_scratch *scratch, struct tally_error *err)
{
    const struct tally_setting *setting = task->setting;
    enum tally_status status =
        tally_objective_local_gradient(task->objective, task->client, scratch->local,
                                       setting->minibatch, &course->rng, scratch->gradient, err);
    if (status != TALLY_OK) {
        return status;
    }
    if (travels(task)) {
        travel(task, course, scratch);
    } else {
        average(task, course, scratch);
    }
    course->queries++;
    tally_domain_project(&setting->domain, scratch->local, setting->dim);
    return TALLY_OK;
}

static void begin_course(const struct tally_client_task *task, struct course *course)
{
    const struct tally_setting *setting = task->setting;
    const struct tally_calm_constants constants = calm_constants(setting, &task->plan->facts);
    *course = (struct course){.seen = task->plan->facts.noise};
    tally_calm_walk_begin(&course->walk, &constants, task->plan->facts.distance);
    tally_rng_init(&course->rng, setting->key, task->client, task->round, TALLY_RNG_SAMPLING);
}

/* Sets scratch->vector to the vector that the client sends. */
static void conclude(const struct tally_client_task *task, int64_t samples,
                     struct tally_scratch *scratch)
{
    const size_t dim = task->setting->dim;
    const float *known =
        task->shift != NULL ? tally_shift_in(task->shift, task->round, dim, NULL) : NULL;
    for (size_t i = 0; i < dim; i++) {
        const double mean = travels(task) ? scratch->local[i] - task->x[i]
                                          : scratch->wide.reals[i] / (double)samples;
        scratch->vector[i] = (float)(known != NULL ? mean - ((double)known[i] - task->x[i]) : mean);
    }
}

/* Makes the first queries of the opening round again. They have been counted. */
static enum tally_status repeat_queries(const struct tally_client_task *task, struct course *course,
                                        struct tally_scratch *scratch, struct tally_error *err)
{
    const struct tally_setting *setting = task->setting;
    struct tally_rng rng;
    enum tally_status status = TALLY_OK;
    tally_rng_init(&rng, setting->key, task->client, task->round - 1, TALLY_RNG_SAMPLING);
    for (int64_t i = 0; status == TALLY_OK && i < task->plan->facts.repeats; i++) {
        status = tally_objective_local_gradient(task->objective, task->client, task->x,
                                                setting->minibatch, &rng, scratch->gradient, err);
        if (status == TALLY_OK) {
            average_repeated(task, course, scratch);
        }
    }
    tally_domain_project(&setting->domain, scratch->local, setting->dim);
    return status;
}

/* Makes the queries of the round, starting at x, with the client's own steps between them. */
static enum tally_status make_queries(const struct tally_client_task *task,
                                      struct tally_scratch *scratch, struct tally_loss_path *path,
                                      struct tally_error *err)
{
    const struct tally_setting *setting = task->setting;
    const int64_t samples = calm_message_samples(task->plan);
    struct course course;
    begin_course(task, &course);
    memcpy(scratch->local, task->x, setting->dim * sizeof *task->x);
    memset(scratch->wide.reals, 0, setting->dim * sizeof *scratch->wide.reals);
    enum tally_status status = repeat_queries(task, &course, scratch, err);
    for (int64_t i = 0; status == TALLY_OK && i < task->plan->samples; i++) {
        if (task->evaluate) {
            status = tally_loss_path_visit(path, i, scratch->local, err);
        }
        if (status == TALLY_OK) {
            status = query(task, &course, scratch, err);
        }
    }
    if (status == TALLY_OK) {
        conclude(task, samples, scratch);
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
    enum tally_status status = make_queries(task, scratch, &path, err);
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

void calm_take_shift(const struct tally_round_plan *plan, uint32_t round, const int64_t *integers,
                     size_t dim, struct tally_shift *shift)
{
    const double scale = plan->facts.shift_gain * plan->grid.step * 0x1p-32;
    tally_shift_add_integers(shift, round, integers, scale, dim);
}

/* Decodes the client's own message, as the server will. */
static enum tally_status keep_shift(const struct tally_client_task *task,
                                    const struct tally_grid *grid, struct tally_scratch *scratch,
                                    const struct tally_message *message, struct tally_error *err)
{
    struct tally_rng rng;
    struct tally_level_stats stats;
    tally_rng_init(&rng, task->setting->key, task->client, task->round, TALLY_RNG_UPLINK);
    enum tally_status status = tally_dithered_decode(
        message->payload.data, message->payload.size, message->bits.payload_bits,
        task->setting->dim, grid, &rng, scratch->wide.integers, &stats, err);
    if (status == TALLY_OK) {
        calm_take_shift(task->plan, task->round, scratch->wide.integers, task->setting->dim,
                        task->shift);
    }
    return status;
}

static enum tally_status send(const struct tally_client_task *task, struct tally_scratch *scratch,
                              struct tally_message *message, struct tally_error *err)
{
    const struct tally_round_plan *plan = task->plan;
    struct tally_grid grid = plan->grid;
    if (travels(task)) { /* the task has no grid then: see worker.proto */
        grid.intervals = 2 * tally_dithered_top(task->setting->clients);
    }
    if (!tally_dithered_grid_is_valid(&grid)) {
        return tally_fail(err, TALLY_OUT_OF_RANGE, "quantizer_step",
                          "step %g with %u intervals and scale %u is not a valid quantizer",
                          grid.step, grid.intervals, grid.scale);
    }
    struct tally_rng rng;
    tally_rng_init(&rng, task->setting->key, task->client, task->round, TALLY_RNG_UPLINK);
    enum tally_status status = calm_encode(task->setting, &grid, &rng, scratch, message, err);
    if (status == TALLY_NOT_FINITE) {
        return diverged(task, err);
    }
    if (status == TALLY_OK && plan->max_bits > 0 && message->bits.payload_bits > plan->max_bits) {
        message->payload.size = 0;
        message->bits = (struct tally_bits){0};
    } else if (status == TALLY_OK && task->shift != NULL) {
        status = keep_shift(task, &grid, scratch, message, err);
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
    const int64_t repeats = task->plan->facts.repeats;
    if (repeats > (task->round > 1 ? CALM_OPENING_SAMPLES : 0) ||
        calm_message_samples(task->plan) == 0) {
        return tally_fail(
            err, TALLY_OUT_OF_RANGE, "repeats",
            "a message of round %u cannot include %lld queries of an opening round and "
            "%lld more",
            task->round, (long long)repeats, (long long)task->plan->samples);
    }
    enum tally_status status = make_path(task, scratch, &answer->loss, err);
    return status != TALLY_OK || task->plan->cut ? status
                                                 : send(task, scratch, &answer->message, err);
}
