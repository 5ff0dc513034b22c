#include "codec/base/record.h"

#include <math.h>
#include <string.h>

static const struct {
    const char *name;
    bool terminal;
} JOB_STATUS[] = {
#define TALLY_JOB_STATUS_ROW(symbol, name, terminal) {name, terminal},
    TALLY_JOB_STATUS_TABLE(TALLY_JOB_STATUS_ROW)
#undef TALLY_JOB_STATUS_ROW
};

const char *tally_job_status_name(enum tally_job_status status)
{
    return JOB_STATUS[status].name;
}

bool tally_job_status_is_terminal(enum tally_job_status status)
{
    return JOB_STATUS[status].terminal;
}

bool tally_job_status_of_name(const char *name, enum tally_job_status *ret_status)
{
    for (int i = 0; i < TALLY_N_JOB_STATUS; i++) {
        if (strcmp(JOB_STATUS[i].name, name) == 0) {
            *ret_status = (enum tally_job_status)i;
            return true;
        }
    }
    return false;
}

double tally_progress_loss(const struct tally_progress *progress)
{
    return progress->round > 0 ? progress->loss : (double)NAN;
}
