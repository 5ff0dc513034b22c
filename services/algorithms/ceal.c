/* CEAL, Algorithm 2 of [1]: S. Salgia, T. Gabay, Q. Zhao, K. Cohen, "A Communication-Efficient
 * Adaptive Algorithm for Federated Learning under Cumulative Regret".
 *
 * One round (k, j): every client queries x^(k) s_j times and sends Q(mean, gamma_j, G_j + B_j). The
 * server averages; if tau_j <= |g| / 4 it broadcasts q = Q(g, phi_j, B_j + tau_j) and everybody
 * sets x^(k+1) = x^(k) - eta q, else only the stage goes up. The server applies its own quantized
 * broadcast, so that all copies of x stay bit-identical.
 *
 * Departs from [1]: its Algorithm 2 averages the unquantized vectors, which a server does not have;
 * Algorithm 3 (appendix) has the quantizer and is what stands here. */
#include "services/algorithms/ceal.h"

#include <math.h>

#include "services/algorithms/ceal_opening.h"

#define PARAM(member) offsetof(struct tally_ceal_params, member)
#define POSITIVE(member, limit, text)                                                              \
    {                                                                                              \
        .name = #member, .kind = TALLY_FIELD_REAL, .offset = PARAM(member), .min = 0,              \
        .min_exclusive = true, .max = limit, .doc = text                                           \
    }

/* Stages past 60 would overflow 4^j / M as a sample count of any horizon. */
enum { MAX_STAGE = 60 };

static const struct tally_field CEAL_FIELDS[] = {
    {.name = "step_size",
     .kind = TALLY_FIELD_REAL,
     .unit = "x per gradient",
     .offset = PARAM(step_size),
     .required = true,
     .min = 0,
     .min_exclusive = true,
     .max = 1e9,
     .doc = "step size eta"},
    {.name = "sigma",
     .kind = TALLY_FIELD_REAL,
     .unit = "gradient",
     .offset = PARAM(sigma),
     .required = true,
     .min = 0,
     .min_exclusive = true,
     .auto_allowed = true,
     .max = 1e9,
     .doc = "standard deviation of one gradient query; `auto`: estimated in an opening round"},
    /* The largest double below 1 stands for the open end of (0, 1). */
    POSITIVE(delta, 1 - 0x1p-53, "probability with which the bounds of a stage may fail"),
    POSITIVE(gamma0, 1e6,
             "resolution of the uplink quantizer, relative to the accuracy of a stage"),
    POSITIVE(phi0, 1e6,
             "resolution of the downlink quantizer, relative to the accuracy of a stage"),
    POSITIVE(sample_scale, 1e9, "factor c in the number of samples s_j of stage j"),
    {.name = "log_factor",
     .kind = TALLY_FIELD_BOOL,
     .offset = PARAM(log_factor),
     .doc = "whether s_j has the factor log(16 M j^2 / delta)"},
    {.name = "first_stage",
     .kind = TALLY_FIELD_INTEGER,
     .unit = "stages",
     .offset = PARAM(first_stage),
     .min = 1,
     .max = MAX_STAGE,
     .doc = "stage j that the job starts with"},
    {.name = "gradient_bound",
     .kind = TALLY_FIELD_REAL,
     .unit = "gradient",
     .offset = PARAM(gradient_bound),
     .min = 0,
     .min_exclusive = true,
     .auto_allowed = true,
     .max = 1e9,
     .doc = "bound L on the norm of the gradient; `auto`: estimated in an opening round"},
};

static union tally_algorithm_params ceal_defaults(void)
{
    return (union tally_algorithm_params){.ceal = {.delta = 0.1,
                                                   .gamma0 = 1,
                                                   .phi0 = 1,
                                                   .sample_scale = 40,
                                                   .log_factor = true,
                                                   .first_stage = 1,
                                                   .gradient_bound = 1}};
}

/* Who leaves sigma or L to the job has no constants of the theory in mind, with which a job of some
 * thousand steps ends in its first stage. These are short and steady instead: the server's estimate
 * has noise of norm sqrt((1 + gamma0^2 / 4) / c) / 1.5 in units of tau_j, here 3.0, and from 4 on
 * it would pass the norm test by itself and never reach a stage that is fine enough. So a sigma
 * that came out a quarter too small is survived. services/algorithms/README.md has the figures. */
static union tally_algorithm_params ceal_defaults_beside(const union tally_algorithm_params *read)
{
    union tally_algorithm_params params = ceal_defaults();
    if (tally_ceal_opens(read)) {
        params.ceal.gradient_bound = isnan(read->ceal.sigma) ? NAN : 1;
        params.ceal.sample_scale = 0.06;
        params.ceal.log_factor = false;
        params.ceal.first_stage = 4;
        params.ceal.phi0 = 2;
    }
    return params;
}

