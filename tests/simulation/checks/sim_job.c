#include "tests/simulation/checks/sim_job.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/worker/worker_messages.h"
#include "codec/numeric/checksum.h"
#include "services/algorithms/compression.h"
#include "services/algorithms/server_optimizer.h"
#include "services/job/document.h"
#include "services/job/job_local.h"
#include "services/job/model_copy.h"
#include "tests/simulation/programs/sim_training.h"
#include "tests/simulation/world/sim.h"
#include "tests/simulation/world/sim_random.h"

static double draw_real(double low, double high)
{
    return low + (high - low) * (double)sim_between(0, 1000) / 1000;
}

static void draw_algorithm(struct tally_job_spec *spec)
{
    const char *name = tally_job_spec_algorithm(spec)->name;
    if (strcmp(name, "ceal") == 0) {
        spec->params.ceal = (struct tally_ceal_params){.step_size = draw_real(0.05, 2),
                                                       .sigma = draw_real(0.5, 4),
                                                       .delta = 0.1,
                                                       .gamma0 = draw_real(1, 4),
                                                       .phi0 = draw_real(1, 4),
                                                       .sample_scale = draw_real(0.02, 0.3),
                                                       .log_factor = sim_chance(300),
                                                       .first_stage = sim_between(1, 3),
                                                       .gradient_bound = 1};
        spec->horizon = sim_between(20, 400);
        return;
    }
    struct tally_baseline_params *baseline = &spec->params.baseline;
    *baseline = (struct tally_baseline_params){.step_size = draw_real(0.005, 0.3),
                                               .local_steps = sim_between(1, 6),
                                               .levels = sim_between(1, 15),
                                               .server_step_size = draw_real(0.3, 2)};
    spec->horizon = baseline->local_steps * sim_between(3, 30) + sim_between(0, 5);
    spec->evaluate_every = sim_between(1, 3);
}

/* Most jobs wait, because everything about a job that waits is known beforehand. */
static void draw_policy(struct tally_job_spec *spec)
{
    spec->policy = sim_chance(650)   ? TALLY_POLICY_WAIT
                   : sim_chance(800) ? TALLY_POLICY_DROP
                                     : TALLY_POLICY_FAIL;
    spec->quorum =
        spec->policy == TALLY_POLICY_WAIT ? spec->clients : sim_between(1, spec->clients);
    const bool has_deadline = spec->policy != TALLY_POLICY_WAIT || sim_chance(500);
    spec->round_deadline_ms = has_deadline ? 5 * (INT64_C(1) << sim_between(0, 11)) : 0;
    spec->job_deadline_ms = sim_chance(50) ? sim_between(1, 10000) : 0;
}

static void turn_into(struct tally_job_spec *spec, const struct tally_algorithm *algorithm)
{
    spec->algorithm = 0;
    while (TALLY_ALGORITHMS[spec->algorithm] != algorithm) {
        spec->algorithm++;
    }
}

/* Turns up to two fifths of the jobs of the first four baselines into jobs of a later method. */
static void turn_into_later_method(struct tally_job_spec *spec)
{
    const struct tally_algorithm *algorithm = tally_job_spec_algorithm(spec);
    const int64_t digit = spec->seed / 1000 % 10;
    if (digit >= 4) {
        return;
    }
    if (algorithm == &TALLY_FEDAVG) {
        turn_into(spec, &TALLY_FEDPROX);
        spec->params.baseline.mu = (double)digit * 0.5;
    } else if (algorithm == &TALLY_FEDPAQ) {
        turn_into(spec, &TALLY_DIANA);
        spec->params.baseline.alpha = digit == 0 ? NAN : 0.25 * (double)digit;
    } else if (algorithm == &TALLY_FEDCOM && spec->policy == TALLY_POLICY_WAIT &&
               spec->domain.type == TALLY_DOMAIN_WHOLE) { /* scaffold needs both */
        turn_into(spec, &TALLY_SCAFFOLD);
    } else if (algorithm == &TALLY_MINIBATCH_SGD) {
        const int64_t dim = (int64_t)tally_objective_spec_dim(&spec->objective);
        turn_into(spec, &TALLY_EF21);
        spec->params.baseline.k = 1 + spec->seed / 11 % dim;
        spec->params.baseline.compressor = (int)(digit % 2);
    }
}

