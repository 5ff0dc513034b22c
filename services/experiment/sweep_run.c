/* sweep_run: runs the jobs of a sweep on a few threads, and chooses the best.
 *
 * Jobs with equal data and equal f(x*) share them: the first piece of work that needs a share loads
 * the data and solves for f(x*), the last one frees the data. Pieces are ordered so that the shares
 * that are needed next are opened while the runs of the current one keep the other threads busy:
 *
 *     open 1, open 2, open 3, runs of 1, open 4, runs of 2, ...         with two threads
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "codec/numeric/checksum.h"
#include "services/base/time.h"
#include "services/experiment/run_pool.h"
#include "services/experiment/sweep.h"
#include "services/job/document.h"

enum {
    CURVE_POINTS = 128, /* of the curves on the page; memory for 100,000 runs */
    WIDENINGS = 6,      /* times that a grid may be widened */
    WIDENING = 3,       /* values each time */
    PROBE_MS = 200,
    BUCKETS = 4096
};

/* The data and f(x*) of runs. */
struct share {
    char *key;
    uint64_t hash;
    struct share *next; /* of its bucket */
    pthread_mutex_t mutex;
    struct tally_job_spec *spec; /* that the objective borrows; NULL while no run needs it */
    struct tally_objective *objective;
    bool is_solved;
    double f_star;
    struct tally_curvature curvature; /* of this and the next, what a row needs is known */
    double zero_gap;
    bool is_measured;
    size_t runs_left; /* of the batch */
    double solve_cost;
};

struct item {
    struct tally_sweep_trial *trial;
    size_t row, seed;
    int64_t horizon;
    struct share *share;
};

/* A run, or the opening of its share. */
struct piece {
    const struct item *item;
    bool opens;
};

struct engine {
    struct tally_sweep *sweep;
    const struct tally_sweep_config *config;
    struct tally_run_record record;
    struct share *buckets[BUCKETS];
    size_t n_shares;
    struct item *items; /* of the batch */
    size_t n_items;
    struct piece *pieces;
    size_t n_pieces;
    pthread_mutex_t mutex; /* guards what follows */
    double done_cost, planned_cost;
    size_t n_done, n_planned;
};

static enum tally_status no_memory(struct tally_error *err)
{
    return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the sweep");
}

/* ---- Stages. */

static double stage_share(const struct tally_sweep *sweep, int64_t stage)
{
    return pow(sweep->halving.factor, (double)(stage - sweep->halving.stages));
}

/* n * share, at least 1. Not a hair above an integer because of rounding. */
static double at_least_one(double value)
{
    return fmax(ceil(value - 1e-9), 1);
}

size_t tally_sweep_stage_rows(const struct tally_sweep *sweep, int64_t stage)
{
    double rows = (double)sweep->n_rows;
    for (int64_t i = 1; i < stage; i++) {
        rows = at_least_one(rows / sweep->halving.factor);
    }
    return (size_t)rows;
}

size_t tally_sweep_stage_seeds(const struct tally_sweep *sweep, int64_t stage)
{
    return sweep->halving.stages > 0 && sweep->halving.by == TALLY_SWEEP_HALVING_SEEDS
               ? (size_t)at_least_one((double)sweep->n_seeds * stage_share(sweep, stage))
               : sweep->n_seeds;
}

int64_t tally_sweep_stage_horizon(const struct tally_sweep *sweep, size_t row, int64_t stage)
{
    const int64_t horizon = sweep->rows[row].trials[0].horizon;
    return sweep->halving.stages > 0 && sweep->halving.by == TALLY_SWEEP_HALVING_HORIZON
               ? (int64_t)at_least_one((double)horizon * stage_share(sweep, stage))
               : horizon;
}

/* Runs of one row in a stage: with halving by seeds, only those that are new. */
static size_t stage_runs(const struct tally_sweep *sweep, int64_t stage)
{
    const bool keeps = sweep->halving.by == TALLY_SWEEP_HALVING_SEEDS && stage > 1;
    return tally_sweep_stage_seeds(sweep, stage) -
           (keeps ? tally_sweep_stage_seeds(sweep, stage - 1) : 0);
}

/* The seeds that a trial is run with before the best one is known. */
static size_t first_seeds(const struct tally_sweep *sweep, const struct tally_sweep_row *row)
{
    const size_t n = (size_t)sweep->tune_seeds;
    return row->tune != NULL && n > 0 && n < sweep->n_seeds ? n : sweep->n_seeds;
}

size_t tally_sweep_count(const struct tally_sweep *sweep)
{
    size_t n = 0;
    for (int64_t stage = 1; stage <= sweep->halving.stages; stage++) {
        n += tally_sweep_stage_rows(sweep, stage) * stage_runs(sweep, stage);
    }
    for (size_t i = 0; sweep->halving.stages == 0 && i < sweep->n_rows; i++) {
        const size_t first = first_seeds(sweep, &sweep->rows[i]);
        n += sweep->rows[i].n_trials * first + sweep->n_seeds - first;
    }
    return n;
}

/* ---- Values. */

