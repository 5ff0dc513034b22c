/* softmax_losses: the loss of softmax regression at many points at once, for evaluation only.
 *
 *     ret_losses[p] = (1/M) sum_m (1/n_m) sum_(i in shard m) [ z_iy - min_k z_ik
 *                                                  + log sum_k exp(min_l z_il - z_ik) ],
 *     z_ik = X_i . W_k of point p                                     the ridge is not in it
 *
 * Evaluating every client's own iterate is what an experiment on images spends its time on: 1200
 * passes over 50,000 images in one run of FedAvg. So this is float32: one cblas_sgemm per block of
 * rows for all points, exponentials four at a time, and one logarithm per block, of the product of
 * its sums. Pixels enter as the integers that they are, the 1/255 is in the weights. Errors are
 * those of single roundings, about 1e-7 per image and independent between images, so that the mean
 * over thousands of them is right to 1e-9 or so; the test bounds it by 1e-8 for 2000 images. Sums
 * are double, in the order of the rows, on one thread: nothing depends on the machine's load. */
#ifndef TALLY_SERVICES_OBJECTIVES_LOSSES_SOFTMAX_LOSSES_H
#define TALLY_SERVICES_OBJECTIVES_LOSSES_SOFTMAX_LOSSES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "services/objectives/data/idx.h"

/* Points are double[n][features][classes]; ret_losses is double[n]. False, and nothing written,
 * when memory ran out. */
bool tally_softmax_losses(const struct tally_idx_set *set, size_t classes, uint32_t clients,
                          const double *points, size_t n, double *ret_losses);
/* The same in plain double, one image after the other. */
bool tally_softmax_losses_ref(const struct tally_idx_set *set, size_t classes, uint32_t clients,
                              const double *points, size_t n, double *ret_losses);

/* values[n] <- exp(values[n]) for values <= 0, to 1.5e-7 relative down to exp(-87), which smaller
 * ones get. NaN stays NaN. */
void tally_exp_of_negatives(float *values, size_t n);

#endif
