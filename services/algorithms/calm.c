/* CALM, the project's own communication-adaptive local method; CALM.md derives it.
 *
 * Idea: server and clients communicate at a few times whose distances grow geometrically. Between
 * them, a client moves on its own as far as its data can be trusted, because each query adds
 * f(w) - f* to the regret, where w is the point of the query. The message does not depend on that
 * path. It is the mean of the minima that the queries predict, minus x, quantized as coarsely as
 * its noise allows, with a dither that both sides draw from the seed. The server keeps an unrounded
 * estimate z of x* and broadcasts the rounded difference z - x.
 *
 *     epoch of n queries that start at the common point x, h = 1 / step_size:
 *
 *     client   i = 1..n, w_1 = x    g_i at w_i;  D += w_i - x - g_i / h
 *                                   w_{i+1} = w_i - e_i (g_i + lambda (w_i - x))
 *              sends Q(D / n)
 *     server   z <- z + gain (x + mean Q - z);  broadcasts Q(z - x)
 *     both     x <- x + Q(z - x)
 *
 * e_i, lambda, gain and all grids follow from a recursion over V, the mean square of x - x*, and a
 * few constants of the problem (calm/calm_model.h). The server evaluates it and sends V and the
 * constants with each task. The job of calm_model.h, at 263 bits up and 289 down (tally plan):
 *
 *     round    1           2           3           4           5          horizon
 *              | n = 16    | n = 38    | n = 110   | n = 334   | n = 1502 |
 *                          each | is a message of 2 bits a coordinate and a broadcast; none at
 *                          the horizon (a job without a regret that may travel has one there)
 *
 * With a budget and known constants, the lengths n and the resolutions are planned before the first
 * message (calm/calm_plan.h), and stored. Otherwise each epoch is three times as long as the last,
 * or as long as calm_belief.c chooses.
 *
 * Unknown constants are estimated, first from reports in an opening round (calm_opening.c), later
 * from the spread of the clients' messages. The message of the round after the opening includes the
 * queries of the opening: clients make them again, without counting them, and a few more.
 *
 * If the opening round or the clients' means show that some directions are much flatter than h, a
 * job that is given at most a step size stops averaging and travels (calm/calm_travel.h). Clients
 * then take gradient steps of a fixed length and send their displacement; z is the mean of their
 * ends, and epochs grow slowly.
 *
 * A budget is never exceeded. A client whose message would be too long sends an empty one. The
 * server coarsens a broadcast until it fits; if no grid fits, communication ends.
 *
 * Clients with heterogeneous data may keep shifts (shift.h): a client sends the difference of
 * x + D / n and the sum of its earlier messages, and the server adds the shifts again. */
#include "services/algorithms/calm.h"

#include <math.h>
#include <string.h>

#include "codec/dithered/dithered.h"
#include "services/algorithms/calm/calm_leg.h"
#include "services/algorithms/calm/calm_travel.h"

#define PARAM(member) offsetof(struct tally_calm_params, member)

static const struct tally_field CALM_FIELDS[] = {
    TALLY_POSITIVE("step_size", PARAM(step_size), 1e9, .auto_allowed = true,
                   .unit = "x per gradient",
                   .doc = "1 / h, where h is the curvature of f; `auto`: estimated"),
    TALLY_POSITIVE("noise", PARAM(noise), 1e18, .auto_allowed = true, .unit = "gradient squared",
                   .doc = "variance s0 of a coordinate of one gradient query at the optimum; "
                          "`auto`: estimated"),
    TALLY_REAL("noise_growth", PARAM(noise_growth), 0, 1e18,
               .doc = "growth of that variance per unit of a coordinate's mean squared distance "
                      "from the optimum"),
    TALLY_REAL("client_spread", PARAM(client_spread), 0, 1e18, .auto_allowed = true,
               .unit = "x squared",
               .doc = "variance B of a coordinate of the clients' own optima; `auto`: estimated"),
    TALLY_REAL("curvature_spread", PARAM(curvature_spread), 0, 1e6,
               .doc = "relative variance of the curvature around h"),
    TALLY_POSITIVE("initial_variance", PARAM(initial_variance), 1e18, .auto_allowed = true,
                   .unit = "x squared",
                   .doc = "mean square of a coordinate of the initial point's distance from the "
                          "optimum; `auto`: estimated"),
    TALLY_REAL("local_step_limit", PARAM(local_step_limit), 0, 1e9, .auto_allowed = true,
               .unit = "x per gradient",
               .doc = "longest own step of a client between two rounds; `auto`: `step_size`"),
    TALLY_BOOL("shifts", PARAM(shifts), .quiet = true,
               .doc =
                   "whether a client sends only what its message adds to its earlier ones, which "
                   "saves bits if clients have heterogeneous data (large `client_spread`); needs "
                   "`step_size`, `noise`, `client_spread` and `initial_variance`"),
};

