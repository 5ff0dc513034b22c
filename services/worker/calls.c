#include "services/worker/calls.h"

enum { CALL_TIMEOUT_MS = 30000, POLL_GRACE_MS = 10000, LEAVE_TIMEOUT_MS = 2000 };

void call_buffers_fini(struct call_buffers *buffers)
{
    tally_buffer_fini(&buffers->request);
    tally_buffer_fini(&buffers->response);
}

/* Sends what buffers->request holds, which encoding left in status `encoded`, and empties it. */
static enum tally_status perform(struct tally_http_client *client, struct call_buffers *buffers,
                                 const char *method, enum tally_status encoded, long timeout_ms,
                                 struct tally_error *err)
{
    const size_t n = buffers->request.size;
    buffers->request.size = buffers->response.size = 0;
    if (encoded != TALLY_OK) {
        return tally_fail(err, encoded, NULL, "no memory for %s", method);
    }
    if (buffers->limit_ms > 0 && buffers->limit_ms < timeout_ms) {
        timeout_ms = buffers->limit_ms;
    }
    enum tally_status status = tally_connect_call(client, method, buffers->request.data, n,
                                                  timeout_ms, &buffers->response, err);
    if (status != TALLY_OK) {
        tally_error_wrap(err, "%s", method);
    }
    return status;
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
                              const struct tally_update *message, uint32_t wait_ms,
                              struct tally_update_response *ret, struct tally_error *err)
{
    enum tally_status encoded = tally_update_encode(message, &buffers->request);
    enum tally_status status =
        perform(client, buffers, "PostUpdate", encoded, CALL_TIMEOUT_MS + (long)wait_ms, err);
    return status != TALLY_OK ? status
                              : tally_update_response_decode(buffers->response.data,
                                                             buffers->response.size, ret, err);
}

enum tally_status call_leave(struct tally_http_client *client, struct call_buffers *buffers,
                             uint64_t session, struct tally_error *err)
{
    enum tally_status encoded = tally_leave_request_encode(session, &buffers->request);
    return perform(client, buffers, "Leave", encoded, LEAVE_TIMEOUT_MS, err);
}
