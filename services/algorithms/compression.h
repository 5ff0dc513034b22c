/* compression: both messages of a federated method at a fraction of a bit per coordinate
 * (COMPRESSION.md).
 *
 *     client   w = where its steps from x lead; sends Q_u(w - x), dithered, of step r_u s
 *     server   z <- z + the server's step for the mean of the Q_u
 *              broadcasts Q_d(z - x), rounded, of step r_d s_d;  x <- x + Q_d
 *     s        deviation of the clients' messages from their mean, per coordinate
 *     s_d      deviation of the mean: sqrt((s^2 + (r_u s)^2 / 12) / messages)
 *
 * What a broadcast rounds away, up to 0.6 steps, stays in z and is sent later. The server measures
 * s from what it has decoded. A broadcast states its step and s, from which the clients' next step
 * follows, in 12 bits each before its levels. In the first round, and while s is 0, a client takes
 * the power of two next to r_u / 2 times the root mean square of its own message as its step, and
 * states it in the first byte.
 *
 * The memory (algorithm.h): a double, z, then the memory of the server's optimizer. */
#ifndef TALLY_SERVICES_ALGORITHMS_COMPRESSION_H
#define TALLY_SERVICES_ALGORITHMS_COMPRESSION_H

#include "services/algorithms/algorithm.h"

enum tally_compression_type {
    TALLY_COMPRESSION_NONE,
    TALLY_COMPRESSION_AUTO,
    TALLY_COMPRESSION_SET
};

/* The member `compression` is one of two names, the first two types, or an object with these
 * members of struct tally_compression. */
extern const struct tally_field TALLY_COMPRESSION_NAME; /* no offset: an int */
extern const struct tally_field TALLY_COMPRESSION_FIELDS[];
extern const size_t TALLY_N_COMPRESSION_FIELDS;

bool tally_is_compressed(const struct tally_setting *setting);

/* The slots of algorithm.h, for a job that is compressed. */

size_t tally_compression_bytes(const struct tally_setting *setting);
void tally_compression_begin(const struct tally_setting *setting, const double *x, void *memory);
bool tally_compression_is_valid(const struct tally_setting *setting, const void *memory);
/* The grid of the clients' messages in the next round, in which each makes `samples` queries; zero
 * if each client takes its own. */
struct tally_grid tally_compression_grid(const struct tally_setting *setting, int64_t samples,
                                         const void *memory);
/* Makes a client's message from scratch->vector, its difference. Errors: NOT_FINITE, NO_MEMORY. */
enum tally_status tally_compression_send(const struct tally_client_task *task,
                                         struct tally_scratch *scratch,
                                         struct tally_message *message, struct tally_error *err);
enum tally_status tally_compression_receive(const struct tally_setting *setting,
                                            const struct tally_round_plan *plan,
                                            const struct tally_message_view *message,
                                            struct tally_scratch *scratch, int64_t *sums,
                                            struct tally_bits *ret_bits, struct tally_error *err);
/* The means of the messages, of coordinates first .. first + n - 1, n <= 256. */
void tally_compression_means(const struct tally_server_task *task, size_t first, size_t n,
                             double *means);
/* Sets norm and broadcast of the decision. Errors: NOT_FINITE, NO_MEMORY. */
enum tally_status tally_compression_decide(const struct tally_server_task *task, double scale,
                                           struct tally_scratch *scratch,
                                           struct tally_decision *decision,
                                           struct tally_error *err);
enum tally_status tally_compression_apply(const struct tally_setting *setting,
                                          const struct tally_message_view *broadcast,
                                          struct tally_scratch *scratch, double *x,
                                          struct tally_error *err);
struct tally_message_bits tally_compression_bits(const struct tally_setting *setting);

#endif
