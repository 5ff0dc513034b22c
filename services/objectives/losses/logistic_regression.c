/* logistic_regression: phi(z, y) = log(1 + exp(-y z)), y = -1 or 1. */
#include "services/objectives/losses/linear_model.h"

/* In a form in which neither exponential overflows. */
static double value(double z, double y, const double *parameters)
{
    (void)parameters;
    const double margin = y * z;
    return margin > 0 ? log1p(exp(-margin)) : log1p(exp(margin)) - margin;
}

/* 1 / (1 + exp(t)) */
static double sigmoid_of_minus(double t)
{
    const double e = exp(-fabs(t));
    return t > 0 ? e / (1 + e) : 1 / (1 + e);
}

static double slope(double z, double y, const double *parameters)
{
    (void)parameters;
    return -y * sigmoid_of_minus(y * z);
}

static double curvature(double z, double y, const double *parameters)
{
    (void)y, (void)parameters;
    return sigmoid_of_minus(z) * sigmoid_of_minus(-z);
}

static const struct tally_scalar_loss LOGISTIC = {value, slope, curvature,
                                                  0.25,  0,     .is_square = false};
static const struct tally_field FIELDS[] = {TALLY_L2_FIELD, TALLY_BIAS_FIELD, TALLY_ACCURACY_FIELD};

const struct tally_objective_kind TALLY_OBJECTIVE_LOGISTIC_REGRESSION = {
    "logistic_regression",           TALLY_ROWS(FIELDS),
    .data = TALLY_DATA_SET_FILES,    .labels = TALLY_LABELS_BINARY,
    .make = tally_linear_model_make, .loss = &LOGISTIC,
};
