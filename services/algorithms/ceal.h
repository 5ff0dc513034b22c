/* ceal: the sequences of [1] section III that set a stage's sampling and resolution.
 *
 *     s_j     = ceil( c sigma^2 log(16 M j^2 / delta) 4^j / (M L^2) )
 *     tau_j   = 3 * 2^-(j+1) * L                              error of the server's estimate
 *     B_j     = min( 5 tau_{j-1}, L )                         bound on the gradient's norm
 *     G_j     = (4 sigma / sqrt(s_j)) (1 + sqrt( log(4 M j^2 / delta) / (2 d) ))   a client's error
 *     gamma_j = gamma0 sigma / sqrt(s_j)                      accuracy of uplink messages
 *     phi_j   = phi0 tau_j                                    accuracy of broadcasts
 *
 * Example: M = 10, sigma = 4.47, c = 0.1, no log factor, L = 1. Stage 3: s_3 = ceil(0.1 * 20 * 64 /
 * 10) = 13 samples, tau_3 = 3/16, B_3 = min(5 * 3/8, 1) = 1. Stage 4: s_4 = 52, tau_4 = 3/32, B_4 =
 * 15/16.
 *
 * Departs from [1]: the sequences are scaled by L (`gradient_bound`, 1 in [1]), c is a parameter
 * (40 in [1]), and the log factor of s_j can be switched off. The experiments of [1] cannot have
 * used that factor: already at j = 1 it requires more samples than their horizon. */
#ifndef TALLY_SERVICES_ALGORITHMS_CEAL_H
#define TALLY_SERVICES_ALGORITHMS_CEAL_H

#include "services/algorithms/algorithm.h"

struct tally_ceal_stage {
    int64_t samples;          /* s_j, at most INT64_C(1) << 53 */
    double threshold;         /* tau_j */
    double gradient_bound;    /* B_j */
    double client_error;      /* G_j */
    double uplink_accuracy;   /* gamma_j */
    double downlink_accuracy; /* phi_j */
};

/* The sequences at stage j >= 1 for M clients in d dimensions. */
struct tally_ceal_stage tally_ceal_stage(const struct tally_ceal_params *params, uint32_t clients,
                                         size_t dim, int64_t stage);

/* The opening round of a job whose sigma or gradient_bound is `auto` (ceal_opening.c). */

/* Whether sigma or gradient_bound must be estimated. */
bool tally_ceal_opens(const union tally_algorithm_params *params);

/* s_0: queries of the opening round. */
int64_t tally_ceal_opening_samples(uint32_t clients);

/* Client: makes plan->samples queries at x, and its message. Errors: NOT_FINITE, NO_MEMORY. */
enum tally_status tally_ceal_report(const struct tally_client_task *task,
                                    struct tally_scratch *scratch, struct tally_message *message,
                                    struct tally_error *err);

extern const struct tally_opening TALLY_CEAL_OPENING;

#endif