struct tally_ceal_stage tally_ceal_stage(const struct tally_ceal_params *params, uint32_t clients,
                                         size_t dim, int64_t stage)
{
    const double j = (double)stage, m = clients, bound = params->gradient_bound;
    const double log_factor = params->log_factor ? log(16 * m * j * j / params->delta) : 1;
    const double samples = ceil(params->sample_scale * params->sigma * params->sigma * log_factor *
                                exp2(2 * j) / (m * bound * bound));
    struct tally_ceal_stage ret = {.samples = INT64_C(1) << 53};
    if (samples < 0x1p53) {
        ret.samples = samples < 1 ? 1 : (int64_t)samples;
    }
    const double noise = params->sigma / sqrt((double)ret.samples);
    ret.threshold = 3 * exp2(-(j + 1)) * bound;
    ret.gradient_bound = fmin(5 * 2 * ret.threshold, bound);
    ret.client_error =
        4 * noise * (1 + sqrt(log(4 * m * j * j / params->delta) / (2 * (double)dim)));
    ret.uplink_accuracy = params->gamma0 * noise;
    ret.downlink_accuracy = params->phi0 * ret.threshold;
    return ret;
}

static struct tally_ceal_stage stage_of(const struct tally_setting *setting, int64_t stage)
{
    return tally_ceal_stage(&setting->params->ceal, setting->clients, setting->dim, stage);
}

static int64_t ceal_first_stage(const union tally_algorithm_params *params)
{
    return tally_ceal_opens(params) ? 0 : params->ceal.first_stage;
}

static enum tally_status ceal_plan(const struct tally_setting *setting, int64_t stage,
                                   struct tally_round_plan *ret_plan, struct tally_error *err)
{
    if (stage == 0) {
        *ret_plan =
            (struct tally_round_plan){.samples = tally_ceal_opening_samples(setting->clients)};
        return TALLY_OK;
    }
    struct tally_ceal_stage sequences = stage_of(setting, stage);
    struct tally_round_plan plan = {.stage = stage, .samples = sequences.samples};
    enum tally_status status =
        tally_grid_init(sequences.client_error + sequences.gradient_bound,
                        sequences.uplink_accuracy, setting->dim, &plan.grid, err);
    if (status == TALLY_OK) {
        /* The broadcast's grid must exist too; better to know before the round than after it. */
        struct tally_grid downlink;
        status = tally_grid_init(sequences.gradient_bound + sequences.threshold,
                                 sequences.downlink_accuracy, setting->dim, &downlink, err);
    }
    if (status != TALLY_OK) {
        tally_error_wrap(err, "stage %lld", (long long)stage);
        return status;
    }
    *ret_plan = plan;
    return TALLY_OK;
}

static enum tally_status make_message(const struct tally_setting *setting,
                                      const struct tally_round_plan *plan,
                                      const struct tally_objective *objective, uint32_t client,
                                      uint32_t round, const double *x,
                                      struct tally_scratch *scratch, struct tally_message *message,
                                      struct tally_error *err)
{
    /* The announced grid, not our own: logarithms may differ in the last bit between machines. */
    if (!tally_grid_is_valid(&plan->grid)) {
        return tally_fail(err, TALLY_OUT_OF_RANGE, "quantizer_step",
                          "step %g with %u intervals is no quantizer", plan->grid.step,
                          plan->grid.intervals);
    }
    struct tally_rng rng;
    tally_rng_init(&rng, setting->key, client, round, TALLY_RNG_SAMPLING);
    enum tally_status status = tally_objective_local_gradient(
        objective, client, x, plan->samples * setting->minibatch, &rng, scratch->gradient, err);
    if (status != TALLY_OK) {
        return status;
    }
    for (size_t i = 0; i < setting->dim; i++) {
        scratch->vector[i] = (float)scratch->gradient[i];
    }
    tally_rng_init(&rng, setting->key, client, round, TALLY_RNG_UPLINK);
    status = tally_message_of_vector(setting, &plan->grid, &rng, scratch, message, err);
    if (status != TALLY_OK) {
        tally_error_wrap(err, "gradient of client %u", client);
    }
    return status;
}

