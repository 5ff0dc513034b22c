/* sim_http: stands in for api/http_server.h below the coordinator. */
#ifndef TALLY_TESTS_SIMULATION_SIM_HTTP_H
#define TALLY_TESTS_SIMULATION_SIM_HTTP_H

#include "api/http_server.h"
#include "tests/simulation/sim_network.h"

/* A request as the coordinator sees it, until it answers or the request is abandoned or dropped. */
struct tally_http_request *sim_http_request_new(struct sim_exchange *exchange);
/* The coordinator has been told that nobody waits for the answer. */
void sim_http_close(struct tally_http_request *request);
/* The coordinator is gone: breaks all its connections. */
void sim_http_drop_all(const struct sim_host *host);

#endif
