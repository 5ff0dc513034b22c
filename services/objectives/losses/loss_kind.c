#include "services/objectives/losses/loss_kind.h"

#include "services/objectives/data/survey.h"
#include "services/objectives/losses/loss_report.h"

const char *const TALLY_WEIGHTING_NAMES[] = {"equal", "points", NULL};

void tally_objective_free(struct tally_objective *objective)
{
    if (objective != NULL) {
        tally_report_free(objective->report);
        tally_surveys_free(objective->surveys);
        objective->ops->free(objective);
    }
}

bool tally_objective_has_loss(const struct tally_objective *objective)
{
    return objective->ops->has_loss == NULL || objective->ops->has_loss(objective);
}

enum tally_status tally_objective_survey(const struct tally_objective *objective, uint32_t client,
                                         const struct tally_buffer **ret_survey,
                                         struct tally_error *err)
{
    const struct tally_buffer *survey =
        objective->surveys != NULL ? tally_surveys_of(objective->surveys, client) : NULL;
    if (survey == NULL || survey->size == 0) {
        return tally_fail(err, TALLY_FAILED_PRECONDITION, "objective.data",
                          "the data of client %u are not in this data folder", client);
    }
    *ret_survey = survey;
    return TALLY_OK;
}

enum tally_status tally_objective_metrics(const struct tally_objective *objective, uint32_t client,
                                          uint32_t round, const double *x, bool evaluates,
                                          struct tally_metric *ret_metrics, size_t *ret_n,
                                          struct tally_error *err)
{
    *ret_n = 0;
    if (objective->ops->metrics != NULL) {
        return objective->ops->metrics(objective, client, round, x, ret_metrics, ret_n, err);
    }
    return objective->report != NULL && evaluates
               ? tally_report_metrics(objective, client, x, ret_metrics, ret_n, err)
               : TALLY_OK;
}

enum tally_status tally_objective_points(const struct tally_objective *objective, uint32_t client,
                                         uint32_t *ret_n, struct tally_error *err)
{
    return objective->ops->points != NULL
               ? objective->ops->points(objective, client, ret_n, err)
               : tally_fail(err, TALLY_FAILED_PRECONDITION, "weighting",
                            "the objective of this worker cannot tell how many points client %u "
                            "has",
                            client);
}

bool tally_objective_trains(const struct tally_objective *objective)
{
    return objective->ops->train != NULL;
}

enum tally_status tally_objective_train(const struct tally_objective *objective, uint32_t client,
                                        uint32_t round, float *weights, struct tally_error *err)
{
    return objective->ops->train(objective, client, round, weights, err);
}

enum tally_status tally_objective_initial(const struct tally_objective *objective,
                                          float *ret_weights, struct tally_error *err)
{
    return objective->ops->initial != NULL
               ? objective->ops->initial(objective, ret_weights, err)
               : tally_fail(err, TALLY_FAILED_PRECONDITION, "initial_point.type",
                            "only a plug-in offers an initial point");
}

enum tally_status tally_objective_evaluate_model(const struct tally_objective *objective,
                                                 uint32_t client, uint32_t round,
                                                 const float *weights,
                                                 struct tally_metric *ret_metrics, size_t *ret_n,
                                                 struct tally_error *err)
{
    *ret_n = 0;
    return objective->ops->evaluate_model != NULL
               ? objective->ops->evaluate_model(objective, client, round, weights, ret_metrics,
                                                ret_n, err)
               : TALLY_OK;
}

enum tally_status tally_objective_local_loss(const struct tally_objective *objective,
                                             uint32_t client, const double *x, double *ret_loss,
                                             struct tally_error *err)
{
    return objective->ops->local_loss(objective, client, x, ret_loss, err);
}

enum tally_status tally_objective_local_gradient(const struct tally_objective *objective,
                                                 uint32_t client, const double *x, int64_t n,
                                                 struct tally_rng *rng, double *ret_gradient,
                                                 struct tally_error *err)
{
    return objective->ops->local_gradient(objective, client, x, n, rng, ret_gradient, err);
}

enum tally_status tally_objective_losses(const struct tally_objective *objective,
                                         const double *points, size_t n, double *ret_losses,
                                         struct tally_error *err)
{
    return objective->ops->losses(objective, points, n, ret_losses, err);
}

enum tally_status tally_objective_minimum(const struct tally_objective *objective,
                                          const struct tally_domain *domain,
                                          const atomic_bool *stop, double *ret_f_star,
                                          double *ret_x_star, struct tally_error *err)
{
    double f_star;
    enum tally_status status =
        objective->ops->minimum(objective, domain, stop, &f_star, ret_x_star, err);
    if (status == TALLY_OK && !isfinite(f_star)) {
        status = tally_fail(err, TALLY_FAILED_PRECONDITION, "reference",
                            "f(x*) is %g in double precision; scale the data, or give the "
                            "reference as a value or none",
                            f_star);
    }
    if (status == TALLY_OK) {
        *ret_f_star = f_star;
    }
    return status;
}

enum tally_status tally_objective_curvature(const struct tally_objective *objective,
                                            const atomic_bool *stop,
                                            struct tally_curvature *ret_curvature,
                                            struct tally_error *err)
{
    if (objective->ops->curvature == NULL) {
        *ret_curvature = TALLY_CURVATURE_UNKNOWN;
        return TALLY_OK;
    }
    return objective->ops->curvature(objective, stop, ret_curvature, err);
}
