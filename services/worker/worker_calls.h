/* worker_calls: the methods of tally.v1.WorkerService as functions from struct to struct. */
#ifndef TALLY_SERVICES_WORKER_WORKER_CALLS_H
#define TALLY_SERVICES_WORKER_WORKER_CALLS_H

#include "api/client/http_client.h"
#include "api/worker/worker_messages.h"

/* Buffers that are reused from call to call. A decoded poll response borrows from `response` until
 * the next call. */
struct call_buffers {
    struct tally_buffer request;
    struct tally_buffer response;
    long limit_ms; /* the longest that the next calls may be silent; 0 = no such limit */
};
void call_buffers_fini(struct call_buffers *buffers);

/* In call_update(), `wait_ms` is that of the poll that the update carries, or 0, and `next` in the
 * response borrows as a poll response does. Errors: those of tally_connect_call(), and MALFORMED
 * for a response that cannot be read. */
enum tally_status call_join(struct tally_http_client *client, struct call_buffers *buffers,
                            const struct tally_join_request *message,
                            struct tally_join_response *ret, struct tally_error *err);
enum tally_status call_poll(struct tally_http_client *client, struct call_buffers *buffers,
                            const struct tally_poll_request *message,
                            struct tally_poll_response *ret, struct tally_error *err);
/* `updates` holds the field of a session, which is replaced, and the whole->n_updates updates that
 * tally_update_request_add() has written, and is otherwise unchanged afterwards. Errors: as above,
 * and MALFORMED if the number of results is neither 0 nor whole->n_updates. */
enum tally_status call_update(struct tally_http_client *client, struct call_buffers *buffers,
                              const struct tally_update_request *whole,
                              struct tally_buffer *updates, uint32_t wait_ms,
                              struct tally_update_response *ret, struct tally_error *err);
enum tally_status call_progress(struct tally_http_client *client, struct call_buffers *buffers,
                                const struct tally_progress_request *message,
                                struct tally_error *err);
enum tally_status call_describe(struct tally_http_client *client, struct call_buffers *buffers,
                                const struct tally_describe_request *message,
                                struct tally_error *err);
enum tally_status call_leave(struct tally_http_client *client, struct call_buffers *buffers,
                             uint64_t session, struct tally_error *err);

#endif