static enum tally_status
ceal_client_step(const struct tally_setting *setting, const struct tally_round_plan *plan,
                 const struct tally_objective *objective, uint32_t client, uint32_t round,
                 const double *x, bool evaluate, struct tally_scratch *scratch,
                 struct tally_client_answer *answer, struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    if (evaluate) {
        status = tally_objective_local_loss(objective, client, x, &answer->loss, err);
    }
    if (status != TALLY_OK || plan->cut) {
        return status;
    }
    return plan->stage == 0 ? tally_ceal_report(setting, plan, objective, client, round, x, scratch,
                                                &answer->message, err)
                            : make_message(setting, plan, objective, client, round, x, scratch,
                                           &answer->message, err);
}

static enum tally_status ceal_receive(const struct tally_setting *setting,
                                      const struct tally_round_plan *plan,
                                      const struct tally_message_view *message,
                                      struct tally_scratch *scratch, int64_t *sums,
                                      struct tally_bits *ret_bits, struct tally_error *err)
{
    (void)scratch;
    struct tally_level_stats stats;
    enum tally_status status =
        setting->encoding->accumulate(message->payload, message->n_payload, message->payload_bits,
                                      setting->dim, &plan->grid, sums, &stats, err);
    if (status != TALLY_OK) {
        return status;
    }
    *ret_bits = (struct tally_bits){
        .formula_bits = stats.formula_bits, .payload_bits = stats.payload_bits, .messages = 1};
    return TALLY_OK;
}

static enum tally_status ceal_decide(const struct tally_setting *setting,
                                     const struct tally_round_plan *plan, const int64_t *sums,
                                     int64_t received, uint32_t round, const double *x,
                                     struct tally_scratch *scratch, struct tally_decision *decision,
                                     struct tally_error *err)
{
    (void)x;
    struct tally_ceal_stage sequences = stage_of(setting, plan->stage);
    const double scale = plan->grid.step / (double)received;
    double square = 0;
    for (size_t i = 0; i < setting->dim; i++) {
        double g = scale * (double)sums[i];
        square += g * g;
        scratch->vector[i] = (float)g;
    }
    decision->norm = sqrt(square);
    decision->passed = sequences.threshold <= decision->norm / 4;
    decision->next_stage = decision->passed ? plan->stage : plan->stage + 1;
    if (!decision->passed) {
        return TALLY_OK;
    }
    struct tally_grid grid;
    enum tally_status status =
        tally_grid_init(sequences.gradient_bound + sequences.threshold, sequences.downlink_accuracy,
                        setting->dim, &grid, err);
    if (status == TALLY_OK) {
        struct tally_rng rng;
        tally_rng_init(&rng, setting->key, TALLY_RNG_SERVER, round, TALLY_RNG_DOWNLINK);
        status = tally_message_of_vector(setting, &grid, &rng, scratch, &decision->broadcast, err);
    }
    return status;
}

static enum tally_status ceal_apply(const struct tally_setting *setting,
                                    const struct tally_message_view *broadcast,
                                    struct tally_scratch *scratch, double *x,
                                    struct tally_error *err)
{
    struct tally_level_stats stats;
    if (!tally_grid_is_valid(&broadcast->grid)) {
        return tally_fail(err, TALLY_MALFORMED, "quantizer_step",
                          "step %g with %u intervals is no quantizer", broadcast->grid.step,
                          broadcast->grid.intervals);
    }
    enum tally_status status =
        setting->encoding->decode(broadcast->payload, broadcast->n_payload, broadcast->payload_bits,
                                  setting->dim, &broadcast->grid, scratch->levels, &stats, err);
    if (status != TALLY_OK) {
        return status;
    }
    const double scale = setting->params->ceal.step_size * broadcast->grid.step;
    for (size_t i = 0; i < setting->dim; i++) {
        x[i] -= scale * scratch->levels[i];
    }
    tally_domain_project(&setting->domain, x, setting->dim);
    return TALLY_OK;
}

/* Algorithm 2 of [1] asks for eta < 1 / beta, its text for eta < 1 / (5 beta), which the proof
 * needs for its constants. Up to the first the quantized step still leads downhill. */
static struct tally_step_limit ceal_step_limit(const union tally_algorithm_params *params,
                                               double smoothness)
{
    return (struct tally_step_limit){params->ceal.step_size, 1 / smoothness, "1 / smoothness"};
}

const struct tally_algorithm TALLY_CEAL = {
    .name = "ceal",
    .fields = CEAL_FIELDS,
    .n_fields = sizeof CEAL_FIELDS / sizeof CEAL_FIELDS[0],
    .defaults = ceal_defaults,
    .defaults_beside = ceal_defaults_beside,
    .opening = &TALLY_CEAL_OPENING,
    .first_stage = ceal_first_stage,
    .step_limit = ceal_step_limit,
    .plan = ceal_plan,
    .client_step = ceal_client_step,
    .receive = ceal_receive,
    .decide = ceal_decide,
    .apply = ceal_apply,
};
