/* SCAFFOLD: Karimireddy, Kale, Mohri, Reddi, Stich, Suresh, "SCAFFOLD: Stochastic Controlled
 * Averaging for Federated Learning", ICML 2020, Algorithm 1, option II, all clients in every round.
 *
 * Idea: if clients have heterogeneous data, the local steps of each lead towards its own optimum
 * (client drift). Control variates c_m and c, which estimate the gradients of client m and of f,
 * correct every step. In the paper, with the step size S of the server:
 *
 *     client   K steps  y <- y - eta (g_m(y) + v_m),  v_m = c - c_m,  from x on;  D_m = y - x
 *              c_m <- c_m - c - D_m / (K eta);  sends D_m and the change of c_m
 *     server   x <- x + S mean D_m,  c <- c + mean change of c_m;  sends x and c
 *
 * This costs 64 d bits each way. But clients use only v_m, which follows from the messages D_m.
 * Because all clients take part, c is the mean of the c_m, so c becomes -mean D_m / (K eta), and
 *
 *     v_m <- v_m + (D_m - mean D_m) / (K eta)
 *
 * Summed over the rounds, with z_m = x_1 + S (sum of all D_m that client m has sent),
 *
 *     x = mean z_m        v_m = (z_m - x) / (S K eta)
 *
 * z_m is the client's shift (shift.h): both sides know it from the messages. So this is
 * the paper's method with FedAvg's bits, 32 d each way:
 *
 *     client   K steps from x with v_m; sends D_m as float32
 *     both     z_m <- z_m + S D_m
 *     server   x <- mean z_m, broadcast as float32
 *
 * In words: z_m is the point that would result if all clients had sent what client m sent, and v_m
 * corrects for the distance. The server averages the z_m in their stored form, with rounding, so
 * the v_m sum to zero in every round and rounding errors do not accumulate.
 *
 * This requires every client in every round, the same K eta in every round, and an x that follows
 * the messages alone. Hence there are no cohorts, no quorum below the number of clients, no
 * step_decay or local_steps_growth, and no domain. A round that the horizon cuts makes fewer steps
 * and has no message. */
#include "services/algorithms/baseline.h"
#include "services/algorithms/client_shifts.h"
#include "services/algorithms/weights.h"

static enum tally_status plan(const struct tally_setting *setting, int64_t stage,
                              const void *memory, struct tally_round_plan *ret_plan,
                              struct tally_error *err)
{
    enum tally_status status = tally_baseline_plan(setting, stage, memory, ret_plan, err);
    ret_plan->facts.shift_gain = setting->params->baseline.server_step_size;
    return status;
}

/* scratch->wide.reals <- v_m. A shift consists of float32 values, and so does every point except
 * the initial one. That point is therefore rounded here, as it was for the shift. */
static void find_correction(const struct tally_client_task *task, struct tally_scratch *scratch)
{
    const struct tally_baseline_params *params = &task->setting->params->baseline;
    const double scale = params->server_step_size * (double)params->local_steps * params->step_size;
    const float *z = tally_shift_in(task->shift, task->round, task->setting->dim, NULL);
    for (size_t i = 0; i < task->setting->dim; i++) {
        scratch->vector[i] = (float)task->x[i];
    }
    for (size_t i = 0; i < task->setting->dim; i++) {
        scratch->wide.reals[i] = ((double)z[i] - (double)scratch->vector[i]) / scale;
    }
}

static enum tally_status client_step(const struct tally_client_task *task,
                                     struct tally_scratch *scratch,
                                     struct tally_client_answer *answer, struct tally_error *err)
{
    if (tally_scratch_widen(scratch, task->setting->dim, err) != TALLY_OK) {
        return TALLY_NO_MEMORY;
    }
    find_correction(task, scratch);
    enum tally_status status =
        tally_baseline_corrected_walk(task, scratch->wide.reals, scratch, &answer->loss, err);
    if (status != TALLY_OK || task->plan->cut) {
        return status;
    }
    tally_baseline_difference(task, 1, scratch);
    return tally_baseline_send_float32(task, scratch, &answer->message, err);
}

static enum tally_status decide(const struct tally_server_task *task, struct tally_scratch *scratch,
                                struct tally_decision *decision, struct tally_error *err)
{
    double square = 0;
    if (tally_client_shifts_mean(task, true, scratch, err) != TALLY_OK) {
        return TALLY_NO_MEMORY;
    }
    for (size_t i = 0; i < task->setting->dim; i++) {
        const double mean = tally_weighted_mean(task, i);
        square += mean * mean;
        scratch->vector[i] = (float)scratch->wide.reals[i];
    }
    return tally_baseline_conclude(task, square, scratch, decision, err);
}

/* The limit of FedCOM: if all clients have the same f_m, a round has the same effect along an
 * eigenvector. Otherwise, z_m - x is multiplied by 1 - (1 - (1 - eta lambda)^K) / (K eta
 * lambda), which is in [0, 1] for eta lambda up to 2. */
static struct tally_step_limit step_limit(const union tally_algorithm_params *params,
                                          double smoothness)
{
    return TALLY_FEDCOM.step_limit(params, smoothness);
}

const struct tally_algorithm TALLY_SCAFFOLD = {
    .name = "scaffold",
    TALLY_BASELINE_COMMON_SLOTS,
    TALLY_CLIENT_SHIFTS_SLOTS(point),
    .fields = TALLY_SCAFFOLD_FIELDS,
    .n_fields = 3,
    .plan = plan,
    .step_limit = step_limit,
    .moves_locally = true,
    .needs_everyone = true,
    .needs_whole_space = true,
    .message_bits = tally_baseline_bits_float32,
    .receive = tally_baseline_receive_float32,
};
