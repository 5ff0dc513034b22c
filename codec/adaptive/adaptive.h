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
 * A message of 2^18 coordinates and more is coded on 64 stretches of the vector at once
 * (adaptive_long.h).
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

/* What a broadcast needs. levels[i] <- (to[i] - from[i]) * inverse, bounded by the largest level;
 * its magnitude is lowered by threshold - 1/2 and rounded to the nearest integer, ties to even, so
 * that only coordinates more than `threshold` steps away, which is from 1/2 to 1, get a level other
 * than 0. tally_adaptive_move(): x[i] += step * levels[i]. */
void tally_adaptive_round_change(const double *to, const double *from, size_t n, double inverse,
                                 double threshold, int32_t *levels);
void tally_adaptive_move(const int32_t *levels, size_t n, double step, double *x);

/* Appends the message of levels[dim], |level| <= TALLY_ADAPTIVE_MAX_LEVEL, to `payload`. `dither`:
 * the stream with which they were rounded, NULL without dither. Errors: NO_MEMORY, TOO_LARGE. */
enum tally_status tally_adaptive_encode(const int32_t *levels, size_t dim,
                                        const struct tally_rng *dither,
                                        struct tally_buffer *payload,
                                        struct tally_level_stats *ret_stats,
                                        struct tally_error *err);

/* A message that was read. Long messages keep what takes little memory: whether a level is zero,
 * plain or special, and the special levels. */
struct tally_adaptive_message {
    size_t dim;
    const struct tally_rng *dither; /* the caller's */
    int32_t *levels;                /* on the heap; of a long message, the special ones */
    uint64_t *nonzero, *special;    /* on the heap; bit j of word i: coordinate 64 i + j */
    uint32_t *before;               /* on the heap; special levels before coordinate 64 i */
    uint32_t largest;               /* no level has a larger magnitude */
};

/* Reads exactly n_bytes holding payload_bits bits. The caller calls _fini() in any case. Errors:
 * MALFORMED (too short, too long, a level above the largest, not the message that an encoder writes
 * for these levels), NO_MEMORY. */
enum tally_status tally_adaptive_read(const uint8_t *data, size_t n_bytes, uint64_t payload_bits,
                                      size_t dim, const struct tally_rng *dither,
                                      struct tally_adaptive_message *ret_message,
                                      struct tally_level_stats *ret_stats, struct tally_error *err);
void tally_adaptive_message_fini(struct tally_adaptive_message *message);

/* The levels of the coordinates from `first` on, a multiple of 64; n <= TALLY_ADAPTIVE_BLOCK. */
enum { TALLY_ADAPTIVE_BLOCK = 256 };
void tally_adaptive_levels(const struct tally_adaptive_message *message, size_t first, size_t n,
                           int32_t levels[TALLY_ADAPTIVE_BLOCK]);
/* Adds the values of these levels, step (level - u), or step times level without dither, to
 * fixed-point sums[n], and their squares to `squares`, as tally_fixed_point_add_dithered() does. */
void tally_adaptive_add(const struct tally_adaptive_message *message, size_t first, size_t n,
                        double step, int64_t *sums, double squares[TALLY_FIXED_POINT_LANES]);

/* Refuses a message with a level whose value, step (level - u), may be beyond `bound`, that of the
 * sums. Errors: MALFORMED (names coordinate and level). */
enum tally_status tally_adaptive_check_range(const struct tally_adaptive_message *message,
                                             double step, double bound, struct tally_error *err);

/* Where the values of a message go: sums[dim], which have a bound, and squares. */
struct tally_adaptive_sum {
    double step, bound;
    int64_t *sums;
    double squares[TALLY_FIXED_POINT_LANES];
};

/* Reads a message, checks its range and adds all its values, as the functions above do one after
 * the other. Errors: as tally_adaptive_read() and tally_adaptive_check_range(); the sums are then
 * as they were, the squares undefined. */
enum tally_status
tally_adaptive_read_into(const uint8_t *data, size_t n_bytes, uint64_t payload_bits, size_t dim,
                         const struct tally_rng *dither, struct tally_adaptive_sum *sum,
                         struct tally_level_stats *ret_stats, struct tally_error *err);

/* Sums over messages on one grid, in units of 2^-16 steps. A level l with dither u counts
 * 2^16 l - floor(2^16 u), an integer, so sums are exact in any order. Most fit 32 bits, which
 * halves the memory that each message reads and writes. `reach` bounds the magnitude of all sums,
 * in steps. As long as it is at most TALLY_ADAPTIVE_NARROW_REACH, `sums` is an int32[dim], then an
 * int64[dim], for which it has room. Both begin with 0. A square is that of floor(value / 4), so
 * that vectors of 16 bits suffice for most. */
enum { TALLY_ADAPTIVE_UNIT_BITS = 16, TALLY_ADAPTIVE_NARROW_REACH = (1 << 15) - 1 };
struct tally_adaptive_units {
    double step, bound; /* as in tally_adaptive_sum */
    void *sums;         /* aligned as an int64 */
    int64_t reach;
    uint64_t squares[TALLY_FIXED_POINT_LANES]; /* as if all levels were zero or plain */
    double more_squares;                       /* what the special levels have beyond that */
};

/* As tally_adaptive_read_into(). A long message is counted while it is read, which draws its
 * dithers only once. */
enum tally_status
tally_adaptive_count_into(const uint8_t *data, size_t n_bytes, uint64_t payload_bits, size_t dim,
                          const struct tally_rng *dither, struct tally_adaptive_units *units,
                          struct tally_level_stats *ret_stats, struct tally_error *err);
/* Counts a whole message, whose range has been checked. */
void tally_adaptive_count(const struct tally_adaptive_message *message,
                          struct tally_adaptive_units *units);
/* The sums of coordinates first .. first + n - 1. */
void tally_adaptive_units_get(const struct tally_adaptive_units *units, size_t first, size_t n,
                              int64_t *ret_sums);
/* The same, times `factor`. */
void tally_adaptive_units_scaled(const struct tally_adaptive_units *units, size_t first, size_t n,
                                 double factor, double *ret_values);
/* The sum of the squares of all that has been counted, in steps. */
double tally_adaptive_units_square(const struct tally_adaptive_units *units);

/* Reads a message and writes all its levels, undefined on failure. Errors: as
 * tally_adaptive_read().
 */
enum tally_status tally_adaptive_decode(const uint8_t *data, size_t n_bytes, uint64_t payload_bits,
                                        size_t dim, const struct tally_rng *dither, int32_t *levels,
                                        struct tally_level_stats *ret_stats,
                                        struct tally_error *err);

#endif
