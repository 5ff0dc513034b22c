#include "codec/numeric/checksum.h"

#include <assert.h>
#include <string.h>

#include "codec/numeric/fetch.h"

static const uint64_t PRIME = UINT64_C(0x100000001b3); /* of 64-bit FNV */

static uint64_t mix(uint64_t h)
{
    /* The xor-shift-multiply finaliser of MurmurHash3 (fmix64). */
    h ^= h >> 33;
    h *= UINT64_C(0xff51afd7ed558ccd);
    h ^= h >> 33;
    h *= UINT64_C(0xc4ceb9fe1a85ec53);
    return h ^ (h >> 33);
}

static uint64_t add_word(uint64_t h, uint64_t word)
{
    h = (h ^ word) * PRIME;
    return h ^ (h >> 32); /* FNV moves bits only upwards; whole words must also move them down */
}

static uint64_t add_words(uint64_t h, const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i + 8 <= n; i += 8) {
        if (i % TALLY_FETCH_LINE == 0) {
            tally_fetch_ahead(bytes + i, TALLY_FETCH_LINE);
        }
        uint64_t word;
        memcpy(&word, bytes + i, 8);
        h = add_word(h, word);
    }
    return h;
}

static uint64_t end(uint64_t h, uint64_t n)
{
    return mix((h ^ n) * PRIME);
}

struct tally_checksum tally_checksum_begin(uint64_t seed)
{
    return (struct tally_checksum){.chain = seed};
}

void tally_checksum_add(struct tally_checksum *sum, const void *bytes, size_t n)
{
    assert(n % 8 == 0);
    sum->chain = add_words(sum->chain, bytes, n);
    sum->n += n;
}

void tally_checksum_add_to_both(struct tally_checksum *sum, struct tally_checksum *other,
                                const void *bytes, size_t n)
{
    assert(n % 8 == 0);
    const uint8_t *p = bytes;
    uint64_t h = sum->chain;
    uint64_t g = other->chain;
    for (size_t i = 0; i < n; i += 8) {
        uint64_t word;
        if (i % TALLY_FETCH_LINE == 0) {
            tally_fetch_ahead(p + i, TALLY_FETCH_LINE);
        }
        memcpy(&word, p + i, 8);
        h = add_word(h, word);
        g = add_word(g, word);
    }
    sum->chain = h;
    sum->n += n;
    other->chain = g;
    other->n += n;
}

uint64_t tally_checksum_end(const struct tally_checksum *sum)
{
    return end(sum->chain, sum->n);
}

uint64_t tally_checksum64_more(uint64_t sum, const void *bytes, size_t n)
{
    const uint8_t *p = bytes;
    uint64_t h = add_words(sum, p, n);
    if (n % 8 != 0) {
        uint64_t word = 0;
        memcpy(&word, p + n / 8 * 8, n % 8);
        h = add_word(h, word);
    }
    return end(h, n);
}

uint64_t tally_checksum64(const void *bytes, size_t n)
{
    return tally_checksum64_more(TALLY_CHECKSUM_SEED, bytes, n);
}

uint64_t tally_digest64(const void *bytes, size_t n)
{
    enum { N_CHAINS = 4 };
    const uint8_t *p = bytes;
    uint64_t h[N_CHAINS];
    size_t i = 0;
    for (uint64_t k = 0; k < N_CHAINS; k++) {
        h[k] = mix(TALLY_CHECKSUM_SEED + k);
    }
    for (; n - i >= sizeof h; i += sizeof h) {
        uint64_t words[N_CHAINS];
        if (i % TALLY_FETCH_LINE == 0) {
            tally_fetch_ahead(p + i, TALLY_FETCH_LINE);
        }
        memcpy(words, p + i, sizeof words);
        for (int k = 0; k < N_CHAINS; k++) {
            h[k] = add_word(h[k], words[k]);
        }
    }
    const uint64_t sum = tally_checksum64_more(n, h, sizeof h);
    return n > i ? tally_checksum64_more(sum, p + i, n - i) : sum;
}
