/* calls: all requests in progress, from their arrival to their response, and their counters.
 *
 * A request becomes a call. Dispatch runs its handler at once or queues it for after the
 * commit; calls.c sends its response after the commit, and frees it. */
#ifndef TALLY_SERVICES_COORDINATOR_CALLS_H
#define TALLY_SERVICES_COORDINATOR_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/http/http_server.h"
#include "api/json/json.h"
#include "api/worker/worker_messages.h"
#include "codec/buffer.h"
#include "codec/error.h"
#include "codec/shared_bytes.h"
#include "services/coordinator/access.h"
#include "services/coordinator/call_counts.h"
#include "storage/store.h"

/* ---- A request from its arrival to its response, and the route that it takes. */

struct call;
struct session;
struct tally_coordinator;

enum {
    MAX_PATH_PARAMS = 1,
    MAX_CALL_HEADERS = 7,
    REQUEST_ID_CAPACITY = TALLY_HTTP_REQUEST_ID_CAPACITY
};

/* ---- Routes ---- */

typedef enum tally_status handler_fn(struct tally_coordinator *coordinator, struct call *call,
                                     struct tally_error *err);

enum route_kind { ROUTE_PUBLIC, ROUTE_ADMIN, ROUTE_WORKER, ROUTE_METRICS };

enum route_flag {
    ROUTE_WRITES = 1,      /* runs in the step's transaction; the others run after its commit */
    ROUTE_IN_MEMORY = 2,   /* writes nothing to the store: a failed commit does not undo it */
    ROUTE_IS_POLL = 4,     /* PollTask: waits for a task */
    ROUTE_IS_UPDATE = 8,   /* PostUpdate: counted by result, and may poll as well */
    ROUTE_ASKS_WORK = 16,  /* refused while the coordinator shuts down */
    ROUTE_IN_PIECES = 32,  /* its response may be made in pieces */
    ROUTE_IS_BRIEF = 64,   /* takes microseconds, and waits for no other read */
    ROUTE_TAKES_TAR = 128, /* its body is a tar archive, not JSON */
};

/* Which replica responds (replicas_routing.h), if there are several. */
enum route_place {
    AT_ANY,
    AT_LEADER,          /* of the job in the path */
    AT_LEADER_OR_STORE, /* the same; while the job has none, its state in the store */
    AT_SESSION,
    AT_WORKERS_JOB /* of a worker that joins */
};

struct route {
    const char *method;
    const char *path; /* "{id}" matches one segment */
    enum route_kind kind;
    unsigned flags; /* of enum route_flag */
    handler_fn *handler;
    enum route_place place;
};

/* ---- Calls ---- */

/* What the log says about a request; copied, because the request is gone once it has its
 * response. */
struct logged_request {
    char method[16], path[256]; /* truncated; "" if the client disconnected first */
    int status;
    uint64_t bytes; /* of the response on the wire; 0 for a stream, which has only begun */
};

/* The holder of an unanswered request: a call, or the session whose poll it is. */
struct request_holder {
    struct call *call;       /* NULL: the holder is the session */
    struct session *session; /* NULL = a call */
};

/* A call that another replica answers. First member of the structure that has the rest. */
struct forwarded {
    const char *replica_id;
    bool has_answer; /* the response is in the call, as if made here */
    void (*add_headers)(const struct forwarded *forwarded, struct tally_http_response *response);
    void (*free)(struct forwarded *forwarded);
};

/* A response that is made in pieces, because making it at once would block the loop for long. A
 * piece takes less than a millisecond. Other requests, also those that write, run between two
 * pieces, so a structure must not point to what they may change. First member of the structure that
 * has the rest. */
struct response_pieces {
    /* Appends the next piece to call->body; the last one makes the response (call_answer_bytes()).
     */
    enum tally_status (*write)(struct call *call, struct tally_error *err);
    void (*free)(struct response_pieces *pieces);
    size_t n_bytes; /* of memory that it holds besides call->body, if they are many */
};

/* Takes another replica's response, or the error that replaces it (call_has_forwarded_answer()),
 * and finally sends the call's response. */
