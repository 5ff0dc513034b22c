/* unary: the encoding with |level| + 2 bits a coordinate, 1 for a zero; FORMAT.md section 3. */
#ifndef TALLY_CODEC_UNARY_UNARY_H
#define TALLY_CODEC_UNARY_UNARY_H

#include "codec/quantize/level_encoding.h"

extern const struct tally_encoding TALLY_ENCODING_UNARY;

#endif
