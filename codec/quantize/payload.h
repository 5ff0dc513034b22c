/* payload: the checks that the decoders of all encodings share, and their errors.
 *
 * Each function reports MALFORMED in the field "payload"; `err` may be NULL. */
#ifndef TALLY_CODEC_QUANTIZE_PAYLOAD_H
#define TALLY_CODEC_QUANTIZE_PAYLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/error.h"

/* Whether n_bytes hold payload_bits bits and fewer than 8 bits of padding, all zero. */
enum tally_status tally_payload_check_frame(const uint8_t *data, size_t n_bytes,
                                            uint64_t payload_bits, struct tally_error *err);

/* Whether the dim coordinates of a message took all of its payload_bits bits. */
enum tally_status tally_payload_check_length(uint64_t payload_bits, size_t dim, uint64_t bits_taken,
                                             struct tally_error *err);

/* The same for a message of the arithmetic coder, which must also be the first string of its
 * length. bits_taken and is_exact come from tally_arith_decoder_finish(). */
enum tally_status tally_payload_check_string(uint64_t payload_bits, size_t dim, uint64_t bits_taken,
                                             bool is_exact, struct tally_error *err);

/* Fails: the message ends within the block that starts at coordinate `start` of dim. */
static inline enum tally_status
tally_payload_ends_early(size_t start, size_t dim, uint64_t payload_bits, struct tally_error *err)
{
    return tally_fail(err, TALLY_MALFORMED, "payload",
                      "ends in the block of coordinate %zu of %zu, after %llu bits", start, dim,
                      (unsigned long long)payload_bits);
}

/* Fails: the magnitude of a coordinate's level is above `top`. */
static inline enum tally_status tally_payload_level_above(size_t coordinate, uint32_t top,
                                                          struct tally_error *err)
{
    return tally_fail(err, TALLY_MALFORMED, "payload", "level of coordinate %zu is above %lu",
                      coordinate, (unsigned long)top);
}

#endif
