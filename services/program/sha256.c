#include "services/program/sha256.h"

#include <string.h>

enum { BLOCK_BYTES = 64, LENGTH_BYTES = 8 };

/* FIPS 180-4, section 4.2.2: of the cube roots of the first 64 primes. */
static const uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

static void expand(const uint8_t block[BLOCK_BYTES], uint32_t ret_words[64])
{
    for (int t = 0; t < 16; t++) {
        const uint8_t *b = block + 4 * (ptrdiff_t)t;
        ret_words[t] =
            (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | (uint32_t)b[3];
    }
    for (int t = 16; t < 64; t++) {
        const uint32_t x = ret_words[t - 15], y = ret_words[t - 2];
        ret_words[t] = ret_words[t - 16] + (rotate(x, 7) ^ rotate(x, 18) ^ x >> 3) +
                       ret_words[t - 7] + (rotate(y, 17) ^ rotate(y, 19) ^ y >> 10);
    }
}

static void add_block(uint32_t h[8], const uint8_t block[BLOCK_BYTES])
{
    uint32_t w[64], v[8];
    expand(block, w);
    memcpy(v, h, sizeof v);
    for (int t = 0; t < 64; t++) {
        const uint32_t a = v[0], e = v[4];
        const uint32_t t1 = v[7] + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) +
                            ((e & v[5]) ^ (~e & v[6])) + K[t] + w[t];
        const uint32_t t2 = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) +
                            ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[0] = t1 + t2;
        v[4] += t1; /* d, which has just moved to the place of e */
    }
    for (int i = 0; i < 8; i++) {
        h[i] += v[i];
    }
    explicit_bzero(w, sizeof w); /* the text itself, in its first words */
}

void tally_sha256(const void *bytes, size_t n, uint8_t ret_digest[TALLY_SHA256_BYTES])
{
    /* Section 5.3.3: of the square roots of the first 8 primes. */
    uint32_t h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                     0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    const uint8_t *at = bytes;
    size_t left = n;
    for (; left >= BLOCK_BYTES; left -= BLOCK_BYTES, at += BLOCK_BYTES) {
        add_block(h, at);
    }
    /* The rest, a bit 1, zeros and the length in bits: one block, or two if it does not fit. */
    uint8_t tail[2 * BLOCK_BYTES] = {0};
    const size_t n_tail = left + 1 + LENGTH_BYTES > BLOCK_BYTES ? sizeof tail : BLOCK_BYTES;
    if (left > 0) {
        memcpy(tail, at, left);
    }
    tail[left] = 0x80;
    for (size_t i = 0; i < LENGTH_BYTES; i++) {
        tail[n_tail - 1 - i] = (uint8_t)((uint64_t)n * 8 >> 8 * i);
    }
    for (size_t i = 0; i < n_tail; i += BLOCK_BYTES) {
        add_block(h, tail + i);
    }
    explicit_bzero(tail, sizeof tail);
    for (size_t i = 0; i < TALLY_SHA256_BYTES; i++) {
        ret_digest[i] = (uint8_t)(h[i / 4] >> (24 - 8 * (i % 4)));
    }
}
