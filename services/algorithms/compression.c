#include "services/algorithms/compression.h"

#include <math.h>
#include <string.h>

#include "codec/adaptive/adaptive.h"
#include "codec/dithered/dithered.h"
#include "codec/numeric/bits.h"
#include "codec/numeric/fetch.h"
#include "codec/numeric/fixed_point.h"
#include "codec/numeric/log_scale.h"
#include "services/algorithms/baseline.h"
#include "services/algorithms/weights.h"

enum {
    BLOCK = TALLY_ADAPTIVE_BLOCK,
    SQUARE_LANES = TALLY_FIXED_POINT_LANES,
    STEP_BYTES = 1, /* of an uplink message that states its step, before its levels */
    STEP_BIAS = 128,
    CODE_BITS = 12, /* of a broadcast's step, and of the deviation, before its levels */
    HEAD_BYTES = 2 * CODE_BITS / 8,
    CODE_BIAS = 1 << (CODE_BITS - 1),
    LOWEST_EXPONENT = -99, /* of a step: what a grid may have */
    HIGHEST_EXPONENT = 99,
    TOP = TALLY_ADAPTIVE_MAX_LEVEL,
};

#define THRESHOLD 0.6 /* of a broadcast's levels, in steps */

#define PARAM(member) offsetof(struct tally_compression, member)
#define RESOLUTION(key, member, text)                                                              \
    TALLY_REAL(key, PARAM(member), 0.001, 1000, .required = true, .unit = "standard deviations",   \
               .doc = text)

static const char *const NAMES[] = {"none", "auto", NULL};
const struct tally_field TALLY_COMPRESSION_NAME = {
    .name = "compression", .kind = TALLY_FIELD_CHOICE, .choices = NAMES};

const struct tally_field TALLY_COMPRESSION_FIELDS[] = {
    RESOLUTION("uplink_resolution", uplink_resolution,
               "step of the clients' messages, in deviations of a message from the mean"),
    RESOLUTION("downlink_resolution", downlink_resolution,
               "step of a broadcast, in deviations of the clients' mean"),
};
const size_t TALLY_N_COMPRESSION_FIELDS =
    sizeof TALLY_COMPRESSION_FIELDS / sizeof TALLY_COMPRESSION_FIELDS[0];

/* The memory before z. */
struct head {
    double deviation; /* s, as broadcast; 0: unknown */
};

static struct head *head_of(void *memory)
{
    return memory;
}

static double *z_of(void *memory)
{
    return (double *)((char *)memory + sizeof(struct head));
}

static void *optimizer_of(const struct tally_setting *setting, void *memory)
{
    return z_of(memory) + setting->dim;
}

static const struct tally_compression *own_of(const struct tally_setting *setting)
{
    return &setting->params->baseline.compression;
}

bool tally_is_compressed(const struct tally_setting *setting)
{
    return own_of(setting)->type != TALLY_COMPRESSION_NONE;
}

size_t tally_compression_bytes(const struct tally_setting *setting)
{
    return sizeof(struct head) + setting->dim * sizeof(double) +
           tally_server_optimizer_bytes(setting);
}

void tally_compression_begin(const struct tally_setting *setting, const double *x, void *memory)
{
    *head_of(memory) = (struct head){0};
    memcpy(z_of(memory), x, setting->dim * sizeof *x);
    tally_server_optimizer_begin(setting, x, 0, "", optimizer_of(setting, memory));
}

bool tally_compression_is_valid(const struct tally_setting *setting, const void *memory)
{
    struct head head;
    memcpy(&head, memory, sizeof head);
    const double *z = (const double *)((const char *)memory + sizeof head);
    bool ok = head.deviation >= 0 && isfinite(head.deviation);
    for (size_t i = 0; ok && i < setting->dim; i++) {
        ok = isfinite(z[i]);
    }
    return ok && tally_server_optimizer_is_valid(setting, z + setting->dim);
}

/* --- resolutions ----------------------------------------------------------------------------- */

struct resolutions {
    double up, down;
};

