/* job_name: what a person calls a job: its id, the beginning of its id, or "latest".
 *
 * A beginning must be that of one job alone. It is looked for only after the coordinator knows no
 * job of that name, so that a whole id costs one request. "latest" is the newest job. */
#ifndef TALLY_SERVICES_REST_CLIENT_JOB_NAME_H
#define TALLY_SERVICES_REST_CLIENT_JOB_NAME_H

#include "services/rest_client/rest_client.h"

enum { TALLY_JOB_WORD_CAPACITY = 80 };

/* As tally_rest_call() for the path of the job with `rest` behind it; sets exchange->path. `name`
 * becomes the id that was found. Errors: also NOT_FOUND (no job), INVALID_ARGUMENT (several). */
enum tally_status tally_job_call(struct tally_rest_client *client,
                                 char name[TALLY_JOB_WORD_CAPACITY], const char *rest,
                                 struct tally_http_exchange *exchange, struct tally_error *err);
/* The same, and parses the response; the caller frees *ret_value. */
enum tally_status tally_job_call_json(struct tally_rest_client *client,
                                      char name[TALLY_JOB_WORD_CAPACITY], const char *rest,
                                      struct tally_http_exchange *exchange,
                                      struct tally_json **ret_value, struct tally_error *err);
/* GET as JSON. */
enum tally_status tally_job_get_json(struct tally_rest_client *client,
                                     char name[TALLY_JOB_WORD_CAPACITY], const char *rest,
                                     struct tally_json **ret_value, struct tally_error *err);

#endif
