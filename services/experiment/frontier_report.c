#include "services/experiment/frontier_report.h"

#include "services/algorithms/server_optimizer.h"
#include "services/base/text.h"
#include "services/experiment/campaign_report.h"

/* Constants of one algorithm are empty in the lines of the others. */
static void put_params(const struct tally_frontier_point *point, struct tally_text *text)
{
    const struct tally_ceal_params *ceal = &point->params.ceal;
    const struct tally_baseline_params *baseline = &point->params.baseline;
    if (point->algorithm == &TALLY_CEAL) {
        tally_text_printf(text, ",%.9g,,%.9g,%lld,%.9g,%.9g,%.9g,%.9g", ceal->step_size,
                          ceal->sample_scale, (long long)ceal->first_stage, ceal->gamma0,
                          ceal->phi0, ceal->gradient_bound, ceal->sigma);
    } else if (point->algorithm == &TALLY_CALM) {
        tally_text_printf(text, ",%.9g,,,,,,,", point->params.calm.step_size);
    } else {
        tally_text_printf(text, ",%.9g,%lld,,,,,,", baseline->step_size,
                          (long long)baseline->local_steps);
    }
}

static void put_counted(const struct tally_frontier_point *point, struct tally_text *text)
{
    const struct tally_bit_pair bits = tally_summary_counted_bits(point->algorithm, &point->bits);
    tally_text_printf(text, ",%.9g,%.9g", bits.uplink, bits.downlink);
    if (point->budget.uplink_bits > 0) {
        tally_text_printf(text, ",%lld,%lld", (long long)point->budget.uplink_bits,
                          (long long)point->budget.downlink_bits);
    } else {
        tally_text_put(text, ",,");
    }
}

static void put_schedule(const struct tally_frontier_point *point, struct tally_text *text)
{
    const struct tally_baseline_params *baseline = &point->params.baseline;
    if (tally_frontier_is_scheduled(point)) {
        tally_text_printf(text, ",%.9g,%.9g", baseline->step_decay, baseline->local_steps_growth);
    } else {
        tally_text_put(text, ",,");
    }
}

/* Writes the parameters of those baselines that are not in [1]. */
static void put_constants(const struct tally_frontier_point *point, struct tally_text *text)
{
    const struct tally_baseline_params *baseline = &point->params.baseline;
    if (tally_frontier_has_optimizer(point)) {
        tally_text_printf(text, ",%.9g,%.9g,,,\n", baseline->server_optimizer.step_size,
                          baseline->server_optimizer.beta1);
    } else if (point->algorithm == &TALLY_SCAFFOLD) {
        tally_text_printf(text, ",%.9g,,,,\n", baseline->server_step_size);
    } else if (point->algorithm == &TALLY_FEDPROX) {
        tally_text_printf(text, ",,,%.9g,,\n", baseline->mu);
    } else if (point->algorithm == &TALLY_DIANA) {
        tally_text_printf(text, ",,,,%lld,\n", (long long)baseline->levels);
    } else if (point->algorithm == &TALLY_EF21) {
        tally_text_printf(text, ",,,,,%lld\n", (long long)baseline->k);
    } else {
        tally_text_put(text, ",,,,,\n");
    }
}

enum tally_status tally_frontier_csv(const struct tally_frontier *frontier,
                                     struct tally_buffer *out)
{
    struct tally_text text = {out, TALLY_OK};
    tally_text_put(&text,
                   "reading,radius,algorithm,step_size,local_steps,sample_scale,first_stage,gamma0,"
                   "phi0,gradient_bound,sigma,regret_mean,regret_std,uplink_formula,"
                   "downlink_formula,uplink_entropy_payload,downlink_entropy_payload,on_front,"
                   "uplink_bits,downlink_bits,uplink_budget,downlink_budget,step_decay,"
                   "local_steps_growth,server_step_size,beta1,mu,levels,k\n");
    for (size_t i = 0; i < frontier->n_points; i++) {
        const struct tally_frontier_point *point = &frontier->points[i];
        tally_text_printf(&text, "%s,%g,%s", tally_problem_reading(&point->problem),
                          point->problem.radius, tally_frontier_method(point));
        put_params(point, &text);
        tally_text_printf(&text, ",%.9g,%.9g,%.9g,%.9g,%.9g,%.9g,%d", point->regret.mean,
                          point->regret.std, point->bits.uplink.formula,
                          point->bits.downlink.formula, point->bits.uplink.entropy_payload,
                          point->bits.downlink.entropy_payload, point->on_front);
        put_counted(point, &text);
        put_schedule(point, &text);
        put_constants(point, &text);
    }
    return text.status;
}

