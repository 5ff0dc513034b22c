/* job_reasons: why a job ended. One table lists every reason: its code, the status that it
 * explains, the format of its text, the source file that sets it, its meaning, and a remedy.
 *
 * Code and text are stored together as "code: text". A job that was cancelled, or that has reached
 * its horizon, has no text, and its status gives the code.
 *
 * REASONS.md beside this file is generated from the table. */
#ifndef TALLY_SERVICES_JOB_JOB_REASONS_H
#define TALLY_SERVICES_JOB_JOB_REASONS_H

#include "codec/record.h"

enum { TALLY_REASON_CAPACITY = 384 }; /* of "code: text", with NUL */

enum tally_reason {
    TALLY_REASON_STOP_RULE_MET, /* before the next one, which any completed job has without it */
    TALLY_REASON_HORIZON_REACHED,
    TALLY_REASON_CANCELLED_BY_REQUEST,
    TALLY_REASON_PREPARATION_FAILED,
    TALLY_REASON_NO_WORKER_CAN_SERVE,
    TALLY_REASON_CLIENT_FAILED,
    TALLY_REASON_COLUMNS_DIFFER,
    TALLY_REASON_SURVEY_FAILED,
    TALLY_REASON_DIVERGED,
    TALLY_REASON_ALGORITHM_FAILED,
    TALLY_REASON_QUORUM_MISSED,
    TALLY_REASON_JOB_DEADLINE_PASSED,
    TALLY_REASON_STORED_JOB_DAMAGED,
    TALLY_N_REASONS
};

/* printf formats of the texts, "" = no text; TALLY_REASON_WRITE checks the arguments against them.
 */
#define TALLY_REASON_FORMAT_STOP_RULE_MET        "%s"
#define TALLY_REASON_FORMAT_HORIZON_REACHED      ""
#define TALLY_REASON_FORMAT_CANCELLED_BY_REQUEST ""
#define TALLY_REASON_FORMAT_PREPARATION_FAILED   "%s"
#define TALLY_REASON_FORMAT_NO_WORKER_CAN_SERVE  "no worker can serve the job; %s: %s"
#define TALLY_REASON_FORMAT_CLIENT_FAILED        "client %u in round %u: %s"
#define TALLY_REASON_FORMAT_COLUMNS_DIFFER                                                         \
    "the CSV files of worker %s (client %u) have other columns than those of %s, or the same in "  \
    "another order"
#define TALLY_REASON_FORMAT_SURVEY_FAILED    "%s"
#define TALLY_REASON_FORMAT_DIVERGED         "%s"
#define TALLY_REASON_FORMAT_ALGORITHM_FAILED "%s"
#define TALLY_REASON_FORMAT_QUORUM_MISSED                                                          \
    "round %lld has %lld of %lld answers after %lld ms; quorum: %lld; missing clients: %s"
#define TALLY_REASON_FORMAT_JOB_DEADLINE_PASSED "job deadline of %lld ms has passed: %s, %s"
#define TALLY_REASON_FORMAT_STORED_JOB_DAMAGED  "%s"

struct tally_reason_info {
    const char *code;
    enum tally_job_status status;
    const char *format;
    const char *file; /* the source file that sets it */
    const char *meaning, *remedy;
};
extern const struct tally_reason_info TALLY_REASON_INFO[TALLY_N_REASONS];

/* Writes "code: text" of the reason `name`, a suffix of the enum, truncated at a character
 * boundary. The other arguments are those of its format. */
#define TALLY_REASON_WRITE(ret_stored, name, ...)                                                  \
    tally_reason_write(ret_stored, TALLY_REASON_##name, TALLY_REASON_FORMAT_##name, __VA_ARGS__)
void tally_reason_write(char ret_stored[TALLY_REASON_CAPACITY], enum tally_reason reason,
                        const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Splits the stored reason of a job. *ret_text borrows from `stored`, "" = no text. Returns the
 * code, NULL if the job has not ended. */
const char *tally_reason_read(enum tally_job_status status, const char *stored,
                              const char **ret_text);

#endif
