#include "codec/entropy/entropy_model.h"

#include <assert.h>
#include <stdlib.h>

#include "codec/numeric/bits.h"

enum {
    PRIORS = 15,
    WIDEST = PRIORS - 2, /* scales from PRIORS on alternate between the last two priors */
    SAMPLE_UNIT = 4096,  /* of the means in FROM */
    COUNT_WEIGHT = 256,  /* one counted level weighs 1/128 of a prior, which sums to about 2^15 */
    TAIL_WEIGHT = 2,     /* of every symbol in a prior, however improbable */
};

/* Weights of 0 and of each of +-1 .. +-10 under each prior: 2^15 times the probability that a
 * normal variable, stochastically rounded, gives this level. Its standard deviations in steps are
 * 2^-11, 2^-9, 2^-7, 2^-5.5, 2^-4, .12, .2, .3, .42, .6, .85, 1.2, 1.7, 2.4, 3.4: half octaves
 * where it matters. */
static const uint16_t PRIOR[PRIORS][TALLY_ENTROPY_DIRECT + 1] = {
    {32755, 6},
    {32717, 26},
    {32564, 102},
    {32190, 289},
    {31134, 817},
    {29631, 1569},
    {27539, 2615},
    {24927, 3920, 1},
    {21866, 5411, 40},
    {17861, 7066, 385, 2},
    {13824, 7920, 1467, 84, 1},
    {10305, 7556, 2975, 626, 70, 4},
    {7475, 6348, 3888, 1716, 546, 125, 21, 2},
    {5369, 4935, 3832, 2513, 1392, 652, 258, 86, 24, 6, 1},
    {3817, 3658, 3219, 2601, 1930, 1315, 823, 473, 249, 121, 54},
};

/* The smallest mean bit length of |level|, times 4096, for scales 0 .. 15: that of the normal
 * variable half-way to the scale below. Above 15, a scale is half an octave. */
static const uint16_t FROM[PRIORS + 1] = {0,    3,    13,   43,   121,  283,  506,  801,
                                          1160, 1641, 2329, 3230, 4306, 5551, 6942, 8456};
static const unsigned FROM_STEP = 1920;

struct tally_entropy_sample tally_entropy_sample(size_t dim)
{
    assert(dim > 0);
    return (struct tally_entropy_sample){.stride = (dim + TALLY_ENTROPY_SAMPLE - 1) /
                                                   TALLY_ENTROPY_SAMPLE};
}

void tally_entropy_sample_add(struct tally_entropy_sample *sample, size_t first,
                              const int32_t *levels, size_t n)
{
    const size_t past = first % sample->stride;
    for (size_t i = past == 0 ? 0 : sample->stride - past; i < n; i += sample->stride) {
        sample->sum += tally_bit_length(tally_magnitude(levels[i]));
        sample->n++;
    }
}

unsigned tally_entropy_sample_scale(const struct tally_entropy_sample *sample)
{
    const uint64_t sum = sample->sum * SAMPLE_UNIT;
    unsigned scale = 0;
    while (scale < PRIORS && sum >= sample->n * FROM[scale + 1]) {
        scale++;
    }
    if (scale == PRIORS) {
        scale += (unsigned)((sum / sample->n - FROM[PRIORS]) / FROM_STEP);
    }
    return scale < TALLY_ENTROPY_SCALES ? scale : TALLY_ENTROPY_SCALES - 1;
}

unsigned tally_entropy_shift(unsigned scale)
{
    return scale < PRIORS ? 0 : 1 + (scale - PRIORS) / 2;
}

static const uint16_t *prior_of(unsigned scale)
{
    return PRIOR[scale < PRIORS ? scale : WIDEST + (scale - PRIORS) % 2];
}

/* Class c holds 4^(c + 2) magnitudes, from 11 + 16 (4^c - 1) / 3 on. */
static unsigned class_bits(unsigned class)
{
    return 4 + 2 * class;
}

static unsigned class_first(unsigned class)
{
    return TALLY_ENTROPY_DIRECT + 1 + 16 * (((1u << 2 * class) - 1) / 3);
}

static unsigned class_of(unsigned magnitude)
{
    unsigned class = 0;
    while (magnitude >= class_first(class + 1)) {
        class ++;
    }
    return class;
}

int32_t tally_entropy_high(int32_t level, unsigned shift)
{
    const int32_t half = (int32_t)((1u << shift) >> 1);
    return (level + half) >> shift; /* an arithmetic shift, in all our compilers */
}

static unsigned symbol_of(int32_t high)
{
    if (high >= -TALLY_ENTROPY_DIRECT && high <= TALLY_ENTROPY_DIRECT) {
        return (unsigned)(high + TALLY_ENTROPY_DIRECT);
    }
    return TALLY_ENTROPY_FIRST_CLASS + class_of(tally_magnitude(high));
}

