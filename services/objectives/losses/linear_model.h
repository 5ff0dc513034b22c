/* linear_model: makes objectives from a scalar loss phi(z, y), z = X_i . x (linear_model.c).
 *
 * A loss of this family consists of a file with phi, phi', phi'' and the bounds of phi'', and a
 * row in TALLY_OBJECTIVE_TABLE. logistic_regression.c is a short example. */
#ifndef TALLY_SERVICES_OBJECTIVES_LOSSES_LINEAR_MODEL_H
#define TALLY_SERVICES_OBJECTIVES_LOSSES_LINEAR_MODEL_H

#include "services/objectives/losses/loss_kind.h"

/* phi, convex in z, and its derivatives in z. `parameters` are those of the spec. */
struct tally_scalar_loss {
    double (*value)(double z, double y, const double *parameters);
    double (*slope)(double z, double y, const double *parameters);
    double (*curvature)(double z, double y, const double *parameters);
    double most_curvature, least_curvature; /* bounds of phi'' for all z; the solver needs them */
    bool is_square;                         /* phi is (z - y)^2, so that f is a quadratic form */
};

/* The `make` of every kind that has a `loss`. */
tally_objective_make_fn tally_linear_model_make;

#endif
