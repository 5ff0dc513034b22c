/* job_status_moves: the transitions of a job's status, as one table. */
#ifndef TALLY_SERVICES_JOB_JOB_STATUS_MOVES_H
#define TALLY_SERVICES_JOB_JOB_STATUS_MOVES_H

#include "codec/error.h"
#include "codec/record.h"

enum tally_job_event {
    TALLY_EVENT_START,
    TALLY_EVENT_PAUSE,
    TALLY_EVENT_RESUME,
    TALLY_EVENT_COMPLETE,
    TALLY_EVENT_FAIL,
    TALLY_EVENT_CANCEL,
    TALLY_N_JOB_EVENTS
};

/* Applies the event to *status. Errors, after which *status is unchanged: FAILED_PRECONDITION, with
 * a message that names the status and the event. */
enum tally_status tally_job_move(enum tally_job_status *status, enum tally_job_event event,
                                 struct tally_error *err);

#endif
