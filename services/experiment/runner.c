#include "services/experiment/runner.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "services/experiment/run_pool.h"

/* The cost of solving f(x*) on the scale of tally_run_cost(), as measured. On MNIST it is 0.6 of a
 * run of FedAvg, whose cost is 790. On synthetic data a run costs 0.04 or less. */
static const double SOLVE_COST[] = {
    [TALLY_PROBLEM_LOUD] = 0.01, [TALLY_PROBLEM_QUIET] = 0.01, [TALLY_PROBLEM_MNIST] = 480};

/* The data of one seed. */
struct seed {
    pthread_mutex_t mutex;
    struct tally_objective *objective; /* NULL while no run needs it */
    size_t runs_left;
    double f_star;
};

struct tally_runner {
    struct tally_runner_config config;
    struct tally_problem problem;
    struct seed *seeds;
    pthread_mutex_t mutex; /* guards done_cost */
    double done_cost;
    double planned_cost;
    const char *what;
    const struct tally_runner_item *items; /* of the batch that runs */
};

static struct tally_job_spec job_of_seed(const struct tally_runner *runner, size_t seed)
{
    struct tally_job_spec spec = tally_problem_job(&runner->problem);
    spec.seed = runner->config.first_seed + (int64_t)seed;
    return spec;
}

static enum tally_status make_objective(const struct tally_runner *runner, size_t seed,
                                        struct tally_objective **ret_objective,
                                        struct tally_error *err)
{
    const struct tally_job_spec spec = job_of_seed(runner, seed);
    struct tally_error why = TALLY_ERROR_INIT;
    enum tally_status status = tally_objective_new(&spec.objective, (uint32_t)spec.clients,
                                                   tally_job_spec_setting(&spec).key,
                                                   runner->config.data_dir, ret_objective, &why);
    if (status == TALLY_INVALID_ARGUMENT && runner->config.kind == TALLY_PROBLEM_MNIST) {
        return tally_fail(err, status, "data-dir",
                          "%.250s; deploy/fetch-mnist obtains the files, --data-dir names the "
                          "folder",
                          why.message);
    }
    return status == TALLY_OK ? status : tally_fail(err, status, why.field, "%s", why.message);
}

static void add_done(struct tally_runner *runner, double cost)
{
    pthread_mutex_lock(&runner->mutex);
    runner->done_cost += cost;
    pthread_mutex_unlock(&runner->mutex);
}

static bool watch(void *context, size_t done)
{
    struct tally_runner *runner = context;
    (void)done;
    if (runner->config.watch == NULL) {
        return true;
    }
    pthread_mutex_lock(&runner->mutex);
    const double fraction = runner->done_cost / runner->planned_cost;
    pthread_mutex_unlock(&runner->mutex);
    return runner->config.watch(runner->config.context, fraction, runner->what);
}

static enum tally_status solve(void *context, size_t seed, const atomic_bool *stop,
                               struct tally_error *err)
{
    struct tally_runner *runner = context;
    struct tally_objective *objective = NULL;
    enum tally_status status = make_objective(runner, seed, &objective, err);
    if (status == TALLY_OK) {
        status =
            tally_objective_minimum(objective, NULL, stop, &runner->seeds[seed].f_star, NULL, err);
    }
    tally_objective_free(objective);
    add_done(runner, SOLVE_COST[runner->config.kind]);
    return status;
}

static enum tally_status run_pool(struct tally_runner *runner, size_t n, tally_pool_piece_fn *piece,
                                  const char *what, struct tally_error *err)
{
    const struct tally_pool pool = {
        .threads = runner->config.threads, .watch = watch, .context = runner};
    runner->what = what;
    return tally_pool_run(&pool, n, piece, runner, err);
}

