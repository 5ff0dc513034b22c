#include "services/job/job_spec.h"

#include <math.h>
#include <string.h>

#include "services/algorithms/calm.h"

#define JOB(member) offsetof(struct tally_job_spec, member)

const struct tally_field TALLY_JOB_FIELDS[] = {
    {.name = "name",
     .kind = TALLY_FIELD_TEXT,
     .offset = JOB(name),
     .capacity = sizeof((struct tally_job_spec *)0)->name,
     .doc = "a name for people; any text without control characters"},
    {.name = "webhook",
     .kind = TALLY_FIELD_TEXT,
     .offset = JOB(webhook),
     .capacity = sizeof((struct tally_job_spec *)0)->webhook,
     .quiet = true,
     .doc = "URL to which the coordinator posts each change of the job's status; its operator has "
            "to allow it with `--webhook-allow`. Simulations ignore it"},
    {.name = "clients",
     .kind = TALLY_FIELD_INTEGER,
     .unit = "clients",
     .offset = JOB(clients),
     .required = true,
     .min = 1,
     .max = TALLY_MAX_CLIENTS,
     .doc = "number of clients M"},
    {.name = "cohort",
     .kind = TALLY_FIELD_REAL,
     .unit = "clients",
     .offset = JOB(cohort),
     .omits_zero = true,
     .min = 0,
     .min_exclusive = true,
     .max = TALLY_MAX_CLIENTS,
     .doc = "how many clients take part in a round, drawn from the seed without replacement; a "
            "number below 1 is a share of `clients`. The default is all clients; `ceal`, `calm`, "
            "`diana`, `scaffold` and `ef21` take no other cohort"},
    {.name = "over_selection",
     .kind = TALLY_FIELD_REAL,
     .unit = "share of the cohort",
     .offset = JOB(over_selection),
     .omits_zero = true,
     .min = 0,
     .max = 10,
     .doc = "how many more clients than `cohort` are drawn for a round, which closes as soon as "
            "`cohort` of them have answered; needs policy `drop` or `fail`. The first answers "
            "count, so results depend on the order of arrival"},
    {.name = "weighting",
     .kind = TALLY_FIELD_CHOICE,
     .offset = JOB(objective.weighting),
     .choices = TALLY_WEIGHTING_NAMES,
     .quiet = true,
     .doc = "weight of a client in the objective and in a round's mean: `equal`, or `points`, its "
            "number of data points; `ceal`, `calm`, `diana`, `scaffold` and `ef21` take only "
            "`equal`, and so do objectives without data points"},
    {.name = "horizon",
     .kind = TALLY_FIELD_INTEGER,
     .unit = "gradient queries",
     .offset = JOB(horizon),
     .required = true,
     .min = 1,
     .max = INT32_MAX,
     .doc = "number of time steps T: gradient queries per client, or rounds with an objective of "
            "type `training`; with a `cohort`, per client of a round"},
    {.name = "minibatch",
     .kind = TALLY_FIELD_INTEGER,
     .unit = "data points",
     .offset = JOB(minibatch),
     .min = 0,
     .max = 1000000,
     .doc = "data points per gradient query, drawn with replacement; 0 = all data points of the "
            "client, each once: the exact gradient of its loss, not possible with a plug-in"},
    {.name = "evaluate_every",
     .kind = TALLY_FIELD_INTEGER,
     .unit = "local steps",
     .offset = JOB(evaluate_every),
     .min = 1,
     .max = INT32_MAX,
     .doc =
         "distance between two evaluations of the loss, which is interpolated in between; only for "
         "algorithms with local steps"},
    {.name = "evaluation",
     .kind = TALLY_FIELD_CHOICE,
     .offset = JOB(evaluation),
     .choices = TALLY_EVALUATION_NAMES,
     .quiet = true,
     .doc = "who evaluates each new model, the last one included, in a job whose objective is of "
            "type `training`: `one` client of the next round, all its `clients`, each on its own "
            "data, or `none`"},
    {.name = "seed",
     .kind = TALLY_FIELD_INTEGER,
     .offset = JOB(seed),
     .min = 0,
     .max = 9007199254740991, /* 2^53 - 1: exact in every JSON reader */
     .doc = "seed of all random numbers of the job"},
    {.name = "encoding",
     .kind = TALLY_FIELD_CHOICE,
     .offset = JOB(encoding),
     .choices = TALLY_JOB_ENCODING_NAMES,
     .doc = "how `ceal` encodes quantizer levels: `entropy` or `unary`; the messages of `calm` are "
            "always `dithered`, and the other algorithms have encodings of their own"},
    {.name = "quorum",
     .kind = TALLY_FIELD_INTEGER,
     .unit = "clients",
     .offset = JOB(quorum),
     .min = 1,
     .max = TALLY_MAX_CLIENTS,
     .doc = "minimum number of updates for a round; by default `cohort` if it is set, else "
            "`clients`; with policy `drop` 1"},
    {.name = "policy",
     .kind = TALLY_FIELD_CHOICE,
     .offset = JOB(policy),
     .choices = TALLY_POLICY_NAMES,
     .doc = "what a round does when its deadline has passed: `wait` for every client; `drop` the "
            "clients that are missing once the quorum has answered; `fail` the job unless it has. "
            "A quorum below `cohort`, or `over_selection`, makes `drop` the default"},
    {.name = "round_deadline_ms",
     .kind = TALLY_FIELD_INTEGER,
     .unit = "ms",
     .offset = JOB(round_deadline_ms),
     .min = 0,
     .max = 86400000,
     .doc = "time that clients have for a round before the policy applies; 0 = no limit"},
    {.name = "job_deadline_ms",
     .kind = TALLY_FIELD_INTEGER,
     .unit = "ms",
     .offset = JOB(job_deadline_ms),
     .min = 0,
     .max = 31622400000, /* a year */
     .doc = "time from submission after which the job fails; 0 = no limit"},
};
const size_t TALLY_N_JOB_FIELDS = sizeof TALLY_JOB_FIELDS / sizeof TALLY_JOB_FIELDS[0];

