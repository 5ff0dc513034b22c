/* softmax: declarations shared by the two forms of softmax regression (softmax_regression.c), and
 * the loss of one point, computed from its logits.
 *
 *     z_y + log sum_k exp(-z_k),     z_k = X . W_k     ([1] section V: the logits are negated)
 */
#ifndef TALLY_SERVICES_OBJECTIVES_LOSSES_SOFTMAX_H
#define TALLY_SERVICES_OBJECTIVES_LOSSES_SOFTMAX_H

#include <math.h>
#include <stddef.h>

#include "services/objectives/losses/loss_kind.h"

tally_objective_make_fn tally_softmax_images_make, tally_softmax_points_make;

/* z is double[classes]. Unless NULL, residual_k <- 1[k = label] - p_k, the derivative in z_k, with
 * p_k = exp(-z_k) / sum; it may be z itself. */
static inline double tally_softmax_loss(const double *z, size_t classes, size_t label,
                                        double *residual)
{
    double least = z[0];
    for (size_t k = 1; k < classes; k++) {
        least = z[k] < least ? z[k] : least;
    }
    const double true_logit = z[label];
    double sum = 0;
    for (size_t k = 0; k < classes; k++) {
        const double e = exp(least - z[k]);
        sum += e;
        if (residual != NULL) {
            residual[k] = e;
        }
    }
    for (size_t k = 0; residual != NULL && k < classes; k++) {
        residual[k] = (double)(k == label) - residual[k] / sum;
    }
    return true_logit - least + log(sum);
}

/* The class predicted by logits z, double[classes]: that of the least logit, since they are
 * negated, or of the first among equals. */
static inline size_t tally_softmax_class(const double *z, size_t classes)
{
    size_t least = 0;
    for (size_t k = 1; k < classes; k++) {
        least = z[k] < z[least] ? k : least;
    }
    return least;
}

#endif
