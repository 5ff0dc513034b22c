#include "services/experiment/logistic.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/base/text.h"
#include "services/base/text_table.h"
#include "services/experiment/run_pool.h"
#include "services/job/document.h"
#include "services/job/job_local.h"

/* Whether the best step size is the smallest or the largest that was run, so that one beyond may be
 * better. */
static bool tally_logistic_is_at_edge(const struct tally_logistic_row *row);

enum { CLIENTS = 20, FIRST_STEP = -4 };
static const double SAMPLE_GROWTH = 1.02; /* from one measured round to the next */
static const double LEAST_GAP = 1e-13;    /* a smaller gap is rounding error */
static const char FETCH[] = "deploy/fetch-logistic gets the data";

const double TALLY_LOGISTIC_GAPS[TALLY_LOGISTIC_LEVELS] = {1e-1, 1e-2, 1e-4, 1e-6};

/* The largest set is first, so that no thread starts it last. `minibatch`: data points per
 * stochastic gradient. `queries`: stochastic gradients per message. `k`: for EF21, about a
 * twentieth of the dimension. */
struct problem {
    const char *name, *objective;
    long long horizon, minibatch, queries, k;
};
static const struct problem PROBLEMS[] = {
    {"fashion",
     "{\"type\": \"softmax_regression\", \"l2\": 0.005, \"data\": {\"type\": \"idx\", \"images\": "
     "\"fashion/train-images-idx3-ubyte\", \"labels\": \"fashion/train-labels-idx1-ubyte\", "
     "\"features\": 784, \"classes\": 10, \"points_per_class\": 250}}",
     300, 10, 10, 392},
    {"digits",
     "{\"type\": \"softmax_regression\", \"l2\": 0.005, \"bias\": true, \"data\": {\"type\": "
     "\"csv\", \"file\": \"logistic/digits.csv\", \"features\": 64, \"classes\": 10, \"label\": "
     "\"y\"}}",
     1000, 4, 10, 32},
    {"heart_scale",
     "{\"type\": \"logistic_regression\", \"l2\": 0.005, \"bias\": true, \"data\": {\"type\": "
     "\"libsvm\", \"file\": \"logistic/heart_scale\", \"features\": 13}}",
     4000, 2, 10, 1},
    {"wine",
     "{\"type\": \"softmax_regression\", \"l2\": 0.005, \"bias\": true, \"data\": {\"type\": "
     "\"csv\", \"file\": \"logistic/wine.csv\", \"features\": 13, \"classes\": 3, \"label\": "
     "\"y\"}}",
     4000, 2, 10, 2},
};
enum { N_PROBLEMS = sizeof PROBLEMS / sizeof PROBLEMS[0] };

/* `type`: the algorithm. `members`: JSON members of it, besides step_size and those of the fields
 * below. */
struct method {
    const char *name, *type, *members;
    long long local_steps; /* with exact gradients; 0: it has no such member */
    bool has_k;
};
static const struct method METHODS[] = {
    {"minibatch_sgd", "minibatch_sgd", "", 1, false},
    {"fedavg", "fedavg", "", 10, false},
    {"diana", "diana", ", \"levels\": 1", 1, false},
    {"ef21", "ef21", "", 1, true},
    {"ceal", "ceal", ", \"sigma\": \"auto\", \"gradient_bound\": \"auto\"", 0, false},
    {"calm", "calm", "", 0, false},
    {"fedavg_compressed", "fedavg", ", \"compression\": \"auto\"", 10, false},
};
enum { N_METHODS = sizeof METHODS / sizeof METHODS[0], N_KINDS = 2 * N_METHODS };

static const struct problem *problem_of(const char *name)
{
    const struct problem *problem = PROBLEMS;
    while (strcmp(problem->name, name) != 0) {
        problem++;
    }
    return problem;
}

static const struct method *method_of(const char *name)
{
    const struct method *method = METHODS;
    while (strcmp(method->name, name) != 0) {
        method++;
    }
    return method;
}

