/* call_counts: requests by route and status, and updates by result, since the process started. */
#ifndef TALLY_SERVICES_COORDINATOR_CALL_COUNTS_H
#define TALLY_SERVICES_COORDINATOR_CALL_COUNTS_H

#include <stdint.h>

#include "api/http/http_server.h"
#include "codec/error.h"

/* ---- Counts of values by bucket, for the metrics. */

/* Invariant: bounds ascend. */
enum { HISTOGRAM_MAX_BOUNDS = 16 };
struct histogram {
    const double *bounds; /* upper ends, inclusive; borrowed forever */
    int n_bounds;
    uint64_t counts[HISTOGRAM_MAX_BOUNDS + 1]; /* not cumulative; the last has no bound */
    double sum;
};
void histogram_observe(struct histogram *histogram, double value);
uint64_t histogram_total(const struct histogram *histogram);

struct call;
struct route;

/* The result of an update. */
#define UPDATE_RESULT_TABLE(X)                                                                     \
    X(ACCEPTED, "accepted")       /* durable, counted */                                           \
    X(REPEATED, "repeated")       /* the same bytes again: acknowledged, not counted again */      \
    X(CONFLICTING, "conflicting") /* different bytes for the same (job, round, client) */          \
    X(LATE, "late")               /* its round or its job is not open (any longer) */              \
    X(INVALID, "invalid")         /* malformed, or with impossible values */                       \
    X(NOT_PLAYED, "not_played")   /* the client is not assigned to the session */                  \
    X(UNKNOWN, "unknown")         /* no such session or job */                                     \
    X(FAILURE, "failure")         /* the client reports a fatal error; the job fails */            \
    X(REFUSAL, "refusal")         /* the worker says that it cannot serve the job */               \
    X(UNAVAILABLE, "unavailable") /* not stored; the worker tries again */

enum update_result {
#define UPDATE_RESULT_ENUM(symbol, name) UPDATE_##symbol,
    UPDATE_RESULT_TABLE(UPDATE_RESULT_ENUM)
#undef UPDATE_RESULT_ENUM
        N_UPDATE_RESULTS
};

enum { MIN_HTTP_STATUS = 200, MAX_HTTP_STATUS = 599 };

/* The requests of one route. */
struct route_counts {
    uint64_t by_status[MAX_HTTP_STATUS - MIN_HTTP_STATUS + 1];
    struct histogram seconds;
};

struct call_counts {
    uint64_t n_requests;         /* that have arrived */
    struct route_counts *routes; /* one per row of the table, one for requests without a route */
    int n_routes;                /* without the additional one */
    int poll_route;              /* number of the route with ROUTE_IS_POLL; n_routes = none */
    uint64_t updates[N_UPDATE_RESULTS];
    uint64_t failed_reads; /* requests that only read, and failed because of the store */
    uint64_t refused[TALLY_N_HTTP_REFUSALS]; /* by the HTTP server, before they were routed */
};

/* Upper ends of buckets, in seconds: a commit of SQLite takes 0.1 to 10 ms, a response that waits
 * for it a little more. */
enum { N_CALL_SECONDS = 14 };
extern const double CALL_SECONDS[N_CALL_SECONDS];

/* The result of an update that is refused with the status. */
enum update_result call_counts_result_of(enum tally_status refusal);

void call_counts_init(struct call_counts *counts, const struct route *routes);
void call_counts_fini(struct call_counts *counts);

/* Counts a response, `seconds` after the request was complete. `status`: 499 if the client had
 * disconnected. */
void call_counts_add(struct call_counts *counts, const struct route *routes,
                     const struct call *call, int status, double seconds);
/* Counts a request or a connection that the HTTP server refused; `status` 0: without a response. */
void call_counts_add_refusal(struct call_counts *counts, enum tally_http_refusal_reason reason,
                             int status);
/* Counts the response to a long poll, whose request no longer has a call. */
void call_counts_add_poll(struct call_counts *counts, int status);

#endif
