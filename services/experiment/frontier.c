#include "services/experiment/frontier.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "services/algorithms/baseline.h"
#include "services/algorithms/server_optimizer.h"
#include "services/base/text.h"
#include "services/experiment/campaign.h"
#include "services/experiment/search.h"

static const double RADII[] = {1, 2, 3};
enum { N_RADII = sizeof RADII / sizeof RADII[0] };

/* Local steps K of the baselines, which then have T / K rounds. */
static const int64_t LOCAL_STEPS[] = {10, 20, 50, 100, 200, 400, 1000};
enum { N_LOCAL_STEPS = sizeof LOCAL_STEPS / sizeof LOCAL_STEPS[0] };

/* Values of one constant of CEAL. The table is the product of the values of all constants. */
enum { MAX_VALUES = 6 };
struct values {
    size_t n;
    double value[MAX_VALUES];
};
struct ceal_table {
    struct values sample_scale, first_stage, gamma0, phi0, gradient_bound, step_size;
};

/* Values around those that a manual search found. In c, gamma0 and phi0 the bits decrease from left
 * to right. */
static const struct ceal_table CEAL_TABLES[] = {
    [TALLY_PROBLEM_LOUD] = {.sample_scale = {6, {0.05, 0.075, 0.1, 0.15, 0.2, 0.3}},
                            .first_stage = {2, {3, 4}},
                            .gamma0 = {5, {1, 1.5, 2, 2.5, 3.5}},
                            .phi0 = {4, {1, 2, 3, 4.5}},
                            .gradient_bound = {1, {1}},
                            .step_size = {3, {1.5, 2, 2.5}}},
    [TALLY_PROBLEM_QUIET] = {.sample_scale = {5, {0.05, 0.08, 0.12, 0.2, 0.35}},
                             .first_stage = {2, {4, 5}},
                             .gamma0 = {4, {1.5, 2, 2.5, 3.5}},
                             .phi0 = {4, {2, 3, 4, 5}},
                             .gradient_bound = {2, {0.5, 1}},
                             .step_size = {3, {1.5, 2, 2.5}}},
};

/* Constants found by searches (CMA-ES over all of them, seeds 1-60, start radius 1) for the least
 * regret within a number of bits: 1, 1.1, 1.2, 1.3 and 2 times that of Table I. As the noise is
 * negligible, a start further away is the same problem on a larger scale. */
#define FOUND(noise, c, j0, up, down, bound, step, failure)                                        \
    {                                                                                              \
        .sigma = noise, .sample_scale = c, .first_stage = j0, .gamma0 = up, .phi0 = down,          \
        .gradient_bound = bound, .step_size = step, .delta = failure                               \
    }
static const struct tally_ceal_params QUIET_FOUND[] = {
    FOUND(1.797, 0.0715, 3, 1.6, 3.05, 0.256, 2.4, 0.1),
    FOUND(0.522, 0.542, 2, 5.18, 3.75, 0.109, 2.43, 0.1),
    FOUND(0.4, 0.54, 4, 4.7, 3.9, 0.342, 2.41, 0.1),
    FOUND(0.175, 3.66, 4, 12.1, 3.53, 0.47, 2.33, 0.1),
    FOUND(0.989, 0.035, 2, 1.16, 3.57, 0.106, 2.09, 0.11),
};
enum { N_QUIET_FOUND = sizeof QUIET_FOUND / sizeof QUIET_FOUND[0] };

/* A baseline's step sizes: one range for every K, in coarser steps than those of TALLY_PRESETS,
 * because K changes the best one. */
static const struct tally_step_range SEARCH_RANGE = {1.5, -6, 3};

/* Schedules: from 50 rounds with messages (2 + 0.1 t) down to 4 (15 + 3 t). The decay of the steps
 * is relative to the preset `scheduled`. */
static const int64_t FIRST_ROUNDS[] = {2, 5, 15};
static const double GROWTHS[] = {0.1, 0.3, 1, 3}, DECAYS[] = {0.4, 1, 2.5};
enum {
    N_FIRST_ROUNDS = sizeof FIRST_ROUNDS / sizeof FIRST_ROUNDS[0],
    N_GROWTHS = sizeof GROWTHS / sizeof GROWTHS[0],
    N_DECAYS = sizeof DECAYS / sizeof DECAYS[0]
};
static const struct tally_step_range SCHEDULED_RANGE = {1.5, -4, 2};

/* Baselines that [1] does not have, each over a constant of its own, and server optimizers also
 * over beta1. They run at every K, with the step sizes of SEARCH_RANGE around that of `like`. tau
 * and beta2 keep their defaults: tau matters only relative to the clients' step size. */
