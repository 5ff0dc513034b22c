/* FedAvg: McMahan, Moore, Ramage, Hampson, Aguera y Arcas, "Communication-Efficient Learning of
 * Deep Networks from Decentralized Data", AISTATS 2017; every client in every round.
 *
 *     client   K local SGD steps from x; sends the difference as float32
 *     server   x <- x + mean difference, broadcast as float32 */
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
    tally_baseline_difference(setting, x, 1, scratch);
    return tally_baseline_send_float32(setting, client, scratch, &answer->message, err);
}

static enum tally_status decide(const struct tally_setting *setting,
                                const struct tally_round_plan *plan, const int64_t *sums,
                                int64_t received, uint32_t round, const double *x,
                                struct tally_scratch *scratch, struct tally_decision *decision,
                                struct tally_error *err)
{
    (void)round;
    return tally_baseline_decide(setting, plan, sums, received, 1, x, scratch, decision, err);
}

const struct tally_algorithm TALLY_FEDAVG = {
    .name = "fedavg",
    .fields = TALLY_BASELINE_FIELDS,
    .n_fields = 2, /* step_size, local_steps */
    .moves_locally = true,
    .defaults = tally_baseline_defaults,
    .first_stage = tally_baseline_first_stage,
    .step_limit = tally_baseline_step_limit,
    .plan = tally_baseline_plan,
    .client_step = client_step,
    .receive = tally_baseline_receive_float32,
    .decide = decide,
    .apply = tally_baseline_apply,
};