/* Gives the job's server an optimizer. */
/* In four jobs of ten, by digits of the seed, so that the other draws stay as they are. */
static void add_compression(struct tally_job_spec *spec)
{
    const int64_t digit = spec->seed / 10000 % 10;
    if (tally_job_spec_algorithm(spec)->takes_compression && digit < 4) {
        spec->params.baseline.compression =
            (struct tally_compression){digit < 2 ? TALLY_COMPRESSION_AUTO : TALLY_COMPRESSION_SET,
                                       digit < 2 ? 0 : 4, digit < 2 ? 0 : 1.5};
    }
}

static void add_server_optimizer(struct tally_job_spec *spec)
{
    struct tally_server_optimizer *optimizer = &spec->params.baseline.server_optimizer;
    *optimizer = tally_server_optimizer_defaults();
    optimizer->type = (int)(spec->seed / 100000 % 4);
    optimizer->step_size = optimizer->type < TALLY_FEDADAM ? 0.5 : 0.05;
}

/* Lets a fifth of the jobs stop early, and a tenth find their best point. */
static void add_rules(struct tally_job_spec *spec)
{
    const int64_t digit = spec->seed / 10000 % 10;
    if (digit == 0) {
        spec->stop.patience = 2;
        spec->stop.min_delta = 0.01;
    } else if (digit == 1) {
        spec->stop.uplink_bits = 3000 * spec->clients;
    } else if (digit == 2) {
        snprintf(spec->keep.best, sizeof spec->keep.best, "loss");
        spec->keep.every = 3;
    }
}

/* Adds estimated parameters, a schedule, a domain, or no reference, by the digits of the job's
 * seed, which is already drawn. */
static void vary(struct tally_job_spec *spec)
{
    const bool is_ceal = strcmp(tally_job_spec_algorithm(spec)->name, "ceal") == 0;
    add_rules(spec);
    if (is_ceal && spec->seed % 10 < 5) {
        spec->params.ceal.sigma = spec->seed % 10 != 1 ? NAN : spec->params.ceal.sigma;
        spec->params.ceal.gradient_bound = spec->seed % 10 != 2 ? NAN : 1;
    }
    const struct tally_algorithm *algorithm = tally_job_spec_algorithm(spec);
    if ((algorithm == &TALLY_FEDAVG || algorithm == &TALLY_FEDPAQ) && spec->seed % 10 < 4) {
        spec->params.baseline.step_decay = spec->seed % 10 < 3 ? 0.02 : 0;
        spec->params.baseline.local_steps_growth = spec->seed % 10 > 0 ? 0.3 : 0;
    }
    if (spec->seed / 10 % 10 < 3) {
        spec->domain =
            spec->seed / 10 % 10 == 0
                ? (struct tally_domain){.type = TALLY_DOMAIN_BALL, .radius = 0.4}
                : (struct tally_domain){.type = TALLY_DOMAIN_BOX, .lower = -0.3, .upper = 0.2};
    }
    if (spec->seed / 100 % 10 < 2) {
        spec->reference = (struct tally_reference){.type = TALLY_REFERENCE_NONE};
    }
    if (is_ceal && spec->seed / 1000 % 10 < 3) { /* the store gets changes, not the point */
        spec->objective.data.synthetic_linear.dim = 100 * spec->clients;
        if (spec->reference.type == TALLY_REFERENCE_SOLVE) { /* half of the seed's time */
            spec->reference = (struct tally_reference){.type = TALLY_REFERENCE_VALUE};
        }
    }
}

/* Turns a fifth of the ceal jobs into calm jobs: with everything estimated, half of them the step
 * size as well, or with known values, half of them with shifts; half of all have budgets that are
 * soon used up. */
