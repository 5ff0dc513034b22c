/* entropy_long_form: `entropy` with the form of a long message (FORMAT.md, section 6.2) at every
 * dim. No encoding of the format, hence not in TALLY_ENCODINGS: many small messages show more of
 * the form than a few of 2^18 coordinates. */
#ifndef TALLY_TESTS_ENTROPY_LONG_FORM_H
#define TALLY_TESTS_ENTROPY_LONG_FORM_H

#include "codec/quantize/level_encoding.h"

extern const struct tally_encoding ENTROPY_LONG_FORM;

#endif
