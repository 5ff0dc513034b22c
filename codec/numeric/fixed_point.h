/* fixed_point: real vectors added up exactly, in any order.
 *
 * A value becomes round(v * 2^40), an int64; sums of those are associative, so neither the order of
 * arrival nor the number of adders shows in the result. The rounding error, at most 2^-41, is below
 * float32's own for |v| >= 2^-17. The sum of M addends must stay below 2^62, hence the bound on
 * |v|.
 *
 * A weighted sum has addends n * round(v * 2^40) with integer weights n, for the same |v|. It is
 * kept in two words, high * 2^32 + low with 0 <= low < 2^32. No word overflows: M <= 2^28 addends
 * of weights up to 2^31 add at most 2^31 (2^62 / M / 2^32 + 1) M = 2^61 + 2^31 M to `high`, and
 * carries of at most 2^31 + 1 each. */
#ifndef TALLY_CODEC_NUMERIC_FIXED_POINT_H
#define TALLY_CODEC_NUMERIC_FIXED_POINT_H

#include <stddef.h>
#include <stdint.h>

/* Largest |v| such that `addends` values can be added: 2^22 / addends. */
double tally_fixed_point_bound(uint32_t addends);

/* Requires |v| within the bound of the sum. */
int64_t tally_fixed_point_of(double v);
static inline double tally_fixed_point_value(int64_t sum)
{
    return (double)sum * 0x1p-40;
}

/* addends[i] <- tally_fixed_point_of(values[i]) for i < n, and of scale * levels[i] in the second;
 * in vector instructions where the values allow them, as those of gradients do. */
void tally_fixed_point_of_floats(const float *values, size_t n, int64_t *addends);
void tally_fixed_point_of_levels(const int32_t *levels, double scale, size_t n, int64_t *addends);

/* What follows adds whole messages to sums, without vectors between. Values must be within the
 * bound of the sums, unless stated otherwise. */

/* sums[i] += the value of the i-th of n little-endian float32 values, which may lie anywhere.
 * Returns n; or less, with the sums as they were, if a value is NaN or its magnitude is above
 * `bound`, that of the sums. */
size_t tally_fixed_point_add_float32(const uint8_t *data, size_t n, double bound, int64_t *sums);

/* Codes of `width` bits, from 2 to 8: the lowest is the sign, the others are the magnitude. n is a
 * multiple of 8, and 8 bytes can be read at every eighth code. */
/* The number of codes whose magnitude is above `top`, or that are a negative zero. */
size_t tally_fixed_point_count_faults(const uint8_t *data, size_t n, unsigned width, int32_t top);
/* sums[i] += scale * the i-th level. */
void tally_fixed_point_add_codes(const uint8_t *data, size_t n, unsigned width, double scale,
                                 int64_t *sums);

/* sums[i] += v_i = step * (levels[i] - dithers[i] / 2^32). Adds v_i^2 to squares[i mod 8], but to
 * squares[0] if fewer than 8 values are left of a block of 256. */
enum { TALLY_FIXED_POINT_LANES = 8 };
void tally_fixed_point_add_dithered(const int32_t *levels, const int32_t *dithers, size_t n,
                                    double step, int64_t *sums,
                                    double squares[TALLY_FIXED_POINT_LANES]);

/* ret_means[i] <- tally_fixed_point_value(sums[i]) / divisor. */
void tally_fixed_point_means(const int64_t *sums, size_t n, double divisor, double *ret_means);

/* sum += weight * addend, an addend of tally_fixed_point_of(); weight <= 2^31. */
void tally_fixed_point_add_weighted(int64_t sum[2], int64_t addend, uint32_t weight);
/* sum / divisor, rounded once. The divisor is at least 1 and divides the sum. If the quotient
 * equals an unweighted sum, the result equals tally_fixed_point_value() of that sum. */
double tally_fixed_point_weighted_value(const int64_t sum[2], uint32_t divisor);

#endif
