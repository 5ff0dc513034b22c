#include "services/experiment/run.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/quantize/qsgd.h"
#include "services/algorithms/compression.h"
#include "services/job/document.h"
#include "services/job/job_local.h"

struct recorder {
    const struct tally_job_spec *spec;
    const atomic_bool *stop;
    struct tally_run *run;
    size_t capacity;   /* of the curve */
    size_t max_points; /* 0 = any number */
    size_t stride;     /* every stride-th round is a point */
    size_t skipped;    /* rounds since the last one */
    int32_t *levels;   /* scratch, int32[dim]; NULL = no entropy */
    double next_gap;   /* the next round whose gap is measured; infinite = none */
    size_t gap_capacity;
    const struct tally_objective *objective;
    double f_star;
    bool failed; /* memory ran out, or f cannot be evaluated */
};

static const double GAP_GROWTH = 1.02; /* from one measured round to the next */

void tally_run_fini(struct tally_run *run)
{
    free(run->curve);
    free(run->gaps);
    free(run->metrics);
    *run = (struct tally_run){0};
}

static void add_point(struct recorder *recorder, double time_step, double regret)
{
    struct tally_run *run = recorder->run;
    if (run->n_points == recorder->capacity) {
        const size_t capacity = recorder->capacity == 0 ? 64 : 2 * recorder->capacity;
        struct tally_run_point *curve = realloc(run->curve, capacity * sizeof *curve);
        if (curve == NULL) {
            recorder->failed = true;
            return;
        }
        run->curve = curve;
        recorder->capacity = capacity;
    }
    run->curve[run->n_points++] = (struct tally_run_point){time_step, regret};
}

/* Keeps every second point, and from now on half as many. */
static void thin_out(struct recorder *recorder)
{
    struct tally_run *run = recorder->run;
    size_t n = 0;
    for (size_t i = 0; i < run->n_points; i += 2) {
        run->curve[n++] = run->curve[i];
    }
    run->n_points = n;
    recorder->stride *= 2;
}

/* f(x) as the mean of the local losses, which for images are more exact than one sum over all
 * points. NaN if it cannot be evaluated. */
double tally_run_loss_at(const struct tally_objective *objective, uint32_t clients, const double *x)
{
    double sum = 0, loss = NAN;
    for (uint32_t m = 0; m < clients; m++) {
        if (tally_objective_local_loss(objective, m, x, &loss, NULL) != TALLY_OK) {
            return NAN;
        }
        sum += loss;
    }
    return sum / clients;
}

static void add_gap(struct recorder *recorder, const struct tally_job *job,
                    const struct tally_round_record *record)
{
    struct tally_run *run = recorder->run;
    const struct tally_ledger *bits = &tally_job_progress(job)->bits;
    const uint32_t clients = (uint32_t)recorder->spec->clients;
    size_t dim;
    if (run->n_gaps == recorder->gap_capacity) {
        const size_t capacity = recorder->gap_capacity == 0 ? 64 : 2 * recorder->gap_capacity;
        struct tally_run_gap *gaps = realloc(run->gaps, capacity * sizeof *gaps);
        if (gaps == NULL) {
            recorder->failed = true;
            return;
        }
        run->gaps = gaps;
        recorder->gap_capacity = capacity;
    }
    run->gaps[run->n_gaps++] = (struct tally_run_gap){
        record->round, (double)bits->uplink.payload_bits / clients,
        (double)(bits->downlink.payload_bits + bits->control_bits),
        tally_run_loss_at(recorder->objective, clients, tally_job_point(job, &dim)) -
            recorder->f_star};
    recorder->next_gap = fmax(recorder->next_gap + 1, recorder->next_gap * GAP_GROWTH);
}

static bool on_round(void *context, const struct tally_job *job,
                     const struct tally_round_record *record)
{
    struct recorder *recorder = context;
    const bool is_last = tally_job_status(job) != TALLY_JOB_RUNNING;
    if (recorder->max_points > 0 && recorder->run->n_points >= recorder->max_points) {
        thin_out(recorder);
    }
    if (++recorder->skipped >= recorder->stride || is_last) {
        add_point(recorder, (double)record->time_step, record->cumulative_regret);
        recorder->skipped = 0;
    }
    if ((double)record->round >= recorder->next_gap ||
        (isfinite(recorder->next_gap) && record->time_step == recorder->spec->horizon)) {
        add_gap(recorder, job, record);
    }
    return !recorder->failed && !atomic_load(recorder->stop);
}