/* `auto`: COMPRESSION.md says how these were found. Few clients average little of the rounding
 * away, few rounds make little of it good, and in few coordinates all of it matters. */
static struct resolutions automatic(const struct tally_setting *setting, double samples)
{
    static const double UP = 10, UP_CLIENTS = 10, UP_ROUNDS = 8;
    static const double DOWN = 6.5, DOWN_CLIENTS = 5, DOWN_ROUNDS = 12;
    static const double COORDINATES = 20000, LEAST = 0.5;
    const double clients = setting->cohort, rounds = (double)setting->horizon / samples;
    const double size = fmin(1, (double)setting->dim / COORDINATES);
    const double up = fmin(1, clients / UP_CLIENTS) * fmin(1, rounds / UP_ROUNDS) * size;
    const double down = fmin(1, clients / DOWN_CLIENTS) * fmin(1, rounds / DOWN_ROUNDS) * size;
    return (struct resolutions){fmax(UP * sqrt(up), LEAST), fmax(DOWN * sqrt(down), LEAST)};
}

static struct resolutions resolutions_at(const struct tally_setting *setting, double samples)
{
    const struct tally_compression *own = own_of(setting);
    if (own->type == TALLY_COMPRESSION_AUTO) {
        return automatic(setting, samples);
    }
    return (struct resolutions){own->uplink_resolution, own->downlink_resolution};
}

/* The resolution of a broadcast, if the root mean square of the server's step is `ratio`
 * deviations. A broadcast leaves parts of a step for later, so with `auto` it is finer while the
 * model moves far, but no finer than the move itself: that would be no earlier. */
static double down_resolution(const struct tally_setting *setting, double resolution, double ratio)
{
    return own_of(setting)->type == TALLY_COMPRESSION_AUTO
               ? resolution / fmax(1, fmin(ratio, resolution / ratio))
               : resolution;
}

/* The scale is a hint to the rounding of an encoder (`quantize` in dithered_kernels.h). */
static struct tally_grid grid_of(double step, double resolution)
{
    return (struct tally_grid){step, 2 * TOP, tally_dithered_scale_of(1 / resolution)};
}

struct tally_grid tally_compression_grid(const struct tally_setting *setting, int64_t samples,
                                         const void *memory)
{
    struct head head;
    if (memory == NULL) {
        return (struct tally_grid){0};
    }
    memcpy(&head, memory, sizeof head);
    const double up = resolutions_at(setting, (double)samples).up;
    const struct tally_grid grid = grid_of(up * head.deviation, up);
    return tally_dithered_grid_is_valid(&grid) ? grid : (struct tally_grid){0};
}

/* Codes of a broadcast: code c > 0 stands for index c - CODE_BIAS of log_scale.h. */

static uint64_t code_of(double value, int lowest, int highest)
{
    const int index = tally_log_scale_index(value);
    return (uint64_t)(CODE_BIAS + (index < lowest ? lowest : index > highest ? highest : index));
}

static double value_of(uint64_t code)
{
    return tally_log_scale_value((int)code - CODE_BIAS);
}

enum {
    LOWEST_STEP = LOWEST_EXPONENT * TALLY_LOG_SCALE_OCTAVE,
    HIGHEST_STEP = HIGHEST_EXPONENT * TALLY_LOG_SCALE_OCTAVE,
};

static uint64_t step_code(double step)
{
    return code_of(step, LOWEST_STEP, HIGHEST_STEP);
}

/* 0: unknown. */
static uint64_t deviation_code(double deviation)
{
    return deviation > 0 ? code_of(deviation, 1 - CODE_BIAS, CODE_BIAS - 1) : 0;
}

/* The power of two next to `step`, as an exponent that fits a byte. A step of 0 gets the lowest:
 * with dither, a vector of zeros arrives as noise of the length of the step. */
static int exponent_of(double step)
{
    int exponent;
    if (!(step > 0)) {
        return LOWEST_EXPONENT;
    }
    (void)frexp(step * 0x1.6a09e667f3bcdp+0, &exponent); /* times sqrt(2), rounded down below */
    exponent--;
    return exponent < LOWEST_EXPONENT    ? LOWEST_EXPONENT
           : exponent > HIGHEST_EXPONENT ? HIGHEST_EXPONENT
                                         : exponent;
}

