/* dithered_message: what the encoder and the decoder of a whole message share. Internal to
 * codec/dithered and its tests.
 *
 *     | one string of the arithmetic coder (arith.h): level after level |
 *
 * No header: the scale is part of the grid, which both sides know. */
#ifndef TALLY_CODEC_DITHERED_DITHERED_MESSAGE_H
#define TALLY_CODEC_DITHERED_DITHERED_MESSAGE_H

#include "codec/dithered/dithered_model.h"

enum {
    TALLY_DITHERED_RAW_BITS = 16, /* unmodelled bits go through the coder in pieces of this size */
    TALLY_DITHERED_EXCESS_BITS = 21, /* of |high| - reach, at most: |level| <= 2^20 */
};

#endif
