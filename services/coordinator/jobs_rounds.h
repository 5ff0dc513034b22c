/* jobs_rounds: what follows when a round closes or a client is absent, in the step's transaction.
 *
 * A slot records whether its client is absent: its worker's session has ended and no other worker
 * has taken the client, or it has missed a round's deadline and its worker has been silent since.
 * Once per turn, after everything that could change this, the engine gets what has changed
 * (rounds_settle_absence). So a client that moves from one worker to another within a turn was
 * never absent, and nothing is forgotten if a failed commit rolls the engine back. */
#ifndef TALLY_SERVICES_COORDINATOR_JOBS_ROUNDS_H
#define TALLY_SERVICES_COORDINATOR_JOBS_ROUNDS_H

#include <stdbool.h>

#include "services/coordinator/hosted_job.h"

struct tally_coordinator;

/* Starts the clocks of the open round, and of what the job waits for, now. */
void rounds_restart_clock(struct hosted_job *job);
/* As rounds_restart_clock(), for a job read from the store, whose workers must return first. */
void rounds_restart_clock_after_outage(struct hosted_job *job);
/* Restarts the deadlines of rounds once the store accepts writes again, including the updates that
 * it refused before. */
void rounds_restart_clocks_after_outage(struct tally_coordinator *coordinator);
/* Whether an event of the engine closed a round or ended the job. */
bool rounds_has_closed(const struct hosted_job *job, const struct tally_job_outcome *outcome);
/* Stores what the event closed, in the open transaction, and calls rounds_note_closed(). Errors:
 * STORE. */
enum tally_status rounds_put_closed(struct tally_coordinator *coordinator, struct hosted_job *job,
                                    const struct tally_job_outcome *outcome,
                                    struct tally_error *err);
/* To be called when a round has closed or the job has ended. */
void rounds_note_closed(struct tally_coordinator *coordinator, struct hosted_job *job);
/* Whether deadlines and absence may write. While the store fails, every attempt would be undone and
 * logged. */
bool rounds_store_is_well(const struct tally_coordinator *coordinator);
/* Tells the engines which clients are absent and which are back. Writes. */
void rounds_settle_absence(struct tally_coordinator *coordinator);

#endif
