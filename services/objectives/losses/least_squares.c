/* least_squares: phi(z, y) = (z - y)^2 ([1] section V, linear regression). */
#include "services/objectives/losses/linear_model.h"

static double value(double z, double y, const double *parameters)
{
    (void)parameters;
    const double residual = z - y;
    return residual * residual;
}

static double slope(double z, double y, const double *parameters)
{
    (void)parameters;
    return 2 * (z - y);
}

static double curvature(double z, double y, const double *parameters)
{
    (void)z, (void)y, (void)parameters;
    return 2;
}

static const struct tally_scalar_loss SQUARE = {value, slope, curvature, 2, 2, .is_square = true};
static const struct tally_field FIELDS[] = {TALLY_L2_FIELD, TALLY_BIAS_FIELD};

const struct tally_objective_kind TALLY_OBJECTIVE_LEAST_SQUARES = {
    "least_squares",
    TALLY_ROWS(FIELDS),
    .data = TALLY_DATA_SET_POINTS,
    .labels = TALLY_LABELS_REAL,
    .make = tally_linear_model_make,
    .loss = &SQUARE,
};
