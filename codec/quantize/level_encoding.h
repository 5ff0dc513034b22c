/* level_encoding: how the integer levels of a quantized vector become bits, behind one vtable.
 *
 * codec/unary and codec/entropy implement it; codec/encoding.h is the table of all encodings.
 * FORMAT.md specifies the bits. Both sides know dim, at least 1, and the grid before a message
 * arrives. Message bits are counted here: an encoder counts the bits that it writes and a decoder
 * those that it reads, in the same struct. */
#ifndef TALLY_CODEC_QUANTIZE_LEVEL_ENCODING_H
#define TALLY_CODEC_QUANTIZE_LEVEL_ENCODING_H

#include <stddef.h>
#include <stdint.h>

#include "codec/buffer.h"
#include "codec/error.h"
#include "codec/quantize/quantizer.h"

/* Bit counts of a message, the same in encoder and decoder. */
struct tally_level_stats {
    uint64_t formula_bits; /* [1]: a sign bit and |level| ones per coordinate: d + sum |level| */
    uint64_t payload_bits; /* of the bit string, without padding */
    uint64_t nonzeros;     /* coordinates with level != 0 */
};

/* A vector to be quantized: the arguments of tally_quantize(). Borrowed. */
struct tally_vector {
    const float *y; /* float[dim] */
    size_t dim;
    const struct tally_grid *grid;
    const struct tally_rng *rng;
};

struct tally_encoding {
    const char *name; /* in job documents */

    /* Capacity that suffices to encode() these levels; encode() refuses a smaller one. */
    size_t (*bound)(const int32_t *levels, size_t dim);

    /* Writes levels[dim] into data[capacity]. The caller guarantees |level| <= p/2.
     * Errors: OUT_OF_RANGE (capacity below bound()). */
    enum tally_status (*encode)(const int32_t *levels, size_t dim, const struct tally_grid *grid,
                                uint8_t *data, size_t capacity,
                                struct tally_level_stats *ret_stats);

    /* Reads exactly n_bytes holding payload_bits bits into levels[dim]; on failure levels are
     * undefined. Errors: MALFORMED (too short, too long, a level above p/2, wrong padding; the
     * message names the coordinate or the count). */
    enum tally_status (*decode)(const uint8_t *data, size_t n_bytes, uint64_t payload_bits,
                                size_t dim, const struct tally_grid *grid, int32_t *levels,
                                struct tally_level_stats *ret_stats, struct tally_error *err);

    /* Reads a message like decode() and adds its levels to sums (int64[dim]), a block at a time.
     * Errors: as decode(); `sums` is then unchanged. */
    enum tally_status (*accumulate)(const uint8_t *data, size_t n_bytes, uint64_t payload_bits,
                                    size_t dim, const struct tally_grid *grid, int64_t *sums,
                                    struct tally_level_stats *ret_stats, struct tally_error *err);

    /* Optional: tally_quantize_encode() in one pass over y. */
    enum tally_status (*quantize_encode)(const struct tally_vector *vector, int32_t *scratch,
                                         struct tally_buffer *payload,
                                         struct tally_level_stats *ret_stats, uint64_t *ret_clipped,
                                         struct tally_error *err);
};

#endif
