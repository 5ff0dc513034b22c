#include "codec/adaptive/adaptive_dithers.h"
#include "codec/adaptive/adaptive_kernels.h"
#include "codec/adaptive/adaptive_long.h"
#include "codec/adaptive/adaptive_model.h"
#include "codec/adaptive/adaptive_units.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codec/dithered/dithered_kernels.h"
#include "codec/entropy/arith.h"
#include "codec/numeric/bits.h"
#include "codec/numeric/fetch.h"
#include "codec/quantize/payload.h"

/* The contexts of a short message. */
struct model {
    struct tally_adaptive_decision nonzero[TALLY_ADAPTIVE_DENSITIES][TALLY_ADAPTIVE_DITHERS];
    struct tally_adaptive_decision
        against[TALLY_ADAPTIVE_DITHERS]; /* whether a level is not on the side of the dither */
    struct tally_adaptive_decision
        more[TALLY_ADAPTIVE_DENSITIES]
            [TALLY_ADAPTIVE_UNARY]; /* whether a magnitude is above 1, 2, ... */
    int32_t density;                /* 0 .. 2 TALLY_ADAPTIVE_DENSITY_ONE */
};

static void init(struct model *model)
{
    for (int i = 0; i < TALLY_ADAPTIVE_DENSITIES; i++) {
        for (int j = 0; j < TALLY_ADAPTIVE_DITHERS; j++) {
            model->nonzero[i][j] = (struct tally_adaptive_decision){
                (uint32_t)TALLY_ADAPTIVE_ZERO[i][j] << TALLY_ADAPTIVE_EXTRA_BITS,
                TALLY_ADAPTIVE_PRIOR_COUNT};
        }
        for (int j = 0; j < TALLY_ADAPTIVE_UNARY; j++) {
            model->more[i][j] = TALLY_ADAPTIVE_EVEN;
        }
    }
    for (int j = 0; j < TALLY_ADAPTIVE_DITHERS; j++) {
        model->against[j] = TALLY_ADAPTIVE_EVEN;
    }
    model->density = TALLY_ADAPTIVE_DENSITY_START;
}

static inline void pass(struct model *model, uint32_t magnitude)
{
    const int32_t here = (int32_t)(magnitude > 1 ? 2 : magnitude) * TALLY_ADAPTIVE_DENSITY_ONE;
    model->density += (here - model->density) >> TALLY_ADAPTIVE_DENSITY_RATE;
}

/* The dithers of a block, to whole rows; without dither all are 0. */
static void dithers_at(const struct tally_rng *dither, size_t start, size_t n,
                       int32_t dithers[TALLY_ADAPTIVE_BLOCK])
{
    struct tally_adaptive_words words;
    tally_adaptive_words_init(&words, dither);
    for (size_t at = 0; at < n; at += TALLY_ADAPTIVE_STEPS) {
        tally_adaptive_dithers(&words, (start + at) / TALLY_ADAPTIVE_STEPS, dithers + at);
    }
}

/* As dithers_at(), with the class of each. */
static void classes_at(const struct tally_rng *dither, size_t start, size_t n, int32_t *dithers,
                       uint8_t *classes)
{
    dithers_at(dither, start, n, dithers);
    for (size_t i = 0; i < n; i++) {
        classes[i] = (uint8_t)tally_adaptive_dither_class(dithers[i]);
    }
}

static size_t block_at(size_t start, size_t dim)
{
    return dim - start < TALLY_ADAPTIVE_BLOCK ? dim - start : TALLY_ADAPTIVE_BLOCK;
}

enum tally_status tally_adaptive_round(const struct tally_vector *vector, int32_t *levels,
                                       uint64_t *ret_clipped, struct tally_error *err)
{
    const struct tally_dithered_kernel *kernel = tally_dithered_kernel_for(tally_cpu_used());
    int32_t dithers[TALLY_ADAPTIVE_BLOCK];
    *ret_clipped = 0;
    for (size_t start = 0, n; start < vector->dim; start += n) {
        n = block_at(start, vector->dim);
        tally_fetch_ahead(vector->y + start, n * sizeof *vector->y);
        tally_fetch_ahead(levels + start, n * sizeof *levels);
        dithers_at(vector->rng, start, n, dithers);
        const size_t done = kernel->quantize(vector->grid, vector->y + start, dithers, n,
                                             levels + start, ret_clipped);
        if (done < n) {
            return tally_fail(err, TALLY_NOT_FINITE, NULL, "coordinate %zu of %zu is not finite",
                              start + done, vector->dim);
        }
    }
    return TALLY_OK;
}

