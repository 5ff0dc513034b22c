/* load: many keep-alive HTTP/1.1 connections from one thread to a server on this machine, each with
 * at most one pending request: the load generator of `tests/bench/run coordinator`.
 *
 * Sockets are non-blocking and in one edge-triggered epoll set, so that an exchange costs one
 * system call to send and one to receive: sendmsg() gathers head, message and tail, and the
 * response is read until its Content-Length is complete. A connection that the server closes
 * (`Connection: close`) is reopened. Requests have the headers of Tally's own worker
 * (api/client/http_client.c), because their bytes are counted. */
#ifndef TALLY_TESTS_BENCH_LOAD_H
#define TALLY_TESTS_BENCH_LOAD_H

#include <stddef.h>
#include <stdint.h>

#include "codec/error.h"

struct tally_load;

/* The body of a request in three parts, any of which may be empty. The middle one is not copied: it
 * must stay valid until the response has arrived. */
struct tally_load_body {
    const void *begin, *middle, *end;
    size_t n_begin, n_middle, n_end;
};

struct tally_load_answer {
    int status; /* of HTTP */
    const uint8_t *body;
    size_t n_body;
    int64_t ns; /* since the call of tally_load_post() */
};

/* Bytes on the wire of completed exchanges. */
struct tally_load_bytes {
    uint64_t wire;   /* whole requests and responses */
    uint64_t bodies; /* only their bodies */
};

/* Called when a connection has received its response; may post the next request. Any result but
 * TALLY_OK ends the step. */
typedef enum tally_status tally_load_answer_fn(void *context, uint32_t connection,
                                               const struct tally_load_answer *answer,
                                               struct tally_error *err);

/* Connects n times to the port of 127.0.0.1. Errors: UNAVAILABLE, NO_MEMORY. */
enum tally_status tally_load_new(uint16_t port, uint32_t n, tally_load_answer_fn *on_answer,
                                 void *context, struct tally_load **ret_load,
                                 struct tally_error *err);
/* NULL is allowed. */
void tally_load_free(struct tally_load *load);

/* POSTs to the path. Precondition: the connection waits for no response. Errors: UNAVAILABLE (the
 * connection broke), NO_MEMORY. */
enum tally_status tally_load_post(struct tally_load *load, uint32_t connection, const char *path,
                                  const struct tally_load_body *body, struct tally_error *err);

/* Waits at most timeout_ms for the network and serves what is ready. Sets *ret_n to the number of
 * responses received. Errors: UNAVAILABLE (a connection broke, or a response is not HTTP),
 * NO_MEMORY, CANCELLED (a signal), those of on_answer. */
enum tally_status tally_load_step(struct tally_load *load, int timeout_ms, uint32_t *ret_n,
                                  struct tally_error *err);

struct tally_load_bytes tally_load_bytes(const struct tally_load *load);

#endif