const char *const TALLY_JOB_ENCODING_NAMES[] = {"unary", "entropy", "dithered", NULL};

const char *const TALLY_POLICY_NAMES[] = {"wait", "drop", "fail", NULL};
const char *const TALLY_EVALUATION_NAMES[] = {"one", "clients", "none", NULL};

const char *const TALLY_REFERENCE_NAMES[] = {"solve", "value", "none", NULL};
const struct tally_field TALLY_REFERENCE_FIELDS[] = {
    {.name = "type",
     .kind = TALLY_FIELD_CHOICE,
     .offset = offsetof(struct tally_reference, type),
     .required = true,
     .choices = TALLY_REFERENCE_NAMES,
     .doc = "where the optimum f(x*) comes from: the coordinator computes it, the document gives "
            "it, or it "
            "is unknown and the job has no regret"},
    {.name = "value",
     .kind = TALLY_FIELD_REAL,
     .unit = "f",
     .offset = offsetof(struct tally_reference, value),
     .min = -1e300,
     .max = 1e300,
     .doc = "f(x*); required with type `value`, refused otherwise"},
};
const size_t TALLY_N_REFERENCE_FIELDS =
    sizeof TALLY_REFERENCE_FIELDS / sizeof TALLY_REFERENCE_FIELDS[0];

const struct tally_field TALLY_BUDGET_FIELDS[] = {
    {.name = "uplink_bits",
     .kind = TALLY_FIELD_INTEGER,
     .unit = "bits",
     .offset = offsetof(struct tally_budget, uplink_bits),
     .min = 0,
     .max = 9007199254740991,
     .doc = "the most that a client may send; 0 = no limit"},
    {.name = "downlink_bits",
     .kind = TALLY_FIELD_INTEGER,
     .unit = "bits",
     .offset = offsetof(struct tally_budget, downlink_bits),
     .min = 0,
     .max = 9007199254740991,
     .doc = "the most that may be broadcast, each bit counted once: payload and control bits, but "
            "not the control bit with which a client declines to send or those of a survey; 0 = "
            "no limit"},
};
const size_t TALLY_N_BUDGET_FIELDS = sizeof TALLY_BUDGET_FIELDS / sizeof TALLY_BUDGET_FIELDS[0];

#define STOP(member) offsetof(struct tally_stop, member)
#define KEEP(member) offsetof(struct tally_keep, member)

const char *const TALLY_BETTER_NAMES[] = {"auto", "higher", "lower", NULL};

