/* worker_origin: tells the coordinator with which program, machine, data and code this worker
 * computes its updates of a job, for the job's provenance. */
#ifndef TALLY_SERVICES_WORKER_WORKER_ORIGIN_H
#define TALLY_SERVICES_WORKER_WORKER_ORIGIN_H

#include "services/worker/worker_state.h"

/* To be called before updates of a job are posted. Says it once in each session: a coordinator that
 * was killed may have lost what it was told before. Nothing depends on it, so a failure is at most
 * logged; if another attempt may help, the next call makes it. */
void origin_tell(struct worker *worker, struct job_copy *job);

#endif
