/* FedPAQ: Reisizadeh, Mokhtari, Hassani, Jadbabaie, Pedarsani, "FedPAQ: A Communication-Efficient
 * Federated Learning Method with Periodic Averaging and Quantization", AISTATS 2020.
 *
 *     client   K local SGD steps from x; sends QSGD of the difference, s levels
 *     server   x <- x + mean Q(difference), broadcast as float32
 *
 * Steps may decay and rounds grow as in fedavg.c. */
#include "services/algorithms/baseline.h"

static enum tally_status client_step(const struct tally_client_task *task,
                                     struct tally_scratch *scratch,
                                     struct tally_client_answer *answer, struct tally_error *err)
{
    enum tally_status status = tally_baseline_walk(task, scratch, &answer->loss, err);
    if (status != TALLY_OK || task->plan->cut) {
        return status;
    }
    tally_baseline_difference(task, 1, scratch);
    return tally_baseline_send_qsgd(task, scratch, &answer->message, err);
}

static enum tally_status decide(const struct tally_server_task *task, struct tally_scratch *scratch,
                                struct tally_decision *decision, struct tally_error *err)
{
    return tally_baseline_decide(task, 1, scratch, decision, err);
}

const struct tally_algorithm TALLY_FEDPAQ = {
    .name = "fedpaq",
    TALLY_FEDERATED_SLOTS,
    .takes_training = true,
    .fields = TALLY_SCHEDULED_FIELDS,
    .n_fields = 5,
    .step_limit = tally_baseline_step_limit,
    .message_bits = tally_baseline_bits_qsgd,
    .receive = tally_baseline_receive_qsgd,
};