static void turn_into_calm(struct tally_job_spec *spec)
{
    turn_into(spec, &TALLY_CALM);
    const int64_t digits = spec->seed / 10;
    spec->params = TALLY_CALM.defaults();
    spec->params.calm.step_size = 0.05 * (double)(1 + digits % 8);
    spec->encoding = TALLY_ENCODING_INDEX_DITHERED;
    if (digits / 8 % 2 == 0) {
        spec->params.calm.noise = 1;
        spec->params.calm.client_spread = 0.1;
        spec->params.calm.initial_variance = 0.5;
        spec->params.calm.shifts = digits / 2048 % 2 == 0;
    } else if (digits / 4096 % 2 == 0) {
        spec->params.calm.step_size = NAN;
    }
    if (digits / 16 % 2 == 0) {
        spec->budget = (struct tally_budget){.uplink_bits = 20 + digits / 32 % 64 * 4,
                                             .downlink_bits = 20 + digits / 32 % 32 * 8};
    }
}

/* In a third of the jobs whose algorithm allows it, a round has a part of the clients. Half of
 * those that may close without all clients draw more than they want. */
static void add_cohort(struct tally_job_spec *spec)
{
    static const double shares[] = {0, 0, 0.3, 1};
    if (!tally_job_spec_algorithm(spec)->takes_cohorts || spec->clients == 1 ||
        spec->seed / 7 % 3 != 0) {
        return;
    }
    const int64_t n = 1 + spec->seed / 21 % (spec->clients - 1);
    spec->cohort = (double)n;
    if (spec->policy != TALLY_POLICY_WAIT) {
        spec->over_selection = shares[spec->seed / 420 % 4];
    }
    if (spec->quorum > n || spec->policy == TALLY_POLICY_WAIT) {
        spec->quorum = n;
    }
}

/* In a quarter of the jobs whose algorithm allows it, clients count by their points. There is one
 * more point, so that shards differ. */
static void add_weights(struct tally_job_spec *spec)
{
    if (tally_job_spec_algorithm(spec)->takes_weights && spec->seed / 3 % 4 == 0) {
        spec->objective.weighting = TALLY_WEIGHTING_POINTS;
        spec->objective.data.synthetic_linear.points++;
    }
}

/* Lets the clients of a fifth of the jobs whose algorithm allows it train a model: with evaluations
 * by one client or by all, rules about them, and a start that a worker offers. Only jobs that wait
 * are evaluated, because other jobs do not wait for an evaluation. */
static void turn_into_training(struct tally_job_spec *spec, const char *number)
{
    const int64_t digits = spec->seed / 1000, dim = spec->objective.data.synthetic_linear.dim;
    const struct tally_stop none = tally_job_spec_default().stop;
    if (!tally_job_spec_algorithm(spec)->takes_training || spec->seed / 100 % 10 < 8) {
        return;
    }
    tally_objective_spec_choose(&spec->objective, TALLY_TRAINING);
    struct tally_plugin_spec *plugin = &spec->objective.plugin;
    snprintf(plugin->name, sizeof plugin->name, "loop");
    snprintf(plugin->options, sizeof plugin->options, "%s", number);
    plugin->dim = dim;
    spec->objective.weighting = digits % 2 == 0 ? TALLY_WEIGHTING_EQUAL : TALLY_WEIGHTING_POINTS;
    spec->reference = (struct tally_reference){.type = TALLY_REFERENCE_NONE};
    spec->horizon = 3 + digits % 23;
    spec->minibatch = 1;
    spec->evaluate_every = 1;
    spec->keep = tally_job_spec_default().keep;
    spec->stop = none;
    if (spec->seed % 3 == 0) {
        spec->initial_point.type = TALLY_INITIAL_FIRST;
    }
    if (spec->policy != TALLY_POLICY_WAIT) {
        spec->evaluation = TALLY_EVALUATION_NONE;
        return;
    }
    spec->evaluation = spec->seed % 10 < 5   ? TALLY_EVALUATION_ONE
                       : spec->seed % 10 < 9 ? TALLY_EVALUATION_CLIENTS
                                             : TALLY_EVALUATION_NONE;
    if (digits % 5 == 0) {
        spec->stop.patience = 2;
        spec->stop.min_delta = 0.01;
        snprintf(spec->stop.watch, sizeof spec->stop.watch, "score");
    } else if (digits % 5 == 1) {
        snprintf(spec->stop.metric, sizeof spec->stop.metric, "score");
        spec->stop.at_least = -0.6;
    } else if (digits % 5 == 2) {
        spec->stop.downlink_bits = 40 * dim;
    } else if (digits % 5 == 3) { /* from a fraction of a round to more than all of them */
        spec->stop.seconds = 0.01 * (double)(1 << digits / 5 % 9);
    }
    if (digits / 5 % 2 == 0) {
        snprintf(spec->keep.best, sizeof spec->keep.best, "score");
        spec->keep.every = 1 + digits % 4;
    }
}