static enum tally_status job_of(const struct problem *problem, const struct method *method,
                                bool is_exact, double step_size, int64_t seed,
                                struct tally_job_spec *ret_spec, struct tally_error *err)
{
    char text[1024], local_steps[64] = "", k[32] = "";
    if (method->local_steps > 0) {
        snprintf(local_steps, sizeof local_steps, ", \"local_steps\": %lld",
                 is_exact ? method->local_steps : problem->queries);
    }
    if (method->has_k) {
        snprintf(k, sizeof k, ", \"k\": %lld", problem->k);
    }
    /* Only the loss at the end of each round is used, none along a client's own steps. */
    const int n = snprintf(
        text, sizeof text,
        "{\"name\": \"logistic-%s-%s-%s\", \"clients\": %d, \"horizon\": %lld, \"minibatch\": "
        "%lld, \"evaluate_every\": 1000000, \"seed\": %lld, \"objective\": %s, \"algorithm\": "
        "{\"type\": \"%s\", \"step_size\": %.17g%s%s%s}}",
        problem->name, is_exact ? "exact" : "stochastic", method->name, CLIENTS, problem->horizon,
        is_exact ? 0 : problem->minibatch, (long long)seed, problem->objective, method->type,
        step_size, local_steps, k, method->members);
    return tally_document_parse(text, (size_t)n, ret_spec, err);
}

enum tally_status tally_logistic_job(const struct tally_logistic *logistic, size_t i,
                                     double step_size, struct tally_job_spec *ret_spec,
                                     struct tally_error *err)
{
    const struct tally_logistic_row *row = &logistic->rows[i];
    return job_of(problem_of(row->set), method_of(row->method), row->is_exact, step_size,
                  logistic->seed, ret_spec, err);
}

/* The data of a set, and what is computed from them once. */
struct material {
    struct tally_objective *objective;
    struct tally_local_preparation preparation;
    double start_gap;
};

struct experiment {
    const struct tally_logistic_config *config;
    struct tally_logistic *logistic;
    struct material materials[N_PROBLEMS]; /* in the order of logistic->sets */
};

/* f(x) as the mean of the local losses, which for images are more exact than one sum over all
 * points. */
static enum tally_status loss_at(const struct tally_objective *objective, const double *x,
                                 double *ret_loss, struct tally_error *err)
{
    double sum = 0, loss;
    enum tally_status status = TALLY_OK;
    for (uint32_t m = 0; status == TALLY_OK && m < CLIENTS; m++) {
        status = tally_objective_local_loss(objective, m, x, &loss, err);
        sum += loss;
    }
    *ret_loss = sum / CLIENTS;
    return status;
}

/* Prepares set `index`: data, minimum, curvature. */
static enum tally_status prepare(void *context, size_t index, const atomic_bool *stop,
                                 struct tally_error *err)
{
    struct experiment *experiment = context;
    struct tally_logistic_set *set = &experiment->logistic->sets[index];
    struct material *material = &experiment->materials[index];
    struct tally_job_spec spec;
    enum tally_status status =
        job_of(problem_of(set->name), &METHODS[0], true, 1, experiment->logistic->seed, &spec, err);
    if (status != TALLY_OK) {
        return status;
    }
    const struct tally_setting setting = tally_job_spec_setting(&spec);
    status = tally_objective_new(&spec.objective, CLIENTS, setting.key,
                                 experiment->config->data_dir, &material->objective, err);
    if (status != TALLY_OK) {
        tally_error_wrap(err, "%s", FETCH);
        return status;
    }
    status = tally_local_prepare(&spec, material->objective, stop, &material->preparation, err);
    double *zero = calloc(setting.dim, sizeof *zero), loss = 0;
    if (status == TALLY_OK) {
        status = zero != NULL ? loss_at(material->objective, zero, &loss, err) : TALLY_NO_MEMORY;
    }
    free(zero);
    if (status == TALLY_OK) {
        material->start_gap = loss - material->preparation.f_star;
        *set = (struct tally_logistic_set){
            set->name, setting.dim, material->preparation.curvature.smoothness,
            material->preparation.curvature.strong_convexity, material->start_gap};
    }
    return status;
}

struct recorder {
    const struct material *material;
    const atomic_bool *stop;
    struct tally_logistic_curve *curve;
    size_t capacity;
    double next; /* the next round whose gap is measured */
    enum tally_status status;
};

static void add_point(struct recorder *recorder, const struct tally_logistic_point *point)
{
    struct tally_logistic_curve *curve = recorder->curve;
    if (curve->n_points == recorder->capacity) {
        const size_t capacity = recorder->capacity == 0 ? 64 : 2 * recorder->capacity;
        struct tally_logistic_point *points = realloc(curve->points, capacity * sizeof *points);
        if (points == NULL) {
            recorder->status = TALLY_NO_MEMORY;
            return;
        }
        curve->points = points;
        recorder->capacity = capacity;
    }
    curve->points[curve->n_points++] = *point;
}