static void on_message(void *context, const struct tally_job *job, bool is_uplink,
                       const struct tally_message_view *message)
{
    struct recorder *recorder = context;
    struct tally_run *run = recorder->run;
    double bits;
    (void)job;
    if (is_uplink && message->payload_bits == 0) {
        run->uplink.control++; /* it declines: no message, one control bit */
        return;
    }
    /* The engine has accepted the message, so decoding succeeds. */
    if (recorder->levels != NULL &&
        tally_message_entropy(recorder->spec, is_uplink, message, recorder->levels, &bits, NULL) ==
            TALLY_OK) {
        *(is_uplink ? &run->uplink.entropy_payload : &run->downlink.entropy_payload) += bits;
    }
}

static void take_result(const struct tally_job *job, struct tally_run *run)
{
    const struct tally_progress *progress = tally_job_progress(job);
    const double clients = (double)tally_job_get_spec(job)->clients;
    const bool has_regret = tally_job_get_spec(job)->reference.type != TALLY_REFERENCE_NONE;
    run->diverged = tally_job_status(job) != TALLY_JOB_COMPLETED ||
                    (has_regret && !isfinite(progress->cumulative_regret));
    run->regret = run->diverged ? INFINITY : progress->cumulative_regret;
    run->loss = run->diverged ? INFINITY : tally_progress_loss(progress);
    run->rounds = (double)progress->round;
    run->control_bits = (double)progress->bits.control_bits;
    run->uplink.formula = (double)progress->bits.uplink.formula_bits / clients;
    run->uplink.payload = (double)progress->bits.uplink.payload_bits / clients;
    run->uplink.entropy_payload /= clients;
    run->downlink.formula = (double)progress->bits.downlink.formula_bits;
    run->downlink.payload = (double)progress->bits.downlink.payload_bits;
    run->downlink.control = (double)progress->bits.control_bits - run->uplink.control;
    run->uplink.control /= clients;
}

/* The regret that the plan of the job predicts; NaN = it has no plan, or no memory. */
static double planned_regret(const struct tally_job_spec *spec, const char *schedule)
{
    struct tally_planned *planned = malloc(sizeof *planned);
    const bool is_planned = planned != NULL && tally_planned_read(spec, schedule, planned);
    const double regret = is_planned ? planned->forecast.regret : NAN;
    free(planned);
    return regret;
}

/* Gives back what the curve does not need. */
static void trim_curve(struct tally_run *run)
{
    struct tally_run_point *curve = realloc(run->curve, run->n_points * sizeof *curve);
    run->curve = curve != NULL ? curve : run->curve;
}

/* Copies the metrics. False = out of memory. */
static bool take_metrics(const struct tally_progress *progress, struct tally_run *run)
{
    run->metrics = progress->metrics[0] != '\0' ? strdup(progress->metrics) : NULL;
    return run->metrics != NULL || progress->metrics[0] == '\0';
}

enum tally_status tally_run_prepared(const struct tally_job_spec *spec,
                                     const struct tally_objective *objective,
                                     const struct tally_local_preparation *preparation,
                                     const struct tally_run_record *record, const atomic_bool *stop,
                                     struct tally_run *ret_run, struct tally_error *err)
{
    struct tally_run run = {0};
    struct recorder recorder = {.spec = spec,
                                .stop = stop,
                                .run = &run,
                                .max_points = record->max_points,
                                .stride = 1,
                                .next_gap = record->with_gaps ? 1 : INFINITY,
                                .objective = objective,
                                .f_star = preparation->f_star};
    const struct tally_local_observer observer = {
        .context = &recorder, .on_round = on_round, .on_message = on_message};
    struct tally_job *job = NULL;
    struct tally_error why = TALLY_ERROR_INIT;
    enum tally_status status = TALLY_NO_MEMORY;
    add_point(&recorder, 0, 0);
    if (!record->no_entropy) {
        recorder.levels = malloc(objective->dim * sizeof *recorder.levels);
        recorder.failed = recorder.failed || recorder.levels == NULL;
    }
    if (!recorder.failed) {
        status = tally_local_run_prepared(spec, objective, preparation, &observer, &job, &why);
    }
    if (status == TALLY_OK) {
        take_result(job, &run);
        trim_curve(&run);
        run.planned_regret = planned_regret(spec, preparation->schedule);
        if (record->no_entropy) {
            run.uplink.entropy_payload = run.downlink.entropy_payload = NAN;
        }
        recorder.failed = !take_metrics(tally_job_progress(job), &run);
        status = recorder.failed ? TALLY_NO_MEMORY : TALLY_OK;
    }
    tally_job_free(job);
    free(recorder.levels);
    if (status == TALLY_OK) {
        *ret_run = run;
        return TALLY_OK;
    }
    tally_run_fini(&run);
    if (recorder.failed || status == TALLY_NO_MEMORY) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a run of dim %zu",
                          objective->dim);
    }
    return tally_fail(err, status, why.field, "%s", why.message);
}

