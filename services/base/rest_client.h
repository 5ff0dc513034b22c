/* rest_client: calls of the coordinator's REST interface, for the commands of `tally` and for its
 * benchmark. */
#ifndef TALLY_SERVICES_BASE_REST_CLIENT_H
#define TALLY_SERVICES_BASE_REST_CLIENT_H

#include <stdbool.h>

#include "api/client/http_client.h"
#include "api/json/json.h"
#include "codec/buffer.h"
#include "codec/error.h"

struct tally_rest_client {
    struct tally_http_client *http; /* NULL = no coordinator is configured */
    struct tally_buffer body;       /* of the last response */
    const char *url;                /* of the configuration, for messages */
    bool has_token;
};

/* Creates the HTTP client; sends nothing. Borrows config->base_url. Errors: those of
 * tally_http_client_new(). */
enum tally_status tally_rest_client_init(struct tally_rest_client *client,
                                         const struct tally_http_client_config *config,
                                         struct tally_error *err);
/* A zeroed struct is allowed. */
void tally_rest_client_fini(struct tally_rest_client *client);

/* Sends the request and reads the response into client->body. A response outside 2xx is returned as
 * the error that its problem document describes. Other errors: those of tally_http_perform(). If no
 * coordinator responds, or a token is missing, the message says what to do. */
enum tally_status tally_rest_call(struct tally_rest_client *client,
                                  struct tally_http_exchange *exchange, struct tally_error *err);
/* Also parses the body; the caller frees *ret_value. Further errors: MALFORMED. */
enum tally_status tally_rest_call_json(struct tally_rest_client *client,
                                       struct tally_http_exchange *exchange,
                                       struct tally_json **ret_value, struct tally_error *err);
/* GET `path` as JSON. */
enum tally_status tally_rest_get_json(struct tally_rest_client *client, const char *path,
                                      struct tally_json **ret_value, struct tally_error *err);

/* ---- Paths of the REST interface below /v1/jobs/{id}. */

enum { TALLY_JOB_PATH_CAPACITY = 320, TALLY_QUERY_VALUE_CAPACITY = 512 };

/* "/v1/jobs/" + id + rest. All characters of the id but letters, digits, '-' and '_' are
 * percent-encoded, so that an id with '/' or ".." cannot lead to another path. An id is cut after
 * 64 bytes or more; a cut id is never found, because ids have at most 32. */
void tally_job_path(const char *id, const char *rest, char ret_path[TALLY_JOB_PATH_CAPACITY]);

/* Percent-encodes a query value in the same way. False if it does not fit. */
bool tally_query_value(const char *text, char ret_text[TALLY_QUERY_VALUE_CAPACITY]);

/* ---- How a user names a job: its id, a prefix of its id, or "latest", the newest job.
 *
 * A prefix must match only one job. Ids are searched only if the coordinator has no job with
 * exactly that id, so that a complete id costs one request. */

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

/* `--health` of tally-coordinator and tally-worker, for the health checks of
 * containers. */

/* Asks the coordinator whether it is ready, for at most 3 s. Prints "ready" on stdout, or why not
 * on stderr after the name of `program`; returns an exit code, 0 or 1. */
int tally_health_print(const struct tally_http_client_config *config, const char *program);

#endif
