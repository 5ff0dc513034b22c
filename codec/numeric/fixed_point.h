/* fixed_point: real vectors added up exactly, in any order.
 *
 * A value becomes round(v * 2^40), an int64; sums of those are associative, so neither the order of
 * arrival nor the number of adders shows in the result. The rounding, at most 2^-41, lies below
 * float32's own for |v| >= 2^-17. M addends must stay below 2^62, hence the bound on |v|. */
#ifndef TALLY_CODEC_NUMERIC_FIXED_POINT_H
#define TALLY_CODEC_NUMERIC_FIXED_POINT_H

#include <stdbool.h>
#include <stdint.h>

/* Largest |v| of which `addends` can be added: 2^22 / addends. */
double tally_fixed_point_bound(uint32_t addends);

/* Requires |v| within the bound of the sum. */
int64_t tally_fixed_point_of(double v);
double tally_fixed_point_value(int64_t sum);

#endif
