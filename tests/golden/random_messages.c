#include "tests/golden/random_messages.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/adaptive/adaptive.h"
#include "codec/numeric/float32.h"
#include "codec/numeric/subset.h"
#include "codec/sparse/top_k.h"
#include "tests/entropy_long_form.h"

enum shape { NORMAL, SPARSE, CONSTANT, EXTREMES, UNIFORM, HEAVY, HALVES, N_SHAPES };
enum {
    MOST_DIM_BITS = 12,
    MOST_TOP_BITS = 21,
    UNARY_ONES = 20000, /* in one message, which limits its size */
};

static void require(bool condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "random messages: %s\n", what);
        abort();
    }
}

static void *allocate(size_t n, size_t n_bytes)
{
    void *block = malloc(n * n_bytes + (n == 0));
    require(block != NULL, "no memory");
    return block;
}

const struct tally_encoding *random_encoding(enum random_kind kind)
{
    return kind == RANDOM_UNARY          ? &TALLY_ENCODING_UNARY
           : kind == RANDOM_ENTROPY      ? &TALLY_ENCODING_ENTROPY
           : kind == RANDOM_ENTROPY_LONG ? &ENTROPY_LONG_FORM
                                         : NULL;
}

struct tally_rng random_stream(uint64_t seed)
{
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(seed, 0), 0, 0, TALLY_RNG_NOISE);
    return rng;
}

struct tally_rng random_dither(const struct random_message *message)
{
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(message->seed, message->run), message->client,
                   message->round, TALLY_RNG_UPLINK);
    return rng;
}

/* 2^u, with u uniform between `from` and `to`. */
static double octave(struct tally_rng *rng, double from, double to)
{
    return exp2(from + (to - from) * tally_rng_uniform(rng));
}

static double normal(struct tally_rng *rng)
{
    double pair[2];
    tally_rng_normal(rng, pair, 2);
    return pair[0];
}

static double sign(struct tally_rng *rng)
{
    return tally_rng_below(rng, 2) == 0 ? 1 : -1;
}

/* The random parameters of a shape, drawn once per vector. */
struct form {
    enum shape shape;
    int32_t top;
    double width, other_width; /* in levels */
    uint32_t rarity;
    size_t middle;
};

static struct form form_of(struct tally_rng *rng, int32_t top, size_t dim)
{
    return (struct form){
        .shape = (enum shape)tally_rng_below(rng, N_SHAPES),
        .top = top,
        .width = octave(rng, -5, MOST_TOP_BITS + 1),
        .other_width = octave(rng, -5, 6),
        .rarity = 1 + (uint32_t)octave(rng, 0, 10),
        .middle = tally_rng_below(rng, (uint32_t)dim),
    };
}

static double level_of(struct tally_rng *rng, const struct form *form, size_t i)
{
    switch (form->shape) {
    case NORMAL:
        return floor(form->width * normal(rng) + tally_rng_uniform(rng));
    case SPARSE:
        return tally_rng_below(rng, form->rarity) == 0 ? round(form->other_width * normal(rng)) : 0;
    case CONSTANT:
        return (form->middle % 2 == 0 ? 1 : -1) * floor(form->width);
    case EXTREMES:
        return sign(rng) * (tally_rng_below(rng, 3) == 0 ? 0 : (double)form->top) +
               tally_rng_below(rng, 3) - 1;
    case UNIFORM:
        return round(form->width * (2 * tally_rng_uniform(rng) - 1));
    case HEAVY:
        return sign(rng) * floor(octave(rng, -1, MOST_TOP_BITS + 1));
    case HALVES:
        return round((i < form->middle ? form->width : form->other_width) * normal(rng));
    case N_SHAPES:
    default:
        return 0;
    }
}

static int32_t *draw_levels(struct tally_rng *rng, int32_t top, size_t dim)
{
    const struct form form = form_of(rng, top, dim);
    int32_t *levels = allocate(dim, sizeof *levels);
    for (size_t i = 0; i < dim; i++) {
        levels[i] = (int32_t)fmin(fmax(level_of(rng, &form, i), -top), top);
    }
    return levels;
}

