/* The opening round of CALM: unknown constants are estimated from six gradients of every client at
 * the initial point.
 *
 *     client   the variance of its gradients, and the mean square of their mean D = -mean g / h
 *              per coordinate, each as one of 2^10 values                     20 bits
 *     server   s0 = mean variance;  V = max(mean square - s0 / (n h^2), a twentieth of it)
 *              both as one of 2^10 values                                     20 control bits
 *
 * The values lie an eighth of an octave apart, from 2^-64 to 2^64: an error of at most 4.4 %. */
#include <math.h>

#include "codec/numeric/bits.h"
#include "services/algorithms/calm.h"

enum {
    REPORT_BITS = CALM_REPORT_BITS,
    VALUE_BITS = REPORT_BITS / 2,
    REPORT_BYTES = (REPORT_BITS + 7) / 8
};

bool calm_opens(const union tally_algorithm_params *params)
{
    return isnan(params->calm.noise) || isnan(params->calm.initial_variance);
}

/* Positive numbers in 10 bits: code c stands for 2^((c - 512) / 8). */

static const double EIGHTHS[] = {1,
                                 0x1.172b83c7d517bp+0,
                                 0x1.306fe0a31b715p+0,
                                 0x1.4bfdad5362a27p+0,
                                 0x1.6a09e667f3bcdp+0,
                                 0x1.8ace5422aa0dbp+0,
                                 0x1.ae89f995ad3adp+0,
                                 0x1.d5818dcfba487p+0};
enum { MIDDLE = 512, MOST_CODE = 1023 };

static double value_of(uint64_t code)
{
    return ldexp(EIGHTHS[code % 8], (int)(code / 8) - MIDDLE / 8);
}

