/* quantizer_kernels: the inner loop of tally_quantize(), once per instruction set. Internal to
 * codec/, its tests and its benchmark.
 *
 * All kernels give the same levels, bit for bit: the arithmetic is float32 without contraction, and
 * the random words are those of tally_rng_lanes(), which the vector forms compute in registers. */
#ifndef TALLY_CODEC_QUANTIZE_QUANTIZER_KERNELS_H
#define TALLY_CODEC_QUANTIZE_QUANTIZER_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "codec/numeric/cpu.h"
#include "codec/numeric/rng.h"
#include "codec/quantize/quantizer.h"

/* A grid, prepared for the kernels. */
struct tally_rounding {
    float inverse_step;
    float radius;
    int32_t top; /* p/2 */
};
struct tally_rounding tally_rounding_of(const struct tally_grid *grid);

/* Rounds y[n] to levels[n] with the random words of groups `group`, `group` + 1, ... and adds the
 * clipped coordinates to *clipped. Returns n, or the index of the first coordinate that is not
 * finite; levels and *clipped are unspecified then. */
typedef size_t tally_quantize_kernel(const struct tally_rounding *rounding,
                                     const struct tally_rng *rng, uint32_t group, const float *y,
                                     size_t n, int32_t *levels, uint64_t *clipped);

tally_quantize_kernel tally_quantize_ref, tally_quantize_avx2, tally_quantize_avx512;

/* Fails with NOT_FINITE, naming coordinate i of dim. */
enum tally_status tally_quantize_refuse(const float *y, size_t i, size_t dim,
                                        struct tally_error *err);

/* The kernel for an instruction set that this machine has. */
tally_quantize_kernel *tally_quantize_kernel_for(enum tally_cpu cpu);

#endif
