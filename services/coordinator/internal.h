/* internal: the coordinator's own state and the helpers that its request handlers share. */
#ifndef TALLY_SERVICES_COORDINATOR_INTERNAL_H
#define TALLY_SERVICES_COORDINATOR_INTERNAL_H

#include "api/json.h"
#include "services/coordinator/coordinator.h"
#include "services/coordinator/hosted_job.h"
#include "services/coordinator/prepare.h"
#include "services/coordinator/session.h"

enum { MAX_PATH_PARAMS = 1 };

struct route;

/* A request from its arrival to its answer. */
struct call {
    struct tally_http_request *request; /* NULL once its connection is gone */
    const struct route *route;
    char params[MAX_PATH_PARAMS][TALLY_JOB_ID_CAPACITY]; /* "{id}" of the path */
    /* The answer, once it is made. */
    bool answered;
    bool in_transaction; /* it ran while the step's transaction was open: it may rest on it */
    int status;
    const char *content_type;
    struct tally_buffer body;
    char location[64];
    const char *allow;                  /* methods, for 405 */
    char job_id[TALLY_JOB_ID_CAPACITY]; /* whose wire bytes these are; "" = nobody's */
    struct call *next;
};

struct call_queue {
    struct call *first, **last;
};

typedef enum tally_status handler_fn(struct tally_coordinator *coordinator, struct call *call,
                                     struct tally_error *err);

enum route_kind { ROUTE_PUBLIC, ROUTE_ADMIN, ROUTE_WORKER };

struct route {
    const char *method;
    const char *path; /* "{id}" matches one segment */
    enum route_kind kind;
    bool writes; /* runs in the step's transaction; others run after its commit */
    handler_fn *handler;
};

/* The whole table, ended by a NULL method. */
extern const struct route ROUTES[];

struct tally_coordinator {
    struct tally_store *store;
    struct tally_coordinator_config config;
    struct session_table sessions;
    struct hosted_job *jobs, **last_job; /* live jobs, oldest first */
    int64_t n_jobs;
    struct preparer *preparer;
    int wake_fd;
    bool in_transaction;
    bool transaction_failed; /* a write in it failed; it will be rolled back */
    bool draining;
    bool assignment_changed;   /* sessions or jobs came or went: look for jobs to start */
    bool assignment_failed;    /* a start was not stored: look again in a second */
    bool begin_failed;         /* in this step; every further try would wait for the lock again */
    struct call_queue reads;   /* to run after the commit */
    struct call_queue written; /* ran; to answer after the commit */
    struct session *ready;     /* sessions whose long poll may have an answer */
    int64_t next_tick_ms;
    uint64_t n_ticks;
    uint64_t n_requests;
    struct tally_error store_error; /* of the last failed commit or write; OK = none */
};

/* Jobs (jobs.c). */

struct hosted_job *find_job(const struct tally_coordinator *coordinator, const char *id);
/* Takes a loaded job among the live ones. */
void add_job(struct tally_coordinator *coordinator, struct hosted_job *job);
/* Queues the solving of f(x*) if the job still needs it. */
enum tally_status prepare_job(struct tally_coordinator *coordinator, struct hosted_job *job,
                              struct tally_error *err);
/* Reads the row of a job that may be live or not. Errors: NOT_FOUND, STORE. */
enum tally_status read_row(struct tally_coordinator *coordinator, const char *id,
                           struct tally_store_job *ret_row, struct tally_error *err);
/* The same, and appends its document. Errors: NOT_FOUND, STORE. */
enum tally_status read_job(struct tally_coordinator *coordinator, const char *id,
                           struct tally_store_job *ret_row, struct tally_buffer *document,
                           struct tally_error *err);
/* Opens the transaction of this step if it is not open. */
enum tally_status begin_write(struct tally_coordinator *coordinator, struct tally_error *err);
/* Fails the job with the reason in err, in the open transaction. */
enum tally_status fail_job(struct tally_coordinator *coordinator, struct hosted_job *job,
                           const char *reason, struct tally_error *err);
/* If `status` is not OK, notes that the open transaction cannot be committed. Returns `status`. */
enum tally_status write_failed(struct tally_coordinator *coordinator, enum tally_status status,
                               const struct tally_error *err);

/* Scheduling (schedule.c). */

/* Puts the session on the list of those whose poll is looked at after the commit. */
void mark_ready(struct tally_coordinator *coordinator, struct session *session);
void mark_job_ready(struct tally_coordinator *coordinator, struct hosted_job *job);
/* Fills vacant clients and starts queued jobs that can be filled. Writes. */
void assign_slots(struct tally_coordinator *coordinator);
/* Answers the polls of ready sessions that have work or whose time is over. */
void serve_polls(struct tally_coordinator *coordinator, int64_t now_ms);
/* Answers a waiting poll with `idle`. */
void answer_idle(struct tally_coordinator *coordinator, struct session *session);

/* Ends a session and frees its slots. */
void end_session(struct tally_coordinator *coordinator, struct session *session);

/* Runs the reads that waited for the commit (dispatch.c). */
void run_reads(struct tally_coordinator *coordinator);

/* Answers (answers.c). */

/* Body made of JSON; `value` is taken, NULL is out of memory. */
enum tally_status answer_json(struct call *call, int status, struct tally_json *value,
                              struct tally_error *err);
void answer_error(struct call *call, const struct tally_error *err);
/* Sends what the call holds and frees it. */
void send_answer(struct tally_coordinator *coordinator, struct call *call);
/* A protobuf answer to a request that has no call any more (a long poll). Returns wire bytes. */
uint64_t send_protobuf(struct tally_http_request *request, struct tally_buffer *body);

/* Request body as text. */
enum tally_status read_body(struct call *call, const char *content_type, const uint8_t **ret_body,
                            size_t *ret_size, struct tally_error *err);
/* A query parameter as an integer within limits, or `otherwise` if it is absent. */
enum tally_status read_query_integer(struct call *call, const char *name, int64_t min, int64_t max,
                                     int64_t otherwise, int64_t *ret_value,
                                     struct tally_error *err);

/* Handlers, one file per group of routes. */
handler_fn post_job, list_jobs, get_job, cancel_job, pause_job, resume_job; /* rest_jobs.c */
handler_fn get_rounds, get_rounds_csv, get_model;                           /* rest_results.c */
handler_fn get_workers, get_healthz, get_readyz;                            /* rest_service.c */
handler_fn worker_join, worker_poll, worker_update, worker_leave;           /* worker_calls.c */

#endif
