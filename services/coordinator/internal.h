/* internal: the coordinator's own state and the helpers that its request handlers share. */
#ifndef TALLY_SERVICES_COORDINATOR_INTERNAL_H
#define TALLY_SERVICES_COORDINATOR_INTERNAL_H

#include "api/json/json.h"
#include "services/coordinator/access/token_set.h"
#include "services/coordinator/coordinator.h"
#include "services/coordinator/jobs/ended.h"
#include "services/coordinator/jobs/hosted_job.h"
#include "services/coordinator/jobs/memory.h"
#include "services/coordinator/jobs/prepare.h"
#include "services/coordinator/jobs/waiting.h"
#include "services/coordinator/metrics/metrics.h"
#include "services/coordinator/replicas/forwarding.h"
#include "services/coordinator/turn/pending.h"
#include "services/coordinator/workers/session.h"

enum {
    JOB_BUCKETS = 1024, /* of live jobs' ids; a power of two */
    MAX_PATH_PARAMS = 1,
    MAX_CALL_HEADERS = 6,
    REQUEST_ID_CAPACITY = TALLY_HTTP_REQUEST_ID_CAPACITY
};

struct route;

/* What is said of a request when it has been answered, and is itself gone. */
struct access {
    char method[16], path[256]; /* cut; "" if the peer had gone before */
    int status;
    uint64_t bytes; /* of the answer on the wire; 0 for a stream, which has only begun */
};

struct call;

/* Takes what another replica has answered, which is in the call as if it were ours, or the error in
 * its place (forward_has_answer() tells them apart). Answers in the end, with send_answer(). */
typedef void collector_fn(struct tally_coordinator *coordinator, struct call *call);

/* A request from its arrival to its answer. */
struct call {
    struct tally_http_request *request; /* NULL once its connection is gone */
    struct request_holder holder;       /* this call */
    const struct route *route;
    struct token_identity identity; /* of the token that it came with */
    const char *token_name;         /* likewise; "" = none; lives as long as this step */
    int64_t token_until_ms;         /* likewise; Unix time, INT64_MAX = no end */
    char params[MAX_PATH_PARAMS][TALLY_JOB_ID_CAPACITY]; /* "{id}" of the path */
    /* The answer, once it is made. */
    bool answered;
    bool in_transaction; /* it ran while the step's transaction was open: it may rest on it */
    int status;
    const char *content_type;
    struct tally_buffer body;
    const char *static_body; /* instead of body: lives for ever */
    size_t n_static_body;
    struct {
        const char *name, *value; /* both live for ever */
    } headers[MAX_CALL_HEADERS];  /* beside those that follow from the status; ended by NULL */
    char request_id[REQUEST_ID_CAPACITY]; /* told by the caller, or drawn if anybody sees it */
    bool request_id_told;
    int64_t arrived_ns; /* monotonic */
    struct access access;
    struct tally_error error;                        /* that the answer tells; OK = none */
    bool repeated, reports_failure, reports_refusal; /* of an update, for the metrics */
    /* Of an update that is to wait for the session's next task once it is durable. */
    uint64_t polling_session; /* 0 = it is not */
    int64_t poll_until_ms;    /* monotonic; of a poll alone, too */
    struct tally_update_response update_response;
    bool streaming; /* the handler has begun a stream: nothing is left to be sent */
    char location[64];
    const char *allow;                  /* methods, for 405 */
    char job_id[TALLY_JOB_ID_CAPACITY]; /* whose wire bytes these are; "" = nobody's */
    struct forwarded *forwarded;        /* another replica is, or was, to answer; NULL = this one */
    bool polls;                         /* it may wait there for a task; of a session's call */
    collector_fn *collector;            /* NULL: what the other replica answers is the answer */
    /* Of an answer that is collected from all replicas, one after the other. */
    struct tally_json *collected; /* so far */
    int64_t asked;                /* number of the replica that was asked last */
    struct call *next;
};

struct call_queue {
    struct call *first, **last;
};

typedef enum tally_status handler_fn(struct tally_coordinator *coordinator, struct call *call,
                                     struct tally_error *err);

enum route_kind { ROUTE_PUBLIC, ROUTE_ADMIN, ROUTE_WORKER, ROUTE_METRICS };

/* Which replica answers (request_routing.h), where there are several. */
enum route_place {
    AT_ANY,
    AT_LEADER,          /* of the job in the path */
    AT_LEADER_OR_STORE, /* likewise; while it has none, as the store has it */
    AT_SESSION,
    AT_WORKERS_JOB /* of a worker that joins */
};

struct route {
    const char *method;
    const char *path; /* "{id}" matches one segment */
    enum route_kind kind;
    bool writes; /* runs in the step's transaction; others run after its commit */
    handler_fn *handler;
    enum route_place place;
};

