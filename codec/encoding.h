/* encoding: how the integer levels of a quantized vector become bits, behind one vtable.
 *
 * FORMAT.md is the specification; both sides know dim, at least 1, and the grid before a message
 * comes. */
#ifndef TALLY_CODEC_ENCODING_H
#define TALLY_CODEC_ENCODING_H

#include <stddef.h>
#include <stdint.h>

#include "codec/base/buffer.h"
#include "codec/base/error.h"
#include "codec/quantize/quantizer.h"

/* The version of FORMAT.md that is implemented here; worker and coordinator compare it at Join. */
enum { TALLY_FORMAT_VERSION = 2 };

/* What a message holds, as the decoder saw it and the encoder must have. */
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
    const char *name; /* the job document's word for it */

    /* Bytes that are enough for encode() of these levels: no fewer are accepted. */
    size_t (*bound)(const int32_t *levels, size_t dim);

    /* Writes levels[dim] into data[capacity]. |level| <= p/2 is the caller's duty.
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

    /* Reads the same and adds the levels to sums (int64[dim]) without ever holding all of them.
     * Errors: as decode(); then sums are what they were. */
    enum tally_status (*accumulate)(const uint8_t *data, size_t n_bytes, uint64_t payload_bits,
                                    size_t dim, const struct tally_grid *grid, int64_t *sums,
                                    struct tally_level_stats *ret_stats, struct tally_error *err);

    /* Optional: tally_quantize_encode() in one pass over y. */
    enum tally_status (*quantize_encode)(const struct tally_vector *vector, int32_t *scratch,
                                         struct tally_buffer *payload,
                                         struct tally_level_stats *ret_stats, uint64_t *ret_clipped,
                                         struct tally_error *err);
};

/* tally_quantize() of a vector and encode() of its levels, into `payload`, whose old content is
 * replaced; the same bits as from the two. `scratch` is int32[dim] for the use of this call.
 * Errors: NOT_FINITE (a coordinate), TOO_LARGE, NO_MEMORY (the payload). */
enum tally_status tally_quantize_encode(const struct tally_encoding *encoding,
                                        const struct tally_vector *vector, int32_t *scratch,
                                        struct tally_buffer *payload,
                                        struct tally_level_stats *ret_stats, uint64_t *ret_clipped,
                                        struct tally_error *err);

/* Checks levels[dim] and encodes them into `payload`, whose old content is replaced. Errors:
 * OUT_OF_RANGE (names a level outside the grid), TOO_LARGE, NO_MEMORY (the payload). */
enum tally_status tally_levels_encode(const struct tally_encoding *encoding,
                                      const struct tally_grid *grid, const int32_t *levels,
                                      size_t dim, struct tally_buffer *payload,
                                      struct tally_level_stats *ret_stats, struct tally_error *err);

extern const struct tally_encoding TALLY_ENCODING_UNARY;
extern const struct tally_encoding TALLY_ENCODING_ENTROPY;

/* Where they stand below. */
enum {
    TALLY_ENCODING_INDEX_UNARY,
    TALLY_ENCODING_INDEX_ENTROPY,
    TALLY_ENCODING_INDEX_DEFAULT = TALLY_ENCODING_INDEX_ENTROPY, /* of a job, or a command */
};

/* NULL-terminated; its order is that of TALLY_ENCODING_NAMES. */
extern const struct tally_encoding *const TALLY_ENCODINGS[];
extern const char *const TALLY_ENCODING_NAMES[];

#endif