static bool on_round(void *context, const struct tally_job *job,
                     const struct tally_round_record *record)
{
    struct recorder *recorder = context;
    const bool is_last = record->time_step == tally_job_get_spec(job)->horizon;
    if (is_last || (double)record->round >= recorder->next) {
        const struct tally_ledger *bits = &tally_job_progress(job)->bits;
        size_t dim;
        double loss;
        recorder->status =
            loss_at(recorder->material->objective, tally_job_point(job, &dim), &loss, NULL);
        const double gap =
            (loss - recorder->material->preparation.f_star) / recorder->material->start_gap;
        const struct tally_logistic_point point = {
            record->round, (double)bits->uplink.payload_bits / CLIENTS,
            (double)(bits->downlink.payload_bits + bits->control_bits),
            gap < LEAST_GAP ? LEAST_GAP : gap};
        if (recorder->status == TALLY_OK) {
            add_point(recorder, &point);
        }
        recorder->next = fmax(recorder->next + 1, recorder->next * SAMPLE_GROWTH);
    }
    return recorder->status == TALLY_OK && !atomic_load(recorder->stop);
}

/* Runs piece `index`: one step size of one row. */
static enum tally_status run_curve(void *context, size_t index, const atomic_bool *stop,
                                   struct tally_error *err)
{
    struct experiment *experiment = context;
    struct tally_logistic *logistic = experiment->logistic;
    const size_t row = index / TALLY_LOGISTIC_STEPS, step = index % TALLY_LOGISTIC_STEPS;
    const struct material *material = &experiment->materials[row / N_KINDS];
    struct recorder recorder = {
        .material = material, .stop = stop, .curve = &logistic->rows[row].curves[step], .next = 1};
    recorder.curve->step_size =
        ldexp(1 / logistic->sets[row / N_KINDS].smoothness, FIRST_STEP + (int)step);
    const struct tally_local_observer observer = {.context = &recorder, .on_round = on_round};
    struct tally_job_spec spec;
    struct tally_job *job = NULL;
    enum tally_status status =
        tally_logistic_job(logistic, row, recorder.curve->step_size, &spec, err);
    if (status == TALLY_OK) {
        status = tally_local_run_on(&spec, material->objective, material->preparation.f_star,
                                    &observer, &job, err);
    }
    tally_job_free(job);
    return recorder.status != TALLY_OK
               ? tally_fail(err, recorder.status, NULL, "no memory for a run of %s", spec.name)
               : status;
}

/* The first point of the curve whose gap is at most `gap`; NULL if there is none. */
static const struct tally_logistic_point *reach(const struct tally_logistic_curve *curve,
                                                double gap)
{
    size_t i = 0;
    while (i < curve->n_points && !(curve->points[i].gap <= gap)) {
        i++;
    }
    return i < curve->n_points ? &curve->points[i] : NULL;
}

static void price_row(struct tally_logistic_row *row)
{
    double least = INFINITY;
    for (size_t k = 0; k < TALLY_LOGISTIC_STEPS; k++) {
        const struct tally_logistic_curve *curve = &row->curves[k];
        const double last = curve->n_points > 0 ? curve->points[curve->n_points - 1].gap : INFINITY;
        if (row->best == NULL || last < least) {
            row->best = curve;
            least = last;
        }
        for (size_t level = 0; level < TALLY_LOGISTIC_LEVELS; level++) {
            struct tally_logistic_price *price = &row->prices[level];
            const struct tally_logistic_point *at = reach(curve, TALLY_LOGISTIC_GAPS[level]);
            if (at != NULL && (price->curve == NULL || at->uplink < price->uplink)) {
                *price = (struct tally_logistic_price){curve, at->uplink, at->downlink};
            }
        }
    }
    for (size_t level = 0; level < TALLY_LOGISTIC_LEVELS; level++) {
        row->best = row->prices[level].curve != NULL ? row->prices[level].curve : row->best;
    }
}

static bool tally_logistic_is_at_edge(const struct tally_logistic_row *row)
{
    return row->best == &row->curves[0] || row->best == &row->curves[TALLY_LOGISTIC_STEPS - 1];
}

