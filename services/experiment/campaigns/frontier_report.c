#include "services/experiment/campaigns/frontier_report.h"

#include "services/experiment/campaigns/report.h"

/* Constants of CEAL are empty in baselines' lines, and the other way round. */
static enum tally_status print_params(const struct tally_frontier_point *point,
                                      struct tally_buffer *out)
{
    if (point->algorithm == &TALLY_CEAL) {
        const struct tally_ceal_params *ceal = &point->params.ceal;
        return tally_buffer_printf(out, ",%.9g,,%.9g,%lld,%.9g,%.9g,%.9g,%.9g", ceal->step_size,
                                   ceal->sample_scale, (long long)ceal->first_stage, ceal->gamma0,
                                   ceal->phi0, ceal->gradient_bound, ceal->sigma);
    }
    const struct tally_baseline_params *baseline = &point->params.baseline;
    return tally_buffer_printf(out, ",%.9g,%lld,,,,,,", baseline->step_size,
                               (long long)baseline->local_steps);
}

enum tally_status tally_frontier_csv(const struct tally_frontier *frontier,
                                     struct tally_buffer *out)
{
    enum tally_status status = tally_buffer_append_text(
        out, "reading,radius,algorithm,step_size,local_steps,sample_scale,first_stage,gamma0,phi0,"
             "gradient_bound,sigma,regret_mean,regret_std,uplink_formula,downlink_formula,"
             "uplink_entropy_payload,downlink_entropy_payload,on_front\n");
    for (size_t i = 0; status == TALLY_OK && i < frontier->n_points; i++) {
        const struct tally_frontier_point *point = &frontier->points[i];
        status = tally_buffer_printf(out, "%s,%g,%s", tally_problem_reading(&point->problem),
                                     point->problem.radius, point->algorithm->name);
        if (status == TALLY_OK) {
            status = print_params(point, out);
        }
        if (status == TALLY_OK) {
            status = tally_buffer_printf(out, ",%.9g,%.9g,%.9g,%.9g,%.9g,%.9g,%d\n",
                                         point->regret.mean, point->regret.std,
                                         point->bits.uplink.formula, point->bits.downlink.formula,
                                         point->bits.uplink.entropy_payload,
                                         point->bits.downlink.entropy_payload, point->on_front);
        }
    }
    return status;
}

/* Takes `member`, which is NULL when memory ran out. */
static bool set(struct tally_json *object, const char *key, struct tally_json *member)
{
    return member != NULL && tally_json_set(object, key, member);
}

static struct tally_json *params_json(const struct tally_frontier_point *point)
{
    struct tally_json *json = tally_json_object();
    if (json == NULL || !tally_json_write_fields(json, point->algorithm->fields,
                                                 point->algorithm->n_fields, &point->params)) {
        tally_json_free(json);
        return NULL;
    }
    return json;
}

static struct tally_json *point_json(const struct tally_frontier_point *point)
{
    struct tally_json *json = tally_json_object();
    const bool ok = json != NULL &&
                    tally_json_set_text(json, "reading", tally_problem_reading(&point->problem)) &&
                    tally_json_set_real(json, "radius", point->problem.radius) &&
                    tally_json_set_text(json, "algorithm", point->algorithm->name) &&
                    set(json, "parameters", params_json(point)) &&
                    set(json, "regret", tally_report_regret(&point->regret)) &&
                    set(json, "uplink", tally_report_bits(&point->bits.uplink)) &&
                    set(json, "downlink", tally_report_bits(&point->bits.downlink)) &&
                    tally_json_set_bool(json, "on_front", point->on_front);
    if (!ok) {
        tally_json_free(json);
        return NULL;
    }
    return json;
}

struct tally_json *tally_frontier_json(const struct tally_frontier *frontier)
{
    struct tally_json *json = tally_json_object(), *points = tally_json_array();
    bool ok = json != NULL && points != NULL;
    for (size_t i = 0; ok && i < frontier->n_points; i++) {
        if (frontier->points[i].on_front) {
            struct tally_json *point = point_json(&frontier->points[i]);
            ok = point != NULL && tally_json_append(points, point);
        }
    }
    ok = ok && tally_json_set_text(json, "experiment", "synthetic") &&
         set(json, "seeds", tally_report_seeds(frontier->first_seed, frontier->n_seeds));
    if (ok) {
        ok = tally_json_set(json, "points", points);
    } else {
        tally_json_free(points);
    }
    if (!ok) {
        tally_json_free(json);
        return NULL;
    }
    return json;
}
