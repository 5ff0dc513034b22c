#include "services/coordinator/metrics/metrics.h"

#include <stdio.h>
#include <stdlib.h>

#include "services/base/time.h"
#include "services/coordinator/internal.h"

/* A commit of SQLite takes 0.1 to 10 ms, an answer that waits for one a little more. */
static const double SECONDS[] = {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01,
                                 0.025,  0.05,    0.1,    0.25,  0.5,    1,     5};
/* Up to MAX_WAIT_MS of worker_calls.c. */
static const double POLL_SECONDS[] = {0.001, 0.01, 0.1, 0.5, 1, 2.5, 5, 10, 20, 30};
static const double REQUESTS[] = {0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};

#define N_BOUNDS(bounds) ((int)(sizeof(bounds) / sizeof(bounds)[0]))
_Static_assert(sizeof SECONDS / sizeof SECONDS[0] <= HISTOGRAM_MAX_BOUNDS, "buckets of answers");
_Static_assert(sizeof POLL_SECONDS / sizeof POLL_SECONDS[0] <= HISTOGRAM_MAX_BOUNDS, "of polls");
_Static_assert(sizeof REQUESTS / sizeof REQUESTS[0] <= HISTOGRAM_MAX_BOUNDS, "of commits");

static const char *const UPDATE_RESULTS[] = {
#define UPDATE_RESULT_NAME(symbol, name) name,
    UPDATE_RESULT_TABLE(UPDATE_RESULT_NAME)
#undef UPDATE_RESULT_NAME
};
static const char *const FORWARD_RESULTS[] = {
#define FORWARD_RESULT_NAME(symbol, name) name,
    FORWARD_RESULT_TABLE(FORWARD_RESULT_NAME)
#undef FORWARD_RESULT_NAME
};
static const char *const POLL_OUTCOMES[] = {"idle", "task", "released"};
static const char *const STORE_OPERATIONS[] = {"begin", "write", "commit", "read"};

/* Start and end. */

static enum tally_status remember_ended(void *context, const struct tally_store_job *row,
                                        struct tally_error *err)
{
    (void)err;
    struct tally_coordinator *coordinator = context;
    struct metrics *metrics = &coordinator->metrics;
    if (tally_job_status_is_terminal(row->status) &&
        row->finished_ms > metrics->started_ms - coordinator->config.metrics_keep_ms) {
        /* The walk goes from new to old: this one belongs before the others. */
        metrics->first_ended = (metrics->first_ended + METRICS_MAX_ENDED - 1) % METRICS_MAX_ENDED;
        metrics->ended[metrics->first_ended] = (struct ended_job){.is_loaded = true, .row = *row};
        metrics->n_ended++;
    }
    return TALLY_OK;
}

static void init_histograms(struct metrics *metrics)
{
    for (int i = 0; i <= metrics->n_routes; i++) {
        metrics->routes[i].seconds.bounds = SECONDS;
        metrics->routes[i].seconds.n_bounds = N_BOUNDS(SECONDS);
    }
    for (int i = 0; i < N_POLL_KINDS; i++) {
        metrics->polls[i].bounds = POLL_SECONDS;
        metrics->polls[i].n_bounds = N_BOUNDS(POLL_SECONDS);
    }
    metrics->commit_seconds.bounds = SECONDS;
    metrics->commit_seconds.n_bounds = N_BOUNDS(SECONDS);
    metrics->commit_requests.bounds = REQUESTS;
    metrics->commit_requests.n_bounds = N_BOUNDS(REQUESTS);
}

enum tally_status metrics_init(struct tally_coordinator *coordinator, struct tally_error *err)
{
    struct metrics *metrics = &coordinator->metrics;
    metrics->started_ms = tally_realtime_ms();
    while (ROUTES[metrics->n_routes].method != NULL) {
        metrics->n_routes++;
    }
    metrics->routes = calloc((size_t)metrics->n_routes + 1, sizeof *metrics->routes);
    metrics->ended = calloc(METRICS_MAX_ENDED, sizeof *metrics->ended);
    if (metrics->routes == NULL || metrics->ended == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for metrics");
    }
    init_histograms(metrics);
    struct tally_store *store = coordinator->store;
    if (store->leases != NULL) {
        return TALLY_OK; /* somebody else shows them */
    }
    /* Among the newest jobs only: a walk over all that ever were would hold up the start. */
    return store->ops->job_list(store, -1, INT64_MAX, METRICS_MAX_ENDED, remember_ended,
                                coordinator, err);
}