static enum tally_status check_names(const char *only, struct tally_error *err)
{
    size_t n;
    for (const char *at; (at = tally_word_list_next(&only, &n)) != NULL;) {
        size_t i = 0;
        while (i < N_PROBLEMS && !tally_word_list_has(PROBLEMS[i].name, at, n)) {
            i++;
        }
        if (i == N_PROBLEMS) {
            return tally_fail(err, TALLY_INVALID_ARGUMENT, "set",
                              "unknown set \"%.*s\"; choose wine, heart_scale, digits or fashion",
                              (int)(n < 60 ? n : 60), at);
        }
    }
    return TALLY_OK;
}

static bool make_rows(const struct tally_logistic_config *config, struct tally_logistic *logistic)
{
    logistic->sets = calloc(N_PROBLEMS, sizeof *logistic->sets);
    logistic->rows = calloc((size_t)N_PROBLEMS * N_KINDS, sizeof *logistic->rows);
    for (size_t i = 0; logistic->sets != NULL && logistic->rows != NULL && i < N_PROBLEMS; i++) {
        const char *name = PROBLEMS[i].name;
        if (config->only != NULL && !tally_word_list_has(config->only, name, strlen(name))) {
            continue;
        }
        logistic->sets[logistic->n_sets++].name = name;
        for (size_t kind = 0; kind < N_KINDS; kind++) {
            struct tally_logistic_row *row = &logistic->rows[logistic->n_rows++];
            row->set = name;
            row->method = METHODS[kind % N_METHODS].name;
            row->is_exact = kind < N_METHODS;
        }
    }
    return logistic->sets != NULL && logistic->rows != NULL;
}

static bool watch(void *context, size_t done)
{
    const struct experiment *experiment = context;
    const double n = (double)(experiment->logistic->n_rows * TALLY_LOGISTIC_STEPS);
    return experiment->config->watch == NULL ||
           experiment->config->watch(experiment->config->context, (double)done / n, "runs");
}

enum tally_status tally_logistic_run(const struct tally_logistic_config *config,
                                     struct tally_logistic *ret_logistic, struct tally_error *err)
{
    struct tally_logistic logistic = {.seed = config->seed};
    struct experiment experiment = {.config = config, .logistic = &logistic};
    const struct tally_pool pool = {config->threads, watch, &experiment};
    enum tally_status status = check_names(config->only, err);
    if (status == TALLY_OK && !make_rows(config, &logistic)) {
        status = tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the rows");
    }
    if (status == TALLY_OK) {
        status = tally_pool_run(&(struct tally_pool){config->threads, NULL, NULL}, logistic.n_sets,
                                prepare, &experiment, err);
    }
    if (status == TALLY_OK) {
        status = tally_pool_run(&pool, logistic.n_rows * TALLY_LOGISTIC_STEPS, run_curve,
                                &experiment, err);
    }
    for (size_t i = 0; i < N_PROBLEMS; i++) {
        tally_objective_free(experiment.materials[i].objective);
    }
    if (status != TALLY_OK) {
        tally_logistic_fini(&logistic);
        return status;
    }
    for (size_t i = 0; i < logistic.n_rows; i++) {
        price_row(&logistic.rows[i]);
    }
    *ret_logistic = logistic;
    return TALLY_OK;
}

void tally_logistic_fini(struct tally_logistic *logistic)
{
    for (size_t i = 0; i < logistic->n_rows; i++) {
        for (size_t k = 0; k < TALLY_LOGISTIC_STEPS; k++) {
            free(logistic->rows[i].curves[k].points);
        }
    }
    free(logistic->rows);
    free(logistic->sets);
    *logistic = (struct tally_logistic){0};
}

static const char *gradients_of(const struct tally_logistic_row *row)
{
    return row->is_exact ? "exact" : "stochastic";
}

/* NaN if the best run diverged before its first point. */
static double final_gap(const struct tally_logistic_row *row)
{
    const struct tally_logistic_curve *best = row->best;
    return best->n_points > 0 ? best->points[best->n_points - 1].gap : (double)NAN;
}

static void add_row(const struct tally_logistic_set *set, const struct tally_logistic_row *row,
                    struct tally_text_table *table)
{
    tally_text_table_printf(table, "%s\t%s\t%.3g%s", gradients_of(row), row->method,
                            row->best->step_size * set->smoothness,
                            tally_logistic_is_at_edge(row) ? "*" : "");
    for (size_t level = 0; level < TALLY_LOGISTIC_LEVELS; level++) {
        const struct tally_logistic_price *price = &row->prices[level];
        tally_text_table_printf(table, price->curve != NULL ? "%.0f\t%.0f" : "-\t-", price->uplink,
                                price->downlink);
    }
    tally_text_table_printf(table, "%.1e", final_gap(row));
}