static union tally_algorithm_params calm_defaults(void)
{
    return (union tally_algorithm_params){.calm = {.step_size = NAN,
                                                   .noise = NAN,
                                                   .client_spread = NAN,
                                                   .curvature_spread = 0.02,
                                                   .initial_variance = NAN,
                                                   .local_step_limit = NAN}};
}

/* Rounds. */

static int64_t first_stage(const union tally_algorithm_params *params)
{
    return calm_opens(params) ? 0 : 1;
}

/* Applies the recursion to the walk of the round. */
static void follow_walk(const struct tally_setting *setting, const struct tally_round_plan *plan,
                        struct tally_calm_walk *walk)
{
    const struct tally_calm_constants constants = calm_constants(setting, &plan->facts);
    tally_calm_walk_ahead(walk, &constants, plan->facts.distance, plan->samples);
}

static enum tally_status grid_of(const struct tally_setting *setting, struct tally_calm_grid grid,
                                 struct tally_grid *ret_grid, struct tally_error *err)
{
    *ret_grid = (struct tally_grid){.step = grid.step,
                                    .intervals = 2 * tally_dithered_top(setting->clients),
                                    .scale = tally_dithered_scale_of(grid.scale / grid.step)};
    if (!tally_dithered_grid_is_valid(ret_grid)) {
        return tally_fail(err, TALLY_OUT_OF_RANGE, NULL,
                          "a grid of step %g for coordinates of size %g cannot be encoded",
                          grid.step, grid.scale);
    }
    return TALLY_OK;
}

/* The number of queries of the last epoch, whose message could no longer lower the regret. A job
 * without regret that may travel sends it: its model is to include the steps up to the horizon. */
static int64_t last_samples(const struct tally_setting *setting, const struct calm_memory *memory)
{
    const bool sends =
        !setting->has_regret && calm_travel(setting, (struct calm_memory *)memory) != NULL;
    return sends ? memory->state.samples_left : setting->horizon + 1; /* the engine cuts it */
}

/* The number of queries of the open epoch after `repeats` of the opening; more than are left if it
 * has no message. */
static int64_t epoch_samples(const struct tally_setting *setting, const struct calm_memory *memory,
                             int64_t repeats)
{
    const struct tally_calm_travel *travel = calm_travel(setting, (struct calm_memory *)memory);
    const bool is_last = travel != NULL
                             ? tally_calm_travel_is_last(travel, memory->state.samples_left)
                             : memory->epoch >= memory->schedule.n;
    const int64_t n = travel != NULL ? travel->samples - repeats : calm_open_epoch(memory)->samples;
    if (repeats > 0 && memory->schedule.n > 0) { /* the draws are worth a message at any horizon */
        return n < memory->state.samples_left ? n : 0;
    }
    return is_last ? last_samples(setting, memory) : n;
}

/* Limits the open epoch by the budget. */
static void limit_epoch(const struct tally_setting *setting, const struct calm_memory *memory,
                        struct tally_round_plan *plan)
{
    const struct tally_budget *budget = &setting->budget;
    const bool is_last = memory->epoch >= memory->schedule.n;
    if (budget->uplink_bits > 0 && !is_last) {
        plan->max_bits = calm_bits_left(setting, memory);
        plan->samples = plan->max_bits > 0 ? plan->samples : setting->horizon + 1;
    }
    if (budget->downlink_bits > 0 && memory->downlink_bits >= budget->downlink_bits) {
        plan->samples = setting->horizon + 1; /* no bit is left for a broadcast */
    }
}

