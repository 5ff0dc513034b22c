/* objective_checks: exact gradients of an objective, computed from its single points, for tests. */
#ifndef TALLY_TESTS_UNIT_SERVICES_OBJECTIVES_OBJECTIVE_CHECKS_H
#define TALLY_TESTS_UNIT_SERVICES_OBJECTIVES_OBJECTIVE_CHECKS_H

#include "services/objectives/objective.h"

enum { CHECKS_MOST_DIM = 64 };

/* The gradient at point `index` of a shard of `size`. */
void checks_point_gradient(const struct tally_objective *objective, uint32_t client, uint32_t size,
                           uint32_t index, const double *x, double *ret_gradient);
/* The gradient of f_m: the mean over the shard. */
void checks_shard_gradient(const struct tally_objective *objective, uint32_t points,
                           uint32_t client, const double *x, double *ret_gradient);
/* The gradient of f: the mean over clients. */
void checks_full_gradient(const struct tally_objective *objective, uint32_t points, const double *x,
                          double *ret_gradient);
double checks_full_loss(const struct tally_objective *objective, const double *x);
double checks_norm(const double *v, size_t n);
double checks_distance(const double *a, const double *b, size_t n);

#endif
