/* sim_http: stands in for api/http/http_server.h below the coordinator. */
#ifndef TALLY_TESTS_SIMULATION_WORLD_SIM_HTTP_H
#define TALLY_TESTS_SIMULATION_WORLD_SIM_HTTP_H

#include "api/http/http_line.h"
#include "api/http/http_server.h"
#include "tests/simulation/world/sim_network.h"

/* A request as the coordinator sees it, until it is responded to, abandoned or dropped. */
struct tally_http_request *sim_http_request_new(struct sim_exchange *exchange);
/* The client has stopped waiting for the response; the coordinator has not been told yet. */
void sim_http_note_lost(struct tally_http_request *request);
bool sim_http_is_lost(const struct tally_http_request *request);
/* A lost request of a coordinator; NULL = none. */
struct tally_http_request *sim_http_find_lost(const struct sim_host *host);
/* The coordinator has been told that the client has stopped waiting. */
void sim_http_close(struct tally_http_request *request);
/* The coordinator is gone: breaks all its connections. */
void sim_http_drop_all(const struct sim_host *host);

/* Limits the max_batch_bytes that coordinators started from now on report to workers. 0: no
 * several updates come in one request. */
void sim_http_limit_batches(uint32_t most_bytes);
uint32_t sim_http_most_batch_bytes(void);

#endif