/* The grid of a client's message, and the expected variance of the message's noise. */
static struct tally_calm_grid uplink_grid(const struct tally_setting *setting,
                                          const struct calm_memory *memory,
                                          const struct tally_round_plan *plan, double *ret_noise)
{
    const double resolution = calm_open_grids(setting, memory).uplink_resolution;
    if (plan->facts.travel_step > 0) {
        const struct tally_calm_passage message = tally_calm_travel_message(
            calm_travel(setting, (struct calm_memory *)memory), plan->facts.noise);
        *ret_noise = message.noise;
        return (struct tally_calm_grid){resolution * sqrt(message.noise), sqrt(message.square)};
    }
    struct tally_calm_walk walk;
    follow_walk(setting, plan, &walk);
    *ret_noise = tally_calm_walk_message_noise(&walk);
    return tally_calm_uplink_grid(&walk, resolution);
}

static enum tally_status plan_epoch(const struct tally_setting *setting, const void *bytes,
                                    struct tally_round_plan *plan, struct tally_error *err)
{
    const struct calm_memory *memory = bytes;
    plan->facts = calm_facts(setting, memory);
    plan->facts.repeats = plan->stage == 1 ? calm_drawn(setting, memory) : 0;
    plan->samples = epoch_samples(setting, memory, plan->facts.repeats);
    limit_epoch(setting, memory, plan);
    if (plan->samples > memory->state.samples_left) {
        return TALLY_OK; /* no message */
    }
    double noise;
    const struct tally_calm_grid grid = uplink_grid(setting, memory, plan, &noise);
    if (plan->facts.shift_error > 0) {
        plan->facts.shift_gain =
            plan->facts.shift_error /
            (plan->facts.shift_error + noise + tally_calm_rounding(setting->dim, grid.step));
    }
    return grid_of(setting, grid, &plan->grid, err);
}

static enum tally_status calm_plan(const struct tally_setting *setting, int64_t stage,
                                   const void *memory, struct tally_round_plan *ret_plan,
                                   struct tally_error *err)
{
    struct tally_round_plan plan = {.stage = stage, .samples = setting->horizon + 1};
    enum tally_status status = TALLY_OK;
    if (stage == 0) {
        plan.samples = calm_opening_samples(setting);
    } else if (memory != NULL) {
        status = plan_epoch(setting, memory, &plan, err);
    }
    *ret_plan = plan;
    return status;
}

/* Server. */

/* Whether the client declines, because its message would not fit. Errors: MALFORMED (the message
 * does not fit). */
static enum tally_status check_length(const struct tally_round_plan *plan,
                                      const struct tally_message_view *message, bool *ret_declines,
                                      struct tally_error *err)
{
    *ret_declines = plan->max_bits > 0 && message->payload_bits == 0 && message->n_payload == 0;
    if (plan->max_bits > 0 && message->payload_bits > plan->max_bits) {
        return tally_fail(err, TALLY_MALFORMED, "payload_bits",
                          "a message of %llu bits exceeds the %llu that are left",
                          (unsigned long long)message->payload_bits,
                          (unsigned long long)plan->max_bits);
    }
    return TALLY_OK;
}

static enum tally_status decode(const struct tally_setting *setting,
                                const struct tally_message_view *message,
                                const struct tally_grid *grid, uint32_t client,
                                enum tally_rng_purpose purpose, struct tally_scratch *scratch,
                                struct tally_level_stats *ret_stats, struct tally_error *err)
{
    if (tally_scratch_widen(scratch, setting->dim, err) != TALLY_OK) {
        return TALLY_NO_MEMORY;
    }
    struct tally_rng rng;
    tally_rng_init(&rng, setting->key, client, message->number, purpose);
    return tally_dithered_decode(message->payload, message->n_payload, message->payload_bits,
                                 setting->dim, grid, &rng, scratch->wide.integers, ret_stats, err);
}