typedef void collector_fn(struct tally_coordinator *coordinator, struct call *call);

struct call {
    struct tally_http_request *request;                  /* NULL once its connection is gone */
    struct request_holder holder;                        /* this call */
    const struct route *route;                           /* NULL = none matches */
    struct token_identity identity;                      /* of the token that it was sent with */
    const char *token_name;                              /* "" = none; valid during this step */
    int64_t token_until_ms;                              /* Unix time, INT64_MAX = no end */
    char params[MAX_PATH_PARAMS][TALLY_JOB_ID_CAPACITY]; /* "{id}" of the path */
    /* The response, once it is made. */
    bool answered;
    bool in_transaction; /* may depend on the step's transaction, open when it ran */
    int status;
    const char *content_type;
    struct tally_buffer body;
    const char *static_body; /* instead of body; constant */
    size_t n_static_body;
    struct {
        const char *name, *value; /* constants */
    } headers[MAX_CALL_HEADERS];  /* besides those that follow from the status; ended by NULL */
    char request_id[REQUEST_ID_CAPACITY]; /* the caller's, or a random one if something shows it */
    bool has_own_request_id;
    int64_t arrived_ns; /* monotonic */
    struct logged_request logged;
    struct tally_error error;     /* in the response; OK = none */
    struct tally_buffer document; /* of the request, completed (rest_surveys.h); empty = as sent */
    struct tally_json *errors;    /* all errors in the request's document; NULL = not known */
    /* For the metrics: the number of updates (0: not known), and how many had each result. */
    uint32_t n_updates, updates[N_UPDATE_RESULTS];
    /* For updates that wait for the session's next task once they are durable. */
    uint64_t polling_session;                     /* 0 = does not poll */
    int64_t poll_until_ms;                        /* monotonic; also of a poll without updates */
    struct tally_update_response update_response; /* of updates that are all acknowledged */
    bool streaming; /* the handler has begun a stream: nothing is left to be sent */
    bool is_held;   /* another owner keeps it and sends its response later */
    char location[64];
    const char *allow;                  /* methods, for 405 */
    char job_id[TALLY_JOB_ID_CAPACITY]; /* the job to which its wire bytes count; "" = none */
    struct tally_buffer parts;          /* struct traffic_part of that job's updates */
    struct forwarded *forwarded;        /* answered by another replica; NULL = by this one */
    struct response_pieces *pieces;     /* the response comes in pieces; NULL = at once */
    bool polls;              /* forwarded to a session's replica, and may wait there for a task */
    collector_fn *collector; /* NULL: the other replica's response becomes this call's */
    /* For a response that is collected from all replicas, one after the other. */
    struct tally_json *collected; /* so far */
    int64_t asked;                /* number of the replica that was asked last */
    struct call *next;
};

struct call_queue {
    struct call *first, **last;
};

/* ---- From a handler's result to the response (calls.c) ---- */

/* The response is call->body, with status 200, if `made`, the status of writing the body, is OK.
 * Errors: `made`. */
enum tally_status call_answer_bytes(struct call *call, enum tally_status made,
                                    const char *content_type, struct tally_error *err);
/* A JSON body. Takes `value`; NULL = out of memory. */
enum tally_status call_answer_json(struct call *call, int status, struct tally_json *value,
                                   struct tally_error *err);
/* For lists that are written element by element: appends an element, on a line of its own, after
 * "[" (is_first) or another element; ends the list and its line. Errors: NO_MEMORY, also if
 * `element` is NULL. */
enum tally_status call_append_element(struct tally_buffer *body, bool is_first,
                                      const struct tally_json *element);
enum tally_status call_end_list(struct tally_buffer *body, bool is_empty);
void call_answer_error(struct call *call, const struct tally_error *err);
/* Begins a stream with the call's headers and content type. Errors: NO_MEMORY. */
enum tally_status call_begin_stream(struct tally_coordinator *coordinator, struct call *call,
                                    const struct tally_http_stream_config *config,
                                    struct tally_http_stream **ret_stream, struct tally_error *err);