static enum tally_status put_set(const struct tally_logistic *logistic,
                                 const struct tally_logistic_set *set, struct tally_buffer *out)
{
    struct tally_text text = {out, TALLY_OK};
    struct tally_text_table table;
    tally_text_printf(&text, "%s, d = %zu, beta = %.3g, alpha = %.3g\n\n", set->name, set->dim,
                      set->smoothness, set->strong_convexity);
    tally_text_table_init(&table, "llrrrrrrrrrr",
                          ",,,0.1,,0.01,,1e-4,,1e-6,,final,"
                          "gradients,algorithm,step x beta,up,down,up,down,up,down,up,down,gap");
    for (size_t i = 0; i < logistic->n_rows; i++) {
        if (strcmp(logistic->rows[i].set, set->name) == 0) {
            add_row(set, &logistic->rows[i], &table);
        }
    }
    const enum tally_status status = tally_text_table_end(&table, out);
    tally_text_put(&text, "\n");
    return status != TALLY_OK ? status : text.status;
}

enum tally_status tally_logistic_table(const struct tally_logistic *logistic,
                                       struct tally_buffer *out)
{
    struct tally_text text = {out, TALLY_OK};
    tally_text_printf(&text, "logistic, 20 clients, seed %lld\n\n", (long long)logistic->seed);
    for (size_t i = 0; text.status == TALLY_OK && i < logistic->n_sets; i++) {
        text.status = put_set(logistic, &logistic->sets[i], out);
    }
    tally_text_put(&text,
                   "Fewest bits until f(x) - f(x*) is that part of f(0) - f(x*), over all step "
                   "sizes: decodable\nbits of one client's messages up; of all broadcasts and "
                   "control bits down; -: not reached.\nstep x beta, final gap: at the step size "
                   "that is best for the smallest gap reached; *: the grid\nends there.\n");
    return text.status;
}

static struct tally_json *sets_of(const struct tally_logistic *logistic)
{
    struct tally_json *sets = tally_json_array();
    bool ok = sets != NULL;
    for (size_t i = 0; ok && i < logistic->n_sets; i++) {
        const struct tally_logistic_set *set = &logistic->sets[i];
        struct tally_json *object = tally_json_object();
        ok = object != NULL && tally_json_set_text(object, "name", set->name) &&
             tally_json_set_integer(object, "dim", (int64_t)set->dim) &&
             tally_json_set_real(object, "smoothness", set->smoothness) &&
             tally_json_set_real(object, "strong_convexity", set->strong_convexity) &&
             tally_json_set_real(object, "start_gap", set->start_gap);
        ok = tally_json_append(sets, object) && ok;
    }
    return tally_json_if_complete(sets, ok);
}

static struct tally_json *prices_of(const struct tally_logistic_row *row)
{
    struct tally_json *prices = tally_json_array();
    bool ok = prices != NULL;
    for (size_t level = 0; ok && level < TALLY_LOGISTIC_LEVELS; level++) {
        const struct tally_logistic_price *price = &row->prices[level];
        if (price->curve == NULL) {
            continue;
        }
        struct tally_json *object = tally_json_object();
        ok = object != NULL && tally_json_set_real(object, "gap", TALLY_LOGISTIC_GAPS[level]) &&
             tally_json_set_real(object, "step_size", price->curve->step_size) &&
             tally_json_set_real(object, "uplink_bits", price->uplink) &&
             tally_json_set_real(object, "downlink_bits", price->downlink);
        ok = tally_json_append(prices, object) && ok;
    }
    return tally_json_if_complete(prices, ok);
}

static struct tally_json *rows_of(const struct tally_logistic *logistic)
{
    struct tally_json *rows = tally_json_array();
    bool ok = rows != NULL;
    for (size_t i = 0; ok && i < logistic->n_rows; i++) {
        const struct tally_logistic_row *row = &logistic->rows[i];
        struct tally_json *object = tally_json_object();
        ok = object != NULL && tally_json_set_text(object, "set", row->set) &&
             tally_json_set_text(object, "gradients", gradients_of(row)) &&
             tally_json_set_text(object, "algorithm", row->method) &&
             tally_json_set_real(object, "step_size", row->best->step_size) &&
             tally_json_set_bool(object, "at_edge", tally_logistic_is_at_edge(row)) &&
             tally_json_set_real(object, "final_gap", final_gap(row)) &&
             tally_json_set(object, "prices", prices_of(row));
        ok = tally_json_append(rows, object) && ok;
    }
    return tally_json_if_complete(rows, ok);
}

