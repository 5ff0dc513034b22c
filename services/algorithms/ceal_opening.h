/* ceal_opening: the first round of a CEAL job whose sigma or L is "auto".
 *
 * Idea: CEAL chooses its samples and grids from the noise sigma and the gradient bound L. Both can
 * be measured at the start point with a few dozen gradients, whose variance is sigma^2 and whose
 * mean is the gradient. A client sends one or two numbers:
 *
 *     | v_m: float32, if sigma is auto | n_m: float32, if L is auto |
 *
 * Every client queries x^(1) s_0 times and sends, as float32, the sample variance v_m of its
 * gradients (if sigma is auto) and the norm n_m of their mean (if L is). From the messages of the N
 * clients that answered the server concludes
 *
 *     sigma^2 = (1/N) sum v_m
 *     u       = max(0, (1/N) sum n_m^2 - sigma^2 / s_0)
 *     e^2     = ( 4 u sigma^2 / (d s_0) + 2 sigma^4 / (d s_0 (s_0 - 1)) ) / N
 *     L       = 2 sqrt( u + 2 e )
 *
 * Example: M = 8, s_0 = 8, d = 30, all v_m = 2 and all n_m^2 = 1.25. sigma^2 = 2; u = 1.25 - 2/8 =
 * 1; e^2 = (4 * 2 / 240 + 2 * 4 / (240 * 7)) / 8 = 0.0048; L = 2 sqrt(1 + 2 * 0.069) = 2.13.
 *
 * v_m is unbiased for E|G - grad f_m|^2, which is what sigma^2 bounds in [1] section II. The mean
 * of s_0 noisy gradients is longer than the gradient by sigma^2 / s_0 in the square, which u takes
 * out again; e is the standard error of u where the noise is as [1] has it, sigma^2 / d in every
 * direction, and 2 e above u the gradient is within in 19 cases of 20. The factor 2 is for what
 * comes later: gradients grow shorter along a descent, but noisy steps may lead up. (It is cheap:
 * the stage whose threshold a gradient of norm L / 2 passes is one higher, the same samples.)
 *
 * s_0 = max(8, ceil(64 / M)): of 64 queries in all, sigma^2 has a relative error of 1 / sqrt(28 d)
 * under Gaussian noise as [1] has it, and of a fifth where all of it is in one direction.
 *
 * Both are rounded to float32 and cost the downlink 32 bits each, counted as control: a client
 * cannot compute s_j and its quantizer without them.
 *
 * Left out: estimates along the way. They would change the stages of a running job, and [1]'s
 * sequences are fixed. */
#ifndef TALLY_SERVICES_ALGORITHMS_CEAL_OPENING_H
#define TALLY_SERVICES_ALGORITHMS_CEAL_OPENING_H

#include "services/algorithms/algorithm.h"

/* Whether sigma or gradient_bound is to be estimated. */
bool tally_ceal_opens(const union tally_algorithm_params *params);

/* s_0. */
int64_t tally_ceal_opening_samples(uint32_t clients);

/* Client: queries x plan->samples times and makes its message. Errors: NOT_FINITE, NO_MEMORY. */
enum tally_status tally_ceal_report(const struct tally_client_task *task,
                                    struct tally_scratch *scratch, struct tally_message *message,
                                    struct tally_error *err);

extern const struct tally_opening TALLY_CEAL_OPENING;

#endif
