/* step_probe: what the objective of a job is like around its initial point, measured with a bounded
 * number of gradients of its own data.
 *
 * Idea: f is taken for a quadratic, whose error e = x^(1) - x* has modes of curvatures lambda_i. A
 * product H v is a difference of gradients of the same points at x and x + epsilon v, so any
 * objective with gradients can be probed.
 *
 *     x*       Newton's method in Krylov subspaces: Lanczos iteration from g = grad f(x), with the
 *              basis V and the tridiagonal matrix T; x <- x - V T^-1 V' g, a few times
 *     modes    Lanczos iteration from e at the middle between x^(1) and x*: lambda_i and e_i^2,
 *              whose sum is |e|^2
 *
 * (Golub, Meurant, Matrices, Moments and Quadrature: lambda_i and e_i^2 are the nodes and weights
 * of Gauss's formula for the spectral measure of e.) At x*, and with the same draws a little nearer
 * to x^(1), single points are queried: the variance of their gradients is the noise of a query at
 * x*, and that of the differences shows how it grows with the distance from x*. A second iteration
 * at the middle, from a sum of these deviations with random signs, gives the curvatures of the
 * directions in which there is noise; a third, from a vector of random signs, those of the errors
 * of quantized messages. */
#ifndef TALLY_SERVICES_JOB_STEP_PROBE_H
#define TALLY_SERVICES_JOB_STEP_PROBE_H

#include <stdatomic.h>

#include "services/job/job_spec.h"

enum {
    TALLY_PROBE_MOST_DIM = 100000, /* of an objective that is probed */
    TALLY_PROBE_ITERATIONS = 12,   /* of Lanczos */
    TALLY_PROBE_MODES = 3 * TALLY_PROBE_ITERATIONS
};

struct tally_probe {
    size_t n; /* modes */
    struct {
        double curvature; /* lambda > 0 */
        double square;    /* of the error x - x* in this mode */
        double share;     /* of the noise; the shares of all modes have the sum 1, or are all 0 */
        double even;      /* the same of a vector that has no preferred direction */
    } modes[TALLY_PROBE_MODES];
    double smoothness; /* the largest curvature */
    double noise;      /* variance of a gradient query at x*, summed over the coordinates */
    double growth;     /* the same, per squared distance from x* */
    double spread;     /* mean square of the clients' own gradients at x* */
};

/* Probes the objective of a valid spec at x, double[dim], with dim at most TALLY_PROBE_MOST_DIM.
 * Deterministic. At most some 10^9 operations. Stops once *stop is set; `stop` may be NULL. Errors:
 * FAILED_PRECONDITION (f has no curvature there, its gradients are not finite, or the objective
 * cannot answer), CANCELLED, NO_MEMORY. */
enum tally_status tally_probe_measure(const struct tally_job_spec *spec,
                                      const struct tally_objective *objective, const double *x,
                                      const atomic_bool *stop, struct tally_probe *ret_probe,
                                      struct tally_error *err);

#endif
