#include "codec/numeric/float32.h"

#include <float.h>
#include <math.h>
#include <string.h>

size_t tally_float32_bound(size_t dim)
{
    return 4 * dim;
}

/* Copies n words of 32 bits, in the order of this machine on one side and little-endian on the
 * other. */
static void copy_words(void *to, const void *from, size_t n)
{
    memcpy(to, from, 4 * n);
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    for (size_t i = 0; i < n; i++) {
        uint32_t word;
        memcpy(&word, (uint8_t *)to + 4 * i, 4);
        word = __builtin_bswap32(word);
        memcpy((uint8_t *)to + 4 * i, &word, 4);
    }
#endif
}

/* Fails if a value is not finite. The first loop has no exit, so that it takes vector
 * instructions. */
static enum tally_status check_finite(const float *values, size_t dim, struct tally_error *err)
{
    uint32_t n_others = 0;
    for (size_t i = 0; i < dim; i++) {
        n_others += !(fabsf(values[i]) <= FLT_MAX);
    }
    size_t i = 0;
    while (n_others > 0 && isfinite(values[i])) {
        i++;
    }
    return n_others == 0
               ? TALLY_OK
               : tally_fail(err, TALLY_NOT_FINITE, "payload", "coordinate %zu is not finite", i);
}

enum tally_status tally_float32_encode(const float *values, size_t dim, uint8_t *data,
                                       size_t capacity, uint64_t *ret_payload_bits,
                                       struct tally_error *err)
{
    if (capacity < tally_float32_bound(dim)) {
        return tally_fail(err, TALLY_OUT_OF_RANGE, NULL, "%zu bytes for %zu float32 values",
                          capacity, dim);
    }
    enum tally_status status = check_finite(values, dim, err);
    if (status != TALLY_OK) {
        return status;
    }
    copy_words(data, values, dim);
    *ret_payload_bits = 32 * (uint64_t)dim;
    return TALLY_OK;
}

enum tally_status tally_float32_decode(const uint8_t *data, size_t n_bytes, uint64_t payload_bits,
                                       size_t dim, float *values, struct tally_error *err)
{
    if (n_bytes != tally_float32_bound(dim) || payload_bits != 32 * (uint64_t)dim) {
        return tally_fail(err, TALLY_MALFORMED, "payload",
                          "%zu bytes with %llu bits; expected %zu float32 values", n_bytes,
                          (unsigned long long)payload_bits, dim);
    }
    copy_words(values, data, dim);
    return check_finite(values, dim, err);
}
