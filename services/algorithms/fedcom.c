/* FedCOM: Haddadpour, Kamani, Mokhtari, Mahdavi, "Federated Learning with Compression: Unified
 * Analysis and Sharp Guarantees", AISTATS 2021 (homogeneous case).
 *
 *     client   K local SGD steps from x; sends QSGD of (x - x_K) / eta, s levels
 *     server   x <- x - eta * server_step_size * mean Q, broadcast as float32 */
#include "services/algorithms/baseline.h"

static enum tally_status client_step(const struct tally_setting *setting,
                                     const struct tally_round_plan *plan,
                                     const struct tally_objective *objective, uint32_t client,
                                     uint32_t round, const double *x, bool evaluate,
                                     struct tally_scratch *scratch,
                                     struct tally_client_answer *answer, struct tally_error *err)
{
    enum tally_status status = tally_baseline_walk(setting, plan, objective, client, round, x,
                                                   evaluate, scratch, &answer->loss, err);
    if (status != TALLY_OK || plan->cut) {
        return status;
    }
    tally_baseline_difference(setting, x, -1 / setting->params->baseline.step_size, scratch);
    return tally_baseline_send_qsgd(setting, client, round, scratch, &answer->message, err);
}

static enum tally_status decide(const struct tally_setting *setting,
                                const struct tally_round_plan *plan, const int64_t *sums,
                                int64_t received, uint32_t round, const double *x,
                                struct tally_scratch *scratch, struct tally_decision *decision,
                                struct tally_error *err)
{
    (void)round;
    const struct tally_baseline_params *params = &setting->params->baseline;
    return tally_baseline_decide(setting, plan, sums, received,
                                 -params->step_size * params->server_step_size, x, scratch,
                                 decision, err);
}

const struct tally_algorithm TALLY_FEDCOM = {
    .name = "fedcom",
    .fields = TALLY_BASELINE_FIELDS,
    .n_fields = 4, /* step_size, local_steps, levels, server_step_size */
    .moves_locally = true,
    .defaults = tally_baseline_defaults,
    .first_stage = tally_baseline_first_stage,
    .plan = tally_baseline_plan,
    .client_step = client_step,
    .receive = tally_baseline_receive_qsgd,
    .decide = decide,
    .apply = tally_baseline_apply,
};
