#include "services/job/step_forecast.h"

#include <math.h>

#include "services/algorithms/ceal.h"
#include "services/algorithms/server_optimizer.h"

/* Later rounds are taken to be like the last of ROUNDS_MOST. */
enum { ROUNDS_MOST = 10000, STEPS_MOST = 10000 };

/* The error has diverged if its square is that many times what it was. */
static const double DIVERGED = 1e6;

struct forecast {
    const struct tally_job_spec *spec;
    const struct tally_probe *probe;
    double step_size, clients, regret, most; /* most: square of the error */
    double shared[TALLY_PROBE_MODES];        /* A */
    double noise[TALLY_PROBE_MODES];         /* N */
};

static bool has_server_optimizer(const struct tally_job_spec *spec)
{
    return tally_job_spec_algorithm(spec)->takes_server_optimizer &&
           tally_server_optimizer_is_set(&spec->params.baseline.server_optimizer);
}

bool tally_forecast_knows(const struct tally_job_spec *spec)
{
    return tally_job_spec_algorithm(spec) != &TALLY_CALM && !has_server_optimizer(spec);
}

static double square_of(const struct forecast *forecast)
{
    double sum = 0;
    for (size_t i = 0; i < forecast->probe->n; i++) {
        sum += forecast->shared[i] + forecast->noise[i];
    }
    return sum;
}

/* f(x) - f(x*) at the common point. */
static double gap_of(const struct forecast *forecast)
{
    double sum = 0;
    for (size_t i = 0; i < forecast->probe->n; i++) {
        sum += forecast->probe->modes[i].curvature * (forecast->shared[i] + forecast->noise[i]);
    }
    return sum / 2;
}

/* The variance of the mean of n gradient queries. */
static double query_noise(const struct forecast *forecast, double square, double n)
{
    return (forecast->probe->noise + forecast->probe->growth * square) / n;
}

/* The square of the error of a QSGD message, relative to the square of its vector, if that has
 * coordinates like Gaussian ones: s levels that are finer than most coordinates round each of them
 * by a sixth of the square of a level; with coarser ones, the error is |v|_1 / (s |v|). */
static double message_error(const struct tally_job_spec *spec)
{
    const struct tally_algorithm *algorithm = tally_job_spec_algorithm(spec);
    const double dim = (double)tally_objective_spec_dim(&spec->objective);
    const double levels = (double)spec->params.baseline.levels;
    const bool quantizes =
        algorithm == &TALLY_FEDPAQ || algorithm == &TALLY_FEDCOM || algorithm == &TALLY_DIANA;
    return quantizes ? fmin(dim / (6 * levels * levels), sqrt(dim * M_2_PI) / levels) : 0;
}

/* S: the server's step size in `fedcom` and `scaffold`. */
static double server_factor(const struct tally_job_spec *spec)
{
    const struct tally_algorithm *algorithm = tally_job_spec_algorithm(spec);
    return algorithm == &TALLY_FEDCOM || algorithm == &TALLY_SCAFFOLD
               ? spec->params.baseline.server_step_size
               : 1;
}

/* A round of `length` queries from time t: the clients' own steps, `stride` at once, and the
 * server's. */
static void move_clients(struct forecast *forecast, int64_t t, int64_t length, int64_t stride)
{
    const struct tally_probe *probe = forecast->probe;
    const struct tally_baseline_params *params = &forecast->spec->params.baseline;
    const double error = message_error(forecast->spec), server = server_factor(forecast->spec);
    const double spread =
        tally_job_spec_algorithm(forecast->spec) == &TALLY_SCAFFOLD ? 0 : probe->spread;
    double left[TALLY_PROBE_MODES], own[TALLY_PROBE_MODES] = {0}, drift[TALLY_PROBE_MODES] = {0};
    double inside = 0;
    for (size_t i = 0; i < probe->n; i++) {
        left[i] = 1;
    }
    for (int64_t k = 0, n; k < length; k += n) {
        n = length - k < stride ? length - k : stride;
        const double eta = forecast->step_size / (1 + params->step_decay * (double)(t + k));
        double sum = 0, square = inside;
        for (size_t i = 0; i < probe->n; i++) {
            square += left[i] * left[i] * (forecast->shared[i] + forecast->noise[i]);
        }
        const double q = eta * eta * query_noise(forecast, square, 1);
        inside = 0;
        for (size_t i = 0; i < probe->n; i++) {
            const double lambda = probe->modes[i].curvature, share = probe->modes[i].share;
            const double rate = 1 - eta * lambda, power = n == 1 ? rate : pow(rate, (double)n);
            const double steps =
                rate * rate == 1 ? (double)n : (1 - power * power) / (1 - rate * rate);
            const double moved = share * spread * drift[i] * drift[i];
            sum +=
                lambda *
                (steps * (left[i] * left[i] * (forecast->shared[i] + forecast->noise[i]) + own[i]) +
                 (double)n * moved +
                 (n > 1 ? share * q * ((double)n - steps) / (1 - rate * rate) : 0));
            own[i] = power * power * own[i] + share * q * steps;
            drift[i] = power * drift[i] + (1 - power) / lambda;
            left[i] *= power;
            inside += own[i];
        }
        forecast->regret += sum / 2;
    }
    /* The messages' errors, by the squares of what they say. */
    double said = inside;
    for (size_t i = 0; i < probe->n; i++) {
        said += (1 - left[i]) * (1 - left[i]) * (forecast->shared[i] + forecast->noise[i]);
    }
    for (size_t i = 0; i < probe->n; i++) {
        const double r = 1 - server * (1 - left[i]);
        forecast->shared[i] *= r * r;
        forecast->noise[i] =
            r * r * forecast->noise[i] +
            server * server * (own[i] + probe->modes[i].even * error * said) / forecast->clients;
    }
}

