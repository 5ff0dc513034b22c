#include "services/experiment/frontier.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/algorithms/baseline.h"
#include "services/algorithms/calm.h"
#include "services/algorithms/calm/calm_plan.h"
#include "services/algorithms/server_optimizer.h"
#include "services/base/text.h"
#include "services/experiment/reproduction.h"

/* The limits of a CALM job that has a budget both ways and knows its constants. */
static struct tally_frontier_limits limits_of(const struct tally_job_spec *spec)
{
    const struct tally_setting setting = tally_job_spec_setting(spec);
    const struct tally_calm_constants constants = calm_known_constants(&setting);
    const struct tally_calm_budget budget = {.uplink_bits = (double)spec->budget.uplink_bits,
                                             .downlink_bits = (double)spec->budget.downlink_bits};
    return (struct tally_frontier_limits){.shared_regret = tally_calm_shared_regret(&constants),
                                          .ideal_regret =
                                              tally_calm_ideal_regret(&constants, &budget)};
}

static enum tally_status add_row(struct tally_frontier *frontier, const char *reading,
                                 const struct tally_sweep_trial *trial, struct tally_error *err)
{
    struct tally_job_spec *spec = tally_sweep_trial_spec(trial);
    if (spec == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a job");
    }
    struct tally_frontier_point point = {.reading = reading,
                                         .radius = spec->initial_point.radius,
                                         .algorithm = trial->algorithm,
                                         .params = spec->params,
                                         .budget = spec->budget,
                                         .regret =
                                             tally_summary_of_regret(trial->runs, trial->n_runs),
                                         .bits = tally_summary_of_bits(trial->runs, trial->n_runs)};
    point.counted = tally_summary_counted_bits(trial->algorithm, trial->is_compressed, &point.bits);
    if (isfinite(point.regret.mean)) {
        frontier->points[frontier->n_points++] = point;
    }
    if (spec->budget.uplink_bits > 0) {
        frontier->limits[frontier->n_limits++] = (struct tally_frontier_limit){
            point.reading, point.radius, point.budget, limits_of(spec)};
    }
    free(spec);
    return TALLY_OK;
}

/* Adds the rows of a sweep that has run. */
static enum tally_status add_sweep(struct tally_frontier *frontier, const char *reading,
                                   const struct tally_sweep *sweep, struct tally_error *err)
{
    const size_t n_points = frontier->n_points + sweep->n_rows;
    const size_t n_limits = frontier->n_limits + sweep->n_rows;
    struct tally_frontier_point *points = realloc(frontier->points, n_points * sizeof *points);
    frontier->points = points != NULL ? points : frontier->points;
    struct tally_frontier_limit *limits = realloc(frontier->limits, n_limits * sizeof *limits);
    frontier->limits = limits != NULL ? limits : frontier->limits;
    if (points == NULL || limits == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for %zu points", n_points);
    }
    enum tally_status status = TALLY_OK;
    for (size_t i = 0; status == TALLY_OK && i < sweep->n_rows; i++) {
        status = add_row(frontier, reading, tally_sweep_trial_of(sweep, i), err);
    }
    return status;
}

static bool keep_all(const void *context, const char *name, bool is_tuned)
{
    (void)context;
    (void)name;
    (void)is_tuned;
    return true;
}

/* Half of the work is each reading's. */
struct halves {
    const struct tally_sweep_config *config;
    double done;
};

static bool watch(void *context, double fraction, const char *what)
{
    const struct halves *halves = context;
    return halves->config->watch == NULL ||
           halves->config->watch(halves->config->context, (halves->done + fraction) / 2, what);
}

