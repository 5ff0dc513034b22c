#include "codec/numeric/fixed_point_loops.h"

const struct tally_fixed_point_kernel TALLY_FIXED_POINT_AVX2 = FIXED_POINT_KERNEL;
