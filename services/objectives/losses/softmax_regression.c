/* softmax_regression: multinomial logistic regression with a ridge, [1] section V:
 *
 *     f(W) = (1/N) sum_i [ X_i . W_{Y_i} + log sum_k exp(-X_i . W_k) ] + mu |W|_F^2
 *
 * Logits are negated, so W is minus what most texts call W. Departs from [1]: its first term lacks
 * the subscript Y_i. W is double[features][classes], so x[j * classes + k] is W_k's weight of
 * feature j.
 *
 * There are two forms. softmax_points.c takes points of any layout. softmax_images.c takes the
 * images of the experiment of [1], as bytes in blocks for BLAS: an order of magnitude faster. */
#include "services/objectives/losses/softmax.h"

static bool is_for_blas(const struct tally_objective_spec *spec)
{
    const struct tally_data_spec *data = &spec->data;
    return data->type == TALLY_DATA_IDX && data->idx.points_per_class > 0 &&
           data->sharding == TALLY_SHARDING_IID && !spec->bias;
}

static enum tally_status make(const struct tally_objective_kind *kind,
                              const struct tally_objective_spec *spec, uint32_t clients,
                              struct tally_rng_key key, const struct tally_data_source *source,
                              struct tally_objective **ret, struct tally_error *err)
{
    return (is_for_blas(spec) ? tally_softmax_images_make : tally_softmax_points_make)(
        kind, spec, clients, key, source, ret, err);
}

static const struct tally_field FIELDS[] = {TALLY_L2_FIELD, TALLY_BIAS_FIELD, TALLY_ACCURACY_FIELD};

const struct tally_objective_kind TALLY_OBJECTIVE_SOFTMAX_REGRESSION = {
    "softmax_regression",
    TALLY_ROWS(FIELDS),
    .data = TALLY_DATA_SET_FILES,
    .labels = TALLY_LABELS_CLASSES,
    .l2 = 0.5,
    .make = make,
    .has_classes = true,
};