/* A name that may be either is never taken for one of them. */
#define BETTER_DOC                                                                                 \
    "which values of it are better: `higher` or `lower`; `auto` is `lower` for `loss` and "        \
    "`higher` for other names, but is refused for a name that contains \"loss\" or \"err\""

const struct tally_field TALLY_STOP_FIELDS[] = {
    TALLY_TEXT("metric", STOP(metric), TALLY_METRIC_NAME_CAPACITY, .quiet = true,
               .doc = "the job ends when this metric is `at_least` or `at_most` a number"),
    TALLY_REAL("at_least", STOP(at_least), -1e300, 1e300, .omits_nan = true,
               .doc = "the least value of `metric` that ends the job"),
    TALLY_REAL("at_most", STOP(at_most), -1e300, 1e300, .omits_nan = true,
               .doc = "the greatest value of `metric` that ends the job"),
    TALLY_REAL("loss", STOP(loss), -1e300, 1e300, .omits_nan = true, .unit = "f",
               .doc = "the job ends when the loss of a round is at most this"),
    TALLY_INTEGER("patience", STOP(patience), 1, 1000000, .omits_zero = true, .unit = "rounds",
                  .doc = "the job ends when this many rounds in a row have not improved `watch`; "
                         "rounds without a value do not count"),
    TALLY_TEXT("watch", STOP(watch), TALLY_METRIC_NAME_CAPACITY, .quiet = true,
               .doc = "the metric that `patience` is about; by default `loss`, the loss of the "
                      "round"),
    TALLY_CHOICE("better", STOP(better), TALLY_BETTER_NAMES, .quiet = true, .doc = BETTER_DOC),
    TALLY_REAL("min_delta", STOP(min_delta), 0, 1e300, .omits_zero = true,
               .doc = "a value improves on the best one if it is better by more than this"),
    TALLY_INTEGER("uplink_bits", STOP(uplink_bits), 1, 9007199254740991, .omits_zero = true,
                  .unit = "bits",
                  .doc = "the job ends after the round with which the clients together have sent "
                         "this many bits: payload and control"),
    TALLY_INTEGER("downlink_bits", STOP(downlink_bits), 1, 9007199254740991, .omits_zero = true,
                  .unit = "bits",
                  .doc = "the same for the broadcasts, each counted once, not once per client"),
    TALLY_POSITIVE("seconds", STOP(seconds), 31622400, .omits_zero = true, .unit = "s",
                   .doc = "the job ends this long after its start, also amid a round, of which "
                          "nothing counts, and after the evaluation of its last model; `tally "
                          "simulate`, which has no clock, ignores it"),
};
const size_t TALLY_N_STOP_FIELDS = sizeof TALLY_STOP_FIELDS / sizeof TALLY_STOP_FIELDS[0];

const struct tally_field TALLY_KEEP_FIELDS[] = {
    TALLY_TEXT("best", KEEP(best), TALLY_METRIC_NAME_CAPACITY, .quiet = true,
               .doc = "keep the model with the best value of this metric; `loss` is the loss of "
                      "the round, unless clients report a metric of that name"),
    TALLY_CHOICE("better", KEEP(better), TALLY_BETTER_NAMES, .quiet = true, .doc = BETTER_DOC),
    TALLY_INTEGER("every", KEEP(every), 1, INT32_MAX, .omits_zero = true, .unit = "rounds",
                  .doc = "keep the model after every n-th round; at most 1,000 models and "
                         "10,000,000,000 bytes, of 8 bytes per coordinate, within the horizon"),
};
const size_t TALLY_N_KEEP_FIELDS = sizeof TALLY_KEEP_FIELDS / sizeof TALLY_KEEP_FIELDS[0];

const char *tally_stop_watched(const struct tally_stop *stop)
{
    return stop->watch[0] != '\0' ? stop->watch : TALLY_LOSS_NAME;
}

bool tally_better_is_lower(int better, const char *name)
{
    return better == TALLY_BETTER_LOWER ||
           (better == TALLY_BETTER_AUTO && strcmp(name, TALLY_LOSS_NAME) == 0);
}

