/* DIANA: Mishchenko, Gorbunov, Takac, Richtarik, "Distributed Learning with Compressed Gradient
 * Differences", 2019, Algorithm 1 without the regularizer; with the compressor of QSGD and its
 * omega as in Horvath, Kovalev, Mishchenko, Stich, Richtarik, "Stochastic Distributed Learning with
 * Gradient Quantization and Variance Reduction", 2019.
 *
 *     client   g_m: mean of K gradients at x; sends q_m = QSGD(g_m - h_m), s levels
 *     both     h_m <- h_m + alpha q_m;  h_m starts at 0
 *     server   x <- x - eta (mean h_m + mean q_m), with the h_m before the round; broadcast as
 *              float32
 *
 * Idea: the error of QSGD is proportional to what it quantizes. If clients have heterogeneous data,
 * their gradients do not vanish at x*, so the error remains and x wanders around x*. h_m learns the
 * gradient of client m at x*. The difference that is sent then vanishes, and with it the error.
 *
 * alpha is at most 1 / (1 + omega), which is also its default. Here E|QSGD(v) - v|^2 <= omega |v|^2
 * with omega = min(d / s^2, sqrt(d) / s). h_m is the client's shift (shift.h).
 *
 * Departs from the paper: a round may lack clients (policy `drop`). Missing clients count with
 * their h_m, and the mean of q_m is over the clients that answered. If a client's data do not
 * affect whether it answers, the expected step is that of all clients. A broadcast has one control
 * bit, which says whether the client's message counted. */
#include <math.h>

#include "services/algorithms/baseline.h"
#include "services/algorithms/client_shifts.h"
#include "services/algorithms/weights.h"

static double alpha_of(const struct tally_setting *setting)
{
    const struct tally_baseline_params *params = &setting->params->baseline;
    const double dim = (double)setting->dim, levels = (double)params->levels;
    return isnan(params->alpha) ? 1 / (1 + fmin(dim / (levels * levels), sqrt(dim) / levels))
                                : params->alpha;
}

static enum tally_status plan(const struct tally_setting *setting, int64_t stage,
                              const void *memory, struct tally_round_plan *ret_plan,
                              struct tally_error *err)
{
    enum tally_status status = tally_baseline_plan(setting, stage, memory, ret_plan, err);
    ret_plan->facts.shift_gain = alpha_of(setting);
    return status;
}

static enum tally_status client_step(const struct tally_client_task *task,
                                     struct tally_scratch *scratch,
                                     struct tally_client_answer *answer, struct tally_error *err)
{
    enum tally_status status = tally_client_loss(task, &answer->loss, err);
    if (status != TALLY_OK || task->plan->cut) {
        return status;
    }
    status = tally_client_shifts_difference(task, scratch, err);
    return status != TALLY_OK ? status
                              : tally_baseline_send_qsgd(task, scratch, &answer->message, err);
}

static enum tally_status decide(const struct tally_server_task *task, struct tally_scratch *scratch,
                                struct tally_decision *decision, struct tally_error *err)
{
    if (tally_client_shifts_mean(task, false, scratch, err) != TALLY_OK) {
        return TALLY_NO_MEMORY;
    }
    for (size_t i = 0; i < task->setting->dim; i++) {
        scratch->wide.reals[i] += tally_weighted_mean(task, i);
    }
    return tally_client_shifts_descend(task, scratch, decision, err);
}

const struct tally_algorithm TALLY_DIANA = {
    .name = "diana",
    TALLY_BASELINE_COMMON_SLOTS,
    TALLY_CLIENT_SHIFTS_SLOTS(zero),
    .fields = TALLY_DIANA_FIELDS,
    .n_fields = 4,
    .plan = plan,
    .step_limit = tally_baseline_step_limit,
    .message_bits = tally_baseline_bits_qsgd,
    .receive = tally_baseline_receive_qsgd,
};
