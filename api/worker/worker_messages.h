/* worker_messages: the messages of api/worker/proto/tally/v1/worker.proto as plain structs, and
 * their protobuf encoding.
 *
 * Decoding copies nothing large: byte fields and repeated fields of a decoded struct borrow from
 * the body that was decoded or from the struct's own fixed arrays, and are valid only as long as
 * both. Unknown fields are skipped. A field that is malformed or too long, or occurs too often,
 * gives MALFORMED and is named. */
#ifndef TALLY_API_WORKER_WORKER_MESSAGES_H
#define TALLY_API_WORKER_WORKER_MESSAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/buffer.h"
#include "codec/error.h"
#include "codec/record.h"

enum {
    TALLY_MESSAGE_JOB_ID_CAPACITY = 33, /* with NUL */
    TALLY_WORKER_NAME_CAPACITY = 65,    /* with NUL */
    TALLY_ENCODING_NAME_CAPACITY = 16,  /* with NUL */
    TALLY_ADDRESS_CAPACITY = 64,        /* with NUL: of an IP address */
    TALLY_FAILURE_CAPACITY = 257,       /* with NUL */
    TALLY_STARTS_CAPACITY = 1041,       /* with NUL: 16 names of plug-ins */
    TALLY_MAX_SLOTS = 8192,             /* clients in one session */
    TALLY_MAX_CURSORS = 16,
    TALLY_MAX_BROADCASTS = 64,          /* in one task; past it the server sends a snapshot */
    TALLY_MAX_UPDATES = 4096,           /* in one request */
    TALLY_RESULT_CODE_CAPACITY = 24,    /* with NUL */
    TALLY_RESULT_MESSAGE_CAPACITY = 482 /* with NUL: a field and a message of tally_error */
};

/* Upper bounds of the bytes of an update besides its payload. Numbers take up to 10 bytes (uint64)
 * or 5 (uint32), tags 1. */
enum {
    TALLY_UPDATE_OWN_BYTES = 52,   /* client, payload_bits, clipped, loss; tags and lengths, also
                                    * that of evaluation_failure */
    TALLY_METRIC_BYTES = 48,       /* a name of up to 32 bytes, a double; tags and lengths */
    TALLY_UPDATE_WHOLE_BYTES = 80, /* session, job_id, round, mark, columns; what every poll has */
    TALLY_CURSOR_BYTES = 54,       /* job_id, iterate, scaling; tags and lengths */
    TALLY_UNDELIVERABLE_BYTES = 16 + TALLY_MESSAGE_JOB_ID_CAPACITY + TALLY_FAILURE_CAPACITY,
    /* of a PostUpdateRequest of one update without metrics, by a worker of one job */
    TALLY_UPDATE_BYTES = TALLY_UPDATE_OWN_BYTES + TALLY_UPDATE_WHOLE_BYTES + TALLY_CURSOR_BYTES
};

struct tally_bytes {
    const uint8_t *data;
    size_t size;
};

struct tally_cursor {
    char job_id[TALLY_MESSAGE_JOB_ID_CAPACITY];
    uint64_t iterate;
    uint32_t scaling; /* digest of the scaling that the worker has; 0 = none */
};

struct tally_held_client {
    char job_id[TALLY_MESSAGE_JOB_ID_CAPACITY];
    uint32_t client;
};

enum { TALLY_ENDED_CAPACITY = 16 }; /* "completed", "failed", "cancelled" */

struct tally_join_request {
    char name[TALLY_WORKER_NAME_CAPACITY];
    uint32_t slots;
    char job_id[TALLY_MESSAGE_JOB_ID_CAPACITY]; /* "" = any */
    struct tally_held_client *held;             /* heap when decoded: tally_join_request_fini */
    size_t n_held;                              /* at most TALLY_MAX_SLOTS */
    uint32_t format;                            /* TALLY_FORMAT_VERSION of the worker */
    char starts[TALLY_STARTS_CAPACITY]; /* plug-ins that offer a start, with spaces between */
};
void tally_join_request_fini(struct tally_join_request *message);

