/* rest_routes: every address of the coordinator, with its handler. */
#ifndef TALLY_SERVICES_COORDINATOR_REST_ROUTES_H
#define TALLY_SERVICES_COORDINATOR_REST_ROUTES_H

#include "services/coordinator/call.h"

/* Ended by a NULL method. */
extern const struct route ROUTES[];

#endif