/* The whole table, ended by a NULL method. */
extern const struct route ROUTES[];

struct tally_coordinator {
    struct tally_store *store;
    struct tally_coordinator_config config;
    struct session_table sessions;
    struct hosted_job *jobs, **last_job; /* live jobs, oldest first */
    struct hosted_job *jobs_by_id[JOB_BUCKETS];
    int64_t n_jobs;
    struct job_marks marks;
    struct ended_jobs ended;
    struct preparer *preparer;
    struct memory_use memory; /* when jobs were last started */
    int64_t replica_number;   /* by which the other replicas know this one; 0 = there are none */
    struct forwarding *forwarding; /* to them; NULL = likewise */
    int wake_fd;
    struct tally_buffer answer; /* to a poll, while it is made */
    bool in_transaction;
    bool transaction_failed;          /* a write in it failed; it will be rolled back */
    bool was_fenced;                  /* since a job of it is led by another replica by now */
    bool must_commit;                 /* there is more in it than pending updates */
    bool defers;                      /* it stays open through this turn */
    int64_t defer_until_ms;           /* monotonic; 0 = it has not been deferred yet */
    const struct call *last_deferred; /* of those written, as far as they have been looked at */
    bool draining;
    bool assignment_changed; /* sessions or jobs came or went: look for jobs to start */
    bool assignment_failed;  /* a start was not stored: look again in a second */
    bool begin_failed;       /* in this step; every further try would wait for the lock again */
    bool reload_due;         /* jobs that need it are read back, outside of any transaction */
    struct pending_updates pending; /* of the open transaction */
    struct call *free_calls;        /* to be used again: malloc() takes long for what is so large */
    int n_free_calls;
    struct call_queue reads;   /* to run after the commit */
    struct call_queue written; /* ran; to answer after the commit */
    struct session *ready;     /* sessions whose long poll may have an answer */
    int64_t next_tick_ms;
    uint64_t n_ticks;
    uint64_t n_requests;
    struct tally_error store_error; /* of the last failed commit or write; OK = none */
    struct tally_error damage;      /* the first that the store showed since the start; OK = none */
    int64_t store_failed_ms;        /* Unix time since when there has been one */
    int64_t n_streams;              /* event streams that are open */
    struct event_stream *first_stream, *last_stream;
    struct event_feed *feeds; /* one for each job that has streams */
    int64_t next_events_ms;
    bool streams_hungry;               /* some have taken all they were given and lack more */
    struct series_cache *series_cache; /* NULL until it is needed */
    struct replicas *replicas;         /* replicas.h; NULL: the store is this process's alone */
    struct metrics metrics;
    struct {
        uint64_t rounds, dropped_answers;
    } uncommitted;              /* of the open transaction, for the metrics */
    uint32_t request_id_prefix; /* random; drawn with the first id */
    uint64_t n_request_ids;
};

/* Jobs (live_jobs.c). */

struct hosted_job *find_job(const struct tally_coordinator *coordinator, const char *id);
/* Rows of jobs, collected in a walk; free(rows). */
struct job_rows {
    struct tally_store_job *rows;
    size_t n, capacity;
};
enum tally_status collect_row(void *rows, const struct tally_store_job *row,
                              struct tally_error *err);

/* Takes a live job from the store among the live ones; `event` is for the log. A damaged one ends.
 * Not within a bracket. Errors: STORE, NO_MEMORY. */
enum tally_status load_job(struct tally_coordinator *coordinator, struct tally_store_job *row,
                           const char *event, struct tally_error *err);
/* Ends a job that cannot be read back; `row` is as stored. Not within a bracket. */
enum tally_status bury_job(struct tally_store *store, struct tally_store_job *row,
                           const struct tally_error *why, struct tally_error *err);
/* Takes a job out of the list; what the store has of it stays. */
void drop_job(struct tally_coordinator *coordinator, struct hosted_job **at);
/* Takes a loaded job among the live ones. */
void add_job(struct tally_coordinator *coordinator, struct hosted_job *job);
/* find_job() does not find it any more. */
void forget_job_id(struct tally_coordinator *coordinator, const struct hosted_job *job);
/* Makes f(x*) of the job known: at once, or in its turn if it must be solved. */
enum tally_status prepare_job(struct tally_coordinator *coordinator, struct hosted_job *job,
                              struct tally_error *err);
/* Reads the row of a job that may be live or not. Errors: NOT_FOUND, STORE. */
enum tally_status read_row(struct tally_coordinator *coordinator, const char *id,
                           struct tally_store_job *ret_row, struct tally_error *err);
