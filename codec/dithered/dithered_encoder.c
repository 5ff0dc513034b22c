/* dithered_encoder: a vector to the bits of a message, in two passes: levels, then bits. */
#include <math.h>

#include "codec/dithered/dithered.h"
#include "codec/dithered/dithered_long.h"
#include "codec/dithered/dithered_message.h"
#include "codec/dithered/trellis.h"
#include "codec/entropy/arith.h"
#include "codec/numeric/bits.h"

/* Per level: a share of 2^16, one more bit because the coder rounds its shares, the low bits, and,
 * if any level may be a tail, its excess. */
uint64_t tally_dithered_bits_at_most(const struct tally_dithered_model *model, uint32_t largest,
                                     size_t n)
{
    const uint32_t high = tally_magnitude(tally_dithered_high(model, -(int32_t)largest));
    const uint32_t above = tally_magnitude(tally_dithered_high(model, (int32_t)largest));
    const uint32_t most = high > above ? high : above, reach = (uint32_t)model->reach;
    const unsigned excess = most > reach ? 2 * tally_bit_length(most - reach) : 0;
    return n * (uint64_t)(TALLY_DITHERED_TOTAL_BITS + 1 + model->shift + excess);
}

/* Names the first coordinate that is not finite; there is one. */
static enum tally_status refuse(const struct tally_vector *vector, struct tally_error *err)
{
    size_t i = 0;
    while (isfinite(vector->y[i])) {
        i++;
    }
    return tally_fail(err, TALLY_NOT_FINITE, NULL, "coordinate %zu of %zu is %s", i, vector->dim,
                      isnan(vector->y[i]) ? "NaN" : "infinite");
}

/* The results of rounding a vector. */
struct rounded {
    uint64_t clipped;
    uint64_t bits_at_most;
    struct tally_level_stats stats;
};

/* Rounds y to levels (int32[dim]). */
static enum tally_status quantize(const struct tally_dithered_model *model,
                                  const struct tally_vector *vector, int32_t *levels,
                                  struct rounded *ret_rounded, struct tally_error *err)
{
    struct rounded rounded = {.stats = {.formula_bits = vector->dim}};
    if (tally_trellis_round(vector, levels, &rounded.clipped) < vector->dim) {
        return refuse(vector, err);
    }
    for (size_t start = 0, n; start < vector->dim; start += n) {
        const size_t left = vector->dim - start;
        struct tally_entropy_scan scan;
        n = left < TALLY_DITHERED_BLOCK ? left : TALLY_DITHERED_BLOCK;
        tally_dithered_kernel_for(tally_cpu_used())->scan(levels + start, n, &scan);
        rounded.stats.formula_bits += scan.sum;
        rounded.stats.nonzeros += scan.nonzeros;
        rounded.bits_at_most += tally_dithered_bits_at_most(model, scan.largest, n);
    }
    *ret_rounded = rounded;
    return TALLY_OK;
}

static void encode_raw(struct tally_arith_encoder *encoder, uint32_t bits, unsigned n)
{
    for (unsigned piece; n > 0; n -= piece, bits >>= piece) {
        piece = n < TALLY_DITHERED_RAW_BITS ? n : TALLY_DITHERED_RAW_BITS;
        tally_arith_encode(encoder, bits & ((1u << piece) - 1), 1, piece);
    }
}

/* Elias gamma code: a zero for each bit after the leading one, then the leading one, then those
 * bits. */
static void encode_excess(struct tally_arith_encoder *encoder, uint32_t excess)
{
    const unsigned more = tally_bit_length(excess) - 1;
    for (unsigned i = 0; i < more; i++) {
        encode_raw(encoder, 0, 1);
    }
    encode_raw(encoder, 1, 1);
    encode_raw(encoder, excess & ((1u << more) - 1), more);
}

static void encode_level(struct tally_arith_encoder *encoder, struct tally_dithered_model *model,
                         int32_t level, int32_t dither)
{
    const int32_t high = tally_dithered_high(model, level);
    const int32_t last = model->reach + 1; /* the upper tail */
    const int32_t symbol = high > last ? last : high < -last ? -last : high;
    struct tally_dithered_bound first, end;
    tally_dithered_bound(model, symbol, dither, &first);
    tally_dithered_bound(model, symbol + 1, dither, &end);
    tally_arith_encode(encoder, first.shares, end.shares - first.shares, TALLY_DITHERED_TOTAL_BITS);
    tally_dithered_learn(model, &first, &end);
    if (symbol == last || symbol == -last) {
        encode_excess(encoder, tally_magnitude(high) - (uint32_t)model->reach);
    }
    const uint32_t raised = (uint32_t)level + ((1u << model->shift) >> 1);
    encode_raw(encoder, raised & ((1u << model->shift) - 1), model->shift);
}

