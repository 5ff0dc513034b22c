/* rest_health: `--health` of tally-coordinator and tally-worker, for the health checks of
 * containers. */
#ifndef TALLY_SERVICES_BASE_REST_HEALTH_H
#define TALLY_SERVICES_BASE_REST_HEALTH_H

#include "api/client/http_client.h"

/* Asks the coordinator whether it is ready, for at most 3 s. Prints "ready" on stdout, or why not
 * on stderr after the name of `program`; returns an exit code, 0 or 1. */
int tally_health_print(const struct tally_http_client_config *config, const char *program);

#endif