/* Gives an eighth of the other jobs a file for each client, and features that are scaled by the
 * points of all of them. */
static void turn_into_surveyed(struct tally_job_spec *spec)
{
    enum { FEATURES = 3, FILES = 6 };
    struct tally_data_spec *data = &spec->objective.data;
    if (spec->objective.type != TALLY_LEAST_SQUARES || spec->clients > FILES ||
        spec->seed / 13 % 8 != 3) {
        return;
    }
    *data = (struct tally_data_spec){.type = TALLY_DATA_CSV, .sharding = TALLY_SHARDING_LOCAL};
    snprintf(data->table.file, sizeof data->table.file, "part-{client}.csv");
    snprintf(data->table.label, sizeof data->table.label, "y");
    data->table.features = FEATURES;
    spec->objective.weighting = TALLY_WEIGHTING_EQUAL; /* else a round that is cut has messages */
    data->table.missing = TALLY_MISSING_MEAN;
    data->table.standardize = spec->seed % 4 != 0;
    if (tally_job_spec_algorithm(spec) == &TALLY_EF21) {
        spec->params.baseline.k = 1 + spec->seed % FEATURES;
    }
    if (spec->reference.type == TALLY_REFERENCE_SOLVE) {
        spec->reference = (struct tally_reference){.type = TALLY_REFERENCE_VALUE};
    }
}

static void draw_spec(struct sim_job *job, int64_t max_clients)
{
    int n_algorithms = 0; /* the digits of the seed select calm and those after it */
    while (TALLY_ALGORITHMS[n_algorithms] != &TALLY_CALM) {
        n_algorithms++;
    }
    int n_encodings = 0;
    while (TALLY_ENCODING_NAMES[n_encodings] != NULL) {
        n_encodings++;
    }
    struct tally_job_spec spec = tally_job_spec_default();
    snprintf(spec.name, sizeof spec.name, "%s", job->name);
    spec.algorithm = (int)sim_between(0, n_algorithms - 1);
    spec.encoding = (int)sim_between(0, n_encodings - 1);
    spec.clients = sim_between(1, max_clients);
    spec.seed = sim_between(0, 1000000);
    spec.minibatch = sim_between(1, 3);
    spec.objective.type = TALLY_LEAST_SQUARES;
    spec.objective.data.type = TALLY_DATA_SYNTHETIC_LINEAR;
    spec.objective.data.synthetic_linear =
        (struct tally_synthetic_linear){.dim = sim_between(1, 8),
                                        .points = spec.clients * sim_between(4, 12),
                                        .frobenius_norm = draw_real(2, 12),
                                        .noise_std = draw_real(0, 1)};
    spec.initial_point.type = sim_chance(500) ? TALLY_INITIAL_ZEROS : TALLY_INITIAL_RANDOM_SPHERE;
    spec.reference.type = sim_chance(500) ? TALLY_REFERENCE_SOLVE : TALLY_REFERENCE_VALUE;
    spec.reference.value = draw_real(0, 1);
    draw_policy(&spec);
    draw_algorithm(&spec);
    vary(&spec);
    if (tally_job_spec_algorithm(&spec) == &TALLY_CEAL && spec.seed % 5 == 4) {
        turn_into_calm(&spec);
    }
    turn_into_later_method(&spec);
    if (tally_job_spec_algorithm(&spec)->takes_server_optimizer && spec.seed / 100000 % 10 < 6) {
        add_server_optimizer(&spec);
    }
    turn_into_training(&spec, strrchr(job->name, '-') + 1);
    add_compression(&spec);
    add_cohort(&spec);
    if (spec.objective.type != TALLY_TRAINING) {
        add_weights(&spec);
    }
    turn_into_surveyed(&spec);
    job->spec = spec;
}

