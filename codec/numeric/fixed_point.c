#include "codec/numeric/fixed_point.h"

#include <math.h>

#include "codec/numeric/fixed_point_loops.h"

double tally_fixed_point_bound(uint32_t addends)
{
    return 0x1p22 / addends;
}

int64_t tally_fixed_point_of(double v)
{
    return llrint(v * 0x1p40);
}

void tally_fixed_point_of_floats(const float *values, size_t n, int64_t *addends)
{
    uint32_t n_large = 0;
    for (size_t i = 0; i < n; i++) {
        n_large += fabsf(values[i]) > (float)FIXED_POINT_FAST_BOUND;
    }
    if (n_large == 0) {
        for (size_t i = 0; i < n; i++) {
            addends[i] = fixed_point_fast_of((double)values[i]);
        }
    } else {
        for (size_t i = 0; i < n; i++) {
            addends[i] = tally_fixed_point_of((double)values[i]);
        }
    }
}

void tally_fixed_point_of_levels(const int32_t *levels, double scale, size_t n, int64_t *addends)
{
    int32_t top = 0;
    for (size_t i = 0; i < n; i++) {
        const int32_t magnitude = levels[i] < 0 ? -levels[i] : levels[i];
        top = magnitude > top ? magnitude : top;
    }
    if (scale * top <= FIXED_POINT_FAST_BOUND) {
        for (size_t i = 0; i < n; i++) {
            addends[i] = fixed_point_fast_of(scale * levels[i]);
        }
    } else {
        for (size_t i = 0; i < n; i++) {
            addends[i] = tally_fixed_point_of(scale * levels[i]);
        }
    }
}

const struct tally_fixed_point_kernel TALLY_FIXED_POINT_PORTABLE = FIXED_POINT_KERNEL;

const struct tally_fixed_point_kernel *tally_fixed_point_kernel_for(enum tally_cpu cpu)
{
    static const struct tally_fixed_point_kernel *const kernels[TALLY_N_CPUS] = {
        [TALLY_CPU_PORTABLE] = &TALLY_FIXED_POINT_PORTABLE,
#ifdef TALLY_X86_64
        [TALLY_CPU_AVX2] = &TALLY_FIXED_POINT_AVX2,
        [TALLY_CPU_AVX512] = &TALLY_FIXED_POINT_AVX512,
#endif
    };
    return kernels[cpu];
}

size_t tally_fixed_point_add_float32(const uint8_t *data, size_t n, double bound, int64_t *sums)
{
    return tally_fixed_point_kernel_for(tally_cpu_used())->add_float32(data, n, bound, sums);
}

size_t tally_fixed_point_count_faults(const uint8_t *data, size_t n, unsigned width, int32_t top)
{
    return tally_fixed_point_kernel_for(tally_cpu_used())->count_faults(data, n, width, top);
}

void tally_fixed_point_add_codes(const uint8_t *data, size_t n, unsigned width, double scale,
                                 int64_t *sums)
{
    tally_fixed_point_kernel_for(tally_cpu_used())->add_codes(data, n, width, scale, sums);
}

void tally_fixed_point_add_dithered(const int32_t *levels, const int32_t *dithers, size_t n,
                                    double step, int64_t *sums,
                                    double squares[TALLY_FIXED_POINT_LANES])
{
    tally_fixed_point_kernel_for(tally_cpu_used())
        ->add_dithered(levels, dithers, n, step, sums, squares);
}

void tally_fixed_point_means(const int64_t *sums, size_t n, double divisor, double *ret_means)
{
    tally_fixed_point_kernel_for(tally_cpu_used())->means(sums, n, divisor, ret_means);
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
