/* eigenvalues: the ends of the spectrum of a symmetric matrix.
 *
 * Householder reflections make the matrix tridiagonal, which costs 4/3 dim^3 operations; Sturm's
 * sequence counts the eigenvalues below a number, and bisection closes in on the first and the
 * last. (Golub, Van Loan, Matrix Computations, sections 8.3 and 8.4.) */
#ifndef TALLY_SERVICES_OBJECTIVES_SOLVE_EIGENVALUES_H
#define TALLY_SERVICES_OBJECTIVES_SOLVE_EIGENVALUES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* The smallest and the largest eigenvalue of A, double[dim][dim] whose lower triangle counts and is
 * spoilt; right to a few dim units of rounding of the largest in absolute value. The values are
 * finite. False when memory ran out. */
bool tally_eigenvalues_range(double *a, size_t dim, double *ret_smallest, double *ret_largest);

/* An upper estimate of the largest eigenvalue of a positive semidefinite operator: power iteration
 * from a random point, plus 5 %, which makes up for what it has not reached; at most `trace`, which
 * is a bound. times() writes A v. Gives up (NAN) once *stop is set, which may be NULL, and when
 * memory ran out. */
double tally_eigenvalues_largest(size_t dim, double trace,
                                 void (*times)(void *context, const double *v, double *ret_product),
                                 void *context, const atomic_bool *stop);

#endif
