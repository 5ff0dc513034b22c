/* weights: the weight of a client in the mean of a round (`weighting` of the job).
 *
 *     equal     mean = sum v_m / C                 C: the messages of the round
 *     points    mean = sum n_m v_m / sum n_m       n_m: the number of points of client m
 *
 * If the document states the number of data points and they are cut into shards, all sides know
 * n_m. Otherwise every message of a client begins with n_m, in 32 bits before the
 * algorithm's own bits. In a round that the horizon cuts, the message consists of these 32 bits
 * only. They count as bits of the message, also by formula. A client sends them again in every
 * round, because a server must be able to conclude a round from the messages of that round alone.
 *
 * Sums are integers (codec/numeric/fixed_point.h), and the common divisor of all weights is removed
 * before the division. The result therefore depends neither on the order of arrival nor on a common
 * factor of the weights, bit for bit. */
#ifndef TALLY_SERVICES_ALGORITHMS_WEIGHTS_H
#define TALLY_SERVICES_ALGORITHMS_WEIGHTS_H

#include "codec/numeric/fixed_point.h"
#include "services/algorithms/algorithm.h"
#include "services/objectives/data/data.h"

enum { TALLY_WEIGHT_MOST = TALLY_DATA_MAX_POINTS };

/* Bits of n_m in front of a client's message: 32, or 0 if the message does not contain n_m. */
uint64_t tally_weight_bits(const struct tally_setting *setting);

/* Client: puts n_m before its message if the messages of the job contain n_m. Errors: NO_MEMORY,
 * OUT_OF_RANGE, those of tally_objective_points(). */
enum tally_status tally_weight_put(const struct tally_client_task *task,
                                   struct tally_message *message, struct tally_error *err);
/* Server: sets the weight of a client's message. If the message contains n_m, removes n_m from it.
 * Errors: MALFORMED. */
enum tally_status tally_weight_take(const struct tally_setting *setting,
                                    struct tally_message_view *message, struct tally_error *err);

/* Counts one more message with this weight. */
void tally_weights_add(struct tally_weights *weights, uint32_t weight);

/* Number of int64 words in the sum of one coordinate. */
size_t tally_weighted_sum_words(const struct tally_setting *setting);
/* What the algorithm notes about the sums of a round, behind them. */
struct tally_sums_notes {
    int64_t reach;     /* as in struct tally_adaptive_units */
    size_t used_bytes; /* all behind these bytes of the sums is still 0; 0: all may be in use */
};
/* Size of the sums of a round with their notes. */
size_t tally_sums_bytes(const struct tally_setting *setting);
struct tally_sums_notes *tally_sums_notes(const struct tally_setting *setting, const int64_t *sums);
/* Prepares new sums for their first tally_sums_clear(). */
void tally_sums_begin(const struct tally_setting *setting, int64_t *sums);
/* Makes all sums and notes 0. */
void tally_sums_clear(const struct tally_setting *setting, int64_t *sums);
/* Server: adds values[dim], or scale * levels[dim], to the sums. All lie within
 * tally_fixed_point_bound(cohort). */
void tally_weighted_sum_add_floats(const struct tally_setting *setting, uint32_t weight,
                                   const float *values, int64_t *sums);
void tally_weighted_sum_add_levels(const struct tally_setting *setting, uint32_t weight,
                                   const int32_t *levels, double scale, int64_t *sums);
/* Server: adds addends[n] of tally_fixed_point_of() to the sums of the coordinates from `first` on.
 */
void tally_weighted_sum_add_block(const struct tally_setting *setting, uint32_t weight,
                                  const int64_t *addends, size_t first, size_t n, int64_t *sums);
/* The means of the coordinates from `first` on, n of them, over the messages. */
void tally_weighted_means(const struct tally_server_task *task, size_t first, size_t n,
                          double *ret_means);
/* With weights: the sums over the weights' greatest common divisor, and what to divide them by. */
void tally_weighted_values(const struct tally_server_task *task, size_t first, size_t n,
                           double *ret_values);
double tally_weighted_divisor(const struct tally_server_task *task);
/* The mean of coordinate i. */
double tally_weighted_mean(const struct tally_server_task *task, size_t i);

#endif