/* The code whose value is nearest on the logarithmic scale, limited to the range of codes. */
static uint64_t code_of(double value)
{
    uint64_t low = 0, high = MOST_CODE; /* value_of(low) <= value < value_of(high + 1) */
    if (!(value > value_of(0))) {
        return 0;
    }
    while (low < high) {
        const uint64_t middle = (low + high + 1) / 2;
        if (value_of(middle) <= value) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    const bool is_nearer_above =
        low < MOST_CODE && value * value > value_of(low) * value_of(low + 1);
    return low + is_nearer_above;
}

/* Client. */

/* The variance per coordinate of the gradients, and the mean square of D. The mean of the gradients
 * is in scratch->wide.reals. */
static enum tally_status sample(const struct tally_client_task *task, struct tally_scratch *scratch,
                                struct tally_report *ret_report, struct tally_error *err)
{
    const struct tally_setting *setting = task->setting;
    const size_t dim = setting->dim;
    double *mean = scratch->wide.reals, variance = 0, norm = 0;
    enum tally_status status = tally_client_moments(task, scratch, mean, &variance, err);
    if (status != TALLY_OK) {
        return status;
    }
    for (size_t i = 0; i < dim; i++) {
        norm += mean[i] * mean[i];
    }
    const double step = setting->params->calm.step_size;
    *ret_report = (struct tally_report){.variance = variance / (double)dim,
                                        .norm = step * step * norm / (double)dim};
    return TALLY_OK;
}

static enum tally_status write_report(const struct tally_report *report,
                                      struct tally_message *message, struct tally_error *err)
{
    message->payload.size = 0;
    enum tally_status status = tally_buffer_reserve(&message->payload, sizeof(uint64_t));
    if (status != TALLY_OK) {
        return tally_fail(err, status, NULL, "no memory for a message");
    }
    struct tally_bit_writer writer;
    tally_bit_writer_init(&writer, message->payload.data, sizeof(uint64_t));
    tally_bit_write(&writer, code_of(report->variance), VALUE_BITS);
    tally_bit_write(&writer, code_of(report->norm), VALUE_BITS);
    message->payload.size = tally_bit_writer_finish(&writer);
    message->grid = (struct tally_grid){0};
    message->bits = (struct tally_bits){
        .formula_bits = REPORT_BITS, .payload_bits = REPORT_BITS, .messages = 1};
    return TALLY_OK;
}

enum tally_status calm_report(const struct tally_client_task *task, struct tally_scratch *scratch,
                              struct tally_client_answer *answer, struct tally_error *err)
{
    struct tally_report report;
    enum tally_status status = tally_client_loss(task, &answer->loss, err);
    if (status != TALLY_OK || task->plan->cut) {
        return status;
    }
    status = sample(task, scratch, &report, err);
    if (status != TALLY_OK) {
        return status;
    }
    if (!isfinite(report.variance) || !isfinite(report.norm)) {
        return tally_fail(err, TALLY_NOT_FINITE, NULL,
                          "the gradients of client %u at the initial point have mean square %g and "
                          "variance %g",
                          task->client, report.norm, report.variance);
    }
    return write_report(&report, &answer->message, err);
}

/* Server. */

static enum tally_status receive(const struct tally_setting *setting,
                                 const struct tally_message_view *message,
                                 struct tally_report *ret_report, struct tally_bits *ret_bits,
                                 struct tally_error *err)
{
    (void)setting;
    if (message->payload_bits != REPORT_BITS ||
        !tally_bits_are_framed(message->payload, message->n_payload, message->payload_bits)) {
        return tally_fail(err, TALLY_MALFORMED, "payload",
                          "a report is not %d bits in %d bytes with zero padding", REPORT_BITS,
                          REPORT_BYTES);
    }
    struct tally_bit_reader reader;
    tally_bit_reader_init(&reader, message->payload, message->payload_bits);
    ret_report->variance = value_of(tally_bit_read(&reader, VALUE_BITS));
    ret_report->norm = value_of(tally_bit_read(&reader, VALUE_BITS));
    *ret_bits = (struct tally_bits){
        .formula_bits = REPORT_BITS, .payload_bits = REPORT_BITS, .messages = 1};
    return TALLY_OK;
}

/* V is at least LEAST_VARIANCE of the measured mean square, and the noise at least LEAST_NOISE of
 * what V adds to a gradient. With no noise at all, grids would be infinitely fine. */
static const double LEAST_VARIANCE = 1.0 / 20, LEAST_NOISE = 1.0 / 4096;

static enum tally_status conclude(const struct tally_setting *setting,
                                  const struct tally_round_plan *plan,
                                  const struct tally_report *reports, int64_t n,
                                  struct tally_estimates *ret_estimates, uint64_t *ret_control_bits,
                                  struct tally_error *err)
{
    const struct tally_calm_params *params = &setting->params->calm;
    const double step = params->step_size, dim = (double)setting->dim;
    double variances = 0, squares = 0;
    (void)err;
    for (int64_t m = 0; m < n; m++) {
        variances += reports[m].variance;
        squares += reports[m].norm;
    }
    double noise = isnan(params->noise) ? variances / (double)n : params->noise;
    const double square = squares / (double)n;
    double variance = params->initial_variance;
    if (isnan(variance)) {
        variance =
            fmax(square - noise * step * step / (double)plan->samples, LEAST_VARIANCE * square);
        variance = value_of(code_of(variance));
        *ret_control_bits += VALUE_BITS;
    }
    if (isnan(params->noise)) {
        noise = value_of(code_of(fmax(noise, LEAST_NOISE * variance / (step * step))));
        *ret_control_bits += VALUE_BITS;
    }
    ret_estimates->sigma = isnan(params->noise) ? sqrt(noise * dim) : 0;
    ret_estimates->gradient_bound =
        isnan(params->initial_variance) ? sqrt(variance * dim) / step : 0;
    return TALLY_OK;
}

static bool is_positive(double value)
{
    return isfinite(value) && value > 0;
}

static bool adopt(const struct tally_setting *setting, const struct tally_estimates *estimates,
                  union tally_algorithm_params *params)
{
    struct tally_calm_params *calm = &params->calm;
    const double dim = (double)setting->dim, distance = estimates->gradient_bound * calm->step_size;
    calm->noise = isnan(calm->noise) ? estimates->sigma * estimates->sigma / dim : calm->noise;
    calm->initial_variance =
        isnan(calm->initial_variance) ? distance * distance / dim : calm->initial_variance;
    return is_positive(calm->noise) && is_positive(calm->initial_variance);
}

const struct tally_opening CALM_OPENING = {
    .opens = calm_opens,
    .receive = receive,
    .conclude = conclude,
    .adopt = adopt,
};