#define AT(member) offsetof(struct tally_run, member)
const struct tally_sweep_result TALLY_SWEEP_RESULTS[] = {
    {"regret", AT(regret), "cumulative regret at the horizon"},
    {"loss", AT(loss), "loss of the last round"},
    {"uplink_bits", AT(uplink.payload),
     "bits of the messages of one client, mean over the clients"},
    {"downlink_bits", AT(downlink.payload), "bits of all broadcasts, each counted once"},
    {"control_bits", AT(control_bits),
     "bits besides messages, such as those of clients that decline"},
    {"bits", TALLY_SWEEP_SUM_OF_BITS, "the sum of the three"},
    {"uplink_formula_bits", AT(uplink.formula), "bits of one client as the paper counts them"},
    {"downlink_formula_bits", AT(downlink.formula),
     "bits of the broadcasts as the paper counts them"},
    {"rounds", AT(rounds), "rounds closed"},
    {"planned_regret", AT(planned_regret),
     "the regret that CALM's plan predicts before the job starts"},
    {"uplink_entropy_bits", AT(uplink.entropy_payload),
     "uplink_bits if each message were coded at the entropy of its levels, an estimate; computed "
     "if a column, an axis or the rule names it, but not on a coordinator"},
    {"downlink_entropy_bits", AT(downlink.entropy_payload), "the same of downlink_bits"},
    {"gap", TALLY_SWEEP_LAST_GAP, "f(x) - f(x*) after the last round; computed as the entropy is"},
};
const size_t TALLY_N_SWEEP_RESULTS = sizeof TALLY_SWEEP_RESULTS / sizeof TALLY_SWEEP_RESULTS[0];

static double result_of(const struct tally_run *run, size_t place)
{
    if (place == TALLY_SWEEP_SUM_OF_BITS) {
        return run->uplink.payload + run->downlink.payload + run->control_bits;
    }
    if (place == TALLY_SWEEP_LAST_GAP) {
        return run->diverged ? INFINITY : run->n_gaps > 0 ? run->gaps[run->n_gaps - 1].gap : NAN;
    }
    return *(const double *)((const char *)run + place);
}

static double metric_of(const struct tally_run *run, const char *name)
{
    struct tally_metric_summary summary;
    const char *at = run->metrics;
    while (at != NULL && tally_metrics_next(&at, &summary)) {
        if (strcmp(summary.name, name) == 0) {
            return summary.mean;
        }
    }
    return NAN;
}

double tally_sweep_value(const struct tally_run *run, const struct tally_sweep_column *column)
{
    return column->kind == TALLY_SWEEP_RESULT
               ? result_of(run, TALLY_SWEEP_RESULTS[column->result].place)
           : column->kind == TALLY_SWEEP_METRIC
               ? metric_of(run, column->name + sizeof "metrics." - 1)
               : NAN;
}

struct tally_summary tally_sweep_summary(const struct tally_sweep_trial *trial,
                                         const struct tally_sweep_column *column)
{
    const struct tally_summary none = {NAN, NAN};
    if (column->kind == TALLY_SWEEP_MEMBER) {
        const char *dot = strrchr(column->name, '.');
        char path[TALLY_SWEEP_PATH_CAPACITY];
        snprintf(path, sizeof path, "%s", column->name);
        path[dot != NULL ? (size_t)(dot - column->name) : 0] = '\0';
        struct tally_json *complete = tally_sweep_trial_complete(trial);
        const struct tally_json *parent =
            dot != NULL ? tally_sweep_member(complete, path) : complete;
        const double value =
            parent != NULL ? tally_json_get_real(parent, dot != NULL ? dot + 1 : column->name, NAN)
                           : NAN;
        tally_json_free(complete);
        return (struct tally_summary){value, 0};
    }
    double *values = calloc(trial->n_runs + 1, sizeof *values);
    if (values == NULL || trial->n_runs == 0) {
        free(values);
        return none;
    }
    for (size_t i = 0; i < trial->n_runs; i++) {
        values[i] = tally_sweep_value(&trial->runs[i], column);
    }
    const struct tally_summary summary = tally_summary_of(values, trial->n_runs);
    free(values);
    return summary;
}

bool tally_sweep_is_better(const struct tally_sweep *sweep, double left, double right)
{
    const struct tally_sweep_column *by = &sweep->by;
    const bool is_metric = by->kind == TALLY_SWEEP_METRIC;
    const char *name = is_metric ? by->name + sizeof "metrics." - 1 : TALLY_LOSS_NAME;
    if (isnan(left) || isnan(right)) {
        return isnan(right) && !isnan(left);
    }
    return tally_better_is_lower(sweep->rule.better, name) ? left < right : left > right;
}

/* ---- Shares. */

/* What runs with the same data and f(x*) have in common, as text; NULL = out of memory. */
static char *make_key(const struct tally_sweep_trial *trial, int64_t seed, size_t number)
{
    struct tally_buffer text = {0};
    enum tally_status status = tally_buffer_printf(&text, "%lld ", (long long)seed);
    /* Instances of plug-ins are for one thread. */
    if (status == TALLY_OK && trial->is_plugin) {
        status = tally_buffer_printf(&text, "%zu ", number);
    }
    if (status == TALLY_OK) {
        status = tally_buffer_append(&text, trial->problem, strlen(trial->problem));
    }
    if (status == TALLY_OK) {
        status = tally_buffer_append(&text, "", 1);
    }
    if (status != TALLY_OK) {
        tally_buffer_fini(&text);
        return NULL;
    }
    return (char *)text.data;
}

