/* predict: what a model says about points. */
#ifndef TALLY_SERVICES_OBJECTIVES_LOSSES_PREDICT_H
#define TALLY_SERVICES_OBJECTIVES_LOSSES_PREDICT_H

#include "services/objectives/data/dataset.h"
#include "services/objectives/losses/loss_kind.h"

struct tally_prediction {
    double value;       /* X . x, of an objective without classes; else NaN */
    int64_t class;      /* the likeliest, from 0; that of label -1 is 0, that of label 1 is 1 */
    double probability; /* of that class; NaN without classes */
};

/* Whether models of the objective predict: those of the linear losses and of softmax_regression,
 * with points of files. */
bool tally_predicts(const struct tally_objective_spec *spec);
/* Whether they predict classes. */
bool tally_predicts_classes(const struct tally_objective_spec *spec);

/* The prediction of x, double[dim], for a point of a dense dataset with the spec's features. As in
 * the accuracy of clients, ties go to the first class. `room` is double[classes]. Precondition: the
 * objective predicts. */
struct tally_prediction tally_predict(const struct tally_objective_spec *spec,
                                      const struct tally_dataset *dataset, uint32_t point,
                                      const double *x, double *room);

#endif
