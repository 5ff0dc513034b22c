/* vector: sums over double[n], one term after the other in index order.
 *
 * The order is part of the contract: the compiler may not reorder floating-point sums, and nothing
 * here goes through BLAS, so that every machine computes the same bits. cblas_ddot() is several
 * times faster on long vectors, but its last digits depend on the processor. */
#ifndef TALLY_CODEC_NUMERIC_VECTOR_H
#define TALLY_CODEC_NUMERIC_VECTOR_H

#include <math.h>
#include <stddef.h>

/* a . b */
static inline double tally_vector_dot(const double *a, const double *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

/* |a|, the Euclidean norm. */
static inline double tally_vector_norm(const double *a, size_t n)
{
    return sqrt(tally_vector_dot(a, a, n));
}

#endif
