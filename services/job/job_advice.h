/* job_advice: warnings about a valid job. */
#ifndef TALLY_SERVICES_JOB_JOB_ADVICE_H
#define TALLY_SERVICES_JOB_JOB_ADVICE_H

#include "codec/record.h"
#include "services/job/job_spec.h"

enum { TALLY_ADVICE_MOST = 2, TALLY_ADVICE_CAPACITY = 256 };

struct tally_advice {
    int n;
    char texts[TALLY_ADVICE_MOST][TALLY_ADVICE_CAPACITY]; /* human-readable sentences */
};

/* If the curvature of f is known, warns of a step size above the limit for f, and of `ceal` with an
 * f that is not known to be strongly convex. Warns of `fedpaq` and `fedcom` with so few levels that
 * the quantization error exceeds the steps. */
struct tally_advice tally_advise(const struct tally_job_spec *spec,
                                 const struct tally_curvature *curvature);

#endif
