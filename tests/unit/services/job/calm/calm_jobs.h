/* calm_jobs: CALM jobs for the tests in this folder. */
#ifndef TALLY_TESTS_UNIT_SERVICES_JOB_CALM_CALM_JOBS_H
#define TALLY_TESTS_UNIT_SERVICES_JOB_CALM_CALM_JOBS_H

#include "tests/unit/services/job/job_host.h"

/* A least-squares job of curvature 1/3 in every direction, on 200 points, horizon 300. */
struct tally_job_spec calm_job_known(uint32_t dim, int64_t clients);
/* The same job, of which only the step size is known. */
struct tally_job_spec calm_job_auto(uint32_t dim, int64_t clients);

/* A job whose steps are far too short for its curvature: its clients soon travel. */
struct tally_job_spec calm_job_travelling(uint32_t dim, int64_t clients);

/* Replaces the engine with one that is restored from `progress` and `state`. */
void calm_job_restore(struct job_host *host, const struct tally_progress *progress,
                      const struct tally_buffer *state);
/* A crash: replaces the engine with one that is restored from its state at this moment. */
void calm_job_crash(struct job_host *host);

/* Expects that progress, state and records are the same. */
void calm_job_expect_same(const struct job_host *a, const struct job_host *b);

#endif
