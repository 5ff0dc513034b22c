/* job_path: paths of the REST interface below /v1/jobs/{id}. */
#ifndef TALLY_SERVICES_REST_CLIENT_JOB_PATH_H
#define TALLY_SERVICES_REST_CLIENT_JOB_PATH_H

#include <stdbool.h>

enum { TALLY_JOB_PATH_CAPACITY = 320, TALLY_QUERY_VALUE_CAPACITY = 512 };

/* "/v1/jobs/" + id + rest. All of the id that is not a letter, digit, '-' or '_' is
 * percent-encoded, so that an id typed with '/' or ".." asks for that job and no other path. An id
 * is cut past 64 bytes or more: ids have 32 at most, so that a cut one is not found either. */
void tally_job_path(const char *id, const char *rest, char ret_path[TALLY_JOB_PATH_CAPACITY]);

/* Percent-encodes a query value in the same way. False if it does not fit. */
bool tally_query_value(const char *text, char ret_text[TALLY_QUERY_VALUE_CAPACITY]);

#endif