/* Writes the document, and reads the spec back from it as the programs will. */
static bool write_document(struct sim_job *job)
{
    struct tally_json *json = tally_document_of(&job->spec);
    job->document.size = 0;
    SIM_REQUIRE(json != NULL && tally_json_dump(json, 0, &job->document) == TALLY_OK,
                "no document");
    tally_json_free(json);
    return tally_document_parse((const char *)job->document.data, job->document.size, &job->spec,
                                NULL) == TALLY_OK;
}

uint64_t sim_update_digest(const struct tally_update *update)
{
    const uint64_t rest[] = {update->payload_bits, update->clipped, update->has_loss};
    uint64_t sum = tally_checksum64(update->payload.data, update->payload.size);
    sum = tally_checksum64_more(sum, rest, sizeof rest);
    sum = update->has_loss ? tally_checksum64_more(sum, &update->loss, sizeof update->loss) : sum;
    return sum != 0 ? sum : 1;
}

bool sim_is_listed(const char *text, int64_t client)
{
    char *at = (char *)text;
    while (*at != '\0') {
        const long first = strtol(at, &at, 10);
        const long last = *at == '-' ? strtol(at + 1, &at, 10) : first;
        if (client >= first && client <= last) {
            return true;
        }
        at += *at == ' ';
    }
    return false;
}

bool sim_job_draws(const struct sim_job *job, int64_t round, uint32_t client)
{
    uint32_t i = 0;
    tally_cohort_draw(job->cohort, (uint32_t)round);
    while (i < job->cohort->n && job->cohort->drawn[i] != client) {
        i++;
    }
    return i < job->cohort->n;
}

/* Adds an evaluation to the record of its round, whose model has this value. */
static void add_evaluation(struct sim_job *job, const struct tally_round_evaluation *evaluation,
                           double model)
{
    const char *text = evaluation->metrics;
    struct tally_metric_summary summary;
    int n_right = 0;
    while (tally_metrics_next(&text, &summary)) {
        const double right = strcmp(summary.name, SIM_MODEL_METRIC) == 0 ? model
                             : strcmp(summary.name, SIM_ROUND_METRIC) == 0
                                 ? (double)evaluation->round
                                 : (double)NAN;
        n_right += summary.mean == right && summary.min == right && summary.max == right;
    }
    SIM_REQUIRE(n_right == 2, "the fault-free run evaluates another model");
    tally_record_evaluate(&job->evaluated[evaluation->round - 1], evaluation);
}

/* The value of the open round's model; NaN in a job that does not train. */
static double open_model(const struct tally_job *engine)
{
    size_t dim;
    const double *x = tally_job_point(engine, &dim);
    return tally_job_get_spec(engine)->objective.type == TALLY_TRAINING ? sim_training_model(x, dim)
                                                                        : (double)NAN;
}

