/* replicas_forwarding: requests that another replica must answer.
 *
 * A call is forwarded unchanged, with its token, and waits like a long poll: it takes a suspended
 * connection and a request of api/client/http_forward.h, but no thread. The response is returned
 * unchanged: status, content type, headers, body. If there is none, the caller gets "unavailable",
 * and the outcome of the request is unknown. If the caller disconnects, its request there ends.
 *
 * A forwarded call is not forwarded again: its receiver responds. */
#ifndef TALLY_SERVICES_COORDINATOR_REPLICAS_FORWARDING_H
#define TALLY_SERVICES_COORDINATOR_REPLICAS_FORWARDING_H

#include <stdbool.h>
#include <stdint.h>

#include "codec/error.h"
#include "storage/leases.h"

struct call;
struct forwarding;
struct tally_coordinator;

/* In a request: the number of the replica that forwarded it. */
#define FORWARDED_HEADER "Tally-Forwarded"

/* Result of a forwarded call. */
#define FORWARD_RESULT_TABLE(X)                                                                    \
    X(ANSWERED, "answered")       /* whatever the status */                                        \
    X(UNREACHABLE, "unreachable") /* no connection, or a broken one, or no valid response */       \
    X(TIMEOUT, "timeout")                                                                          \
    X(ABORTED, "aborted")     /* by us: the other replica is gone, or we stop */                   \
    X(ABANDONED, "abandoned") /* by its caller */                                                  \
    X(REFUSED, "refused")     /* not sent, or its response dropped: our limit, no memory */

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
/* Readable when forwarding_take_results() has work; -1 for NULL. */
int forwarding_fd(const struct forwarding *forwarding);

/* Whether another replica has forwarded the call to this one. */
bool forwarding_is_forwarded(const struct call *call);

/* Forwards the call to replica `to`, of which only id, number and address are used. The response is
 * sent when it arrives. Takes the request's body: nothing decoded from it may be used any more.
 * Errors: UNAVAILABLE (no address, or it was forwarded before), RESOURCE_EXHAUSTED, NO_MEMORY; the
 * call must then still be answered. Precondition: coordinator->forwarding. */
enum tally_status forwarding_forward(struct tally_coordinator *coordinator, struct call *call,
                                     const struct tally_replica *to, struct tally_error *err);

/* Responds to the calls whose responses or errors have arrived. Once per turn. */
void forwarding_take_results(struct tally_coordinator *coordinator);

/* Stops waiting for replica `number`: calls forwarded to it get "unavailable". */
void forwarding_abort_all(struct tally_coordinator *coordinator, int64_t number);
/* The same for long polls at any replica, including those that came with an update. The worker
 * polls again, with the same update. */
void forwarding_finish_polls(struct tally_coordinator *coordinator);
/* Frees a call whose caller has disconnected. */
void forwarding_drop(struct tally_coordinator *coordinator, struct call *call);

/* Calls by result: [N_FORWARD_RESULTS]. */
const uint64_t *forwarding_counts(const struct forwarding *forwarding);

#endif
