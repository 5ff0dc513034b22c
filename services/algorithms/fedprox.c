/* FedProx: Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith, "Federated Optimization in Heterogeneous
 * Networks", MLSys 2020, Algorithm 2.
 *
 *     client   K local SGD steps from x on h(w) = f_m(w) + mu/2 |w - x|^2:
 *              w <- w - eta (gradient of f_m at w + mu (w - x)); sends the difference as float32
 *     server   x <- x + mean difference, broadcast as float32
 *
 * The proximal term pulls a client back to the point of the round, which limits how far clients
 * with heterogeneous data drift apart. Regret counts f, without the term. Bits, decaying steps and
 * growing rounds are those of fedavg.c; with mu = 0 every message equals that of fedavg.c bit for
 * bit.
 *
 * A client that trains by a loop of its own has to add the term itself: it is told mu (plugin.h),
 * and begins at x.
 *
 * Departs from the paper: Definition 2 lets each client stop at its own accuracy, so that slow
 * machines work less. Here all clients take the same K steps, because K defines a round here. */
#include "services/algorithms/baseline.h"

static enum tally_status client_step(const struct tally_client_task *task,
                                     struct tally_scratch *scratch,
                                     struct tally_client_answer *answer, struct tally_error *err)
{
    return TALLY_FEDAVG.client_step(task, scratch, answer, err);
}

static enum tally_status decide(const struct tally_server_task *task, struct tally_scratch *scratch,
                                struct tally_decision *decision, struct tally_error *err)
{
    return tally_baseline_decide(task, 1, scratch, decision, err);
}

/* 2 / (smoothness + mu). The proximal term adds mu to every eigenvalue lambda of the Hessian. A
 * round multiplies the distance from x* by
 *
 *     1 - lambda / (lambda + mu) (1 - (1 - eta (lambda + mu))^K)
 *
 * which stays in [-1, 1] while eta (lambda + mu) does not exceed 2. */
static struct tally_step_limit step_limit(const union tally_algorithm_params *params,
                                          double smoothness)
{
    const struct tally_baseline_params *own = &params->baseline;
    return (struct tally_step_limit){own->step_size, 2 / (smoothness + own->mu),
                                     "2 / (smoothness + mu)"};
}

const struct tally_algorithm TALLY_FEDPROX = {
    .name = "fedprox",
    TALLY_FEDERATED_SLOTS,
    .takes_compression = true,
    .takes_training = true,
    .fields = TALLY_PROXIMAL_FIELDS,
    .n_fields = 5,
    .step_limit = step_limit,
    .message_bits = tally_baseline_bits_float32,
    .receive = tally_baseline_receive_float32,
};