static int64_t seed_of(const struct tally_sweep *sweep, const struct tally_sweep_trial *trial,
                       size_t seed)
{
    return sweep->has_seeds ? sweep->first_seed + (int64_t)seed : trial->seed;
}

/* The share of an item, which is new if no other has its key. NULL = out of memory. */
static struct share *share_of(struct engine *engine, const struct item *item, size_t number)
{
    char *key = make_key(item->trial, seed_of(engine->sweep, item->trial, item->seed), number);
    if (key == NULL) {
        return NULL;
    }
    const uint64_t hash = tally_checksum64(key, strlen(key));
    struct share **at = &engine->buckets[hash % BUCKETS];
    while (*at != NULL && ((*at)->hash != hash || strcmp((*at)->key, key) != 0)) {
        at = &(*at)->next;
    }
    if (*at == NULL) {
        struct share *share = calloc(1, sizeof *share);
        if (share != NULL) {
            *share =
                (struct share){.key = key, .hash = hash, .solve_cost = item->trial->solve_cost};
            pthread_mutex_init(&share->mutex, NULL);
            engine->n_shares++;
            key = NULL;
        }
        *at = share;
    }
    free(key);
    return *at;
}

static void close_objective(struct share *share)
{
    tally_objective_free(share->objective);
    free(share->spec);
    share->objective = NULL;
    share->spec = NULL;
}

static void fini_shares(struct engine *engine)
{
    for (size_t i = 0; i < BUCKETS; i++) {
        for (struct share *share = engine->buckets[i], *next; share != NULL; share = next) {
            next = share->next;
            close_objective(share);
            pthread_mutex_destroy(&share->mutex);
            free(share->key);
            free(share);
        }
    }
}

static enum tally_status make_objective(const struct tally_sweep_config *config,
                                        const struct tally_job_spec *spec,
                                        struct tally_objective **ret, struct tally_error *err)
{
    return config->make_objective != NULL
               ? config->make_objective(config->context, spec, ret, err)
               : tally_objective_new(&spec->objective, (uint32_t)spec->clients,
                                     tally_job_spec_setting(spec).key, config->data_dir, ret, err);
}

static void add_done(struct engine *engine, double cost, bool is_run)
{
    pthread_mutex_lock(&engine->mutex);
    engine->done_cost += cost;
    engine->n_done += is_run;
    pthread_mutex_unlock(&engine->mutex);
}

/* Loads the data and solves for f(x*), unless that is done. The share is locked. */
static enum tally_status open_locked(struct engine *engine, struct share *share,
                                     const struct tally_job_spec *spec, const atomic_bool *stop,
                                     struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    if (share->objective == NULL) {
        struct tally_error why = TALLY_ERROR_INIT;
        share->spec = malloc(sizeof *share->spec);
        if (share->spec == NULL) {
            return no_memory(err);
        }
        *share->spec = *spec;
        status = make_objective(engine->config, share->spec, &share->objective, &why);
        if (status != TALLY_OK) {
            close_objective(share);
            return tally_fail(err, status, why.field, "%s", why.message);
        }
    }
    if (!share->is_solved) {
        share->f_star = spec->reference.type == TALLY_REFERENCE_VALUE ? spec->reference.value : NAN;
        if (spec->reference.type == TALLY_REFERENCE_SOLVE) {
            status = tally_objective_minimum(share->objective, &spec->domain, stop, &share->f_star,
                                             NULL, err);
        }
        share->is_solved = status == TALLY_OK;
        add_done(engine, share->solve_cost, false);
    }
    return status;
}

/* ---- Pieces of work. */

static enum tally_status run_open(struct engine *engine, const struct item *item,
                                  const struct tally_job_spec *spec, const atomic_bool *stop,
                                  struct tally_error *err)
{
    struct tally_local_preparation *preparation = calloc(1, sizeof *preparation);
    struct tally_job_spec *own = malloc(sizeof *own);
    const struct tally_data_source files = {.dir = engine->config->data_dir};
    struct tally_run *place = &item->trial->runs[item->seed];
    struct tally_run run = {0};
    double *initial = NULL;
    enum tally_status status = preparation != NULL && own != NULL ? TALLY_OK : no_memory(err);
    if (status == TALLY_OK) {
        *own = *spec;
        preparation->f_star = item->share->f_star;
        preparation->curvature = TALLY_CURVATURE_UNKNOWN;
        tally_local_schedule(own, preparation->schedule);
        status = tally_local_initial(own, item->share->objective, &files, &initial, err);
    }
    if (status == TALLY_OK) {
        preparation->initial = initial;
        status = tally_run_prepared(own, item->share->objective, preparation, &engine->record, stop,
                                    &run, err);
    }
    if (status == TALLY_OK) {
        tally_run_fini(place); /* of an earlier stage */
        *place = run;
    }
    free(initial);
    free(preparation);
    free(own);
    return status;
}

static void describe_run(const struct engine *engine, const struct item *item,
                         const struct tally_job_spec *spec, struct tally_error *err)
{
    const struct tally_sweep_row *row = &engine->sweep->rows[item->row];
    tally_error_wrap(err, "row %zu%s%s, seed %lld", item->row + 1, row->name[0] != '\0' ? " " : "",
                     row->name, (long long)spec->seed);
}