/* Removes another replica's response, or the error in its place, from the call. */
void call_clear_answer(struct call *call);
bool call_has_forwarded_answer(const struct call *call);
/* An empty call. */
struct call *call_new(struct tally_coordinator *coordinator);
void call_free(struct tally_coordinator *coordinator, struct call *call);
/* Counts, logs and frees a call whose request has a new holder, which answers it later. */
void call_hand_over(struct tally_coordinator *coordinator, struct call *call);
/* Sends the call's response and frees the call. */
void call_send(struct tally_coordinator *coordinator, struct call *call);
/* Sends a protobuf response to a request that no longer has a call (a long poll), followed by the
 * tail unless it is NULL. Repeats the request's id if it has one. Returns the wire bytes. */
uint64_t call_send_protobuf(struct tally_http_request *request, struct tally_buffer *body,
                            struct tally_shared_bytes *tail);

/* ---- What a handler reads (calls.c) ---- */

/* The request's body, if it has the content type and is not compressed. Errors:
 * UNSUPPORTED_MEDIA_TYPE. */
enum tally_status call_read_body(struct call *call, const char *content_type,
                                 const uint8_t **ret_body, size_t *ret_size,
                                 struct tally_error *err);
/* A query parameter as an integer within limits, or `otherwise` if it is absent. Errors:
 * INVALID_ARGUMENT. */
enum tally_status call_read_query_integer(struct call *call, const char *name, int64_t min,
                                          int64_t max, int64_t otherwise, int64_t *ret_value,
                                          struct tally_error *err);
/* Whether a list as in Accept or Accept-Encoding (RFC 9110, section 12.5) contains the name with a
 * weight other than 0. */
bool call_accepts(const char *list, const char *name);

/* ---- Ids and the log (request_log.c) ---- */

/* The X-Request-Id of the request if it may be repeated in the response, else NULL. */
const char *request_id_given(const struct tally_http_request *request);
/* Whether the response repeats the id. */
bool call_shows_request_id(const struct call *call);
void request_id_draw(struct tally_coordinator *coordinator, char ret_id[REQUEST_ID_CAPACITY]);
/* To be called before the response is sent: draws the request's id and fills call->access, if they
 * are needed. */
void request_log_begin(struct tally_coordinator *coordinator, struct call *call);
/* To be called after the response was sent: counts the request and logs it at a suitable level. */
void request_log_end(struct tally_coordinator *coordinator, const struct call *call);

struct calls {
    const struct route *routes; /* ended by a NULL method; borrowed */
    /* Adds an exchange to the counters of the call's job, if the job is live. Set by the owner of
     * this struct. */
    void (*count_wire)(struct tally_coordinator *coordinator, const struct call *call, uint64_t in,
                       uint64_t out);
    struct call *unused; /* freed calls, kept because malloc() is slow for their size */
    int n_unused;
    struct call_queue brief;     /* to run after the commit: with ROUTE_IS_BRIEF, .. */
    struct call_queue reads;     /* .. without, .. */
    struct call_queue in_pieces; /* .. and with ROUTE_IN_PIECES */
    struct call_queue begun;     /* those of them that have pieces left; they take turns */
    size_t begun_bytes;          /* of memory that the begun ones hold */
    struct call_queue written;   /* ran; to be answered after the commit */
    uint32_t request_id_prefix;  /* random; drawn with the first id */
    uint64_t n_request_ids;
    struct call_counts counts;
};

struct calls *calls_new(const struct route *routes);
/* Frees the calls that wait in the queues. To be called before the modules whose objects they hold
 * are freed. */
void calls_drop_queued(struct tally_coordinator *coordinator);
/* NULL is allowed. */
void calls_free(struct calls *calls);
void call_queue_push(struct call_queue *queue, struct call *call);
/* Whether requests wait to be answered after the commit, in this turn or in later ones. */
bool calls_have_reads(const struct calls *calls);
void call_queue_push_first(struct call_queue *queue, struct call *call);
/* Removes and returns the first call. Precondition: the queue is not empty. */
struct call *call_queue_pop(struct call_queue *queue);
/* Empties the queue and returns its calls as a list, linked by `next`. */
struct call *call_queue_take(struct call_queue *queue);

#endif
