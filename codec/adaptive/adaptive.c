#include "codec/adaptive/adaptive.h"

#include <math.h>
#include <string.h>

#include "codec/dithered/dithered_kernels.h"
#include "codec/entropy/arith.h"
#include "codec/numeric/bits.h"
#include "codec/quantize/payload.h"

enum {
    DENSITIES = 12,
    LOWEST_DENSITY = 4,    /* bits of the density in the first of these classes, at most */
    DITHERS = 16,          /* classes of |u|; the first without dither */
    DENSITY_ONE = 1 << 14, /* of a coordinate whose level is 1 or -1; twice that beyond */
    DENSITY_START = 1 << 10,
    DENSITY_RATE = 5, /* the mean is over about 2^5 coordinates */
    UNARY = 14,       /* magnitudes up to here are coded by single decisions */
    GAMMA_BITS = 21,  /* of a magnitude beyond */
    SHARE_BITS = TALLY_ARITH_BITS,
    EXTRA_BITS = 6, /* of a probability, beyond those of a share */
    ONE = 1 << (SHARE_BITS + EXTRA_BITS),
    LEAST = 2 << EXTRA_BITS, /* the least probability */
    PRIOR_COUNT = 6,         /* decisions that an initial probability stands for */
    SETTLED_COUNT = 126,     /* from here on a decision weighs 2^-7 */
    SETTLED_RATE = 7,
    MOST_DECISION_BITS = SHARE_BITS + 1, /* that a decision takes */
};

/* 2^16 times the probability of level 0, by density and dither: of a Laplace distribution whose
 * share of nonzero levels is about that density. */
