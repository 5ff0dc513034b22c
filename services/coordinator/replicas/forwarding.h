/* forwarding: requests that another replica has to answer.
 *
 * A call is sent on as it came, with the token that it came with, and waits like a long poll: a
 * suspended connection and a request of api/client/http_forward.h, no thread. The response goes
 * back as it is: status, content type, headers, body. If there is none, the caller is told
 * "unavailable", and what became of the request is not known. A caller that gives up ends its
 * request there, too.
 *
 * What has been forwarded once is not forwarded again: its receiver responds. */
#ifndef TALLY_SERVICES_COORDINATOR_REPLICAS_FORWARDING_H
#define TALLY_SERVICES_COORDINATOR_REPLICAS_FORWARDING_H

#include <stdbool.h>
#include <stdint.h>

#include "codec/base/error.h"
#include "storage/leases.h"

struct call;
struct forwarding;
struct tally_coordinator;

/* In a request: the number of the replica that has sent it on. */
#define FORWARDED_HEADER "Tally-Forwarded"

/* What became of a call that was sent on. */
#define FORWARD_RESULT_TABLE(X)                                                                    \
    X(ANSWERED, "answered")       /* whatever the status */                                        \
    X(UNREACHABLE, "unreachable") /* no connection, it broke, or what came was not a response */   \
    X(TIMEOUT, "timeout")                                                                          \
    X(ABORTED, "aborted")     /* by us: the other replica is gone, or we end */                    \
    X(ABANDONED, "abandoned") /* by its caller */                                                  \
    X(REFUSED, "refused")     /* not sent, or its response not taken: a limit of ours, no memory */

enum forward_result {
#define FORWARD_RESULT_ENUM(symbol, name) FORWARD_##symbol,
    FORWARD_RESULT_TABLE(FORWARD_RESULT_ENUM)
#undef FORWARD_RESULT_ENUM
        N_FORWARD_RESULTS
};

/* For a store that several replicas share; sets coordinator->forwarding. Errors: INVALID_ARGUMENT
 * (config.peer_tls_ca), NO_MEMORY, UNAVAILABLE. */
enum tally_status forwarding_new(struct tally_coordinator *coordinator, struct tally_error *err);
/* Precondition: no call waits for a response any more. NULL is allowed. */
void forwarding_free(struct forwarding *forwarding);
/* Readable when forward_take_results() has work; -1 for NULL. */
int forwarding_fd(const struct forwarding *forwarding);

/* Whether another replica has sent the call here. */
bool is_forwarded(const struct call *call);

/* Sends the call to replica `to`, of which id, number and address are used; its response is sent
 * when it comes. The body of its request is taken: nothing that was decoded from it may be used any
 * more. Errors: UNAVAILABLE (no address, or it was forwarded before), RESOURCE_EXHAUSTED,
 * NO_MEMORY; then the call is still to be answered. Precondition: coordinator->forwarding. */
enum tally_status forward_call(struct tally_coordinator *coordinator, struct call *call,
                               const struct tally_replica *to, struct tally_error *err);

/* Responds to the calls whose responses or errors have come. Once in a turn. */
void forward_take_results(struct tally_coordinator *coordinator);

/* Replica `number` is not to be waited for any more: its calls are told "unavailable". */
void forward_abort_all(struct tally_coordinator *coordinator, int64_t number);
/* The same for long polls at any replica, also those that came with an update; the worker polls
 * again, with the same update. */
void forward_end_polls(struct tally_coordinator *coordinator);
/* The caller has gone; frees the call. */
void forward_abandon(struct tally_coordinator *coordinator, struct call *call);

/* Calls by result: [N_FORWARD_RESULTS]. */
const uint64_t *forwarding_counts(const struct forwarding *forwarding);

#endif
