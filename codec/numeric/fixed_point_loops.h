/* fixed_point_loops: the loops of fixed_point_kernels.h, in C that compilers turn into vector
 * instructions. fixed_point.c, fixed_point_avx2.c and fixed_point_avx512.c define a kernel each. */
#ifndef TALLY_CODEC_NUMERIC_FIXED_POINT_LOOPS_H
#define TALLY_CODEC_NUMERIC_FIXED_POINT_LOOPS_H

#include <math.h>
#include <string.h>

#include "codec/numeric/fetch.h"
#include "codec/numeric/fixed_point_kernels.h"

/* Coordinates that are loaded, checked and added together: they stay in the first cache. */
enum { FIXED_POINT_BLOCK = 256 };

/* llrint() has no vector form before AVX-512. Below 2^51 a sum with 1.5 * 2^52 does the same:
 * doubles of that size are the integers, so the sum is rounded to one, ties to even, and its bits
 * are those of 1.5 * 2^52 plus that integer. */
#define FIXED_POINT_SHIFT      0x1.8p52
#define FIXED_POINT_FAST_BOUND 0x1p10 /* |v|, so that v * 2^40 is below 2^51, with room */

static inline int64_t fixed_point_fast_of(double v)
{
    const double shifted = v * 0x1p40 + FIXED_POINT_SHIFT, shift = FIXED_POINT_SHIFT;
    int64_t bits, origin;
    memcpy(&bits, &shifted, sizeof bits);
    memcpy(&origin, &shift, sizeof origin);
    return bits - origin;
}

static inline size_t fixed_point_block_at(size_t at, size_t n)
{
    return n - at < FIXED_POINT_BLOCK ? n - at : FIXED_POINT_BLOCK;
}

/* ---- float32 ---- */

/* Loads little-endian values, in any alignment. */
static inline void fixed_point_load_floats(const uint8_t *data, size_t n, float *values)
{
    memcpy(values, data, n * sizeof *values);
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    for (size_t i = 0; i < n; i++) {
        uint32_t word;
        memcpy(&word, &values[i], sizeof word);
        word = __builtin_bswap32(word);
        memcpy(&values[i], &word, sizeof word);
    }
#endif
}

/* The largest float32 that is not above `bound`, so that |v| <= bound can be decided in float32. */
static inline float fixed_point_float_bound(double bound)
{
    const float rounded = (float)bound;
    return (double)rounded > bound ? nextafterf(rounded, 0) : rounded;
}

/* Takes back what fixed_point_add_float32() has added from the first n values. */
static inline void fixed_point_take_back(const uint8_t *data, size_t n, int64_t *sums)
{
    float value;
    for (size_t i = 0; i < n; i++) {
        fixed_point_load_floats(data + sizeof value * i, 1, &value);
        sums[i] -= tally_fixed_point_of((double)value);
    }
}

static inline size_t fixed_point_add_float32(const uint8_t *data, size_t n, double bound,
                                             int64_t *sums)
{
    const float most = fixed_point_float_bound(bound);
    float values[FIXED_POINT_BLOCK];
    for (size_t at = 0, m; at < n; at += m) {
        uint32_t n_outside = 0, n_large = 0;
        int64_t *const to = sums + at;
        m = fixed_point_block_at(at, n);
        tally_fetch_ahead(data + sizeof values[0] * at, m * sizeof values[0]);
        tally_fetch_ahead(to, m * sizeof *to);
        fixed_point_load_floats(data + sizeof values[0] * at, m, values);
        for (size_t i = 0; i < m; i++) { /* no exit, for vector instructions */
            n_outside += !(fabsf(values[i]) <= most);
            n_large += fabsf(values[i]) > (float)FIXED_POINT_FAST_BOUND;
        }
        if (n_outside > 0) {
            fixed_point_take_back(data, at, sums);
            return at;
        }
        if (n_large == 0) {
            for (size_t i = 0; i < m; i++) {
                to[i] += fixed_point_fast_of((double)values[i]);
            }
        } else {
            for (size_t i = 0; i < m; i++) {
                to[i] += tally_fixed_point_of((double)values[i]);
            }
        }
    }
    return n;
}

/* ---- codes of sign and magnitude ---- */

enum { FIXED_POINT_GROUP = 8 }; /* codes, which take whole bytes */

/* Unpacks n codes, a multiple of 8, of `width` bits each. */
static inline void fixed_point_load_codes(const uint8_t *data, size_t n, unsigned width,
                                          uint32_t *codes)
{
    const uint64_t mask = (UINT64_C(1) << width) - 1;
    for (size_t i = 0; i < n; i += FIXED_POINT_GROUP, data += width) {
        uint64_t word;
        memcpy(&word, data, sizeof word);
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
        word = __builtin_bswap64(word);
#endif
        for (unsigned j = 0; j < FIXED_POINT_GROUP; j++) {
            codes[i + j] = (uint32_t)(word >> j * width & mask);
        }
    }
}

