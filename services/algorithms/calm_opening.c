/* The opening round of CALM: unknown constants are estimated from n gradients of every client at
 * the initial point; n is six, or four if the step size is to be estimated as well and there are
 * many clients.
 *
 *     client   the variance of its gradients, and the mean square of their mean D = -mean g / h
 *              per coordinate, each as one of 2^10 values                     20 bits
 *     server   s0 = mean variance;  V = max(mean square - s0 / (n h^2), a twentieth of it)
 *              both as one of 2^10 values                                     20 control bits
 *
 * If the step size is to be estimated as well, a client makes more queries near that point
 * (calm_curvature.c). h is not known yet, so the mean square is that of mean g:
 *
 *     client   r in 12 bits, c1 / 2 r in 6, and, if it makes more         18 or 24 bits more
 *              than one of these queries, c2 / 2 r in 6
 *     server   1 / h in 12, where h follows from the means, and     14 control bits more
 *              in 2, whether directions are alike, unlike or neither is clear
 *
 * If they are alike and the job uses the growth m of the noise (growth_of()), the mean variance is
 * that of s0 + m V: the server limits V to the mean variance / m, and sends s0 without m V.
 *
 * Values of 10 bits lie an eighth of an octave apart, from 2^-64 to 2^64: an error of at most
 * 4.4 %. Those of 12 bits lie a 32nd of an octave apart, at most 1.1 %. */
#include <math.h>
#include <stdlib.h>

#include "codec/numeric/bits.h"
#include "codec/numeric/log_scale.h"
#include "services/algorithms/calm.h"

enum { VALUE_BITS = CALM_REPORT_BITS / 2 };

static bool finds_step(const union tally_algorithm_params *params)
{
    return isnan(params->calm.step_size);
}

bool calm_opens(const union tally_algorithm_params *params)
{
    return finds_step(params) || isnan(params->calm.noise) || isnan(params->calm.initial_variance);
}

bool calm_is_round(const struct tally_setting *setting, double curvature)
{
    static const double MOST_CONDITION = 4;
    return curvature < MOST_CONDITION * setting->convexity;
}

int64_t calm_draws(const struct tally_setting *setting, bool finds_step)
{
    const bool are_many = setting->clients >= CALM_MANY_CLIENTS && !setting->is_program;
    return finds_step && are_many ? CALM_FEW_DRAWS : CALM_OPENING_SAMPLES;
}

int64_t calm_probes(const struct tally_setting *setting)
{
    const bool is_one_enough = setting->clients >= CALM_MANY_CLIENTS && setting->start_is_random;
    return setting->is_program ? CALM_PROGRAM_PROBES : is_one_enough ? 1 : 2;
}

int64_t calm_opening_samples(const struct tally_setting *setting)
{
    const bool finds = finds_step(setting->params);
    return calm_draws(setting, finds) + (finds ? calm_probes(setting) : 0);
}

unsigned calm_answer_bits(const union tally_algorithm_params *params)
{
    return CALM_REPORT_BITS + (finds_step(params) ? CALM_STEP_BITS : 0);
}

/* A client that makes one query near the initial point has no second curvature. */
static bool has_steep(const struct tally_setting *setting)
{
    return calm_probes(setting) > 1;
}

unsigned calm_report_bits(const struct tally_setting *setting, bool finds_step)
{
    const unsigned curvature = CALM_CURVATURE_BITS + (has_steep(setting) ? CALM_SHARE_BITS : 0);
    return CALM_REPORT_BITS + (finds_step ? curvature : 0);
}

unsigned calm_most_report_bits(const union tally_algorithm_params *params)
{
    return CALM_REPORT_BITS + (finds_step(params) ? CALM_CURVATURE_BITS + CALM_SHARE_BITS : 0);
}

/* Positive numbers in 10 bits: code c stands for 2^((c - 512) / 8). */

enum { MIDDLE = 512, MOST_CODE = 1023 };

static double value_of(uint64_t code)
{
    return tally_log_scale_value(((int)code - MIDDLE) * TALLY_LOG_SCALE_OCTAVE / 8);
}

/* The code in [least, most] whose value is nearest on the logarithmic scale. `value` is at least
 * that of `least`; of_code() increases. */
