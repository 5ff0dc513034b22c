#include "services/worker/worker_calls.h"

/* Limits of silence, of which a call that waits for a task may have more: however slow the link is,
 * a call may go on while bytes move. */
enum {
    CALL_TIMEOUT_MS = 30000,
    POST_TIMEOUT_MS = 20000,
    POLL_GRACE_MS = 10000,
    LEAVE_TIMEOUT_MS = 2000
};

void call_buffers_fini(struct call_buffers *buffers)
{
    tally_buffer_fini(&buffers->request);
    tally_buffer_fini(&buffers->response);
}

/* Sends a request. `encoded` is the status of its encoding. */
static enum tally_status send_request(struct tally_http_client *client,
                                      struct call_buffers *buffers, const char *method,
                                      enum tally_status encoded, struct tally_bytes request,
                                      long timeout_ms, struct tally_error *err)
{
    buffers->response.size = 0;
    if (encoded != TALLY_OK) {
        return tally_fail(err, encoded, NULL, "no memory for %s", method);
    }
    if (buffers->limit_ms > 0 && buffers->limit_ms < timeout_ms) {
        timeout_ms = buffers->limit_ms;
    }
    enum tally_status status = tally_connect_call(client, method, request.data, request.size,
                                                  timeout_ms, &buffers->response, err);
    if (status != TALLY_OK) {
        tally_error_wrap(err, "%s", method);
    }
    return status;
}

/* Sends the content of buffers->request, and empties it. */
static enum tally_status perform(struct tally_http_client *client, struct call_buffers *buffers,
                                 const char *method, enum tally_status encoded, long timeout_ms,
                                 struct tally_error *err)
{
    const struct tally_bytes request = {buffers->request.data, buffers->request.size};
    buffers->request.size = 0;
    return send_request(client, buffers, method, encoded, request, timeout_ms, err);
}

enum tally_status call_join(struct tally_http_client *client, struct call_buffers *buffers,
                            const struct tally_join_request *message,
                            struct tally_join_response *ret, struct tally_error *err)
{
    enum tally_status encoded = tally_join_request_encode(message, &buffers->request);
    enum tally_status status = perform(client, buffers, "Join", encoded, CALL_TIMEOUT_MS, err);
    return status != TALLY_OK ? status
                              : tally_join_response_decode(buffers->response.data,
                                                           buffers->response.size, ret, err);
}

enum tally_status call_poll(struct tally_http_client *client, struct call_buffers *buffers,
                            const struct tally_poll_request *message,
                            struct tally_poll_response *ret, struct tally_error *err)
{
    enum tally_status encoded = tally_poll_request_encode(message, &buffers->request);
    enum tally_status status =
        perform(client, buffers, "PollTask", encoded, (long)message->wait_ms + POLL_GRACE_MS, err);
    return status != TALLY_OK ? status
                              : tally_poll_response_decode(buffers->response.data,
                                                           buffers->response.size, ret, err);
}

enum tally_status call_update(struct tally_http_client *client, struct call_buffers *buffers,
                              const struct tally_update_request *whole,
                              struct tally_buffer *updates, uint32_t wait_ms,
                              struct tally_update_response *ret, struct tally_error *err)
{
    const size_t n_before = updates->size;
    struct tally_update_request rest = *whole;
    rest.session = 0;
    tally_session_write_first(whole->session, updates->data);
    enum tally_status encoded = tally_update_request_end(&rest, updates);
    const struct tally_bytes request = {updates->data, updates->size};
    updates->size = n_before;
    enum tally_status status = send_request(client, buffers, "PostUpdate", encoded, request,
                                            POST_TIMEOUT_MS + (long)wait_ms, err);
    if (status == TALLY_OK) {
        status =
            tally_update_response_decode(buffers->response.data, buffers->response.size, ret, err);
    }
    return status == TALLY_OK && ret->n_results != 0 && ret->n_results != whole->n_updates
               ? tally_fail(err, TALLY_MALFORMED, "results", "%zu results for %zu updates",
                            ret->n_results, whole->n_updates)
               : status;
}

enum tally_status call_progress(struct tally_http_client *client, struct call_buffers *buffers,
                                const struct tally_progress_request *message,
                                struct tally_error *err)
{
    enum tally_status encoded = tally_progress_request_encode(message, &buffers->request);
    return perform(client, buffers, "Progress", encoded, CALL_TIMEOUT_MS, err);
}

enum tally_status call_describe(struct tally_http_client *client, struct call_buffers *buffers,
                                const struct tally_describe_request *message,
                                struct tally_error *err)
{
    enum tally_status encoded = tally_describe_request_encode(message, &buffers->request);
    return perform(client, buffers, "Describe", encoded, CALL_TIMEOUT_MS, err);
}

enum tally_status call_leave(struct tally_http_client *client, struct call_buffers *buffers,
                             uint64_t session, struct tally_error *err)
{
    enum tally_status encoded = tally_leave_request_encode(session, &buffers->request);
    return perform(client, buffers, "Leave", encoded, LEAVE_TIMEOUT_MS, err);
}
