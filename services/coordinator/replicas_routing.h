/* replicas_routing: which replica answers a request.
 *
 *     a job's                 the leader of the job while it is live, because only the leader knows
 *                             what the job waits for and may change it; any replica, if the
 *                             request only reads the store
 *     a worker's, in session  the replica whose number the session's id has in its top 16 bits; if
 *                             that replica is gone, so is the session
 *     Join                    the leader of the live job that the worker is bound to, else of the
 *                             one of which it held most clients, else the replica that lacks
 *                             workers
 *
 * If a job's leader has died and no replica has taken the job yet, requests about it get
 * "unavailable" for that second or two, except for its detail, which then comes from the store. */
#ifndef TALLY_SERVICES_COORDINATOR_REPLICAS_ROUTING_H
#define TALLY_SERVICES_COORDINATOR_REPLICAS_ROUTING_H

#include <stdbool.h>

#include "codec/error.h"

struct call;
struct tally_coordinator;

/* To be called before the call's handler. *ret_sent: the call has been forwarded and must not be
 * answered here. Errors are for the caller. */
enum tally_status replicas_route_call(struct tally_coordinator *coordinator, struct call *call,
                                      bool *ret_sent, struct tally_error *err);

#endif