static struct tally_json *server_json(const struct tally_server_optimizer *server)
{
    const struct tally_server_optimizer_kind *kind = &TALLY_SERVER_OPTIMIZER_KINDS[server->type];
    struct tally_json *json = tally_json_object();
    return tally_report_checked(
        json, tally_json_set_text(json, "type", TALLY_SERVER_OPTIMIZER_NAMES[server->type]) &&
                  tally_json_write_fields(json, kind->fields, kind->n_fields, server));
}

static struct tally_json *params_json(const struct tally_frontier_point *point)
{
    struct tally_json *json = tally_json_object();
    return tally_report_checked(
        json, json != NULL &&
                  tally_json_write_fields(json, point->algorithm->fields,
                                          point->algorithm->n_fields, &point->params) &&
                  (!tally_frontier_has_optimizer(point) ||
                   tally_json_set(json, "server_optimizer",
                                  server_json(&point->params.baseline.server_optimizer))));
}

static struct tally_json *budget_json(const struct tally_budget *budget)
{
    struct tally_json *json = tally_json_object();
    return tally_report_checked(
        json, tally_json_set_integer(json, "uplink_bits", budget->uplink_bits) &&
                  tally_json_set_integer(json, "downlink_bits", budget->downlink_bits));
}

static struct tally_json *point_json(const struct tally_frontier_point *point)
{
    struct tally_json *json = tally_json_object();
    bool ok = tally_json_set_text(json, "reading", tally_problem_reading(&point->problem)) &&
              tally_json_set_real(json, "radius", point->problem.radius) &&
              tally_json_set_text(json, "algorithm", tally_frontier_method(point)) &&
              tally_json_set(json, "parameters", params_json(point)) &&
              (point->budget.uplink_bits == 0 ||
               tally_json_set(json, "budget", budget_json(&point->budget))) &&
              tally_json_set(json, "regret", tally_report_regret(&point->regret)) &&
              tally_json_set(json, "uplink", tally_report_bits(&point->bits.uplink)) &&
              tally_json_set(json, "downlink", tally_report_bits(&point->bits.downlink)) &&
              tally_json_set_bool(json, "on_front", point->on_front);
    return tally_report_checked(json, ok);
}

static struct tally_json *limit_json(const struct tally_frontier_limit *limit)
{
    struct tally_json *json = tally_json_object();
    bool ok = tally_json_set_text(json, "reading", tally_problem_reading(&limit->problem)) &&
              tally_json_set_real(json, "radius", limit->problem.radius) &&
              tally_json_set_integer(json, "uplink_bits", limit->budget.uplink_bits) &&
              tally_json_set_integer(json, "downlink_bits", limit->budget.downlink_bits) &&
              tally_json_set_real(json, "ideal_regret", limit->limits.ideal_regret) &&
              tally_json_set_real(json, "shared_regret", limit->limits.shared_regret);
    return tally_report_checked(json, ok);
}

static struct tally_json *limits_json(const struct tally_frontier *frontier)
{
    struct tally_json *limits = tally_json_array();
    bool ok = limits != NULL;
    for (size_t i = 0; ok && i < frontier->n_limits; i++) {
        ok = tally_json_append(limits, limit_json(&frontier->limits[i]));
    }
    return tally_report_checked(limits, ok);
}

struct tally_json *tally_frontier_json(const struct tally_frontier *frontier)
{
    struct tally_json *json = tally_json_object(), *points = tally_json_array();
    bool ok =
        tally_json_set_text(json, "experiment", "synthetic") &&
        tally_json_set(json, "seeds", tally_report_seeds(frontier->first_seed, frontier->n_seeds));
    for (size_t i = 0; ok && i < frontier->n_points; i++) {
        if (frontier->points[i].on_front) {
            ok = tally_json_append(points, point_json(&frontier->points[i]));
        }
    }
    ok = tally_json_set(json, "points", points) && ok;
    ok = tally_json_set(json, "limits", limits_json(frontier)) && ok;
    return tally_report_checked(json, ok);
}
