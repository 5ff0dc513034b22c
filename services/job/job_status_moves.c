#include "services/job/job_status_moves.h"

#include <stddef.h>

/* Every pair that is not listed is refused. */
static const struct {
    enum tally_job_status from;
    enum tally_job_event event;
    enum tally_job_status to;
} MOVES[] = {
    {TALLY_JOB_QUEUED, TALLY_EVENT_START, TALLY_JOB_RUNNING},
    {TALLY_JOB_QUEUED, TALLY_EVENT_FAIL, TALLY_JOB_FAILED},
    {TALLY_JOB_QUEUED, TALLY_EVENT_CANCEL, TALLY_JOB_CANCELLED},
    {TALLY_JOB_RUNNING, TALLY_EVENT_PAUSE, TALLY_JOB_PAUSED},
    {TALLY_JOB_RUNNING, TALLY_EVENT_COMPLETE, TALLY_JOB_COMPLETED},
    {TALLY_JOB_RUNNING, TALLY_EVENT_FAIL, TALLY_JOB_FAILED},
    {TALLY_JOB_RUNNING, TALLY_EVENT_CANCEL, TALLY_JOB_CANCELLED},
    {TALLY_JOB_PAUSED, TALLY_EVENT_RESUME, TALLY_JOB_RUNNING},
    {TALLY_JOB_PAUSED, TALLY_EVENT_COMPLETE, TALLY_JOB_COMPLETED}, /* by updates while paused */
    {TALLY_JOB_PAUSED, TALLY_EVENT_FAIL, TALLY_JOB_FAILED},
    {TALLY_JOB_PAUSED, TALLY_EVENT_CANCEL, TALLY_JOB_CANCELLED},
};

static const char *const EVENT_NAMES[TALLY_N_JOB_EVENTS] = {"start",    "pause", "resume",
                                                            "complete", "fail",  "cancel"};

enum tally_status tally_job_move(enum tally_job_status *status, enum tally_job_event event,
                                 struct tally_error *err)
{
    for (size_t i = 0; i < sizeof MOVES / sizeof MOVES[0]; i++) {
        if (MOVES[i].from == *status && MOVES[i].event == event) {
            *status = MOVES[i].to;
            return TALLY_OK;
        }
    }
    return tally_fail(err, TALLY_FAILED_PRECONDITION, NULL, "cannot %s a job that is %s",
                      EVENT_NAMES[event], tally_job_status_name(*status));
}
