/* loss_path: the mean of f along a client's walk, without evaluating f at every point.
 *
 * Points are evaluated every `every` steps and at the last one, several at a time because that is
 * one matrix product, and f is taken to be linear in between. */
#ifndef TALLY_SERVICES_OBJECTIVES_LOSS_PATH_H
#define TALLY_SERVICES_OBJECTIVES_LOSS_PATH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/base/error.h"
#include "services/objectives/objective.h"

struct tally_loss_path {
    const struct tally_objective *objective; /* borrowed */
    int64_t samples, every;
    size_t dim, capacity, n;
    double *points; /* double[capacity][dim]: visited, not evaluated yet */
    double *losses; /* double[capacity] */
    int64_t *steps; /* int64[capacity]: the step that each point belongs to */
    int64_t last_step;
    double last_loss;
    double sum; /* of f over the steps up to last_step */
};

/* For a walk of `samples` >= 1 steps. False: no memory; tally_loss_path_fini() is needed all the
 * same. */
bool tally_loss_path_init(struct tally_loss_path *path, const struct tally_objective *objective,
                          int64_t samples, int64_t every);
void tally_loss_path_fini(struct tally_loss_path *path);

/* The walk is at x, double[dim], in step 0, 1, ... Errors: those of the objective. */
enum tally_status tally_loss_path_visit(struct tally_loss_path *path, int64_t step, const double *x,
                                        struct tally_error *err);
/* The mean over all steps, after the last one was visited. Errors: those of the objective. */
enum tally_status tally_loss_path_mean(struct tally_loss_path *path, double *ret_loss,
                                       struct tally_error *err);

#endif
