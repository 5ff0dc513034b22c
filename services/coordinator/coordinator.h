/* coordinator: the host of the engine behind HTTP. One thread, one loop (loop.h).
 *
 * Nothing that a crash could undo is ever visible outside: an acknowledged update is durable, and a
 * task never follows from an update that is not. When a commit fails, the jobs that it touched are
 * reloaded from the store, and every request that wrote gets "unavailable".
 *
 * No locks: engines, sessions and the store belong to this thread. Other threads solve f(x*)
 * (jobs_prepare.h), read initial points (jobs_initial.h), make plans for dry runs (rest_plans.h),
 * read CSV files to complete documents (rest_surveys.h) and bundles (rest_imports.h), with
 * background.h. */
#ifndef TALLY_SERVICES_COORDINATOR_COORDINATOR_H
#define TALLY_SERVICES_COORDINATOR_COORDINATOR_H

#include <stdbool.h>
#include <stdint.h>

#include "api/http/http_server.h"
#include "codec/error.h"
#include "services/coordinator/webhooks.h"
#include "storage/store.h"

struct tally_coordinator;
struct tally_tokens;

struct tally_coordinator_config {
    struct tally_store *store;         /* taken */
    const struct tally_tokens *tokens; /* access.h; NULL = none are needed; borrowed */
    /* Host names that requests without a token may use (access.h). */
    bool any_host;
    const char *allowed_hosts; /* besides localhost; NULL = none; borrowed */

    const char *data_dir;    /* folder of job documents' files, for f(x*); borrowed */
    const char *environment; /* tally_environment_json() as text, for the provenance of jobs; NULL =
                                jobs get none; borrowed */
    int64_t session_timeout_ms; /* silence after which a worker's clients are reassigned */
    int64_t max_jobs;           /* queued, running and paused jobs, at once */
    int64_t max_streams;        /* open event streams */
    int64_t max_clients;        /* of one job */
    int64_t max_dim;            /* of a job's iterate */
    int64_t max_job_bytes;      /* memory of started jobs and of solving f(x*) (jobs_memory.h) */
    int64_t max_sessions;       /* of workers, at once; at most as many as connections */
    size_t max_body_bytes;      /* of a request, .. */
    uint32_t max_batch_bytes;   /* .. and of one with several updates */
    int64_t max_sessions_per_token; /* at once; no limit without tokens */
    int64_t heartbeat_ms;           /* silence of an event stream after which a comment is sent */
    int64_t metrics_keep_ms;        /* how long a job that ended stays in /metrics */
    int64_t keep_ended_ms;          /* how long an ended job is kept; 0 = forever */
    int64_t keep_ended_jobs;        /* how many ended jobs are kept, newest first; 0 = all */
    struct webhook_rules webhooks;  /* which URLs job documents may name */
    /* For a store that several replicas share. */
    const char *replica_id;      /* unique, and the same after a restart; borrowed */
    const char *replica_address; /* URL at which other replicas reach this one; borrowed */
    int64_t lease_ms;            /* a replica without a heartbeat for this long counts as dead */
    const char *peer_tls_ca; /* file of the authorities trusted for replicas at https://; NULL = the
                                system's; borrowed */
    size_t max_held_bytes;   /* of forwarded requests and their responses */
};

/* Loads all live jobs from the store. Errors: STORE, DATA_LOSS, NO_MEMORY. On failure the caller
 * still owns the store. */
enum tally_status tally_coordinator_new(const struct tally_coordinator_config *config,
                                        struct tally_coordinator **ret_coordinator,
                                        struct tally_error *err);
/* Closes the store. Precondition: the server that calls the coordinator has been freed. */
void tally_coordinator_free(struct tally_coordinator *coordinator);

/* Callbacks of the HTTP server; context is the coordinator. */
bool tally_coordinator_wants_body(void *context, struct tally_http_request *request);
bool tally_coordinator_on_part(void *context, struct tally_http_request *request);
void tally_coordinator_on_request(void *context, struct tally_http_request *request);
void tally_coordinator_on_abandoned(void *context, struct tally_http_request *request);
void tally_coordinator_on_refused(void *context, const struct tally_http_refusal *refusal,
                                  char ret_request_id[TALLY_HTTP_REQUEST_ID_CAPACITY]);

/* One turn of the loop (loop.h). To be called after every step of the server. Returns how long the
 * next step may wait, in ms. */
int tally_coordinator_turn(struct tally_coordinator *coordinator);

/* Readable when another thread has something for the loop. */
int tally_coordinator_wake_fd(const struct tally_coordinator *coordinator);
/* Readable when a turn can send or receive forwarded requests; -1 = there are no other replicas. */
int tally_coordinator_forward_fd(const struct tally_coordinator *coordinator);
/* The same for webhooks; -1 = there are none. */
int tally_coordinator_webhook_fd(const struct tally_coordinator *coordinator);

/* To be called when config.tokens has changed: ends event streams and long polls, whose clients
 * then reconnect with their current tokens. */
void tally_coordinator_tokens_changed(struct tally_coordinator *coordinator);

/* Refuses polls as unavailable and starts no jobs from now on; still accepts updates. For SIGTERM.
 */
void tally_coordinator_drain(struct tally_coordinator *coordinator);

/* Number of requests so far. */
uint64_t tally_coordinator_n_requests(const struct tally_coordinator *coordinator);

/* ---- What all modules see: common data, and a pointer to the struct of each module.
 *
 *     metrics -> rest -> replicas -> workers -> sessions -> jobs -> loop -> calls -> access
 *
 * coordinator.c makes all of them and sets the callbacks against these arrows. */

/* What other modules know of other replicas. replicas.c updates it. All zero = there are
 * no other replicas. */
struct replica_view {
    bool is_shared;               /* several replicas share the store */
    int64_t number;               /* of this replica; 0 = has not joined */
    int64_t serves_until_ms;      /* monotonic; end of the lease, if is_shared */
    int64_t n_jobs, n_free_slots; /* of the other replicas */
    int64_t held_back_key; /* key of a job elsewhere, for which queued jobs with a higher key wait;
                              0 = none */
    bool has_held_back;    /* set when read: a queued job here waited for that job */
};

struct tally_coordinator {
    struct tally_store *store;
    struct tally_coordinator_config config;
    bool draining; /* shutting down: hands out no more tasks */
    struct replica_view view;
    struct calls *calls;             /* calls.h */
    struct transaction *transaction; /* loop_transaction.h */
    struct loop *loop;               /* loop.h */
    struct live_jobs *jobs;          /* jobs_live.h */
    struct workers *workers;         /* workers.h */
    struct replicas *replicas;       /* replicas.h; NULL = not shared */
    struct forwarding *forwarding;   /* replicas_forwarding.h; NULL = not shared */
    struct events *events;           /* rest_events.h */
    struct series_cache *series;     /* rest_series.h */
    struct plans *plans;             /* rest_plans.h */
    struct initial_reads *initials;  /* jobs_initial.h */
    struct surveys *surveys;         /* rest_surveys.h */
    struct imports *imports;         /* rest_imports.h */
    struct metrics *metrics;         /* metrics.h */
    struct webhooks *webhooks;       /* webhooks.h; NULL = none are allowed */
};

/* Whether this replica may answer for its jobs at monotonic time now_ms. */
static inline bool may_serve(const struct replica_view *view, int64_t now_ms)
{
    return !view->is_shared || now_ms < view->serves_until_ms;
}

#endif