static enum tally_status run_item(struct engine *engine, const struct item *item,
                                  const atomic_bool *stop, struct tally_error *err)
{
    struct share *share = item->share;
    struct tally_job_spec *spec = tally_sweep_trial_spec(item->trial);
    if (spec == NULL) {
        return no_memory(err);
    }
    spec->seed = seed_of(engine->sweep, item->trial, item->seed);
    spec->horizon = item->horizon;
    pthread_mutex_lock(&share->mutex);
    enum tally_status status = open_locked(engine, share, spec, stop, err);
    pthread_mutex_unlock(&share->mutex);
    if (status == TALLY_OK) {
        status = run_open(engine, item, spec, stop, err);
    }
    pthread_mutex_lock(&share->mutex);
    if (--share->runs_left == 0) {
        close_objective(share);
    }
    pthread_mutex_unlock(&share->mutex);
    add_done(engine, tally_run_cost(spec), true);
    if (status != TALLY_OK && status != TALLY_CANCELLED) {
        describe_run(engine, item, spec, err);
    }
    free(spec);
    return status;
}

static enum tally_status open_share(struct engine *engine, const struct item *item,
                                    const atomic_bool *stop, struct tally_error *err)
{
    struct share *share = item->share;
    struct tally_job_spec *spec = tally_sweep_trial_spec(item->trial);
    enum tally_status status = spec != NULL ? TALLY_OK : no_memory(err);
    pthread_mutex_lock(&share->mutex);
    if (status == TALLY_OK && share->runs_left > 0) {
        spec->seed = seed_of(engine->sweep, item->trial, item->seed);
        status = open_locked(engine, share, spec, stop, err);
        if (status != TALLY_OK && status != TALLY_CANCELLED) {
            describe_run(engine, item, spec, err);
        }
    }
    pthread_mutex_unlock(&share->mutex);
    free(spec);
    return status;
}

static enum tally_status run_piece(void *context, size_t index, const atomic_bool *stop,
                                   struct tally_error *err)
{
    struct engine *engine = context;
    const struct piece *piece = &engine->pieces[index];
    return (piece->opens ? open_share : run_item)(engine, piece->item, stop, err);
}

static bool watch(void *context, size_t done)
{
    struct engine *engine = context;
    char text[64];
    (void)done;
    if (engine->config->watch == NULL) {
        return true;
    }
    pthread_mutex_lock(&engine->mutex);
    const double fraction =
        engine->planned_cost > 0 ? fmin(engine->done_cost / engine->planned_cost, 1) : 0;
    snprintf(text, sizeof text, "run %zu/%zu", engine->n_done, engine->n_planned);
    pthread_mutex_unlock(&engine->mutex);
    return engine->config->watch(engine->config->context, fraction, text);
}

static int compare_items(const void *a, const void *b)
{
    const struct item *left = a, *right = b;
    if (left->share != right->share) { /* in the order of their keys, which begin with the seed */
        return strcmp(left->share->key, right->share->key);
    }
    return left->row != right->row ? (left->row > right->row) - (left->row < right->row)
           : left->trial != right->trial
               ? (left->trial > right->trial) - (left->trial < right->trial)
               : (left->seed > right->seed) - (left->seed < right->seed);
}

/* Lists the pieces of the sorted items: each share is opened `threads` shares ahead. */
static void list_pieces(struct engine *engine)
{
    size_t ahead = 0;
    engine->n_pieces = 0;
    for (size_t i = 0, n_ahead = 0; i < engine->n_items; i++) {
        const struct share *share = engine->items[i].share;
        const bool is_first = i == 0 || engine->items[i - 1].share != share;
        n_ahead -= is_first && n_ahead > 0; /* this one has been opened */
        while (is_first && ahead < engine->n_items && n_ahead <= engine->config->threads) {
            const struct share *next = engine->items[ahead].share;
            engine->pieces[engine->n_pieces++] = (struct piece){&engine->items[ahead], true};
            n_ahead += next != share;
            while (ahead < engine->n_items && engine->items[ahead].share == next) {
                ahead++;
            }
        }
        engine->pieces[engine->n_pieces++] = (struct piece){&engine->items[i], false};
    }
}

/* Counts the runs of the batch that have ended. */
static void take_runs(struct engine *engine)
{
    for (size_t i = 0; i < engine->n_items; i++) {
        struct item *item = &engine->items[i];
        if (item->trial->n_runs <= item->seed && item->trial->runs[item->seed].curve != NULL) {
            item->trial->n_runs = item->seed + 1;
        }
    }
}

/* Gives engine->items to whom the caller wants to run them. */
static enum tally_status run_elsewhere(struct engine *engine, struct tally_error *err)
{
    const struct tally_sweep_config *config = engine->config;
    struct tally_sweep_job *jobs = calloc(engine->n_items + 1, sizeof *jobs);
    enum tally_status status = jobs != NULL ? TALLY_OK : no_memory(err);
    for (size_t i = 0; status == TALLY_OK && i < engine->n_items; i++) {
        const struct item *item = &engine->items[i];
        const int64_t seed = seed_of(engine->sweep, item->trial, item->seed);
        struct tally_json *document = tally_sweep_trial_document(item->trial);
        jobs[i] = (struct tally_sweep_job){
            .document = document,
            .place = &item->trial->runs[item->seed],
            .row = item->row,
            .seed = seed,
        };
        /* Documents without these members keep the bytes that they have. */
        const bool ok =
            (!engine->sweep->has_seeds || tally_json_set_integer(document, "seed", seed)) &&
            (item->horizon == item->trial->horizon ||
             tally_json_set_integer(document, "horizon", item->horizon));
        status = document != NULL && ok ? TALLY_OK : no_memory(err);
    }
    if (status == TALLY_OK) {
        status = config->execute(config->context, jobs, engine->n_items, err);
    }
    for (size_t i = 0; jobs != NULL && i < engine->n_items; i++) {
        tally_json_free(jobs[i].document);
    }
    free(jobs);
    take_runs(engine);
    return status;
}

