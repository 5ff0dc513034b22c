#include "services/coordinator/metrics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/base/time.h"
#include "services/coordinator/calls.h"
#include "services/coordinator/jobs_live.h"
#include "services/coordinator/loop_transaction.h"
#include "services/coordinator/replicas_forwarding.h"
#include "services/coordinator/rest_events.h"
#include "services/coordinator/rooms.h"
#include "services/coordinator/workers.h"

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
    struct metrics *metrics = coordinator->metrics;
    if (tally_job_status_is_terminal(row->status) &&
        row->finished_ms > metrics->started_ms - coordinator->config.metrics_keep_ms) {
        /* The walk goes from new to old, so this job comes before the others. */
        metrics->first_ended = (metrics->first_ended + METRICS_MAX_ENDED - 1) % METRICS_MAX_ENDED;
        metrics->ended[metrics->first_ended] = (struct ended_row){.is_loaded = true, .row = *row};
        metrics->n_ended++;
    }
    return TALLY_OK;
}

enum tally_status metrics_new(struct tally_coordinator *coordinator, struct tally_error *err)
{
    struct metrics *metrics = calloc(1, sizeof *metrics);
    struct ended_row *ended = calloc(METRICS_MAX_ENDED, sizeof *ended);
    if (metrics == NULL || ended == NULL) {
        free(metrics);
        free(ended);
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for metrics");
    }
    metrics->ended = ended;
    metrics->started_ms = tally_realtime_ms();
    coordinator->metrics = metrics;
    struct tally_store *store = coordinator->store;
    if (store->leases != NULL) {
        return TALLY_OK; /* another replica shows them */
    }
    /* Only among the newest jobs, because a walk over all jobs would delay the start. */
    return store->ops->job_list(store, -1, INT64_MAX, METRICS_MAX_ENDED, remember_ended,
                                coordinator, err);
}

void metrics_free(struct metrics *metrics)
{
    if (metrics != NULL) {
        free(metrics->ended);
        free(metrics);
    }
}

void metrics_end_job(struct metrics *metrics, const struct tally_store_job *row)
{
    metrics->jobs_ended[row->status]++;
    if (metrics->n_ended == METRICS_MAX_ENDED) {
        metrics->first_ended = (metrics->first_ended + 1) % METRICS_MAX_ENDED;
        metrics->n_ended--;
    }
    const int at = (metrics->first_ended + metrics->n_ended++) % METRICS_MAX_ENDED;
    metrics->ended[at] = (struct ended_row){.row = *row}; /* its counters may not be stored yet */
}

void metrics_forget_job(struct metrics *metrics, int64_t key)
{
    for (int i = 0; i < metrics->n_ended; i++) {
        struct ended_row *ended = &metrics->ended[(metrics->first_ended + i) % METRICS_MAX_ENDED];
        if (ended->row.key == key) {
            ended->row.finished_ms = 0; /* its time is over */
        }
    }
}

/* The response. */

static void write_requests(const struct calls *calls, struct exposition *exposition)
{
    const struct call_counts *counts = &calls->counts;
    static const char NAME[] = "tally_http_requests_total";
    exposition_family(
        exposition, NAME, EXPOSITION_COUNTER,
        "Requests answered, by route and HTTP status; 499: the client had disconnected.");
    for (int i = 0; i <= counts->n_routes; i++) {
        const bool matched = i < counts->n_routes;
        for (int status = MIN_HTTP_STATUS; status <= MAX_HTTP_STATUS; status++) {
            const uint64_t n = counts->routes[i].by_status[status - MIN_HTTP_STATUS];
            if (n == 0) {
                continue;
            }
            char code[12];
            snprintf(code, sizeof code, "%d", status);
            exposition_unsigned(
                exposition, NAME,
                EXPOSITION_LABELS({"method", matched ? calls->routes[i].method : "other"},
                                  {"route", matched ? calls->routes[i].path : "unmatched"},
                                  {"code", code}),
                n);
        }
    }
}

static void write_refusals(const struct calls *calls, struct exposition *exposition)
{
    static const char *const REASONS[] = {
#define REFUSAL_LABEL(symbol, label) label,
        TALLY_HTTP_REFUSAL_TABLE(REFUSAL_LABEL)
#undef REFUSAL_LABEL
    };
    exposition_each(exposition, "tally_http_refused_total", EXPOSITION_COUNTER,
                    "Requests and connections refused or dropped before they were routed.",
                    "reason", REASONS, calls->counts.refused, TALLY_N_HTTP_REFUSALS);
}

static void write_latency(const struct calls *calls, const struct worker_counts *workers,
                          struct exposition *exposition)
{
    const struct call_counts *counts = &calls->counts;
    static const char NAME[] = "tally_http_request_duration_seconds";
    exposition_family(exposition, NAME, EXPOSITION_HISTOGRAM,
                      "Time from the complete request to its response. Waiting long polls are in "
                      "tally_worker_poll_duration_seconds; an event stream counts until it opens.");
    for (int i = 0; i <= counts->n_routes; i++) {
        const bool matched = i < counts->n_routes;
        if (histogram_total(&counts->routes[i].seconds) > 0) {
            exposition_histogram(
                exposition, NAME,
                EXPOSITION_LABELS({"method", matched ? calls->routes[i].method : "other"},
                                  {"route", matched ? calls->routes[i].path : "unmatched"}),
                &counts->routes[i].seconds);
        }
    }
    static const char POLLS[] = "tally_worker_poll_duration_seconds";
    exposition_family(exposition, POLLS, EXPOSITION_HISTOGRAM,
                      "Time from a worker's poll to its response, waiting included, by outcome.");
    for (int i = 0; i < N_POLL_KINDS; i++) {
        exposition_histogram(exposition, POLLS, EXPOSITION_LABELS({"outcome", POLL_OUTCOMES[i]}),
                             &workers->polls[i]);
    }
}