/* The same, and appends its document. Errors: NOT_FOUND, STORE. */
enum tally_status read_job(struct tally_coordinator *coordinator, const char *id,
                           struct tally_store_job *ret_row, struct tally_buffer *document,
                           struct tally_error *err);
/* What the store has said to the last attempt to write: OK, or why it could not. */
void note_store(struct tally_coordinator *coordinator, const struct tally_error *said);
/* Fails as a write does that is not stored: STORE, or UNAVAILABLE if it is not ours to write. */
enum tally_status fail_write(const struct tally_coordinator *coordinator, struct tally_error *err);
/* Opens the transaction of this step if it is not open. */
enum tally_status begin_write(struct tally_coordinator *coordinator, struct tally_error *err);
/* The same for an update that may be pending for a while. */
enum tally_status begin_update(struct tally_coordinator *coordinator, struct tally_error *err);
/* Fails the job, in the open transaction, with the reason that TALLY_REASON_WRITE wrote. */
enum tally_status fail_job(struct tally_coordinator *coordinator, struct hosted_job *job,
                           const char *reason, struct tally_error *err);
/* Remembers a DATA_LOSS for /readyz; other errors are passed over. */
void note_damage(struct tally_coordinator *coordinator, const struct tally_error *err);
/* If `status` is not OK, notes that the open transaction cannot be committed. Returns `status`. */
enum tally_status write_failed(struct tally_coordinator *coordinator, enum tally_status status,
                               const struct tally_error *err);

/* Scheduling (schedule.c). */

/* Puts the session on the list of those whose poll is looked at after the commit. */
void mark_ready(struct tally_coordinator *coordinator, struct session *session);
void mark_job_ready(struct tally_coordinator *coordinator, struct hosted_job *job);
/* Fills vacant clients and starts queued jobs that can be filled. Writes. */
void assign_slots(struct tally_coordinator *coordinator);
/* Whether an open round waits for a client of the session. */
bool has_work(const struct session *session);
/* Answers the polls of ready sessions that have work or whose time is over. */
void serve_polls(struct tally_coordinator *coordinator, int64_t now_ms);
/* Answers a waiting poll with `idle`. */
void answer_idle(struct tally_coordinator *coordinator, struct session *session);
/* Answers the polls that came with updates of a job that has ended, while its bytes still count. */
void answer_last_updates(struct tally_coordinator *coordinator, struct hosted_job *job);
/* The update of the call is durable: it waits for a task from now on, and the call is over. False
 * if it cannot wait. */
bool begin_polling(struct tally_coordinator *coordinator, struct call *call);

/* Whether a started job will give its slots and its memory back without anybody's help. */
bool is_progressing(const struct hosted_job *job);
/* Whether any worker that is here may serve the job. */
bool can_be_served(const struct tally_coordinator *coordinator, const struct hosted_job *job);
/* Slots of workers here that can go elsewhere once what they play has ended; not those of workers
 * that a job keeps which does not get on. */
int64_t count_moving_slots(const struct tally_coordinator *coordinator);
/* Key of the oldest queued job that the slots here will be enough for; 0 = none. */
int64_t find_expectant(const struct tally_coordinator *coordinator);
/* The oldest job that lacks slots which others could send, and how many; key 0 = none.
 * n_elsewhere: slots of all other replicas; n_free_elsewhere: of them, those that are free. */
void find_want(const struct tally_coordinator *coordinator, int64_t n_elsewhere,
               int64_t n_free_elsewhere, int64_t *ret_key, int64_t *ret_slots);
/* Whether a started job cannot get on before some worker plays its vacant clients. */
bool is_stuck(const struct hosted_job *job);
/* Slots free for the job now. */
int64_t count_free_slots(const struct tally_coordinator *coordinator, const struct hosted_job *job);

/* Stragglers (stragglers.c). */

/* The open round's time, and what the job waits for, begin now. */
void restart_clock(struct hosted_job *job);
/* The same of a job that was read from the store: its workers have to come back first. */
void restart_clock_after_outage(struct hosted_job *job);
/* The store takes writes again, also those of updates that it has refused to take. */
void restart_clocks_after_outage(struct tally_coordinator *coordinator);
/* Whether an event of the engine closed a round or ended the job. */
bool has_closed(const struct hosted_job *job, const struct tally_job_outcome *outcome);
/* Persists what it closed, in the open transaction, and goes on from there. */
enum tally_status put_closed(struct tally_coordinator *coordinator, struct hosted_job *job,
                             const struct tally_job_outcome *outcome, struct tally_error *err);
