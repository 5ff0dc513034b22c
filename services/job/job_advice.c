#include "services/job/job_advice.h"

#include <math.h>
#include <stdio.h>

/* QSGD with s levels gives a vector v of dimension d an error of expected square at most
 * min(d / s^2, sqrt(d) / s) |v|^2 (Alistarh et al., lemma 3.1); the mean over a round's clients has
 * a share of it. An error that is several times as long as the mean update moves the point at
 * random, unless the steps are as many times shorter. */
static const double MOST_ERROR = 2; /* lengths of the mean update */

static void advise_levels(const struct tally_job_spec *spec, struct tally_advice *advice)
{
    const double dim = (double)tally_objective_spec_dim(&spec->objective);
    const double clients = tally_job_spec_answers(spec);
    const double levels = (double)spec->params.baseline.levels;
    const double error = sqrt(fmin(dim / (levels * levels), sqrt(dim) / levels) / clients);
    const double square = MOST_ERROR * MOST_ERROR * clients;
    if (levels > 0 && error > MOST_ERROR) {
        snprintf(advice->texts[advice->n++], TALLY_ADVICE_CAPACITY,
                 "levels %.0f: with dim %.0f and %.0f clients a round, the quantization error of a "
                 "step may have %.3g times the step's length, and the job may not learn; with "
                 "levels %.0f it has at most %.3g times",
                 levels, dim, clients, error, ceil(fmin(sqrt(dim / square), sqrt(dim) / square)),
                 MOST_ERROR);
    }
}

struct tally_advice tally_advise(const struct tally_job_spec *spec,
                                 const struct tally_curvature *curvature)
{
    const struct tally_algorithm *algorithm = tally_job_spec_algorithm(spec);
    struct tally_advice advice = {.n = 0};
    if (curvature->smoothness > 0) {
        const struct tally_step_limit step =
            algorithm->step_limit(&spec->params, curvature->smoothness);
        if (step.step_size > step.limit) {
            snprintf(advice.texts[advice.n++], TALLY_ADVICE_CAPACITY,
                     "step_size %.6g is above %.4g = %s: the iterates may diverge", step.step_size,
                     step.limit, step.formula);
        }
    }
    if (algorithm == &TALLY_CEAL && curvature->smoothness > 0 && curvature->strong_convexity <= 0) {
        snprintf(advice.texts[advice.n++], TALLY_ADVICE_CAPACITY,
                 "the objective is not known to be strongly convex, which the guarantees of ceal "
                 "need; an l2 above 0 makes it so");
    }
    if (algorithm == &TALLY_FEDPAQ || algorithm == &TALLY_FEDCOM) {
        advise_levels(spec, &advice);
    }
    return advice;
}