/* Runs engine->items. */
static enum tally_status run_batch(struct engine *engine, struct tally_error *err)
{
    if (engine->config->execute != NULL) {
        return run_elsewhere(engine, err);
    }
    const struct tally_pool pool = {
        .threads = engine->config->threads, .watch = watch, .context = engine};
    for (size_t i = 0; i < engine->n_items; i++) {
        struct item *item = &engine->items[i];
        item->share = share_of(engine, item, i);
        if (item->share == NULL) {
            return no_memory(err);
        }
    }
    qsort(engine->items, engine->n_items, sizeof *engine->items, compare_items);
    for (size_t i = 0; i < engine->n_items; i++) {
        engine->items[i].share->runs_left++;
    }
    engine->pieces = calloc(2 * engine->n_items + 1, sizeof *engine->pieces);
    if (engine->pieces == NULL) {
        return no_memory(err);
    }
    list_pieces(engine);
    const enum tally_status status =
        tally_pool_run(&pool, engine->n_pieces, run_piece, engine, err);
    for (size_t i = 0; i < engine->n_items; i++) {
        engine->items[i].share->runs_left = 0;
    }
    take_runs(engine);
    free(engine->pieces);
    engine->pieces = NULL;
    return status;
}

/* Adds the runs of a trial with seeds first .. end - 1. */
static void add_items(struct engine *engine, size_t row, struct tally_sweep_trial *trial,
                      size_t first, size_t end, int64_t horizon)
{
    for (size_t seed = first; seed < end; seed++) {
        engine->items[engine->n_items++] =
            (struct item){.trial = trial, .row = row, .seed = seed, .horizon = horizon};
    }
}

/* Room for n items. */
static enum tally_status begin_batch(struct engine *engine, size_t n, struct tally_error *err)
{
    free(engine->items);
    engine->items = calloc(n + 1, sizeof *engine->items);
    engine->n_items = 0;
    return engine->items != NULL ? TALLY_OK : no_memory(err);
}

/* ---- Choosing. */

static double mean_of(const struct tally_sweep *sweep, const struct tally_sweep_trial *trial)
{
    return tally_sweep_summary(trial, &sweep->by).mean;
}

/* The first of the best trials. */
static void choose_trial(const struct tally_sweep *sweep, struct tally_sweep_row *row)
{
    double best = mean_of(sweep, &row->trials[0]);
    row->best = 0;
    for (size_t i = 1; i < row->n_trials; i++) {
        const double mean = mean_of(sweep, &row->trials[i]);
        if (tally_sweep_is_better(sweep, mean, best)) {
            row->best = i;
            best = mean;
        }
    }
    row->at_edge = row->n_trials > 1 && (row->best == 0 || row->best + 1 == row->n_trials);
}

static double row_mean(const struct tally_sweep *sweep, size_t row)
{
    return mean_of(sweep, tally_sweep_trial_of(sweep, row));
}

/* The first of the best rows of the last stage. */
static void choose_row(struct tally_sweep *sweep)
{
    int64_t last = 1;
    bool is_first = true;
    for (size_t i = 0; i < sweep->n_rows; i++) {
        last = sweep->rows[i].stage > last ? sweep->rows[i].stage : last;
    }
    for (size_t i = 0; i < sweep->n_rows; i++) {
        if (sweep->rows[i].stage == last &&
            (is_first ||
             tally_sweep_is_better(sweep, row_mean(sweep, i), row_mean(sweep, sweep->best)))) {
            sweep->best = i;
            is_first = false;
        }
    }
}

/* Moves the `keep` best rows of a stage to the next one. */
static void promote(struct tally_sweep *sweep, int64_t stage, size_t keep)
{
    for (size_t kept = 0; kept < keep; kept++) {
        size_t best = sweep->n_rows;
        for (size_t i = 0; i < sweep->n_rows; i++) {
            if (sweep->rows[i].stage == stage &&
                (best == sweep->n_rows ||
                 tally_sweep_is_better(sweep, row_mean(sweep, i), row_mean(sweep, best)))) {
                best = i;
            }
        }
        sweep->rows[best].stage++;
    }
}

