/* dithered_message: what the encoder and the decoder of a whole message share. Internal to
 * codec/dithered and its tests.
 *
 *     short form   | one string of the arithmetic coder (arith.h): level after level |
 *     long form    | 64 states of 32 bits | per block: code words, bits that follow |
 *
 * No header: the scale is part of the grid, which both sides know. A message of 2^18 or more
 * coordinates has the long form. Tests also use it for short messages. */
#ifndef TALLY_CODEC_DITHERED_DITHERED_MESSAGE_H
#define TALLY_CODEC_DITHERED_DITHERED_MESSAGE_H

#include "codec/dithered/dithered_model.h"
#include "codec/quantize/level_encoding.h"

enum {
    TALLY_DITHERED_RAW_BITS = 16, /* unmodelled bits go through the coder in pieces of this size */
    TALLY_DITHERED_EXCESS_BITS = 21, /* of |high| - reach, at most: |level| <= 2^20 */
};

/* An upper bound on the bits of n levels of magnitude <= `largest`. */
uint64_t tally_dithered_bits_at_most(const struct tally_dithered_model *model, uint32_t largest,
                                     size_t n);

/* The functions of dithered.h, for the form that is_long selects. */

enum tally_status tally_dithered_encode_as(bool is_long, const struct tally_vector *vector,
                                           int32_t *scratch, struct tally_buffer *payload,
                                           struct tally_level_stats *ret_stats,
                                           uint64_t *ret_clipped, struct tally_error *err);

/* A message as it arrived, and what both sides know of it. Borrowed. */
struct tally_dithered_message {
    bool is_long;
    const uint8_t *data;
    size_t n_bytes;
    uint64_t payload_bits;
    size_t dim;
    const struct tally_grid *grid;
    const struct tally_rng *rng;
};

enum tally_status tally_dithered_decode_as(const struct tally_dithered_message *message,
                                           int64_t *values, struct tally_level_stats *ret_stats,
                                           struct tally_error *err);
enum tally_status tally_dithered_accumulate_as(const struct tally_dithered_message *message,
                                               int64_t *sums, struct tally_level_stats *ret_stats,
                                               struct tally_error *err);

#endif
