/* wide_sum: a sum of doubles whose mean is finite whenever the terms are, although it may itself
 * overflow. */
#ifndef TALLY_CODEC_NUMERIC_WIDE_SUM_H
#define TALLY_CODEC_NUMERIC_WIDE_SUM_H

#include <float.h>
#include <math.h>

/* Times this, terms whose weights sum to at most 2^63 have a finite sum. */
#define TALLY_WIDE_SUM_SCALE 0x1p-64

struct tally_wide_sum {
    double plain;
    double scaled; /* the same, times the scale: used only if `plain` has overflowed */
};

static inline void tally_wide_sum_add(struct tally_wide_sum *sum, double weight, double term)
{
    sum->plain += weight * term;
    sum->scaled += weight * (TALLY_WIDE_SUM_SCALE * term);
}

/* The sum divided by n, the sum of the weights. */
static inline double tally_wide_sum_mean(const struct tally_wide_sum *sum, double n)
{
    if (isfinite(sum->plain) || !isfinite(sum->scaled)) {
        return sum->plain / n;
    }
    const double mean = sum->scaled / n / TALLY_WIDE_SUM_SCALE;
    return fmin(fmax(mean, -DBL_MAX), DBL_MAX); /* rounding may have led beyond them */
}

#endif