static enum tally_status calm_receive(const struct tally_setting *setting,
                                      const struct tally_round_plan *plan,
                                      const struct tally_message_view *message,
                                      struct tally_scratch *scratch, int64_t *sums,
                                      struct tally_bits *ret_bits, struct tally_error *err)
{
    bool declines;
    struct tally_level_stats stats;
    *ret_bits = (struct tally_bits){0};
    scratch->square = 0;
    enum tally_status status = check_length(plan, message, &declines, err);
    if (status != TALLY_OK || declines) {
        return status;
    }
    status = decode(setting, message, &plan->grid, message->client, TALLY_RNG_UPLINK, scratch,
                    &stats, err);
    if (status != TALLY_OK) {
        return status;
    }
    double square = 0;
    for (size_t i = 0; i < setting->dim; i++) {
        const double value = (double)scratch->wide.integers[i] * 0x1p-32;
        sums[i] += scratch->wide.integers[i];
        square += value * value;
    }
    scratch->square = plan->grid.step * plan->grid.step * square;
    if (message->shift != NULL) {
        calm_take_shift(plan, message->number, scratch->wide.integers, setting->dim,
                        message->shift);
    }
    *ret_bits = (struct tally_bits){
        .formula_bits = stats.formula_bits, .payload_bits = stats.payload_bits, .messages = 1};
    return TALLY_OK;
}

/* z <- z + gain (x + mean - z), and scratch->vector <- z - x. Returns the norm of the mean. */
static double take_mean(const struct tally_server_task *task, double gain,
                        struct tally_scratch *scratch)
{
    double *z = calm_estimate(task->memory);
    const double scale = task->plan->grid.step * 0x1p-32 / (double)task->received;
    double square = 0;
    for (size_t i = 0; i < task->setting->dim; i++) {
        const double mean = scale * (double)task->sums[i] + calm_mean_shift(task, i);
        square += mean * mean;
        z[i] += gain * (task->x[i] + mean - z[i]);
        scratch->vector[i] = (float)(z[i] - task->x[i]);
    }
    return sqrt(square);
}

/* Control bits that state the noise in the clients' messages, or the size of a broadcast. */
enum { FACTOR_BITS = 5 };

/* If constants are estimated, a broadcast lowers V by a factor of at most MOST_GAIN: V is rough,
 * and the next broadcast would make finer bits worthless. Under a budget a broadcast passes on at
 * least half of the gain of z. While clients travel, V is not used. */
static struct tally_calm_grid downlink_grid(const struct tally_server_task *task, double after,
                                            const struct tally_calm_epoch *epoch)
{
    static const double MOST_GAIN = 8, LEAST_SHARE = 0.5;
    const struct calm_memory *memory = task->memory;
    const size_t dim = task->setting->dim;
    const double before = memory->state.variance;
    if (task->plan->facts.travel_step > 0) {
        return (struct tally_calm_grid){
            .step = tally_calm_step(dim, epoch->downlink_resolution * sqrt(after))};
    }
    struct tally_calm_grid grid =
        tally_calm_downlink_grid(dim, before, after, epoch->downlink_resolution);
    if (memory->opening_samples > 0) {
        grid.step =
            fmax(grid.step, tally_calm_step(dim, sqrt(12 * fmax(before / MOST_GAIN - after, 0))));
    }
    if (task->setting->budget.downlink_bits > 0) { /* fitting may have made it too coarse */
        grid.step =
            fmin(grid.step, tally_calm_step(dim, sqrt(12 * LEAST_SHARE * (before - after))));
    }
    return grid;
}

/* The size of the broadcast of scratch->vector, for its coder. If constants are estimated, the
 * recursion may be far off, so clients are told the true size. */
static double broadcast_scale(const struct tally_server_task *task,
                              const struct tally_scratch *scratch, struct tally_calm_grid grid,
                              struct tally_decision *decision)
{
    static const double LEAST_FACTOR = 0.1;
    const struct calm_memory *memory = task->memory;
    if (memory->opening_samples == 0) {
        return grid.scale;
    }
    double squares = 0;
    for (size_t i = 0; i < task->setting->dim; i++) {
        squares += (double)scratch->vector[i] * (double)scratch->vector[i];
    }
    const double size = sqrt(squares / (double)task->setting->dim);
    const double told =
        tally_calm_coded(fmax(size, LEAST_FACTOR * grid.step), grid.step, FACTOR_BITS);
    decision->control_bits +=
        grid.scale > 0 ? calm_index_bits(llrint(4 * log2(told / grid.scale))) : FACTOR_BITS;
    return told;
}

/* Encodes the broadcast of scratch->vector, with a budget on the finest grid that fits. *ret_fits:
 * whether a grid fits that brings x closer to x*. `variance` is that of z. */
