/* entropy_message: what the encoder and the decoder of a whole message share. Internal to
 * codec/entropy and its tests.
 *
 *     short form  | scale 4 or 10 bits | one string of the arithmetic coder (arith.h) |
 *     long form   | scale 16 bits | 64 states of 32 bits | per block: code words, extra bits |
 *
 * A message of 2^18 or more coordinates has the long form. Tests also use it for short messages,
 * because many small messages test more of it than a few large ones. */
#ifndef TALLY_CODEC_ENTROPY_ENTROPY_MESSAGE_H
#define TALLY_CODEC_ENTROPY_ENTROPY_MESSAGE_H

#include "codec/entropy/entropy_kernels.h"
#include "codec/quantize/level_encoding.h"

enum {
    /* From this length on the 64 states of 32 bits cost less than 0.6 % even if levels have an
     * entropy of 1 bit; below it, the other coder takes a few milliseconds at most. */
    TALLY_ENTROPY_LONG_MESSAGE = 1 << 18,
    TALLY_ENTROPY_SCALE_BITS = 4, /* of the scale; all ones: SCALE_MORE_BITS follow */
    TALLY_ENTROPY_SCALE_MORE = (1 << TALLY_ENTROPY_SCALE_BITS) - 1,
    TALLY_ENTROPY_SCALE_MORE_BITS = 6,
    TALLY_ENTROPY_ESCAPED_BITS = 5, /* of a symbol after the escape */
    TALLY_ENTROPY_RAW_BITS = 16, /* unmodelled bits go through the coder in pieces of this size */
    TALLY_ENTROPY_LONG_HEAD_BYTES = 2 + TALLY_RANS_BYTES,
};

/* The symbols of a block of a long message, and which of them are followed by more bits. */
struct tally_entropy_block {
    size_t n, n_followed;
    uint8_t symbols[TALLY_ENTROPY_LONG_BLOCK];
    uint16_t followed[TALLY_ENTROPY_LONG_BLOCK]; /* indices, ascending */
};

/* The table of the block of a long message that starts at coordinate `start`. Its first level is
 * *block; the levels of its window precede it. */
void tally_entropy_table_before(const int32_t *block, size_t start, unsigned scale,
                                struct tally_entropy_table *ret_table);

/* Counts the bits of n levels. */
void tally_entropy_count_bits(struct tally_level_stats *stats,
                              const struct tally_entropy_scan *scan, size_t n);

/* The functions of struct tally_encoding, for the form that is_long selects. */

size_t tally_entropy_bound(const int32_t *levels, size_t dim);
enum tally_status tally_entropy_encode(const int32_t *levels, size_t dim, bool is_long,
                                       uint8_t *data, size_t capacity,
                                       struct tally_level_stats *ret_stats);
enum tally_status tally_entropy_decode(const uint8_t *data, size_t n_bytes, uint64_t payload_bits,
                                       size_t dim, bool is_long, const struct tally_grid *grid,
                                       int32_t *levels, struct tally_level_stats *ret_stats,
                                       struct tally_error *err);
enum tally_status tally_entropy_accumulate(const uint8_t *data, size_t n_bytes,
                                           uint64_t payload_bits, size_t dim, bool is_long,
                                           const struct tally_grid *grid, int64_t *sums,
                                           struct tally_level_stats *ret_stats,
                                           struct tally_error *err);

#endif
