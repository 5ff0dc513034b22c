/* huber_regression: phi(z, y) = (z - y)^2 if |z - y| <= threshold, otherwise the line
 * 2 threshold |z - y| - threshold^2 (Huber 1964). */
#include "services/objectives/losses/linear_model.h"

enum { THRESHOLD }; /* index in the parameters */

static double value(double z, double y, const double *parameters)
{
    const double residual = fabs(z - y), threshold = parameters[THRESHOLD];
    return residual <= threshold ? residual * residual : threshold * (2 * residual - threshold);
}

static double slope(double z, double y, const double *parameters)
{
    return 2 * fmax(-parameters[THRESHOLD], fmin(parameters[THRESHOLD], z - y));
}

static double curvature(double z, double y, const double *parameters)
{
    return fabs(z - y) <= parameters[THRESHOLD] ? 2 : 0;
}

static const struct tally_scalar_loss HUBER = {value, slope, curvature, 2, 0, .is_square = false};
static const struct tally_field FIELDS[] = {
    TALLY_L2_FIELD,
    TALLY_BIAS_FIELD,
    TALLY_POSITIVE("threshold", TALLY_OBJECTIVE_MEMBER(parameters[THRESHOLD]), 1e9,
                   .unit = "residual", .doc = "residual above which the loss is linear"),
};

const struct tally_objective_kind TALLY_OBJECTIVE_HUBER_REGRESSION = {
    "huber_regression",
    TALLY_ROWS(FIELDS),
    .data = TALLY_DATA_SET_POINTS,
    .labels = TALLY_LABELS_REAL,
    .parameters[THRESHOLD] = 1.345, /* 95 % efficient for normal noise of standard deviation 1 */
    .make = tally_linear_model_make,
    .loss = &HUBER,
};