static uint64_t nearest_code(double (*of_code)(uint64_t), uint64_t least, uint64_t most,
                             double value)
{
    uint64_t low = least, high = most; /* of_code(low) <= value < of_code(high + 1) */
    while (low < high) {
        const uint64_t middle = (low + high + 1) / 2;
        if (of_code(middle) <= value) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    const bool is_nearer_above = low < most && value * value > of_code(low) * of_code(low + 1);
    return low + is_nearer_above;
}

static uint64_t code_of(double value)
{
    return value > value_of(0) ? nearest_code(value_of, 0, MOST_CODE, value) : 0;
}

/* Values in 12 bits: four times as many codes. 0 stands for nothing. */
enum { FINE_BITS = 12, MOST_FINE_CODE = (1 << FINE_BITS) - 1 };

static double fine_value_of(uint64_t code)
{
    static const double THIRTY_SECONDS[] = {1, 0x1.059b0d3158574p+0, 0x1.0b5586cf9890fp+0,
                                            0x1.11301d0125b51p+0};
    return code > 0 ? value_of(code / 4) * THIRTY_SECONDS[code % 4] : 0;
}

static uint64_t fine_code_of(double value)
{
    return value >= fine_value_of(1) ? nearest_code(fine_value_of, 1, MOST_FINE_CODE, value) : 0;
}

/* A share in 6 bits: code c > 0 stands for 2^((c - 63) / 4), an error of at most 9.1 %; 0 for
 * nothing, or less. The curvatures c1 and c2 are sent as shares of 2 r. */
enum { SHARE_BITS = CALM_SHARE_BITS, MOST_SHARE_CODE = (1 << SHARE_BITS) - 1 };

static double share_of(uint64_t code)
{
    return code > 0 ? value_of(MIDDLE - 2 * (MOST_SHARE_CODE - code)) : 0;
}

static uint64_t share_code_of(double share)
{
    if (!(share > 0)) {
        return 0;
    }
    const uint64_t below = share < 1 ? (MIDDLE - code_of(share) + 1) / 2 : 0;
    return below < MOST_SHARE_CODE ? MOST_SHARE_CODE - below : 1;
}

/* Client. */

/* Makes the queries at the initial point, and near it if the step size is to be found. The report
 * has values per coordinate, and the mean square of the mean gradient for that of D. */
static enum tally_status sample(const struct tally_client_task *task, struct tally_scratch *scratch,
                                double *ret_loss, struct tally_report *ret_report,
                                struct tally_error *err)
{
    const size_t dim = task->setting->dim;
    double *mean = scratch->wide.reals, variance = 0, norm = 0;
    struct calm_curvature curvature = {0};
    enum tally_status status =
        finds_step(task->setting->params)
            ? calm_measure(task, scratch, &variance, &curvature, ret_loss, err)
            : tally_client_moments(task, scratch, mean, &variance, err);
    if (status != TALLY_OK) {
        return status;
    }
    for (size_t i = 0; i < dim; i++) {
        norm += mean[i] * mean[i];
    }
    *ret_report = (struct tally_report){.variance = variance / (double)dim,
                                        .norm = norm / (double)dim,
                                        .curvature = (float)curvature.along,
                                        .steep = (float)curvature.steep,
                                        .steepest = curvature.sample};
    return TALLY_OK;
}

static enum tally_status write_report(const struct tally_setting *setting,
                                      const struct tally_report *report,
                                      struct tally_message *message, struct tally_error *err)
{
    const unsigned n_bits = calm_report_bits(setting, finds_step(setting->params));
    message->payload.size = 0;
    enum tally_status status = tally_buffer_reserve(&message->payload, sizeof(uint64_t));
    if (status != TALLY_OK) {
        return tally_fail(err, status, NULL, "no memory for a message");
    }
    struct tally_bit_writer writer;
    tally_bit_writer_init(&writer, message->payload.data, sizeof(uint64_t));
    tally_bit_write(&writer, code_of(report->variance), VALUE_BITS);
    tally_bit_write(&writer, code_of(report->norm), VALUE_BITS);
    if (finds_step(setting->params)) {
        tally_bit_write(&writer, fine_code_of(report->steepest), FINE_BITS);
        tally_bit_write(&writer, share_code_of((double)report->curvature / (2 * report->steepest)),
                        SHARE_BITS);
        if (has_steep(setting)) {
            tally_bit_write(&writer, share_code_of((double)report->steep / (2 * report->steepest)),
                            SHARE_BITS);
        }
    }
    message->payload.size = tally_bit_writer_finish(&writer);
    message->grid = (struct tally_grid){0};
    message->bits =
        (struct tally_bits){.formula_bits = n_bits, .payload_bits = n_bits, .messages = 1};
    return TALLY_OK;
}

enum tally_status calm_report(const struct tally_client_task *task, struct tally_scratch *scratch,
                              struct tally_client_answer *answer, struct tally_error *err)
{
    if (task->plan->cut) {
        return tally_client_loss(task, &answer->loss, err);
    }
    const struct tally_setting *setting = task->setting;
    struct tally_report report;
    const bool measures_loss = finds_step(setting->params) && task->evaluate;
    enum tally_status status =
        measures_loss ? TALLY_OK
                      : tally_client_loss(task, &answer->loss, err); /* all queries are at x */
    if (status == TALLY_OK) {
        status = sample(task, scratch, measures_loss ? &answer->loss : NULL, &report, err);
    }
    if (status != TALLY_OK) {
        return status;
    }
    if (!finds_step(setting->params)) {
        const double step = setting->params->calm.step_size;
        report.norm *= step * step;
    }
    if (!isfinite(report.variance) || !isfinite(report.norm) || !isfinite(report.steepest)) {
        return tally_fail(err, TALLY_NOT_FINITE, NULL,
                          "the gradients of client %u at the initial point have mean square %g and "
                          "variance %g",
                          task->client, report.norm, report.variance);
    }
    return write_report(setting, &report, &answer->message, err);
}

/* Server. */

static enum tally_status receive(const struct tally_setting *setting,
                                 const struct tally_message_view *message,
                                 struct tally_report *ret_report, struct tally_bits *ret_bits,
                                 struct tally_error *err)
{
    const unsigned n_bits = calm_report_bits(setting, finds_step(setting->params));
    if (message->payload_bits != n_bits ||
        !tally_bits_are_framed(message->payload, message->n_payload, message->payload_bits)) {
        return tally_fail(err, TALLY_MALFORMED, "payload",
                          "a report is not %u bits in %u bytes with zero padding", n_bits,
                          (n_bits + 7) / 8);
    }
    struct tally_bit_reader reader;
    tally_bit_reader_init(&reader, message->payload, message->payload_bits);
    ret_report->variance = value_of(tally_bit_read(&reader, VALUE_BITS));
    ret_report->norm = value_of(tally_bit_read(&reader, VALUE_BITS));
    if (finds_step(setting->params)) {
        ret_report->steepest = fine_value_of(tally_bit_read(&reader, FINE_BITS));
        const double whole = 2 * ret_report->steepest;
        ret_report->curvature = (float)(whole * share_of(tally_bit_read(&reader, SHARE_BITS)));
        ret_report->steep = has_steep(setting)
                                ? (float)(whole * share_of(tally_bit_read(&reader, SHARE_BITS)))
                                : ret_report->curvature;
    }
    *ret_bits = (struct tally_bits){.formula_bits = n_bits, .payload_bits = n_bits, .messages = 1};
    return TALLY_OK;
}

/* V is at least LEAST_VARIANCE of the measured mean square, and the noise at least LEAST_NOISE of
 * what V adds to a gradient. With no noise at all, grids would be infinitely fine. */
static const double LEAST_VARIANCE = 1.0 / 20, LEAST_NOISE = 1.0 / 4096;

/* A mean over clients, and its standard error; 0 with one client. */
struct mean {
    double value, error;
};

static struct mean mean_of(const double *values, int64_t n)
{
    double sum = 0, squares = 0;
    for (int64_t m = 0; m < n; m++) {
        sum += values[m];
    }
    const double mean = sum / (double)n;
    for (int64_t m = 0; m < n; m++) {
        squares += (values[m] - mean) * (values[m] - mean);
    }
    return (struct mean){mean, n > 1 ? sqrt(squares / (double)(n - 1) / (double)n) : 0};
}

/* The means of r, c1, c2 and (c1 + c2) / 2 over the clients that measured them. */
struct survey {
    struct mean sample, along, steep, both;
    int64_t n;
};

static double sample_of(const struct tally_report *report)
{
    return report->steepest;
}

static double along_of(const struct tally_report *report)
{
    return (double)report->curvature;
}

static double steep_of(const struct tally_report *report)
{
    return (double)report->steep;
}

static double both_of(const struct tally_report *report)
{
    return ((double)report->curvature + (double)report->steep) / 2;
}

/* `values`: room for n. */
static struct survey survey_of(const struct tally_report *reports, int64_t n, double *values)
{
    struct survey survey = {0};
    double (*const member[])(const struct tally_report *) = {sample_of, along_of, steep_of,
                                                             both_of};
    struct mean *const mean[] = {&survey.sample, &survey.along, &survey.steep, &survey.both};
    for (int i = 0; i < 4; i++) {
        survey.n = 0;
        for (int64_t m = 0; m < n; m++) {
            if (reports[m].steepest > 0) {
                values[survey.n++] = member[i](&reports[m]);
            }
        }
        *mean[i] = survey.n > 0 ? mean_of(values, survey.n) : (struct mean){0};
    }
    return survey;
}

/* Points that a query draws. */
static double points_of(const struct tally_setting *setting)
{
    return setting->minibatch > 0 ? (double)setting->minibatch : INFINITY;
}

/* The growth m of the noise, if all directions are alike. At the distance y from x*, the mean of b
 * points of a linear model has the noise (H_i - H) y, whose mean square is h^2 (d - 1) / b |y|^2. 0
 * if m would not be used (calm_belief.c): the document gives a constant, or there is only one
 * client. */
static double growth_of(const struct tally_setting *setting, double step_size)
{
    const struct tally_calm_params *params = &setting->params->calm;
    const bool is_used = (calm_may_travel(setting) || calm_replans(setting)) &&
                         calm_is_free(setting) && setting->clients > 1 && isnan(params->noise) &&
                         isnan(params->initial_variance) && params->noise_growth == 0;
    return is_used ? ((double)setting->dim - 1) / points_of(setting) / (step_size * step_size) : 0;
}

/* By how much the mean of the squares of n standard normal values may exceed 1, but for one mean in
 * 20,000 (Wilson and Hilferty 1931: its cube root is nearly normal). */
static double most_by_chance(double n)
{
    static const double ERRORS = 3.9;
    const double variance = 2 / (9 * n), root = 1 - variance + ERRORS * sqrt(variance);
    return root * root * root;
}

/* What the opening says of the directions of f. */
enum directions { UNKNOWN, ALIKE, UNLIKE };

/* If a query draws `points` points of a linear model that are alike in all directions, the mean of
 * r is h (1 + (d - 1) / points): of one point d h, the trace. It has little noise. The curvatures c
 * have more, and are those of gradients' directions, so they may be near the largest eigenvalue. If
 * c is not well above what r shows, all directions are taken to be alike; if it is, some are much
 * flatter than others. If c is near r, every sample may have the Hessian of f, and r is not a
 * trace; nor is it of use if it scatters as it does for points of very different lengths. */
static enum directions directions_of(const struct tally_setting *setting,
                                     const struct survey *survey, double share)
{
    static const double UNLIKE_NOISE = 4, LEAST_EXCESS = 0.25, MOST_SHARE = 0.5,
                        USUAL_SCATTER = 0.25;
    const double c = survey->both.value, r = survey->sample.value, even = share * r;
    const double n = points_of(setting) * (double)(survey->n * calm_probes(setting));
    const double scatter = survey->sample.error / r * sqrt((double)survey->n);
    if (c <= fmin(MOST_SHARE * r, most_by_chance(n) * even) &&
        scatter < USUAL_SCATTER + 1 / sqrt((double)setting->dim)) {
        return ALIKE;
    }
    const double excess = c / even - 1;
    return setting->clients > 1 && excess > fmax(LEAST_EXCESS, UNLIKE_NOISE / sqrt(n)) ? UNLIKE
                                                                                       : UNKNOWN;
}

/* h if directions are not alike. The second direction is steeper than the first; what it gained is
 * gained once more by a margin. If f is round, 1 / h is the best constant step of gradient descent
 * for curvatures from its least to c1. */
static struct mean curvature_of(const struct tally_setting *setting, const struct survey *survey)
{
    static const double MOST_RATIO = 4;
    const double c = survey->along.value > 0 ? survey->along.value : survey->both.value;
    if (calm_is_round(setting, c)) {
        return (struct mean){(c + setting->convexity) / 2, survey->along.error / 2};
    }
    const double steep = fmax(survey->steep.value, c), margin = sqrt(fmin(steep / c, MOST_RATIO));
    return (struct mean){steep * margin, survey->steep.error * margin};
}

/* h from the clients' reports. */
static enum tally_status find_curvature(const struct tally_setting *setting,
                                        const struct tally_report *reports, int64_t n,
                                        struct mean *ret_curvature, enum directions *ret_directions,
                                        struct tally_error *err)
{
    static const double LONGEST_STEP = 1e9; /* as in a document */
    double *values = calloc((size_t)n, sizeof *values);
    if (values == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the clients' reports");
    }
    const struct survey survey = survey_of(reports, n, values);
    free(values);
    if (survey.n == 0 || !(survey.both.value > 0)) {
        return tally_fail(
            err, TALLY_FAILED_PRECONDITION, "algorithm.step_size",
            "f has no curvature along its gradient at the initial point, or no client "
            "could measure it; state step_size");
    }
    const double share = 1 / (1 + ((double)setting->dim - 1) / points_of(setting));
    *ret_directions = directions_of(setting, &survey, share);
    if (*ret_directions == UNLIKE && calm_is_round(setting, survey.along.value)) {
        *ret_directions = UNKNOWN;
    }
    *ret_curvature = *ret_directions == ALIKE
                         ? (struct mean){share * survey.sample.value, share * survey.sample.error}
                         : curvature_of(setting, &survey);
    const bool is_flat = !(ret_curvature->value > 1 / LONGEST_STEP);
    if (is_flat || fine_code_of(1 / ret_curvature->value) == 0) { /* 1 / h has no code */
        return tally_fail(err, TALLY_FAILED_PRECONDITION, "algorithm.step_size",
                          "f is so %s at the initial point (curvature %.3g) that no step size can "
                          "be estimated there; state step_size%s",
                          is_flat ? "flat" : "steep", ret_curvature->value,
                          is_flat ? "" : ", or the data in larger units");
    }
    return TALLY_OK;
}

static enum tally_status conclude(const struct tally_setting *setting,
                                  const struct tally_round_plan *plan,
                                  const struct tally_report *reports, int64_t n,
                                  struct tally_estimates *ret_estimates, uint64_t *ret_control_bits,
                                  struct tally_error *err)
{
    const struct tally_calm_params *params = &setting->params->calm;
    const double dim = (double)setting->dim;
    double step = params->step_size, variances = 0, squares = 0;
    (void)plan;
    *ret_estimates = (struct tally_estimates){0};
    for (int64_t m = 0; m < n; m++) {
        variances += reports[m].variance;
        squares += reports[m].norm;
    }
    if (finds_step(setting->params)) {
        struct mean h;
        enum directions directions;
        enum tally_status status = find_curvature(setting, reports, n, &h, &directions, err);
        if (status != TALLY_OK) {
            return status;
        }
        step = fine_value_of(fine_code_of(1 / h.value));
        squares *= step * step;
        ret_estimates->step_size = step;
        ret_estimates->step_size_error = h.error / h.value;
        ret_estimates->noise_growth = directions == ALIKE    ? growth_of(setting, step)
                                      : directions == UNLIKE ? -1
                                                             : 0;
        *ret_control_bits += CALM_STEP_BITS;
    }
    double noise = isnan(params->noise) ? variances / (double)n : params->noise;
    const double square = squares / (double)n, growth = fmax(ret_estimates->noise_growth, 0);
    const int64_t draws = calm_draws(setting, finds_step(setting->params));
    double variance = params->initial_variance;
    if (isnan(variance)) {
        variance = fmax(square - noise * step * step / (double)draws, LEAST_VARIANCE * square);
        if (growth * variance > noise) { /* V alone would make more noise than there is */
            variance = noise / growth;
        }
        variance = value_of(code_of(variance));
        *ret_control_bits += VALUE_BITS;
    }
    if (isnan(params->noise)) {
        noise = fmax(noise - growth * variance, LEAST_NOISE * variance / (step * step));
        noise = value_of(code_of(noise));
        *ret_control_bits += VALUE_BITS;
        ret_estimates->sigma = sqrt(noise * dim);
    }
    if (isnan(params->initial_variance)) {
        ret_estimates->gradient_bound = sqrt(variance * dim) / step;
    }
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
    if (finds_step(params)) {
        calm->step_size = estimates->step_size;
        calm->is_found = true;
        calm->noise_growth += fmax(estimates->noise_growth, 0); /* one of them is 0 */
        calm->is_even = estimates->noise_growth > 0;
        calm->is_uneven = estimates->noise_growth < 0;
    }
    const double dim = (double)setting->dim, distance = estimates->gradient_bound * calm->step_size;
    calm->noise = isnan(calm->noise) ? estimates->sigma * estimates->sigma / dim : calm->noise;
    calm->initial_variance =
        isnan(calm->initial_variance) ? distance * distance / dim : calm->initial_variance;
    return is_positive(calm->step_size) && is_positive(calm->noise) &&
           is_positive(calm->initial_variance);
}

const struct tally_opening CALM_OPENING = {
    .opens = calm_opens,
    .receive = receive,
    .conclude = conclude,
    .adopt = adopt,
};
