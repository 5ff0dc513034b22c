/* job_path: paths of the REST interface below /v1/jobs/{id}. */
#ifndef TALLY_SERVICES_BASE_JOB_PATH_H
#define TALLY_SERVICES_BASE_JOB_PATH_H

#include <stdbool.h>

enum { TALLY_JOB_PATH_CAPACITY = 320, TALLY_QUERY_VALUE_CAPACITY = 512 };

/* "/v1/jobs/" + id + rest. All characters of the id but letters, digits, '-' and '_' are
 * percent-encoded, so that an id with '/' or ".." cannot lead to another path. An id is cut after
 * 64 bytes or more; a cut id is never found, because ids have at most 32. */
void tally_job_path(const char *id, const char *rest, char ret_path[TALLY_JOB_PATH_CAPACITY]);

/* Percent-encodes a query value in the same way. False if it does not fit. */
bool tally_query_value(const char *text, char ret_text[TALLY_QUERY_VALUE_CAPACITY]);

#endif