double tally_run_regret_at(const struct tally_run *run, double time_step)
{
    size_t i = 0;
    while (i < run->n_points && run->curve[i].time_step < time_step) {
        i++;
    }
    if (i == run->n_points) {
        return INFINITY; /* it had diverged by then */
    }
    const struct tally_run_point *to = &run->curve[i];
    if (i == 0) {
        return to->regret;
    }
    const double share = (time_step - to[-1].time_step) / (to->time_step - to[-1].time_step);
    return to[-1].regret + share * (to->regret - to[-1].regret);
}

/* Operations of one evaluation of f: a quadratic form, or a pass over the points. */
static double evaluation_cost(const struct tally_job_spec *spec)
{
    const double dim = (double)tally_objective_spec_dim(&spec->objective);
    const double points = (double)tally_objective_spec_points(&spec->objective);
    return 2 * dim * (spec->objective.type == TALLY_LEAST_SQUARES || points == 0 ? dim : points);
}

double tally_run_cost(const struct tally_job_spec *spec)
{
    const double steps = (double)(spec->clients * spec->horizon);
    const double dim = (double)tally_objective_spec_dim(&spec->objective);
    const double points = (double)tally_objective_spec_points(&spec->objective);
    const double minibatch =
        spec->minibatch > 0 ? (double)spec->minibatch : fmax(points / (double)spec->clients, 1);
    const bool moves = tally_job_spec_algorithm(spec)->moves_locally;
    /* If clients do not move locally, f is evaluated once per iterate, of which there are
     * dozens. */
    const double evaluations = moves ? steps / (double)spec->evaluate_every : 50;
    return 1e-9 * (4 * dim * minibatch * steps + evaluations * evaluation_cost(spec));
}

/* As measured on MNIST: 0.6 of a run of FedAvg. */
static const double SOLVE_EVALUATIONS = 600;

double tally_run_solve_cost(const struct tally_job_spec *spec)
{
    return spec->reference.type == TALLY_REFERENCE_SOLVE
               ? 1e-9 * SOLVE_EVALUATIONS * evaluation_cost(spec)
               : 0;
}

static const int64_t MAX_SEED = 9007199254740991; /* as in a job document */

/* Reads the digits at *at and advances past them. Returns false if there are none. A value above
 * MAX_SEED stays above it. */
static bool read_number(const char **at, int64_t *ret_value)
{
    const char *start = *at;
    int64_t value = 0;
    while (**at >= '0' && **at <= '9') {
        value = value > MAX_SEED ? value : 10 * value + (**at - '0');
        (*at)++;
    }
    *ret_value = value;
    return *at > start;
}

enum tally_status tally_seeds_parse(const char *text, int64_t *ret_first, size_t *ret_n,
                                    struct tally_error *err)
{
    const char *at = text;
    int64_t first = 0, last = 0;
    bool ok = read_number(&at, &first);
    last = first;
    if (ok && *at == '-') {
        at++;
        ok = read_number(&at, &last);
    }
    if (!ok || *at != '\0') {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "seeds",
                          "\"%.60s\" is not a range like 1-10", text);
    }
    if (first > MAX_SEED || last > MAX_SEED) {
        return tally_fail(err, TALLY_OUT_OF_RANGE, "seeds", "a seed of %.60s is outside [0, %lld]",
                          text, (long long)MAX_SEED);
    }
    const int64_t n = last - first + 1;
    if (n < 1 || n > TALLY_MAX_SEEDS) {
        return tally_fail(err, TALLY_OUT_OF_RANGE, "seeds", "%.60s has %lld seeds, outside [1, %d]",
                          text, (long long)n, TALLY_MAX_SEEDS);
    }
    *ret_first = first;
    *ret_n = (size_t)n;
    return TALLY_OK;
}

/* Value i of n runs, for the two passes below. */
typedef double value_fn(const void *from, size_t i, double argument);

static struct tally_summary summarise(value_fn *value, const void *from, size_t n, double argument)
{
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) {
        sum += value(from, i, argument);
    }
    const double mean = sum / (double)n;
    for (size_t i = 0; i < n; i++) {
        const double distance = value(from, i, argument) - mean;
        squares += distance * distance;
    }
    return (struct tally_summary){mean, n > 1 ? sqrt(squares / (double)(n - 1)) : 0};
}

