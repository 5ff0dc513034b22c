/* encoding: the table of the encodings of levels (level_encoding.h), and their use in one call. */
#ifndef TALLY_CODEC_ENCODING_H
#define TALLY_CODEC_ENCODING_H

#include "codec/entropy/entropy.h"
#include "codec/quantize/level_encoding.h"
#include "codec/unary/unary.h"

/* The version of FORMAT.md that this code implements. Worker and coordinator compare it at Join. */
enum { TALLY_FORMAT_VERSION = 3 };

/* Quantizes a vector and encodes its levels into `payload`, replacing its content, with the same
 * bits as tally_quantize() and encode(). `scratch` is int32[dim], working memory for this call.
 * Errors: NOT_FINITE (a coordinate), TOO_LARGE, NO_MEMORY (the payload). */
enum tally_status tally_quantize_encode(const struct tally_encoding *encoding,
                                        const struct tally_vector *vector, int32_t *scratch,
                                        struct tally_buffer *payload,
                                        struct tally_level_stats *ret_stats, uint64_t *ret_clipped,
                                        struct tally_error *err);

/* Checks levels[dim] and encodes them into `payload`, replacing its content. Errors: OUT_OF_RANGE
 * (names a level outside the grid), TOO_LARGE, NO_MEMORY (the payload). */
enum tally_status tally_levels_encode(const struct tally_encoding *encoding,
                                      const struct tally_grid *grid, const int32_t *levels,
                                      size_t dim, struct tally_buffer *payload,
                                      struct tally_level_stats *ret_stats, struct tally_error *err);

/* Indices into the tables below. */
enum {
    TALLY_ENCODING_INDEX_UNARY,
    TALLY_ENCODING_INDEX_ENTROPY,
    TALLY_ENCODING_INDEX_DEFAULT = TALLY_ENCODING_INDEX_ENTROPY, /* of a job, or a command */
};

/* NULL-terminated, in the same order as TALLY_ENCODING_NAMES. */
extern const struct tally_encoding *const TALLY_ENCODINGS[];
extern const char *const TALLY_ENCODING_NAMES[];

#endif