static void encode(struct tally_dithered_model *model, const int32_t *levels, size_t dim,
                   const struct tally_rng *rng, struct tally_bit_writer *writer)
{
    uint32_t words[TALLY_RNG_LANES];
    struct tally_arith_encoder encoder;
    unsigned state = 0;
    tally_arith_encoder_init(&encoder, writer);
    for (size_t i = 0; i < dim; i++) {
        if (i % TALLY_RNG_LANES == 0) {
            tally_rng_lanes(rng, (uint32_t)(i / TALLY_RNG_LANES), words);
        }
        const int32_t dither = (int32_t)words[i % TALLY_RNG_LANES];
        encode_level(&encoder, model, levels[i], tally_trellis_dither(state, dither));
        state = tally_trellis_next(state, dither, levels[i]);
    }
    tally_arith_encoder_finish(&encoder);
}

/* Writes to data[capacity], which must be enough; returns the number of bits. */
static uint64_t write_short(struct tally_dithered_model *model, const struct tally_vector *vector,
                            const int32_t *levels, uint8_t *data, size_t capacity)
{
    struct tally_bit_writer writer;
    tally_bit_writer_init(&writer, data, capacity);
    encode(model, levels, vector->dim, vector->rng, &writer);
    tally_bit_writer_finish(&writer);
    return tally_bit_writer_tell(&writer);
}

static enum tally_status has_no_room(const struct tally_vector *vector, enum tally_status status,
                                     struct tally_error *err)
{
    return tally_fail(err, status, NULL, "a message of %zu coordinates: %s", vector->dim,
                      tally_status_info(status)->title);
}

static enum tally_status encode_short(const struct tally_vector *vector, int32_t *scratch,
                                      struct tally_buffer *payload,
                                      struct tally_level_stats *ret_stats, uint64_t *ret_clipped,
                                      struct tally_error *err)
{
    struct tally_dithered_model model =
        tally_dithered_model(vector->grid->scale, TALLY_TRELLIS_LEAST_SCALE);
    struct rounded rounded = {0};
    payload->size = 0;
    enum tally_status status = quantize(&model, vector, scratch, &rounded, err);
    if (status != TALLY_OK) {
        return status;
    }
    status = tally_buffer_reserve(payload, (size_t)(rounded.bits_at_most / 8) + 16);
    if (status != TALLY_OK) {
        return has_no_room(vector, status, err);
    }
    rounded.stats.payload_bits =
        write_short(&model, vector, scratch, payload->data, payload->capacity);
    payload->size = (size_t)((rounded.stats.payload_bits + 7) / 8);
    *ret_stats = rounded.stats;
    *ret_clipped = rounded.clipped;
    return TALLY_OK;
}

static enum tally_status encode_long(const struct tally_vector *vector,
                                     struct tally_buffer *payload,
                                     struct tally_level_stats *ret_stats, uint64_t *ret_clipped,
                                     struct tally_error *err)
{
    const struct tally_dithered_model model = tally_dithered_model(vector->grid->scale, 0);
    struct tally_level_stats stats;
    uint64_t clipped;
    const enum tally_status status =
        tally_dithered_long_encode(&model, vector, payload, &stats, &clipped);
    if (status == TALLY_NOT_FINITE) {
        return refuse(vector, err);
    }
    if (status != TALLY_OK) {
        return has_no_room(vector, status, err);
    }
    *ret_stats = stats;
    *ret_clipped = clipped;
    return TALLY_OK;
}

enum tally_status tally_dithered_encode_as(bool is_long, const struct tally_vector *vector,
                                           int32_t *scratch, struct tally_buffer *payload,
                                           struct tally_level_stats *ret_stats,
                                           uint64_t *ret_clipped, struct tally_error *err)
{
    return is_long ? encode_long(vector, payload, ret_stats, ret_clipped, err)
                   : encode_short(vector, scratch, payload, ret_stats, ret_clipped, err);
}