struct tally_join_response {
    uint64_t session;
    uint32_t session_timeout_ms;
    uint32_t format;      /* TALLY_FORMAT_VERSION of the coordinator */
    uint32_t max_wait_ms; /* of a poll, where there are several coordinators; 0 = there is one */
    uint32_t max_batch_bytes;           /* of a PostUpdateRequest of several updates */
    char rival[TALLY_ADDRESS_CAPACITY]; /* of a live worker of the same name; "" = there is none */
    char ended[TALLY_ENDED_CAPACITY];   /* the status of the job, and no session; "" = not ended */
};

/* Whether worker and coordinator are of the same format. Errors: FAILED_PRECONDITION, naming the
 * side to upgrade. */
enum tally_status tally_join_check_format(uint32_t worker, uint32_t coordinator,
                                          struct tally_error *err);

/* A job of which the worker cannot post an update. */
struct tally_undeliverable {
    char job_id[TALLY_MESSAGE_JOB_ID_CAPACITY]; /* "" = none */
    char reason[TALLY_FAILURE_CAPACITY];        /* "" = the worker would try again */
};

struct tally_poll_request {
    uint64_t session;
    uint32_t wait_ms;
    struct tally_cursor cursors[TALLY_MAX_CURSORS];
    size_t n_cursors;
    bool until_idle; /* respond as soon as no job is left for the session */
    struct tally_undeliverable undeliverable;
};

struct tally_broadcast {
    uint64_t iterate; /* of the point that results from applying it */
    struct tally_bytes payload;
    uint64_t payload_bits;
    double quantizer_step;
    uint32_t quantizer_intervals;
    uint32_t quantizer_scale;
};

struct tally_client_shift {
    uint32_t client;
    uint32_t round;            /* 0 = none */
    struct tally_bytes vector; /* dim little-endian float32; empty = the worker has it */
};

struct tally_task {
    char job_id[TALLY_MESSAGE_JOB_ID_CAPACITY];
    struct tally_bytes job_document; /* empty = the worker has it */
    uint32_t round;
    uint32_t stage;
    uint64_t iterate;
    uint64_t samples;
    double quantizer_step;
    uint32_t quantizer_intervals;
    uint32_t quantizer_scale;
    double distance, client_spread, noise, noise_growth, travel_step, shift_gain, step_size;
    uint32_t repeats;
    uint64_t max_bits;
    char encoding[TALLY_ENCODING_NAME_CAPACITY];
    bool evaluate;
    bool cut;
    bool evaluate_model;
    uint32_t evaluator; /* 1 + the only client that evaluates the model; 0 = all do */
    uint32_t deadline_ms;
    uint64_t x_checksum;
    uint32_t mark;     /* tally_job_round.mark; 0 = none */
    uint32_t *clients; /* heap when decoded */
    size_t n_clients;
    struct tally_client_shift *shifts; /* heap when decoded */
    size_t n_shifts;                   /* at most TALLY_MAX_SLOTS */
    struct tally_broadcast broadcasts[TALLY_MAX_BROADCASTS];
    size_t n_broadcasts;
    struct tally_bytes snapshot; /* dim little-endian float64; empty = none */
    bool wants_start;            /* asks for the point to start from; there is no round yet */
    bool wants_survey;           /* asks for the survey of each client's points */
    uint32_t scaling_digest;     /* of the scaling of the features; 0 = none */
    struct tally_bytes scaling;  /* double[3][features], little-endian; empty = the worker has it */
    /* To encode: what tally_task_encode_shared() made of a task that differs only in `clients`,
     * `shifts` and `deadline_ms`; the other members are then ignored. Empty = none. */
    struct tally_bytes shared;
    bool shared_is_apart; /* the encoding ends before `shared`, which the caller sends after it */
};

enum tally_poll_kind { TALLY_POLL_IDLE, TALLY_POLL_TASK, TALLY_POLL_RELEASED };

struct tally_poll_response {
    enum tally_poll_kind kind;
    uint32_t jobs_pending;                               /* IDLE */
    struct tally_task task;                              /* TASK */
    char released_job_id[TALLY_MESSAGE_JOB_ID_CAPACITY]; /* RELEASED */
};
/* Frees the arrays of a decoded response's task. */
void tally_poll_response_fini(struct tally_poll_response *message);

