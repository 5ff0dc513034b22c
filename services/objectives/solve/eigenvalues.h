/* eigenvalues: the ends of the spectrum of a symmetric matrix.
 *
 * Idea: only the smallest and the largest eigenvalue are needed, the bounds of the curvature. It is
 * enough to count how many eigenvalues lie below a number (Golub, Van Loan, Matrix Computations,
 * sections 8.3 and 8.4):
 *
 *     1. Householder reflections: A = Q T Q^T, T tridiagonal       4/3 dim^3 operations
 *
 *            x x x x        x x . .
 *            x x x x   ->   x x x .
 *            x x x x        . x x x
 *            x x x x        . . x x
 *
 *     2. Sturm: the pivots of T - x I,  p_1 = t_11 - x,  p_i = t_ii - x - t_i(i-1)^2 / p_(i-1);
 *        as many are negative as T has eigenvalues below x               dim operations
 *     3. bisection between Gershgorin's bounds for the first and the last  about 60 counts each
 *
 * Example: T = [2 1; 1 2]. At x = 2.5 the pivots are -0.5 and -0.5 + 2 = 1.5: one eigenvalue, 1, is
 * below 2.5, and 3 is above.
 *
 * Left out: LAPACK. It is 6 to 14 times faster at dimension 500 to 1000, but its last digits depend
 * on the processor, and ours do not: the curvature of a job is the same on every machine. */
#ifndef TALLY_SERVICES_OBJECTIVES_SOLVE_EIGENVALUES_H
#define TALLY_SERVICES_OBJECTIVES_SOLVE_EIGENVALUES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* The smallest and the largest eigenvalue of A, double[dim][dim]. Only the lower triangle of A is
 * read, and A is undefined afterwards. The error is a few dim units of rounding of the eigenvalue
 * that is largest in absolute value. Precondition: the values of A are finite. False when memory
 * ran out. */
bool tally_eigenvalues_range(double *a, size_t dim, double *ret_smallest, double *ret_largest);

/* An upper estimate of the largest eigenvalue of a positive semidefinite operator: power iteration
 * from a random point, plus 5 % for incomplete convergence, and at most `trace`, which is a bound.
 * times() writes A v. Returns NAN once *stop is set (`stop` may be NULL), and when memory ran out.
 */
double tally_eigenvalues_largest(size_t dim, double trace,
                                 void (*times)(void *context, const double *v, double *ret_product),
                                 void *context, const atomic_bool *stop);

#endif
