#include "codec/numeric/fixed_point.h"

#include <math.h>
#include <string.h>

double tally_fixed_point_bound(uint32_t addends)
{
    return 0x1p22 / addends;
}

int64_t tally_fixed_point_of(double v)
{
    return llrint(v * 0x1p40);
}

/* llrint() has no vector form before AVX-512. Below 2^51 a sum with 1.5 * 2^52 does the same:
 * doubles of that size are the integers, so the sum is rounded to one, ties to even, and its bits
 * are those of 1.5 * 2^52 plus that integer. */
static const double SHIFT = 0x1.8p52;
static const double FAST_BOUND = 0x1p10; /* |v|, so that v * 2^40 is below 2^51, with room */

static inline int64_t fast_of(double v)
{
    const double shifted = v * 0x1p40 + SHIFT;
    int64_t bits, origin;
    memcpy(&bits, &shifted, sizeof bits);
    memcpy(&origin, &SHIFT, sizeof origin);
    return bits - origin;
}

void tally_fixed_point_of_floats(const float *values, size_t n, int64_t *addends)
{
    uint32_t n_large = 0;
    for (size_t i = 0; i < n; i++) {
        n_large += fabsf(values[i]) > (float)FAST_BOUND;
    }
    if (n_large == 0) {
        for (size_t i = 0; i < n; i++) {
            addends[i] = fast_of((double)values[i]);
        }
    } else {
        for (size_t i = 0; i < n; i++) {
            addends[i] = tally_fixed_point_of((double)values[i]);
        }
    }
}

void tally_fixed_point_of_doubles(const double *values, size_t n, int64_t *addends)
{
    uint32_t n_large = 0;
    for (size_t i = 0; i < n; i++) {
        n_large += fabs(values[i]) > FAST_BOUND;
    }
    if (n_large == 0) {
        for (size_t i = 0; i < n; i++) {
            addends[i] = fast_of(values[i]);
        }
    } else {
        for (size_t i = 0; i < n; i++) {
            addends[i] = tally_fixed_point_of(values[i]);
        }
    }
}

void tally_fixed_point_of_levels(const int32_t *levels, double scale, size_t n, int64_t *addends)
{
    int32_t top = 0;
    for (size_t i = 0; i < n; i++) {
        const int32_t magnitude = levels[i] < 0 ? -levels[i] : levels[i];
        top = magnitude > top ? magnitude : top;
    }
    if (scale * top <= FAST_BOUND) {
        for (size_t i = 0; i < n; i++) {
            addends[i] = fast_of(scale * levels[i]);
        }
    } else {
        for (size_t i = 0; i < n; i++) {
            addends[i] = tally_fixed_point_of(scale * levels[i]);
        }
    }
}

enum { LOW_BITS = 32 };
static const int64_t LOW_MASK = (INT64_C(1) << LOW_BITS) - 1;

/* floor(a / 2^32), without a shift of a negative number. */
static int64_t high_of(int64_t a)
{
    return (a - (a & LOW_MASK)) / (LOW_MASK + 1);
}

void tally_fixed_point_add_weighted(int64_t sum[2], int64_t addend, uint32_t weight)
{
    const uint64_t low = (uint64_t)(addend & LOW_MASK) * weight + (uint64_t)sum[1];
    sum[0] += high_of(addend) * weight + (int64_t)(low >> LOW_BITS);
    sum[1] = (int64_t)(low & (uint64_t)LOW_MASK);
}

double tally_fixed_point_weighted_value(const int64_t sum[2], uint32_t divisor)
{
    int64_t high = sum[0] / divisor, rest = sum[0] % divisor;
    if (rest < 0) {
        high--;
        rest += divisor;
    }
    const uint64_t low = (((uint64_t)rest << LOW_BITS) + (uint64_t)sum[1]) / divisor;
    return ((double)high * 0x1p32 + (double)low) * 0x1p-40;
}
