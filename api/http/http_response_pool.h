/* http_response_pool: short responses that are reused, together with MHD's response objects.
 *
 * MHD fixes the length of the body and the headers when a response is made, but not the bytes. So a
 * response that has been sent is kept for the next one of the same length. In the steady state a
 * short response allocates nothing. */
#ifndef TALLY_API_HTTP_HTTP_RESPONSE_POOL_H
#define TALLY_API_HTTP_HTTP_RESPONSE_POOL_H

#include <microhttpd.h>
#include <stddef.h>
#include <stdint.h>

enum {
    HTTP_POOLED_MAX_BYTES = 1024,
    HTTP_MAX_POOLED = 1024 /* responses that exist, in use or not */
};

struct http_pooled_response {
    struct http_pooled_response *next; /* while it is not in use */
    struct MHD_Response *response;
    size_t n;
    uint8_t bytes[];
};

struct http_response_pool {
    const char *content_type; /* of all of them, and their only header */
    struct http_pooled_response *by_length[HTTP_POOLED_MAX_BYTES + 1];
    unsigned n, n_waiting;
};

/* A response with these bytes; NULL if they are too many, all responses are in use, or memory ran
 * out. */
struct http_pooled_response *http_response_pool_take(struct http_response_pool *pool,
                                                     const uint8_t *bytes, size_t n);
/* MHD no longer needs it. */
void http_response_pool_give_back(struct http_response_pool *pool,
                                  struct http_pooled_response *pooled);
/* Frees the responses that are not in use. */
void http_response_pool_clear(struct http_response_pool *pool);

#endif
