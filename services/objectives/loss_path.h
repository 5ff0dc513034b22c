/* loss_path: the mean of f over a client's iterates, without evaluating f at every one.
 *
 * f is evaluated at every `every`-th step and at the last one, and interpolated linearly between
 * them. Several points are evaluated at a time, since they need only one matrix product. */
#ifndef TALLY_SERVICES_OBJECTIVES_LOSS_PATH_H
#define TALLY_SERVICES_OBJECTIVES_LOSS_PATH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/error.h"
#include "codec/numeric/wide_sum.h"
#include "services/objectives/objective.h"

struct tally_loss_path {
    const struct tally_objective *objective; /* borrowed */
    int64_t samples, every;
    size_t dim, capacity, n;
    double *points; /* double[capacity][dim]: visited but not yet evaluated */
    double *losses; /* double[capacity] */
    int64_t *steps; /* int64[capacity]: the step of each point */
    int64_t last_step;
    double last_loss;
    struct tally_wide_sum sum; /* of f over the steps up to last_step */
};

/* Starts a path of `samples` >= 1 steps. Returns false if memory ran out; even then,
 * tally_loss_path_fini() must be called. */
bool tally_loss_path_init(struct tally_loss_path *path, const struct tally_objective *objective,
                          int64_t samples, int64_t every);
void tally_loss_path_fini(struct tally_loss_path *path);

/* Records that the iterate of `step` is x, double[dim]. Steps are 0, 1, ... in order. Errors: those
 * of the objective. */
enum tally_status tally_loss_path_visit(struct tally_loss_path *path, int64_t step, const double *x,
                                        struct tally_error *err);
/* The mean over all steps; finite if all losses are. Precondition: the last step has been visited.
 * Errors: those of the objective. */
enum tally_status tally_loss_path_mean(struct tally_loss_path *path, double *ret_loss,
                                       struct tally_error *err);

#endif