static double sum_of(const double lanes[SQUARE_LANES])
{
    double sum = 0;
    for (size_t j = 0; j < SQUARE_LANES; j++) {
        sum += lanes[j];
    }
    return sum;
}

/* --- uplink ---------------------------------------------------------------------------------- */

static double mean_square(const float *values, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += (double)values[i] * (double)values[i];
    }
    return sum / (double)n;
}

/* The largest magnitude of a level whose value the server can sum. */
static double summable(const struct tally_setting *setting, double step)
{
    return tally_fixed_point_bound(setting->cohort) / step - 1;
}

static bool all_summable(const struct tally_setting *setting, double step, const int32_t *levels)
{
    int32_t largest = 0;
    for (size_t i = 0; i < setting->dim; i++) {
        const int32_t magnitude = levels[i] < 0 ? -levels[i] : levels[i];
        largest = magnitude > largest ? magnitude : largest;
    }
    return (double)largest <= summable(setting, step);
}

enum tally_status tally_compression_send(const struct tally_client_task *task,
                                         struct tally_scratch *scratch,
                                         struct tally_message *message, struct tally_error *err)
{
    const struct tally_setting *setting = task->setting;
    const size_t dim = setting->dim;
    const bool states_step = !(task->plan->grid.step > 0);
    struct tally_grid grid = task->plan->grid;
    struct tally_level_stats stats;
    struct tally_rng rng;
    uint64_t clipped;
    if (tally_baseline_first_unsummable(setting, scratch->vector, dim) < dim) {
        return tally_baseline_diverged(task, err);
    }
    message->payload.size = 0;
    if (states_step) {
        const double up = resolutions_at(setting, (double)task->plan->samples).up;
        const int exponent = exponent_of(up / 2 * sqrt(mean_square(scratch->vector, dim)));
        const uint8_t byte = (uint8_t)(exponent + STEP_BIAS);
        grid = grid_of(ldexp(1, exponent), up);
        const enum tally_status status = tally_buffer_append(&message->payload, &byte, STEP_BYTES);
        if (status != TALLY_OK) {
            return tally_fail(err, status, NULL, "no memory for a message");
        }
    }
    const struct tally_vector vector = {scratch->vector, dim, &grid, &rng};
    tally_rng_init(&rng, setting->key, task->client, task->round, TALLY_RNG_UPLINK);
    enum tally_status status = tally_adaptive_round(&vector, scratch->levels, &clipped, err);
    if (status == TALLY_OK && !all_summable(setting, grid.step, scratch->levels)) {
        return tally_baseline_diverged(task, err);
    }
    if (status == TALLY_OK) {
        status = tally_adaptive_encode(scratch->levels, dim, &rng, &message->payload, &stats, err);
    }
    if (status != TALLY_OK) {
        return status;
    }
    const uint64_t more = states_step ? 8 * STEP_BYTES : 0;
    message->grid = task->plan->grid;
    message->bits = (struct tally_bits){.formula_bits = stats.formula_bits + more,
                                        .payload_bits = stats.payload_bits + more,
                                        .messages = 1,
                                        .clipped = clipped};
    return TALLY_OK;
}

/* Takes the step from the front of a message whose round has no grid. */
static enum tally_status take_grid(const struct tally_round_plan *plan,
                                   struct tally_message_view *message, struct tally_grid *ret_grid,
                                   struct tally_error *err)
{
    *ret_grid = plan->grid;
    if (plan->grid.step > 0) {
        return TALLY_OK;
    }
    if (message->n_payload < STEP_BYTES || message->payload_bits < 8 * STEP_BYTES) {
        return tally_fail(err, TALLY_MALFORMED, "payload",
                          "the payload does not begin with the step of its levels");
    }
    const int exponent = (int)message->payload[0] - STEP_BIAS;
    if (exponent < LOWEST_EXPONENT || exponent > HIGHEST_EXPONENT) {
        return tally_fail(err, TALLY_MALFORMED, "payload", "step 2^%d is not from 2^%d to 2^%d",
                          exponent, (int)LOWEST_EXPONENT, (int)HIGHEST_EXPONENT);
    }
    *ret_grid = grid_of(ldexp(1, exponent), 1);
    message->payload += STEP_BYTES;
    message->n_payload -= STEP_BYTES;
    message->payload_bits -= 8 * STEP_BYTES;
    return TALLY_OK;
}

