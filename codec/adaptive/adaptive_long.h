/* adaptive_long: messages of long vectors, whose coder works on 64 stretches of the vector at once;
 * FORMAT.md section 7.3. Internal to codec/adaptive.
 *
 * Idea: the contexts are those of a short message, but probabilities change only from tile to tile
 * (adaptive_kernels.h), so that all lanes of a tile can be coded side by side. Whether a level is
 * zero, plain - 1 on the side of the dither - or special is coded by rANS; what the special levels
 * are follows in an arithmetic code, which is short, as few levels are special. The lowest 15 bits
 * of an rANS encoder's first state are free: they hold the beginning of that code. */
#ifndef TALLY_CODEC_ADAPTIVE_ADAPTIVE_LONG_H
#define TALLY_CODEC_ADAPTIVE_ADAPTIVE_LONG_H

#include "codec/adaptive/adaptive.h"

/* From here on messages are long: the states of 64 lanes cost little then. */
enum { TALLY_ADAPTIVE_LONG_MESSAGE = 1 << 18 };

/* As tally_adaptive_encode(). */
enum tally_status tally_adaptive_long_encode(const int32_t *levels, size_t dim,
                                             const struct tally_rng *dither,
                                             struct tally_buffer *payload,
                                             struct tally_level_stats *ret_stats,
                                             struct tally_error *err);
/* As tally_adaptive_read(), which has checked the frame, set dim and dither of the message and
 * payload and formula bits of the statistics. Unless `units` is NULL, as
 * tally_adaptive_count_into(). */
enum tally_status tally_adaptive_long_read(const uint8_t *data, uint64_t payload_bits,
                                           struct tally_adaptive_message *message,
                                           struct tally_adaptive_units *units,
                                           struct tally_level_stats *ret_stats,
                                           struct tally_error *err);
/* The levels of a row of 64 coordinates, of these dithers. Those from `dim` on are 0. */
enum { TALLY_ADAPTIVE_ROW = 64 };
void tally_adaptive_long_levels(const struct tally_adaptive_message *message, size_t row,
                                const int32_t dithers[TALLY_ADAPTIVE_ROW],
                                int32_t levels[TALLY_ADAPTIVE_ROW]);

#endif