static enum tally_status make_broadcast(const struct tally_server_task *task, double variance,
                                        struct tally_calm_grid grid, struct tally_scratch *scratch,
                                        struct tally_decision *decision, bool *ret_fits,
                                        struct tally_error *err)
{
    enum { COARSER_GRIDS = 16 };
    static const double COARSER = 1.125;
    const struct tally_setting *setting = task->setting;
    const struct calm_memory *memory = task->memory;
    const int64_t budget = setting->budget.downlink_bits;
    const int64_t later =
        memory->schedule.n > memory->epoch ? memory->schedule.n - memory->epoch - 1 : 0;
    const int64_t all = budget - memory->downlink_bits - (int64_t)decision->control_bits -
                        (later > 0 ? CALM_MOST_INDEX_BITS : 0);
    /* A broadcast that is larger than planned leaves half of an equal share to each later one. */
    const int64_t left = all - all * later / (2 * (later + 1));
    struct tally_rng rng;
    tally_rng_init(&rng, setting->key, TALLY_RNG_SERVER, task->iterate + 1, TALLY_RNG_DOWNLINK);
    enum tally_status status = TALLY_OK;
    *ret_fits = false;
    for (int i = 1; status == TALLY_OK && i <= COARSER_GRIDS && !*ret_fits; i++) {
        struct tally_grid coded;
        status = grid_of(setting, grid, &coded, err);
        if (status == TALLY_OK) {
            status = calm_encode(setting, &coded, &rng, scratch, &decision->broadcast, err);
        }
        if (budget == 0) {
            *ret_fits = true;
            break;
        }
        if (tally_calm_broadcast_variance(setting->dim, variance, grid.step) >=
            memory->state.variance) {
            break; /* x would be worse than before */
        }
        *ret_fits = (int64_t)decision->broadcast.bits.payload_bits + i <= left;
        decision->control_bits++;
        grid.step *= COARSER;
    }
    return status;
}

/* Ends communication: the rest of the horizon is one epoch. */
static void stop_talking(struct calm_memory *memory, struct tally_decision *decision)
{
    memory->epoch = memory->schedule.n;
    decision->passed = false;
    decision->control_bits = 0; /* the engine counts the bit that announces the end */
    memory->downlink_bits++;
}

/* If no message fits into what is left of the budget, x is much farther from x* than the recursion
 * has it, and communication must not end yet: the epoch is repeated on a grid of twice the step.
 * Returns false if that cannot help either. */
static bool try_coarser(const struct tally_server_task *task, struct tally_decision *decision)
{
    static const double COARSER = 2, COARSEST = 16, SHARE = 0.25;
    const struct tally_setting *setting = task->setting;
    struct calm_memory *memory = task->memory;
    struct tally_calm_epoch *epoch = &memory->schedule.epochs[memory->epoch];
    const int64_t most = (int64_t)(SHARE * (double)memory->state.samples_left);
    const double left = (double)calm_bits_left(setting, memory);
    if (memory->epoch >= memory->schedule.n || most == 0 || epoch->uplink_resolution > COARSEST ||
        left < TALLY_CALM_LEAST_RATE * (double)setting->dim) {
        return false;
    }
    epoch->uplink_resolution *= COARSER;
    epoch->samples += task->plan->facts.repeats; /* that round is not the last one any more */
    epoch->samples = epoch->samples < most ? epoch->samples : most;
    decision->passed = false;
    decision->control_bits = 0; /* the engine counts the bit that says so */
    memory->downlink_bits++;
    return true;
}

double calm_mean_square(const struct tally_server_task *task)
{
    const double scale = task->plan->grid.step * 0x1p-32 / (double)task->received;
    double squares = 0;
    for (size_t i = 0; i < task->setting->dim; i++) {
        squares += scale * (double)task->sums[i] * scale * (double)task->sums[i];
    }
    return squares / (double)task->setting->dim;
}

/* The variance across the clients' messages, per coordinate. received >= 2. */
static double spread_of(const struct tally_server_task *task)
{
    const double scale = task->plan->grid.step * 0x1p-32, n = (double)task->received;
    double squares = 0;
    for (size_t i = 0; i < task->setting->dim; i++) {
        const double sum = scale * (double)task->sums[i];
        squares += sum * sum;
    }
    return (task->squares - squares / n) / ((n - 1) * (double)task->setting->dim);
}