void tally_adaptive_round_change(const double *to, const double *from, size_t n, double inverse,
                                 double threshold, int32_t *levels)
{
    tally_adaptive_kernel_for(tally_cpu_used())
        ->round_change(to, from, n, inverse, threshold, levels);
}

void tally_adaptive_move(const int32_t *levels, size_t n, double step, double *x)
{
    tally_adaptive_kernel_for(tally_cpu_used())->move(levels, n, step, x);
}

/* --- encoder --------------------------------------------------------------------------------- */

/* Writes the zeros from number `first` of a block on. Returns the index of the first other level,
 * or n. Most levels are 0: this is the same as tally_adaptive_write_decision() and pass() for each
 * of them, but the range and the density stay in registers. `low` stays: no is the first share. */
static size_t write_zeros(struct tally_arith_encoder *encoder, struct model *model,
                          const int32_t *levels, const uint8_t *classes, size_t first, size_t n)
{
    uint64_t range = encoder->range;
    int32_t density = model->density;
    size_t i = first;
    for (; i < n && levels[i] == 0; i++) {
        struct tally_adaptive_decision *decision =
            &model->nonzero[tally_adaptive_density_class(density)][classes[i]];
        range = (range >> TALLY_ARITH_BITS) * tally_adaptive_share(decision);
        tally_adaptive_learn(decision, false);
        density += -density >> TALLY_ADAPTIVE_DENSITY_RATE;
        if (range >> TALLY_ARITH_NARROW_BITS == 0) {
            encoder->range = range;
            tally_arith_widen(encoder);
            range = encoder->range;
        }
    }
    encoder->range = range;
    model->density = density;
    return i;
}

/* Writes a level that is not 0. */
static void write_nonzero(struct tally_arith_encoder *encoder, struct model *model, int32_t level,
                          int32_t dither)
{
    const unsigned density = tally_adaptive_density_class(model->density),
                   by_dither = tally_adaptive_dither_class(dither);
    const uint32_t magnitude = tally_magnitude(level);
    tally_adaptive_write_decision(encoder, &model->nonzero[density][by_dither], true);
    pass(model, magnitude);
    tally_adaptive_write_decision(encoder, &model->against[by_dither], (level < 0) != (dither < 0));
    tally_adaptive_write_magnitude(encoder, model->more[density], 1, magnitude);
}

/* Bytes that suffice for these levels. */
static size_t bound(const int32_t *levels, size_t dim)
{
    uint64_t n_decisions = dim, n_large = 0;
    for (size_t start = 0, n; start < dim; start += n) {
        uint32_t n_more = 0, n_beyond = 0; /* of a block: 32 bits suffice, as in a vector */
        n = block_at(start, dim);
        for (size_t i = start; i < start + n; i++) {
            const uint32_t magnitude = tally_magnitude(levels[i]);
            n_more += magnitude < TALLY_ADAPTIVE_UNARY ? magnitude : TALLY_ADAPTIVE_UNARY;
            n_more += magnitude > 0;
            n_beyond += magnitude > TALLY_ADAPTIVE_UNARY;
        }
        n_decisions += n_more;
        n_large += n_beyond;
    }
    return (size_t)((n_decisions * TALLY_ADAPTIVE_MOST_DECISION_BITS +
                     4 * TALLY_ADAPTIVE_GAMMA_BITS * n_large) /
                    8) +
           32;
}

