/* Minibatch-SGD: Dekel, Gilad-Bachrach, Shamir, Xiao, "Optimal Distributed Online Prediction Using
 * Mini-Batches", JMLR 2012; the baseline of [1] section V.
 *
 *     client   K gradients at x; sends their mean g_m as float32
 *     server   x <- x - eta (1/M) sum g_m, broadcast as float32 */
#include "services/algorithms/baseline.h"

static enum tally_status client_step(const struct tally_setting *setting,
                                     const struct tally_round_plan *plan,
                                     const struct tally_objective *objective, uint32_t client,
                                     uint32_t round, const double *x, bool evaluate,
                                     struct tally_scratch *scratch,
                                     struct tally_client_answer *answer, struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    if (evaluate) {
        status = tally_objective_local_loss(objective, client, x, &answer->loss, err);
    }
    if (status != TALLY_OK || plan->cut) {
        return status;
    }
    struct tally_rng rng;
    tally_rng_init(&rng, setting->key, client, round, TALLY_RNG_SAMPLING);
    status = tally_objective_local_gradient(
        objective, client, x, plan->samples * setting->minibatch, &rng, scratch->gradient, err);
    if (status != TALLY_OK) {
        return status;
    }
    for (size_t i = 0; i < setting->dim; i++) {
        scratch->vector[i] = (float)scratch->gradient[i];
    }
    return tally_baseline_send_float32(setting, client, scratch, &answer->message, err);
}

static enum tally_status decide(const struct tally_setting *setting,
                                const struct tally_round_plan *plan, const int64_t *sums,
                                int64_t received, uint32_t round, const double *x,
                                struct tally_scratch *scratch, struct tally_decision *decision,
                                struct tally_error *err)
{
    (void)round;
    return tally_baseline_decide(setting, plan, sums, received,
                                 -setting->params->baseline.step_size, x, scratch, decision, err);
}

const struct tally_algorithm TALLY_MINIBATCH_SGD = {
    .name = "minibatch_sgd",
    .fields = TALLY_BASELINE_FIELDS,
    .n_fields = 2, /* step_size, local_steps */
    .defaults = tally_baseline_defaults,
    .first_stage = tally_baseline_first_stage,
    .step_limit = tally_baseline_step_limit,
    .plan = tally_baseline_plan,
    .client_step = client_step,
    .receive = tally_baseline_receive_float32,
    .decide = decide,
    .apply = tally_baseline_apply,
};