void metrics_fini(struct metrics *metrics)
{
    free(metrics->routes);
    free(metrics->ended);
}

/* Counting. */

static enum update_result result_of(const struct call *call)
{
    /* NOLINTNEXTLINE(clang-diagnostic-switch-enum): whatever else there is, the worker tries again
     */
    switch ((int)call->error.status) {
    case TALLY_OK:
        return call->reports_failure   ? UPDATE_FAILURE
               : call->reports_refusal ? UPDATE_REFUSAL
               : call->repeated        ? UPDATE_REPEATED
                                       : UPDATE_ACCEPTED;
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

static void count_status(struct route_metrics *route, int status)
{
    if (status >= MIN_HTTP_STATUS && status <= MAX_HTTP_STATUS) {
        route->by_status[status - MIN_HTTP_STATUS]++;
    }
}

void metrics_count_call(struct metrics *metrics, const struct call *call, int status,
                        double seconds)
{
    const int i = call->route != NULL ? (int)(call->route - ROUTES) : metrics->n_routes;
    count_status(&metrics->routes[i], status);
    if (call->forwarded != NULL) { /* all else is counted where it was answered */
        return;
    }
    histogram_observe(&metrics->routes[i].seconds, seconds);
    const enum tally_status result = call->error.status;
    if (call->route == NULL) {
        return;
    }
    if (!call->route->writes && (result == TALLY_STORE || result == TALLY_DATA_LOSS)) {
        metrics->store_errors[STORE_READ]++;
    }
    if (call->route->handler == worker_update && result != TALLY_UNAUTHENTICATED) {
        metrics->updates[result_of(call)]++;
    }
}

void metrics_count_refusal(struct metrics *metrics, enum tally_http_refusal_reason reason,
                           int status)
{
    metrics->refused[reason]++;
    count_status(&metrics->routes[metrics->n_routes], status);
}

static void count_poll_status(struct metrics *metrics, int status)
{
    for (int i = 0; i < metrics->n_routes; i++) {
        if (ROUTES[i].handler == worker_poll) {
            count_status(&metrics->routes[i], status);
        }
    }
}

void metrics_count_refused_poll(struct metrics *metrics)
{
    count_poll_status(metrics, 503);
}

void metrics_count_poll(struct metrics *metrics, enum tally_poll_kind kind, bool is_own_request,
                        double seconds)
{
    if (is_own_request) {
        count_poll_status(metrics, 200);
    }
    histogram_observe(&metrics->polls[kind], seconds);
}

void metrics_count_commit(struct metrics *metrics, double seconds)
{
    histogram_observe(&metrics->commit_seconds, seconds);
    histogram_observe(&metrics->commit_requests, (double)metrics->requests_in_commit);
}

void metrics_end_job(struct metrics *metrics, const struct tally_store_job *row)
{
    metrics->jobs_ended[row->status]++;
    if (metrics->n_ended == METRICS_MAX_ENDED) {
        metrics->first_ended = (metrics->first_ended + 1) % METRICS_MAX_ENDED;
        metrics->n_ended--;
    }
    const int at = (metrics->first_ended + metrics->n_ended++) % METRICS_MAX_ENDED;
    metrics->ended[at] = (struct ended_job){.row = *row}; /* its counters may not be stored yet */
}

/* The answer. */

static void write_requests(const struct metrics *metrics, struct exposition *exposition)
{
    static const char NAME[] = "tally_http_requests_total";
    exposition_family(exposition, NAME, EXPOSITION_COUNTER,
                      "Requests answered, by route and HTTP status; 499: the peer had gone.");
    for (int i = 0; i <= metrics->n_routes; i++) {
        const bool matched = i < metrics->n_routes;
        for (int status = MIN_HTTP_STATUS; status <= MAX_HTTP_STATUS; status++) {
            const uint64_t n = metrics->routes[i].by_status[status - MIN_HTTP_STATUS];
            if (n == 0) {
                continue;
            }
            char code[12];
            snprintf(code, sizeof code, "%d", status);
            exposition_unsigned(exposition, NAME,
                                EXPOSITION_LABELS({"method", matched ? ROUTES[i].method : "other"},
                                                  {"route", matched ? ROUTES[i].path : "unmatched"},
                                                  {"code", code}),
                                n);
        }
    }
}

static void write_refusals(const struct metrics *metrics, struct exposition *exposition)
{
    static const char *const REASONS[] = {
#define REFUSAL_LABEL(symbol, label) label,
        TALLY_HTTP_REFUSAL_TABLE(REFUSAL_LABEL)
#undef REFUSAL_LABEL
    };
    static const char NAME[] = "tally_http_refused_total";
    exposition_family(exposition, NAME, EXPOSITION_COUNTER,
                      "Requests and connections refused or dropped before a route was looked for.");
    for (int i = 0; i < TALLY_N_HTTP_REFUSALS; i++) {
        exposition_unsigned(exposition, NAME, EXPOSITION_LABELS({"reason", REASONS[i]}),
                            metrics->refused[i]);
    }
}

static void write_forwarded(const struct metrics *metrics, struct exposition *exposition)
{
    static const char NAME[] = "tally_forwarded_requests_total";
    exposition_family(exposition, NAME, EXPOSITION_COUNTER,
                      "Requests sent on to the coordinator that had to answer them, by result.");
    for (int i = 0; i < N_FORWARD_RESULTS; i++) {
        exposition_unsigned(exposition, NAME, EXPOSITION_LABELS({"result", FORWARD_RESULTS[i]}),
                            metrics->forwarded[i]);
    }
}

static void write_latency(const struct metrics *metrics, struct exposition *exposition)
{
    static const char NAME[] = "tally_http_request_duration_seconds";
    exposition_family(exposition, NAME, EXPOSITION_HISTOGRAM,
                      "From the complete request to its answer. Long polls that wait are in "
                      "tally_worker_poll_duration_seconds; of an event stream, its begin is here.");
    for (int i = 0; i <= metrics->n_routes; i++) {
        const bool matched = i < metrics->n_routes;
        if (histogram_total(&metrics->routes[i].seconds) > 0) {
            exposition_histogram(
                exposition, NAME,
                EXPOSITION_LABELS({"method", matched ? ROUTES[i].method : "other"},
                                  {"route", matched ? ROUTES[i].path : "unmatched"}),
                &metrics->routes[i].seconds);
        }
    }
    static const char POLLS[] = "tally_worker_poll_duration_seconds";
    exposition_family(exposition, POLLS, EXPOSITION_HISTOGRAM,
                      "From a worker's poll to its answer, waiting included, by outcome.");
    for (int i = 0; i < N_POLL_KINDS; i++) {
        exposition_histogram(exposition, POLLS, EXPOSITION_LABELS({"outcome", POLL_OUTCOMES[i]}),
                             &metrics->polls[i]);
    }
}

static void write_updates(const struct metrics *metrics, struct exposition *exposition)
{
    static const char ROUNDS[] = "tally_rounds_total";
    exposition_family(exposition, ROUNDS, EXPOSITION_COUNTER,
                      "Rounds closed by this process, over all jobs.");
    exposition_unsigned(exposition, ROUNDS, NULL, metrics->rounds);
    static const char DROPPED[] = "tally_dropped_answers_total";
    exposition_family(exposition, DROPPED, EXPOSITION_COUNTER,
                      "Clients' messages that closed rounds went without, over all jobs.");
    exposition_unsigned(exposition, DROPPED, NULL, metrics->dropped_answers);
    static const char UPDATES[] = "tally_updates_total";
    exposition_family(exposition, UPDATES, EXPOSITION_COUNTER,
                      "Updates posted by workers, by what became of them.");
    for (int i = 0; i < N_UPDATE_RESULTS; i++) {
        exposition_unsigned(exposition, UPDATES, EXPOSITION_LABELS({"result", UPDATE_RESULTS[i]}),
                            metrics->updates[i]);
    }
}

static void write_store(const struct metrics *metrics, struct exposition *exposition)
{
    static const char SECONDS_NAME[] = "tally_store_commit_duration_seconds";
    exposition_family(exposition, SECONDS_NAME, EXPOSITION_HISTOGRAM,
                      "Time that a commit of the store took.");
    exposition_histogram(exposition, SECONDS_NAME, NULL, &metrics->commit_seconds);
    static const char REQUESTS_NAME[] = "tally_store_commit_requests";
    exposition_family(exposition, REQUESTS_NAME, EXPOSITION_HISTOGRAM,
                      "Requests whose answers waited for one commit (group commit).");
    exposition_histogram(exposition, REQUESTS_NAME, NULL, &metrics->commit_requests);
    static const char ERRORS[] = "tally_store_errors_total";
    exposition_family(exposition, ERRORS, EXPOSITION_COUNTER,
                      "Operations of the store that failed.");
    for (int i = 0; i < N_STORE_OPERATIONS; i++) {
        exposition_unsigned(exposition, ERRORS,
                            EXPOSITION_LABELS({"operation", STORE_OPERATIONS[i]}),
                            metrics->store_errors[i]);
    }
}

static void write_workers(const struct tally_coordinator *coordinator,
                          struct exposition *exposition)
{
    const struct session_table *sessions = &coordinator->sessions;
    const uint64_t waiting = (uint64_t)sessions->n_waiting, slots = (uint64_t)sessions->n_slots;
    const uint64_t n = (uint64_t)sessions->n_sessions, n_free = (uint64_t)sessions->n_free;
    static const char WORKERS[] = "tally_workers";
    exposition_family(exposition, WORKERS, EXPOSITION_GAUGE,
                      "Workers with a session: waiting in a long poll, or working.");
    exposition_unsigned(exposition, WORKERS, EXPOSITION_LABELS({"state", "waiting"}), waiting);
    exposition_unsigned(exposition, WORKERS, EXPOSITION_LABELS({"state", "working"}), n - waiting);
    static const char SLOTS[] = "tally_worker_slots";
    exposition_family(exposition, SLOTS, EXPOSITION_GAUGE,
                      "Client slots of all workers: free, or playing a client of a job.");
    exposition_unsigned(exposition, SLOTS, EXPOSITION_LABELS({"state", "free"}), n_free);
    exposition_unsigned(exposition, SLOTS, EXPOSITION_LABELS({"state", "assigned"}),
                        slots - n_free);
    static const char JOINED[] = "tally_workers_joined_total";
    exposition_family(exposition, JOINED, EXPOSITION_COUNTER, "Sessions begun by workers.");
    exposition_unsigned(exposition, JOINED, NULL, coordinator->metrics.workers_joined);
    static const char LOST[] = "tally_workers_lost_total";
    exposition_family(exposition, LOST, EXPOSITION_COUNTER,
                      "Sessions ended because the worker was silent.");
    exposition_unsigned(exposition, LOST, NULL, coordinator->metrics.workers_lost);
}

static void write_memory(const struct tally_coordinator *coordinator, struct exposition *exposition)
{
    const struct memory_use use = memory_use(coordinator);
    static const char HELD[] = "tally_job_memory_bytes", LIMIT[] = "tally_job_memory_limit_bytes";
    exposition_family(exposition, HELD, EXPOSITION_GAUGE,
                      "Estimated memory of started jobs and of solving f(x*).");
    exposition_unsigned(exposition, HELD, NULL, (uint64_t)use.held);
    exposition_family(exposition, LIMIT, EXPOSITION_GAUGE,
                      "Limit of tally_job_memory_bytes, from --max-job-bytes.");
    exposition_unsigned(exposition, LIMIT, NULL, (uint64_t)use.limit);
}

enum tally_status get_metrics(struct tally_coordinator *coordinator, struct call *call,
                              struct tally_error *err)
{
    const struct metrics *metrics = &coordinator->metrics;
    struct exposition exposition = {.out = &call->body};
    metrics_write_jobs(coordinator, &exposition);
    write_updates(metrics, &exposition);
    write_workers(coordinator, &exposition);
    static const char STREAMS[] = "tally_event_streams";
    exposition_family(&exposition, STREAMS, EXPOSITION_GAUGE, "Open streams of job events.");
    exposition_unsigned(&exposition, STREAMS, NULL, (uint64_t)coordinator->n_streams);
    static const char SHARED[] = "tally_shared_tokens";
    const struct tally_tokens *tokens = coordinator->config.tokens;
    exposition_family(&exposition, SHARED, EXPOSITION_GAUGE,
                      "Tokens that are in two token files and grant both roles.");
    exposition_unsigned(&exposition, SHARED, NULL, tokens != NULL ? (uint64_t)tokens->n_shared : 0);
    write_memory(coordinator, &exposition);
    write_requests(metrics, &exposition);
    write_refusals(metrics, &exposition);
    if (coordinator->forwarding != NULL) {
        write_forwarded(metrics, &exposition);
    }
    write_latency(metrics, &exposition);
    write_store(metrics, &exposition);
    metrics_write_replicas(coordinator, &exposition);
    metrics_write_process(metrics, &exposition);
    if (exposition.status != TALLY_OK) {
        return tally_fail(err, exposition.status, NULL, "no memory for metrics");
    }
    call->answered = true;
    call->status = 200;
    call->content_type = "text/plain; version=0.0.4; charset=utf-8";
    return TALLY_OK;
}
