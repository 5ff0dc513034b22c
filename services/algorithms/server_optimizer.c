#include "services/algorithms/server_optimizer.h"

#include <math.h>

#define PARAM(member) offsetof(struct tally_server_optimizer, member)

#define STEP_SIZE                                                                                  \
    TALLY_POSITIVE("step_size", PARAM(step_size), 1e9, .required = true,                           \
                   .doc = "step size S of the server")
/* With a beta closer to 1, m or v would decay by less than a factor e in a million rounds. */
#define BETA(key, member, text)                                                                    \
    TALLY_REAL(key, PARAM(member), 0, 0.999999, .unit = "per round", .doc = text)
#define BETA1 BETA("beta1", beta1, "share of the mean step m that a round keeps")

const char *const TALLY_SERVER_OPTIMIZER_NAMES[] = {"sgd", "fedavgm", "fedadam", "fedyogi", NULL};

static const struct tally_field SGD_FIELDS[] = {STEP_SIZE};
static const struct tally_field MOMENTUM_FIELDS[] = {STEP_SIZE, BETA1};
static const struct tally_field ADAPTIVE_FIELDS[] = {
    STEP_SIZE,
    BETA1,
    BETA("beta2", beta2, "share of the mean square v that a round keeps"),
    TALLY_POSITIVE("tau", PARAM(tau), 1e9, .unit = "x",
                   .doc = "adaptivity: a coordinate moves by S m / (sqrt(v) + tau)"),
};

const struct tally_server_optimizer_kind TALLY_SERVER_OPTIMIZER_KINDS[] = {
    [TALLY_SERVER_SGD] = {TALLY_ROWS(SGD_FIELDS)},
    [TALLY_FEDAVGM] = {TALLY_ROWS(MOMENTUM_FIELDS)},
    [TALLY_FEDADAM] = {TALLY_ROWS(ADAPTIVE_FIELDS)},
    [TALLY_FEDYOGI] = {TALLY_ROWS(ADAPTIVE_FIELDS)},
};

struct tally_server_optimizer tally_server_optimizer_defaults(void)
{
    return (struct tally_server_optimizer){.beta1 = 0.9, .beta2 = 0.99, .tau = 1e-3};
}

bool tally_server_optimizer_is_set(const struct tally_server_optimizer *optimizer)
{
    return optimizer->step_size > 0;
}

/* The number of vectors of length d that the server keeps. */
static size_t n_vectors(const struct tally_server_optimizer *optimizer)
{
    if (!tally_server_optimizer_is_set(optimizer) || optimizer->type == TALLY_SERVER_SGD) {
        return 0;
    }
    return optimizer->type == TALLY_FEDAVGM ? 1 : 2;
}

static double moved_v(const struct tally_server_optimizer *optimizer, double v, double square)
{
    const double share = 1 - optimizer->beta2;
    if (optimizer->type == TALLY_FEDADAM) {
        return optimizer->beta2 * v + share * square;
    }
    return v > square ? v - share * square : v < square ? v + share * square : v;
}

void tally_server_optimizer_steps(const struct tally_setting *setting, void *memory, size_t first,
                                  size_t n, double *differences)
{
    const struct tally_server_optimizer *own = &setting->params->baseline.server_optimizer;
    const size_t kept = n_vectors(own);
    if (!tally_server_optimizer_is_set(own)) {
        return;
    }
    double *m = (double *)memory + first, *v = (double *)memory + setting->dim + first;
    for (size_t i = 0; i < n; i++) {
        const double difference = differences[i];
        if (kept == 0) {
            differences[i] = own->step_size * difference;
        } else if (kept == 1) {
            m[i] = own->beta1 * m[i] + difference;
            differences[i] = own->step_size * m[i];
        } else {
            m[i] = own->beta1 * m[i] + (1 - own->beta1) * difference;
            v[i] = moved_v(own, v[i], difference * difference);
            differences[i] = own->step_size * m[i] / (sqrt(v[i]) + own->tau);
        }
    }
}

size_t tally_server_optimizer_bytes(const struct tally_setting *setting)
{
    return n_vectors(&setting->params->baseline.server_optimizer) * setting->dim * sizeof(double);
}

void tally_server_optimizer_begin(const struct tally_setting *setting, const double *x,
                                  int64_t opening_samples, const char *schedule, void *memory)
{
    (void)x;
    (void)opening_samples;
    (void)schedule;
    const struct tally_server_optimizer *own = &setting->params->baseline.server_optimizer;
    double *values = memory;
    for (size_t i = 0; i < n_vectors(own) * setting->dim; i++) {
        values[i] = i < setting->dim ? 0 : own->tau * own->tau;
    }
}

bool tally_server_optimizer_is_valid(const struct tally_setting *setting, const void *memory)
{
    const double *values = memory;
    const size_t n = n_vectors(&setting->params->baseline.server_optimizer) * setting->dim;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(values[i]) || (i >= setting->dim && values[i] < 0)) {
            return false;
        }
    }
    return true;
}
