/* CEAL, Algorithm 2 of [1]: S. Salgia, T. Gabay, Q. Zhao, K. Cohen, "A Communication-Efficient
 * Adaptive Algorithm for Federated Learning under Cumulative Regret".
 *
 * Idea: a point moves only if the clients' mean gradient g is clearly longer than its error.
 * Otherwise the clients measure again at the same point, with four times as many samples in each
 * stage. Bits and samples are thus spent where they matter: few coarse messages far from the
 * minimum, and finer ones near it.
 *
 *     round (k, j) at x = x^(k)
 *
 *     client m      s_j gradient queries at x; sends Q(mean, gamma_j, G_j + B_j)
 *     server        g = mean of the decoded messages
 *                   tau_j <= |g| / 4 ?
 *                     yes: q = Q(g, phi_j, B_j + tau_j) goes down; x^(k+1) = x^(k) - eta q; same j
 *                     no:  one control bit goes down; j + 1, same x
 *
 * ceal.h defines the sequences. The server applies its own quantized broadcast, so all copies of x
 * are identical bit for bit.
 *
 * Example: L = 1 and |g| = 0.8. Stage 3 has tau_3 = 3/16 <= 0.2, so the round passes; with |g| =
 * 0.7 it does not (0.175), and stage 4 (tau_4 = 3/32) takes four times the samples.
 *
 * Departs from [1]: its Algorithm 2 averages the unquantized vectors, which a server does not have;
 * Algorithm 3 (appendix) has the quantizer and is implemented here.
 *
 * Left out: returning to a coarser stage, because the stages of [1] never decrease. */
#include "services/algorithms/ceal.h"

#include <math.h>

#define PARAM(member) offsetof(struct tally_ceal_params, member)

/* Beyond stage 60, 4^j / M would overflow as a number of samples. */
enum { MAX_STAGE = 60 };

static const struct tally_field CEAL_FIELDS[] = {
    TALLY_POSITIVE("step_size", PARAM(step_size), 1e9, .required = true, .unit = "x per gradient",
                   .doc = "step size eta"),
    TALLY_POSITIVE(
        "sigma", PARAM(sigma), 1e9, .required = true, .auto_allowed = true, .unit = "gradient",
        .doc = "standard deviation of one gradient query; `auto`: estimated in an opening round"),
    /* The largest double below 1 represents the open end of (0, 1). */
    TALLY_POSITIVE("delta", PARAM(delta), 1 - 0x1p-53,
                   .doc = "probability with which the bounds of a stage may fail"),
    TALLY_POSITIVE("gamma0", PARAM(gamma0), 1e6,
                   .doc =
                       "resolution of the uplink quantizer, relative to the accuracy of a stage"),
    TALLY_POSITIVE("phi0", PARAM(phi0), 1e6,
                   .doc =
                       "resolution of the downlink quantizer, relative to the accuracy of a stage"),
    TALLY_POSITIVE("sample_scale", PARAM(sample_scale), 1e9,
                   .doc = "factor c in the number of samples s_j of stage j"),
    TALLY_BOOL("log_factor", PARAM(log_factor),
               .doc = "whether s_j has the factor log(16 M j^2 / delta)"),
    TALLY_INTEGER("first_stage", PARAM(first_stage), 1, MAX_STAGE, .unit = "stages",
                  .doc = "stage j that the job starts with"),
    TALLY_POSITIVE(
        "gradient_bound", PARAM(gradient_bound), 1e9, .auto_allowed = true, .unit = "gradient",
        .doc = "bound L on the norm of the gradient; `auto`: estimated in an opening round"),
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

/* Defaults if sigma or L is estimated. With the constants of the theory, a job of some thousand
 * steps ends in its first stage. These defaults give short and steady rounds: the noise of the
 * server's estimate has the norm sqrt((1 + gamma0^2 / 4) / c) / 1.5 in units of tau_j, here 3.0.
 * From 4 on, noise alone would pass the norm test, so the estimate of sigma may be a quarter too
 * small. services/algorithms/README.md gives the figures. */
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
                                   const void *memory, struct tally_round_plan *ret_plan,
                                   struct tally_error *err)
{
    (void)memory;
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
        /* The grid of the broadcast must exist too. This is checked before the round, not after it.
         */
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

static enum tally_status make_message(const struct tally_client_task *task,
                                      struct tally_scratch *scratch, struct tally_message *message,
                                      struct tally_error *err)
{
    const struct tally_grid *grid = &task->plan->grid;
    /* Uses the announced grid, not our own: logarithms may differ in the last bit between machines.
     */
    if (!tally_grid_is_valid(grid)) {
        return tally_fail(err, TALLY_OUT_OF_RANGE, "quantizer_step",
                          "step %g with %u intervals is not a valid quantizer", grid->step,
                          grid->intervals);
    }
    enum tally_status status = tally_client_gradient(task, scratch, err);
    if (status != TALLY_OK) {
        return status;
    }
    struct tally_rng rng;
    tally_rng_init(&rng, task->setting->key, task->client, task->round, TALLY_RNG_UPLINK);
    status = tally_message_of_vector(task->setting, grid, &rng, scratch, message, err);
    if (status != TALLY_OK) {
        tally_error_wrap(err, "gradient of client %u", task->client);
    }
    return status;
}

static enum tally_status ceal_client_step(const struct tally_client_task *task,
                                          struct tally_scratch *scratch,
                                          struct tally_client_answer *answer,
                                          struct tally_error *err)
{
    enum tally_status status = tally_client_loss(task, &answer->loss, err);
    if (status != TALLY_OK || task->plan->cut) {
        return status;
    }
    return task->plan->stage == 0 ? tally_ceal_report(task, scratch, &answer->message, err)
                                  : make_message(task, scratch, &answer->message, err);
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

static enum tally_status ceal_decide(const struct tally_server_task *task,
                                     struct tally_scratch *scratch, struct tally_decision *decision,
                                     struct tally_error *err)
{
    const struct tally_setting *setting = task->setting;
    const struct tally_round_plan *plan = task->plan;
    struct tally_ceal_stage sequences = stage_of(setting, plan->stage);
    const double scale = plan->grid.step / (double)task->received;
    double square = 0;
    for (size_t i = 0; i < setting->dim; i++) {
        double g = scale * (double)task->sums[i];
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
        tally_rng_init(&rng, setting->key, TALLY_RNG_SERVER, task->round, TALLY_RNG_DOWNLINK);
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
                          "step %g with %u intervals is not a valid quantizer",
                          broadcast->grid.step, broadcast->grid.intervals);
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

/* Algorithm 2 of [1] requires eta < 1 / beta, its text eta < 1 / (5 beta), which the proof needs
 * for its constants. Up to 1 / beta the quantized step is still a descent step. */
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
    .no_cohorts_reason = "its norm test needs an error that shrinks from stage to stage, and the "
                         "error of drawing clients does not",
    .no_weights_reason = "its stages are computed for the variance of the mean of equal clients",
    .plan = ceal_plan,
    .client_step = ceal_client_step,
    .receive = ceal_receive,
    .decide = ceal_decide,
    .apply = ceal_apply,
};
