/* unary: an encoding in |level| + 2 bits per coordinate, 1 for a zero; FORMAT.md section 3. */
#ifndef TALLY_CODEC_UNARY_UNARY_H
#define TALLY_CODEC_UNARY_UNARY_H

#include "codec/quantize/level_encoding.h"

extern const struct tally_encoding TALLY_ENCODING_UNARY;

#endif
