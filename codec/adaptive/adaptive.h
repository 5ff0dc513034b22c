/* adaptive: entropy coding of the levels of long vectors whose coordinates differ much in size, at
 * a fraction of a bit each; FORMAT.md section 7.3.
 *
 * Idea: nearly all levels are 0, and the others come in swarms. A binary arithmetic coder learns,
 * while it codes, how probable a nonzero level is in each of 12 x 16 contexts:
 *
 *     density   how many of the last coordinates, about 32, were nonzero, one context per octave
 *     dither    with subtractive dither, how near the dither is to the next level: at |u| near 1/2
 *               a small coordinate already rounds to the level on the side of u, at u = 0 none does
 *
 * Example, at a step of eight standard deviations: one level in 14 is nonzero, which would take
 * 0.45 bits a coordinate if all were alike. With both contexts an update of an MLP takes 0.3.
 *
 * Nothing but the levels is sent: no table and no scale. A message that is too short to learn from
 * uses the probabilities of a Laplace distribution. */
#ifndef TALLY_CODEC_ADAPTIVE_ADAPTIVE_H
#define TALLY_CODEC_ADAPTIVE_ADAPTIVE_H

#include "codec/numeric/fixed_point.h"
#include "codec/quantize/level_encoding.h"

enum { TALLY_ADAPTIVE_MAX_LEVEL = 1 << 20 };

/* Rounds y[dim] to levels on the grid with subtractive dither: the level is rint(y / step + u), and
 * stands for step (level - u), where u are the words of `rng` as in dithered.h. Levels beyond
 * intervals / 2 are clipped; ret_clipped counts them. Errors: NOT_FINITE (names the coordinate). */
enum tally_status tally_adaptive_round(const struct tally_vector *vector, int32_t *levels,
                                       uint64_t *ret_clipped, struct tally_error *err);

/* Appends the message of levels[dim], |level| <= TALLY_ADAPTIVE_MAX_LEVEL, to `payload`. `dither`:
 * the stream with which they were rounded, NULL without dither. Errors: NO_MEMORY, TOO_LARGE. */
enum tally_status tally_adaptive_encode(const int32_t *levels, size_t dim,
                                        const struct tally_rng *dither,
                                        struct tally_buffer *payload,
                                        struct tally_level_stats *ret_stats,
                                        struct tally_error *err);

/* Reads exactly n_bytes holding payload_bits bits, and writes the levels, undefined on failure.
 * Errors: MALFORMED (too short, too long, a level above the largest, not the message that an
 * encoder writes for these levels). */
enum tally_status tally_adaptive_decode(const uint8_t *data, size_t n_bytes, uint64_t payload_bits,
                                        size_t dim, const struct tally_rng *dither, int32_t *levels,
                                        struct tally_level_stats *ret_stats,
                                        struct tally_error *err);

/* values[n] <- step (levels[n] - u), or step levels[n] if `dither` is NULL, for the coordinates
 * from `first` on, a multiple of 64. */
enum { TALLY_ADAPTIVE_BLOCK = 256 };
void tally_adaptive_values(const int32_t *levels, size_t first, size_t n, double step,
                           const struct tally_rng *dither, double *values);
/* Adds the same values to fixed-point sums[n], and their squares to `squares`, as
 * tally_fixed_point_add_dithered() does; n <= TALLY_ADAPTIVE_BLOCK. */
void tally_adaptive_add(const int32_t *levels, size_t first, size_t n, double step,
                        const struct tally_rng *dither, int64_t *sums,
                        double squares[TALLY_FIXED_POINT_LANES]);

#endif
