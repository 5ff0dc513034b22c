/* jobs_initial: the initial point of a job, if it is given (services/job/initial_point.h).
 *
 * It is checked when the job is submitted, and its checksum added to the document. When the job
 * starts, it is made again and must still have that checksum; the transaction that stores the start
 * stores the point as part of the job's state, so neither file nor earlier job is needed later. In
 * between only the document is kept, because thousands of jobs may be queued.
 *
 * A file is read by the loop's own thread: ten million coordinates take about as long as drawing
 * them, or as storing them at the start (DESIGN.md). */
#ifndef TALLY_SERVICES_COORDINATOR_JOBS_INITIAL_H
#define TALLY_SERVICES_COORDINATOR_JOBS_INITIAL_H

#include "codec/error.h"
#include "services/job/job_spec.h"

struct hosted_job;
struct tally_coordinator;

/* Checks the initial point of a new job and completes its checksum. Errors: INVALID_ARGUMENT, with
 * a field below initial_point (those of tally_initial_point_read() and _match(); an earlier job
 * that is unknown, has not ended, has no model or another dimension), STORE, NO_MEMORY. */
enum tally_status jobs_initial_check(struct tally_coordinator *coordinator,
                                     struct tally_job_spec *spec, struct tally_error *err);

/* Makes the given initial point of a job that is about to start: *ret_x is a new double[dim], or
 * NULL if it is not given. Precondition: !workers_lacks_start(job). Errors: those of
 * jobs_initial_check(), DATA_LOSS (the earlier job is damaged). */
enum tally_status jobs_initial_make(struct tally_coordinator *coordinator,
                                    const struct hosted_job *job, double **ret_x,
                                    struct tally_error *err);

#endif
