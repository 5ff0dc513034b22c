/* What the server of a CALM job believes about s0 and V, if all directions are alike, and the
 * lengths of epochs that follow from this belief.
 *
 * A query at x has the noise s0 + m V per coordinate. If all directions are alike, m is known
 * (calm_opening.c), and the clients' gradients show the sum, but hardly which part of it is which:
 * V is the small difference of two noisy numbers. Over the epochs V falls and s0 does not, so the
 * parts come apart. A Kalman filter holds means and covariances of s0 and of V, the latter as a
 * share of what the recursion predicts, and takes two observations in an epoch:
 *
 *     the mean square of the messages' mean    V           in the first three epochs
 *     the spread of the messages               s0 + m v    from the second epoch on;
 *                                                          v: the recursion's mean over the walk
 *
 * What exceeds the expected spread by more than two standard errors is attributed to B, which is
 * otherwise taken to be that of clients with 200 points each.
 *
 * Lengths. An epoch of n queries leaves z with a variance of about (s0 + m V) / (n h^2 M). It lasts
 * until V has fallen by a constant factor. What V adds to the noise falls, too, so it counts less:
 *
 *     n = (2.5 s0 + m V) / (h^2 M V)
 *
 * but at least 1.5 times and at most 4 times as long as the last epoch. The opening hardly shows V,
 * so the first message has the queries of the opening, and at most 8 in all; the next epoch is at
 * least three queries long. So the epochs of a job with little noise at x* stay short while V
 * falls. There are as many messages as in a job whose epochs grow by three, more while another one
 * is predicted to lower the regret of the whole job by more than a quarter, and fewer, but at least
 * three, if the next one would not lower it by 6 %.
 *
 * Example: 10 clients, d = 30, one point a query, h = 1/3, so m = 29/9. With s0 = 2/3 (loud) and V
 * = 1/6 at the start, epochs of 24, 50, 125 and 301 queries follow the opening; with s0 = 1/3000
 * (quiet) 6, 9, 14 and 21.
 *
 * Source: the project's own. The constants were found by experiment on these two problems. */
#include <math.h>

#include "services/algorithms/calm.h"
#include "services/algorithms/calm/calm_leg.h"

/* Standard errors, as shares: of s0 + m V after the opening, of a spread, and of V after an epoch.
 */
static const double OPENING_ERROR = 0.07, SPREAD_ERROR = 0.13, EPOCH_ERROR = 0.25;

bool calm_has_belief(const struct calm_memory *memory)
{
    return memory->belief.share > 0;
}

/* B of clients whose optima differ only by the noise of 200 points. */
static double usual_spread(const struct calm_memory *memory)
{
    static const double POINTS = 200;
    return memory->noise * memory->step_size * memory->step_size / POINTS;
}

void calm_belief_begin(const struct tally_setting *setting, struct calm_memory *memory)
{
    const double v = memory->state.variance, far = setting->params->calm.noise_growth * v;
    const double one = memory->noise + far; /* noise of a query at the initial point */
    const double message =
        one * memory->step_size * memory->step_size / (double)calm_drawn(setting, memory);
    const double values = setting->clients * (double)setting->dim;
    const double error = fmin(1, sqrt(2 / values) * (1 + message / v));
    const double known = OPENING_ERROR * one;
    memory->belief = (struct calm_belief){.noise = far * far * error * error + known * known,
                                          .both = -far * error * error,
                                          .share = error * error};
    memory->client_spread = usual_spread(memory);
}

/* Takes an observation of `noise` s0 + `share` times the share of V. `news` is by how much it
 * exceeds the expectation, `error` its variance. The means move by *ret_noise and *ret_share. */
static void update(struct calm_belief *belief, double noise, double share, double news,
                   double error, double *ret_noise, double *ret_share)
{
    const double with_noise = belief->noise * noise + belief->both * share;
    const double with_share = belief->both * noise + belief->share * share;
    const double total = noise * with_noise + share * with_share + error;
    *ret_noise = with_noise / total * news;
    *ret_share = with_share / total * news;
    belief->noise -= with_noise * with_noise / total;
    belief->both -= with_noise * with_share / total;
    belief->share -= with_share * with_share / total;
}

/* The least share of V after an observation: if V were taken to be much too small, z would hardly
 * follow the messages, and the job would not find out. */
static const double LEAST_SHARE = 0.5;

/* Moves the means; V becomes `share` times as large, at least LEAST_SHARE. */
static void move(struct calm_memory *memory, double growth, double noise, double share)
{
    static const double LEAST_NOISE = 1.0 / 4096;
    const double before = memory->noise + growth * memory->state.variance;
    share = fmax(share, LEAST_SHARE);
    memory->noise = fmax(memory->noise + noise, LEAST_NOISE * before);
    memory->state.variance *= share;
    memory->state.estimate_variance *= share;
    memory->belief.both /= share;
    memory->belief.share /= share * share;
}

/* Follows the mean of the messages, and returns the bits that tell clients the share. `of_mean`:
 * the variance of its noise. */
static uint64_t see_length(const struct tally_server_task *task, double of_mean)
{
    enum { MOST_INDEX = 12 };
    static const double LEAST_SEEN = 0.3;
    struct calm_memory *memory = task->memory;
    const double dim = (double)task->setting->dim, v = memory->state.variance;
    double noise, share;
    const double seen = fmax(calm_mean_square(task) - of_mean, 0) / v, ratio = of_mean / v;
    const double error = (2 * ratio * ratio + 4 * ratio * fmax(seen, LEAST_SEEN)) / dim;
    const double before = memory->belief.share, both = memory->belief.both;
    update(&memory->belief, 0, 1, seen - 1, error, &noise, &share);
    const double k = fmin(rint(4 * log2(fmax(1 + share, LEAST_SHARE))), MOST_INDEX);
    /* Clients know the covariances: s0 moves with the share that they are told. */
    move(memory, task->setting->params->calm.noise_growth, both / before * (exp2(k / 4) - 1),
         exp2(k / 4));
    return calm_index_bits((int64_t)k);
}

