#include "services/objectives/solve/eigenvalues.h"

#include <math.h>
#include <stdlib.h>

#include "codec/numeric/rng.h"
#include "codec/numeric/vector.h"

/* T = Q^T A Q: diagonal[i] = T_ii, beside[i] = T_(i+1)i. */
struct tridiagonal {
    size_t dim;
    double *diagonal, *beside;
};

/* v <- the unit vector whose reflection maps the part of column k below the diagonal to a multiple
 * of the first unit vector. Returns that multiple. v is zero if there is nothing to reflect. */
static double reflector(const double *a, size_t dim, size_t k, double *v)
{
    const size_t n = dim - k - 1;
    double rest = 0;
    for (size_t i = 0; i < n; i++) {
        v[i] = a[(k + 1 + i) * dim + k];
        rest += i > 0 ? v[i] * v[i] : 0;
    }
    const double first = v[0];
    const double length_a = sqrt(first * first + rest);
    const double multiple = first > 0 ? -length_a : length_a;
    if (!(rest > 0)) {
        for (size_t i = 0; i < n; i++) {
            v[i] = 0;
        }
        return first;
    }
    v[0] -= multiple;
    const double length = sqrt(rest + v[0] * v[0]);
    for (size_t i = 0; i < n; i++) {
        v[i] /= length;
    }
    return multiple;
}

/* The block B below and right of (k, k) becomes (I - 2 v v^T) B (I - 2 v v^T). */
static void reflect(double *a, size_t dim, size_t k, const double *v, double *w)
{
    const size_t n = dim - k - 1;
    double *block = a + (k + 1) * dim + k + 1;
    for (size_t i = 0; i < n; i++) {
        w[i] = 0;
    }
    for (size_t i = 0; i < n; i++) {
        const double *row = block + i * dim;
        for (size_t j = 0; j < i; j++) {
            w[i] += row[j] * v[j];
            w[j] += row[j] * v[i];
        }
        w[i] += row[i] * v[i];
    }
    const double inner = tally_vector_dot(v, w, n);
    for (size_t i = 0; i < n; i++) {
        w[i] = 2 * (w[i] - inner * v[i]);
    }
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j <= i; j++) {
            block[i * dim + j] -= v[i] * w[j] + w[i] * v[j];
        }
    }
}

static void make_tridiagonal(double *a, struct tridiagonal *t, double *v, double *w)
{
    const size_t dim = t->dim;
    for (size_t k = 0; k + 1 < dim; k++) {
        t->beside[k] = reflector(a, dim, k, v);
        reflect(a, dim, k, v, w);
    }
    for (size_t k = 0; k < dim; k++) {
        t->diagonal[k] = a[k * dim + k];
    }
}

/* The number of eigenvalues below x: the negative pivots of T - x I. */
static size_t n_below(const struct tridiagonal *t, double x, double tiny)
{
    size_t n = 0;
    double pivot = 1;
    for (size_t i = 0; i < t->dim; i++) {
        const double beside = i > 0 ? t->beside[i - 1] : 0;
        pivot = t->diagonal[i] - x - beside * beside / pivot;
        if (fabs(pivot) < tiny) {
            pivot = -tiny; /* a zero pivot would divide the next one */
        }
        n += pivot < 0;
    }
    return n;
}

/* The eigenvalue, between low and high, that has `below` others below it. */
static double bisect(const struct tridiagonal *t, size_t below, double low, double high,
                     double tiny)
{
    for (int step = 0; step < 100; step++) { /* ends much earlier, at neighbouring numbers */
        const double middle = low + (high - low) / 2;
        if (middle <= low || middle >= high) {
            break;
        }
        if (n_below(t, middle, tiny) > below) {
            high = middle;
        } else {
            low = middle;
        }
    }
    return low + (high - low) / 2;
}

bool tally_eigenvalues_range(double *a, size_t dim, double *ret_smallest, double *ret_largest)
{
    double *room = calloc(4 * dim, sizeof *room);
    if (room == NULL) {
        return false;
    }
    struct tridiagonal t = {.dim = dim, .diagonal = room, .beside = room + dim};
    make_tridiagonal(a, &t, room + 2 * dim, room + 3 * dim);
    double bound = 0; /* Gershgorin's, of absolute values */
    for (size_t i = 0; i < dim; i++) {
        const double left = i > 0 ? fabs(t.beside[i - 1]) : 0;
        bound = fmax(bound, left + fabs(t.diagonal[i]) + fabs(t.beside[i]));
    }
    const double tiny = fmax(1e-300, 1e-18 * bound);
    bound *= 1 + 1e-12;
    *ret_smallest = bisect(&t, 0, -bound, bound, tiny);
    *ret_largest = bisect(&t, dim - 1, -bound, bound, tiny);
    free(room);
    return true;
}

double tally_eigenvalues_largest(size_t dim, double trace,
                                 void (*times)(void *context, const double *v, double *ret_product),
                                 void *context, const atomic_bool *stop)
{
    enum { MOST_STEPS = 100 };
    double *v = malloc(dim * sizeof *v), *next = malloc(dim * sizeof *next);
    double eigenvalue = NAN;
    struct tally_rng rng; /* for a random start: equal entries may be orthogonal to eigenvectors */
    tally_rng_init(&rng, tally_rng_key(0, 0), TALLY_RNG_SERVER, 0, TALLY_RNG_NOISE);
    if (v != NULL && next != NULL) {
        tally_rng_direction(&rng, 1, v, dim);
        for (int step = 0; step < MOST_STEPS; step++) {
            if (stop != NULL && atomic_load(stop)) {
                eigenvalue = NAN;
                break;
            }
            times(context, v, next);
            const double before = eigenvalue;
            eigenvalue = tally_vector_norm(next, dim);
            if (!(eigenvalue > 0) || fabs(eigenvalue - before) < 1e-5 * eigenvalue) {
                break;
            }
            for (size_t i = 0; i < dim; i++) {
                v[i] = next[i] / eigenvalue;
            }
        }
    }
    free(v);
    free(next);
    return eigenvalue < INFINITY ? fmin(1.05 * eigenvalue, trace) : NAN;
}
