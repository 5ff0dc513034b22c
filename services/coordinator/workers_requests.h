/* workers_requests: what the methods of tally.v1.WorkerService have in common. */
#ifndef TALLY_SERVICES_COORDINATOR_WORKERS_REQUESTS_H
#define TALLY_SERVICES_COORDINATOR_WORKERS_REQUESTS_H

#include "services/coordinator/session.h"

/* The protobuf body of a Connect request. Errors: INVALID_ARGUMENT (the version),
 * UNSUPPORTED_MEDIA_TYPE. */
enum tally_status read_connect_body(struct call *call, const uint8_t **ret_body, size_t *ret_size,
                                    struct tally_error *err);
/* The response is call->body if `encoded` is OK. Errors: `encoded`. */
enum tally_status answer_protobuf(struct call *call, enum tally_status encoded,
                                  struct tally_error *err);
/* The caller's session; notes that its worker has called. Errors: NOT_FOUND, PERMISSION_DENIED (a
 * different token). */
enum tally_status find_session(struct tally_coordinator *coordinator, const struct call *call,
                               uint64_t id, struct session **ret_session, struct tally_error *err);
/* Defines read_NAME(), which decodes a call's message, a struct tally_NAME, and finds its session
 * with `find`, which is find_session() or has its type. */
#define DEFINE_READ_MESSAGE(name, find)                                                            \
    static enum tally_status read_##name(struct tally_coordinator *coordinator, struct call *call, \
                                         struct tally_##name *ret_message,                         \
                                         struct session **ret_session, struct tally_error *err)    \
    {                                                                                              \
        const uint8_t *body = NULL;                                                                \
        size_t n_body = 0;                                                                         \
        enum tally_status status = read_connect_body(call, &body, &n_body, err);                   \
        if (status == TALLY_OK) {                                                                  \
            status = tally_##name##_decode(body, n_body, ret_message, err);                        \
        }                                                                                          \
        return status == TALLY_OK                                                                  \
                   ? find(coordinator, call, ret_message->session, ret_session, err)               \
                   : status;                                                                       \
    }
/* Takes what a poll says of a job whose updates the worker cannot post. Errors: NO_MEMORY. */
enum tally_status take_undeliverable(struct tally_coordinator *coordinator, struct session *session,
                                     const struct tally_undeliverable *undeliverable,
                                     struct tally_error *err);

#endif
