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
