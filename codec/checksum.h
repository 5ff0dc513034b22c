/* checksum: 64 bits that tell whether two vectors or messages are the same bytes.
 *
 * FNV-1a over little-endian 64-bit words (the last one zero-padded, then the length), followed by a
 * finaliser so that every input bit reaches every output bit. Detects accidents; it is no defence
 * against someone who wants a collision. */
#ifndef TALLY_CODEC_CHECKSUM_H
#define TALLY_CODEC_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

#define TALLY_CHECKSUM_SEED UINT64_C(0xcbf29ce484222325) /* the FNV-1a offset basis */

uint64_t tally_checksum64(const void *bytes, size_t n);
/* Goes on from an earlier sum, to cover several pieces. */
uint64_t tally_checksum64_more(uint64_t sum, const void *bytes, size_t n);

/* The same kind of sum, another value, four times as fast on many bytes: four chains side by side
 * instead of one whose every step waits for the one before. To know a message again. */
uint64_t tally_digest64(const void *bytes, size_t n);

#endif