struct tally_job_spec tally_job_spec_default(void)
{
    return (struct tally_job_spec){
        .objective = tally_objective_spec_default(),
        .minibatch = 1,
        .evaluate_every = 1,
        .encoding = TALLY_ENCODING_INDEX_DEFAULT,
        .initial_point = {.type = TALLY_INITIAL_ZEROS, .radius = 1},
        .reference = {.type = TALLY_REFERENCE_SOLVE},
        .stop = {.at_least = NAN, .at_most = NAN, .loss = NAN},
        .round_deadline_ms = 30000,
    };
}

const struct tally_algorithm *tally_job_spec_algorithm(const struct tally_job_spec *spec)
{
    return TALLY_ALGORITHMS[spec->algorithm];
}

uint32_t tally_job_spec_answers(const struct tally_job_spec *spec)
{
    const double clients = (double)spec->clients;
    const double n = spec->cohort < 1 ? nearbyint(spec->cohort * clients) : spec->cohort;
    return spec->cohort == 0 ? (uint32_t)spec->clients : (uint32_t)fmin(fmax(n, 1), clients);
}

uint32_t tally_job_spec_cohort(const struct tally_job_spec *spec)
{
    static const double rounding = 1e-12; /* 0.07 * 100 is a little more than 7 */
    const double n = tally_job_spec_answers(spec);
    return (uint32_t)fmin(n + ceil(n * spec->over_selection * (1 - rounding)),
                          (double)spec->clients);
}

int64_t tally_job_spec_slots(const struct tally_job_spec *spec)
{
    return spec->objective.data.sharding == TALLY_SHARDING_LOCAL ? spec->clients
                                                                 : tally_job_spec_cohort(spec);
}

bool tally_job_spec_is_surveyed(const struct tally_job_spec *spec)
{
    return tally_objective_spec_is_surveyed(&spec->objective);
}

bool tally_job_spec_evaluates(const struct tally_job_spec *spec)
{
    return spec->objective.type == TALLY_TRAINING && spec->evaluation != TALLY_EVALUATION_NONE;
}

bool tally_job_spec_weighs_evaluations(const struct tally_job_spec *spec)
{
    return tally_job_spec_evaluates(spec) && spec->evaluation == TALLY_EVALUATION_CLIENTS &&
           spec->objective.weighting == TALLY_WEIGHTING_POINTS;
}

bool tally_job_spec_keeps_earlier_weights(const struct tally_job_spec *spec)
{
    return tally_job_spec_weighs_evaluations(spec) && spec->stop.seconds > 0;
}

bool tally_job_spec_weighs_losses(const struct tally_job_spec *spec)
{
    return spec->objective.weighting == TALLY_WEIGHTING_POINTS &&
           (!tally_job_spec_algorithm(spec)->moves_locally ||
            spec->objective.data.sharding == TALLY_SHARDING_LOCAL);
}

struct tally_setting tally_job_spec_setting(const struct tally_job_spec *spec)
{
    return (struct tally_setting){
        .params = &spec->params,
        .clients = (uint32_t)spec->clients,
        .cohort = tally_job_spec_cohort(spec),
        .dim = tally_objective_spec_dim(&spec->objective),
        .horizon = spec->horizon,
        .minibatch = spec->minibatch,
        .evaluate_every = spec->evaluate_every,
        .domain = spec->domain,
        .key = tally_rng_key((uint64_t)spec->seed, (uint32_t)spec->run),
        .encoding =
            spec->encoding < TALLY_ENCODING_INDEX_DITHERED ? TALLY_ENCODINGS[spec->encoding] : NULL,
        .budget = spec->budget,
        .weighs_points = spec->objective.weighting == TALLY_WEIGHTING_POINTS,
        .points = tally_objective_spec_points(&spec->objective),
        .has_regret = spec->reference.type != TALLY_REFERENCE_NONE,
        .is_program = tally_objective_spec_is_plugin(&spec->objective),
        .start_is_random = spec->initial_point.type == TALLY_INITIAL_RANDOM_SPHERE,
        .convexity = tally_objective_spec_convexity(&spec->objective),
    };
}

