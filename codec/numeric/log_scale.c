#include "codec/numeric/log_scale.h"

#include <math.h>

enum { OCTAVE = TALLY_LOG_SCALE_OCTAVE };

/* 2^(j/16), rounded to the nearest. */
static const double POWER[OCTAVE] = {
    0x1.0000000000000p+0, 0x1.0b5586cf9890fp+0, 0x1.172b83c7d517bp+0, 0x1.2387a6e756238p+0,
    0x1.306fe0a31b715p+0, 0x1.3dea64c123422p+0, 0x1.4bfdad5362a27p+0, 0x1.5ab07dd485429p+0,
    0x1.6a09e667f3bcdp+0, 0x1.7a11473eb0187p+0, 0x1.8ace5422aa0dbp+0, 0x1.9c49182a3f090p+0,
    0x1.ae89f995ad3adp+0, 0x1.c199bdd85529cp+0, 0x1.d5818dcfba487p+0, 0x1.ea4afa2a490dap+0};

/* 2^((2 j + 1) / 32): from this ratio on, 2^((j + 1) / 16) is nearer than 2^(j/16). */
static const double HALF_WAY[OCTAVE] = {
    0x1.059b0d3158574p+0, 0x1.11301d0125b51p+0, 0x1.1d4873168b9aap+0, 0x1.29e9df51fdee1p+0,
    0x1.371a7373aa9cbp+0, 0x1.44e086061892dp+0, 0x1.5342b569d4f82p+0, 0x1.6247eb03a5585p+0,
    0x1.71f75e8ec5f74p+0, 0x1.82589994cce13p+0, 0x1.93737b0cdc5e5p+0, 0x1.a5503b23e255dp+0,
    0x1.b7f76f2fb5e47p+0, 0x1.cb720dcef9069p+0, 0x1.dfc97337b9b5fp+0, 0x1.f50765b6e4540p+0};

int tally_log_scale_index(double value)
{
    int exponent;
    const double fraction = 2 * frexp(value, &exponent); /* exact: value 2^(1 - exponent) */
    int j = 0;
    while (j < OCTAVE && fraction >= HALF_WAY[j]) {
        j++;
    }
    return (exponent - 1) * OCTAVE + j;
}

double tally_log_scale_value(int index)
{
    const int j = (index % OCTAVE + OCTAVE) % OCTAVE;
    return ldexp(POWER[j], (index - j) / OCTAVE);
}