/* What one client has to say about a round: from the message that brings it to the engine, which
 * takes it, and into the store. */
struct tally_update {
    uint32_t round; /* of the request, as `mark`: for all its updates */
    uint32_t mark;  /* of the task; 0 = not given */
    uint32_t client;
    struct tally_bytes payload;
    uint64_t payload_bits;
    uint32_t clipped;
    bool has_loss;
    double loss;
    struct tally_metric metrics[TALLY_METRICS_MOST];
    size_t n_metrics;
    struct tally_metric evaluation[TALLY_METRICS_MOST]; /* of the round's point */
    size_t n_evaluation;
    char evaluation_failure[TALLY_FAILURE_CAPACITY]; /* "" = it has not failed */
    char failure[TALLY_FAILURE_CAPACITY]; /* why the client cannot answer; "" = it does */
    bool may_retry;                       /* the failure costs the client only this round */
    uint32_t attempt; /* tells failures that may be retried from each other; 0 = not given */
    char refusal[TALLY_FAILURE_CAPACITY]; /* why the worker cannot serve the job; "" = it does */
    bool tried;                 /* refused because the computation has failed (a plug-in) */
    bool lacks_plugin;          /* refused because the job's plug-in is not loaded */
    struct tally_bytes encoded; /* the ClientUpdate that was decoded; encoders ignore it */
};

/* The updates of a worker's clients for one round, and what they have in common. */
struct tally_update_request {
    uint64_t session;
    char job_id[TALLY_MESSAGE_JOB_ID_CAPACITY];
    uint32_t round;
    uint32_t mark;           /* of the task; 0 = not given */
    uint32_t columns;        /* tally_columns_digest() of the worker's data; 0 = no names */
    bool has_poll;           /* the response waits like that of a poll, and contains it */
    struct tally_bytes poll; /* an encoded tally_poll_request, decoded on its own */
    size_t n_updates;        /* of what was decoded */
    struct tally_bytes rest; /* of what was decoded: the updates that are still to be read */
};

/* The result of one of several updates. */
struct tally_update_result {
    uint64_t formula_bits;
    uint64_t payload_bits;
    char code[TALLY_RESULT_CODE_CAPACITY]; /* of Connect; "" = acknowledged */
    char message[TALLY_RESULT_MESSAGE_CAPACITY];
};

/* Without results all updates are acknowledged, and the bits are the sums over all of them. */
struct tally_update_response {
    uint64_t formula_bits, payload_bits;
    /* Set by the decoder; encoders ignore them. */
    size_t n_results;
    struct tally_bytes rest; /* results that are still to be read */
    bool has_next;
    struct tally_bytes next; /* an encoded tally_poll_response, decoded on its own */
};

/* Each encoder appends the protobuf bytes to *out (errors: NO_MEMORY, TOO_LARGE). Each decoder
 * reads exactly n bytes (errors: MALFORMED, NO_MEMORY). */
enum tally_status tally_join_request_encode(const struct tally_join_request *message,
                                            struct tally_buffer *out);
enum tally_status tally_join_request_decode(const uint8_t *bytes, size_t n,
                                            struct tally_join_request *ret_message,
                                            struct tally_error *err);
enum tally_status tally_join_response_encode(const struct tally_join_response *message,
                                             struct tally_buffer *out);
enum tally_status tally_join_response_decode(const uint8_t *bytes, size_t n,
                                             struct tally_join_response *ret_message,
                                             struct tally_error *err);
enum tally_status tally_poll_request_encode(const struct tally_poll_request *message,
                                            struct tally_buffer *out);
/* After an error, *ret_message is undefined. */
enum tally_status tally_poll_request_decode(const uint8_t *bytes, size_t n,
                                            struct tally_poll_request *ret_message,
                                            struct tally_error *err);
enum tally_status tally_poll_response_encode(const struct tally_poll_response *message,
                                             struct tally_buffer *out);