static enum tally_status check_cohort(const struct tally_job_spec *spec, struct tally_error *err)
{
    if (spec->cohort > (double)spec->clients) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "cohort", "cohort %g is above clients %lld",
                          spec->cohort, (long long)spec->clients);
    }
    if (spec->cohort > 1 && spec->cohort != floor(spec->cohort)) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "cohort",
                          "cohort %g is neither a number of clients nor a share below 1",
                          spec->cohort);
    }
    const struct tally_algorithm *algorithm = tally_job_spec_algorithm(spec);
    return algorithm->takes_cohorts || tally_job_spec_answers(spec) == spec->clients
               ? TALLY_OK
               : tally_fail(err, TALLY_INVALID_ARGUMENT, "cohort",
                            "algorithm %s needs all %lld clients in every round: %s",
                            algorithm->name, (long long)spec->clients,
                            algorithm->no_cohorts_reason);
}

static enum tally_status check_over_selection(const struct tally_job_spec *spec,
                                              struct tally_error *err)
{
    if (spec->over_selection == 0) {
        return TALLY_OK;
    }
    if (tally_job_spec_answers(spec) == spec->clients) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "over_selection",
                          "over_selection needs a cohort below clients %lld",
                          (long long)spec->clients);
    }
    return spec->policy != TALLY_POLICY_WAIT
               ? TALLY_OK
               : tally_fail(err, TALLY_INVALID_ARGUMENT, "over_selection",
                            "over_selection closes rounds without all clients, but policy wait "
                            "waits for all; choose drop or fail");
}

static enum tally_status check_weighting(const struct tally_job_spec *spec, struct tally_error *err)
{
    const struct tally_algorithm *algorithm = tally_job_spec_algorithm(spec);
    if (spec->objective.weighting == TALLY_WEIGHTING_EQUAL) {
        return TALLY_OK;
    }
    if (!algorithm->takes_weights) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "weighting",
                          "algorithm %s needs equal clients: %s", algorithm->name,
                          algorithm->no_weights_reason);
    }
    return tally_objective_spec_has_points(&spec->objective)
               ? TALLY_OK
               : tally_fail(err, TALLY_INVALID_ARGUMENT, "weighting",
                            "clients of a %s objective have no point count",
                            TALLY_OBJECTIVE_NAMES[spec->objective.type]);
}

static enum tally_status check_quorum(const struct tally_job_spec *spec, struct tally_error *err)
{
    const struct tally_algorithm *algorithm = tally_job_spec_algorithm(spec);
    const uint32_t cohort = tally_job_spec_answers(spec);
    if (algorithm->needs_everyone && spec->quorum < spec->clients &&
        spec->policy != TALLY_POLICY_WAIT) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "quorum",
                          "quorum %lld is below clients %lld; algorithm %s needs the message of "
                          "every client in every round",
                          (long long)spec->quorum, (long long)spec->clients, algorithm->name);
    }
    return spec->quorum <= cohort
               ? TALLY_OK
               : tally_fail(err, TALLY_INVALID_ARGUMENT, "quorum", "quorum %lld is above %s %u",
                            (long long)spec->quorum, cohort == spec->clients ? "clients" : "cohort",
                            cohort);
}

static enum tally_status check_deadline(const struct tally_job_spec *spec, struct tally_error *err)
{
    return spec->policy == TALLY_POLICY_WAIT || spec->round_deadline_ms > 0
               ? TALLY_OK
               : tally_fail(err, TALLY_INVALID_ARGUMENT, "round_deadline_ms",
                            "policy %s needs a round_deadline_ms above 0",
                            TALLY_POLICY_NAMES[spec->policy]);
}

/* A training loop has no gradients that an algorithm could ask for, and no loss. */
static enum tally_status check_training(const struct tally_job_spec *spec, struct tally_error *err)
{
    const struct tally_algorithm *algorithm = tally_job_spec_algorithm(spec);
    if (spec->objective.type != TALLY_TRAINING) {
        return TALLY_OK;
    }
    if (!algorithm->takes_training) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "algorithm.type",
                          "algorithm %s needs gradients; an objective of type training takes "
                          "fedavg, fedprox, fedpaq or fedcom",
                          algorithm->name);
    }
    return spec->reference.type == TALLY_REFERENCE_NONE
               ? TALLY_OK
               : tally_fail(err, TALLY_INVALID_ARGUMENT, "reference.type",
                            "an objective of type training has no loss, so the reference must be "
                            "of type none");
}

static enum tally_status check_initial_point(const struct tally_job_spec *spec,
                                             struct tally_error *err)
{
    if (spec->initial_point.type == TALLY_INITIAL_FIRST &&
        !tally_objective_spec_is_plugin(&spec->objective)) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "initial_point.type",
                          "only the workers of an objective of type training or plugin offer an "
                          "initial point");
    }
    return tally_initial_point_validate(&spec->initial_point, err);
}

