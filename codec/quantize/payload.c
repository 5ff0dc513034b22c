#include "codec/quantize/payload.h"

#include "codec/numeric/bits.h"

enum tally_status tally_payload_check_frame(const uint8_t *data, size_t n_bytes,
                                            uint64_t payload_bits, struct tally_error *err)
{
    return tally_bits_are_framed(data, n_bytes, payload_bits)
               ? TALLY_OK
               : tally_fail(err, TALLY_MALFORMED, "payload",
                            "%zu bytes do not frame %llu bits with zero padding", n_bytes,
                            (unsigned long long)payload_bits);
}

enum tally_status tally_payload_check_length(uint64_t payload_bits, size_t dim, uint64_t bits_taken,
                                             struct tally_error *err)
{
    return bits_taken == payload_bits
               ? TALLY_OK
               : tally_fail(err, TALLY_MALFORMED, "payload",
                            "%llu bits announced, %zu coordinates take %llu",
                            (unsigned long long)payload_bits, dim, (unsigned long long)bits_taken);
}

enum tally_status tally_payload_check_string(uint64_t payload_bits, size_t dim, uint64_t bits_taken,
                                             bool is_exact, struct tally_error *err)
{
    const enum tally_status status = tally_payload_check_length(payload_bits, dim, bits_taken, err);
    return status != TALLY_OK || is_exact
               ? status
               : tally_fail(err, TALLY_MALFORMED, "payload",
                            "not the first string of its %llu bits for these levels",
                            (unsigned long long)bits_taken);
}
