#include "codec/entropy_kernels.h"
const struct tally_entropy_kernel TALLY_ENTROPY_AVX2 = {0};