static const struct extra {
    const struct tally_algorithm *algorithm, *like;
    int server;             /* enum tally_server_optimizer_type; TALLY_SERVER_SGD: none */
    int compressor;         /* enum tally_compressor, of ef21 */
    struct values constant; /* mu, levels or k; or S, of the server */
} EXTRAS[] = {
    {&TALLY_FEDPROX, &TALLY_FEDAVG, .constant = {3, {0.01, 0.1, 1}}},
    {&TALLY_FEDAVG, &TALLY_FEDAVG, TALLY_FEDAVGM, .constant = {4, {1, 3, 10, 30}}},
    {&TALLY_FEDAVG, &TALLY_FEDAVG, TALLY_FEDADAM, .constant = {5, {0.003, 0.01, 0.03, 0.1, 0.3}}},
    {&TALLY_FEDAVG, &TALLY_FEDAVG, TALLY_FEDYOGI, .constant = {5, {0.003, 0.01, 0.03, 0.1, 0.3}}},
    {&TALLY_SCAFFOLD, &TALLY_FEDAVG, .constant = {4, {1, 3, 10, 30}}},
    {&TALLY_DIANA, &TALLY_MINIBATCH_SGD, .constant = {3, {1, 3, 7}}},
    {&TALLY_EF21, &TALLY_MINIBATCH_SGD, .constant = {4, {1, 3, 6, 10}}},
    {&TALLY_EF21, &TALLY_MINIBATCH_SGD, .compressor = TALLY_RAND_K, .constant = {4, {1, 3, 6, 10}}},
};
static const double BETA1[] = {0, 0.3, 0.6, 0.9};
enum { N_EXTRAS = sizeof EXTRAS / sizeof EXTRAS[0], N_BETA1 = sizeof BETA1 / sizeof BETA1[0] };

/* Presets generated for one problem. */
struct maker {
    struct tally_preset *presets; /* heap */
    size_t n, capacity;
    bool failed;
};

static void add_preset(struct maker *maker, const struct tally_preset *preset)
{
    if (maker->n == maker->capacity) {
        const size_t capacity = maker->capacity == 0 ? 64 : 2 * maker->capacity;
        struct tally_preset *presets = realloc(maker->presets, capacity * sizeof *presets);
        if (presets == NULL) {
            maker->failed = true;
            return;
        }
        maker->presets = presets;
        maker->capacity = capacity;
    }
    maker->presets[maker->n++] = *preset;
}

/* The preset `paper`, whose parameters the frontier varies. */
static struct tally_preset start_of(const struct tally_algorithm *algorithm,
                                    enum tally_problem_kind kind)
{
    return *tally_preset_get(kind, algorithm, "paper");
}

static void make_baselines(enum tally_problem_kind kind, struct maker *maker)
{
    static const struct tally_algorithm *const baselines[] = {&TALLY_MINIBATCH_SGD, &TALLY_FEDAVG,
                                                              &TALLY_FEDPAQ, &TALLY_FEDCOM};
    for (size_t a = 0; a < sizeof baselines / sizeof baselines[0]; a++) {
        struct tally_preset preset = start_of(baselines[a], kind);
        preset.grid = SEARCH_RANGE;
        for (size_t k = 0; k < N_LOCAL_STEPS; k++) {
            preset.params.baseline.local_steps = LOCAL_STEPS[k];
            add_preset(maker, &preset);
        }
    }
}

static void make_scheduled(enum tally_problem_kind kind, struct maker *maker)
{
    static const struct tally_algorithm *const scheduled[] = {&TALLY_FEDAVG, &TALLY_FEDPAQ};
    for (size_t a = 0; a < sizeof scheduled / sizeof scheduled[0]; a++) {
        struct tally_preset preset = *tally_preset_get(kind, scheduled[a], "scheduled");
        struct tally_baseline_params *params = &preset.params.baseline;
        const double decay = params->step_decay;
        preset.grid = SCHEDULED_RANGE;
        for (size_t i = 0; i < N_FIRST_ROUNDS * N_GROWTHS * N_DECAYS; i++) {
            params->local_steps = FIRST_ROUNDS[i / N_GROWTHS / N_DECAYS];
            params->local_steps_growth = GROWTHS[i / N_DECAYS % N_GROWTHS];
            params->step_decay = decay * DECAYS[i % N_DECAYS];
            add_preset(maker, &preset);
        }
    }
}