/* A round has closed or the job has ended. */
void after_round(struct tally_coordinator *coordinator, struct hosted_job *job);
/* The worker is there: its clients are waited for (again). */
void hear_of(const struct session *session);
/* Tells the engines who is absent and who is back. Writes. */
void settle_absence(struct tally_coordinator *coordinator);
/* Ends rounds and jobs whose time is over, as their policy says. Writes. */
void check_deadlines(struct tally_coordinator *coordinator, int64_t now_ms);

/* Ends a session and frees its slots. */
void end_session(struct tally_coordinator *coordinator, struct session *session);

/* Event streams (events.c). */

/* Fills the streams from the store, after the commit; true if the next turn is to go on with it. */
bool serve_events(struct tally_coordinator *coordinator, int64_t now_ms);
/* The job is one of the live ones here: its streams hear of it at once. */
void events_adopt_job(struct tally_coordinator *coordinator, struct hosted_job *job);
/* The job is taken out of the live ones here. */
void events_forget_job(struct hosted_job *job);
/* Ends all streams; whoever comes again goes on where it was. */
void end_streams(struct tally_coordinator *coordinator);

/* Series (rest/series.c). */

struct series;
/* All rounds of a job that the store holds, kept for the next time. Borrowed until the next call.
 * Errors: STORE, DATA_LOSS, NO_MEMORY. */
enum tally_status read_series(struct tally_coordinator *coordinator,
                              const struct tally_store_job *row, const struct series **ret_series,
                              struct tally_error *err);
void free_series_cache(struct tally_coordinator *coordinator);

/* Runs the reads that waited for the commit (dispatch.c). */
void run_reads(struct tally_coordinator *coordinator);

/* Answers (responses.c). */

/* Body made of JSON; `value` is taken, NULL is out of memory. */
enum tally_status answer_json(struct call *call, int status, struct tally_json *value,
                              struct tally_error *err);
void answer_error(struct call *call, const struct tally_error *err);
/* Begins a stream with the call's headers and content type. Errors: NO_MEMORY. */
enum tally_status begin_stream(struct tally_coordinator *coordinator, struct call *call,
                               const struct tally_http_stream_config *config,
                               struct tally_http_stream **ret_stream, struct tally_error *err);
/* Takes back what another replica has answered, or that it has not. */
void clear_answer(struct call *call);
/* A call without anything; NULL without memory. */
struct call *call_new(struct tally_coordinator *coordinator);
void call_free(struct tally_coordinator *coordinator, struct call *call);
/* Counts and logs a call whose request is answered by somebody else, and frees it. */
void hand_over_call(struct tally_coordinator *coordinator, struct call *call);
/* Sends what the call holds and frees it. */
void send_answer(struct tally_coordinator *coordinator, struct call *call);
/* A protobuf answer to a request that has no call any more (a long poll), with the tail if it is
 * not NULL. Repeats the request's id if it has one. Returns wire bytes. */
uint64_t send_protobuf(struct tally_http_request *request, struct tally_buffer *body,
                       struct tally_shared_bytes *tail);

/* Requests and the log (access_log.c). */

/* The X-Request-Id of the request if it is one that we repeat, else NULL. */
const char *told_request_id(const struct tally_http_request *request);
/* Whether the answer repeats the id. */
bool shows_request_id(const struct call *call);
void draw_request_id(struct tally_coordinator *coordinator, char ret_id[REQUEST_ID_CAPACITY]);

/* Before the answer is sent, draws the request's id and fills call->access, if they are needed. */
void begin_access(struct tally_coordinator *coordinator, struct call *call);
/* After it: counts the request and writes its line into the log, at a level that fits. */
void end_access(struct tally_coordinator *coordinator, const struct call *call);

/* Request body as text. */
enum tally_status read_body(struct call *call, const char *content_type, const uint8_t **ret_body,
                            size_t *ret_size, struct tally_error *err);
/* A query parameter as an integer within limits, or `otherwise` if it is absent. */
enum tally_status read_query_integer(struct call *call, const char *name, int64_t min, int64_t max,
                                     int64_t otherwise, int64_t *ret_value,
                                     struct tally_error *err);

/* Handlers, one file per group of routes. */
handler_fn post_job, list_jobs, get_job, cancel_job, pause_job, resume_job; /* rest/jobs.c */
handler_fn get_rounds, get_rounds_csv, get_model;                           /* rest/results.c */
handler_fn get_healthz, get_readyz;                                         /* rest/service.c */
handler_fn get_workers;                                                     /* rest/workers.c */
handler_fn get_series;                                                      /* rest/series.c */
handler_fn get_events;                                                      /* events.c */
handler_fn get_metrics;                                                     /* metrics.c */
handler_fn get_asset;                                                       /* rest/dashboard.c */
handler_fn worker_join, worker_poll, worker_update, worker_leave;           /* worker_calls.c */

#endif
