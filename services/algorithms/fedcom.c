/* FedCOM: Haddadpour, Kamani, Mokhtari, Mahdavi, "Federated Learning with Compression: Unified
 * Analysis and Sharp Guarantees", AISTATS 2021 (homogeneous case).
 *
 *     client   K local SGD steps from x; sends QSGD of (x - x_K) / eta, s levels
 *     server   x <- x - eta * server_step_size * mean Q, broadcast as float32 */
#include <math.h>

#include "services/algorithms/baseline.h"

static enum tally_status client_step(const struct tally_client_task *task,
                                     struct tally_scratch *scratch,
                                     struct tally_client_answer *answer, struct tally_error *err)
{
    enum tally_status status = tally_baseline_walk(task, scratch, &answer->loss, err);
    if (status != TALLY_OK || task->plan->cut) {
        return status;
    }
    tally_baseline_difference(task, -1 / task->setting->params->baseline.step_size, scratch);
    return tally_baseline_send_qsgd(task, scratch, &answer->message, err);
}

static enum tally_status decide(const struct tally_server_task *task, struct tally_scratch *scratch,
                                struct tally_decision *decision, struct tally_error *err)
{
    const struct tally_baseline_params *params = &task->setting->params->baseline;
    return tally_baseline_decide(task, -params->step_size * params->server_step_size, scratch,
                                 decision, err);
}

/* Along an eigenvector of the Hessian, a round multiplies the distance from x* by
 *
 *     1 - S (1 - (1 - eta lambda)^K),     S = server_step_size
 *
 * which stays in [-1, 1] for every lambda up to smoothness if eta smoothness is at most 2 (S <= 1),
 * at most 1 (S <= 2), or otherwise at most the value at which the bracket equals 2 / S. */
static struct tally_step_limit step_limit(const union tally_algorithm_params *params,
                                          double smoothness)
{
    const struct tally_baseline_params *own = &params->baseline;
    const double server = own->server_step_size;
    if (server <= 1) {
        return tally_baseline_step_limit(params, smoothness);
    }
    if (server <= 2) {
        return (struct tally_step_limit){own->step_size, 1 / smoothness, "1 / smoothness"};
    }
    return (struct tally_step_limit){
        own->step_size, -expm1(log1p(-2 / server) / (double)own->local_steps) / smoothness,
        "(1 - (1 - 2 / server_step_size)^(1 / local_steps)) / smoothness"};
}

const struct tally_algorithm TALLY_FEDCOM = {
    .name = "fedcom",
    TALLY_FEDERATED_SLOTS,
    .takes_training = true,
    .fields = TALLY_BASELINE_FIELDS,
    .n_fields = 4, /* step_size, local_steps, levels, server_step_size */
    .step_limit = step_limit,
    .message_bits = tally_baseline_bits_qsgd,
    .receive = tally_baseline_receive_qsgd,
};
