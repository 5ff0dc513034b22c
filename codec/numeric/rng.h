/* rng: a counter-based random number generator with keyed streams.
 *
 * Philox4x32-7 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011;
 * 7 rounds is the smallest count that the authors found to pass BigCrush). A draw is a pure
 * function of (seed, run, client, round, purpose, index): no generator state is carried along, and
 * a client that is restarted or reassigned mid-job repeats a round byte for byte.
 *
 *     key      64 bits   derived from (seed, run) by one Philox block
 *     counter  block index | client | round | purpose     (4 x 32 bits)
 *
 * No other source of randomness exists below services/coordinator. */
#ifndef TALLY_CODEC_NUMERIC_RNG_H
#define TALLY_CODEC_NUMERIC_RNG_H

#include <stddef.h>
#include <stdint.h>

enum tally_rng_purpose {
    TALLY_RNG_COVARIATES = 1,    /* synthetic data: rows X_i */
    TALLY_RNG_NOISE = 2,         /* synthetic data: response noise */
    TALLY_RNG_TRUE_POINT = 3,    /* synthetic data: theta* */
    TALLY_RNG_SHARDING = 4,      /* which data point goes to which client */
    TALLY_RNG_INITIAL_POINT = 5, /* x^(1) */
    TALLY_RNG_SAMPLING = 6,      /* minibatches of one client in one round */
    TALLY_RNG_UPLINK = 7,        /* stochastic rounding at a client */
    TALLY_RNG_DOWNLINK = 8,      /* stochastic rounding at the server */
    TALLY_RNG_COHORT = 9,        /* which clients take part in a round */
    TALLY_RNG_ARRIVAL = 10,      /* in which order these clients compute */
    TALLY_RNG_SWEEP = 11,        /* members of job documents in a random search */
    TALLY_RNG_PROBE = 12,        /* points that are looked at to suggest a step size */
};

/* Used where a stream belongs to no client. */
#define TALLY_RNG_SERVER UINT32_MAX

/* All streams of one run of one job. */
struct tally_rng_key {
    uint32_t word[2];
};

/* One stream, read from its start. */
struct tally_rng {
    struct tally_rng_key key;
    uint32_t counter[4];
    uint32_t block[4]; /* output of the current block */
    unsigned n_used;   /* words of `block` already returned */
};

/* The raw bijection, for tests and vector kernels: counter[4], key[2] -> out[4]. */
void tally_philox4x32(unsigned rounds, const uint32_t counter[4], const uint32_t key[2],
                      uint32_t ret_out[4]);

struct tally_rng_key tally_rng_key(uint64_t seed, uint32_t run);

void tally_rng_init(struct tally_rng *rng, struct tally_rng_key key, uint32_t client,
                    uint32_t round, enum tally_rng_purpose purpose);

/* The round that the stream was made for. */
static inline uint32_t tally_rng_round(const struct tally_rng *rng)
{
    return rng->counter[2];
}

uint32_t tally_rng_u32(struct tally_rng *rng);
/* Uniform on [0, 1), a multiple of 2^-53; 2 draws. */
double tally_rng_uniform(struct tally_rng *rng);
/* Uniform on {0, ..., n - 1}, exactly (Lemire's rejection); 1 draw or, rarely, more. n >= 1. */
uint32_t tally_rng_below(struct tally_rng *rng, uint32_t n);
/* Fills values[n] with independent N(0, 1) by Box and Muller; 4 draws per pair. */
void tally_rng_normal(struct tally_rng *rng, double *values, size_t n);

/* Fills v[n] with a uniform direction times `length`. */
void tally_rng_direction(struct tally_rng *rng, double length, double *v, size_t n);

enum { TALLY_RNG_LANES = 64 };

/* The 64 words for coordinates 64 g .. 64 g + 63 of a vector: coordinate i takes word (i / 16) % 4
 * of block 16 (i / 64) + i % 16, so that sixteen blocks side by side fill four vector registers in
 * order. Does not touch rng's position. */
void tally_rng_lanes(const struct tally_rng *rng, uint32_t group,
                     uint32_t ret_words[TALLY_RNG_LANES]);

#endif