/* The sums of a round whose messages are on one grid: they fit 32 bits in most rounds. */
static struct tally_adaptive_units units_of(const struct tally_setting *setting, double step,
                                            const int64_t *sums)
{
    return (struct tally_adaptive_units){.step = step,
                                         .bound = tally_fixed_point_bound(setting->cohort),
                                         .sums = (void *)(uintptr_t)sums,
                                         .reach = tally_sums_notes(setting, sums)->reach};
}

/* A message to be added, and the square of the difference that it sends. */
struct incoming {
    const struct tally_message_view *view;
    const struct tally_rng *rng;
    double step, square;
    struct tally_level_stats stats;
};

/* Adds a message to sums of values: that of a round in which each message states its step. */
static enum tally_status add_values(const struct tally_setting *setting, struct incoming *incoming,
                                    int64_t *sums, struct tally_error *err)
{
    const struct tally_message_view *view = incoming->view;
    struct tally_adaptive_sum sum = {
        .step = incoming->step, .bound = tally_fixed_point_bound(setting->cohort), .sums = sums};
    const enum tally_status status =
        tally_adaptive_read_into(view->payload, view->n_payload, view->payload_bits, setting->dim,
                                 incoming->rng, &sum, &incoming->stats, err);
    incoming->square = sum_of(sum.squares);
    return status;
}

/* Counts a message in units of its step. */
static enum tally_status count_units(const struct tally_setting *setting, struct incoming *incoming,
                                     struct tally_adaptive_units *units, struct tally_error *err)
{
    const struct tally_message_view *view = incoming->view;
    const enum tally_status status =
        tally_adaptive_count_into(view->payload, view->n_payload, view->payload_bits, setting->dim,
                                  incoming->rng, units, &incoming->stats, err);
    incoming->square = incoming->step * incoming->step * tally_adaptive_units_square(units);
    return status;
}

/* Adds a message to the sums. */
static enum tally_status add(const struct tally_setting *setting, bool has_grid,
                             struct incoming *incoming, int64_t *sums, struct tally_error *err)
{
    if (!has_grid) {
        return add_values(setting, incoming, sums, err);
    }
    struct tally_adaptive_units units = units_of(setting, incoming->step, sums);
    const enum tally_status status = count_units(setting, incoming, &units, err);
    *tally_sums_notes(setting, sums) = (struct tally_sums_notes){
        .reach = units.reach,
        .used_bytes =
            units.reach > TALLY_ADAPTIVE_NARROW_REACH ? 0 : setting->dim * sizeof(int32_t)};
    return status;
}

/* Adds a message whose values count `weight` times to the weighted sums. They are summed on their
 * own first, so that equal weights change no bit of the squares either. */
static enum tally_status add_weighted(const struct tally_setting *setting, uint32_t weight,
                                      bool has_grid, struct incoming *incoming,
                                      struct tally_scratch *scratch, int64_t *sums,
                                      struct tally_error *err)
{
    enum tally_status status = tally_scratch_widen(scratch, setting->dim, err);
    if (status != TALLY_OK) {
        return status;
    }
    int64_t *const own = memset(scratch->wide.integers, 0, setting->dim * sizeof *own);
    struct tally_adaptive_units units = {
        .step = incoming->step, .bound = tally_fixed_point_bound(setting->cohort), .sums = own};
    if (!has_grid) {
        units.reach = TALLY_ADAPTIVE_NARROW_REACH + 1; /* whole words */
        status = add_values(setting, incoming, own, err);
    } else {
        status = count_units(setting, incoming, &units, err);
    }
    for (size_t at = 0, n; status == TALLY_OK && at < setting->dim; at += n) {
        int64_t addends[BLOCK];
        n = setting->dim - at < BLOCK ? setting->dim - at : BLOCK;
        tally_adaptive_units_get(&units, at, n, addends);
        tally_weighted_sum_add_block(setting, weight, addends, at, n, sums);
    }
    return status;
}

