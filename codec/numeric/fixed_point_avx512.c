#include "codec/numeric/fixed_point_loops.h"

const struct tally_fixed_point_kernel TALLY_FIXED_POINT_AVX512 = FIXED_POINT_KERNEL;
