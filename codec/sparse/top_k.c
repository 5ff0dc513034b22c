#include "codec/sparse/top_k.h"

#include <math.h>
#include <string.h>

#include "codec/numeric/float32.h"
#include "codec/quantize/payload.h"
#include "codec/sparse/index_set.h"

/* The bits of |v|, which are ordered like the magnitudes. */
static uint32_t magnitude(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits & INT32_MAX;
}

enum { DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS };

/* Takes the magnitudes that agree with `found` from bit shift + DIGIT_BITS up, and finds the next
 * digit of the *rank-th largest, counted from 1. *rank becomes its rank among those with that
 * digit. */
static uint32_t next_digit(const float *y, size_t dim, uint32_t found, unsigned shift, size_t *rank)
{
    uint32_t counts[DIGITS] = {0};
    for (size_t i = 0; i < dim; i++) {
        const uint32_t bits = magnitude(y[i]);
        counts[bits >> shift & (DIGITS - 1)] +=
            ((uint64_t)(bits ^ found) >> shift >> DIGIT_BITS) == 0;
    }
    uint32_t digit = DIGITS - 1;
    for (; counts[digit] < *rank; digit--) {
        *rank -= counts[digit];
    }
    return digit << shift;
}

enum tally_status tally_top_k_select(const float *y, size_t dim, size_t k, uint32_t *ret_indices,
                                     struct tally_error *err)
{
    for (size_t i = 0; i < dim; i++) {
        if (!isfinite(y[i])) {
            return tally_fail(err, TALLY_NOT_FINITE, NULL, "coordinate %zu of %zu is not finite", i,
                              dim);
        }
    }
    /* The magnitude of rank k, digit by digit: bits 32 to 22, 21 to 11, 10 to 0. */
    uint32_t threshold = 0;
    size_t n_equal = k; /* number of coordinates of that magnitude to take */
    for (int shift = 2 * DIGIT_BITS; shift >= 0; shift -= DIGIT_BITS) {
        threshold |= next_digit(y, dim, threshold, (unsigned)shift, &n_equal);
    }
    size_t n = 0;
    for (size_t i = 0; n < k; i++) {
        const uint32_t bits = magnitude(y[i]);
        if (bits > threshold || (bits == threshold && n_equal > 0)) {
            n_equal -= bits == threshold;
            ret_indices[n++] = (uint32_t)i;
        }
    }
    return TALLY_OK;
}

uint64_t tally_top_k_formula_bits(size_t dim, size_t k)
{
    uint64_t index_bits = 0;
    while ((UINT64_C(1) << index_bits) < dim) {
        index_bits++;
    }
    return k * (32 + index_bits);
}

size_t tally_top_k_bound(size_t dim, size_t k)
{
    return 4 * k + (size_t)((tally_index_set_bound(dim, k) + 7) / 8);
}

enum tally_status tally_top_k_encode(const float *values, const uint32_t *indices, size_t dim,
                                     size_t k, uint8_t *data, size_t capacity,
                                     uint64_t *ret_payload_bits, struct tally_error *err)
{
    if (capacity < tally_top_k_bound(dim, k)) {
        return tally_fail(err, TALLY_OUT_OF_RANGE, NULL, "%zu bytes for %zu of %zu coordinates",
                          capacity, k, dim);
    }
    uint64_t value_bits;
    enum tally_status status = tally_float32_encode(values, k, data, capacity, &value_bits, err);
    if (status != TALLY_OK) {
        return status;
    }
    struct tally_bit_writer writer;
    tally_bit_writer_init(&writer, data + 4 * k, capacity - 4 * k);
    tally_index_set_write(indices, k, dim, &writer);
    *ret_payload_bits = value_bits + tally_bit_writer_tell(&writer);
    tally_bit_writer_finish(&writer);
    return TALLY_OK;
}

enum tally_status tally_top_k_decode(const uint8_t *data, size_t n_bytes, uint64_t payload_bits,
                                     size_t dim, size_t k, float *values, uint32_t *indices,
                                     struct tally_error *err)
{
    enum tally_status status = tally_payload_check_frame(data, n_bytes, payload_bits, err);
    if (status != TALLY_OK) {
        return status;
    }
    if (payload_bits / 32 < k) {
        return tally_fail(err, TALLY_MALFORMED, "payload",
                          "ends in the %zu values, after %llu bits", k,
                          (unsigned long long)payload_bits);
    }
    status = tally_float32_decode(data, 4 * k, 32 * (uint64_t)k, k, values, err);
    if (status != TALLY_OK) {
        return status;
    }
    struct tally_bit_reader reader;
    tally_bit_reader_init(&reader, data + 4 * k, payload_bits - 32 * (uint64_t)k);
    status = tally_index_set_read(&reader, dim, k, indices, err);
    return status != TALLY_OK
               ? status
               : tally_payload_check_length(payload_bits, dim,
                                            32 * (uint64_t)k + tally_bit_reader_tell(&reader), err);
}