enum tally_status tally_compression_receive(const struct tally_setting *setting,
                                            const struct tally_round_plan *plan,
                                            const struct tally_message_view *message,
                                            struct tally_scratch *scratch, int64_t *sums,
                                            struct tally_bits *ret_bits, struct tally_error *err)
{
    struct tally_message_view view = *message;
    struct tally_grid grid;
    struct tally_rng rng;
    tally_rng_init(&rng, setting->key, message->client, message->number, TALLY_RNG_UPLINK);
    enum tally_status status = take_grid(plan, &view, &grid, err);
    if (status != TALLY_OK) {
        return status;
    }
    const bool has_grid = plan->grid.step > 0;
    struct incoming incoming = {.view = &view, .rng = &rng, .step = grid.step};
    status = setting->weighs_points
                 ? add_weighted(setting, message->weight, has_grid, &incoming, scratch, sums, err)
                 : add(setting, has_grid, &incoming, sums, err);
    if (status == TALLY_OK) {
        /* without the rounding's share */
        scratch->square = incoming.square - (double)setting->dim * grid.step * grid.step / 12;
        *ret_bits = (struct tally_bits){.formula_bits = incoming.stats.formula_bits +
                                                        (message->payload_bits - view.payload_bits),
                                        .payload_bits = message->payload_bits,
                                        .messages = 1};
    }
    return status;
}

/* --- downlink -------------------------------------------------------------------------------- */

/* The deviation s after a round: from the mean square of the messages and the square of their mean,
 * both per coordinate, less what rounding adds to them. A round whose rounding hides the deviation
 * gives a part of the last one. */
static double deviation_of(double last, double square, double square_of_mean, double rounding,
                           double n)
{
    static const double LEAST_PART = 0.3, ALONE = 0.5;
    const double least = LEAST_PART * last;
    if (n < 2) {
        return fmax(ALONE * sqrt(fmax(square, 0)), least);
    }
    const double variance = (square - (square_of_mean - rounding / n)) * n / (n - 1);
    return fmax(sqrt(fmax(variance, 0)), least);
}

/* Adds the squares of values[n] to `lanes`: a single sum would wait for each addition. */
static void add_squares(const double *values, size_t n, double lanes[SQUARE_LANES])
{
    double sums[SQUARE_LANES];
    size_t i = 0;
    memcpy(sums, lanes, sizeof sums);
    for (; n - i >= SQUARE_LANES; i += SQUARE_LANES) {
        for (size_t j = 0; j < SQUARE_LANES; j++) {
            sums[j] += values[i + j] * values[i + j];
        }
    }
    for (; i < n; i++) {
        sums[0] += values[i] * values[i];
    }
    memcpy(lanes, sums, sizeof sums);
}

/* In a round on one grid the sums are in units of 2^-16 steps, with weights in fixed point of them.
 * A dither ends in half a unit, which is rounded down, so values are larger by it. */
void tally_compression_means(const struct tally_server_task *task, size_t first, size_t n,
                             double *means)
{
    static const double EXCESS = 0x1p-17;
    const double step = task->plan->grid.step;
    if (!(step > 0)) {
        tally_weighted_means(task, first, n, means);
        return;
    }
    if (task->setting->weighs_points) {
        const double factor = step * 0x1p24 / tally_weighted_divisor(task);
        tally_weighted_values(task, first, n, means);
        for (size_t i = 0; i < n; i++) {
            means[i] *= factor;
        }
    } else {
        const struct tally_adaptive_units units = units_of(task->setting, step, task->sums);
        const double factor = step * 0x1p-16 / (double)task->received;
        tally_adaptive_units_scaled(&units, first, n, factor, means);
    }
    for (size_t i = 0; i < n; i++) {
        means[i] -= step * EXCESS;
    }
}

