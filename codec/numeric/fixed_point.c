#include "codec/numeric/fixed_point.h"

#include <math.h>

double tally_fixed_point_bound(uint32_t addends)
{
    return 0x1p22 / addends;
}

int64_t tally_fixed_point_of(double v)
{
    return llrint(v * 0x1p40);
}

double tally_fixed_point_value(int64_t sum)
{
    return (double)sum * 0x1p-40;
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