static void set_constants(const struct extra *extra, double constant, double beta1,
                          struct tally_baseline_params *params)
{
    if (extra->algorithm == &TALLY_FEDPROX) {
        params->mu = constant;
    } else if (extra->algorithm == &TALLY_SCAFFOLD) {
        params->server_step_size = constant;
    } else if (extra->algorithm == &TALLY_DIANA) {
        params->levels = (int64_t)constant;
    } else if (extra->algorithm == &TALLY_EF21) {
        params->k = (int64_t)constant;
        params->compressor = extra->compressor;
    } else {
        params->server_optimizer = tally_server_optimizer_defaults();
        params->server_optimizer.type = extra->server;
        params->server_optimizer.step_size = constant;
        params->server_optimizer.beta1 = beta1;
    }
}

static void make_extras(enum tally_problem_kind kind, struct maker *maker)
{
    for (const struct extra *extra = EXTRAS; extra < EXTRAS + N_EXTRAS; extra++) {
        const size_t n_beta1 = extra->server == TALLY_SERVER_SGD ? 1 : N_BETA1;
        struct tally_preset preset = start_of(extra->like, kind);
        struct tally_baseline_params *params = &preset.params.baseline;
        preset.algorithm = extra->algorithm;
        preset.grid = SEARCH_RANGE;
        params->alpha = NAN; /* by theory */
        for (size_t i = 0; i < extra->constant.n * n_beta1 * N_LOCAL_STEPS; i++) {
            params->local_steps = LOCAL_STEPS[i % N_LOCAL_STEPS];
            set_constants(extra, extra->constant.value[i / N_LOCAL_STEPS / n_beta1],
                          BETA1[i / N_LOCAL_STEPS % n_beta1], params);
            add_preset(maker, &preset);
        }
    }
}

/* Entry `index` of the product of all values; false past its end. */
static bool entry_of(const struct ceal_table *table, size_t index, struct tally_ceal_params *params)
{
    double chosen[6];
    const struct values *const columns[6] = {&table->sample_scale,   &table->first_stage,
                                             &table->gamma0,         &table->phi0,
                                             &table->gradient_bound, &table->step_size};
    for (size_t c = 0; c < 6; c++) {
        chosen[c] = columns[c]->value[index % columns[c]->n];
        index /= columns[c]->n;
    }
    params->sample_scale = chosen[0];
    params->first_stage = (int64_t)chosen[1];
    params->gamma0 = chosen[2];
    params->phi0 = chosen[3];
    params->gradient_bound = chosen[4];
    params->step_size = chosen[5];
    return index == 0;
}

static void add_found(const struct tally_problem *problem, struct maker *maker)
{
    struct tally_preset preset = start_of(&TALLY_CEAL, problem->kind);
    const double scale = sqrt((1 + problem->radius * problem->radius) / 2);
    for (size_t i = 0; problem->kind == TALLY_PROBLEM_QUIET && i < N_QUIET_FOUND; i++) {
        preset.params.ceal = QUIET_FOUND[i];
        preset.params.ceal.sigma *= scale;
        preset.params.ceal.gradient_bound *= scale;
        add_preset(maker, &preset);
    }
    static const char *const names[] = {"paper_bits", "low_regret"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        add_preset(maker, tally_preset_get(problem->kind, &TALLY_CEAL, names[i]));
    }
}

static void make_ceal(const struct tally_problem *problem, struct maker *maker)
{
    struct tally_preset preset = start_of(&TALLY_CEAL, problem->kind);
    add_found(problem, maker);
    for (size_t i = 0; entry_of(&CEAL_TABLES[problem->kind], i, &preset.params.ceal); i++) {
        const struct tally_job_spec spec =
            tally_preset_job(&preset, problem, preset.params.ceal.step_size, 0);
        if (tally_job_spec_validate(&spec, NULL) == TALLY_OK) {
            add_preset(maker, &preset);
        }
    }
}

/* Budgets of CALM, the same up and down. */
static const int64_t BUDGETS[] = {100, 150, 200, 300, 400, 600, 900, 1400};
enum { N_BUDGETS = sizeof BUDGETS / sizeof BUDGETS[0] };

static void make_calm(enum tally_problem_kind kind, struct maker *maker)
{
    struct tally_preset preset = *tally_preset_get(kind, &TALLY_CALM, "paper_bits");
    for (size_t i = 0; i < N_BUDGETS; i++) {
        preset.budget = (struct tally_budget){BUDGETS[i], BUDGETS[i]};
        add_preset(maker, &preset);
    }
    add_preset(maker, tally_preset_get(kind, &TALLY_CALM, "auto"));
}