/* The server's step with a gradient whose noise and whose quantization error have these squares. */
static void move_server(struct forecast *forecast, double noise, double error)
{
    const struct tally_probe *probe = forecast->probe;
    const double eta = forecast->step_size;
    for (size_t i = 0; i < probe->n; i++) {
        const double rate = 1 - eta * probe->modes[i].curvature;
        forecast->shared[i] *= rate * rate;
        forecast->noise[i] =
            rate * rate * forecast->noise[i] +
            eta * eta * (probe->modes[i].share * noise + probe->modes[i].even * error);
    }
}

static double gradient_square(const struct forecast *forecast)
{
    double sum = 0;
    for (size_t i = 0; i < forecast->probe->n; i++) {
        const double lambda = forecast->probe->modes[i].curvature;
        sum += lambda * lambda * (forecast->shared[i] + forecast->noise[i]);
    }
    return sum;
}

static bool diverges(const struct forecast *forecast)
{
    return !(square_of(forecast) < forecast->most);
}

static double run_baseline(struct forecast *forecast)
{
    const struct tally_job_spec *spec = forecast->spec;
    const struct tally_baseline_params *params = &spec->params.baseline;
    const bool moves = tally_job_spec_algorithm(spec)->moves_locally;
    const int64_t stride = 1 + spec->horizon / STEPS_MOST;
    const double error = message_error(spec);
    double rate = 0; /* of the last round */
    int64_t t = 0;
    for (int rounds = 0; t < spec->horizon && rounds < ROUNDS_MOST; rounds++) {
        const double before = forecast->regret;
        const double own = (double)params->local_steps + params->local_steps_growth * (double)t;
        const double left = (double)(spec->horizon - t);
        const int64_t length = (int64_t)fmax(fmin(own, left), 1);
        if (moves) {
            move_clients(forecast, t, length, stride);
        } else {
            const double n2 = query_noise(forecast, square_of(forecast), (double)length);
            forecast->regret += (double)length * gap_of(forecast);
            move_server(forecast, n2 / forecast->clients,
                        error * (n2 + gradient_square(forecast)) / forecast->clients);
        }
        t += length;
        rate = (forecast->regret - before) / (double)length;
        if (diverges(forecast)) {
            return INFINITY;
        }
    }
    return forecast->regret + rate * (double)(spec->horizon - t);
}

/* The variance of rounding to a grid at random: the square of its accuracy, times this. */
static const double ROUNDING = 1.0 / 6;

static double run_ceal(struct forecast *forecast)
{
    const struct tally_job_spec *spec = forecast->spec;
    struct tally_ceal_params params = spec->params.ceal;
    const size_t dim = tally_objective_spec_dim(&spec->objective);
    if (isnan(params.sigma)) {
        params.sigma = sqrt(query_noise(forecast, square_of(forecast), 1));
    }
    if (isnan(params.gradient_bound)) {
        params.gradient_bound = sqrt(gradient_square(forecast));
    }
    int64_t stage = params.first_stage, t = 0;
    double rate = 0;
    for (int rounds = 0; t < spec->horizon && rounds < ROUNDS_MOST; rounds++) {
        const struct tally_ceal_stage at =
            tally_ceal_stage(&params, (uint32_t)spec->clients, dim, stage);
        const int64_t left = spec->horizon - t, n = at.samples < left ? at.samples : left;
        const double noise =
            query_noise(forecast, square_of(forecast), (double)n) / forecast->clients;
        const double up = ROUNDING * at.uplink_accuracy * at.uplink_accuracy / forecast->clients;
        const double measured = sqrt(gradient_square(forecast) + noise + up);
        rate = gap_of(forecast);
        forecast->regret += (double)n * rate;
        t += n;
        if (at.threshold <= measured / 4) {
            move_server(forecast, noise,
                        up + ROUNDING * at.downlink_accuracy * at.downlink_accuracy);
        } else {
            stage++;
        }
        if (diverges(forecast)) {
            return INFINITY;
        }
    }
    return forecast->regret + rate * (double)(spec->horizon - t);
}

double tally_forecast_regret(const struct tally_job_spec *spec, const struct tally_probe *probe,
                             double step_size)
{
    struct forecast forecast = {.spec = spec,
                                .probe = probe,
                                .step_size = step_size,
                                .clients = tally_job_spec_answers(spec)};
    for (size_t i = 0; i < probe->n; i++) {
        forecast.shared[i] = probe->modes[i].square;
    }
    forecast.most = DIVERGED * square_of(&forecast);
    const double regret = tally_job_spec_algorithm(spec) == &TALLY_CEAL ? run_ceal(&forecast)
                                                                        : run_baseline(&forecast);
    return isfinite(regret) ? regret : INFINITY;
}
