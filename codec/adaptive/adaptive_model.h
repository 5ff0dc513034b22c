/* adaptive_model: the decisions from which `adaptive` learns, and the code of a magnitude. Internal
 * to codec/adaptive. */
#ifndef TALLY_CODEC_ADAPTIVE_ADAPTIVE_MODEL_H
#define TALLY_CODEC_ADAPTIVE_ADAPTIVE_MODEL_H

#include "codec/adaptive/adaptive.h"
#include "codec/entropy/arith.h"
#include "codec/numeric/bits.h"

enum {
    TALLY_ADAPTIVE_DENSITIES = 12,
    TALLY_ADAPTIVE_DITHERS = 16,          /* classes of |u|; the first without dither */
    TALLY_ADAPTIVE_LOWEST_DENSITY = 4,    /* bits of the density in the first class, at most */
    TALLY_ADAPTIVE_DENSITY_ONE = 1 << 14, /* of a coordinate whose level is 1 or -1 */
    TALLY_ADAPTIVE_DENSITY_START = 1 << 10,
    TALLY_ADAPTIVE_DENSITY_RATE = 5, /* the mean is over about 2^5 coordinates */
    TALLY_ADAPTIVE_UNARY = 14,       /* magnitudes up to here are coded by single decisions */
    TALLY_ADAPTIVE_GAMMA_BITS = 21,  /* of a magnitude beyond */
    TALLY_ADAPTIVE_EXTRA_BITS = 6,   /* of a probability, beyond those of a share */
    TALLY_ADAPTIVE_ONE = 1 << (TALLY_ARITH_BITS + TALLY_ADAPTIVE_EXTRA_BITS),
    TALLY_ADAPTIVE_LEAST = 2 << TALLY_ADAPTIVE_EXTRA_BITS, /* the least probability */
    TALLY_ADAPTIVE_PRIOR_COUNT = 6,     /* decisions that an initial probability stands for */
    TALLY_ADAPTIVE_SETTLED_COUNT = 126, /* from here on a decision weighs 2^-7 */
    TALLY_ADAPTIVE_SETTLED_RATE = 7,
    TALLY_ADAPTIVE_MOST_DECISION_BITS = TALLY_ARITH_BITS + 1, /* that a decision takes */
};

/* 2^16 times the probability of level 0, by density and dither: of a Laplace distribution whose
 * share of nonzero levels is about that density. */
extern const uint16_t TALLY_ADAPTIVE_ZERO[TALLY_ADAPTIVE_DENSITIES][TALLY_ADAPTIVE_DITHERS];

/* A yes or no, and how often it was which. */
struct tally_adaptive_decision {
    uint32_t zero;  /* probability of a no, LEAST .. ONE - LEAST */
    uint32_t count; /* decisions that it rests on */
};

/* A decision about which nothing is known. */
static const struct tally_adaptive_decision TALLY_ADAPTIVE_EVEN = {TALLY_ADAPTIVE_ONE / 2, 2};

static inline uint32_t tally_adaptive_share(const struct tally_adaptive_decision *decision)
{
    return decision->zero >> TALLY_ADAPTIVE_EXTRA_BITS;
}

static inline void tally_adaptive_learn(struct tally_adaptive_decision *decision, bool yes)
{
    const int32_t target = yes ? TALLY_ADAPTIVE_LEAST : TALLY_ADAPTIVE_ONE - TALLY_ADAPTIVE_LEAST;
    const int32_t change = target - (int32_t)decision->zero;
    if (decision->count < TALLY_ADAPTIVE_SETTLED_COUNT) {
        decision->count++;
        decision->zero = (uint32_t)((int32_t)decision->zero + change / (int32_t)decision->count);
    } else {
        decision->zero =
            (uint32_t)((int32_t)decision->zero + (change >> TALLY_ADAPTIVE_SETTLED_RATE));
    }
}

static inline unsigned tally_adaptive_density_class(int32_t density)
{
    const uint32_t least = 1 << (TALLY_ADAPTIVE_LOWEST_DENSITY - 1); /* at least so many bits */
    return tally_bit_length((uint32_t)density | least) - TALLY_ADAPTIVE_LOWEST_DENSITY;
}

static inline unsigned tally_adaptive_dither_class(int32_t dither)
{
    return (uint32_t)(dither ^ dither >> 31) >> 27;
}

/* The value of a level, |level| < 2^15, in the units of struct tally_adaptive_units. */
static inline int32_t tally_adaptive_value(int32_t level, int32_t dither)
{
    return level * (1 << TALLY_ADAPTIVE_UNIT_BITS) - (dither >> (32 - TALLY_ADAPTIVE_UNIT_BITS));
}

/* Writes or reads a decision and learns it. */
static inline void tally_adaptive_write_decision(struct tally_arith_encoder *encoder,
                                                 struct tally_adaptive_decision *decision, bool yes)
{
    const uint32_t zero = tally_adaptive_share(decision);
    if (yes) {
        tally_arith_encode(encoder, zero, (1u << TALLY_ARITH_BITS) - zero, TALLY_ARITH_BITS);
    } else {
        tally_arith_encode(encoder, 0, zero, TALLY_ARITH_BITS);
    }
    tally_adaptive_learn(decision, yes);
}

static inline bool tally_adaptive_read_decision(struct tally_arith_decoder *decoder,
                                                struct tally_adaptive_decision *decision)
{
    const bool yes = tally_arith_decode_bit(decoder, tally_adaptive_share(decision));
    tally_adaptive_learn(decision, yes);
    return yes;
}

/* The magnitude of a level that is known to be at least `least`, 1 or 2: whether it is above
 * `least`, above least + 1 and so on up to 14, by more[14], and an Elias gamma code beyond. Reading
 * returns UINT32_MAX for a code with too many bits. */
void tally_adaptive_write_magnitude(struct tally_arith_encoder *encoder,
                                    struct tally_adaptive_decision more[TALLY_ADAPTIVE_UNARY],
                                    uint32_t least, uint32_t magnitude);
uint32_t tally_adaptive_read_magnitude(struct tally_arith_decoder *decoder,
                                       struct tally_adaptive_decision more[TALLY_ADAPTIVE_UNARY],
                                       uint32_t least);

#endif
