/* cholesky: symmetric positive definite systems of linear equations, A = L L^T. Matrices are
 * double[dim][dim] of which the lower triangle alone is looked at. */
#ifndef TALLY_SERVICES_OBJECTIVES_SOLVE_CHOLESKY_H
#define TALLY_SERVICES_OBJECTIVES_SOLVE_CHOLESKY_H

#include <stdbool.h>
#include <stddef.h>

/* L in place of A; false if A is not safely positive definite: then A is spoilt. */
bool tally_cholesky_factor(double *a, size_t dim);
/* Solves L L^T x = b in place of b, double[dim]. */
void tally_cholesky_solve(const double *l, size_t dim, double *b);

#endif