static void write_updates(const struct transaction_counts *committed,
                          const struct call_counts *calls, struct exposition *exposition)
{
    exposition_one(exposition, "tally_rounds_total", EXPOSITION_COUNTER,
                   "Rounds closed by this process, over all jobs.", committed->rounds.closed);
    exposition_one(
        exposition, "tally_dropped_answers_total", EXPOSITION_COUNTER,
        "Updates missing when their round closed, over all jobs: one per missing client.",
        committed->rounds.dropped_answers);
    exposition_each(exposition, "tally_updates_total", EXPOSITION_COUNTER,
                    "Updates posted by workers, by result.", "result", UPDATE_RESULTS,
                    calls->updates, N_UPDATE_RESULTS);
}

static void write_store(const struct tally_coordinator *coordinator, struct exposition *exposition)
{
    const struct transaction_counts *counts = &coordinator->transaction->counts;
    static const char SECONDS_NAME[] = "tally_store_commit_duration_seconds";
    exposition_family(exposition, SECONDS_NAME, EXPOSITION_HISTOGRAM,
                      "Time that a commit of the store took.");
    exposition_histogram(exposition, SECONDS_NAME, NULL, &counts->commit_seconds);
    static const char REQUESTS_NAME[] = "tally_store_commit_requests";
    exposition_family(exposition, REQUESTS_NAME, EXPOSITION_HISTOGRAM,
                      "Requests whose responses waited for the same commit (group commit).");
    exposition_histogram(exposition, REQUESTS_NAME, NULL, &counts->commit_requests);
    uint64_t errors[N_STORE_OPERATIONS];
    memcpy(errors, counts->store_errors, sizeof errors);
    errors[STORE_READ] +=
        coordinator->calls->counts.failed_reads + coordinator->metrics->failed_reads;
    exposition_each(exposition, "tally_store_errors_total", EXPOSITION_COUNTER,
                    "Operations of the store that failed.", "operation", STORE_OPERATIONS, errors,
                    N_STORE_OPERATIONS);
}

static void write_workers(const struct tally_coordinator *coordinator,
                          struct exposition *exposition)
{
    static const char *const STATES[] = {"waiting", "working"};
    static const char *const USES[] = {"free", "assigned"};
    const struct session_table *sessions = &coordinator->workers->sessions;
    const struct worker_counts *counts = &coordinator->workers->counts;
    const uint64_t waiting = (uint64_t)sessions->n_waiting, slots = (uint64_t)sessions->n_slots;
    const uint64_t n = (uint64_t)sessions->n_sessions, n_free = (uint64_t)sessions->n_free;
    exposition_each(exposition, "tally_workers", EXPOSITION_GAUGE,
                    "Workers with a session: waiting in a long poll, or working.", "state", STATES,
                    (uint64_t[]){waiting, n - waiting}, 2);
    exposition_each(exposition, "tally_worker_slots", EXPOSITION_GAUGE,
                    "Client slots of all workers: free, or assigned to a client.", "state", USES,
                    (uint64_t[]){n_free, slots - n_free}, 2);
    exposition_one(exposition, "tally_workers_joined_total", EXPOSITION_COUNTER,
                   "Sessions begun by workers.", counts->joined);
    exposition_one(exposition, "tally_workers_lost_total", EXPOSITION_COUNTER,
                   "Sessions ended because the worker was silent.", counts->lost);
}

static void write_memory(const struct tally_coordinator *coordinator, struct exposition *exposition)
{
    const struct memory_use use = memory_use(coordinator);
    exposition_one(exposition, "tally_job_memory_bytes", EXPOSITION_GAUGE,
                   "Estimated memory of started jobs and of solving f(x*).", (uint64_t)use.held);
    exposition_one(exposition, "tally_job_memory_limit_bytes", EXPOSITION_GAUGE,
                   "Limit of tally_job_memory_bytes, from --max-job-bytes.", (uint64_t)use.limit);
}

enum tally_status get_metrics(struct tally_coordinator *coordinator, struct call *call,
                              struct tally_error *err)
{
    const struct calls *calls = coordinator->calls;
    const struct tally_tokens *tokens = coordinator->config.tokens;
    struct exposition exposition = {.out = &call->body};
    metrics_write_jobs(coordinator, &exposition);
    write_updates(&coordinator->transaction->counts, &calls->counts, &exposition);
    write_workers(coordinator, &exposition);
    exposition_one(&exposition, "tally_event_streams", EXPOSITION_GAUGE,
                   "Open streams of job events.", (uint64_t)coordinator->events->n_streams);
    exposition_one(&exposition, "tally_shared_tokens", EXPOSITION_GAUGE,
                   "Tokens that are in two token files and grant both roles.",
                   tokens != NULL ? (uint64_t)tokens->n_shared : 0);
    write_memory(coordinator, &exposition);
    write_requests(calls, &exposition);
    write_refusals(calls, &exposition);
    if (coordinator->forwarding != NULL) {
        exposition_each(&exposition, "tally_forwarded_requests_total", EXPOSITION_COUNTER,
                        "Requests sent on to the coordinator that had to answer them, by result.",
                        "result", FORWARD_RESULTS, forwarding_counts(coordinator->forwarding),
                        N_FORWARD_RESULTS);
    }
    write_latency(calls, &coordinator->workers->counts, &exposition);
    write_store(coordinator, &exposition);
    metrics_write_replicas(coordinator, &exposition);
    metrics_write_process(coordinator->metrics, &exposition);
    return answer_bytes(call, exposition.status, "text/plain; version=0.0.4; charset=utf-8", err);
}
