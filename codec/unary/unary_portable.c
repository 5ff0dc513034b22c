/* The plain forms, one coordinate after the other, and the kernel that leaves all blocks to them.
 */
#include <stdlib.h>

#include "codec/unary/unary_kernels.h"

static uint64_t low_bits(size_t n)
{
    return n == 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1;
}

void tally_unary_encode_block_ref(const int32_t *levels, size_t n, struct tally_bit_writer *writer,
                                  uint64_t *nonzeros)
{
    uint64_t active = low_bits(n); /* coordinates that have a bit in the plane */
    uint64_t nonzero = 0, signs = 0;
    for (int32_t k = 0; active != 0; k++) {
        uint64_t plane = 0, above = 0;
        unsigned n_bits = 0;
        for (uint64_t rest = active; rest != 0; rest &= rest - 1) {
            const unsigned i = (unsigned)__builtin_ctzll(rest);
            const uint64_t bit = abs(levels[i]) > k;
            plane |= bit << n_bits++;
            above |= bit << i;
        }
        tally_bit_write(writer, plane, n_bits);
        nonzero = k == 0 ? above : nonzero;
        active = above;
    }
    unsigned n_signs = 0;
    for (; nonzero != 0; nonzero &= nonzero - 1) {
        const uint64_t is_negative = levels[__builtin_ctzll(nonzero)] < 0;
        signs |= is_negative << n_signs++;
    }
    tally_bit_write(writer, signs, n_signs);
    *nonzeros += n_signs;
}

/* n <= 64 bits. */
static uint64_t read_plane(struct tally_bit_reader *reader, unsigned n)
{
    const unsigned n_low = n < 32 ? n : 32;
    const uint64_t low = tally_bit_read(reader, n_low);
    return low | tally_bit_read(reader, n - n_low) << n_low;
}

/* Puts the low bits of `plane` where `active` has ones, in order. */
static uint64_t expand(uint64_t plane, uint64_t active)
{
    uint64_t mask = 0;
    for (; active != 0; active &= active - 1) {
        mask |= (plane & 1) << __builtin_ctzll(active);
        plane >>= 1;
    }
    return mask;
}

enum tally_status tally_unary_decode_block_ref(struct tally_bit_reader *reader, size_t first,
                                               size_t n, size_t dim, uint32_t top, int32_t *levels,
                                               uint64_t *nonzeros, struct tally_error *err)
{
    uint64_t active = low_bits(n), nonzero = 0;
    for (size_t i = 0; i < n; i++) {
        levels[i] = 0;
    }
    for (uint32_t k = 0; active != 0 && !reader->overrun; k++) {
        const unsigned n_bits = (unsigned)__builtin_popcountll(active);
        active = expand(read_plane(reader, n_bits), active);
        if (active != 0 && k == top && !reader->overrun) {
            return tally_fail(err, TALLY_MALFORMED, "payload",
                              "level of coordinate %zu is above %u",
                              first + (size_t)__builtin_ctzll(active), top);
        }
        nonzero = k == 0 ? active : nonzero;
        for (uint64_t rest = active; rest != 0; rest &= rest - 1) {
            levels[__builtin_ctzll(rest)]++;
        }
    }
    const unsigned n_signs = (unsigned)__builtin_popcountll(nonzero);
    uint64_t negative = expand(read_plane(reader, n_signs), nonzero);
    if (reader->overrun) {
        return tally_fail(err, TALLY_MALFORMED, "payload",
                          "ends in coordinates %zu to %zu of %zu, after %llu bits", first,
                          first + n - 1, dim, (unsigned long long)reader->n_bits);
    }
    for (; negative != 0; negative &= negative - 1) {
        const unsigned i = (unsigned)__builtin_ctzll(negative);
        levels[i] = -levels[i];
    }
    *nonzeros += n_signs;
    return TALLY_OK;
}

const struct tally_unary_kernel TALLY_UNARY_PORTABLE = {.count = tally_unary_count};
