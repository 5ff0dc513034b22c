/* adaptive_long_form: `adaptive` with the form of a long message (FORMAT.md, section 7.3) at every
 * dim: many small messages show more of the form than a few of 2^18 coordinates. */
#ifndef TALLY_TESTS_ADAPTIVE_LONG_FORM_H
#define TALLY_TESTS_ADAPTIVE_LONG_FORM_H

#include <stdbool.h>

#include "codec/adaptive/adaptive.h"

/* As tally_adaptive_decode(). */
enum tally_status adaptive_long_decode(const uint8_t *data, size_t n_bytes, uint64_t payload_bits,
                                       size_t dim, const struct tally_rng *dither, int32_t *levels,
                                       struct tally_level_stats *ret_stats,
                                       struct tally_error *err);

/* Whether a message that is added while it is read gives the status and the sums of one that is
 * added afterwards, and leaves the sums alone if it is refused. */
bool adaptive_long_adds_alike(const uint8_t *data, size_t n_bytes, uint64_t payload_bits,
                              size_t dim, const struct tally_rng *dither);

#endif
