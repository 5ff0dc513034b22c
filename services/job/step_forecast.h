/* step_forecast: the regret that a job can expect at a step size, by a recursion over the modes of
 * its probe (step_probe.h).
 *
 * Each mode of curvature lambda has a square A of the error that all clients share, and one N that
 * noise has put there. A client that makes K steps of length eta from the common point has, after k
 * of them, the noise W and the square D of the drift towards its own optimum:
 *
 *     E = sum over the modes of (1 - eta lambda)^2k (A + N) + W
 *     W <- (1 - eta lambda)^2 W + eta^2 share (noise + growth E)
 *     D = share spread u^2                                  u <- (1 - eta lambda) u + eta
 *     f(x_m) - f(x*) = 1/2 sum lambda ((1 - eta lambda)^2k (A + N) + W + D)
 *
 * The server makes S times the mean step of M clients:
 *
 *     r = 1 - S (1 - (1 - eta lambda)^K)      A <- r^2 A      N <- r^2 N + S^2 (W + Q) / M
 *
 * where Q is the error of a message (QSGD). If clients do not move, but send the mean of n
 * gradients at the common point, a round is a single step, with 1/n of the noise and growth,
 * and with no drift. A job of `ceal` follows the rule of its stages, with expected norms for those
 * that it measures. f is no quadratic, and A, N and W are expectations: the forecast is for
 * comparing step sizes, not for predicting a regret. */
#ifndef TALLY_SERVICES_JOB_STEP_FORECAST_H
#define TALLY_SERVICES_JOB_STEP_FORECAST_H

#include "services/job/step_probe.h"

/* Whether there is a recursion for the job's algorithm and its members. */
bool tally_forecast_knows(const struct tally_job_spec *spec);

/* The regret of one client; INFINITY if the job diverges. Rounds after the first 10,000 count as
 * the last of these. Precondition: tally_forecast_knows(). */
double tally_forecast_regret(const struct tally_job_spec *spec, const struct tally_probe *probe,
                             double step_size);

#endif