static enum tally_status check_objective(const struct tally_job_spec *spec, struct tally_error *err)
{
    if (spec->minibatch == 0 && spec->objective.type == TALLY_PLUGIN) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "minibatch",
                          "a plug-in does not say how many points a client has: 0, all of them, "
                          "is not possible; give a minibatch of at least 1");
    }
    return tally_objective_spec_validate(&spec->objective, spec->clients, err);
}

static enum tally_status check_domain(const struct tally_job_spec *spec, struct tally_error *err)
{
    const struct tally_algorithm *algorithm = tally_job_spec_algorithm(spec);
    if (algorithm->needs_whole_space && spec->domain.type != TALLY_DOMAIN_WHOLE) {
        return tally_fail(
            err, TALLY_INVALID_ARGUMENT, "domain",
            "algorithm %s takes no domain: its control variates follow from the clients' "
            "messages, whose effect a projection would change",
            algorithm->name);
    }
    const enum tally_status status = tally_domain_validate(&spec->domain, err);
    if (status != TALLY_OK) {
        tally_error_in_field(err, "domain");
    }
    return status;
}

/* Whether the coordinator can solve for f(x*), if it has to. */
static enum tally_status check_reference(const struct tally_job_spec *spec, struct tally_error *err)
{
    if (spec->reference.type != TALLY_REFERENCE_SOLVE) {
        return TALLY_OK;
    }
    if (spec->objective.type == TALLY_PLUGIN) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "reference.type",
                          "f(x*) of a plug-in's objective cannot be solved for; give a reference "
                          "of type value or none");
    }
    return tally_data_spec_is_shared(&spec->objective.data)
               ? TALLY_OK
               : tally_fail(err, TALLY_INVALID_ARGUMENT, "reference.type",
                            "every worker has its own data, so the coordinator cannot solve for "
                            "f(x*); give a reference of type value or none, or files whose names "
                            "have " TALLY_DATA_CLIENT_MARK);
}

/* An opening round sends its reports regardless of the budget, which must therefore allow them. */
static enum tally_status check_budget(const struct tally_job_spec *spec, struct tally_error *err)
{
    const struct tally_budget *budget = &spec->budget;
    const int report = (int)calm_most_report_bits(&spec->params),
              answer = (int)calm_answer_bits(&spec->params);
    const bool up = budget->uplink_bits > 0 && budget->uplink_bits < report;
    const bool down = budget->downlink_bits > 0 && budget->downlink_bits < answer;
    if (!calm_opens(&spec->params) || (!up && !down)) {
        return TALLY_OK;
    }
    return tally_fail(err, TALLY_OUT_OF_RANGE, up ? "budget.uplink_bits" : "budget.downlink_bits",
                      "estimating what is `auto` takes %d bits of a budget", up ? report : answer);
}

/* Shifts need the recursion's constants from the start. */
static enum tally_status check_shifts(const struct tally_job_spec *spec, struct tally_error *err)
{
    const struct tally_calm_params *params = &spec->params.calm;
    if (params->shifts && (calm_opens(&spec->params) || isnan(params->client_spread))) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "algorithm.shifts",
                          "shifts need step_size, noise, client_spread and initial_variance; auto "
                          "is not enough");
    }
    return TALLY_OK;
}

/* Messages of `calm` are dithered, those of other algorithms are not. Only `calm` can keep to a
 * budget. */
static enum tally_status check_calm(const struct tally_job_spec *spec, struct tally_error *err)
{
    const bool is_calm = tally_job_spec_algorithm(spec) == &TALLY_CALM;
    const bool is_dithered = spec->encoding == TALLY_ENCODING_INDEX_DITHERED;
    if (is_calm != is_dithered) {
        return tally_fail(
            err, TALLY_INVALID_ARGUMENT, "encoding", "the encoding of algorithm %s cannot be %s",
            tally_job_spec_algorithm(spec)->name, TALLY_JOB_ENCODING_NAMES[spec->encoding]);
    }
    if (!is_calm && (spec->budget.uplink_bits > 0 || spec->budget.downlink_bits > 0)) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "budget",
                          "algorithm %s cannot keep to a budget; calm can",
                          tally_job_spec_algorithm(spec)->name);
    }
    enum tally_status status = is_calm ? check_shifts(spec, err) : TALLY_OK;
    return is_calm && status == TALLY_OK ? check_budget(spec, err) : status;
}