struct tally_json *tally_logistic_json(const struct tally_logistic *logistic)
{
    struct tally_json *result = tally_json_object();
    const bool ok = result != NULL && tally_json_set_text(result, "experiment", "logistic") &&
                    tally_json_set_integer(result, "seed", logistic->seed) &&
                    tally_json_set_integer(result, "clients", 20) &&
                    tally_json_set(result, "sets", sets_of(logistic)) &&
                    tally_json_set(result, "rows", rows_of(logistic));
    return tally_json_if_complete(result, ok);
}

enum tally_status tally_logistic_curves_csv(const struct tally_logistic *logistic,
                                            struct tally_buffer *out)
{
    struct tally_text text = {out, TALLY_OK};
    tally_text_put(&text, "set,gradients,algorithm,step_size,round,uplink_bits,downlink_bits,gap");
    for (size_t i = 0; i < logistic->n_rows; i++) {
        const struct tally_logistic_row *row = &logistic->rows[i];
        tally_text_put(&text, i == 0 ? "\n" : "\n\n"); /* two blank lines: gnuplot's `index` */
        for (size_t k = 0; k < row->best->n_points; k++) {
            const struct tally_logistic_point *point = &row->best->points[k];
            tally_text_printf(&text, "%s,%s,%s,%.9g,%lld,%.9g,%.9g,%.6g\n", row->set,
                              gradients_of(row), row->method, row->best->step_size,
                              (long long)point->round, point->uplink, point->downlink, point->gap);
        }
    }
    return text.status;
}

/* The panels of one picture. */
static void put_panels(const struct tally_logistic *logistic, struct tally_text *text)
{
    static const char *const colours[] = {"#0072b2", "#e69f00", "#009e73", "#cc79a7",
                                          "#d55e00", "#000000", "#6a3d9a"};
    const size_t n_panels = 2 * logistic->n_sets, n = logistic->n_rows / n_panels;
    tally_text_printf(text, "set multiplot layout %zu,2\n", logistic->n_sets);
    for (size_t panel = 0; panel < n_panels; panel++) {
        const struct tally_logistic_row *rows = &logistic->rows[panel * n];
        tally_text_printf(text, "set title \"%s, %s gradients\"\nplot ", rows->set,
                          gradients_of(rows));
        for (size_t i = 0; i < n; i++) {
            tally_text_printf(text,
                              "%s\"logistic-curves.csv\" skip 1 index %zu using 6:8 with lines lw "
                              "2 dt %zu lc rgb \"%s\" title \"%s\"",
                              i > 0 ? ", \\\n     " : "", panel * n + i, i + 1,
                              colours[i % N_METHODS], rows[i].method);
        }
        tally_text_put(text, "\n");
    }
    tally_text_put(text, "unset multiplot\n");
}

enum tally_status tally_logistic_script(const struct tally_logistic *logistic,
                                        struct tally_buffer *out)
{
    static const char *const terminals[] = {"svg", "pngcairo"}, *const files[] = {"svg", "png"};
    struct tally_text text = {out, TALLY_OK};
    tally_text_put(&text, "set encoding utf8\nset datafile separator comma\n"
                          "set border 3 lw 1 lc rgb \"#444444\"\n"
                          "set tics nomirror out textcolor rgb \"#222222\"\n"
                          "set grid lc rgb \"#dddddd\" lw 1\n"
                          "set logscale xy\nset format x \"%.0s%c\"\nset format y \"%.0e\"\n"
                          "set yrange [1e-8:2]\n"
                          "set xlabel \"bits up per client\"\n"
                          "set ylabel \"relative gap f(x) - f(x*)\"\n"
                          "set key left bottom reverse Left samplen 2\n");
    for (size_t t = 0; t < 2; t++) {
        tally_text_printf(&text,
                          "set terminal %s size 1060,%zu font \"sans,12\" background \"white\" "
                          "noenhanced\nset output \"logistic.%s\"\n",
                          terminals[t], 330 * logistic->n_sets, files[t]);
        put_panels(logistic, &text);
    }
    tally_text_put(&text, "unset output\n");
    return text.status;
}
