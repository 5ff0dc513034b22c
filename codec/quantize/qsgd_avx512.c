#include "codec/quantize/qsgd_kernels.h"

void tally_qsgd_round_avx512(uint32_t s, double scale, const float *y, size_t n, int32_t *levels)
{
    tally_qsgd_round(s, scale, y, n, levels);
}
