/* jobs_initial: the initial point of a job, if it is given (services/job/initial_point.h).
 *
 * It is checked when the job is submitted, and its checksum added to the document. When the job
 * starts, it is made again and must still have that checksum; the transaction that stores the start
 * stores the point as part of the job's state, so neither file nor earlier job is needed later. In
 * between only the document is kept, because thousands of jobs may be queued.
 *
 * A file may be long or slow, so it is read in the background (background.h), both times:
 *
 *     submission   handler -> the call is held ... file read -> handler again, with the checksum
 *     start        its turn -> the slots wait  ... file read -> its turn again, with the point
 *
 * One file is read after the other. */
#ifndef TALLY_SERVICES_COORDINATOR_JOBS_INITIAL_H
#define TALLY_SERVICES_COORDINATOR_JOBS_INITIAL_H

#include <stdbool.h>

#include "codec/error.h"
#include "services/job/job_spec.h"

struct call;
struct hosted_job;
struct initial_reads;
struct tally_coordinator;

enum { MAX_INITIAL_CALLS = 64 }; /* held until their file has been read */

/* Sets coordinator->initials. */
void jobs_initial_new(struct tally_coordinator *coordinator);
/* Frees the calls that are held. To be called before the modules whose objects they hold are freed.
 * A file that is being read keeps its memory until it has been read. */
void jobs_initial_free(struct tally_coordinator *coordinator);

/* Checks the initial point of the new job that the call submits, and completes its checksum. If
 * call->is_held afterwards, nothing is known yet, and the call's handler will run again. Errors:
 * INVALID_ARGUMENT, with a field below initial_point (those of tally_initial_point_read() and
 * _match(); an earlier job that is unknown, has not ended, has no model or another dimension),
 * RESOURCE_EXHAUSTED (MAX_INITIAL_CALLS), STORE, NO_MEMORY. */
enum tally_status jobs_initial_check(struct tally_coordinator *coordinator, struct call *call,
                                     struct tally_job_spec *spec, struct tally_error *err);

/* Whether the job cannot start before its file has been read again. */
bool jobs_initial_is_unread(const struct hosted_job *job);
/* Has the file of such a job read, unless that has begun. Returns whether the job's slots should
 * stay free for it: not for long if the file is slow. */
bool jobs_initial_read(struct tally_coordinator *coordinator, struct hosted_job *job);
/* Takes the files that have been read. Writes. To be called once per turn. */
void jobs_initial_take(struct tally_coordinator *coordinator);

/* Makes the given initial point of a job that is about to start: *ret_x is a new double[dim], or
 * NULL if it is not given. Precondition: !workers_lacks_start(job), !jobs_initial_is_unread(job).
 * Errors: those of jobs_initial_check(), DATA_LOSS (the earlier job is damaged). */
enum tally_status jobs_initial_make(struct tally_coordinator *coordinator,
                                    const struct hosted_job *job, double **ret_x,
                                    struct tally_error *err);

#endif