static void encode_levels(struct random_message *message)
{
    const struct tally_encoding *encoding = random_encoding(message->kind);
    const size_t n = encoding->bound(message->levels, message->dim);
    uint8_t *room = allocate(n, 1);
    require(encoding->encode(message->levels, message->dim, &message->grid, room, n,
                             &message->stats) == TALLY_OK,
            "an encoder refuses levels");
    message->n_payload = (size_t)((message->stats.payload_bits + 7) / 8);
    require(message->n_payload <= n, "a message is longer than its bound");
    message->payload = allocate(message->n_payload, 1);
    memcpy(message->payload, room, message->n_payload);
    free(room);
}

/* Any finite float32, with all exponents equally likely, including the limits, subnormals, and
 * zeros of both signs. */
static float *draw_values(struct tally_rng *rng, size_t n)
{
    float *values = allocate(n, sizeof *values);
    for (size_t i = 0; i < n; i++) {
        uint32_t word = tally_rng_u32(rng);
        word = (word >> 23 & 255) == 255 ? word & UINT32_C(0x80000000) : word;
        memcpy(&values[i], &word, sizeof word);
    }
    return values;
}

static void draw_float32(struct tally_rng *rng, struct random_message *message)
{
    message->values = draw_values(rng, message->dim);
    message->n_payload = tally_float32_bound(message->dim);
    message->payload = allocate(message->n_payload, 1);
    require(tally_float32_encode(message->values, message->dim, message->payload,
                                 message->n_payload, &message->stats.payload_bits,
                                 NULL) == TALLY_OK,
            "float32 refuses values");
    message->stats.formula_bits = message->stats.payload_bits;
}

static void draw_qsgd(struct tally_rng *rng, struct random_message *message)
{
    message->qsgd.levels = (uint32_t)octave(rng, 0, 15);
    message->qsgd.norm = tally_rng_below(rng, 16) == 0 ? 0 : (float)octave(rng, -100, 100);
    message->levels = draw_levels(rng, (int32_t)message->qsgd.levels, message->dim);
    if (message->qsgd.norm == 0) {
        memset(message->levels, 0, message->dim * sizeof *message->levels);
    }
    message->stats.payload_bits = tally_qsgd_bits(message->qsgd.levels, message->dim);
    message->stats.formula_bits = message->stats.payload_bits;
    message->n_payload = (size_t)((message->stats.payload_bits + 7) / 8);
    message->payload = allocate(message->n_payload, 1);
    require(tally_qsgd_encode(&message->qsgd, message->levels, message->dim, message->payload,
                              message->n_payload) == TALLY_OK,
            "qsgd refuses levels");
}

/* Half of the sets are random, the others are intervals. */
static uint32_t *draw_indices(struct tally_rng *rng, size_t dim, size_t k)
{
    uint32_t *indices = allocate(k, sizeof *indices);
    if (tally_rng_below(rng, 2) == 0) {
        uint32_t *taken = allocate(tally_subset_room((uint32_t)k), sizeof *taken);
        tally_subset_draw(rng, (uint32_t)dim, (uint32_t)k, taken, indices);
        free(taken);
        return indices;
    }
    const uint32_t first = tally_rng_below(rng, (uint32_t)(dim - k + 1));
    for (uint32_t i = 0; i < k; i++) {
        indices[i] = first + i;
    }
    return indices;
}

static void draw_top_k(struct tally_rng *rng, struct random_message *message)
{
    message->k = (size_t)octave(rng, 0, log2((double)message->dim + 1));
    message->k = message->k < message->dim ? message->k : message->dim;
    message->values = draw_values(rng, message->k);
    message->indices = draw_indices(rng, message->dim, message->k);
    message->n_payload = tally_top_k_bound(message->dim, message->k);
    message->payload = allocate(message->n_payload, 1);
    require(tally_top_k_encode(message->values, message->indices, message->dim, message->k,
                               message->payload, message->n_payload, &message->stats.payload_bits,
                               NULL) == TALLY_OK,
            "top_k refuses coordinates");
    message->stats.formula_bits = tally_top_k_formula_bits(message->dim, message->k);
    message->n_payload = (size_t)((message->stats.payload_bits + 7) / 8);
    message->payload = realloc(message->payload, message->n_payload);
    require(message->payload != NULL, "no memory");
}

