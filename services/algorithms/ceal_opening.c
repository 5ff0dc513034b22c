/* The first round of a CEAL job whose sigma or L is "auto".
 *
 * Idea: CEAL chooses its samples and grids from the noise sigma and the gradient bound L. Both can
 * be measured at the start point with a few dozen gradients, whose variance is sigma^2 and whose
 * mean is the gradient. A client sends one or two numbers:
 *
 *     | v_m: float32, if sigma is auto | n_m: float32, if L is auto |
 *
 * Every client queries x^(1) s_0 times and sends, as float32, the sample variance v_m of its
 * gradients (if sigma is auto) and the norm n_m of their mean (if L is auto). From the messages of
 * the N clients that answered, the server computes
 *
 *     sigma^2 = (1/N) sum v_m
 *     u       = max(0, (1/N) sum n_m^2 - sigma^2 / s_0)
 *     e^2     = ( 4 u sigma^2 / (d s_0) + 2 sigma^4 / (d s_0 (s_0 - 1)) ) / N
 *     L       = 2 sqrt( u + 2 e )
 *
 * Example: M = 8, s_0 = 8, d = 30, all v_m = 2 and all n_m^2 = 1.25. sigma^2 = 2; u = 1.25 - 2/8 =
 * 1; e^2 = (4 * 2 / 240 + 2 * 4 / (240 * 7)) / 8 = 0.0048; L = 2 sqrt(1 + 2 * 0.069) = 2.13.
 *
 * v_m is an unbiased estimate of E|G - grad f_m|^2, which sigma^2 bounds in section II of [1]. The
 * squared norm of the mean of s_0 noisy gradients exceeds that of the gradient by sigma^2 / s_0,
 * which u subtracts. e is the standard error of u if the noise is that of [1], sigma^2 / d in every
 * direction; the squared norm is below u + 2 e in 19 of 20 cases. The factor 2 is a reserve for
 * later rounds: gradients become shorter along a descent, but noisy steps may lead uphill. (The
 * reserve is cheap: the stage whose threshold a gradient of norm L / 2 passes is one higher, with
 * the same samples.)
 *
 * s_0 = max(8, ceil(64 / M)): with 64 queries in all, sigma^2 has a relative error of
 * 1 / sqrt(28 d) under the Gaussian noise of [1], and of a fifth if all noise is in one direction.
 *
 * Both constants are rounded to float32. Each costs 32 bits of the downlink, counted as control
 * bits, because a client needs them to compute s_j and its quantizer.
 *
 * Left out: later estimates. They would change the stages of a running job, while the sequences of
 * [1] are fixed. */
#include <math.h>

#include "codec/numeric/float32.h"
#include "codec/numeric/vector.h"
#include "services/algorithms/ceal.h"

enum { LEAST_SAMPLES = 8, LEAST_QUERIES = 64, MAX_VALUES = 2, VALUE_BITS = 32 };

/* The margins of the bound; see above. */
static const double BOUND_ERRORS = 2, BOUND_FACTOR = 2;

/* The least noise, as a share of L. With no noise at all, gamma_j would be zero and the messages
 * endless. With this bound, levels stay below some hundreds. */
static const double LEAST_NOISE = 1.0 / 64;

bool tally_ceal_opens(const union tally_algorithm_params *params)
{
    return isnan(params->ceal.sigma) || isnan(params->ceal.gradient_bound);
}

int64_t tally_ceal_opening_samples(uint32_t clients)
{
    const int64_t samples = (LEAST_QUERIES + (int64_t)clients - 1) / clients;
    return samples < LEAST_SAMPLES ? LEAST_SAMPLES : samples;
}

static size_t n_values(const union tally_algorithm_params *params)
{
    return (size_t)isnan(params->ceal.sigma) + (size_t)isnan(params->ceal.gradient_bound);
}

enum tally_status tally_ceal_report(const struct tally_client_task *task,
                                    struct tally_scratch *scratch, struct tally_message *message,
                                    struct tally_error *err)
{
    double variance;
    const struct tally_ceal_params *params = &task->setting->params->ceal;
    enum tally_status status = tally_client_moments(task, scratch, scratch->local, &variance, err);
    if (status != TALLY_OK) {
        return status;
    }
    const double norm = tally_vector_norm(scratch->local, task->setting->dim);
    float values[MAX_VALUES];
    size_t n = 0;
    if (isnan(params->sigma)) {
        values[n++] = (float)variance;
    }
    if (isnan(params->gradient_bound)) {
        values[n++] = (float)norm;
    }
    if (!isfinite((float)variance) || !isfinite((float)norm)) {
        return tally_fail(err, TALLY_NOT_FINITE, NULL,
                          "the gradients of client %u at the initial point have norm %g and "
                          "variance %g",
                          task->client, norm, variance);
    }
    message->payload.size = 0;
    status = tally_buffer_reserve(&message->payload, tally_float32_bound(n));
    if (status != TALLY_OK) {
        return tally_fail(err, status, NULL, "no memory for a message");
    }
    message->payload.size = tally_float32_bound(n);
    message->grid = (struct tally_grid){0};
    message->bits = (struct tally_bits){.formula_bits = VALUE_BITS * n, .messages = 1};
    return tally_float32_encode(values, n, message->payload.data, message->payload.size,
                                &message->bits.payload_bits, err);
}