static enum tally_status add_limits(struct tally_frontier *frontier,
                                    const struct tally_problem *problem, const struct maker *calm,
                                    struct tally_error *err)
{
    const size_t n = frontier->n_limits + N_BUDGETS;
    struct tally_frontier_limit *limits = realloc(frontier->limits, n * sizeof *limits);
    if (limits == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for %zu limits", n);
    }
    frontier->limits = limits;
    for (size_t i = 0; i < calm->n; i++) {
        const struct tally_preset *preset = &calm->presets[i];
        const struct tally_job_spec spec =
            tally_preset_job(preset, problem, tally_preset_step_size(preset), 0);
        if (preset->budget.uplink_bits > 0) {
            limits[frontier->n_limits++] = (struct tally_frontier_limit){
                *problem, preset->budget, tally_forecast_limits_of(&spec)};
        }
    }
    return TALLY_OK;
}

static void set_step_size(union tally_algorithm_params *params,
                          const struct tally_algorithm *algorithm, double step_size)
{
    if (algorithm == &TALLY_CEAL) {
        params->ceal.step_size = step_size;
    } else if (algorithm == &TALLY_CALM) {
        params->calm.step_size = step_size;
    } else {
        params->baseline.step_size = step_size;
    }
}

static enum tally_status take_points(struct tally_frontier *frontier,
                                     const struct tally_problem *problem, const struct maker *maker,
                                     const double *step_sizes, const struct tally_run *runs,
                                     struct tally_error *err)
{
    const size_t n_seeds = frontier->n_seeds, n = frontier->n_points + maker->n;
    assert(n > 0 && "a problem without presets");
    struct tally_frontier_point *points = realloc(frontier->points, n * sizeof *points);
    if (points == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for %zu points", n);
    }
    frontier->points = points;
    for (size_t i = 0; i < maker->n; i++) {
        struct tally_frontier_point point = {
            .problem = *problem,
            .algorithm = maker->presets[i].algorithm,
            .params = maker->presets[i].params,
            .budget = maker->presets[i].budget,
            .regret = tally_summary_of_regret(runs + i * n_seeds, n_seeds),
            .bits = tally_summary_of_bits(runs + i * n_seeds, n_seeds)};
        set_step_size(&point.params, point.algorithm, step_sizes[i]);
        if (isfinite(point.regret.mean)) {
            points[frontier->n_points++] = point;
        }
    }
    return TALLY_OK;
}

/* Runs all presets at their step sizes and adds the points that did not diverge. */
static enum tally_status run_presets(struct tally_frontier *frontier, struct tally_runner *runner,
                                     const struct tally_problem *problem, const struct maker *maker,
                                     const double *step_sizes, struct tally_error *err)
{
    const size_t n_seeds = frontier->n_seeds, n = maker->n * n_seeds;
    struct tally_runner_item *items = calloc(n + 1, sizeof *items);
    struct tally_run *runs = calloc(n + 1, sizeof *runs);
    enum tally_status status = TALLY_NO_MEMORY;
    if (items == NULL || runs == NULL) {
        tally_fail(err, status, NULL, "no memory for %zu runs", n);
    } else {
        for (size_t i = 0; i < n; i++) {
            items[i] = (struct tally_runner_item){.preset = &maker->presets[i / n_seeds],
                                                  .problem = problem,
                                                  .step_size = step_sizes[i / n_seeds],
                                                  .seed = i % n_seeds,
                                                  .place = &runs[i]};
        }
        status = tally_runner_run(runner, items, n, "frontier", err);
    }
    if (status == TALLY_OK) {
        status = take_points(frontier, problem, maker, step_sizes, runs, err);
    }
    for (size_t i = 0; runs != NULL && i < n; i++) {
        tally_run_fini(&runs[i]);
    }
    free(items);
    free(runs);
    return status;
}

/* The step size of each preset: the best of its grid if `with_search`, otherwise its own. */
static enum tally_status find_step_sizes(struct tally_runner *runner,
                                         const struct tally_problem *problem,
                                         const struct maker *maker, bool with_search,
                                         size_t n_seeds, double *ret_step_sizes,
                                         struct tally_error *err)
{
    for (size_t i = 0; i < maker->n; i++) {
        ret_step_sizes[i] = tally_preset_step_size(&maker->presets[i]);
    }
    if (!with_search) {
        return TALLY_OK;
    }
    const struct tally_preset **presets = calloc(maker->n + 1, sizeof(struct tally_preset *));
    struct tally_search *searches = calloc(maker->n + 1, sizeof *searches);
    enum tally_status status = TALLY_NO_MEMORY;
    if (presets == NULL || searches == NULL) {
        tally_fail(err, status, NULL, "no memory for %zu searches", maker->n);
    } else {
        for (size_t i = 0; i < maker->n; i++) {
            presets[i] = &maker->presets[i];
        }
        status = tally_search_run(runner, problem, presets, maker->n, n_seeds, searches, err);
    }
    for (size_t i = 0; status == TALLY_OK && i < maker->n; i++) {
        ret_step_sizes[i] = searches[i].trials[searches[i].best].step_size;
        tally_search_fini(&searches[i]);
    }
    free(presets);
    free(searches);
    return status;
}