/* Whether every stage that the horizon allows has a quantizer grid. Stages increase by one, so
 * checking 64 of them covers every grid that a job with a reasonable c can reach. */
static enum tally_status check_stages(const struct tally_job_spec *spec, struct tally_error *err)
{
    const struct tally_algorithm *algorithm = tally_job_spec_algorithm(spec);
    const struct tally_setting setting = tally_job_spec_setting(spec);
    const int64_t first = algorithm->first_stage(&spec->params);
    const bool opens = algorithm->opening != NULL && algorithm->opening->opens(&spec->params);
    for (int64_t stage = first; stage < first + 64; stage++) {
        struct tally_round_plan plan;
        enum tally_status status = algorithm->plan(&setting, stage, NULL, &plan, err);
        if (status != TALLY_OK) {
            tally_error_in_field(err, "algorithm");
            return status;
        }
        if (plan.samples > spec->horizon || opens) {
            break; /* the stages after an opening round are not known before it */
        }
    }
    return TALLY_OK;
}

/* Errors name the field `key`. */
static enum tally_status check_metric(const char *key, const char *name, struct tally_error *err)
{
    return tally_metric_is_name(name)
               ? TALLY_OK
               : tally_fail(err, TALLY_INVALID_ARGUMENT, key,
                            "\"%s\" is not the name of a metric, [a-z][a-z0-9_]{0,31}", name);
}

/* Checks that the name says which values are better, or that `better` does. */
static enum tally_status check_better(const char *key, int better, const char *name,
                                      struct tally_error *err)
{
    const bool is_clear = strcmp(name, TALLY_LOSS_NAME) == 0 ||
                          (strstr(name, "loss") == NULL && strstr(name, "err") == NULL);
    return better != TALLY_BETTER_AUTO || is_clear
               ? TALLY_OK
               : tally_fail(err, TALLY_INVALID_ARGUMENT, key,
                            "say which values of %s are better, lower or higher", name);
}

static enum tally_status check_threshold(const struct tally_stop *stop, struct tally_error *err)
{
    const bool has_least = !isnan(stop->at_least), has_most = !isnan(stop->at_most);
    if (stop->metric[0] == '\0') {
        return has_least || has_most ? tally_fail(err, TALLY_INVALID_ARGUMENT, "stop.metric",
                                                  "at_least and at_most need a metric")
                                     : TALLY_OK;
    }
    const enum tally_status status = check_metric("stop.metric", stop->metric, err);
    return status != TALLY_OK || has_least != has_most
               ? status
               : tally_fail(err, TALLY_INVALID_ARGUMENT, "stop.at_least",
                            "metric %s needs either at_least or at_most", stop->metric);
}

static enum tally_status check_patience(const struct tally_stop *stop, struct tally_error *err)
{
    const char *unused = stop->watch[0] != '\0'              ? "stop.watch"
                         : stop->better != TALLY_BETTER_AUTO ? "stop.better"
                         : stop->min_delta > 0               ? "stop.min_delta"
                                                             : NULL;
    if (stop->patience == 0) {
        return unused != NULL ? tally_fail(err, TALLY_INVALID_ARGUMENT, unused,
                                           "%s needs a patience", unused + strlen("stop."))
                              : TALLY_OK;
    }
    const char *name = tally_stop_watched(stop);
    const enum tally_status status = check_metric("stop.watch", name, err);
    return status == TALLY_OK ? check_better("stop.better", stop->better, name, err) : status;
}

static enum tally_status check_stop(const struct tally_job_spec *spec, struct tally_error *err)
{
    const struct tally_stop *stop = &spec->stop;
    const bool has_loss = spec->objective.type != TALLY_TRAINING;
    if (!isnan(stop->loss) && !has_loss) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "stop.loss",
                          "an objective of type training has no loss; name a metric");
    }
    if (stop->patience > 0 && stop->watch[0] == '\0' && !has_loss) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "stop.watch",
                          "an objective of type training has no loss; name the metric that "
                          "patience is about");
    }
    const enum tally_status status = check_threshold(stop, err);
    return status == TALLY_OK ? check_patience(stop, err) : status;
}

