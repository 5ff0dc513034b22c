/* monotonic: the clock for intervals. It counts from a fixed point and never goes back. The core
 * does not read it: there, time is an argument. */
#ifndef TALLY_CODEC_MONOTONIC_H
#define TALLY_CODEC_MONOTONIC_H

#include <stdint.h>

int64_t tally_monotonic_ms(void);
int64_t tally_monotonic_ns(void);

#endif