/* Moves z by the server's step; returns the sums of squares of the mean and of that step. */
static void move(const struct tally_server_task *task, double scale, double *ret_mean,
                 double *ret_step)
{
    const struct tally_setting *setting = task->setting;
    double *z = z_of(task->memory), steps[BLOCK];
    double of_mean[SQUARE_LANES] = {0}, of_step[SQUARE_LANES] = {0};
    for (size_t at = 0, n; at < setting->dim; at += n) {
        n = setting->dim - at < BLOCK ? setting->dim - at : BLOCK;
        tally_fetch_ahead(z + at, n * sizeof *z);
        tally_compression_means(task, at, n, steps);
        add_squares(steps, n, of_mean);
        for (size_t i = 0; i < n; i++) {
            steps[i] *= scale;
        }
        tally_server_optimizer_steps(setting, optimizer_of(setting, task->memory), at, n, steps);
        add_squares(steps, n, of_step);
        for (size_t i = 0; i < n; i++) {
            z[at + i] += steps[i];
        }
    }
    tally_domain_project(&setting->domain, z, setting->dim);
    *ret_mean = sum_of(of_mean);
    *ret_step = sum_of(of_step);
}

/* The step that a broadcast should have, from the deviation of what the server adds to z. */
static double broadcast_step(const struct tally_server_task *task, double deviation,
                             double resolution)
{
    const struct tally_grid wanted = grid_of(resolution * deviation, 1);
    if (tally_dithered_grid_is_valid(&wanted)) {
        return wanted.step;
    }
    const double *z = z_of(task->memory);
    double square = 0;
    for (size_t i = 0; i < task->setting->dim; i++) {
        const double rest = z[i] - task->x[i];
        square += rest * rest;
    }
    return ldexp(1, exponent_of(resolution / 8 * sqrt(square / (double)task->setting->dim)));
}

/* What a broadcast states before its levels: its step, and the deviation that the grid of the
 * following messages depends on. */
static enum tally_status begin_broadcast(struct tally_buffer *payload, uint64_t step,
                                         uint64_t deviation, struct tally_error *err)
{
    uint8_t head[HEAD_BYTES];
    struct tally_bit_writer writer;
    tally_bit_writer_init(&writer, head, sizeof head);
    tally_bit_write(&writer, step, CODE_BITS);
    tally_bit_write(&writer, deviation, CODE_BITS);
    tally_bit_writer_finish(&writer);
    payload->size = 0;
    return tally_buffer_append(payload, head, sizeof head) == TALLY_OK
               ? TALLY_OK
               : tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a broadcast");
}

/* Takes the step and the deviation from the front of a broadcast. The deviation reaches a client as
 * the grid of its next task, too. */
static enum tally_status take_step(struct tally_message_view *broadcast, double *ret_step,
                                   struct tally_error *err)
{
    if (broadcast->n_payload < HEAD_BYTES || broadcast->payload_bits < 8 * HEAD_BYTES) {
        return tally_fail(err, TALLY_MALFORMED, "payload",
                          "the payload does not begin with the step of its levels");
    }
    struct tally_bit_reader reader;
    tally_bit_reader_init(&reader, broadcast->payload, 8 * HEAD_BYTES);
    const int index = (int)tally_bit_read(&reader, CODE_BITS) - CODE_BIAS;
    if (index < LOWEST_STEP || index > HIGHEST_STEP) {
        return tally_fail(err, TALLY_MALFORMED, "payload",
                          "step 2^(%d/16) is not from 2^%d to 2^%d", index, (int)LOWEST_EXPONENT,
                          (int)HIGHEST_EXPONENT);
    }
    *ret_step = tally_log_scale_value(index);
    broadcast->payload += HEAD_BYTES;
    broadcast->n_payload -= HEAD_BYTES;
    broadcast->payload_bits -= 8 * HEAD_BYTES;
    return TALLY_OK;
}

