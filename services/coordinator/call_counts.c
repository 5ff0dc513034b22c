#include "services/coordinator/call_counts.h"
#include "services/base/alloc.h"

#include <stdlib.h>

#include "services/coordinator/calls.h"

void histogram_observe(struct histogram *histogram, double value)
{
    int i = 0;
    while (i < histogram->n_bounds && value > histogram->bounds[i]) {
        i++;
    }
    histogram->counts[i]++;
    histogram->sum += value;
}

uint64_t histogram_total(const struct histogram *histogram)
{
    uint64_t total = 0;
    for (int i = 0; i <= histogram->n_bounds; i++) {
        total += histogram->counts[i];
    }
    return total;
}

const double CALL_SECONDS[N_CALL_SECONDS] = {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01,
                                             0.025,  0.05,    0.1,    0.25,  0.5,    1,     5};
_Static_assert(sizeof CALL_SECONDS / sizeof CALL_SECONDS[0] <= HISTOGRAM_MAX_BOUNDS,
               "buckets of responses");

void call_counts_init(struct call_counts *counts, const struct route *routes)
{
    while (routes[counts->n_routes].method != NULL) {
        counts->n_routes++;
    }
    counts->routes = tally_xcalloc((size_t)counts->n_routes + 1, sizeof *counts->routes);
    counts->poll_route = counts->n_routes;
    for (int i = 0; i <= counts->n_routes; i++) {
        counts->routes[i].seconds.bounds = CALL_SECONDS;
        counts->routes[i].seconds.n_bounds = N_CALL_SECONDS;
        if (i < counts->n_routes && (routes[i].flags & ROUTE_IS_POLL) != 0) {
            counts->poll_route = i;
        }
    }
}

void call_counts_fini(struct call_counts *counts)
{
    free(counts->routes);
}

enum update_result call_counts_result_of(enum tally_status refusal)
{
    /* NOLINTNEXTLINE(clang-diagnostic-switch-enum): after any other status the worker tries again
     */
    switch ((int)refusal) {
    case TALLY_ALREADY_EXISTS:
        return UPDATE_CONFLICTING;
    case TALLY_FAILED_PRECONDITION:
        return UPDATE_LATE;
    case TALLY_PERMISSION_DENIED:
    case TALLY_MISDIRECTED:
        return UPDATE_NOT_PLAYED;
    case TALLY_NOT_FOUND:
        return UPDATE_UNKNOWN;
    case TALLY_INVALID_ARGUMENT:
    case TALLY_MALFORMED:
    case TALLY_OUT_OF_RANGE:
    case TALLY_NOT_FINITE:
    case TALLY_TOO_LARGE:
    case TALLY_UNSUPPORTED_MEDIA_TYPE:
    case TALLY_UNIMPLEMENTED:
        return UPDATE_INVALID;
    default:
        return UPDATE_UNAVAILABLE;
    }
}

static void count_status(struct route_counts *route, int status)
{
    if (status >= MIN_HTTP_STATUS && status <= MAX_HTTP_STATUS) {
        route->by_status[status - MIN_HTTP_STATUS]++;
    }
}

/* An error of the whole call counts for each of its updates. */
static void count_updates(struct call_counts *counts, const struct call *call)
{
    if (call->error.status != TALLY_OK) {
        counts->updates[call_counts_result_of(call->error.status)] +=
            call->n_updates > 0 ? call->n_updates : 1;
        return;
    }
    for (int i = 0; i < N_UPDATE_RESULTS; i++) {
        counts->updates[i] += call->updates[i];
    }
}

void call_counts_add(struct call_counts *counts, const struct route *routes,
                     const struct call *call, int status, double seconds)
{
    const int i = call->route != NULL ? (int)(call->route - routes) : counts->n_routes;
    count_status(&counts->routes[i], status);
    if (call->forwarded != NULL) { /* others are counted where they were answered */
        return;
    }
    histogram_observe(&counts->routes[i].seconds, seconds);
    const enum tally_status result = call->error.status;
    if (call->route == NULL) {
        return;
    }
    if ((call->route->flags & ROUTE_WRITES) == 0 &&
        (result == TALLY_STORE || result == TALLY_DATA_LOSS)) {
        counts->failed_reads++;
    }
    if ((call->route->flags & ROUTE_IS_UPDATE) != 0 && result != TALLY_UNAUTHENTICATED) {
        count_updates(counts, call);
    }
}

void call_counts_add_refusal(struct call_counts *counts, enum tally_http_refusal_reason reason,
                             int status)
{
    counts->refused[reason]++;
    count_status(&counts->routes[counts->n_routes], status);
}

void call_counts_add_poll(struct call_counts *counts, int status)
{
    count_status(&counts->routes[counts->poll_route], status);
}
