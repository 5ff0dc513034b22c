/* random_messages: vectors of all sizes and shapes, and their messages in every encoding. Used by
 * the test program, and by the program that prints some for the second decoder. */
#ifndef TALLY_TESTS_GOLDEN_RANDOM_MESSAGES_H
#define TALLY_TESTS_GOLDEN_RANDOM_MESSAGES_H

#include "codec/encoding.h"
#include "codec/numeric/rng.h"
#include "codec/quantize/qsgd.h"

enum random_kind {
    RANDOM_UNARY,
    RANDOM_ENTROPY,
    RANDOM_ENTROPY_LONG, /* in the form of a long message, at any dim */
    RANDOM_FLOAT32,
    RANDOM_QSGD,
    RANDOM_TOP_K,
    RANDOM_ADAPTIVE,
    N_RANDOM_KINDS,
};

struct random_message {
    enum random_kind kind;
    size_t dim;             /* most below 64, one in four up to 4096 */
    struct tally_grid grid; /* for kinds with an encoding */
    struct tally_qsgd qsgd;
    size_t k;        /* top_k: number of values and indices */
    bool has_dither; /* adaptive: of the uplink stream of this seed, run, client and round */
    uint64_t seed;
    uint32_t run, client, round;
    int32_t *levels;   /* all but float32 and top_k */
    float *values;     /* float32, top_k */
    uint32_t *indices; /* top_k */
    uint8_t *payload;
    size_t n_payload;
    struct tally_level_stats stats; /* from the encoder; nonzeros not of float32, qsgd and top_k */
};

/* Returns the encoding of a kind, or NULL for kinds without one. */
const struct tally_encoding *random_encoding(enum random_kind kind);

/* The random stream of a seed. */
struct tally_rng random_stream(uint64_t seed);

/* The stream of the dither of an adaptive message. */
struct tally_rng random_dither(const struct random_message *message);

/* Draws a vector and encodes it. Everything is on the heap, the payload in a block of exactly its
 * size. Aborts the process if the encoder fails. */
void random_message_init(struct random_message *message, struct tally_rng *rng,
                         enum random_kind kind);
void random_message_fini(struct random_message *message);

#endif