static double plain(const void *from, size_t i, double argument)
{
    (void)argument;
    return ((const double *)from)[i];
}

static double regret(const void *from, size_t i, double argument)
{
    (void)argument;
    return ((const struct tally_run *)from)[i].regret;
}

static double regret_at(const void *from, size_t i, double time_step)
{
    return tally_run_regret_at((const struct tally_run *)from + i, time_step);
}

struct tally_summary tally_summary_of(const double *values, size_t n)
{
    return summarise(plain, values, n, 0);
}

struct tally_summary tally_summary_of_regret(const struct tally_run *runs, size_t n)
{
    return summarise(regret, runs, n, 0);
}

struct tally_summary tally_summary_of_regret_at(const struct tally_run *runs, size_t n,
                                                double time_step)
{
    return summarise(regret_at, runs, n, time_step);
}

static void add(struct tally_run_bits *sum, const struct tally_run_bits *more, double n)
{
    sum->formula += more->formula / n;
    sum->payload += more->payload / n;
    sum->entropy_payload += more->entropy_payload / n;
    sum->control += more->control / n;
}

struct tally_mean_bits tally_summary_of_bits(const struct tally_run *runs, size_t n)
{
    /* Summed first and divided once: the mean of ten equal integers is that integer exactly. */
    struct tally_mean_bits sum = {0}, mean = {0};
    for (size_t i = 0; i < n; i++) {
        add(&sum.uplink, &runs[i].uplink, 1);
        add(&sum.downlink, &runs[i].downlink, 1);
    }
    add(&mean.uplink, &sum.uplink, (double)n);
    add(&mean.downlink, &sum.downlink, (double)n);
    return mean;
}

bool tally_run_is_compressed(const struct tally_job_spec *spec)
{
    return tally_job_spec_algorithm(spec)->takes_compression &&
           spec->params.baseline.compression.type != TALLY_COMPRESSION_NONE;
}

struct tally_bit_pair tally_summary_counted_bits(const struct tally_algorithm *algorithm,
                                                 bool is_compressed,
                                                 const struct tally_mean_bits *bits)
{
    if (algorithm == &TALLY_CALM || is_compressed) {
        return (struct tally_bit_pair){bits->uplink.payload + bits->uplink.control,
                                       bits->downlink.payload + bits->downlink.control};
    }
    return (struct tally_bit_pair){bits->uplink.formula, bits->downlink.formula};
}

static const double NORM_BITS = 32; /* of a QSGD message */

static int compare_levels(const void *a, const void *b)
{
    const int32_t left = *(const int32_t *)a, right = *(const int32_t *)b;
    return (left > right) - (left < right);
}

double tally_levels_entropy(int32_t *levels, size_t n)
{
    double bits = 0;
    qsort(levels, n, sizeof *levels, compare_levels);
    for (size_t start = 0; start < n;) {
        size_t end = start;
        while (end < n && levels[end] == levels[start]) {
            end++;
        }
        const double count = (double)(end - start);
        bits += count * log2((double)n / count);
        start = end;
    }
    return bits;
}

enum tally_status tally_message_entropy(const struct tally_job_spec *spec, bool is_uplink,
                                        const struct tally_message_view *message, int32_t *levels,
                                        double *ret_bits, struct tally_error *err)
{
    const struct tally_algorithm *algorithm = tally_job_spec_algorithm(spec);
    const struct tally_setting setting = tally_job_spec_setting(spec);
    enum tally_status status = TALLY_OK;
    if (algorithm == &TALLY_CEAL) {
        struct tally_level_stats stats;
        status =
            setting.encoding->decode(message->payload, message->n_payload, message->payload_bits,
                                     setting.dim, &message->grid, levels, &stats, err);
        *ret_bits = status == TALLY_OK ? tally_levels_entropy(levels, setting.dim) : 0;
    } else if (is_uplink && (algorithm == &TALLY_FEDPAQ || algorithm == &TALLY_FEDCOM ||
                             algorithm == &TALLY_DIANA)) {
        struct tally_qsgd qsgd;
        status = tally_qsgd_decode(message->payload, message->n_payload, message->payload_bits,
                                   (uint32_t)spec->params.baseline.levels, setting.dim, &qsgd,
                                   levels, err);
        *ret_bits = status == TALLY_OK ? NORM_BITS + tally_levels_entropy(levels, setting.dim) : 0;
    } else {
        *ret_bits = (double)message->payload_bits;
    }
    return status;
}
