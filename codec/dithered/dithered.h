/* dithered: entropy-coded dithered quantization (Ziv 1985; Zamir and Feder 1992), from a vector to
 * the bits of a message and back; FORMAT.md section 7.
 *
 * Idea: both sides draw the same random number U for each coordinate. The sender adds it before it
 * rounds, the receiver subtracts it again. The error is then uniform and independent of the vector,
 * and never more than half a step. Both sides also know how wide the coordinates are, so that the
 * probability of a level follows from the normal distribution and U, and no table is sent.
 *
 *     q = rint(y / step + u)          u = U 2^-32 in [-1/2, 1/2), the level that is sent
 *     y' = step (q - u)               |y' - y| <= step / 2
 *     P(q | u) = Phi((q + 1/2 - u) step / sigma) - Phi((q - 1/2 - u) step / sigma)
 *
 *            q = -1      q = 0       q = 1           without dither
 *        |-----------|-----------|-----------|
 *              q = -1      q = 0       q = 1         u = -0.4: all cells move by 0.4
 *            |-----------|-----------|-----------|
 *
 * Example: y = 0.7, step = 1. u = 0.3 gives q = 1 and y' = 0.7; u = -0.4 gives q = 0 and y' = 0.4.
 * At sigma = 1 the first costs 1.38 bits, the second 1.41 bits.
 *
 * U of coordinate i is the word that tally_rng_lanes() of the vector's stream gives it, read as a
 * signed number. A receiver sums q 2^32 - U in integers: the sum times step 2^-32 is the sum of the
 * values, exactly and in any order.
 *
 * This is the long form. Messages of the short form are rounded on a trellis (trellis.h): U' takes
 * the place of U, and the error is at most a step. */
#ifndef TALLY_CODEC_DITHERED_DITHERED_H
#define TALLY_CODEC_DITHERED_DITHERED_H

#include "codec/numeric/log_scale.h"
#include "codec/quantize/level_encoding.h"

enum {
    TALLY_DITHERED_OCTAVE = TALLY_LOG_SCALE_OCTAVE, /* indices per factor of 2 */
    TALLY_DITHERED_SCALES = 24 * TALLY_DITHERED_OCTAVE + 1,
    TALLY_DITHERED_MAX_TOP = 1 << 20,
};

/* Index i stands for the ratio sigma / step = 2^(i/16 - 8), from 2^-8 to 2^16. sigma: the standard
 * deviation of a coordinate that both sides expect. Returns the nearest index on the logarithmic
 * scale, the same on all machines. A ratio outside the range gets the index at that end, NaN the
 * lowest. */
uint32_t tally_dithered_scale_of(double ratio);
/* 0 <= scale < TALLY_DITHERED_SCALES. */
double tally_dithered_ratio(uint32_t scale);

/* The largest |level| such that `clients` messages can be added: min(2^20, 2^30 / clients), but at
 * least 1. */
uint32_t tally_dithered_top(uint32_t clients);

/* The mean square of the error of a coordinate, in squared steps. In the long form it is 1/12. In
 * the short form (trellis.h) it is 1/12 for up to three coordinates and falls to 0.779/12 for many:
 * a fit to measurements, within 1 % from 8 coordinates on and 5 % below. */
double tally_dithered_error(size_t dim);

/* Whether a grid that came from outside suits this encoding: its step and intervals are those of a
 * valid grid, intervals / 2 <= TALLY_DITHERED_MAX_TOP, and its scale is in range. */
bool tally_dithered_grid_is_valid(const struct tally_grid *grid);
/* The same for the grid of a received broadcast. Errors: MALFORMED, in the field "quantizer_step".
 */
enum tally_status tally_dithered_check_grid(const struct tally_grid *grid, struct tally_error *err);

/* Quantizes and encodes a vector on a valid grid into `payload`, replacing its content. `scratch`:
 * int32[dim], working memory for this call. Levels beyond intervals / 2 are clipped; ret_clipped
 * counts them. Errors: NOT_FINITE (names the coordinate), TOO_LARGE, NO_MEMORY (the payload). */
enum tally_status tally_dithered_encode(const struct tally_vector *vector, int32_t *scratch,
                                        struct tally_buffer *payload,
                                        struct tally_level_stats *ret_stats, uint64_t *ret_clipped,
                                        struct tally_error *err);

/* Reads exactly n_bytes holding payload_bits bits, of a message that was encoded on this grid with
 * this stream, and writes q 2^32 - U to values (int64[dim]), undefined on failure. Errors:
 * MALFORMED (too short, too long, a level above intervals / 2, not the message that an encoder
 * writes for these levels; the message names the coordinate or the count). */
enum tally_status tally_dithered_decode(const uint8_t *data, size_t n_bytes, uint64_t payload_bits,
                                        size_t dim, const struct tally_grid *grid,
                                        const struct tally_rng *rng, int64_t *values,
                                        struct tally_level_stats *ret_stats,
                                        struct tally_error *err);

/* Reads a message like decode() and adds q 2^32 - U to sums (int64[dim]). Errors: as decode();
 * `sums` is then unchanged. */
enum tally_status
tally_dithered_accumulate(const uint8_t *data, size_t n_bytes, uint64_t payload_bits, size_t dim,
                          const struct tally_grid *grid, const struct tally_rng *rng, int64_t *sums,
                          struct tally_level_stats *ret_stats, struct tally_error *err);

#endif
