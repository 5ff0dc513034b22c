#include "services/job/step_suggestion.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "services/job/job_local.h"

/* ---- The best step size. */

/* Powers of 2, from about 2^COARSEST / smoothness down to 2^FINEST / smoothness; then those of
 * 2^(1/4) around the best one. */
enum { QUARTERS = 4, COARSEST = 6, FINEST = -30 };
static const double LONGEST = 1e9; /* as in a document */

/* Three digits are enough. */
static double digits(double value)
{
    char text[32];
    snprintf(text, sizeof text, "%.3g", value);
    return strtod(text, NULL);
}

/* NaN = there is none. */
static double best_step(const struct tally_job_spec *spec, const struct tally_probe *probe,
                        const char **ret_reason)
{
    *ret_reason = "f has no curvature that can be measured at the initial point";
    if (!isnormal(probe->smoothness) || !isfinite(1 / probe->smoothness)) {
        return NAN;
    }
    const int unit = (int)floor(log2(1 / probe->smoothness));
    int best = INT_MIN;
    double least = INFINITY;
    for (int k = FINEST; k <= COARSEST; k++) {
        const double regret = tally_forecast_regret(spec, probe, exp2(unit + k));
        if (regret < least) {
            least = regret;
            best = QUARTERS * (unit + k);
        }
    }
    if (best == INT_MIN) {
        *ret_reason = "the job diverges at every step size";
        return NAN;
    }
    if (best == QUARTERS * (unit + FINEST)) { /* as with a single query, before any step */
        *ret_reason = "no step makes the expected regret less";
        return NAN;
    }
    const int coarse = best;
    for (int k = 1 - QUARTERS; k < QUARTERS; k++) {
        const double regret =
            tally_forecast_regret(spec, probe, exp2((coarse + k) / (double)QUARTERS));
        if (regret < least) {
            least = regret;
            best = coarse + k;
        }
    }
    return fmin(digits(exp2(best / (double)QUARTERS)), LONGEST);
}

static void give_reason(struct tally_suggestion *suggestion, const char *reason)
{
    suggestion->step_size = NAN;
    snprintf(suggestion->reason, sizeof suggestion->reason, "%s", reason);
}

/* Makes x^(1). NULL = out of memory. */
static double *initial_point(const struct tally_job_spec *spec, size_t dim)
{
    double *x = calloc(dim, sizeof *x);
    if (x != NULL) {
        tally_job_spec_initial_point(spec, x);
    }
    return x;
}

static const uint64_t MOST_BYTES = UINT64_C(48) << 20, MOST_UNPACKED_BYTES = UINT64_C(256) << 20,
                      MOST_POINTS = UINT64_C(1) << 20, MOST_NUMBERS = UINT64_C(1) << 23,
                      MOST_PIXELS = UINT64_C(1) << 26;

static const char TOO_MANY[] = "the data are too many to look at";

struct reading {
    uint64_t most_points;
    const atomic_bool *stop;
    bool is_large;
};

static uint64_t most_points(const struct tally_data_spec *data)
{
    const uint64_t features = (uint64_t)tally_data_spec_features(data);
    const uint64_t most =
        (data->type == TALLY_DATA_IDX ? MOST_PIXELS : MOST_NUMBERS) / (features > 0 ? features : 1);
    return most < MOST_POINTS ? most : MOST_POINTS;
}

/* Whether the drawn data, or a matrix of which each gradient takes all numbers, are too many. */
static bool is_large(const struct tally_job_spec *spec)
{
    const struct tally_data_spec *data = &spec->objective.data;
    const uint64_t dim = (uint64_t)tally_data_spec_features(data);
    return data->type == TALLY_DATA_SYNTHETIC_LINEAR
               ? tally_objective_spec_points(&spec->objective) > most_points(data)
               : data->type == TALLY_DATA_MATRIX &&
                     dim * dim > MOST_NUMBERS / (uint64_t)fmin((double)spec->clients, 64);
}

/* Why a job cannot have a suggestion, whatever its data are; NULL = it can. */
static const char *refusal_of(const struct tally_job_spec *spec)
{
    const int start = spec->initial_point.type;
    if (tally_job_spec_algorithm(spec) == &TALLY_CALM) {
        return "a calm job without a step_size estimates it";
    }
    if (!tally_forecast_knows(spec)) {
        return "the server has an optimizer of its own";
    }
    if (tally_objective_spec_is_plugin(&spec->objective)) {
        return "the gradients are computed by a user's program";
    }
    if (tally_objective_spec_dim(&spec->objective) > TALLY_PROBE_MOST_DIM) {
        return "the objective has more than 100000 coordinates";
    }
    if (is_large(spec)) {
        return TOO_MANY;
    }
    if (spec->objective.data.sharding == TALLY_SHARDING_LOCAL &&
        !tally_data_spec_is_shared(&spec->objective.data)) {
        return "each worker has data of its own";
    }
    return start != TALLY_INITIAL_ZEROS && start != TALLY_INITIAL_RANDOM_SPHERE
               ? "the initial point is given"
               : NULL;
}