enum tally_status tally_adaptive_encode(const int32_t *levels, size_t dim,
                                        const struct tally_rng *dither,
                                        struct tally_buffer *payload,
                                        struct tally_level_stats *ret_stats,
                                        struct tally_error *err)
{
    if (dim >= TALLY_ADAPTIVE_LONG_MESSAGE) {
        return tally_adaptive_long_encode(levels, dim, dither, payload, ret_stats, err);
    }
    const size_t before = payload->size, most = bound(levels, dim);
    const enum tally_status status = tally_buffer_reserve(payload, most);
    if (status != TALLY_OK) {
        return tally_fail(err, status, NULL, "a message of %zu coordinates: %s", dim,
                          tally_status_info(status)->title);
    }
    struct model model;
    struct tally_bit_writer writer;
    struct tally_arith_encoder encoder;
    struct tally_level_stats stats = {.formula_bits = dim};
    int32_t dithers[TALLY_ADAPTIVE_BLOCK];
    uint8_t classes[TALLY_ADAPTIVE_BLOCK];
    init(&model);
    tally_bit_writer_init(&writer, payload->data + before, payload->capacity - before);
    tally_arith_encoder_init(&encoder, &writer);
    for (size_t start = 0, n; start < dim; start += n) {
        n = block_at(start, dim);
        classes_at(dither, start, n, dithers, classes);
        const int32_t *const block = levels + start;
        for (size_t i = 0; (i = write_zeros(&encoder, &model, block, classes, i, n)) < n; i++) {
            write_nonzero(&encoder, &model, block[i], dithers[i]);
            stats.nonzeros++;
            stats.formula_bits += tally_magnitude(block[i]);
        }
    }
    tally_arith_encoder_finish(&encoder);
    tally_bit_writer_finish(&writer);
    stats.payload_bits = tally_bit_writer_tell(&writer);
    payload->size = before + (size_t)((stats.payload_bits + 7) / 8);
    *ret_stats = stats;
    return TALLY_OK;
}

/* --- decoder --------------------------------------------------------------------------------- */

/* Reads what follows the decision that a level is not 0; returns 0 if it is too large. */
static int32_t read_nonzero(struct tally_arith_decoder *decoder, struct model *model,
                            unsigned density, int32_t dither)
{
    const bool against =
        tally_adaptive_read_decision(decoder, &model->against[tally_adaptive_dither_class(dither)]);
    const uint32_t magnitude = tally_adaptive_read_magnitude(decoder, model->more[density], 1);
    pass(model, magnitude);
    if (magnitude > TALLY_ADAPTIVE_MAX_LEVEL) {
        return 0;
    }
    return against != (dither < 0) ? -(int32_t)magnitude : (int32_t)magnitude;
}

/* Reads the levels of a block up to and including the first that is not 0, whose `nonzero` decision
 * has then been read and learnt. Returns its index, or n. Most levels are 0: this is the same as
 * tally_adaptive_read_decision() and pass() for each of them, but the coder and the density stay in
 * registers. */
static size_t read_zeros(struct tally_arith_decoder *decoder, struct model *model,
                         const uint8_t *classes, size_t first, size_t n)
{
    uint64_t range = decoder->range, above = decoder->above;
    int32_t density = model->density;
    size_t i = first;
    for (; i < n; i++) {
        struct tally_adaptive_decision *decision =
            &model->nonzero[tally_adaptive_density_class(density)][classes[i]];
        const uint64_t first_share = (range >> TALLY_ARITH_BITS) * tally_adaptive_share(decision);
        if (above >= first_share) {
            break;
        }
        range = first_share;
        tally_adaptive_learn(decision, false);
        density += -density >> TALLY_ADAPTIVE_DENSITY_RATE;
        if (range >> TALLY_ARITH_NARROW_BITS == 0) {
            decoder->range = range;
            decoder->above = above;
            tally_arith_refill(decoder);
            range = decoder->range;
            above = decoder->above;
        }
    }
    decoder->range = range;
    decoder->above = above;
    model->density = density;
    if (i < n) {
        (void)tally_adaptive_read_decision(
            decoder, &model->nonzero[tally_adaptive_density_class(density)][classes[i]]);
    }
    return i;
}

static enum tally_status read_levels(struct tally_arith_decoder *decoder, size_t dim,
                                     const struct tally_rng *dither, int32_t *levels,
                                     struct tally_level_stats *stats, struct tally_error *err)
{
    struct model model;
    int32_t dithers[TALLY_ADAPTIVE_BLOCK];
    uint8_t classes[TALLY_ADAPTIVE_BLOCK];
    init(&model);
    for (size_t start = 0, n; start < dim; start += n) {
        n = block_at(start, dim);
        classes_at(dither, start, n, dithers, classes);
        memset(levels + start, 0, n * sizeof *levels);
        for (size_t i = 0; (i = read_zeros(decoder, &model, classes, i, n)) < n; i++) {
            const int32_t level = read_nonzero(
                decoder, &model, tally_adaptive_density_class(model.density), dithers[i]);
            if (level == 0) {
                return tally_payload_level_above(start + i, TALLY_ADAPTIVE_MAX_LEVEL, err);
            }
            levels[start + i] = level;
            stats->nonzeros++;
            stats->formula_bits += tally_magnitude(level);
        }
        if (decoder->n_before > stats->payload_bits) {
            return tally_payload_ends_early(start, dim, stats->payload_bits, err);
        }
    }
    return TALLY_OK;
}