/* An upper bound of the rounds of the job: the first is the shortest. */
static int64_t most_rounds(const struct tally_job_spec *spec)
{
    const struct tally_algorithm *algorithm = tally_job_spec_algorithm(spec);
    const struct tally_setting setting = tally_job_spec_setting(spec);
    struct tally_round_plan plan = {.samples = 1};
    const bool is_planned = algorithm->plan(&setting, algorithm->first_stage(&spec->params), NULL,
                                            &plan, NULL) == TALLY_OK;
    const int64_t samples = is_planned && plan.samples > 1 ? plan.samples : 1;
    return (spec->horizon - 1) / samples + 1;
}

/* The least `every` with which the job keeps few enough models. */
static int64_t least_every(const struct tally_job_spec *spec)
{
    const int64_t bytes = 8 * (int64_t)tally_objective_spec_dim(&spec->objective);
    const int64_t fit = TALLY_KEEP_MOST_BYTES / bytes;
    const int64_t most = fit < TALLY_KEEP_MOST ? fit : TALLY_KEEP_MOST;
    return most_rounds(spec) / (most + 1) + 1;
}

static enum tally_status check_every(const struct tally_job_spec *spec, struct tally_error *err)
{
    const int64_t every = spec->keep.every;
    return every == 0 || every >= least_every(spec)
               ? TALLY_OK
               : tally_fail(err, TALLY_OUT_OF_RANGE, "keep.every",
                            "a model every %lld of up to %lld rounds is more than %d models or "
                            "%lld bytes; at least %lld is possible",
                            (long long)every, (long long)most_rounds(spec), (int)TALLY_KEEP_MOST,
                            (long long)TALLY_KEEP_MOST_BYTES, (long long)least_every(spec));
}

static enum tally_status check_keep(const struct tally_job_spec *spec, struct tally_error *err)
{
    const struct tally_keep *keep = &spec->keep;
    if (keep->best[0] == '\0') {
        return keep->better == TALLY_BETTER_AUTO
                   ? TALLY_OK
                   : tally_fail(err, TALLY_INVALID_ARGUMENT, "keep.better",
                                "better needs a metric, best");
    }
    const enum tally_status status = check_metric("keep.best", keep->best, err);
    return status == TALLY_OK ? check_better("keep.better", keep->better, keep->best, err) : status;
}

/* The rules that plan rounds. */
static enum tally_status check_rounds(const struct tally_job_spec *spec, struct tally_error *err)
{
    const enum tally_status status = check_stages(spec, err);
    return status == TALLY_OK ? check_every(spec, err) : status;
}

static enum tally_status (*const RULES[])(const struct tally_job_spec *spec,
                                          struct tally_error *err) = {
    check_cohort,   check_over_selection, check_weighting, check_quorum,        check_deadline,
    check_training, check_objective,      check_domain,    check_initial_point, check_reference,
    check_calm,     check_stop,           check_keep,      check_rounds,
};
const size_t TALLY_N_JOB_RULES = sizeof RULES / sizeof RULES[0];

enum tally_status tally_job_spec_check(const struct tally_job_spec *spec, size_t rule,
                                       struct tally_error *err)
{
    return RULES[rule](spec, err);
}

enum tally_status tally_job_spec_validate(const struct tally_job_spec *spec,
                                          struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    for (size_t rule = 0; status == TALLY_OK && rule < TALLY_N_JOB_RULES; rule++) {
        status = tally_job_spec_check(spec, rule, err);
    }
    return status;
}

void tally_job_spec_initial_point(const struct tally_job_spec *spec, double *ret_x)
{
    struct tally_setting setting = tally_job_spec_setting(spec);
    if (spec->initial_point.type != TALLY_INITIAL_RANDOM_SPHERE) {
        memset(ret_x, 0, setting.dim * sizeof *ret_x);
    } else {
        struct tally_rng rng;
        tally_rng_init(&rng, setting.key, TALLY_RNG_SERVER, 0, TALLY_RNG_INITIAL_POINT);
        tally_rng_direction(&rng, spec->initial_point.radius, ret_x, setting.dim);
    }
    tally_domain_project(&setting.domain, ret_x, setting.dim);
}