/* Follows the spread of the messages. `noise`: their variance without that of the quantization. */
static void see_spread(const struct tally_server_task *task, const struct tally_calm_walk *walk,
                       double noise)
{
    static const double MOST_ERRORS = 2;
    struct calm_memory *memory = task->memory;
    struct calm_belief *belief = &memory->belief;
    const double growth = task->setting->params->calm.noise_growth;
    const double n = (double)walk->n, length = n / (memory->step_size * memory->step_size);
    const double sum = walk->sum_variance + (double)walk->repeats * walk->start_variance;
    const double one = noise * length, far = growth * sum / n;
    const double error = SPREAD_ERROR * SPREAD_ERROR * one * one;
    const double total = belief->noise + 2 * far * belief->both + far * far * belief->share + error;
    const double news = one - memory->noise - far, most = MOST_ERRORS * sqrt(total);
    double more, share;
    update(belief, 1, far, fmin(news, most), error, &more, &share);
    move(memory, growth, more, 1 + share);
    memory->client_spread = fmax(usual_spread(memory), (news - most) / length);
}

/* The regret of the epoch that ended, as the recursion predicts it. */
static double regret_of(const struct tally_server_task *task, const struct tally_calm_walk *walk)
{
    const struct calm_memory *memory = task->memory;
    const double opening = memory->epoch == 0 ? (double)memory->opening_samples : 0;
    const double sum = walk->sum_variance + opening * walk->start_variance;
    return task->setting->clients * (double)task->setting->dim / (2 * memory->step_size) * sum;
}

uint64_t calm_believe(const struct tally_server_task *task, const struct tally_calm_walk *walk,
                      double noise)
{
    enum { SEEN_EPOCHS = 3 };
    struct calm_memory *memory = task->memory;
    uint64_t bits = 0;
    if (memory->epoch < SEEN_EPOCHS) {
        bits = see_length(task, (noise + calm_rounding(task)) / (double)task->received);
    }
    if (task->plan->samples > task->plan->facts.repeats) { /* most have not been seen */
        see_spread(task, walk, noise);
    }
    memory->belief.regret += regret_of(task, walk);
    return bits;
}

void calm_belief_follow(struct calm_memory *memory, double gain)
{
    struct calm_belief *belief = &memory->belief;
    belief->both *= 1 - gain;
    belief->share = (1 - gain) * (1 - gain) * belief->share + EPOCH_ERROR * EPOCH_ERROR;
}

/* How many epochs of 6, 18, 54, ... queries the horizon has, each with a message. */
static int64_t usual_epochs(const struct tally_setting *setting)
{
    enum { GROWTH = 3 };
    int64_t n = CALM_OPENING_SAMPLES, left = setting->horizon, epochs = 0;
    for (; 4 * n < 3 * left; left -= n, n *= GROWTH) {
        epochs++;
    }
    return epochs;
}

/* Whether another message, after n queries, lowers the regret by this share of what the job has in
 * all, as the recursion predicts. */
static bool is_worth(const struct tally_setting *setting, const struct calm_memory *memory,
                     double n, double least_gain)
{
    const struct tally_walk_facts facts = calm_facts(setting, memory);
    const struct tally_calm_constants constants = calm_constants(setting, &facts);
    const struct tally_calm_epoch epoch = calm_open_grids(setting, memory);
    const double v = memory->state.variance, vz = memory->state.estimate_variance;
    const double left = (double)memory->state.samples_left;
    if (n >= left) {
        return false;
    }
    const double alone = tally_calm_leg(&constants, v, left).regret;
    const struct tally_calm_leg leg = tally_calm_leg(&constants, v, n);
    const double up = epoch.uplink_resolution, down = epoch.downlink_resolution;
    const double vnew =
        leg.noise * (1 + up * up / 12) / setting->clients + constants.curvature_spread * v;
    const double after = vz * vnew / (vz + vnew) * (1 + down * down / 12);
    const double then = leg.regret + tally_calm_leg(&constants, after, left - n).regret;
    return alone - then > least_gain * (memory->belief.regret + alone);
}

int64_t calm_next_length(const struct tally_setting *setting, const struct calm_memory *memory,
                         int64_t before)
{
    enum { SURE_EPOCHS = 3, FIRST = 8 };
    static const double GAIN = 2.5, LEAST_GROWTH = 1.5, MOST_GROWTH = 4, SHORTEST = 3;
    static const double USUAL_GAIN = 0.06, MORE_GAIN = 0.25;
    const double h = 1 / memory->step_size, v = memory->state.variance;
    const double far = setting->params->calm.noise_growth * v;
    const double wanted = (GAIN * memory->noise + far) / (h * h * setting->clients * v);
    if (memory->epoch == 0) {
        return (int64_t)rint(fmin(fmax(wanted, (double)before), FIRST));
    }
    const double least = memory->epoch > 1 ? LEAST_GROWTH * (double)before : SHORTEST;
    const double n = rint(fmin(fmax(wanted, least), MOST_GROWTH * (double)before));
    const double gain = memory->epoch < usual_epochs(setting) ? USUAL_GAIN : MORE_GAIN;
    return memory->epoch < SURE_EPOCHS || is_worth(setting, memory, n, gain)
               ? (int64_t)n
               : memory->state.samples_left + 1;
}