/* Reads the levels of a short message. */
static enum tally_status read_short(const uint8_t *data, uint64_t payload_bits, size_t dim,
                                    const struct tally_rng *dither, int32_t *levels,
                                    struct tally_level_stats *stats, struct tally_error *err)
{
    struct tally_bit_reader reader;
    struct tally_arith_decoder decoder;
    tally_bit_reader_init(&reader, data, payload_bits);
    tally_arith_decoder_init(&decoder, &reader);
    const enum tally_status status = read_levels(&decoder, dim, dither, levels, stats, err);
    if (status != TALLY_OK) {
        return status;
    }
    bool is_exact;
    const uint64_t taken = tally_arith_decoder_finish(&decoder, &is_exact);
    return tally_payload_check_string(payload_bits, dim, taken, is_exact, err);
}

static uint32_t largest_of(const int32_t *levels, size_t dim)
{
    uint32_t largest = 0;
    for (size_t i = 0; i < dim; i++) {
        const uint32_t magnitude = tally_magnitude(levels[i]);
        largest = magnitude > largest ? magnitude : largest;
    }
    return largest;
}

/* tally_adaptive_read(); a long message is counted unless `units` is NULL. */
static enum tally_status read_message(const uint8_t *data, size_t n_bytes, uint64_t payload_bits,
                                      size_t dim, const struct tally_rng *dither,
                                      struct tally_adaptive_units *units,
                                      struct tally_adaptive_message *ret_message,
                                      struct tally_level_stats *ret_stats, struct tally_error *err)
{
    enum tally_status status = tally_payload_check_frame(data, n_bytes, payload_bits, err);
    *ret_stats = (struct tally_level_stats){.payload_bits = payload_bits, .formula_bits = dim};
    *ret_message = (struct tally_adaptive_message){.dim = dim, .dither = dither};
    if (status != TALLY_OK) {
        return status;
    }
    if (dim >= TALLY_ADAPTIVE_LONG_MESSAGE) {
        return tally_adaptive_long_read(data, payload_bits, ret_message, units, ret_stats, err);
    }
    ret_message->levels = malloc(dim * sizeof *ret_message->levels);
    if (ret_message->levels == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for %zu levels", dim);
    }
    status = read_short(data, payload_bits, dim, dither, ret_message->levels, ret_stats, err);
    if (status == TALLY_OK) {
        ret_message->largest = largest_of(ret_message->levels, dim);
    }
    return status;
}

enum tally_status tally_adaptive_read(const uint8_t *data, size_t n_bytes, uint64_t payload_bits,
                                      size_t dim, const struct tally_rng *dither,
                                      struct tally_adaptive_message *ret_message,
                                      struct tally_level_stats *ret_stats, struct tally_error *err)
{
    return read_message(data, n_bytes, payload_bits, dim, dither, NULL, ret_message, ret_stats,
                        err);
}

void tally_adaptive_message_fini(struct tally_adaptive_message *message)
{
    free(message->levels);
    free(message->nonzero);
    free(message->special);
    free(message->before);
}

/* The levels of a block of a long message, of these dithers. */
static void long_levels(const struct tally_adaptive_message *message, size_t first, size_t n,
                        const int32_t dithers[TALLY_ADAPTIVE_BLOCK],
                        int32_t levels[TALLY_ADAPTIVE_BLOCK])
{
    for (size_t i = 0; i < n; i += TALLY_ADAPTIVE_ROW) {
        tally_adaptive_long_levels(message, (first + i) / TALLY_ADAPTIVE_ROW, dithers + i,
                                   levels + i);
    }
}

void tally_adaptive_levels(const struct tally_adaptive_message *message, size_t first, size_t n,
                           int32_t levels[TALLY_ADAPTIVE_BLOCK])
{
    if (message->nonzero == NULL) {
        memcpy(levels, message->levels + first, n * sizeof *levels);
    } else {
        int32_t dithers[TALLY_ADAPTIVE_BLOCK];
        dithers_at(message->dither, first, n, dithers);
        long_levels(message, first, n, dithers, levels);
    }
}