/* Adds the points of all presets of `maker` on one problem. */
static enum tally_status run_maker(struct tally_frontier *frontier, struct tally_runner *runner,
                                   const struct tally_problem *problem, const struct maker *maker,
                                   bool with_search, struct tally_error *err)
{
    double *step_sizes = calloc(maker->n > 0 ? maker->n : 1, sizeof *step_sizes);
    if (maker->failed || step_sizes == NULL) {
        free(step_sizes);
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a table of constants");
    }
    enum tally_status status =
        find_step_sizes(runner, problem, maker, with_search, frontier->n_seeds, step_sizes, err);
    if (status == TALLY_OK) {
        status = run_presets(frontier, runner, problem, maker, step_sizes, err);
    }
    free(step_sizes);
    return status;
}

static double cost_of(const struct tally_problem *problem, const struct maker *maker,
                      bool with_search, size_t n_seeds)
{
    double cost = 0;
    for (size_t i = 0; i < maker->n; i++) {
        const struct tally_preset *preset = &maker->presets[i];
        const struct tally_runner_item item = {
            .preset = preset, .problem = problem, .step_size = tally_preset_step_size(preset)};
        cost += (double)n_seeds * tally_runner_cost(&item);
        cost += with_search ? tally_search_cost(problem, preset, n_seeds) : 0;
    }
    return cost;
}

/* Runs one reading of the data: all radii, on the same data. */
static enum tally_status run_reading(struct tally_frontier *frontier,
                                     const struct tally_runner_config *config,
                                     struct tally_error *err)
{
    struct tally_runner *runner = NULL;
    struct maker baselines = {0}, ceal = {0}, calm = {0};
    const struct tally_problem first = {config->kind, RADII[0]};
    make_baselines(config->kind, &baselines);
    make_scheduled(config->kind, &baselines);
    make_extras(config->kind, &baselines);
    make_ceal(&first, &ceal);
    make_calm(config->kind, &calm);
    const double cost = cost_of(&first, &baselines, true, frontier->n_seeds) +
                        cost_of(&first, &ceal, false, frontier->n_seeds) +
                        cost_of(&first, &calm, false, frontier->n_seeds);
    enum tally_status status = tally_runner_new(config, N_RADII * cost, &runner, err);
    for (size_t r = 0; status == TALLY_OK && r < N_RADII; r++) {
        const struct tally_problem problem = {config->kind, RADII[r]};
        status = run_maker(frontier, runner, &problem, &baselines, true, err);
        if (status == TALLY_OK) {
            ceal.n = 0;
            make_ceal(&problem, &ceal);
            status = run_maker(frontier, runner, &problem, &ceal, false, err);
        }
        if (status == TALLY_OK) {
            status = run_maker(frontier, runner, &problem, &calm, false, err);
        }
        if (status == TALLY_OK) {
            status = add_limits(frontier, &problem, &calm, err);
        }
    }
    tally_runner_free(runner);
    free(baselines.presets);
    free(ceal.presets);
    free(calm.presets);
    return status;
}

enum tally_status tally_frontier_run(const struct tally_runner_config *config,
                                     struct tally_frontier *ret_frontier, struct tally_error *err)
{
    static const enum tally_problem_kind readings[] = {TALLY_PROBLEM_LOUD, TALLY_PROBLEM_QUIET};
    struct tally_frontier frontier = {.first_seed = config->first_seed, .n_seeds = config->n_seeds};
    enum tally_status status = TALLY_OK;
    for (size_t i = 0; status == TALLY_OK && i < 2; i++) {
        struct tally_runner_config reading = *config;
        reading.kind = readings[i];
        status = run_reading(&frontier, &reading, err);
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
    const struct tally_bit_pair bits = tally_summary_counted_bits(point->algorithm, &point->bits);
    return bits.uplink + bits.downlink;
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
    int result = order(a->problem.kind, b->problem.kind);
    if (result == 0) {
        result = order(a->problem.radius, b->problem.radius);
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
    return a->problem.kind == b->problem.kind && order(a->problem.radius, b->problem.radius) == 0 &&
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