static enum tally_status receive(const struct tally_setting *setting,
                                 const struct tally_message_view *message,
                                 struct tally_report *ret_report, struct tally_bits *ret_bits,
                                 struct tally_error *err)
{
    float values[MAX_VALUES] = {0};
    const size_t n = n_values(setting->params);
    enum tally_status status = tally_float32_decode(message->payload, message->n_payload,
                                                    message->payload_bits, n, values, err);
    for (size_t i = 0; status == TALLY_OK && i < n; i++) {
        if (!(values[i] >= 0)) {
            status = tally_fail(err, TALLY_MALFORMED, "payload", "value %g of a report is below 0",
                                (double)values[i]);
        }
    }
    if (status != TALLY_OK) {
        return status;
    }
    const bool has_variance = isnan(setting->params->ceal.sigma);
    *ret_report = (struct tally_report){.variance = has_variance ? (double)values[0] : 0,
                                        .norm = (double)values[has_variance]};
    *ret_bits = (struct tally_bits){.formula_bits = message->payload_bits,
                                    .payload_bits = message->payload_bits,
                                    .messages = 1};
    return TALLY_OK;
}

static double bound_of(const struct tally_setting *setting, double samples, double clients,
                       double sigma_2, double norms_2)
{
    const double dim = (double)setting->dim;
    const double square = fmax(0, norms_2 - sigma_2 / samples);
    const double variance = 4 * square * sigma_2 / (dim * samples) +
                            2 * sigma_2 * sigma_2 / (dim * samples * (samples - 1));
    return BOUND_FACTOR * sqrt(square + BOUND_ERRORS * sqrt(variance / clients));
}

static enum tally_status conclude(const struct tally_setting *setting,
                                  const struct tally_round_plan *plan,
                                  const struct tally_report *reports, int64_t n,
                                  struct tally_estimates *ret_estimates, uint64_t *ret_control_bits,
                                  struct tally_error *err)
{
    const struct tally_ceal_params *params = &setting->params->ceal;
    double variances = 0, norms_2 = 0;
    for (int64_t m = 0; m < n; m++) {
        variances += reports[m].variance;
        norms_2 += reports[m].norm * reports[m].norm;
    }
    double sigma = isnan(params->sigma) ? sqrt(variances / (double)n) : params->sigma;
    double bound = params->gradient_bound;
    if (isnan(bound)) {
        bound =
            bound_of(setting, (double)plan->samples, (double)n, sigma * sigma, norms_2 / (double)n);
        bound = (double)(float)bound;
        bound = bound > 0 ? bound : 1; /* neither gradient nor noise: there is no scale */
    }
    sigma = (double)(float)fmax(sigma, LEAST_NOISE * bound);
    if (!isfinite(sigma) || !isfinite(bound)) {
        return tally_fail(err, TALLY_NOT_FINITE, NULL,
                          "the clients' gradients are too large: sigma %g, gradient_bound %g",
                          sigma, bound);
    }
    ret_estimates->sigma = isnan(params->sigma) ? sigma : 0;
    ret_estimates->gradient_bound = isnan(params->gradient_bound) ? bound : 0;
    *ret_control_bits = VALUE_BITS * n_values(setting->params);
    return TALLY_OK;
}

static bool adopt(const struct tally_setting *setting, const struct tally_estimates *estimates,
                  union tally_algorithm_params *params)
{
    (void)setting;
    struct tally_ceal_params *ceal = &params->ceal;
    ceal->sigma = isnan(ceal->sigma) ? estimates->sigma : ceal->sigma;
    ceal->gradient_bound =
        isnan(ceal->gradient_bound) ? estimates->gradient_bound : ceal->gradient_bound;
    return isfinite(ceal->sigma) && ceal->sigma > 0 && isfinite(ceal->gradient_bound) &&
           ceal->gradient_bound > 0;
}

const struct tally_opening TALLY_CEAL_OPENING = {
    .opens = tally_ceal_opens,
    .receive = receive,
    .conclude = conclude,
    .adopt = adopt,
};
