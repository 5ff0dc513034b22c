/* checksum: 64 bits that tell whether two vectors or messages are the same bytes.
 *
 * FNV-1a over little-endian 64-bit words (the last one zero-padded, then the length), followed by a
 * finaliser so that every input bit reaches every output bit. Detects accidents; it does not resist
 * deliberate collisions. */
#ifndef TALLY_CODEC_NUMERIC_CHECKSUM_H
#define TALLY_CODEC_NUMERIC_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

#define TALLY_CHECKSUM_SEED UINT64_C(0xcbf29ce484222325) /* the FNV-1a offset basis */

uint64_t tally_checksum64(const void *bytes, size_t n);
/* Continues from an earlier sum, to cover several pieces. */
uint64_t tally_checksum64_more(uint64_t sum, const void *bytes, size_t n);

/* The sum of several pieces as if they were one: begin with a seed, add words, end. */
struct tally_checksum {
    uint64_t chain;
    uint64_t n; /* bytes so far */
};

struct tally_checksum tally_checksum_begin(uint64_t seed);
/* Adds n bytes, a multiple of 8. */
void tally_checksum_add(struct tally_checksum *sum, const void *bytes, size_t n);
/* Adds n bytes to both sums in the time of one, because each step of a chain waits for the last. */
void tally_checksum_add_to_both(struct tally_checksum *sum, struct tally_checksum *other,
                                const void *bytes, size_t n);
/* Equals tally_checksum64_more(seed, all added bytes, their number). */
uint64_t tally_checksum_end(const struct tally_checksum *sum);

/* A different sum of the same kind, four times as fast on many bytes: it runs four chains side by
 * side, because each step of a chain waits for the last. Recognises a repeated message. */
uint64_t tally_digest64(const void *bytes, size_t n);

#endif
