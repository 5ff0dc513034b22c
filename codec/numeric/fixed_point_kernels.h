/* fixed_point_kernels: the loops over fixed-point sums, once per instruction set.
 * Internal to codec/ and its tests.
 *
 * All kernels give equal sums, bit for bit: they are the same plain C (fixed_point_loops.h), which
 * the compiler turns into the vector instructions of each set. */
#ifndef TALLY_CODEC_NUMERIC_FIXED_POINT_KERNELS_H
#define TALLY_CODEC_NUMERIC_FIXED_POINT_KERNELS_H

#include "codec/numeric/cpu.h"
#include "codec/numeric/fixed_point.h"

struct tally_fixed_point_kernel {
    /* tally_fixed_point_add_float32(). */
    size_t (*add_float32)(const uint8_t *data, size_t n, double bound, int64_t *sums);
    /* tally_fixed_point_count_faults() and tally_fixed_point_add_codes(). */
    size_t (*count_faults)(const uint8_t *data, size_t n, unsigned width, int32_t top);
    void (*add_codes)(const uint8_t *data, size_t n, unsigned width, double scale, int64_t *sums);
    /* tally_fixed_point_add_dithered(). */
    void (*add_dithered)(const int32_t *levels, const int32_t *dithers, size_t n, double step,
                         int64_t *sums, double squares[TALLY_FIXED_POINT_LANES]);
    /* tally_fixed_point_means(). */
    void (*means)(const int64_t *sums, size_t n, double divisor, double *ret_means);
};

extern const struct tally_fixed_point_kernel TALLY_FIXED_POINT_PORTABLE, TALLY_FIXED_POINT_AVX2,
    TALLY_FIXED_POINT_AVX512;

/* The kernel for an instruction set that this machine has. */
const struct tally_fixed_point_kernel *tally_fixed_point_kernel_for(enum tally_cpu cpu);

#endif
