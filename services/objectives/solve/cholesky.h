/* cholesky: symmetric positive definite systems of linear equations, A = L L^T. Matrices are
 * double[dim][dim], of which only the lower triangle is read.
 *
 * LAPACK is 6 to 14 times faster at dimension 500 to 1000, but its last digits depend on the
 * processor. Ours do not, so f(x*), and thus the regret of a job, is the same on every machine. */
#ifndef TALLY_SERVICES_OBJECTIVES_SOLVE_CHOLESKY_H
#define TALLY_SERVICES_OBJECTIVES_SOLVE_CHOLESKY_H

#include <stdbool.h>
#include <stddef.h>

/* Replaces A by L. False if A is not safely positive definite; then A is undefined. */
bool tally_cholesky_factor(double *a, size_t dim);
/* Solves L L^T x = b in place: b, double[dim], becomes x. */
void tally_cholesky_solve(const double *l, size_t dim, double *b);

#endif
