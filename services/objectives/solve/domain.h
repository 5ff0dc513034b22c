/* domain: the convex set X that contains a job's points, and the projection onto it.
 *
 *     whole   R^d
 *     ball    |x| <= radius, the Euclidean norm, around 0
 *     box     lower <= x_i <= upper, the same for every coordinate
 *
 * [1] takes X to be compact and its algorithms never leave it. Here a step that leads out of X is
 * followed by the Euclidean projection, by every client and by the server alike. Norms are summed
 * in index order and nothing goes through BLAS, so that all machines agree bit for bit. */
#ifndef TALLY_SERVICES_OBJECTIVES_SOLVE_DOMAIN_H
#define TALLY_SERVICES_OBJECTIVES_SOLVE_DOMAIN_H

#include <stdbool.h>
#include <stddef.h>

#include "codec/error.h"
#include "codec/field.h"

enum tally_domain_type { TALLY_DOMAIN_WHOLE, TALLY_DOMAIN_BALL, TALLY_DOMAIN_BOX };

/* Zeroed, it is the whole space. */
struct tally_domain {
    int type;            /* enum tally_domain_type */
    double radius;       /* of BALL, > 0 */
    double lower, upper; /* of BOX, lower < upper */
};

extern const char *const TALLY_DOMAIN_NAMES[]; /* NULL-terminated */

/* One row per type: the fields of its JSON object, besides "type". */
struct tally_domain_kind {
    const struct tally_field *fields; /* of struct tally_domain */
    size_t n_fields;
};
extern const struct tally_domain_kind TALLY_DOMAIN_KINDS[];

/* Checks what the field tables cannot. Errors: INVALID_ARGUMENT, with the field's path below
 * "domain". */
enum tally_status tally_domain_validate(const struct tally_domain *domain, struct tally_error *err);

/* Whether the domain is less than the whole space; NULL is the whole space. */
bool tally_domain_is_bounded(const struct tally_domain *domain);

/* Replaces x, double[dim], by the nearest point of the domain, which is inside. A point that is
 * inside is unchanged bit for bit. A NaN stays NaN, and a ball leaves a point whose norm overflows
 * unchanged: such a point diverged, which the caller must detect. */
void tally_domain_project(const struct tally_domain *domain, double *x, size_t dim);

/* Whether x is inside; false for NaN, unless the domain is the whole space. */
bool tally_domain_is_inside(const struct tally_domain *domain, const double *x, size_t dim);

#endif
