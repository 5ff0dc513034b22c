/* unary: |level| ones, a zero, and where level != 0 a sign bit (1 = negative).
 *
 *     level   0    1     -1     2       -3
 *     bits    0    100   101    1100    11101          (first bit on the left)
 *
 * so payload = d + sum |level| + nonzeros = formula + nonzeros. [1] writes sign and ones without an
 * end mark, which cannot be decoded: 11111 is 4, or +0 and +3. */
#include <stdlib.h>

#include "codec/bits.h"
#include "codec/encoding.h"

static struct tally_level_stats count(const int32_t *levels, size_t dim)
{
    struct tally_level_stats stats = {.formula_bits = dim};
    for (size_t i = 0; i < dim; i++) {
        stats.formula_bits += (uint64_t)abs(levels[i]);
        stats.nonzeros += levels[i] != 0;
    }
    stats.payload_bits = stats.formula_bits + stats.nonzeros;
    return stats;
}

static size_t unary_bound(const int32_t *levels, size_t dim)
{
    return (size_t)((count(levels, dim).payload_bits + 7) / 8);
}

static enum tally_status unary_encode(const int32_t *levels, size_t dim,
                                      const struct tally_grid *grid, uint8_t *data, size_t capacity,
                                      struct tally_level_stats *ret_stats)
{
    (void)grid;
    struct tally_level_stats stats = {.formula_bits = dim};
    struct tally_bit_writer writer;
    tally_bit_writer_init(&writer, data, capacity);
    for (size_t i = 0; i < dim; i++) {
        unsigned magnitude = (unsigned)abs(levels[i]);
        stats.formula_bits += magnitude;
        stats.nonzeros += magnitude != 0;
        unsigned ones = magnitude;
        for (; ones >= 60; ones -= 60) {
            tally_bit_write(&writer, UINT64_MAX, 60);
        }
        /* The rest of the ones, the zero, and the sign if there is one, in a single write. */
        uint64_t bits = ((UINT64_C(1) << ones) - 1) | (uint64_t)(levels[i] < 0) << (ones + 1);
        tally_bit_write(&writer, bits, ones + 1 + (magnitude != 0));
    }
    stats.payload_bits = tally_bit_writer_tell(&writer);
    tally_bit_writer_finish(&writer);
    if (writer.overflow) {
        return TALLY_OUT_OF_RANGE;
    }
    *ret_stats = stats;
    return TALLY_OK;
}

static enum tally_status unary_decode(const uint8_t *data, size_t n_bytes, uint64_t payload_bits,
                                      size_t dim, const struct tally_grid *grid, int32_t *levels,
                                      struct tally_level_stats *ret_stats, struct tally_error *err)
{
    if (!tally_bits_are_framed(data, n_bytes, payload_bits)) {
        return tally_fail(err, TALLY_MALFORMED, "payload",
                          "%zu bytes do not frame %llu bits with zero padding", n_bytes,
                          (unsigned long long)payload_bits);
    }
    struct tally_level_stats stats = {.formula_bits = dim};
    struct tally_bit_reader reader;
    tally_bit_reader_init(&reader, data, payload_bits);
    const uint64_t top = grid->intervals / 2;
    for (size_t i = 0; i < dim; i++) {
        uint64_t magnitude = tally_bit_read_ones(&reader, top + 1);
        if (magnitude > top) {
            return tally_fail(err, TALLY_MALFORMED, "payload",
                              "level of coordinate %zu is above %llu", i, (unsigned long long)top);
        }
        uint64_t tail = tally_bit_read(&reader, 1 + (magnitude != 0)); /* the zero, the sign */
        if (reader.overrun) {
            return tally_fail(err, TALLY_MALFORMED, "payload",
                              "ends at coordinate %zu of %zu, after %llu bits", i, dim,
                              (unsigned long long)payload_bits);
        }
        levels[i] = tail != 0 ? -(int32_t)magnitude : (int32_t)magnitude;
        stats.formula_bits += magnitude;
        stats.nonzeros += magnitude != 0;
    }
    stats.payload_bits = tally_bit_reader_tell(&reader);
    if (stats.payload_bits != payload_bits) {
        return tally_fail(
            err, TALLY_MALFORMED, "payload", "%llu bits announced, %zu coordinates take %llu",
            (unsigned long long)payload_bits, dim, (unsigned long long)stats.payload_bits);
    }
    *ret_stats = stats;
    return TALLY_OK;
}

const struct tally_encoding TALLY_ENCODING_UNARY = {
    .name = "unary",
    .bound = unary_bound,
    .encode = unary_encode,
    .decode = unary_decode,
};