static const uint16_t ZERO[DENSITIES][DITHERS] = {
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

/* A yes or no, and how often it was which. */
struct decision {
    uint32_t zero;  /* probability of a no, LEAST .. ONE - LEAST */
    uint32_t count; /* decisions that it rests on */
};

struct model {
    struct decision nonzero[DENSITIES][DITHERS];
    struct decision against[DITHERS];       /* whether a level is not on the side of the dither */
    struct decision more[DENSITIES][UNARY]; /* whether a magnitude is above 1, 2, ... */
    int32_t density;                        /* 0 .. 2 DENSITY_ONE */
};

static void init(struct model *model)
{
    const struct decision even = {ONE / 2, 2};
    for (int i = 0; i < DENSITIES; i++) {
        for (int j = 0; j < DITHERS; j++) {
            model->nonzero[i][j] =
                (struct decision){(uint32_t)ZERO[i][j] << EXTRA_BITS, PRIOR_COUNT};
        }
        for (int j = 0; j < UNARY; j++) {
            model->more[i][j] = even;
        }
    }
    for (int j = 0; j < DITHERS; j++) {
        model->against[j] = even;
    }
    model->density = DENSITY_START;
}

static inline uint32_t share_of(const struct decision *decision)
{
    return decision->zero >> EXTRA_BITS;
}

static inline void learn(struct decision *decision, bool yes)
{
    const int32_t target = yes ? LEAST : ONE - LEAST;
    const int32_t change = target - (int32_t)decision->zero;
    if (decision->count < SETTLED_COUNT) {
        decision->count++;
        decision->zero = (uint32_t)((int32_t)decision->zero + change / (int32_t)decision->count);
    } else {
        decision->zero = (uint32_t)((int32_t)decision->zero + (change >> SETTLED_RATE));
    }
}

static inline unsigned class_of_density(int32_t density)
{
    const uint32_t least = 1 << (LOWEST_DENSITY - 1); /* at least so many bits */
    return tally_bit_length((uint32_t)density | least) - LOWEST_DENSITY;
}

static inline unsigned dither_class(int32_t dither)
{
    return (uint32_t)(dither ^ dither >> 31) >> 27;
}

static inline void pass(struct model *model, uint32_t magnitude)
{
    const int32_t here = (int32_t)(magnitude > 1 ? 2 : magnitude) * DENSITY_ONE;
    model->density += (here - model->density) >> DENSITY_RATE;
}

/* The dithers of a block; without dither all are 0. */
static void dithers_at(const struct tally_rng *dither, size_t start, size_t n, int32_t *dithers)
{
    if (dither == NULL) {
        memset(dithers, 0, n * sizeof *dithers);
    } else {
        tally_dithered_kernel_for(tally_cpu_used())
            ->dithers(dither, (uint32_t)(start / TALLY_RNG_LANES), n, dithers);
    }
}

/* As dithers_at(), with the class of each. */
static void classes_at(const struct tally_rng *dither, size_t start, size_t n, int32_t *dithers,
                       uint8_t *classes)
{
    dithers_at(dither, start, n, dithers);
    for (size_t i = 0; i < n; i++) {
        classes[i] = (uint8_t)dither_class(dithers[i]);
    }
}

static size_t block_at(size_t start, size_t dim)
{
    return dim - start < TALLY_ADAPTIVE_BLOCK ? dim - start : TALLY_ADAPTIVE_BLOCK;
}

enum tally_status tally_adaptive_round(const struct tally_vector *vector, int32_t *levels,
                                       uint64_t *ret_clipped, struct tally_error *err)
{
    const struct tally_dithered_kernel *kernel = tally_dithered_kernel_for(tally_cpu_used());
    int32_t dithers[TALLY_ADAPTIVE_BLOCK];
    *ret_clipped = 0;
    for (size_t start = 0, n; start < vector->dim; start += n) {
        n = block_at(start, vector->dim);
        dithers_at(vector->rng, start, n, dithers);
        const size_t done = kernel->quantize(vector->grid, vector->y + start, dithers, n,
                                             levels + start, ret_clipped);
        if (done < n) {
            return tally_fail(err, TALLY_NOT_FINITE, NULL, "coordinate %zu of %zu is not finite",
                              start + done, vector->dim);
        }
    }
    return TALLY_OK;
}

/* --- encoder --------------------------------------------------------------------------------- */

static inline void write_decision(struct tally_arith_encoder *encoder, struct decision *decision,
                                  bool yes)
{
    const uint32_t zero = share_of(decision);
    if (yes) {
        tally_arith_encode(encoder, zero, (1u << SHARE_BITS) - zero, SHARE_BITS);
    } else {
        tally_arith_encode(encoder, 0, zero, SHARE_BITS);
    }
    learn(decision, yes);
}

static void write_raw(struct tally_arith_encoder *encoder, uint32_t bit)
{
    const uint32_t half = 1u << (SHARE_BITS - 1);
    tally_arith_encode(encoder, bit * half, half, SHARE_BITS);
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

/* Writes the zeros from number `first` of a block on. Returns the index of the first other level,
 * or n. Most levels are 0: this is the same as write_decision() and pass() for each of them, but
 * the range and the density stay in registers. `low` stays: no is the first share. */
static size_t write_zeros(struct tally_arith_encoder *encoder, struct model *model,
                          const int32_t *levels, const uint8_t *classes, size_t first, size_t n)
{
    uint64_t range = encoder->range;
    int32_t density = model->density;
    size_t i = first;
    for (; i < n && levels[i] == 0; i++) {
        struct decision *decision = &model->nonzero[class_of_density(density)][classes[i]];
        range = (range >> SHARE_BITS) * share_of(decision);
        learn(decision, false);
        density += -density >> DENSITY_RATE;
        if (range >> TALLY_ARITH_NARROW_BITS == 0) {
            encoder->range = range;
            tally_arith_widen(encoder);
            range = encoder->range;
        }
    }
    encoder->range = range;
    model->density = density;
    return i;
}

/* Writes a level that is not 0. */
static void write_nonzero(struct tally_arith_encoder *encoder, struct model *model, int32_t level,
                          int32_t dither)
{
    const unsigned density = class_of_density(model->density), by_dither = dither_class(dither);
    const uint32_t magnitude = tally_magnitude(level);
    write_decision(encoder, &model->nonzero[density][by_dither], true);
    pass(model, magnitude);
    write_decision(encoder, &model->against[by_dither], (level < 0) != (dither < 0));
    uint32_t i = 1;
    for (; i <= UNARY && i < magnitude; i++) {
        write_decision(encoder, &model->more[density][i - 1], true);
    }
    if (i <= UNARY) {
        write_decision(encoder, &model->more[density][i - 1], false);
    } else {
        write_gamma(encoder, magnitude - UNARY);
    }
}

/* Bytes that suffice for these levels. */
static size_t bound(const int32_t *levels, size_t dim)
{
    uint64_t n_decisions = dim, n_large = 0;
    for (size_t start = 0, n; start < dim; start += n) {
        uint32_t n_more = 0, n_beyond = 0; /* of a block: 32 bits suffice, as in a vector */
        n = block_at(start, dim);
        for (size_t i = start; i < start + n; i++) {
            const uint32_t magnitude = tally_magnitude(levels[i]);
            n_more += magnitude < UNARY ? magnitude : UNARY;
            n_more += magnitude > 0;
            n_beyond += magnitude > UNARY;
        }
        n_decisions += n_more;
        n_large += n_beyond;
    }
    return (size_t)((n_decisions * MOST_DECISION_BITS + 4 * GAMMA_BITS * n_large) / 8) + 32;
}

enum tally_status tally_adaptive_encode(const int32_t *levels, size_t dim,
                                        const struct tally_rng *dither,
                                        struct tally_buffer *payload,
                                        struct tally_level_stats *ret_stats,
                                        struct tally_error *err)
{
    const size_t before = payload->size, most = bound(levels, dim);
    const enum tally_status status = tally_buffer_reserve(payload, before + most);
    if (status != TALLY_OK) {
        return tally_fail(err, status, NULL, "a message of %zu coordinates: %s", dim,
                          tally_status_info(status)->title);
    }
    struct model model;
    struct tally_bit_writer writer;
    struct tally_arith_encoder encoder;
    struct tally_level_stats stats = {.formula_bits = dim};
    int32_t dithers[TALLY_ADAPTIVE_BLOCK];
    uint8_t classes[TALLY_ADAPTIVE_BLOCK];
    init(&model);
    tally_bit_writer_init(&writer, payload->data + before, payload->capacity - before);
    tally_arith_encoder_init(&encoder, &writer);
    for (size_t start = 0, n; start < dim; start += n) {
        n = block_at(start, dim);
        classes_at(dither, start, n, dithers, classes);
        const int32_t *const block = levels + start;
        for (size_t i = 0; (i = write_zeros(&encoder, &model, block, classes, i, n)) < n; i++) {
            write_nonzero(&encoder, &model, block[i], dithers[i]);
            stats.nonzeros++;
            stats.formula_bits += tally_magnitude(block[i]);
        }
    }
    tally_arith_encoder_finish(&encoder);
    tally_bit_writer_finish(&writer);
    stats.payload_bits = tally_bit_writer_tell(&writer);
    payload->size = before + (size_t)((stats.payload_bits + 7) / 8);
    *ret_stats = stats;
    return TALLY_OK;
}

/* --- decoder --------------------------------------------------------------------------------- */

static inline bool read_decision(struct tally_arith_decoder *decoder, struct decision *decision)
{
    const bool yes = tally_arith_decode_bit(decoder, share_of(decision));
    learn(decision, yes);
    return yes;
}

static bool read_raw(struct tally_arith_decoder *decoder)
{
    return tally_arith_decode_bit(decoder, 1u << (SHARE_BITS - 1));
}

/* 0 if it has too many bits. */
static uint32_t read_gamma(struct tally_arith_decoder *decoder)
{
    unsigned more = 0;
    while (!read_raw(decoder)) {
        if (++more >= GAMMA_BITS) {
            return 0;
        }
    }
    uint32_t value = 1;
    for (unsigned i = 0; i < more; i++) {
        value = value << 1 | read_raw(decoder);
    }
    return value;
}

/* Reads what follows the decision that a level is not 0; returns 0 if it is too large. */
static int32_t read_nonzero(struct tally_arith_decoder *decoder, struct model *model,
                            unsigned density, int32_t dither)
{
    const bool against = read_decision(decoder, &model->against[dither_class(dither)]);
    uint32_t magnitude = 1;
    while (magnitude <= UNARY && read_decision(decoder, &model->more[density][magnitude - 1])) {
        magnitude++;
    }
    if (magnitude > UNARY) {
        const uint32_t more = read_gamma(decoder);
        magnitude = more == 0 ? UINT32_MAX : UNARY + more;
    }
    pass(model, magnitude);
    if (magnitude > TALLY_ADAPTIVE_MAX_LEVEL) {
        return 0;
    }
    return against != (dither < 0) ? -(int32_t)magnitude : (int32_t)magnitude;
}

/* Reads the levels of a block up to and including the first that is not 0, whose `nonzero` decision
 * has then been read and learnt. Returns its index, or n. Most levels are 0: this is the same as
 * read_decision() and pass() for each of them, but the coder and the density stay in registers. */
static size_t read_zeros(struct tally_arith_decoder *decoder, struct model *model,
                         const uint8_t *classes, size_t first, size_t n)
{
    uint64_t range = decoder->range, above = decoder->above;
    int32_t density = model->density;
    size_t i = first;
    for (; i < n; i++) {
        struct decision *decision = &model->nonzero[class_of_density(density)][classes[i]];
        const uint64_t first_share = (range >> SHARE_BITS) * share_of(decision);
        if (above >= first_share) {
            break;
        }
        range = first_share;
        learn(decision, false);
        density += -density >> DENSITY_RATE;
        if (range >> TALLY_ARITH_NARROW_BITS == 0) {
            decoder->range = range;
            decoder->above = above;
            tally_arith_refill(decoder);
            range = decoder->range;
            above = decoder->above;
        }
    }
    decoder->range = range;
    decoder->above = above;
    model->density = density;
    if (i < n) {
        (void)read_decision(decoder, &model->nonzero[class_of_density(density)][classes[i]]);
    }
    return i;
}

static enum tally_status read_levels(struct tally_arith_decoder *decoder, size_t dim,
                                     const struct tally_rng *dither, int32_t *levels,
                                     struct tally_level_stats *stats, struct tally_error *err)
{
    struct model model;
    int32_t dithers[TALLY_ADAPTIVE_BLOCK];
    uint8_t classes[TALLY_ADAPTIVE_BLOCK];
    init(&model);
    for (size_t start = 0, n; start < dim; start += n) {
        n = block_at(start, dim);
        classes_at(dither, start, n, dithers, classes);
        memset(levels + start, 0, n * sizeof *levels);
        for (size_t i = 0; (i = read_zeros(decoder, &model, classes, i, n)) < n; i++) {
            const int32_t level =
                read_nonzero(decoder, &model, class_of_density(model.density), dithers[i]);
            if (level == 0) {
                return tally_payload_level_above(start + i, TALLY_ADAPTIVE_MAX_LEVEL, err);
            }
            levels[start + i] = level;
            stats->nonzeros++;
            stats->formula_bits += tally_magnitude(level);
        }
        if (decoder->n_before > stats->payload_bits) {
            return tally_payload_ends_early(start, dim, stats->payload_bits, err);
        }
    }
    return TALLY_OK;
}

enum tally_status tally_adaptive_decode(const uint8_t *data, size_t n_bytes, uint64_t payload_bits,
                                        size_t dim, const struct tally_rng *dither, int32_t *levels,
                                        struct tally_level_stats *ret_stats,
                                        struct tally_error *err)
{
    struct tally_level_stats stats = {.payload_bits = payload_bits, .formula_bits = dim};
    struct tally_bit_reader reader;
    struct tally_arith_decoder decoder;
    enum tally_status status = tally_payload_check_frame(data, n_bytes, payload_bits, err);
    if (status != TALLY_OK) {
        return status;
    }
    tally_bit_reader_init(&reader, data, payload_bits);
    tally_arith_decoder_init(&decoder, &reader);
    status = read_levels(&decoder, dim, dither, levels, &stats, err);
    if (status == TALLY_OK) {
        bool is_exact;
        const uint64_t taken = tally_arith_decoder_finish(&decoder, &is_exact);
        status = tally_payload_check_string(payload_bits, dim, taken, is_exact, err);
    }
    *ret_stats = stats;
    return status;
}

void tally_adaptive_values(const int32_t *levels, size_t first, size_t n, double step,
                           const struct tally_rng *dither, double *values)
{
    int32_t dithers[TALLY_ADAPTIVE_BLOCK];
    dithers_at(dither, first, n, dithers);
    for (size_t i = 0; i < n; i++) {
        values[i] = step * (levels[i] - dithers[i] * 0x1p-32);
    }
}

void tally_adaptive_add(const int32_t *levels, size_t first, size_t n, double step,
                        const struct tally_rng *dither, int64_t *sums,
                        double squares[TALLY_FIXED_POINT_LANES])
{
    int32_t dithers[TALLY_ADAPTIVE_BLOCK];
    dithers_at(dither, first, n, dithers);
    tally_fixed_point_add_dithered(levels, dithers, n, step, sums, squares);
}