enum tally_status tally_compression_decide(const struct tally_server_task *task, double scale,
                                           struct tally_scratch *scratch,
                                           struct tally_decision *decision, struct tally_error *err)
{
    const struct tally_setting *setting = task->setting;
    const double dim = (double)setting->dim, n = (double)task->received;
    struct head *head = head_of(task->memory);
    const double *z = z_of(task->memory);
    double of_mean, of_step;
    move(task, scale, &of_mean, &of_step);
    decision->norm = sqrt(of_mean);
    decision->passed = true;
    if (!isfinite(of_step)) {
        return tally_fail(err, TALLY_NOT_FINITE, NULL, "the server's step is not finite");
    }
    const double square = task->squares / n / dim;
    const struct resolutions now = resolutions_at(setting, (double)task->plan->samples);
    const double step =
        task->plan->grid.step > 0 ? task->plan->grid.step : now.up / 2 * sqrt(fmax(square, 0));
    const double rounding = step * step / 12;
    const uint64_t next =
        deviation_code(deviation_of(head->deviation, square, of_mean / dim, rounding, n));
    head->deviation = next > 0 ? value_of(next) : 0;
    const double own = head->deviation * head->deviation + rounding;
    const double gain = of_mean > 0 ? of_step / of_mean : 1;
    const double ratio = own > 0 ? sqrt(of_mean / dim / (own / n)) : 1;
    const double resolution = down_resolution(setting, now.down, ratio);
    const uint64_t down = step_code(broadcast_step(task, sqrt(own / n * gain), resolution));
    tally_adaptive_round_change(z, task->x, setting->dim, 1 / value_of(down), THRESHOLD,
                                scratch->levels);
    struct tally_message *message = &decision->broadcast;
    struct tally_level_stats stats;
    enum tally_status status = begin_broadcast(&message->payload, down, next, err);
    if (status == TALLY_OK) {
        status = tally_adaptive_encode(scratch->levels, setting->dim, NULL, &message->payload,
                                       &stats, err);
    }
    if (status != TALLY_OK) {
        return status;
    }
    scratch->levels_of = message->payload.data;
    message->grid = (struct tally_grid){0};
    message->bits = (struct tally_bits){.formula_bits = stats.formula_bits + 8 * HEAD_BYTES,
                                        .payload_bits = stats.payload_bits + 8 * HEAD_BYTES,
                                        .messages = 1};
    return TALLY_OK;
}

enum tally_status tally_compression_apply(const struct tally_setting *setting,
                                          const struct tally_message_view *broadcast,
                                          struct tally_scratch *scratch, double *x,
                                          struct tally_error *err)
{
    struct tally_level_stats stats;
    struct tally_message_view view = *broadcast;
    double step = 0;
    const bool has_levels = broadcast->payload == scratch->levels_of;
    scratch->levels_of = NULL;
    enum tally_status status = take_step(&view, &step, err);
    if (status == TALLY_OK && !has_levels) {
        status = tally_adaptive_decode(view.payload, view.n_payload, view.payload_bits,
                                       setting->dim, NULL, scratch->levels, &stats, err);
    }
    if (status != TALLY_OK) {
        return status;
    }
    tally_adaptive_move(scratch->levels, setting->dim, step, x);
    tally_domain_project(&setting->domain, x, setting->dim);
    return TALLY_OK;
}

/* Between a bit for all coordinates together and what takes two gamma codes for a level of eight
 * deviations. The first step is finer by a factor of up to 2 sqrt(2). */
struct tally_message_bits tally_compression_bits(const struct tally_setting *setting)
{
    static const double FAR = 8 * 2 * M_SQRT2;
    const struct resolutions at = resolutions_at(setting, (double)setting->horizon);
    const double level = FAR / fmin(at.up, at.down);
    const uint64_t each = (uint64_t)fmax(16, 8 + 2 * ceil(log2(level)));
    const uint64_t most = 8 * HEAD_BYTES + 64 + each * (uint64_t)setting->dim;
    return (struct tally_message_bits){
        .uplink = most, .downlink = most, .is_bound = true, .least = setting->dim / 64 + 1};
}
