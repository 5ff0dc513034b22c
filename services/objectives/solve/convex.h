/* convex: the minimum of a smooth convex function, over all of R^d or a domain.
 *
 * Idea: f(x*) is subtracted from every loss of a job, so it must be right to many digits, for any
 * data, without a parameter to tune. Newton's method gives the digits; damping makes it safe far
 * from the minimum; a projected gradient method serves where the domain ends before the minimum.
 *
 *     R^d       Newton, damped ------------------------------> x*
 *     domain    Newton over R^d --- x* inside? -- yes ---------> x*
 *                                        no  -- projected gradients --> x*
 *
 * Over R^d it is Newton's method with Levenberg and Marquardt's damping: a step d solves
 *
 *     (H + damping D) d = -g,     D >= the diagonal of H at every point
 *
 * by Cholesky's factor where H is small enough to be had, else by conjugate gradients
 * preconditioned with D. D takes the scale out of the coordinates, so that raw columns of a table,
 * whose lengths differ by factors of thousands, do no harm. The damping grows when a step brings
 * less than its quadratic model promised (the kinks of Huber's loss) and is zero near the minimum,
 * where steps converge quadratically.
 *
 * In a domain that does not hold that minimum it is the accelerated projected gradient method with
 * restarts (Beck, Teboulle 2009; O'Donoghue, Candes 2015), whose momentum starts again from zero
 * whenever it leads uphill; it needs no knowledge of strong convexity.
 *
 * Example: f(x) = log(1 + e^x) - x / 4, D = 1/4, from x = 0. The steps lead to -1, -1.0963,
 * -1.0986110, -1.098612288668: x* = -log 3, with twice as many correct digits after each.
 *
 * The end is |g| <= 1e-8 scale, where g is the gradient, or in a domain the gradient mapping
 * smoothness (x - P(x - g / smoothness)); and that Newton's next step would change next to nothing:
 * the gradient of a function without a minimum, like that of logistic regression on separable
 * classes, falls below any bound on a way that never ends.
 *
 * Left out: L-BFGS, which needs hundreds of passes over the data where the columns have different
 * lengths, and its last digits depend on the order of all of them; line searches, which stop short
 * of 1e-8 in f's rounding. */
#ifndef TALLY_SERVICES_OBJECTIVES_SOLVE_CONVEX_H
#define TALLY_SERVICES_OBJECTIVES_SOLVE_CONVEX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "codec/base/error.h"
#include "services/objectives/solve/domain.h"

struct tally_convex {
    size_t dim;
    const double *diagonal; /* D, double[dim]; zero where f does not depend on the coordinate */
    double smoothness;      /* upper bound of the eigenvalues of H, only for domains */
    double scale;           /* what a gradient is small against, > 0 */
    bool has_small_hessian; /* dim of hessian_times() and dim^3 operations are cheap */
    void *context;
    /* f(x), and its gradient (double[dim]); what hessian_times() needs of x is kept. */
    double (*evaluate)(void *context, const double *x, double *ret_gradient);
    /* H v at the point of the last evaluate(). NULL: only for domains; then there is no diagonal
     * either. */
    void (*hessian_times)(void *context, const double *v, double *ret_product);
};

/* x, double[dim], becomes the minimum over `domain` (NULL: all of R^d), and *ret_f is f there; the
 * search starts at 0. Gives up once *stop is set, which may be NULL. Errors: FAILED_PRECONDITION
 * (f has no minimum or it was not reached), CANCELLED, NO_MEMORY. */
enum tally_status tally_convex_minimise(const struct tally_convex *f,
                                        const struct tally_domain *domain, const atomic_bool *stop,
                                        double *x, double *ret_f, struct tally_error *err);

/* The same as an objective's answer: f(x*) and, unless NULL, x* (double[dim]), which on failure
 * stay as they were. */
enum tally_status tally_convex_minimum(const struct tally_convex *f,
                                       const struct tally_domain *domain, const atomic_bool *stop,
                                       double *ret_f_star, double *ret_x_star,
                                       struct tally_error *err);

#endif
