/* job_name: how a user names a job: its id, a prefix of its id, or "latest", the newest job.
 *
 * A prefix must match only one job. Ids are searched only if the coordinator has no job with
 * exactly that id, so that a complete id costs one request. */
#ifndef TALLY_SERVICES_BASE_JOB_NAME_H
#define TALLY_SERVICES_BASE_JOB_NAME_H

#include "services/base/rest_client.h"

enum { TALLY_JOB_WORD_CAPACITY = 80 };

/* As tally_rest_call() for the path of the job followed by `rest`; sets exchange->path. Replaces
 * `name` by the id that was found. Errors: also NOT_FOUND (no job), INVALID_ARGUMENT (several). */
enum tally_status tally_job_call(struct tally_rest_client *client,
                                 char name[TALLY_JOB_WORD_CAPACITY], const char *rest,
                                 struct tally_http_exchange *exchange, struct tally_error *err);
/* As tally_job_call(), and parses the response; the caller frees *ret_value. */
enum tally_status tally_job_call_json(struct tally_rest_client *client,
                                      char name[TALLY_JOB_WORD_CAPACITY], const char *rest,
                                      struct tally_http_exchange *exchange,
                                      struct tally_json **ret_value, struct tally_error *err);
/* GET as JSON. */
enum tally_status tally_job_get_json(struct tally_rest_client *client,
                                     char name[TALLY_JOB_WORD_CAPACITY], const char *rest,
                                     struct tally_json **ret_value, struct tally_error *err);

#endif
