/* request_routing: which replica answers a request.
 *
 *     a job's                 the leader of the job while it is live, because it alone knows what
 *                             the job waits for and may change it; what only reads the store, any
 *     a worker's, in session  the replica whose number the session's id has in its top 16 bits; if
 *                             that one is gone, so is the session
 *     Join                    the leader of the live job that the worker is bound to, else of that
 *                             whose clients it held most, else where workers are lacking
 *
 * If a job's leader has died and no replica has taken the job yet, requests about it get
 * "unavailable" for that second or two, except for its detail, which then comes from the store. */
#ifndef TALLY_SERVICES_COORDINATOR_REPLICAS_REQUEST_ROUTING_H
#define TALLY_SERVICES_COORDINATOR_REPLICAS_REQUEST_ROUTING_H

#include <stdbool.h>

#include "codec/base/error.h"

struct call;
struct tally_coordinator;

/* Before the handler of the call runs. *ret_sent: the call has been forwarded and must not be
 * answered here. Errors are for the caller. */
enum tally_status route_call(struct tally_coordinator *coordinator, struct call *call,
                             bool *ret_sent, struct tally_error *err);

#endif
