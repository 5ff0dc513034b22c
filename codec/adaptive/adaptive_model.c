#include "codec/adaptive/adaptive_model.h"

/* 2^16 times the probability of level 0, by density and dither: of a Laplace distribution whose
 * share of nonzero levels is about that density. */
const uint16_t TALLY_ADAPTIVE_ZERO[TALLY_ADAPTIVE_DENSITIES][TALLY_ADAPTIVE_DITHERS] = {
    {65408, 65408, 65408, 65408, 65408, 65408, 65408, 65408, 65408, 65408, 65408, 65408, 65408,
     65408, 65408, 65408},
    {65408, 65408, 65408, 65408, 65408, 65408, 65408, 65408, 65408, 65408, 65408, 65408, 65408,
     65408, 65408, 65408},
    {65408, 65408, 65408, 65408, 65408, 65408, 65408, 65408, 65408, 65408, 65408, 65408, 65408,
     65408, 65408, 65408},
    {65408, 65408, 65408, 65408, 65408, 65408, 65408, 65408, 65408, 65408, 65408, 65408, 65408,
     65408, 65408, 63843},
    {65408, 65408, 65408, 65408, 65408, 65408, 65408, 65408, 65408, 65408, 65408, 65408, 65408,
     65408, 65151, 58088},
    {65408, 65408, 65408, 65408, 65408, 65408, 65408, 65408, 65408, 65408, 65408, 65408, 65353,
     64729, 61985, 49914},
    {65408, 65408, 65408, 65408, 65408, 65408, 65408, 65408, 65408, 65270, 64979, 64367, 63084,
     60393, 54749, 42910},
    {65358, 65333, 65281, 65192, 65056, 64854, 64557, 64124, 63495, 62583, 61261, 59346, 56572,
     52554, 46735, 38307},
    {62136, 62019, 61781, 61414, 60905, 60237, 59386, 58324, 57014, 55411, 53460, 51094, 48231,
     44772, 40600, 35570},
    {50624, 50496, 50239, 49851, 49328, 48666, 47859, 46901, 45783, 44495, 43027, 41366, 39497,
     37405, 35072, 32477},
    {34283, 34216, 34082, 33880, 33610, 33273, 32866, 32389, 31840, 31220, 30526, 29757, 28911,
     27987, 26983, 25895},
    {27929, 27883, 27793, 27656, 27475, 27247, 26973, 26652, 26285, 25870, 25408, 24897, 24337,
     23727, 23067, 22356},
};

static void write_raw(struct tally_arith_encoder *encoder, uint32_t bit)
{
    const uint32_t half = 1u << (TALLY_ARITH_BITS - 1);
    tally_arith_encode(encoder, bit * half, half, TALLY_ARITH_BITS);
}

/* Elias gamma code. */
static void write_gamma(struct tally_arith_encoder *encoder, uint32_t value)
{
    const unsigned more = tally_bit_length(value) - 1;
    for (unsigned i = 0; i < more; i++) {
        write_raw(encoder, 0);
    }
    write_raw(encoder, 1);
    for (unsigned i = more; i-- > 0;) {
        write_raw(encoder, value >> i & 1);
    }
}

void tally_adaptive_write_magnitude(struct tally_arith_encoder *encoder,
                                    struct tally_adaptive_decision more[TALLY_ADAPTIVE_UNARY],
                                    uint32_t least, uint32_t magnitude)
{
    uint32_t i = least;
    for (; i <= TALLY_ADAPTIVE_UNARY && i < magnitude; i++) {
        tally_adaptive_write_decision(encoder, &more[i - 1], true);
    }
    if (i <= TALLY_ADAPTIVE_UNARY) {
        tally_adaptive_write_decision(encoder, &more[i - 1], false);
    } else {
        write_gamma(encoder, magnitude - TALLY_ADAPTIVE_UNARY);
    }
}

static bool read_raw(struct tally_arith_decoder *decoder)
{
    return tally_arith_decode_bit(decoder, 1u << (TALLY_ARITH_BITS - 1));
}

/* 0 if it has too many bits. */
static uint32_t read_gamma(struct tally_arith_decoder *decoder)
{
    unsigned more = 0;
    while (!read_raw(decoder)) {
        if (++more >= TALLY_ADAPTIVE_GAMMA_BITS) {
            return 0;
        }
    }
    uint32_t value = 1;
    for (unsigned i = 0; i < more; i++) {
        value = value << 1 | read_raw(decoder);
    }
    return value;
}

uint32_t tally_adaptive_read_magnitude(struct tally_arith_decoder *decoder,
                                       struct tally_adaptive_decision more[TALLY_ADAPTIVE_UNARY],
                                       uint32_t least)
{
    uint32_t magnitude = least;
    while (magnitude <= TALLY_ADAPTIVE_UNARY &&
           tally_adaptive_read_decision(decoder, &more[magnitude - 1])) {
        magnitude++;
    }
    if (magnitude > TALLY_ADAPTIVE_UNARY) {
        const uint32_t rest = read_gamma(decoder);
        magnitude = rest == 0 ? UINT32_MAX : TALLY_ADAPTIVE_UNARY + rest;
    }
    return magnitude;
}