enum tally_status tally_frontier_run(int64_t first_seed, size_t n_seeds,
                                     const struct tally_sweep_config *config,
                                     struct tally_frontier *ret_frontier, struct tally_error *err)
{
    static const char *const readings[] = {"loud", "quiet"};
    struct tally_frontier frontier = {.first_seed = first_seed, .n_seeds = n_seeds};
    struct halves halves = {.config = config};
    struct tally_sweep_config half = {.threads = config->threads,
                                      .data_dir = config->data_dir,
                                      .curve_points = 2,
                                      .with_entropy = true,
                                      .watch = watch,
                                      .context = &halves};
    enum tally_status status = TALLY_OK;
    for (size_t i = 0; status == TALLY_OK && i < 2; i++) {
        char document[32];
        struct tally_sweep sweep = {.n_rows = 0};
        snprintf(document, sizeof document, "frontier-%s", readings[i]);
        status =
            tally_reproduction_load(document, keep_all, NULL, first_seed, n_seeds, &sweep, err);
        if (status == TALLY_OK) {
            status = tally_sweep_run(&sweep, &half, err);
        }
        if (status == TALLY_OK) {
            status = add_sweep(&frontier, readings[i], &sweep, err);
        }
        tally_sweep_fini(&sweep);
        halves.done++;
    }
    if (status != TALLY_OK) {
        tally_frontier_fini(&frontier);
        return status;
    }
    tally_frontier_sort(&frontier);
    *ret_frontier = frontier;
    return TALLY_OK;
}

void tally_frontier_fini(struct tally_frontier *frontier)
{
    free(frontier->points);
    free(frontier->limits);
    *frontier = (struct tally_frontier){0};
}

double tally_frontier_bits(const struct tally_frontier_point *point)
{
    return point->counted.uplink + point->counted.downlink;
}

static int order(double a, double b)
{
    return (a > b) - (a < b);
}

bool tally_frontier_is_scheduled(const struct tally_frontier_point *point)
{
    return (point->algorithm == &TALLY_FEDAVG || point->algorithm == &TALLY_FEDPAQ) &&
           (point->params.baseline.step_decay > 0 || point->params.baseline.local_steps_growth > 0);
}

bool tally_frontier_has_optimizer(const struct tally_frontier_point *point)
{
    return point->algorithm->takes_server_optimizer &&
           tally_server_optimizer_is_set(&point->params.baseline.server_optimizer);
}

const char *tally_frontier_method(const struct tally_frontier_point *point)
{
    const struct tally_baseline_params *params = &point->params.baseline;
    if (point->algorithm == &TALLY_EF21 && params->compressor == TALLY_RAND_K) {
        return "ef21_rand_k";
    }
    return tally_frontier_has_optimizer(point)
               ? TALLY_SERVER_OPTIMIZER_NAMES[params->server_optimizer.type]
               : point->algorithm->name;
}

/* Problem, method, schedule, bits, regret. */
static int compare_points(const void *left, const void *right)
{
    const struct tally_frontier_point *a = left, *b = right;
    int result = strcmp(a->reading, b->reading);
    if (result == 0) {
        result = order(a->radius, b->radius);
    }
    if (result == 0) {
        result = strcmp(tally_frontier_method(a), tally_frontier_method(b));
    }
    if (result == 0) {
        result = tally_frontier_is_scheduled(a) - tally_frontier_is_scheduled(b);
    }
    if (result == 0) {
        result = order(tally_frontier_bits(a), tally_frontier_bits(b));
    }
    return result != 0 ? result : order(a->regret.mean, b->regret.mean);
}

static bool is_same_family(const struct tally_frontier_point *a,
                           const struct tally_frontier_point *b)
{
    return strcmp(a->reading, b->reading) == 0 && order(a->radius, b->radius) == 0 &&
           strcmp(tally_frontier_method(a), tally_frontier_method(b)) == 0 &&
           tally_frontier_is_scheduled(a) == tally_frontier_is_scheduled(b);
}

