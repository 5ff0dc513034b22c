/* metrics: what is counted for Prometheus, and what GET /metrics answers.
 *
 * One thread, plain numbers, no locks. There are two kinds. Those of the process (requests,
 * updates, commits, workers) are counted here and begin at zero with it. Those of a job (regret,
 * bits, rounds) are its row as the store has it: never ahead of a commit, hence never going back,
 * and the same after a restart. /metrics is a read, so it runs after the step's commit; a job whose
 * commit failed is left out until it has been read back.
 *
 * Cardinality is bounded: routes are those of the table, statuses those we send, and series of
 * their own have at most METRICS_MAX_JOBS jobs: first running and paused ones, then those that
 * ended less than `--metrics-keep-s` ago, then queued ones; among equals the newest.
 *
 * Of several coordinators on one store each shows the jobs that it leads, and those that ended in
 * it, until it starts again: so a job is in the /metrics of one of them, and sums over all of them
 * count nothing twice. */
#ifndef TALLY_SERVICES_COORDINATOR_METRICS_METRICS_H
#define TALLY_SERVICES_COORDINATOR_METRICS_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "api/server/http_server.h"
#include "api/worker/worker_messages.h"
#include "services/coordinator/metrics/exposition.h"
#include "services/coordinator/replicas/forwarding.h"
#include "services/coordinator/replicas/replicas.h"
#include "storage/store.h"

struct call;
struct hosted_job;
struct tally_coordinator;

/* Ended jobs that are remembered: past that number, those that ended first are forgotten early. */
enum { METRICS_MAX_JOBS = 200, METRICS_MAX_ENDED = 1000 };

/* What became of an update. */
#define UPDATE_RESULT_TABLE(X)                                                                     \
    X(ACCEPTED, "accepted")       /* durable, counted */                                           \
    X(REPEATED, "repeated")       /* the same bytes again: acknowledged, not counted again */      \
    X(CONFLICTING, "conflicting") /* other bytes for the same (job, round, client) */              \
    X(LATE, "late")               /* its round is not open (any more), or its job */               \
    X(INVALID, "invalid")         /* cannot be read, or says what cannot be */                     \
    X(NOT_PLAYED, "not_played")   /* the session does not play this client */                      \
    X(UNKNOWN, "unknown")         /* no such session or job */                                     \
    X(FAILURE, "failure")         /* the client says that it cannot go on; the job fails */        \
    X(REFUSAL, "refusal")         /* the worker says that it cannot serve the job */               \
    X(UNAVAILABLE, "unavailable") /* not stored; the worker tries again */

enum update_result {
#define UPDATE_RESULT_ENUM(symbol, name) UPDATE_##symbol,
    UPDATE_RESULT_TABLE(UPDATE_RESULT_ENUM)
#undef UPDATE_RESULT_ENUM
        N_UPDATE_RESULTS
};

enum { N_POLL_KINDS = TALLY_POLL_RELEASED + 1 };
enum store_operation { STORE_BEGIN, STORE_WRITE, STORE_COMMIT, STORE_READ, N_STORE_OPERATIONS };

enum { MIN_HTTP_STATUS = 200, MAX_HTTP_STATUS = 599 };

/* Requests of one route. */
struct route_metrics {
    uint64_t by_status[MAX_HTTP_STATUS - MIN_HTTP_STATUS + 1];
    struct histogram seconds;
};

/* A job that is live no more. Its last counters are read from the store when they are first asked
 * for: by then they are committed. */
struct ended_job {
    bool is_loaded; /* row is whole; else only id, status and finished_ms */
    struct tally_store_job row;
};

struct metrics {
    int64_t started_ms;           /* Unix time */
    struct route_metrics *routes; /* as ROUTES, and one for requests that match none */
    int n_routes;                 /* without that one */
    struct histogram polls[N_POLL_KINDS];
    uint64_t updates[N_UPDATE_RESULTS];
    uint64_t rounds, dropped_answers;
    uint64_t workers_joined, workers_lost;
    uint64_t refused[TALLY_N_HTTP_REFUSALS]; /* by the HTTP server, before a route was looked for */
    uint64_t jobs_ended[TALLY_N_JOB_STATUS];
    struct histogram commit_seconds, commit_requests;
    uint64_t requests_in_commit; /* that rest on the open transaction */
    uint64_t forwarded[N_FORWARD_RESULTS];
    struct replica_metrics replicas;
    uint64_t store_errors[N_STORE_OPERATIONS];
    struct ended_job *ended; /* ring, oldest first */
    int first_ended, n_ended;
};

/* Also reads from the store, if it is this process's alone, which jobs ended a short time ago.
 * Errors: NO_MEMORY, STORE. */
enum tally_status metrics_init(struct tally_coordinator *coordinator, struct tally_error *err);
void metrics_fini(struct metrics *metrics);

/* Counting. */

/* An answer has been made; `seconds` since the request was complete. `status`: 499 if nobody waited
 * for it any more. */
void metrics_count_call(struct metrics *metrics, const struct call *call, int status,
                        double seconds);
/* The HTTP server refused a request or a connection; `status` 0: without an answer. */
void metrics_count_refusal(struct metrics *metrics, enum tally_http_refusal_reason reason,
                           int status);
/* A long poll has been answered with 503, as the coordinator shuts down. */
void metrics_count_refused_poll(struct metrics *metrics);
/* A long poll has been answered with 200. A request of its own, or with an update, whose request
 * has been counted. */
void metrics_count_poll(struct metrics *metrics, enum tally_poll_kind kind, bool is_own_request,
                        double seconds);
void metrics_count_commit(struct metrics *metrics, double seconds);
/* A job has reached its last status, in the store as well. */
void metrics_end_job(struct metrics *metrics, const struct tally_store_job *row);

/* Parts of the answer (jobs.c, process.c, replicas.c). */
void metrics_write_jobs(struct tally_coordinator *coordinator, struct exposition *exposition);
void metrics_write_replicas(struct tally_coordinator *coordinator, struct exposition *exposition);
void metrics_write_process(const struct metrics *metrics, struct exposition *exposition);

#endif