double calm_rounding(const struct tally_server_task *task)
{
    return tally_calm_rounding(task->setting->dim, task->plan->grid.step);
}

/* The variance of a client's message around the common part of all messages, per coordinate and
 * without the variance of the quantization. If the document gives the constants, it is `expected`;
 * otherwise it follows from the spread of the messages, and clients are told its ratio to that. */
static double measure_noise(const struct tally_server_task *task, double expected,
                            struct tally_decision *decision)
{
    static const double LEAST_SHARE = 0.2, LEAST_SHARE_ROUGH = 0.05;
    const struct calm_memory *memory = task->memory;
    if (memory->opening_samples == 0 || task->received < 2) {
        return expected;
    }
    const bool is_rough = task->plan->facts.travel_step > 0 || calm_has_belief(memory);
    const double least = is_rough ? LEAST_SHARE_ROUGH : LEAST_SHARE;
    const double noise = spread_of(task) - calm_rounding(task);
    const double coded = tally_calm_coded(fmax(noise, least * expected), expected, FACTOR_BITS);
    const bool is_near = calm_has_belief(memory) && task->plan->facts.travel_step == 0;
    decision->control_bits +=
        is_near ? calm_index_bits(llrint(4 * log2(coded / expected))) : FACTOR_BITS;
    return coded;
}

/* How z and the clients' mean merge. While clients travel, z becomes the mean of their ends. */
static struct tally_calm_merge merge_of(const struct tally_server_task *task, double noise)
{
    const struct calm_memory *memory = task->memory;
    const struct tally_calm_constants constants = calm_constants(task->setting, &task->plan->facts);
    const double step = task->plan->grid.step, before = memory->state.estimate_variance;
    const double of_mean = (noise + calm_rounding(task)) / (double)task->received;
    if (task->plan->facts.travel_step > 0) {
        return (struct tally_calm_merge){.gain = 1, .variance = of_mean};
    }
    if (memory->opening_samples == 0) {
        struct tally_calm_walk walk;
        follow_walk(task->setting, task->plan, &walk);
        return tally_calm_merge(&constants, &walk, step, (uint32_t)task->received, before);
    }
    const double variance = of_mean + constants.curvature_spread * memory->state.variance;
    return (struct tally_calm_merge){.gain = before / (before + variance),
                                     .variance = before * variance / (before + variance)};
}

/* Compares the clients' mean with the last one, and then replaces that one. z is not updated yet.
 */
static void compare_means(const struct tally_server_task *task, struct tally_calm_sight *sight)
{
    const struct tally_setting *setting = task->setting;
    const double scale = task->plan->grid.step * 0x1p-32 / (double)task->received;
    const double *z = calm_estimate(task->memory);
    double *last = calm_last_mean(setting, task->memory);
    double product = 0, squares = 0, last_squares = 0, ahead = 0, innovation = 0;
    for (size_t i = 0; i < setting->dim; i++) {
        const double mean = scale * (double)task->sums[i], news = task->x[i] + mean - z[i];
        product += mean * last[i];
        squares += mean * mean;
        last_squares += last[i] * last[i];
        ahead += news * last[i];
        innovation += news * news;
        last[i] = mean;
    }
    const double norms = sqrt(squares) * sqrt(last_squares);
    sight->square = squares / (double)setting->dim;
    sight->cosine = norms > 0 ? product / norms : 0;
    sight->product = ahead / (double)setting->dim;
    sight->innovation = innovation / (double)setting->dim;
}

/* What the server of a job that may travel observes. */
static struct tally_calm_sight look(const struct tally_server_task *task, double noise, double gain)
{
    const struct calm_memory *memory = task->memory;
    const double rounding = calm_rounding(task);
    struct tally_calm_sight sight = {.spread =
                                         task->received < 2 ? noise + rounding : spread_of(task),
                                     .noise = noise,
                                     .rounding = rounding,
                                     .variance = memory->state.variance,
                                     .query = memory->noise,
                                     .gain = gain,
                                     .answers = task->received,
                                     .time = task->setting->horizon - memory->state.samples_left};
    compare_means(task, &sight);
    return sight;
}