enum tally_status tally_poll_response_decode(const uint8_t *bytes, size_t n,
                                             struct tally_poll_response *ret_message,
                                             struct tally_error *err);
enum tally_status tally_task_encode_shared(const struct tally_task *task, struct tally_buffer *out);

/* Messages with updates begin with their session, so that the coordinator knows the sender before
 * the rest has arrived. */
enum { TALLY_SESSION_FIELD_BYTES = 9 };
void tally_session_write_first(uint64_t session, uint8_t ret_field[TALLY_SESSION_FIELD_BYTES]);
/* Reads the field; false if the message begins with another one. */
bool tally_session_read_first(const uint8_t field[TALLY_SESSION_FIELD_BYTES],
                              uint64_t *ret_session);

/* A request is written update by update, after the session's field. The message's other fields come
 * last, so that what was written before stays as it is when the request is sent again. (The session
 * may also come with them.) */
enum tally_status tally_update_request_add(const struct tally_update *update,
                                           struct tally_buffer *out);
enum tally_status tally_update_request_end(const struct tally_update_request *message,
                                           struct tally_buffer *out);
/* Reads the message's own fields and checks the number of updates, 1 .. TALLY_MAX_UPDATES. */
enum tally_status tally_update_request_decode(const uint8_t *bytes, size_t n,
                                              struct tally_update_request *ret_message,
                                              struct tally_error *err);
/* Reads the next update; to be called n_updates times. After an error, call again for the following
 * update. Errors: MALFORMED. */
enum tally_status tally_update_request_next(struct tally_update_request *message,
                                            struct tally_update *ret_update,
                                            struct tally_error *err);
/* Reads an update by itself, as tally_update.encoded has it. Its round and mark are 0. */
enum tally_status tally_update_decode(const uint8_t *bytes, size_t n,
                                      struct tally_update *ret_update, struct tally_error *err);

/* A response has either the results, written one by one, or the sums and `next`, the response to
 * the poll that came with the updates; NULL = there was none. */
enum tally_status tally_update_result_add(const struct tally_update_result *result,
                                          struct tally_buffer *out);
enum tally_status tally_update_response_encode(const struct tally_update_response *message,
                                               const struct tally_poll_response *next,
                                               struct tally_buffer *out);
enum tally_status tally_update_response_decode(const uint8_t *bytes, size_t n,
                                               struct tally_update_response *ret_message,
                                               struct tally_error *err);
/* Reads the next result; to be called n_results times. Errors: MALFORMED. */
enum tally_status tally_update_response_next(struct tally_update_response *message,
                                             struct tally_update_result *ret_result,
                                             struct tally_error *err);

/* How far a long message of a session has got. ProgressResponse is empty. */
struct tally_progress_request {
    uint64_t session;
    bool receives; /* a response; false = a request */
    uint64_t bytes, of_bytes;
};

enum tally_status tally_progress_request_encode(const struct tally_progress_request *message,
                                                struct tally_buffer *out);
enum tally_status tally_progress_request_decode(const uint8_t *bytes, size_t n,
                                                struct tally_progress_request *ret_message,
                                                struct tally_error *err);

enum { TALLY_ORIGIN_CAPACITY = 2049 };

/* With what a worker computes its updates of a job. DescribeResponse is empty. */
struct tally_describe_request {
    uint64_t session;
    char job_id[TALLY_MESSAGE_JOB_ID_CAPACITY];
    char origin[TALLY_ORIGIN_CAPACITY]; /* JSON */
};

enum tally_status tally_describe_request_encode(const struct tally_describe_request *message,
                                                struct tally_buffer *out);
/* Errors: MALFORMED. */
enum tally_status tally_describe_request_decode(const uint8_t *bytes, size_t n,
                                                struct tally_describe_request *ret_message,
                                                struct tally_error *err);
/* LeaveRequest holds only the session; LeaveResponse is empty. */
enum tally_status tally_leave_request_encode(uint64_t session, struct tally_buffer *out);
enum tally_status tally_leave_request_decode(const uint8_t *bytes, size_t n, uint64_t *ret_session,
                                             struct tally_error *err);

#endif
