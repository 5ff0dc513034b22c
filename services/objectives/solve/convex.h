/* convex: the minimum of a smooth convex function, over all of R^d or a domain.
 *
 * Idea: f(x*) is subtracted from every loss of a job, so it must be accurate to many digits for any
 * data, without a parameter to tune. Newton's method gives the digits, damping makes it safe far
 * from the minimum, and a projected gradient method is used if the minimum is outside the domain.
 *
 *     R^d       Newton, damped ------------------------------> x*
 *     domain    Newton over R^d --- x* inside? -- yes ---------> x*
 *                                        no  -- projected gradients --> x*
 *
 * Over R^d it is Newton's method with Levenberg and Marquardt's damping: a step d solves
 *
 *     (H + damping D) d = -g,     D >= the diagonal of H at every point
 *
 * by a Cholesky factorisation if H is small enough to compute, otherwise by conjugate gradients
 * preconditioned with D. D removes the scale of the coordinates, so raw columns of a table, whose
 * lengths may differ by factors of thousands, do no harm. The damping grows when a step gains less
 * than its quadratic model predicts (as at the kinks of Huber's loss) and is zero near the minimum,
 * where steps converge quadratically.
 *
 * In a domain that does not contain that minimum it is the accelerated projected gradient method
 * with restarts (Beck, Teboulle 2009; O'Donoghue, Candes 2015), whose momentum is reset to zero
 * whenever it leads uphill. It needs no knowledge of strong convexity.
 *
 * Example: f(x) = log(1 + e^x) - x / 4, D = 1/4, from x = 0. The steps lead to -1, -1.0963,
 * -1.0986110, -1.098612288668: x* = -log 3, with twice as many correct digits after each.
 *
 * The search ends when |g| <= 1e-8 scale, where g is the gradient or, in a domain, the gradient
 * mapping smoothness (x - P(x - g / smoothness)), and when Newton's next step would change almost
 * nothing. The second condition is needed because the gradient of a function without a minimum,
 * such as logistic regression on separable classes, falls below any bound while x diverges.
 *
 * Left out: L-BFGS, which needs hundreds of passes over the data if the columns have different
 * lengths, and whose last digits depend on the order of these passes; line searches, which the
 * rounding of f stops short of 1e-8. */
#ifndef TALLY_SERVICES_OBJECTIVES_SOLVE_CONVEX_H
#define TALLY_SERVICES_OBJECTIVES_SOLVE_CONVEX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "codec/error.h"
#include "services/objectives/solve/domain.h"

struct tally_convex {
    size_t dim;
    const double *diagonal; /* D, double[dim]; zero where f does not depend on the coordinate */
    double smoothness;      /* upper bound of the eigenvalues of H, only for domains */
    double scale;           /* what a gradient is small against, > 0 */
    bool has_small_hessian; /* dim calls of hessian_times() and dim^3 operations are cheap */
    void *context;
    /* f(x), and its gradient (double[dim]); what hessian_times() needs of x is kept. */
    double (*evaluate)(void *context, const double *x, double *ret_gradient);
    /* H v at the point of the last evaluate(). NULL: only for domains; then there is no diagonal
     * either. */
    void (*hessian_times)(void *context, const double *v, double *ret_product);
};

/* Sets x, double[dim], to the minimum over `domain` (NULL: all of R^d) and *ret_f to f at x. The
 * search starts at 0 and ends once *stop is set (`stop` may be NULL). Errors: FAILED_PRECONDITION
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
