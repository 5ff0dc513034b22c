/* rans: the states of the coder of long messages, and how they exchange words with the message.
 * Internal to the codec and its tests.
 *
 * The coder is rANS: 64 interleaved range coders of asymmetric numeral systems (Duda 2013;
 * interleaving: Giesen 2014), for messages long enough that their states cost nothing: with the
 * states in vectors, encoding and decoding run at nearly memory speed.
 *
 * Coordinate i of a block belongs to lane i % 64 (in codec/adaptive, a lane has a stretch of the
 * vector). For a state, 2^15 <= state < 2^31. With shares of 2^b, the decoder takes, coordinate
 * after coordinate,
 *
 *     share  = state % 2^b, which lies in some symbol's shares, first .. first + frequency - 1
 *     state' = frequency * (state / 2^b) + share - first
 *     and if state' < 2^15:  state' = 2^16 * state' + the next word of 16 bits, little-endian
 *
 * and the encoder takes the same steps backwards, from the last coordinate to the first. Each step
 * inverts the other's, so a message that decodes and ends in the encoder's first states encodes to
 * the same words again. codec/entropy has b = 12, codec/dithered 14, codec/adaptive 15. */
#ifndef TALLY_CODEC_ENTROPY_RANS_H
#define TALLY_CODEC_ENTROPY_RANS_H

#include <stdbool.h>
#include <stdint.h>

#include "codec/error.h"

enum {
    TALLY_RANS_LANES = 64,
    TALLY_RANS_STATE_BITS = 31,
    TALLY_RANS_LOWEST = 1 << 15,             /* lowest state, and the encoder's first */
    TALLY_RANS_BYTES = 4 * TALLY_RANS_LANES, /* of all states in a message */
};

struct tally_rans_states {
    _Alignas(64) uint32_t lane[TALLY_RANS_LANES];
};

/* The states that an encoder starts with. */
void tally_rans_init(struct tally_rans_states *ret_states);

/* To and from data[TALLY_RANS_BYTES], little-endian. tally_rans_read() errors: MALFORMED (a state
 * out of range). */
void tally_rans_write(const struct tally_rans_states *states, uint8_t *data);
enum tally_status tally_rans_read(const uint8_t *data, struct tally_rans_states *ret_states,
                                  struct tally_error *err);

/* Checks that a decoder, having read everything, is back in the states in which an encoder starts.
 * Errors: MALFORMED. */
enum tally_status tally_rans_check_end(const struct tally_rans_states *states,
                                       struct tally_error *err);

/* To be called before a symbol of this frequency, of 2^total_bits, enters a state: moves the
 * state's low word in front of *end if the new state would not fit. Returns the state. */
static inline uint32_t tally_rans_shrink(uint32_t state, uint32_t frequency, unsigned total_bits,
                                         uint8_t **end)
{
    if (state >> (TALLY_RANS_STATE_BITS - total_bits) < frequency) {
        return state;
    }
    *--*end = (uint8_t)(state >> 8);
    *--*end = (uint8_t)state;
    return state >> 16;
}

/* To be called after a symbol has left a state: takes the next word from *data if the state is
 * below TALLY_RANS_LOWEST. False if `end` comes first. */
static inline bool tally_rans_refill(uint32_t *state, const uint8_t **data, const uint8_t *end)
{
    if (*state >= TALLY_RANS_LOWEST) {
        return true;
    }
    if (end - *data < 2) {
        return false;
    }
    *state = *state << 16 | (*data)[0] | (uint32_t)(*data)[1] << 8;
    *data += 2;
    return true;
}

#endif
