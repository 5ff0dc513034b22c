/* arith: an arithmetic coder that is exact to the bit (Rissanen and Langdon 1979; Moffat, Neal,
 * Witten 1998), for messages too short to waste a byte.
 *
 * Idea: a message is an interval [low, low + range) of [0, 1); each symbol narrows it to its share.
 * The coder writes the shortest string of bits b1 b2 ... bn, read as the binary fraction
 * 0.b1b2...bn, all of whose continuations lie in the interval: at most 2 bits more than
 * -log2(range). No string is a prefix of another, so the decoder finds the end by itself.
 *
 * Example, with shares of quarters: A has 0..2, B has 3. "A B" narrows [0, 1) to [0, 3/4) and then
 * to its last quarter, [9/16, 12/16). The shortest string whose continuations all lie in it is 101:
 * its continuations are [10/16, 12/16). -log2(3/16) = 2.4 bits, written as 3.
 *
 *     0                    9/16     12/16           1
 *     |--------- A ----------------|------ B -------|
 *     |---- A A -----------| A B  |
 *                            101
 *
 * The window is 63 bits wide and moves by 32, so that each of 2^b shares is at least 2^(31 - b)
 * units wide: for b = 12, rounding it down costs less than 2^-18 bits a symbol. */
#ifndef TALLY_CODEC_ENTROPY_ARITH_H
#define TALLY_CODEC_ENTROPY_ARITH_H

#include <stdbool.h>
#include <stdint.h>

#include "codec/numeric/bits.h"

enum { TALLY_ARITH_BITS = 16 }; /* the widest division: 2^16 shares */

struct tally_arith_encoder {
    struct tally_bit_writer *writer; /* the caller's; the code begins at its next bit */
    uint64_t low, range;             /* in 2^-63 of the window */
    uint64_t ones; /* words of 32 ones after `word`, which a carry would turn to zeros */
    uint32_t word; /* the last word before them; a carry may still add 1 */
    bool has_word;
};

void tally_arith_encoder_init(struct tally_arith_encoder *encoder, struct tally_bit_writer *writer);
/* Narrows the interval to the shares first .. first + width - 1 of 2^bits; bits <=
 * TALLY_ARITH_BITS, width > 0. */
void tally_arith_encode(struct tally_arith_encoder *encoder, uint32_t first, uint32_t width,
                        unsigned bits);
/* Moves the window if the range is narrow, for a caller that narrows it to its first shares. */
void tally_arith_widen(struct tally_arith_encoder *encoder);
/* Writes the end of the string. The caller finishes the writer. */
void tally_arith_encoder_finish(struct tally_arith_encoder *encoder);

struct tally_arith_decoder {
    struct tally_bit_reader *reader; /* the caller's; read as zeros past its end */
    uint64_t code;                   /* the window of the string, modulo 2^63 */
    uint64_t above, range;           /* string - low, and the interval's width */
    uint64_t share;    /* width of one of 2^bits shares, between _decode() and _narrow() */
    uint64_t n_before; /* bits of the string before the window */
    bool astray; /* the string lies in no share, but in what rounding left at the end of a range */
};

void tally_arith_decoder_init(struct tally_arith_decoder *decoder, struct tally_bit_reader *reader);
/* Returns which of 2^bits shares the string lies in, the last one if it is astray. Call _narrow()
 * with the symbol's shares next. */
uint32_t tally_arith_decode(struct tally_arith_decoder *decoder, unsigned bits);
void tally_arith_narrow(struct tally_arith_decoder *decoder, uint32_t first, uint32_t width);
/* _decode() and _narrow() of one of two symbols, without a division: the first has `width` shares
 * of 2^TALLY_ARITH_BITS, the second the others. Whether it is the second. */
static inline bool tally_arith_decode_bit(struct tally_arith_decoder *decoder, uint32_t width);
/* Returns the length in bits of the string that an encoder writes for these symbols. *ret_is_exact:
 * whether the string that was read, followed by zeros, is that one. */
uint64_t tally_arith_decoder_finish(const struct tally_arith_decoder *decoder, bool *ret_is_exact);

/* Moves the window if the range is narrow. */
void tally_arith_refill(struct tally_arith_decoder *decoder);
enum { TALLY_ARITH_NARROW_BITS = 31 }; /* a range below 2^31 moves the window */

static inline bool tally_arith_decode_bit(struct tally_arith_decoder *decoder, uint32_t width)
{
    const uint64_t share = decoder->range >> TALLY_ARITH_BITS, first = share * width;
    const uint64_t rest = share * ((1u << TALLY_ARITH_BITS) - width);
    const bool is_second = decoder->above >= first;
    decoder->above -= is_second ? first : 0;
    decoder->range = is_second ? rest : first;
    decoder->astray = decoder->astray || decoder->above >= decoder->range;
    if (decoder->range >> TALLY_ARITH_NARROW_BITS == 0) {
        tally_arith_refill(decoder);
    }
    return is_second;
}

#endif
