#include "services/job/job_reasons.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "codec/utf8.h"

#define ROW(name, code, status) code, TALLY_JOB_##status, TALLY_REASON_FORMAT_##name
const struct tally_reason_info TALLY_REASON_INFO[TALLY_N_REASONS] = {
    [TALLY_REASON_STOP_RULE_MET] = {ROW(STOP_RULE_MET, "stop_rule_met", COMPLETED),
                                    "services/job/job_stopping.c",
                                    "A rule of the document's `stop` was met. `stopped_by` of the "
                                    "job detail says which.",
                                    "nothing is wrong"},
    [TALLY_REASON_HORIZON_REACHED] = {ROW(HORIZON_REACHED, "horizon_reached", COMPLETED),
                                      "services/job/job_round.c",
                                      "The clients have made all `horizon` gradient queries.",
                                      "nothing is wrong"},
    [TALLY_REASON_CANCELLED_BY_REQUEST] =
        {ROW(CANCELLED_BY_REQUEST, "cancelled_by_request", CANCELLED),
         "services/coordinator/rest_jobs.c",
         "`tally cancel` or `POST /v1/jobs/{id}/cancel` ended the job.", "submit it again"},
    [TALLY_REASON_PREPARATION_FAILED] =
        {ROW(PREPARATION_FAILED, "preparation_failed", FAILED),
         "services/coordinator/jobs_lifecycle.c",
         "The coordinator could not read the data files or the initial point, or could not compute "
         "f(x*).",
         "correct the file that the text names, or the members of `data`; if f(x) has no minimum, "
         "give an `l2`, a bounded `domain` or a `reference` of type `none`"},
    [TALLY_REASON_NO_WORKER_CAN_SERVE] =
        {ROW(NO_WORKER_CAN_SERVE, "no_worker_can_serve", FAILED),
         "services/coordinator/workers_updates.c",
         "Every worker that is present has refused the job, because it lacks the data files or "
         "because the job's plug-in crashed or hung there. The text gives the last refusal.",
         "give the workers the data files that the text names, or repair the plug-in"},
    [TALLY_REASON_CLIENT_FAILED] =
        {ROW(CLIENT_FAILED, "client_failed", FAILED), "services/coordinator/workers_updates.c",
         "A client could not compute its update, usually because its local steps diverged, or "
         "because its training loop failed four times in one round.",
         "a smaller `step_size`; the worker's log has what the training loop raised"},
    [TALLY_REASON_COLUMNS_DIFFER] =
        {ROW(COLUMNS_DIFFER, "columns_differ", FAILED), "services/coordinator/workers_updates.c",
         "Two workers, or a worker and the coordinator, have CSV files whose headers name "
         "different columns, or the same ones in another order, so a coordinate is not the same "
         "feature for both.",
         "give both processes files with the same header; with `{client}` files, the header of the "
         "first file that each reads counts"},
    [TALLY_REASON_SURVEY_FAILED] =
        {ROW(SURVEY_FAILED, "survey_failed", FAILED), "services/job/job_round.c",
         "The means and deviations of the features of all clients could not be computed, usually "
         "because a column has no value at any point of any client.",
         "remove the column that the text names from all files"},
    [TALLY_REASON_DIVERGED] = {ROW(DIVERGED, "diverged", FAILED), "services/job/job_round.c",
                               "The average of the updates, a parameter estimated from them, or "
                               "the regret is not finite.",
                               "a smaller `step_size`"},
    [TALLY_REASON_ALGORITHM_FAILED] =
        {ROW(ALGORITHM_FAILED, "algorithm_failed", FAILED), "services/job/job_round.c",
         "The algorithm cannot open or close a round, usually because the next stage needs more "
         "quantizer levels than a message can have.",
         "a larger `gamma0` or `phi0`, or a shorter `horizon`"},
    [TALLY_REASON_QUORUM_MISSED] =
        {ROW(QUORUM_MISSED, "quorum_missed", FAILED), "services/job/job_stragglers.c",
         "Policy `fail`: when `round_deadline_ms` had passed, fewer than `quorum` clients had "
         "answered.",
         "a longer `round_deadline_ms`, a smaller `quorum`, or policy `drop`"},
    [TALLY_REASON_JOB_DEADLINE_PASSED] =
        {ROW(JOB_DEADLINE_PASSED, "job_deadline_passed", FAILED),
         "services/coordinator/workers_deadlines.c",
         "The job did not end within `job_deadline_ms` of its submission. The text says what it "
         "waited for.",
         "remove the cause of the wait, or set a longer `job_deadline_ms`"},
    [TALLY_REASON_STORED_JOB_DAMAGED] =
        {ROW(STORED_JOB_DAMAGED, "stored_job_damaged", FAILED), "services/coordinator/jobs_live.c",
         "A stored part of the job has a wrong checksum, or does not fit the other parts.",
         "restore a backup"},
};

static const char SEPARATOR[] = ": ";

void tally_reason_write(char ret_stored[TALLY_REASON_CAPACITY], enum tally_reason reason,
                        const char *format, ...)
{
    const int n = snprintf(ret_stored, TALLY_REASON_CAPACITY, "%s%s",
                           TALLY_REASON_INFO[reason].code, SEPARATOR);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(ret_stored + n, TALLY_REASON_CAPACITY - (size_t)n, format, arguments);
    va_end(arguments);
    ret_stored[tally_utf8_valid_prefix(ret_stored, strlen(ret_stored))] = '\0';
}

/* The text after "code: ", or NULL if `stored` does not begin with it. */
static const char *text_after(const char *code, const char *stored)
{
    const size_t n = strlen(code);
    const bool begins =
        strncmp(stored, code, n) == 0 && strncmp(stored + n, SEPARATOR, sizeof SEPARATOR - 1) == 0;
    return begins ? stored + n + sizeof SEPARATOR - 1 : NULL;
}

const char *tally_reason_read(enum tally_job_status status, const char *stored,
                              const char **ret_text)
{
    *ret_text = stored;
    for (int i = 0; i < TALLY_N_REASONS; i++) {
        const struct tally_reason_info *info = &TALLY_REASON_INFO[i];
        const char *text = text_after(info->code, stored);
        if (info->status == status && (info->format[0] == '\0' || text != NULL)) {
            *ret_text = text != NULL ? text : stored;
            return info->code;
        }
    }
    return NULL;
}