/* Decides whether a job that may travel averages or travels next. If no direction is much flatter
 * than h, it averages. */
static void choose_way(const struct tally_server_task *task, const struct tally_calm_sight *sight,
                       struct tally_decision *decision)
{
    const struct tally_setting *setting = task->setting;
    struct tally_calm_travel *travel = calm_travel(setting, task->memory);
    if (travel != NULL) {
        const double curvature = 1 / calm_step_size(setting, &task->plan->facts);
        const struct tally_calm_ground ground = {
            .curvature = curvature,
            .dim = setting->dim,
            .is_even = calm_has_belief(task->memory),
            .is_uneven = setting->params->calm.is_uneven,
            .is_round = calm_is_round(setting, curvature),
        };
        decision->control_bits += (uint64_t)tally_calm_travel_advance(travel, &ground, sight);
    }
}

/* The opening's estimate of V is the small difference of two large numbers that each client
 * reports. The mean of all messages has less noise: if it shows, by a standard error, that x is
 * farther from x*, V follows it. (If V were left too small, z would hardly follow the messages, and
 * successive means would agree as they do on an ill-conditioned problem.) Clients are told the
 * factor. */
static void measure_distance(const struct tally_server_task *task, struct tally_decision *decision)
{
    enum { MOST_INDEX = 12 };
    static const double STANDARD_ERRORS = 1;
    const struct tally_setting *setting = task->setting;
    struct calm_memory *memory = task->memory;
    if (memory->opening_samples == 0 || memory->epoch > 0 || task->received < 2) {
        return;
    }
    const double dim = (double)setting->dim, noise = spread_of(task) / (double)task->received;
    const double measured = fmax(calm_mean_square(task) - noise, 0),
                 assumed = memory->state.variance;
    const double error = sqrt((2 * noise * noise + 4 * noise * measured) / dim);
    double k = 0;
    if (measured > assumed + STANDARD_ERRORS * error) {
        k = fmin(rint(4 * log2(measured / assumed)), MOST_INDEX);
    }
    decision->control_bits += calm_index_bits((int64_t)k);
    memory->state.variance = memory->state.estimate_variance = assumed * exp2(k / 4);
}

/* Before z follows the messages: corrects V, and s0 and B if the job keeps a belief. */
static void correct(const struct tally_server_task *task, double noise,
                    struct tally_decision *decision)
{
    struct tally_calm_walk walk;
    if (!calm_has_belief(task->memory)) {
        measure_distance(task, decision);
    } else if (task->plan->facts.travel_step == 0 && task->received >= 2) {
        follow_walk(task->setting, task->plan, &walk);
        decision->control_bits += calm_believe(task, &walk, noise);
    }
}

/* Updates the constants of the problem after an epoch that averaged. */
static void learn(const struct tally_server_task *task, double noise)
{
    struct tally_calm_walk walk;
    if (task->plan->facts.travel_step > 0 || calm_has_belief(task->memory)) {
        return;
    }
    follow_walk(task->setting, task->plan, &walk);
    calm_learn(task->setting, task->memory, &walk, noise);
}

/* Takes the belief to the next epoch, and chooses its length unless clients travel. Clients know
 * all that the length follows from. */
static void follow_belief(const struct tally_server_task *task, double gain)
{
    const struct tally_setting *setting = task->setting;
    struct calm_memory *memory = task->memory;
    struct tally_calm_travel *travel = calm_travel(setting, memory);
    calm_belief_follow(memory, gain);
    if (travel == NULL) {
        return; /* the rest is planned */
    }
    if (travel->is_on && task->plan->facts.travel_step == 0) {
        /* From now on s0 stands for the noise of a query at x. */
        memory->noise += setting->params->calm.noise_growth * memory->state.variance;
    } else if (!travel->is_on) {
        travel->samples = calm_next_length(setting, memory, calm_message_samples(task->plan));
    }
}

