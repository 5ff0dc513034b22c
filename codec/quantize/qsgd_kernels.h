/* qsgd_kernels: the rounding of tally_qsgd_quantize(), once per instruction set. Internal to codec/
 * and its tests.
 *
 * All kernels give the same levels, bit for bit: they are the same plain C, which the compiler
 * turns into the vector instructions of each set. */
#ifndef TALLY_CODEC_QUANTIZE_QSGD_KERNELS_H
#define TALLY_CODEC_QUANTIZE_QSGD_KERNELS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/numeric/cpu.h"

/* Rounds y[n], |y| scale at most a little above s, to levels[n], which hold the coordinates' random
 * words before. */
typedef void tally_qsgd_kernel(uint32_t s, double scale, const float *y, size_t n, int32_t *levels);

tally_qsgd_kernel tally_qsgd_round_ref, tally_qsgd_round_avx2, tally_qsgd_round_avx512;

/* The kernel for an instruction set that this machine has. */
tally_qsgd_kernel *tally_qsgd_kernel_for(enum tally_cpu cpu);

static inline void tally_qsgd_round(uint32_t s, double scale, const float *y, size_t n,
                                    int32_t *levels)
{
    for (size_t i = 0; i < n; i++) {
        const double scaled = fabs((double)y[i]) * scale;
        const int32_t whole = (int32_t)scaled; /* rounded towards 0 */
        const double uniform = (double)(uint32_t)levels[i] * 0x1p-32;
        int32_t level = whole + (uniform < scaled - (double)whole);
        level = level < (int32_t)s ? level : (int32_t)s; /* the product may round above s */
        levels[i] = y[i] < 0 ? -level : level;
    }
}

#endif
