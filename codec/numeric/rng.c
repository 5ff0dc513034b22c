#include "codec/numeric/rng.h"

#include <math.h>
#include <string.h>

#include "codec/numeric/vector.h"

enum { ROUNDS = 7, LANES = 16 };

/* Multipliers and Weyl increments of the paper, table 2 and section 4.3. */
#define M0 0xD2511F53u
#define M1 0xCD9E8D57u
#define W0 0x9E3779B9u
#define W1 0xBB67AE85u

void tally_philox4x32(unsigned rounds, const uint32_t counter[4], const uint32_t key[2],
                      uint32_t ret_out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (unsigned i = 0; i < rounds; i++) {
        uint64_t p0 = (uint64_t)M0 * c0, p1 = (uint64_t)M1 * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += W0;
        k1 += W1;
    }
    ret_out[0] = c0;
    ret_out[1] = c1;
    ret_out[2] = c2;
    ret_out[3] = c3;
}

struct tally_rng_key tally_rng_key(uint64_t seed, uint32_t run)
{
    const uint32_t seed_words[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const uint32_t counter[4] = {run, 0, 0, UINT32_MAX}; /* a purpose that no stream has */
    uint32_t out[4];
    tally_philox4x32(10, counter, seed_words, out);
    return (struct tally_rng_key){{out[0], out[1]}};
}

void tally_rng_init(struct tally_rng *rng, struct tally_rng_key key, uint32_t client,
                    uint32_t round, enum tally_rng_purpose purpose)
{
    *rng = (struct tally_rng){
        .key = key, .counter = {0, client, round, (uint32_t)purpose}, .n_used = 4};
}

uint32_t tally_rng_u32(struct tally_rng *rng)
{
    if (rng->n_used == 4) {
        tally_philox4x32(ROUNDS, rng->counter, rng->key.word, rng->block);
        rng->counter[0]++;
        rng->n_used = 0;
    }
    return rng->block[rng->n_used++];
}

double tally_rng_uniform(struct tally_rng *rng)
{
    uint64_t high = tally_rng_u32(rng);
    uint64_t low = tally_rng_u32(rng);
    return (double)((high << 21) ^ (low >> 11)) * 0x1p-53;
}

uint32_t tally_rng_below(struct tally_rng *rng, uint32_t n)
{
    uint64_t product = (uint64_t)tally_rng_u32(rng) * n;
    if ((uint32_t)product < n) {
        uint32_t threshold = -n % n; /* 2^32 mod n: products below it would be over-represented */
        while ((uint32_t)product < threshold) {
            product = (uint64_t)tally_rng_u32(rng) * n;
        }
    }
    return (uint32_t)(product >> 32);
}

void tally_rng_normal(struct tally_rng *rng, double *values, size_t n)
{
    const double two_pi = 6.283185307179586476925286766559;
    for (size_t i = 0; i < n; i += 2) {
        double u = 1.0 - tally_rng_uniform(rng); /* (0, 1]: its logarithm is finite */
        double angle = two_pi * tally_rng_uniform(rng);
        double radius = sqrt(-2.0 * log(u));
        values[i] = radius * cos(angle);
        if (i + 1 < n) {
            values[i + 1] = radius * sin(angle);
        }
    }
}

void tally_rng_direction(struct tally_rng *rng, double length, double *v, size_t n)
{
    double norm = 0;
    while (norm == 0) { /* for n = 1 a draw of exactly 0 is possible */
        tally_rng_normal(rng, v, n);
        norm = tally_vector_norm(v, n);
    }
    for (size_t i = 0; i < n; i++) {
        v[i] *= length / norm;
    }
}

/* Sixteen blocks side by side, so that the compiler can vectorize the loop. */
void tally_rng_lanes(const struct tally_rng *rng, uint32_t group,
                     uint32_t ret_words[TALLY_RNG_LANES])
{
    uint32_t *c0 = ret_words, *c1 = c0 + LANES, *c2 = c1 + LANES, *c3 = c2 + LANES;
    uint32_t k0 = rng->key.word[0], k1 = rng->key.word[1];
    for (uint32_t lane = 0; lane < LANES; lane++) {
        c0[lane] = group * LANES + lane;
        c1[lane] = rng->counter[1];
        c2[lane] = rng->counter[2];
        c3[lane] = rng->counter[3];
    }
    for (unsigned i = 0; i < ROUNDS; i++, k0 += W0, k1 += W1) {
        for (unsigned lane = 0; lane < LANES; lane++) {
            const uint64_t p0 = (uint64_t)M0 * c0[lane], p1 = (uint64_t)M1 * c2[lane];
            c0[lane] = (uint32_t)(p1 >> 32) ^ c1[lane] ^ k0;
            c1[lane] = (uint32_t)p1;
            c2[lane] = (uint32_t)(p0 >> 32) ^ c3[lane] ^ k1;
            c3[lane] = (uint32_t)p0;
        }
    }
}