static enum tally_status calm_decide(const struct tally_server_task *task,
                                     struct tally_scratch *scratch, struct tally_decision *decision,
                                     struct tally_error *err)
{
    const struct tally_setting *setting = task->setting;
    struct calm_memory *memory = task->memory;
    const struct tally_calm_epoch epoch = calm_open_grids(setting, memory);
    decision->next_stage = task->plan->stage + 1;
    memory->state.samples_left -= task->plan->samples;
    if (task->received == 0) {
        if (!try_coarser(task, decision)) {
            stop_talking(memory, decision);
        }
        return TALLY_OK;
    }
    double noise;
    const double message_bits =
        tally_calm_message_bits(setting->dim, uplink_grid(setting, memory, task->plan, &noise));
    noise = measure_noise(task, noise, decision);
    decision->control_bits += calm_keeps_shifts(setting); /* whether a client's message counted */
    correct(task, noise, decision);
    const struct tally_calm_merge merge = merge_of(task, noise);
    struct tally_calm_sight sight = {0};
    if (calm_travel(setting, memory) != NULL) {
        sight = look(task, noise, merge.gain);
    }
    decision->norm = take_mean(task, merge.gain, scratch);
    struct tally_calm_grid grid = downlink_grid(task, merge.variance, &epoch);
    grid.scale = broadcast_scale(task, scratch, grid, decision);
    enum tally_status status =
        make_broadcast(task, merge.variance, grid, scratch, decision, &decision->passed, err);
    if (status != TALLY_OK) {
        return status;
    }
    memory->state.estimate_variance = merge.variance;
    choose_way(task, &sight, decision);
    learn(task, noise);
    if (!decision->passed) {
        stop_talking(memory, decision);
        return TALLY_OK;
    }
    memory->epoch++;
    const double before = memory->state.variance;
    memory->state.variance =
        tally_calm_broadcast_variance(setting->dim, merge.variance, decision->broadcast.grid.step);
    if (calm_has_belief(memory)) {
        follow_belief(task, merge.gain);
    }
    if (calm_keeps_shifts(setting)) {
        calm_follow_shifts(task, tally_calm_moved(before, merge.variance, memory->state.variance));
    }
    memory->downlink_bits += (int64_t)decision->broadcast.bits.payload_bits;
    decision->control_bits += calm_fit_grids(setting, memory, message_bits);
    memory->downlink_bits += (int64_t)decision->control_bits;
    return TALLY_OK;
}

static enum tally_status calm_apply(const struct tally_setting *setting,
                                    const struct tally_message_view *broadcast,
                                    struct tally_scratch *scratch, double *x,
                                    struct tally_error *err)
{
    struct tally_level_stats stats;
    enum tally_status status = tally_dithered_check_grid(&broadcast->grid, err);
    if (status != TALLY_OK) {
        return status;
    }
    status = decode(setting, broadcast, &broadcast->grid, TALLY_RNG_SERVER, TALLY_RNG_DOWNLINK,
                    scratch, &stats, err);
    if (status != TALLY_OK) {
        return status;
    }
    const double scale = broadcast->grid.step * 0x1p-32;
    for (size_t i = 0; i < setting->dim; i++) {
        x[i] += scale * (double)scratch->wide.integers[i];
    }
    tally_domain_project(&setting->domain, x, setting->dim);
    return TALLY_OK;
}

/* A query predicts the minimum by a step of this length. */
static struct tally_step_limit calm_step_limit(const union tally_algorithm_params *params,
                                               double smoothness)
{
    return (struct tally_step_limit){params->calm.step_size, 2 / smoothness, "2 / smoothness"};
}

const struct tally_algorithm TALLY_CALM = {
    .name = "calm",
    .fields = CALM_FIELDS,
    .n_fields = sizeof CALM_FIELDS / sizeof CALM_FIELDS[0],
    .defaults = calm_defaults,
    .opening = &CALM_OPENING,
    .first_stage = first_stage,
    .memory = {calm_memory_bytes, calm_memory_begin, calm_memory_spend, calm_memory_is_valid,
               calm_shift},
    .shift_start = calm_shift_start,
    .schedule = calm_schedule,
    .plan = calm_plan,
    .step_limit = calm_step_limit,
    .no_cohorts_reason = "its estimate of the variance counts the differences between clients "
                         "once, and a cohort would draw them anew in every round",
    .no_weights_reason = "its estimate of the variance is computed for the mean of equal clients",
    .moves_locally = true,
    .repeats_opening = true,
    .client_step = calm_client_step,
    .receive = calm_receive,
    .decide = calm_decide,
    .apply = calm_apply,
};