enum tally_status tally_runner_new(const struct tally_runner_config *config, double planned_cost,
                                   struct tally_runner **ret_runner, struct tally_error *err)
{
    struct tally_runner *runner = calloc(1, sizeof *runner);
    if (runner != NULL) {
        runner->seeds = calloc(config->n_seeds, sizeof *runner->seeds);
    }
    if (runner == NULL || runner->seeds == NULL) {
        free(runner);
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for %zu seeds", config->n_seeds);
    }
    runner->config = *config;
    runner->problem = (struct tally_problem){config->kind, 0};
    pthread_mutex_init(&runner->mutex, NULL);
    for (size_t i = 0; i < config->n_seeds; i++) {
        pthread_mutex_init(&runner->seeds[i].mutex, NULL);
    }
    runner->planned_cost = planned_cost + SOLVE_COST[config->kind] * (double)config->n_seeds;
    enum tally_status status = run_pool(runner, config->n_seeds, solve, "minimum of f", err);
    if (status != TALLY_OK) {
        tally_runner_free(runner);
        return status;
    }
    *ret_runner = runner;
    return TALLY_OK;
}

void tally_runner_free(struct tally_runner *runner)
{
    if (runner == NULL) {
        return;
    }
    for (size_t i = 0; i < runner->config.n_seeds; i++) {
        tally_objective_free(runner->seeds[i].objective);
        pthread_mutex_destroy(&runner->seeds[i].mutex);
    }
    pthread_mutex_destroy(&runner->mutex);
    free(runner->seeds);
    free(runner);
}

void tally_runner_plan(struct tally_runner *runner, double cost)
{
    runner->planned_cost += cost;
}

double tally_runner_cost(const struct tally_runner_item *item)
{
    const struct tally_job_spec spec =
        tally_preset_job(item->preset, item->problem, item->step_size, 0);
    return tally_run_cost(&spec);
}

static enum tally_status open_seed(struct tally_runner *runner, size_t index,
                                   const struct tally_objective **ret_objective,
                                   struct tally_error *err)
{
    struct seed *seed = &runner->seeds[index];
    enum tally_status status = TALLY_OK;
    pthread_mutex_lock(&seed->mutex);
    if (seed->objective == NULL) {
        status = make_objective(runner, index, &seed->objective, err);
    }
    *ret_objective = seed->objective;
    pthread_mutex_unlock(&seed->mutex);
    return status;
}

static void close_seed(struct tally_runner *runner, size_t index)
{
    struct seed *seed = &runner->seeds[index];
    pthread_mutex_lock(&seed->mutex);
    if (--seed->runs_left == 0) {
        tally_objective_free(seed->objective);
        seed->objective = NULL;
    }
    pthread_mutex_unlock(&seed->mutex);
}

static enum tally_status run_item(void *context, size_t index, const atomic_bool *stop,
                                  struct tally_error *err)
{
    struct tally_runner *runner = context;
    const struct tally_runner_item *item = &runner->items[index];
    const struct tally_job_spec spec =
        tally_preset_job(item->preset, item->problem, item->step_size,
                         runner->config.first_seed + (int64_t)item->seed);
    const struct tally_objective *objective = NULL;
    enum tally_status status = tally_job_spec_validate(&spec, err);
    if (status == TALLY_OK) {
        status = open_seed(runner, item->seed, &objective, err);
    }
    if (status == TALLY_OK) {
        status = tally_run_job(&spec, objective, runner->seeds[item->seed].f_star, stop,
                               item->place, err);
    }
    close_seed(runner, item->seed);
    add_done(runner, tally_run_cost(&spec));
    if (status != TALLY_OK && status != TALLY_CANCELLED) {
        tally_error_wrap(err, "%s, step size %g, seed %lld", spec.name, item->step_size,
                         (long long)spec.seed);
    }
    return status;
}

static int compare_items(const void *a, const void *b)
{
    const struct tally_runner_item *left = a, *right = b;
    return (left->seed > right->seed) - (left->seed < right->seed);
}

enum tally_status tally_runner_run(struct tally_runner *runner, struct tally_runner_item *items,
                                   size_t n, const char *what, struct tally_error *err)
{
    qsort(items, n, sizeof *items, compare_items);
    for (size_t i = 0; i < n; i++) {
        runner->seeds[items[i].seed].runs_left++;
    }
    runner->items = items;
    enum tally_status status = run_pool(runner, n, run_item, what, err);
    for (size_t i = 0; i < runner->config.n_seeds; i++) {
        runner->seeds[i].runs_left = 0; /* of items that were never started */
    }
    return status;
}
