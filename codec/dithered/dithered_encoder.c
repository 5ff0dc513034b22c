/* dithered_encoder: a vector to the bits of a message, in two passes: levels, then bits. */
#include <math.h>

#include "codec/dithered/dithered.h"
#include "codec/dithered/dithered_message.h"
#include "codec/entropy/arith.h"

/* Rounds y to levels (int32[dim]) and adds those beyond the top to *clipped. Returns dim, or the
 * first coordinate that is not finite. */
static size_t quantize(const struct tally_vector *vector, int32_t *levels, uint64_t *clipped)
{
    const double step = vector->grid->step;
    const int32_t top = (int32_t)(vector->grid->intervals / 2);
    uint32_t words[TALLY_RNG_LANES];
    for (size_t i = 0; i < vector->dim; i++) {
        if (i % TALLY_RNG_LANES == 0) {
            tally_rng_lanes(vector->rng, (uint32_t)(i / TALLY_RNG_LANES), words);
        }
        const double dither = (int32_t)words[i % TALLY_RNG_LANES] * 0x1p-32;
        const double level = rint((double)vector->y[i] / step + dither);
        if (!isfinite(vector->y[i])) {
            return i;
        }
        *clipped += fabs(level) > top;
        levels[i] = level > top ? top : level < -top ? -top : (int32_t)level;
    }
    return vector->dim;
}

static enum tally_status refuse(const struct tally_vector *vector, size_t i,
                                struct tally_error *err)
{
    return tally_fail(err, TALLY_NOT_FINITE, NULL, "coordinate %zu of %zu is %s", i, vector->dim,
                      isnan(vector->y[i]) ? "NaN" : "infinite");
}

static uint32_t magnitude_of(int32_t level)
{
    return (uint32_t)(level < 0 ? -level : level);
}

static unsigned bit_length(uint32_t value)
{
    return value == 0 ? 0 : 32 - (unsigned)__builtin_clz(value);
}

/* Bytes that are enough for these levels, and their numbers of bits but for the payload's. */
static size_t measure(const struct tally_dithered_model *model, const int32_t *levels, size_t dim,
                      struct tally_level_stats *ret_stats)
{
    /* A share of 2^16, one bit more for the rounding of the coder's shares, and the low bits. */
    uint64_t bits = dim * (uint64_t)(TALLY_DITHERED_TOTAL_BITS + 1 + model->shift);
    struct tally_level_stats stats = {.formula_bits = dim};
    for (size_t i = 0; i < dim; i++) {
        const uint32_t high = magnitude_of(tally_dithered_high(model, levels[i]));
        const uint32_t reach = (uint32_t)model->reach;
        bits += high > reach ? 2 * bit_length(high - reach) : 0;
        stats.formula_bits += magnitude_of(levels[i]);
        stats.nonzeros += levels[i] != 0;
    }
    *ret_stats = stats;
    return (size_t)(bits / 8 + 16);
}

static void encode_raw(struct tally_arith_encoder *encoder, uint32_t bits, unsigned n)
{
    for (unsigned piece; n > 0; n -= piece, bits >>= piece) {
        piece = n < TALLY_DITHERED_RAW_BITS ? n : TALLY_DITHERED_RAW_BITS;
        tally_arith_encode(encoder, bits & ((1u << piece) - 1), 1, piece);
    }
}

/* Elias gamma: as many zeros as there are bits after the first one, a one, and those bits. */
static void encode_excess(struct tally_arith_encoder *encoder, uint32_t excess)
{
    const unsigned more = bit_length(excess) - 1;
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
        encode_excess(encoder, magnitude_of(high) - (uint32_t)model->reach);
    }
    const uint32_t raised = (uint32_t)level + ((1u << model->shift) >> 1);
    encode_raw(encoder, raised & ((1u << model->shift) - 1), model->shift);
}

static void encode(struct tally_dithered_model *model, const int32_t *levels, size_t dim,
                   const struct tally_rng *rng, struct tally_bit_writer *writer)
{
    uint32_t words[TALLY_RNG_LANES];
    struct tally_arith_encoder encoder;
    tally_arith_encoder_init(&encoder, writer);
    for (size_t i = 0; i < dim; i++) {
        if (i % TALLY_RNG_LANES == 0) {
            tally_rng_lanes(rng, (uint32_t)(i / TALLY_RNG_LANES), words);
        }
        encode_level(&encoder, model, levels[i], (int32_t)words[i % TALLY_RNG_LANES]);
    }
    tally_arith_encoder_finish(&encoder);
}

enum tally_status tally_dithered_encode(const struct tally_vector *vector, int32_t *scratch,
                                        struct tally_buffer *payload,
                                        struct tally_level_stats *ret_stats, uint64_t *ret_clipped,
                                        struct tally_error *err)
{
    struct tally_dithered_model model = tally_dithered_model(vector->grid->scale);
    uint64_t clipped = 0;
    struct tally_level_stats stats;
    payload->size = 0;
    const size_t n = quantize(vector, scratch, &clipped);
    if (n < vector->dim) {
        return refuse(vector, n, err);
    }
    const size_t n_bytes = measure(&model, scratch, vector->dim, &stats);
    const enum tally_status status = tally_buffer_reserve(payload, n_bytes);
    if (status != TALLY_OK) {
        return tally_fail(err, status, NULL, "a message of %zu bytes: %s", n_bytes,
                          tally_status_info(status)->title);
    }
    struct tally_bit_writer writer;
    tally_bit_writer_init(&writer, payload->data, n_bytes);
    encode(&model, scratch, vector->dim, vector->rng, &writer);
    stats.payload_bits = tally_bit_writer_tell(&writer);
    payload->size = tally_bit_writer_finish(&writer);
    *ret_stats = stats;
    *ret_clipped = clipped;
    return TALLY_OK;
}