/* Rounds the levels, made much smaller or hardly, with the dither. */
static void round_again(struct tally_rng *rng, const struct tally_rng *dither, int32_t *levels,
                        size_t dim)
{
    const double ratio = octave(rng, -8, 0);
    const struct tally_grid grid = {1, 2 * TALLY_ADAPTIVE_MAX_LEVEL, 0};
    float *y = allocate(dim, sizeof *y);
    for (size_t i = 0; i < dim; i++) {
        y[i] = (float)(ratio * levels[i]);
    }
    const struct tally_vector vector = {y, dim, &grid, dither};
    uint64_t clipped;
    require(tally_adaptive_round(&vector, levels, &clipped, NULL) == TALLY_OK,
            "adaptive refuses values");
    free(y);
}

/* A third of the messages are without dither; the levels of another third do not follow theirs. */
static void draw_adaptive(struct tally_rng *rng, struct random_message *message)
{
    const uint32_t choice = tally_rng_below(rng, 3);
    message->has_dither = choice > 0;
    message->seed = tally_rng_below(rng, 1000) * UINT64_C(0x100000001);
    message->run = tally_rng_below(rng, 3);
    message->client = tally_rng_below(rng, 20);
    message->round = tally_rng_u32(rng);
    const struct tally_rng dither = random_dither(message);
    message->levels =
        draw_levels(rng, (int32_t)octave(rng, 0, log2(TALLY_ADAPTIVE_MAX_LEVEL)), message->dim);
    if (choice > 1) {
        round_again(rng, &dither, message->levels, message->dim);
    }
    struct tally_buffer payload = {0};
    require(tally_adaptive_encode(message->levels, message->dim,
                                  message->has_dither ? &dither : NULL, &payload, &message->stats,
                                  NULL) == TALLY_OK,
            "adaptive refuses levels");
    message->n_payload = payload.size;
    message->payload = allocate(payload.size, 1);
    if (payload.size > 0) {
        memcpy(message->payload, payload.data, payload.size);
    }
    tally_buffer_fini(&payload);
}

static void draw_encoded(struct tally_rng *rng, struct random_message *message)
{
    int32_t top = (int32_t)octave(rng, 0, MOST_TOP_BITS + 0.01);
    top = top < 1 << MOST_TOP_BITS ? top : 1 << MOST_TOP_BITS;
    message->grid = (struct tally_grid){.step = 1, .intervals = 2 * (uint32_t)top};
    const int32_t most =
        message->kind == RANDOM_UNARY ? 1 + UNARY_ONES / (int32_t)message->dim : 1 << MOST_TOP_BITS;
    message->levels = draw_levels(rng, top < most ? top : most, message->dim);
    encode_levels(message);
}

void random_message_init(struct random_message *message, struct tally_rng *rng,
                         enum random_kind kind)
{
    const bool is_small = tally_rng_below(rng, 4) != 0;
    *message = (struct random_message){
        .kind = kind,
        .dim = (size_t)octave(rng, 0, is_small ? 6 : MOST_DIM_BITS),
    };
    if (kind == RANDOM_FLOAT32) {
        draw_float32(rng, message);
    } else if (kind == RANDOM_QSGD) {
        draw_qsgd(rng, message);
    } else if (kind == RANDOM_TOP_K) {
        draw_top_k(rng, message);
    } else if (kind == RANDOM_ADAPTIVE) {
        draw_adaptive(rng, message);
    } else {
        draw_encoded(rng, message);
    }
}

void random_message_fini(struct random_message *message)
{
    free(message->levels);
    free(message->values);
    free(message->indices);
    free(message->payload);
    *message = (struct random_message){.dim = 0};
}
