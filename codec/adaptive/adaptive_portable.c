#include "codec/adaptive/adaptive_loops.h"

const struct tally_adaptive_kernel TALLY_ADAPTIVE_PORTABLE = PLAIN_KERNEL;
