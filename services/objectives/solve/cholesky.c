#include "services/objectives/solve/cholesky.h"

#include <math.h>

#include "codec/numeric/vector.h"

bool tally_cholesky_factor(double *a, size_t dim)
{
    for (size_t j = 0; j < dim; j++) {
        double diagonal = a[j * dim + j];
        double pivot = diagonal - tally_vector_dot(a + j * dim, a + j * dim, j);
        if (!(pivot > 1e-12 * diagonal)) { /* rank deficient up to rounding */
            return false;
        }
        pivot = sqrt(pivot);
        a[j * dim + j] = pivot;
        for (size_t i = j + 1; i < dim; i++) {
            a[i * dim + j] =
                (a[i * dim + j] - tally_vector_dot(a + i * dim, a + j * dim, j)) / pivot;
        }
    }
    return true;
}

void tally_cholesky_solve(const double *l, size_t dim, double *b)
{
    for (size_t j = 0; j < dim; j++) {
        b[j] = (b[j] - tally_vector_dot(l + j * dim, b, j)) / l[j * dim + j];
    }
    for (size_t j = dim; j-- > 0;) {
        for (size_t i = j + 1; i < dim; i++) {
            b[j] -= l[i * dim + j] * b[i];
        }
        b[j] /= l[j * dim + j];
    }
}