/* Runs one fault-free round, like services/job/job_local.c, which does not show every message. */
static bool run_round(struct sim_job *job, struct tally_job *engine, struct tally_model_copy *model)
{
    const struct tally_job_round round = *tally_job_open_round(engine);
    const double evaluated = open_model(engine);
    const int64_t iterate = tally_job_progress(engine)->iterate;
    if (round.round > SIM_MAX_ROUNDS - 1) {
        return false;
    }
    if (tally_model_copy_iterate(model) != iterate) {
        const struct tally_message_view view =
            tally_message_view(tally_job_broadcast(engine, iterate));
        SIM_REQUIRE(tally_model_copy_apply(model, iterate, &view, NULL) == TALLY_OK, "broadcast");
    }
    job->checksums[iterate] = tally_model_copy_checksum(model);
    uint32_t n;
    const uint32_t *cohort = tally_job_cohort(engine, &n);
    uint32_t *order = sim_new(n * sizeof *order);
    memcpy(order, cohort, n * sizeof *order);
    SIM_REQUIRE(tally_job_order(engine, order, n, NULL) == TALLY_OK, "no memory");
    struct tally_job_outcome outcome = {0};
    bool ok = true;
    for (uint32_t k = 0; ok && k < n; k++) { /* also those that are too late */
        struct tally_update update;
        struct tally_bits bits;
        const uint32_t m = order[k];
        if (tally_job_round_only_evaluates(&round) && !tally_job_round_evaluates(&round, m)) {
            continue;
        }
        ok = tally_model_copy_compute(model, &round, m, &update, &bits, NULL) == TALLY_OK &&
             (outcome.n_records > 0 ||
              tally_job_receive(engine, &update, &outcome, NULL) == TALLY_OK);
        job->updates[(round.round - 1) * job->spec.clients + m] =
            ok ? sim_update_digest(&update) : 0;
    }
    if (ok && outcome.evaluation.round != 0) {
        add_evaluation(job, &outcome.evaluation, evaluated);
    }
    for (int i = 0; ok && i < outcome.n_records; i++) {
        job->evaluated[job->n_rounds] = outcome.records[i];
        job->records[job->n_rounds++] = outcome.records[i];
    }
    free(order);
    return ok;
}

void sim_job_survey(const struct tally_job_spec *spec, struct tally_job *engine,
                    struct tally_model_copy *model, uint64_t *ret_digests)
{
    for (uint32_t m = 0; tally_job_open_round(engine)->surveys && m < spec->clients; m++) {
        const struct tally_job_round round = *tally_job_open_round(engine);
        struct tally_job_outcome outcome;
        struct tally_update update;
        struct tally_bits bits;
        SIM_REQUIRE(tally_model_copy_compute(model, &round, m, &update, &bits, NULL) == TALLY_OK &&
                        tally_job_receive(engine, &update, &outcome, NULL) == TALLY_OK,
                    "survey");
        if (ret_digests != NULL) {
            ret_digests[m] = sim_update_digest(&update);
        }
    }
}

enum tally_status sim_job_start(const struct sim_job *job, struct tally_objective **ret_objective,
                                struct tally_model_copy **ret_model, struct tally_job **ret_engine)
{
    struct tally_job_spec spec = job->spec;
    double *initial = NULL;
    size_t dim;
    enum tally_status status = sim_objective_new(&job->spec, ret_objective, NULL);
    if (status == TALLY_OK) {
        status = tally_local_initial(&spec, *ret_objective, NULL, &initial, NULL);
    }
    if (status == TALLY_OK) {
        status = tally_model_copy_new(&job->spec, *ret_objective, ret_model, NULL);
    }
    if (status == TALLY_OK) {
        status = tally_job_new(&job->spec, ret_engine, NULL);
    }
    if (status == TALLY_OK) {
        status = tally_job_start_from(*ret_engine, initial, job->f_star, job->schedule, NULL);
    }
    if (status == TALLY_OK && initial != NULL) {
        const uint8_t *x = (const uint8_t *)tally_job_point(*ret_engine, &dim);
        status = tally_model_copy_load(*ret_model, 1, x, dim * sizeof *initial, NULL);
    }
    free(initial);
    return status;
}