void tally_frontier_sort(struct tally_frontier *frontier)
{
    if (frontier->n_points > 0) {
        qsort(frontier->points, frontier->n_points, sizeof *frontier->points, compare_points);
    }
    double least = INFINITY;
    for (size_t i = 0; i < frontier->n_points; i++) {
        struct tally_frontier_point *point = &frontier->points[i];
        if (i == 0 || !is_same_family(point, point - 1)) {
            least = INFINITY;
        }
        point->on_front = point->regret.mean < least;
        least = point->on_front ? point->regret.mean : least;
    }
}

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
    tally_text_printf(text, ",%.9g,%.9g", point->counted.uplink, point->counted.downlink);
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
        tally_text_printf(&text, "%s,%g,%s", point->reading, point->radius,
                          tally_frontier_method(point));
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
    return tally_json_if_complete(
        json, tally_json_set_text(json, "type", TALLY_SERVER_OPTIMIZER_NAMES[server->type]) &&
                  tally_json_write_fields(json, kind->fields, kind->n_fields, server));
}

static struct tally_json *params_json(const struct tally_frontier_point *point)
{
    struct tally_json *json = tally_json_object();
    return tally_json_if_complete(
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
    return tally_json_if_complete(
        json, tally_json_set_integer(json, "uplink_bits", budget->uplink_bits) &&
                  tally_json_set_integer(json, "downlink_bits", budget->downlink_bits));
}

static struct tally_json *point_json(const struct tally_frontier_point *point)
{
    struct tally_json *json = tally_json_object();
    bool ok =
        tally_json_set_text(json, "reading", point->reading) &&
        tally_json_set_real(json, "radius", point->radius) &&
        tally_json_set_text(json, "algorithm", tally_frontier_method(point)) &&
        tally_json_set(json, "parameters", params_json(point)) &&
        (point->budget.uplink_bits == 0 ||
         tally_json_set(json, "budget", budget_json(&point->budget))) &&
        tally_json_set(json, "regret", tally_reproduction_regret_json(&point->regret)) &&
        tally_json_set(json, "uplink", tally_reproduction_bits_json(&point->bits.uplink)) &&
        tally_json_set(json, "downlink", tally_reproduction_bits_json(&point->bits.downlink)) &&
        tally_json_set_bool(json, "on_front", point->on_front);
    return tally_json_if_complete(json, ok);
}

static struct tally_json *limit_json(const struct tally_frontier_limit *limit)
{
    struct tally_json *json = tally_json_object();
    bool ok = tally_json_set_text(json, "reading", limit->reading) &&
              tally_json_set_real(json, "radius", limit->radius) &&
              tally_json_set_integer(json, "uplink_bits", limit->budget.uplink_bits) &&
              tally_json_set_integer(json, "downlink_bits", limit->budget.downlink_bits) &&
              tally_json_set_real(json, "ideal_regret", limit->limits.ideal_regret) &&
              tally_json_set_real(json, "shared_regret", limit->limits.shared_regret);
    return tally_json_if_complete(json, ok);
}

static struct tally_json *limits_json(const struct tally_frontier *frontier)
{
    struct tally_json *limits = tally_json_array();
    bool ok = limits != NULL;
    for (size_t i = 0; ok && i < frontier->n_limits; i++) {
        ok = tally_json_append(limits, limit_json(&frontier->limits[i]));
    }
    return tally_json_if_complete(limits, ok);
}

struct tally_json *tally_frontier_json(const struct tally_frontier *frontier)
{
    struct tally_json *json = tally_json_object(), *points = tally_json_array();
    bool ok =
        tally_json_set_text(json, "experiment", "synthetic") &&
        tally_json_set(json, "seeds",
                       tally_reproduction_seeds_json(frontier->first_seed, frontier->n_seeds));
    for (size_t i = 0; ok && i < frontier->n_points; i++) {
        if (frontier->points[i].on_front) {
            ok = tally_json_append(points, point_json(&frontier->points[i]));
        }
    }
    ok = tally_json_set(json, "points", points) && ok;
    ok = tally_json_set(json, "limits", limits_json(frontier)) && ok;
    return tally_json_if_complete(json, ok);
}