struct tally_entropy_code tally_entropy_code(int32_t level, unsigned shift)
{
    const int32_t high = tally_entropy_high(level, shift);
    const int32_t half = (int32_t)((1u << shift) >> 1);
    struct tally_entropy_code code = {.symbol = symbol_of(high)};
    if (code.symbol >= TALLY_ENTROPY_FIRST_CLASS) {
        const unsigned class = code.symbol - TALLY_ENTROPY_FIRST_CLASS;
        code.extra = (uint64_t)(high < 0) | (uint64_t)(tally_magnitude(high) - class_first(class))
                                                << 1;
        code.n_extra = 1 + class_bits(class);
    }
    const uint64_t low = (uint64_t)((int64_t)level + half - (int64_t)high * (INT64_C(1) << shift));
    code.extra |= low << code.n_extra;
    code.n_extra += shift;
    return code;
}

unsigned tally_entropy_n_extra(unsigned symbol, unsigned shift)
{
    return symbol < TALLY_ENTROPY_FIRST_CLASS
               ? shift
               : 1 + class_bits(symbol - TALLY_ENTROPY_FIRST_CLASS) + shift;
}

int64_t tally_entropy_level(unsigned symbol, uint64_t extra, unsigned shift)
{
    int64_t high = (int64_t)symbol - TALLY_ENTROPY_DIRECT;
    if (symbol >= TALLY_ENTROPY_FIRST_CLASS) {
        const unsigned class = symbol - TALLY_ENTROPY_FIRST_CLASS, n = class_bits(class);
        const int64_t magnitude =
            class_first(class) + (int64_t)(extra >> 1 & ((UINT64_C(1) << n) - 1));
        high = (extra & 1) != 0 ? -magnitude : magnitude;
        extra >>= 1 + n;
    }
    return high * (INT64_C(1) << shift) + (int64_t)extra - (int64_t)((1u << shift) >> 1);
}

size_t tally_entropy_block_end(size_t start, size_t longest)
{
    const size_t n = start < TALLY_ENTROPY_FIRST_BLOCK ? TALLY_ENTROPY_FIRST_BLOCK : start;
    return start + (n < longest ? n : longest);
}

size_t tally_entropy_block_before(size_t start, size_t longest)
{
    return start <= TALLY_ENTROPY_FIRST_BLOCK ? 0 : start <= longest ? start / 2 : start - longest;
}

void tally_entropy_count(const int32_t *levels, size_t n, unsigned shift,
                         uint32_t counts[TALLY_ENTROPY_SYMBOLS])
{
    for (size_t i = 0; i < n; i++) {
        counts[symbol_of(tally_entropy_high(levels[i], shift))]++;
    }
}

static size_t in_window(size_t n)
{
    return n < TALLY_ENTROPY_WINDOW ? n : TALLY_ENTROPY_WINDOW;
}

void tally_entropy_slide(const int32_t *block, size_t start, size_t n, unsigned shift,
                         uint32_t counts[TALLY_ENTROPY_SYMBOLS])
{
    uint32_t left[TALLY_ENTROPY_SYMBOLS] = {0};
    const size_t n_window = in_window(start);
    tally_entropy_count(block - n_window, n_window + n - in_window(start + n), shift, left);
    tally_entropy_count(block, n, shift, counts);
    for (unsigned s = 0; s < TALLY_ENTROPY_SYMBOLS; s++) {
        counts[s] -= left[s];
    }
}

void tally_entropy_table(unsigned scale, const uint32_t counts[TALLY_ENTROPY_SYMBOLS],
                         struct tally_entropy_table *ret_table)
{
    const uint16_t *prior = prior_of(scale);
    uint32_t weights[TALLY_ENTROPY_ESCAPE];
    for (int s = 0; s < TALLY_ENTROPY_ESCAPE; s++) {
        weights[s] = counts[s] * COUNT_WEIGHT + TAIL_WEIGHT;
        if (s < TALLY_ENTROPY_FIRST_CLASS) {
            weights[s] += prior[abs(s - TALLY_ENTROPY_DIRECT)];
        }
    }
    uint64_t total = 0;
    for (unsigned s = 0; s < TALLY_ENTROPY_ESCAPE; s++) {
        total += weights[s];
    }
    uint64_t unseen = 0; /* weight of the symbols that get no share */
    unsigned left = TALLY_ENTROPY_TOTAL, most = 0;
    for (unsigned s = 0; s < TALLY_ENTROPY_ESCAPE; s++) {
        const unsigned frequency =
            (unsigned)((uint64_t)weights[s] * (TALLY_ENTROPY_TOTAL - 1) / total);
        ret_table->frequency[s] = (uint16_t)frequency;
        unseen += frequency == 0 ? weights[s] : 0;
        left -= frequency;
        most = frequency > ret_table->frequency[most] ? s : most;
    }
    const unsigned escape = 1 + (unsigned)(unseen * (TALLY_ENTROPY_TOTAL - 1) / total);
    assert(escape <= left);
    ret_table->frequency[TALLY_ENTROPY_ESCAPE] = (uint16_t)escape;
    ret_table->frequency[most] = (uint16_t)(ret_table->frequency[most] + left - escape);
    unsigned cumulative = 0;
    for (unsigned s = 0; s < TALLY_ENTROPY_SYMBOLS; s++) {
        ret_table->cumulative[s] = (uint16_t)cumulative;
        cumulative += ret_table->frequency[s];
    }
}