double tally_suggestion_step_of(const struct tally_job_spec *spec)
{
    return tally_job_spec_algorithm(spec)->step_limit(&spec->params, 1).step_size;
}

bool tally_suggestion_is_possible(const struct tally_job_spec *spec)
{
    return refusal_of(spec) == NULL;
}

struct tally_suggestion tally_suggestion_none(const struct tally_job_spec *spec,
                                              const char *otherwise)
{
    struct tally_suggestion none = {.step_size = NAN};
    const char *refusal = refusal_of(spec);
    give_reason(&none, refusal != NULL ? refusal : otherwise);
    return none;
}

enum tally_status tally_suggest(const struct tally_job_spec *spec,
                                const struct tally_objective *objective, const atomic_bool *stop,
                                struct tally_suggestion *ret, struct tally_error *err)
{
    struct tally_probe probe;
    struct tally_error why = TALLY_ERROR_INIT;
    *ret = (struct tally_suggestion){.step_size = NAN};
    const char *refusal = refusal_of(spec);
    if (refusal != NULL) {
        give_reason(ret, refusal);
        return TALLY_OK;
    }
    double *x = initial_point(spec, objective->dim);
    if (x == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a point");
    }
    const enum tally_status status = tally_probe_measure(spec, objective, x, stop, &probe, &why);
    free(x);
    if (status == TALLY_CANCELLED || status == TALLY_NO_MEMORY) {
        return tally_fail(err, status, why.field, "%s", why.message);
    }
    if (status != TALLY_OK) {
        give_reason(ret, why.message);
        return TALLY_OK;
    }
    const char *reason;
    ret->step_size = best_step(spec, &probe, &reason);
    if (isnan(ret->step_size)) {
        give_reason(ret, reason);
    } else if (tally_job_spec_algorithm(spec) == &TALLY_CEAL) {
        /* The recursion knows only means, and a job of `ceal` whose steps are longer than [1]
         * allows can have many times the expected regret (DESIGN.md). */
        ret->step_size = fmin(ret->step_size, digits(1 / probe.smoothness));
    }
    return TALLY_OK;
}

/* ---- Data of a folder. */

static bool goes_on(void *context, const struct tally_load_progress *progress)
{
    struct reading *reading = context;
    reading->is_large = reading->is_large || progress->total_bytes > MOST_BYTES ||
                        progress->unpacked_bytes > MOST_UNPACKED_BYTES ||
                        progress->points > reading->most_points;
    return !reading->is_large && (reading->stop == NULL || !atomic_load(reading->stop));
}

enum tally_status tally_suggest_from(const struct tally_job_spec *spec, const char *data_dir,
                                     const atomic_bool *stop, struct tally_suggestion *ret,
                                     struct tally_error *err)
{
    struct reading reading = {.most_points = most_points(&spec->objective.data), .stop = stop};
    const struct tally_data_source files = {
        .dir = data_dir, .on_progress = goes_on, .context = &reading};
    struct tally_objective_spec own = spec->objective;
    struct tally_objective *objective = NULL;
    struct tally_error why = TALLY_ERROR_INIT;
    const char *refusal = refusal_of(spec);
    *ret = (struct tally_suggestion){.step_size = NAN};
    if (refusal != NULL) {
        give_reason(ret, refusal);
        return TALLY_OK;
    }
    tally_objective_spec_drop_report(&own);
    enum tally_status status = tally_objective_load(
        &own, (uint32_t)spec->clients, tally_job_spec_setting(spec).key, &files, &objective, &why);
    if (status == TALLY_OK && tally_job_spec_is_surveyed(spec) && objective->scaling == 0) {
        tally_objective_free(objective);
        give_reason(ret,
                    "the features are scaled by the points of all clients, which are not here");
        return TALLY_OK;
    }
    if (status == TALLY_OK) {
        status = tally_suggest(spec, objective, stop, ret, err);
        tally_objective_free(objective);
        return status;
    }
    if (status == TALLY_NO_MEMORY || (status == TALLY_CANCELLED && !reading.is_large)) {
        return tally_fail(err, status, why.field, "%s", why.message);
    }
    give_reason(ret, reading.is_large ? TOO_MANY : why.message);
    return TALLY_OK;
}
