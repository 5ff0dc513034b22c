/* run_problem: the two experiments of [1] section V, what they minimise and where they start.
 *
 *   synthetic   linear regression, N = 2000, d = 30, M = 10, T = 2000, one point per query
 *   mnist       softmax regression on 50,000 balanced images, d = 7840, M = 10, T = 1000, 25 images
 *               per query, from zero
 *
 * [1] does not say how the covariates of the synthetic one were "normalized". Two readings remain
 * (services/algorithms/README.md): `loud`, with the noise of the text, and `quiet`, the same
 * problem rescaled so that [1]'s step sizes are the best ones. */
#ifndef TALLY_SERVICES_EXPERIMENT_RUN_PROBLEM_H
#define TALLY_SERVICES_EXPERIMENT_RUN_PROBLEM_H

#include "services/job/job_spec.h"

enum tally_problem_kind { TALLY_PROBLEM_LOUD, TALLY_PROBLEM_QUIET, TALLY_PROBLEM_MNIST };

struct tally_problem {
    enum tally_problem_kind kind;
    double radius; /* |x^(1)| of a synthetic problem, which starts at a random point of that norm */
};

/* "synthetic", "mnist" */
const char *tally_problem_experiment(const struct tally_problem *problem);
/* "loud", "quiet"; NULL if there is only one reading */
const char *tally_problem_reading(const struct tally_problem *problem);
/* The start radius of [1]'s experiment as we read it: 2 loud, 1 quiet, 0 mnist. */
double tally_problem_usual_radius(enum tally_problem_kind kind);

/* The job, except its name, algorithm and seed. */
struct tally_job_spec tally_problem_job(const struct tally_problem *problem);

#endif
