/* entropy_samples: random levels, and messages encoded and decoded in both forms. */
#ifndef TALLY_TESTS_UNIT_CODEC_ENTROPY_SAMPLES_H
#define TALLY_TESTS_UNIT_CODEC_ENTROPY_SAMPLES_H

#include "codec/encoding.h"
#include "codec/numeric/rng.h"

extern const struct tally_encoding *const ENTROPY;
extern const struct tally_grid ENTROPY_WIDE; /* has every level that a grid may have */
enum { ENTROPY_LONG = 1 << 18, ENTROPY_TOP = TALLY_MAX_INTERVALS / 2 };

void *entropy_allocate(size_t n);

/* Encodes into a heap block of exactly bound() bytes, which the caller frees. *ret_n is the size of
 * the message. */
uint8_t *entropy_encode(const int32_t *levels, size_t dim, size_t *ret_n,
                        struct tally_level_stats *ret_stats);

bool entropy_same_stats(const struct tally_level_stats *a, const struct tally_level_stats *b);

/* Whether accumulate() agrees with decode(), which returned `status` and, if OK, `levels`. */
bool entropy_accumulates_alike(const uint8_t *data, size_t n, uint64_t payload_bits, size_t dim,
                               const struct tally_grid *grid, enum tally_status status,
                               const int32_t *levels, const struct tally_level_stats *stats);

enum shape { ZERO, SPARSE, BELL, WIDE_BELL, UNIFORM, HEAVY, CONSTANT, ONE_FAR, HALVES, N_SHAPES };

/* Fills `levels` as the shape says, with magnitudes of at most `top`. */
void entropy_random_levels(struct tally_rng *rng, enum shape shape, int32_t top, int32_t *levels,
                           size_t dim);

struct tally_rng entropy_stream(uint64_t seed);

#endif
