/* dithered_long: messages of 2^18 or more coordinates; FORMAT.md section 7.2.
 *
 *     | 64 states of 32 bits | per block of 4096: code words, bits that follow |
 *
 * All coordinates have the standard deviation of the model's first hypothesis. The bits that
 * follow: for each coordinate in a tail, in order, |high| - reach in an Elias gamma code; then the
 * low bits of all coordinates; then zeros to the next word of 16 bits. */
#ifndef TALLY_CODEC_DITHERED_DITHERED_LONG_H
#define TALLY_CODEC_DITHERED_DITHERED_LONG_H

#include "codec/dithered/dithered_kernels.h"

enum {
    /* As for `entropy`: from this length on 64 states cost less than 1 %; below it, the other coder
     * takes about 50 milliseconds at most. */
    TALLY_DITHERED_LONG_MESSAGE = 1 << 18,
    TALLY_DITHERED_LONG_HEAD_BYTES = TALLY_RANS_BYTES,
};

/* Quantizes the vector and encodes it into `payload`, replacing its content. Errors: NOT_FINITE
 * (without a message), NO_MEMORY, TOO_LARGE. */
enum tally_status tally_dithered_long_encode(const struct tally_dithered_model *model,
                                             const struct tally_vector *vector,
                                             struct tally_buffer *payload,
                                             struct tally_level_stats *ret_stats,
                                             uint64_t *ret_clipped);

/* A message as it is read. */
struct tally_dithered_long {
    const struct tally_dithered_model *model;
    const struct tally_rng *rng;
    struct tally_dithered_table table;
    size_t dim, start; /* coordinates in total, and before the next block */
    uint32_t top;
    uint64_t payload_bits;
    const uint8_t *data, *end; /* unread bytes */
    struct tally_rans_states states;
    struct tally_level_stats stats;
};

/* A block of a message. */
struct tally_dithered_block {
    size_t n;
    int32_t levels[TALLY_DITHERED_BLOCK], dithers[TALLY_DITHERED_BLOCK];
    uint8_t symbols[TALLY_DITHERED_BLOCK], bins[TALLY_DITHERED_BLOCK];
};

/* Opens a message; its model, rng, dim, top and payload_bits must be set. Errors: MALFORMED. */
enum tally_status tally_dithered_long_open(struct tally_dithered_long *message, const uint8_t *data,
                                           size_t n_bytes, struct tally_error *err);
/* Reads the next block. Errors: MALFORMED. */
enum tally_status tally_dithered_long_read(struct tally_dithered_long *message,
                                           struct tally_dithered_block *ret_block,
                                           struct tally_error *err);
/* After the last block: checks that an encoder ends a message like this. Errors: MALFORMED. */
enum tally_status tally_dithered_long_close(const struct tally_dithered_long *message,
                                            struct tally_error *err);

#endif