void tally_adaptive_levels_and_dithers(const struct tally_adaptive_message *message, size_t first,
                                       size_t n, int32_t levels[TALLY_ADAPTIVE_BLOCK],
                                       int32_t dithers[TALLY_ADAPTIVE_BLOCK])
{
    dithers_at(message->dither, first, n, dithers);
    if (message->nonzero == NULL) {
        memcpy(levels, message->levels + first, n * sizeof *levels);
    } else {
        long_levels(message, first, n, dithers, levels);
    }
}

void tally_adaptive_add(const struct tally_adaptive_message *message, size_t first, size_t n,
                        double step, int64_t *sums, double squares[TALLY_FIXED_POINT_LANES])
{
    int32_t dithers[TALLY_ADAPTIVE_BLOCK], levels[TALLY_ADAPTIVE_BLOCK];
    tally_adaptive_levels_and_dithers(message, first, n, levels, dithers);
    tally_fixed_point_add_dithered(levels, dithers, n, step, sums, squares);
}

enum tally_status tally_adaptive_check_range(const struct tally_adaptive_message *message,
                                             double step, double bound, struct tally_error *err)
{
    const double most = bound / step - 1; /* the largest magnitude whose values are within it */
    int32_t block[TALLY_ADAPTIVE_BLOCK];
    if ((double)message->largest <= most) {
        return TALLY_OK;
    }
    for (size_t start = 0, n; start < message->dim; start += n) {
        n = block_at(start, message->dim);
        tally_adaptive_levels(message, start, n, block);
        for (size_t i = 0; i < n; i++) {
            if (!(fabs((double)block[i]) <= most)) {
                return tally_fail(err, TALLY_MALFORMED, "payload",
                                  "coordinate %zu: level %ld of step %g is beyond %g", start + i,
                                  (long)block[i], step, bound);
            }
        }
    }
    return TALLY_OK;
}

enum tally_status
tally_adaptive_read_into(const uint8_t *data, size_t n_bytes, uint64_t payload_bits, size_t dim,
                         const struct tally_rng *dither, struct tally_adaptive_sum *sum,
                         struct tally_level_stats *ret_stats, struct tally_error *err)
{
    struct tally_adaptive_message message;
    enum tally_status status =
        tally_adaptive_read(data, n_bytes, payload_bits, dim, dither, &message, ret_stats, err);
    if (status == TALLY_OK) {
        status = tally_adaptive_check_range(&message, sum->step, sum->bound, err);
    }
    for (size_t start = 0, n; status == TALLY_OK && start < dim; start += n) {
        n = block_at(start, dim);
        tally_adaptive_add(&message, start, n, sum->step, sum->sums + start, sum->squares);
    }
    tally_adaptive_message_fini(&message);
    return status;
}

enum tally_status
tally_adaptive_count_into(const uint8_t *data, size_t n_bytes, uint64_t payload_bits, size_t dim,
                          const struct tally_rng *dither, struct tally_adaptive_units *units,
                          struct tally_level_stats *ret_stats, struct tally_error *err)
{
    struct tally_adaptive_message message;
    const bool is_long = dim >= TALLY_ADAPTIVE_LONG_MESSAGE;
    enum tally_status status =
        read_message(data, n_bytes, payload_bits, dim, dither, units, &message, ret_stats, err);
    if (status == TALLY_OK && !is_long) {
        status = tally_adaptive_check_range(&message, units->step, units->bound, err);
    }
    if (status == TALLY_OK && !is_long) {
        tally_adaptive_count(&message, units);
    }
    tally_adaptive_message_fini(&message);
    return status;
}

enum tally_status tally_adaptive_decode(const uint8_t *data, size_t n_bytes, uint64_t payload_bits,
                                        size_t dim, const struct tally_rng *dither, int32_t *levels,
                                        struct tally_level_stats *ret_stats,
                                        struct tally_error *err)
{
    struct tally_adaptive_message message;
    int32_t block[TALLY_ADAPTIVE_BLOCK];
    const enum tally_status status =
        tally_adaptive_read(data, n_bytes, payload_bits, dim, dither, &message, ret_stats, err);
    for (size_t start = 0, n; status == TALLY_OK && start < dim; start += n) {
        n = block_at(start, dim);
        tally_adaptive_levels(&message, start, n, block);
        memcpy(levels + start, block, n * sizeof *levels);
    }
    tally_adaptive_message_fini(&message);
    return status;
}
