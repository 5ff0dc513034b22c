/* step_suggestion: a step size to begin with, for a job whose data are here.
 *
 * Idea: what the objective is like around the initial point is measured (step_probe.h), and of the
 * step sizes 2^(k/4) the one with the least expected regret (step_forecast.h) is suggested.
 * README.md in this folder says how good that is. */
#ifndef TALLY_SERVICES_JOB_STEP_SUGGESTION_H
#define TALLY_SERVICES_JOB_STEP_SUGGESTION_H

#include "services/job/step_forecast.h"

/* A step size above this multiple of the suggestion causes a warning. */
#define TALLY_SUGGESTION_WARNS 4.0

enum { TALLY_SUGGESTION_REASON_CAPACITY = 400 };

struct tally_suggestion {
    double step_size;                              /* NaN = there is none */
    char reason[TALLY_SUGGESTION_REASON_CAPACITY]; /* why there is none: a clause */
};

/* The step size of the job. */
double tally_suggestion_step_of(const struct tally_job_spec *spec);

/* Whether a valid job may have a suggestion, if its data are here: its objective is built in and
 * not too large, its data are not those of each worker, it starts at zeros or a random point, and
 * its algorithm has a step size to choose and no server optimizer. */
bool tally_suggestion_is_possible(const struct tally_job_spec *spec);
/* No suggestion, and why: what makes it impossible, or else `otherwise`. */
struct tally_suggestion tally_suggestion_none(const struct tally_job_spec *spec,
                                              const char *otherwise);

/* Suggests a step size for a valid spec on its objective (borrowed). Deterministic; about a second
 * at most. Without a suggestion, says why: that is no error. Stops once *stop is set; `stop` may be
 * NULL. Errors: CANCELLED, NO_MEMORY. */
enum tally_status tally_suggest(const struct tally_job_spec *spec,
                                const struct tally_objective *objective, const atomic_bool *stop,
                                struct tally_suggestion *ret, struct tally_error *err);

/* The same with the data of a folder, if they are there and not large: files of at most 48 MiB that
 * unpack to at most 256 MiB, 2^20 points, and 2^23 numbers or 2^26 pixels. */
enum tally_status tally_suggest_from(const struct tally_job_spec *spec, const char *data_dir,
                                     const atomic_bool *stop, struct tally_suggestion *ret,
                                     struct tally_error *err);

#endif
