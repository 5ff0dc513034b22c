/* fake_http: requests without a network. Its functions replace those of the HTTP server. */
#ifndef TALLY_TESTS_UNIT_SERVICES_COORDINATOR_FAKE_HTTP_H
#define TALLY_TESTS_UNIT_SERVICES_COORDINATOR_FAKE_HTTP_H

#include <stdbool.h>

#include "api/http/http_line.h"
#include "api/http/http_server.h"

struct tally_http_stream {
    struct tally_http_stream_config config;
    bool is_open, ended;
};

struct tally_http_request {
    const char *method, *path, *content_type, *accept;
    const char *query_name, *query_value; /* one parameter; NULL = none */
    struct tally_buffer body;
    void *user;
    int status; /* of the response; 0 = none yet */
    struct tally_buffer response;
    struct tally_http_stream stream;
};

/* Frees what the request and its response hold. */
void fake_request_fini(struct tally_http_request *request);
/* The response as text, NUL-terminated. */
const char *fake_response_text(struct tally_http_request *request);

#endif