static inline size_t fixed_point_count_faults(const uint8_t *data, size_t n, unsigned width,
                                              int32_t top)
{
    uint32_t codes[FIXED_POINT_BLOCK];
    size_t n_all = 0;
    for (size_t at = 0, m; at < n; at += m) {
        uint32_t n_faults = 0;
        m = fixed_point_block_at(at, n);
        tally_fetch_ahead(data + at / 8 * width, m / 8 * width);
        fixed_point_load_codes(data + at / 8 * width, m, width, codes);
        for (size_t i = 0; i < m; i++) {
            n_faults += (int32_t)(codes[i] >> 1) > top;
            n_faults += codes[i] == 1;
        }
        n_all += n_faults;
    }
    return n_all;
}

static inline int32_t fixed_point_level_of(uint32_t code)
{
    const int32_t magnitude = (int32_t)(code >> 1), negative = -(int32_t)(code & 1);
    return (magnitude ^ negative) - negative;
}

static inline void fixed_point_add_codes(const uint8_t *data, size_t n, unsigned width,
                                         double scale, int64_t *sums)
{
    const double largest = scale * (double)(1u << (width - 1));
    uint32_t codes[FIXED_POINT_BLOCK];
    for (size_t at = 0, m; at < n; at += m) {
        int64_t *const to = sums + at;
        m = fixed_point_block_at(at, n);
        tally_fetch_ahead(data + at / 8 * width, m / 8 * width);
        tally_fetch_ahead(to, m * sizeof *to);
        fixed_point_load_codes(data + at / 8 * width, m, width, codes);
        if (largest <= FIXED_POINT_FAST_BOUND) {
            for (size_t i = 0; i < m; i++) {
                to[i] += fixed_point_fast_of(scale * fixed_point_level_of(codes[i]));
            }
        } else {
            for (size_t i = 0; i < m; i++) {
                to[i] += tally_fixed_point_of(scale * fixed_point_level_of(codes[i]));
            }
        }
    }
}

/* ---- levels with dither ---- */

static inline void fixed_point_add_squares(const double *values, size_t n,
                                           double squares[TALLY_FIXED_POINT_LANES])
{
    double sum[TALLY_FIXED_POINT_LANES];
    size_t i = 0;
    memcpy(sum, squares, sizeof sum);
    for (; i + TALLY_FIXED_POINT_LANES <= n; i += TALLY_FIXED_POINT_LANES) {
        for (size_t j = 0; j < TALLY_FIXED_POINT_LANES; j++) {
            sum[j] += values[i + j] * values[i + j];
        }
    }
    for (; i < n; i++) {
        sum[0] += values[i] * values[i];
    }
    memcpy(squares, sum, sizeof sum);
}

static inline void fixed_point_add_dithered(const int32_t *levels, const int32_t *dithers, size_t n,
                                            double step, int64_t *sums,
                                            double squares[TALLY_FIXED_POINT_LANES])
{
    double values[FIXED_POINT_BLOCK];
    for (size_t at = 0, m; at < n; at += m) {
        uint32_t n_large = 0;
        int64_t *const to = sums + at;
        m = fixed_point_block_at(at, n);
        for (size_t i = 0; i < m; i++) {
            values[i] = step * (levels[at + i] - dithers[at + i] * 0x1p-32);
            n_large += fabs(values[i]) > FIXED_POINT_FAST_BOUND;
        }
        if (n_large == 0) {
            for (size_t i = 0; i < m; i++) {
                to[i] += fixed_point_fast_of(values[i]);
            }
        } else {
            for (size_t i = 0; i < m; i++) {
                to[i] += tally_fixed_point_of(values[i]);
            }
        }
        fixed_point_add_squares(values, m, squares);
    }
}

/* ---- means ---- */

/* (double)sum. Only AVX-512 converts int64 in vectors, hence in halves of 32 bits: beside 2^84 the
 * doubles are the multiples of 2^32, and beside 2^52 the integers. All additions but the last
 * are exact. */
static inline double fixed_point_double_of(int64_t sum)
{
    const uint64_t word = (uint64_t)sum;
    const uint64_t high_bits = word >> 32 ^ UINT64_C(0x4530000080000000); /* 2^84 + 2^63 + high */
    const uint64_t low_bits = (word & 0xffffffff) | UINT64_C(0x4330000000000000); /* 2^52 + low */
    double high, low;
    memcpy(&high, &high_bits, sizeof high);
    memcpy(&low, &low_bits, sizeof low);
    return high - (0x1p84 + 0x1p63 + 0x1p52) + low;
}

static inline void fixed_point_means(const int64_t *sums, size_t n, double divisor,
                                     double *ret_means)
{
    for (size_t i = 0; i < n; i++) {
        ret_means[i] = fixed_point_double_of(sums[i]) * 0x1p-40 / divisor;
    }
}

#define FIXED_POINT_KERNEL                                                                         \
    {                                                                                              \
        .add_float32 = fixed_point_add_float32, .count_faults = fixed_point_count_faults,          \
        .add_codes = fixed_point_add_codes, .add_dithered = fixed_point_add_dithered,              \
        .means = fixed_point_means                                                                 \
    }

#endif
