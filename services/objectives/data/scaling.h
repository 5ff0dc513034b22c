/* scaling: fills missing values in with a column's mean, and standardizes the features.
 *
 *     x_j <- (x_j - m_j) / s_j
 *
 * m_j is the mean of feature j over the training points, and s_j^2 the mean of (x_j - m_j)^2.
 * Missing values, which are NaN, become the mean of the others first. A feature that is the same at
 * all training points stays as it is. Sums run over the points in the order of the file, so every
 * process that has the file gets the same numbers to the last bit. If each client has a file of its
 * own, the numbers come from surveys instead (survey.h). */
#ifndef TALLY_SERVICES_OBJECTIVES_DATA_SCALING_H
#define TALLY_SERVICES_OBJECTIVES_DATA_SCALING_H

#include "services/objectives/data/dataset.h"

struct tally_scaling {
    size_t features;  /* 0 = not fitted */
    double *fill;     /* double[features]: what missing values become */
    double *mean, *s; /* double[features]; 0 and 1 without standardization */
    uint32_t digest;  /* of numbers that were set; 0 = they were fitted */
};

/* Fits the scaling to the points of a dense dataset. `columns` has the names of the features for
 * messages, if it is not NULL. Errors: INVALID_ARGUMENT (a feature that is missing at all points,
 * or is too large to be squared), NO_MEMORY. */
enum tally_status tally_scaling_fit(struct tally_scaling *scaling,
                                    const struct tally_dataset *dataset, bool standardizes,
                                    const struct tally_columns *columns, struct tally_error *err);
/* The same from numbers that are known, double[3][features]: fill, mean, s. Errors: NO_MEMORY. */
enum tally_status tally_scaling_set(struct tally_scaling *scaling, const double *numbers,
                                    size_t features, struct tally_error *err);
/* A digest of such numbers, in [1, 2^28), so that it takes at most four bytes as a varint. */
uint32_t tally_scaling_digest(const double *numbers, size_t features);
/* Precondition: the scaling is fitted, to points with as many features. */
void tally_scaling_apply(const struct tally_scaling *scaling, struct tally_dataset *dataset);
void tally_scaling_fini(struct tally_scaling *scaling);

#endif