static enum tally_status run_stages(struct engine *engine, struct tally_error *err)
{
    struct tally_sweep *sweep = engine->sweep;
    const bool by_seeds = sweep->halving.by == TALLY_SWEEP_HALVING_SEEDS;
    enum tally_status status = TALLY_OK;
    for (int64_t stage = 1; status == TALLY_OK && stage <= sweep->halving.stages; stage++) {
        const size_t end = tally_sweep_stage_seeds(sweep, stage);
        status = begin_batch(engine, sweep->n_rows * end, err);
        for (size_t i = 0; status == TALLY_OK && i < sweep->n_rows; i++) {
            struct tally_sweep_trial *trial = &sweep->rows[i].trials[0];
            if (sweep->rows[i].stage == stage) {
                add_items(engine, i, trial, by_seeds ? trial->n_runs : 0, end,
                          tally_sweep_stage_horizon(sweep, i, stage));
            }
        }
        if (status == TALLY_OK) {
            status = run_batch(engine, err);
        }
        if (status == TALLY_OK && stage < sweep->halving.stages) {
            promote(sweep, stage, tally_sweep_stage_rows(sweep, stage + 1));
        }
    }
    return status;
}

static void plan_more(struct engine *engine)
{
    for (size_t i = 0; i < engine->n_items; i++) {
        engine->planned_cost += engine->items[i].trial->cost;
    }
    engine->n_planned += engine->n_items;
}

/* Widens every row whose best trial is at an end of its powers. */
static enum tally_status widen_all(struct engine *engine, struct tally_error *err)
{
    struct tally_sweep *sweep = engine->sweep;
    enum tally_status status = begin_batch(engine, sweep->n_rows * WIDENING * sweep->n_seeds, err);
    for (size_t i = 0; status == TALLY_OK && i < sweep->n_rows; i++) {
        struct tally_sweep_row *row = &sweep->rows[i];
        bool widened = false;
        if (row->tune == NULL || !row->at_edge) {
            continue;
        }
        status = tally_sweep_widen(sweep, row, WIDENING, &widened, err);
        const size_t first = row->best == 0 ? 0 : row->n_trials - WIDENING;
        for (size_t k = 0; status == TALLY_OK && widened && k < WIDENING; k++) {
            struct tally_sweep_trial *trial = &row->trials[first + k];
            add_items(engine, i, trial, 0, first_seeds(sweep, row), trial->horizon);
        }
    }
    if (status == TALLY_OK && engine->n_items > 0) {
        plan_more(engine);
        status = run_batch(engine, err);
    }
    return status;
}

static void choose_trials(struct tally_sweep *sweep)
{
    for (size_t i = 0; i < sweep->n_rows; i++) {
        choose_trial(sweep, &sweep->rows[i]);
    }
}

/* Runs the best trials with the seeds that the search has left out. */
static enum tally_status run_others(struct engine *engine, struct tally_error *err)
{
    struct tally_sweep *sweep = engine->sweep;
    enum tally_status status = begin_batch(engine, sweep->n_rows * sweep->n_seeds, err);
    for (size_t i = 0; status == TALLY_OK && i < sweep->n_rows; i++) {
        struct tally_sweep_row *row = &sweep->rows[i];
        struct tally_sweep_trial *trial = &row->trials[row->best];
        add_items(engine, i, trial, trial->n_runs, sweep->n_seeds, trial->horizon);
    }
    return status == TALLY_OK && engine->n_items > 0 ? run_batch(engine, err) : status;
}

static enum tally_status run_once(struct engine *engine, struct tally_error *err)
{
    struct tally_sweep *sweep = engine->sweep;
    enum tally_status status = begin_batch(engine, tally_sweep_count(sweep), err);
    for (size_t i = 0; status == TALLY_OK && i < sweep->n_rows; i++) {
        struct tally_sweep_row *row = &sweep->rows[i];
        for (size_t k = 0; k < row->n_trials; k++) {
            add_items(engine, i, &row->trials[k], 0, first_seeds(sweep, row),
                      row->trials[k].horizon);
        }
    }
    if (status == TALLY_OK) {
        status = run_batch(engine, err);
    }
    choose_trials(sweep);
    for (int again = 0; status == TALLY_OK && again < WIDENINGS; again++) {
        status = widen_all(engine, err);
        if (status != TALLY_OK || engine->n_items == 0) {
            break;
        }
        choose_trials(sweep);
    }
    return status == TALLY_OK ? run_others(engine, err) : status;
}

/* ---- Costs. */

/* Of a run of a row in a stage of halving. */
static double stage_cost(const struct tally_sweep *sweep, size_t row, int64_t stage)
{
    struct tally_job_spec *spec = tally_sweep_trial_spec(&sweep->rows[row].trials[0]);
    double cost = 0;
    if (spec != NULL) {
        spec->horizon = tally_sweep_stage_horizon(sweep, row, stage);
        cost = tally_run_cost(spec);
    }
    free(spec);
    return cost;
}

/* Cost of all runs. With halving the rows that go on are not known yet: they cost as much as the
 * mean. */
static double planned_cost(const struct tally_sweep *sweep)
{
    double cost = 0;
    for (int64_t stage = 1; stage <= sweep->halving.stages; stage++) {
        double sum = 0;
        for (size_t i = 0; i < sweep->n_rows; i++) {
            sum += stage_cost(sweep, i, stage);
        }
        cost += sum * (double)stage_runs(sweep, stage) *
                (double)tally_sweep_stage_rows(sweep, stage) / (double)sweep->n_rows;
    }
    for (size_t i = 0; sweep->halving.stages == 0 && i < sweep->n_rows; i++) {
        const struct tally_sweep_row *row = &sweep->rows[i];
        const size_t first = first_seeds(sweep, row);
        for (size_t k = 0; k < row->n_trials; k++) {
            cost += (double)first * row->trials[k].cost;
        }
        cost += (double)(sweep->n_seeds - first) * row->trials[0].cost;
    }
    return cost;
}

