/* entropy: the encoding close to the entropy of the levels; FORMAT.md section 6. */
#ifndef TALLY_CODEC_ENTROPY_ENTROPY_H
#define TALLY_CODEC_ENTROPY_ENTROPY_H

#include "codec/quantize/level_encoding.h"

extern const struct tally_encoding TALLY_ENCODING_ENTROPY;

#endif
