/* server_optimizer: how the server of a federated method applies the clients' mean step.
 *
 * Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar, McMahan, "Adaptive Federated
 * Optimization", ICLR 2021, Algorithms 1 and 2. D is the mean difference of the clients, which the
 * server treats as a step against a gradient:
 *
 *     none      x <- x + D
 *     sgd       x <- x + S D
 *     fedavgm   m <- beta1 m + D                                              x <- x + S m
 *     fedadam   m <- beta1 m + (1 - beta1) D
 *               v <- beta2 v + (1 - beta2) D^2               x <- x + S m / (sqrt(v) + tau)
 *     fedyogi   m as fedadam
 *               v <- v - (1 - beta2) D^2 sign(v - D^2)       x <- x + S m / (sqrt(v) + tau)
 *
 * for every coordinate, with m = 0 and v = tau^2 before the first round. fedavgm is from Hsu, Qi,
 * Brown, "Measuring the Effects of Non-Identical Data Distribution for Federated Visual
 * Classification", 2019. As in the papers, m and v are not divided by 1 - beta^t.
 *
 * m and v are the algorithm's memory (algorithm.h): double m[dim], then double v[dim] if the
 * optimizer uses v. The broadcast is still the new point as float32, so messages have the same bits
 * with every optimizer, and clients need not know which is used. Only + - * / and sqrt are used,
 * which all machines round identically. */
#ifndef TALLY_SERVICES_ALGORITHMS_SERVER_OPTIMIZER_H
#define TALLY_SERVICES_ALGORITHMS_SERVER_OPTIMIZER_H

#include "services/algorithms/algorithm.h"

enum tally_server_optimizer_type { TALLY_SERVER_SGD, TALLY_FEDAVGM, TALLY_FEDADAM, TALLY_FEDYOGI };

extern const char *const TALLY_SERVER_OPTIMIZER_NAMES[]; /* NULL-terminated */

/* One row per type: the fields of its JSON object, besides "type". */
struct tally_server_optimizer_kind {
    const struct tally_field *fields; /* of struct tally_server_optimizer */
    size_t n_fields;
};
extern const struct tally_server_optimizer_kind TALLY_SERVER_OPTIMIZER_KINDS[];

/* Defaults for what a document omits: beta1 0.9, beta2 0.99, tau 0.001. */
struct tally_server_optimizer tally_server_optimizer_defaults(void);

/* Whether a job has a server optimizer. */
bool tally_server_optimizer_is_set(const struct tally_server_optimizer *optimizer);

/* Replaces the mean differences D of n coordinates, from `first` on, by the steps. Updates the
 * coordinates' m and v in `memory`, so it must be called once per round and coordinate. */
void tally_server_optimizer_steps(const struct tally_setting *setting, void *memory, size_t first,
                                  size_t n, double *differences);

/* The `memory` slots: 0 bytes without an optimizer or with sgd. */
size_t tally_server_optimizer_bytes(const struct tally_setting *setting);
void tally_server_optimizer_begin(const struct tally_setting *setting, const double *x,
                                  int64_t opening_samples, const char *schedule, void *memory);
/* Whether m and v are finite and v is not negative. */
bool tally_server_optimizer_is_valid(const struct tally_setting *setting, const void *memory);

#endif