/* Adds the shares of all first-stage runs; sums what solving them costs. */
static enum tally_status plan_shares(struct engine *engine, double *ret_cost,
                                     struct tally_error *err)
{
    struct tally_sweep *sweep = engine->sweep;
    double cost = 0;
    for (size_t i = 0; i < sweep->n_rows; i++) {
        for (size_t k = 0; k < sweep->rows[i].n_trials; k++) {
            for (size_t seed = 0; seed < sweep->n_seeds; seed++) {
                const struct item item = {.trial = &sweep->rows[i].trials[k], .seed = seed};
                const size_t before = engine->n_shares;
                const struct share *share = share_of(engine, &item, 0);
                if (share == NULL) {
                    return no_memory(err);
                }
                cost += engine->n_shares > before ? share->solve_cost : 0;
            }
        }
    }
    *ret_cost = cost;
    return TALLY_OK;
}

struct probe {
    int64_t until_ms;
    int64_t time_step;
};

static bool probe_round(void *context, const struct tally_job *job,
                        const struct tally_round_record *record)
{
    struct probe *probe = context;
    (void)job;
    probe->time_step = record->time_step;
    return tally_monotonic_ms() < probe->until_ms;
}

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Loads the data of a job and runs it for a while: measures the time of its data, and of a whole
 * run. */
static enum tally_status measure(const struct tally_sweep_config *config,
                                 struct tally_job_spec *spec, double *ret_data_seconds,
                                 double *ret_run_seconds, struct tally_error *err)
{
    struct probe probe = {.until_ms = 0};
    const struct tally_local_observer observer = {.context = &probe, .on_round = probe_round};
    const struct tally_data_source files = {.dir = config->data_dir};
    struct tally_local_preparation *preparation = calloc(1, sizeof *preparation);
    struct tally_objective *objective = NULL;
    struct tally_job *job = NULL;
    double *initial = NULL;
    const double began = cpu_seconds();
    enum tally_status status = preparation != NULL ? TALLY_OK : no_memory(err);
    if (status == TALLY_OK) {
        status = make_objective(config, spec, &objective, err);
    }
    *ret_data_seconds = cpu_seconds() - began;
    if (status == TALLY_OK) {
        preparation->curvature = TALLY_CURVATURE_UNKNOWN; /* and any f(x*) */
        tally_local_schedule(spec, preparation->schedule);
        status = tally_local_initial(spec, objective, &files, &initial, err);
    }
    if (status == TALLY_OK) {
        struct tally_error why = TALLY_ERROR_INIT;
        const double started = cpu_seconds();
        preparation->initial = initial;
        probe.until_ms = tally_monotonic_ms() + PROBE_MS;
        status = tally_local_run_prepared(spec, objective, preparation, &observer, &job, &why);
        const double share = (double)probe.time_step / (double)spec->horizon;
        *ret_run_seconds = (cpu_seconds() - started) / (share > 0 ? share : 1);
        status = status == TALLY_OK || status == TALLY_CANCELLED
                     ? TALLY_OK
                     : tally_fail(err, status, why.field, "%s", why.message);
    }
    tally_job_free(job);
    tally_objective_free(objective);
    free(initial);
    free(preparation);
    return status;
}

enum tally_status tally_sweep_forecast(const struct tally_sweep *sweep,
                                       const struct tally_sweep_config *config, double *ret_seconds,
                                       struct tally_error *err)
{
    struct engine *engine = calloc(1, sizeof *engine);
    struct tally_job_spec *spec = tally_sweep_trial_spec(&sweep->rows[0].trials[0]);
    double data_seconds = 0, run_seconds = 0, solve_cost = 0;
    enum tally_status status = engine != NULL && spec != NULL ? TALLY_OK : no_memory(err);
    if (status == TALLY_OK) {
        struct tally_sweep copy = *sweep;
        engine->sweep = &copy;
        engine->config = config;
        status = plan_shares(engine, &solve_cost, err);
    }
    if (status == TALLY_OK) {
        status = measure(config, spec, &data_seconds, &run_seconds, err);
    }
    if (status == TALLY_OK) {
        const double pace = run_seconds / sweep->rows[0].trials[0].cost;
        *ret_seconds =
            pace * (planned_cost(sweep) + solve_cost) + data_seconds * (double)engine->n_shares;
    }
    if (engine != NULL) {
        fini_shares(engine);
    }
    free(engine);
    free(spec);
    return status;
}

/* Whether the rule, an axis or a column is this result. */
static bool names_result(const struct tally_sweep *sweep, const char *name)
{
    bool names = strcmp(sweep->by.name, name) == 0 || strcmp(sweep->axes.x, name) == 0 ||
                 strcmp(sweep->axes.y, name) == 0;
    for (size_t i = 0; i < sweep->n_columns; i++) {
        names = names || strcmp(sweep->columns[i].name, name) == 0;
    }
    return names;
}

/* ---- What rows need to know before they run. */

