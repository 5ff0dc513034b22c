/* FedAvg: McMahan, Moore, Ramage, Hampson, Aguera y Arcas, "Communication-Efficient Learning of
 * Deep Networks from Decentralized Data", AISTATS 2017.
 *
 *     client   K local SGD steps from x; sends the difference as float32
 *     server   x <- x + mean difference, broadcast as float32
 *
 * With `step_decay` and `local_steps_growth` it is local SGD with steps that decay and intervals
 * that grow: Spiridonoff, Olshevsky, Paschalidis, "Communication-efficient SGD: From Local SGD to
 * One-Shot Averaging", NeurIPS 2021. There the intervals grow linearly, here geometrically. */
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
    return tally_baseline_send_float32(task, scratch, &answer->message, err);
}

static enum tally_status decide(const struct tally_server_task *task, struct tally_scratch *scratch,
                                struct tally_decision *decision, struct tally_error *err)
{
    return tally_baseline_decide(task, 1, scratch, decision, err);
}

const struct tally_algorithm TALLY_FEDAVG = {
    .name = "fedavg",
    TALLY_FEDERATED_SLOTS,
    .takes_compression = true,
    .takes_training = true,
    .fields = TALLY_SCHEDULED_FIELDS,
    .n_fields = 4, /* all but levels */
    .step_limit = tally_baseline_step_limit,
    .message_bits = tally_baseline_bits_float32,
    .receive = tally_baseline_receive_float32,
};
