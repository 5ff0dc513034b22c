#include "services/job/advice.h"

#include <stdio.h>

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
    return advice;
}
