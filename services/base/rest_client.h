/* rest_client: calls of the coordinator's REST interface, for the commands of `tally` and for its
 * benchmark. */
#ifndef TALLY_SERVICES_BASE_REST_CLIENT_H
#define TALLY_SERVICES_BASE_REST_CLIENT_H

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

#endif
