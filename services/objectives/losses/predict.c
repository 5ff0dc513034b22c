#include "services/objectives/losses/predict.h"

#include <math.h>

#include "services/objectives/objective.h"

bool tally_predicts(const struct tally_objective_spec *spec)
{
    const struct tally_objective_kind *kind = TALLY_OBJECTIVE_KINDS[spec->type];
    return (kind->data & TALLY_DATA_SET_TABLES) != 0 && (kind->loss != NULL || kind->has_classes);
}

bool tally_predicts_classes(const struct tally_objective_spec *spec)
{
    return TALLY_OBJECTIVE_KINDS[spec->type]->labels != TALLY_LABELS_REAL;
}

/* room[k] <- -X_i . x_k. The weights of softmax_regression have the opposite sign. */
static void softmax_logits(const struct tally_dataset *dataset, uint32_t point, bool has_bias,
                           size_t classes, const double *x, double *room)
{
    const size_t features = dataset->features;
    const double *row = dataset->values + (size_t)point * features;
    for (size_t k = 0; k < classes; k++) {
        room[k] = has_bias ? -x[features * classes + k] : 0;
    }
    for (size_t j = 0; j < features; j++) {
        for (size_t k = 0; k < classes; k++) {
            room[k] -= row[j] * x[j * classes + k];
        }
    }
}

struct tally_prediction tally_predict(const struct tally_objective_spec *spec,
                                      const struct tally_dataset *dataset, uint32_t point,
                                      const double *x, double *room)
{
    if (!TALLY_OBJECTIVE_KINDS[spec->type]->has_classes) {
        const double z =
            tally_dataset_dot(dataset, point, x) + (spec->bias ? x[dataset->features] : 0);
        return tally_predicts_classes(spec)
                   ? (struct tally_prediction){NAN, z > 0, 1 / (1 + exp(-fabs(z)))}
                   : (struct tally_prediction){z, 0, NAN};
    }
    const size_t classes = (size_t)tally_data_spec_classes(&spec->data);
    size_t best = 0;
    double sum = 0;
    softmax_logits(dataset, point, spec->bias, classes, x, room);
    for (size_t k = 1; k < classes; k++) {
        best = room[k] > room[best] ? k : best;
    }
    for (size_t k = 0; k < classes; k++) {
        sum += exp(room[k] - room[best]);
    }
    return (struct tally_prediction){NAN, (int64_t)best, 1 / sum};
}
