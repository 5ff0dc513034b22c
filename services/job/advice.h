/* advice: what a user should know about a job that is valid all the same. */
#ifndef TALLY_SERVICES_JOB_ADVICE_H
#define TALLY_SERVICES_JOB_ADVICE_H

#include "codec/base/record.h"
#include "services/job/spec.h"

enum { TALLY_ADVICE_MOST = 2, TALLY_ADVICE_CAPACITY = 256 };

struct tally_advice {
    int n;
    char texts[TALLY_ADVICE_MOST][TALLY_ADVICE_CAPACITY]; /* sentences for people */
};

/* What the curvature of f, where it is known, says about the parameters: a step beyond what f
 * allows, and [1]'s method on an f that is not known to be strongly convex. */
struct tally_advice tally_advise(const struct tally_job_spec *spec,
                                 const struct tally_curvature *curvature);

#endif
