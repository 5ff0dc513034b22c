#include "codec/entropy/arith.h"

static const uint64_t WINDOW = UINT64_C(1) << 63;
static const uint64_t NARROW = UINT64_C(1) << TALLY_ARITH_NARROW_BITS;
static const uint32_t ONES = UINT32_MAX;

/* The string is written highest bit first, but tally_bit_write() writes lowest first. */
static uint32_t reversed(uint32_t word)
{
    word = (word >> 1 & 0x55555555) | (word & 0x55555555) << 1;
    word = (word >> 2 & 0x33333333) | (word & 0x33333333) << 2;
    word = (word >> 4 & 0x0f0f0f0f) | (word & 0x0f0f0f0f) << 4;
    return __builtin_bswap32(word);
}

/* The smallest n for which some string of n bits of the window and all its continuations lie in
 * [low, low + range), and how far above low the first such string is. low modulo 2^63 is enough. */
static unsigned shortest(uint64_t low, uint64_t range, uint64_t *ret_above)
{
    for (unsigned n = 0;; n++) { /* ends at n <= 33, because range >= NARROW */
        uint64_t cell = WINDOW >> n;
        uint64_t above = (0 - low) & (cell - 1);
        if (above <= range && range - above >= cell) {
            *ret_above = above;
            return n;
        }
    }
}

void tally_arith_encoder_init(struct tally_arith_encoder *encoder, struct tally_bit_writer *writer)
{
    *encoder = (struct tally_arith_encoder){.writer = writer, .range = WINDOW};
}

static void write_held(struct tally_arith_encoder *encoder)
{
    if (encoder->has_word) {
        tally_bit_write(encoder->writer, reversed(encoder->word), 32);
    }
    for (; encoder->ones > 0; encoder->ones--) {
        tally_bit_write(encoder->writer, ONES, 32);
    }
}

/* Adds 1 to the words before the window. The carry cannot reach a word already written: a word that
 * is not all ones follows those and absorbs it. */
static void carry(struct tally_arith_encoder *encoder)
{
    encoder->word++;
    if (encoder->ones > 0) {
        tally_bit_write(encoder->writer, reversed(encoder->word), 32);
        for (; encoder->ones > 1; encoder->ones--) {
            tally_bit_write(encoder->writer, 0, 32);
        }
        encoder->word = 0;
        encoder->ones = 0;
    }
}

static void raise(struct tally_arith_encoder *encoder, uint64_t amount)
{
    encoder->low += amount;
    if (encoder->low >= WINDOW) {
        encoder->low -= WINDOW;
        carry(encoder);
    }
}

void tally_arith_encode(struct tally_arith_encoder *encoder, uint32_t first, uint32_t width,
                        unsigned bits)
{
    const uint64_t share = encoder->range >> bits;
    raise(encoder, share * first);
    encoder->range = share * width;
    tally_arith_widen(encoder);
}

void tally_arith_widen(struct tally_arith_encoder *encoder)
{
    if (encoder->range < NARROW) {
        const uint32_t word = (uint32_t)(encoder->low >> 31);
        encoder->low = (encoder->low & (NARROW - 1)) << 32;
        encoder->range <<= 32;
        if (word == ONES && encoder->has_word) {
            encoder->ones++;
        } else {
            write_held(encoder);
            encoder->word = word;
            encoder->has_word = true;
        }
    }
}

void tally_arith_encoder_finish(struct tally_arith_encoder *encoder)
{
    uint64_t above;
    const unsigned n = shortest(encoder->low, encoder->range, &above);
    raise(encoder, above);
    write_held(encoder);
    for (unsigned i = 1; i <= n; i++) {
        tally_bit_write(encoder->writer, encoder->low >> (63 - i) & 1, 1);
    }
}

/* The next n <= 32 bits of the string as an integer; zeros beyond its end. */
static uint64_t next(struct tally_bit_reader *reader, unsigned n)
{
    const uint64_t left = reader->n_bits - tally_bit_reader_tell(reader);
    const unsigned there = left < n ? (unsigned)left : n;
    return reversed((uint32_t)tally_bit_read(reader, there)) >> (32 - n);
}

void tally_arith_decoder_init(struct tally_arith_decoder *decoder, struct tally_bit_reader *reader)
{
    uint64_t code = next(reader, 32) << 31;
    code |= next(reader, 31);
    *decoder = (struct tally_arith_decoder){
        .reader = reader, .code = code, .above = code, .range = WINDOW};
}

uint32_t tally_arith_decode(struct tally_arith_decoder *decoder, unsigned bits)
{
    decoder->share = decoder->range >> bits;
    const uint64_t share = decoder->above / decoder->share, last = (UINT64_C(1) << bits) - 1;
    decoder->astray = decoder->astray || share > last;
    return (uint32_t)(share < last ? share : last);
}

void tally_arith_narrow(struct tally_arith_decoder *decoder, uint32_t first, uint32_t width)
{
    decoder->above -= decoder->share * first;
    decoder->range = decoder->share * width;
    tally_arith_refill(decoder);
}

void tally_arith_refill(struct tally_arith_decoder *decoder)
{
    if (decoder->range < NARROW) {
        const uint64_t word = next(decoder->reader, 32);
        decoder->code = (decoder->code << 32 | word) & (WINDOW - 1);
        decoder->above = decoder->above << 32 | word;
        decoder->range <<= 32;
        decoder->n_before += 32;
    }
}

uint64_t tally_arith_decoder_finish(const struct tally_arith_decoder *decoder, bool *ret_is_exact)
{
    uint64_t above;
    const unsigned n = shortest(decoder->code - decoder->above, decoder->range, &above);
    *ret_is_exact = decoder->above == above && !decoder->astray;
    return decoder->n_before + n;
}
