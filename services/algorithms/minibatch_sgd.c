/* Minibatch-SGD: Dekel, Gilad-Bachrach, Shamir, Xiao, "Optimal Distributed Online Prediction Using
 * Mini-Batches", JMLR 2012; the baseline of [1] section V.
 *
 *     client   K gradients at x; sends their mean g_m as float32
 *     server   x <- x - eta (1/M) sum g_m, broadcast as float32 */
#include "services/algorithms/baseline.h"

static enum tally_status client_step(const struct tally_client_task *task,
                                     struct tally_scratch *scratch,
                                     struct tally_client_answer *answer, struct tally_error *err)
{
    enum tally_status status = tally_client_loss(task, &answer->loss, err);
    if (status != TALLY_OK || task->plan->cut) {
        return status;
    }
    status = tally_client_gradient(task, scratch, err);
    return status != TALLY_OK ? status
                              : tally_baseline_send_float32(task, scratch, &answer->message, err);
}

static enum tally_status decide(const struct tally_server_task *task, struct tally_scratch *scratch,
                                struct tally_decision *decision, struct tally_error *err)
{
    return tally_baseline_decide(task, -task->setting->params->baseline.step_size, scratch,
                                 decision, err);
}

const struct tally_algorithm TALLY_MINIBATCH_SGD = {
    .name = "minibatch_sgd",
    TALLY_BASELINE_SLOTS,
    .fields = TALLY_BASELINE_FIELDS,
    .n_fields = 2, /* step_size, local_steps */
    .step_limit = tally_baseline_step_limit,
    .message_bits = tally_baseline_bits_float32,
    .receive = tally_baseline_receive_float32,
};
