#include "codec/checksum.h"

#include <string.h>

static uint64_t mix(uint64_t h)
{
    /* The xor-shift-multiply finaliser of MurmurHash3 (fmix64). */
    h ^= h >> 33;
    h *= UINT64_C(0xff51afd7ed558ccd);
    h ^= h >> 33;
    h *= UINT64_C(0xc4ceb9fe1a85ec53);
    return h ^ (h >> 33);
}

uint64_t tally_checksum64_more(uint64_t sum, const void *bytes, size_t n)
{
    const uint64_t prime = UINT64_C(0x100000001b3);
    const uint8_t *p = bytes;
    uint64_t h = sum;
    for (size_t i = 0; i + 8 <= n; i += 8) {
        uint64_t word;
        memcpy(&word, p + i, 8);
        h = (h ^ word) * prime;
        h ^= h >> 32; /* FNV moves bits only upwards; whole words need the way down too */
    }
    if (n % 8 != 0) {
        uint64_t word = 0;
        memcpy(&word, p + n / 8 * 8, n % 8);
        h = (h ^ word) * prime;
        h ^= h >> 32;
    }
    return mix((h ^ n) * prime);
}

uint64_t tally_checksum64(const void *bytes, size_t n)
{
    return tally_checksum64_more(TALLY_CHECKSUM_SEED, bytes, n);
}

uint64_t tally_digest64(const void *bytes, size_t n)
{
    enum { N_CHAINS = 4 };
    const uint64_t prime = UINT64_C(0x100000001b3);
    const uint8_t *p = bytes;
    uint64_t h[N_CHAINS];
    size_t i = 0;
    for (uint64_t k = 0; k < N_CHAINS; k++) {
        h[k] = mix(TALLY_CHECKSUM_SEED + k);
    }
    for (; n - i >= sizeof h; i += sizeof h) {
        uint64_t words[N_CHAINS];
        memcpy(words, p + i, sizeof words);
        for (int k = 0; k < N_CHAINS; k++) {
            h[k] = (h[k] ^ words[k]) * prime;
            h[k] ^= h[k] >> 32;
        }
    }
    const uint64_t sum = tally_checksum64_more(n, h, sizeof h);
    return n > i ? tally_checksum64_more(sum, p + i, n - i) : sum;
}