/* Measures f on the data of the item's share. */
static enum tally_status measure_locked(struct engine *engine, const struct item *item,
                                        const atomic_bool *stop, struct tally_error *err)
{
    struct share *share = item->share;
    struct tally_job_spec *spec = tally_sweep_trial_spec(item->trial);
    enum tally_status status =
        spec != NULL ? open_locked(engine, share, spec, stop, err) : no_memory(err);
    if (status != TALLY_OK || share->is_measured) {
        free(spec);
        return status;
    }
    status = tally_objective_curvature(share->objective, stop, &share->curvature, err);
    double *zero = calloc(share->objective->dim, sizeof *zero);
    if (status == TALLY_OK && zero == NULL) {
        status = no_memory(err);
    }
    if (status == TALLY_OK) {
        share->zero_gap =
            tally_run_loss_at(share->objective, (uint32_t)spec->clients, zero) - share->f_star;
    }
    free(zero);
    free(spec);
    share->is_measured = status == TALLY_OK;
    return status;
}

static enum tally_status measure_row(void *context, size_t index, const atomic_bool *stop,
                                     struct tally_error *err)
{
    struct engine *engine = context;
    const struct item *item = &engine->items[index];
    struct tally_sweep_row *row = &engine->sweep->rows[item->row];
    struct tally_error why = TALLY_ERROR_INIT;
    pthread_mutex_lock(&item->share->mutex);
    enum tally_status status = measure_locked(engine, item, stop, &why);
    row->curvature = item->share->curvature;
    row->zero_gap = item->share->zero_gap;
    pthread_mutex_unlock(&item->share->mutex);
    if (status == TALLY_OK && row->has_unit && !(row->curvature.smoothness > 0)) {
        status =
            tally_fail(&why, TALLY_INVALID_ARGUMENT, "unit", "the smoothness of f is not known");
    } else if (status == TALLY_OK && row->has_unit) {
        status = tally_sweep_set_unit(engine->sweep, row, 1 / row->curvature.smoothness, &why);
    }
    if (status != TALLY_OK && status != TALLY_CANCELLED) {
        tally_error_wrap(&why, "row %zu%s%s", item->row + 1, row->name[0] != '\0' ? " " : "",
                         row->name);
    }
    return status == TALLY_OK ? status : tally_fail(err, status, why.field, "%s", why.message);
}

/* A coordinator does not report what these need. */
static enum tally_status check_elsewhere(const struct engine *engine, struct tally_error *err)
{
    const struct tally_sweep *sweep = engine->sweep;
    for (size_t i = 0; i < sweep->n_rows; i++) {
        if (sweep->rows[i].has_unit) {
            return tally_fail(err, TALLY_INVALID_ARGUMENT, "unit",
                              "row %zu: a coordinator does not report the smoothness of f", i + 1);
        }
    }
    return engine->record.with_gaps || !engine->record.no_entropy
               ? tally_fail(err, TALLY_INVALID_ARGUMENT, "columns",
                            "a coordinator does not report gap and entropy")
               : TALLY_OK;
}

/* Measures f for the rows that need it. */
static enum tally_status measure_rows(struct engine *engine, struct tally_error *err)
{
    struct tally_sweep *sweep = engine->sweep;
    const struct tally_pool pool = {
        .threads = engine->config->threads, .watch = watch, .context = engine};
    if (engine->config->execute != NULL) {
        return check_elsewhere(engine, err);
    }
    enum tally_status status = begin_batch(engine, sweep->n_rows, err);
    for (size_t i = 0; status == TALLY_OK && i < sweep->n_rows; i++) {
        if (sweep->rows[i].has_unit || engine->record.with_gaps) {
            add_items(engine, i, &sweep->rows[i].trials[0], 0, 1, 0);
            struct item *item = &engine->items[engine->n_items - 1];
            item->share = share_of(engine, item, i);
            status = item->share != NULL ? TALLY_OK : no_memory(err);
        }
    }
    return status == TALLY_OK ? tally_pool_run(&pool, engine->n_items, measure_row, engine, err)
                              : status;
}

enum tally_status tally_sweep_run(struct tally_sweep *sweep,
                                  const struct tally_sweep_config *config, struct tally_error *err)
{
    struct engine *engine = calloc(1, sizeof *engine);
    double solve_cost = 0;
    if (engine == NULL) {
        return no_memory(err);
    }
    engine->sweep = sweep;
    engine->config = config;
    engine->record = (struct tally_run_record){
        .max_points = config->curve_points > 0 ? config->curve_points : CURVE_POINTS,
        .no_entropy = !config->with_entropy && !names_result(sweep, "uplink_entropy_bits") &&
                      !names_result(sweep, "downlink_entropy_bits"),
        .with_gaps = config->with_gaps || names_result(sweep, "gap")};
    pthread_mutex_init(&engine->mutex, NULL);
    enum tally_status status = plan_shares(engine, &solve_cost, err);
    if (status == TALLY_OK) {
        engine->planned_cost = planned_cost(sweep) + solve_cost;
        engine->n_planned = tally_sweep_count(sweep);
        status = measure_rows(engine, err);
    }
    if (status == TALLY_OK) {
        status = sweep->halving.stages > 0 ? run_stages(engine, err) : run_once(engine, err);
    }
    if (status == TALLY_OK) {
        choose_row(sweep);
    }
    fini_shares(engine);
    pthread_mutex_destroy(&engine->mutex);
    free(engine->items);
    free(engine);
    return status;
}