/* False if the job fails, or is too long for a simulation. */
static bool run_alone(struct sim_job *job)
{
    struct tally_objective *objective = NULL;
    struct tally_model_copy *model = NULL;
    struct tally_job *engine = NULL;
    tally_local_schedule(&job->spec, job->schedule);
    bool ok = sim_objective_new(&job->spec, &objective, NULL) == TALLY_OK &&
              tally_local_reference(&job->spec, objective, &job->f_star, NULL) == TALLY_OK;
    tally_objective_free(objective);
    objective = NULL;
    ok = ok && sim_job_start(job, &objective, &model, &engine) == TALLY_OK;
    if (ok) {
        sim_job_survey(&job->spec, engine, model, job->surveys);
        job->scaling = tally_job_open_round(engine)->scaling;
    }
    while (ok && tally_job_status(engine) == TALLY_JOB_RUNNING) {
        ok = run_round(job, engine, model);
    }
    ok = ok && tally_job_status(engine) == TALLY_JOB_COMPLETED && job->n_rounds >= 2;
    if (ok) {
        job->progress = *tally_job_progress(engine);
        job->checksums[job->progress.iterate] = job->progress.x_checksum;
    }
    tally_job_free(engine);
    tally_model_copy_free(model);
    tally_objective_free(objective);
    return ok;
}

void sim_job_draw(struct sim_job *job, int number, int64_t max_clients)
{
    memset(job, 0, sizeof *job);
    snprintf(job->name, sizeof job->name, "job-%d", number);
    snprintf(job->idempotency_key, sizeof job->idempotency_key, "key-%d", number);
    bool ok = false;
    job->cohort = sim_new(sizeof *job->cohort);
    while (!ok) {
        job->n_rounds = 0;
        draw_spec(job, max_clients);
        free(job->updates);
        free(job->surveys);
        job->surveys = sim_new((size_t)job->spec.clients * sizeof *job->surveys);
        job->updates = sim_new(SIM_MAX_ROUNDS * (size_t)job->spec.clients * sizeof *job->updates);
        tally_cohort_fini(job->cohort);
        ok = write_document(job);
        const struct tally_setting setting = tally_job_spec_setting(&job->spec);
        SIM_REQUIRE(tally_cohort_init(job->cohort, setting.key, setting.clients, setting.cohort,
                                      NULL) == TALLY_OK,
                    "no memory");
        ok = ok && run_alone(job);
    }
    const bool opens = job->records[0].stage == 0 &&
                       job->progress.estimates.sigma + job->progress.estimates.gradient_bound > 0;
    const bool trains = job->spec.objective.type == TALLY_TRAINING;
    sim_note(
        "job",
        "%s: %s%s, domain %s, reference %s, %s, quorum %lld of %u of %u of %lld clients, "
        "dim %lld, "
        "weighting %s, horizon %lld, %lld rounds%s%s%s%s%s",
        job->name, tally_job_spec_algorithm(&job->spec)->name, opens ? " (auto)" : "",
        TALLY_DOMAIN_NAMES[job->spec.domain.type], TALLY_REFERENCE_NAMES[job->spec.reference.type],
        TALLY_POLICY_NAMES[job->spec.policy], (long long)job->spec.quorum,
        tally_job_spec_answers(&job->spec), tally_job_spec_cohort(&job->spec),
        (long long)job->spec.clients, (long long)tally_objective_spec_dim(&job->spec.objective),
        TALLY_WEIGHTING_NAMES[job->spec.objective.weighting], (long long)job->spec.horizon,
        (long long)job->n_rounds, job->scaling != 0 ? ", survey" : "",
        trains ? ", training, evaluation " : "",
        trains ? TALLY_EVALUATION_NAMES[job->spec.evaluation] : "",
        job->progress.stopped.rule[0] != '\0' ? ", stopped by " : "", job->progress.stopped.rule);
}

void sim_job_fini(struct sim_job *job)
{
    free(job->updates);
    free(job->surveys);
    if (job->cohort != NULL) {
        tally_cohort_fini(job->cohort);
    }
    free(job->cohort);
    tally_buffer_fini(&job->document);
}
