/* gcd: the greatest common divisor. */
#ifndef TALLY_CODEC_NUMERIC_GCD_H
#define TALLY_CODEC_NUMERIC_GCD_H

#include <stdint.h>

/* gcd(0, n) = n. */
static inline uint32_t tally_gcd(uint32_t a, uint32_t b)
{
    while (b != 0) {
        const uint32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

#endif
