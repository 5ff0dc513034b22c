/* hosted_job: a live job in the coordinator: its engine, its row in the store, and which sessions
 * have its clients. */
#ifndef TALLY_SERVICES_COORDINATOR_JOBS_HOSTED_JOB_H
#define TALLY_SERVICES_COORDINATOR_JOBS_HOSTED_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "api/json/json.h"
#include "api/worker/worker_messages.h"
#include "codec/base/buffer.h"
#include "codec/base/list.h"
#include "codec/base/shared_bytes.h"
#include "services/coordinator/access/token_set.h"
#include "services/coordinator/jobs/stored_state.h"
#include "services/coordinator/traffic/traffic.h"
#include "services/document/detail.h"
#include "services/job/job.h"
#include "storage/store.h"

struct ordered_node; /* of sessions/ordered.h */
struct refusal;      /* of sessions/session.h */
struct session;

/* Sessions that would serve the same jobs if there were no refusals. */
struct supply {
    struct ordered_node *free; /* sessions with a free slot, in order of joining */
    int64_t n_sessions;
    int64_t n_free; /* slots */
};

/* What a job knows of sessions. */
struct job_supply {
    struct supply bound;      /* sessions that serve only this job */
    int64_t n_assigned;       /* clients that unbound sessions have */
    struct refusal *refusals; /* of this job, by any session */
    int64_t n_refusing;       /* sessions that would serve it if they did not refuse it ... */
    int64_t n_refused_free;   /* ... and their free slots */
};

/* The last worker that refused the job because the job's plug-in is not loaded there. Kept when the
 * worker leaves, because the job waits for another. */
struct plugin_absence {
    char worker[TALLY_WORKER_NAME_CAPACITY]; /* "" = none */
    char reason[TALLY_FAILURE_CAPACITY];
};

/* One of the M clients of a job. */
struct client_slot {
    struct session *session;                   /* that has it; NULL = vacant */
    struct tally_list_node in_assigned;        /* hosted_job.assigned */
    uint32_t place;                            /* in session.assignments */
    char previous[TALLY_WORKER_NAME_CAPACITY]; /* worker that had it before; "" = none */
    struct token_identity previous_identity;   /* of its token */
    int64_t delivered_iterate;                 /* newest point that its workers were sent */
    bool has_shift; /* its session has the client's shift (algorithms/shift.h) */
    bool absent;    /* not to be waited for, if the policy allows (rounds.h) */
};

/* What the tasks of one round have in common for clients that hold the same point, as most do. */
struct shared_task {
    int64_t round, have;             /* 0 = none is encoded */
    struct tally_buffer bytes;       /* tally_task.shared */
    struct tally_shared_bytes *tail; /* or here, if it is large */
};

/* What a coordinator knows of all its live jobs, so that it need not scan them in every turn. */
struct job_marks {
    const uint64_t *transaction; /* number of the one that is open, or of the next */
    bool absence_changed;        /* of some of them */
    bool ended;                  /* the rows of some of them say so */
};

/* What the clients reported in the last closed round that has metrics is stored among the updates,
 * under TALLY_STORE_METRICS_ROUND: one row for each block of clients that has any, under its first
 * client, as an encoded tally_updates without payloads. It is dropped and written again with every
 * round that closes, and stays when the job ends. */
enum { CLIENT_METRICS_BLOCK = TALLY_MAX_UPDATES };

/* The traffic of single clients is stored in the same transaction as the row's wire counters, so
 * that its sum never exceeds them: this often, when the job ends, and when the coordinator shuts
 * down. What a crash loses of it remains only in the job's counters. */
enum { TRAFFIC_STORED_EVERY_MS = 10000 };

struct hosted_job {
    struct job_marks *marks;    /* the coordinator's; NULL until it has added the job */
    struct tally_store_job row; /* as last written */
    struct tally_job_spec spec;
    struct tally_buffer document; /* JSON text, as stored */
    struct tally_job *engine;
    struct client_slot *slots;      /* [clients]; NULL while it is queued and has no workers */
    struct client_traffic *traffic; /* [clients]; NULL while there are no slots */
    bool traffic_has_moved;         /* since it was stored */
    int64_t traffic_stored_ms;      /* monotonic */
    int64_t n_vacant;
    struct tally_list assigned; /* the slots that are not vacant, those assigned last at the end */
    struct job_supply supply;
    struct plugin_absence absence;
    int64_t started_bytes, solving_bytes; /* estimates of services/job/footprint.h */
    bool prepared;            /* f_star and schedule below are known: the job may start */
    int64_t prepare_began_ms; /* monotonic; when that was asked for; 0 = not yet, or not here */
    int64_t prepare_took_ms;
    double f_star;
    char schedule[TALLY_SCHEDULE_CAPACITY]; /* that it starts with; "" = none was planned */
    struct tally_curvature curvature;       /* of f; unknown until prepared */
    struct tally_error prepare_error; /* why f_star cannot be had; OK = nothing known against it */
    uint64_t touched_in;              /* number of the last transaction that wrote to it */
    struct stored_state stored_state;
    bool has_stored_updates; /* the store may hold some, of rounds that are closed or open */
    bool needs_reload;   /* a commit failed, so the engine is ahead of the store; or lacks_memory */
    bool is_deleted;     /* by the open transaction; it leaves the live jobs once that commits */
    bool lacks_memory;   /* to read it back from the store: a queued engine stands in for its own */
    bool deadline_noted; /* the open round's deadline has passed, and did not end it */
    bool absence_changed;     /* the engine does not know yet what the slots say: mark_absence() */
    int64_t round_opened_ms;  /* monotonic; or resumed, or read back from the store */
    int64_t deadline_from_ms; /* monotonic; of the same round, also after a failed store */
    int64_t waits_since_ms;   /* Unix time of the same, or of the last change of status */
    char noted_missing[TALLY_MISSING_CAPACITY]; /* of the last record, as the log has said */
    int64_t arrived_ms; /* monotonic; when it was read from the store, by a replica that has been
                           started or takes it over; 0 = it was submitted here */
    struct shared_task shared_task;
    struct event_feed *feed; /* of its event streams (rest/events.h); NULL = none */
    uint64_t recovery_bits, wire_in_bytes, wire_out_bytes; /* live; the row's lag behind */
    struct hosted_job *next;                               /* by age, oldest first */
    struct hosted_job *next_of_id;                         /* in the same bucket */
};

/* Makes or frees the slots and the traffic of a job whose clients are all vacant. */
enum tally_status hosted_job_make_slots(struct hosted_job *job, struct tally_error *err);
void hosted_job_drop_slots(struct hosted_job *job);

/* Loads a live job: engine restored, stored updates of the open round received again. Errors:
 * STORE, DATA_LOSS, NO_MEMORY. */
enum tally_status hosted_job_load(struct tally_store *store, const struct tally_store_job *row,
                                  struct hosted_job **ret_job, struct tally_error *err);
/* For a job whose hosted_job_load() failed with NO_MEMORY: loads all but the engine, and sets
 * needs_reload. */
enum tally_status hosted_job_load_later(struct tally_store *store,
                                        const struct tally_store_job *row,
                                        struct hosted_job **ret_job, struct tally_error *err);
/* Brings the engine back to what the store holds. Errors as hosted_job_load(). */
enum tally_status hosted_job_reload(struct tally_store *store, struct hosted_job *job,
                                    struct tally_error *err);
void hosted_job_free(struct hosted_job *job);
/* An update, as the engine receives it; borrows the payload. */
struct tally_job_update event_of(const struct tally_update *update);

/* How many more slots the job needs (tally_job_spec_slots) so that each client of a round can have
 * one, whichever clients are drawn. */
int64_t hosted_job_n_lacking(const struct hosted_job *job);
/* Whether the workers of a job that was read from the store have had time to rejoin. */
bool hosted_job_is_settled(const struct hosted_job *job);
/* Whether a started job will give back its slots and its memory without help from outside. */
bool hosted_job_is_progressing(const struct hosted_job *job);
/* Whether a started job cannot progress before it has more slots. */
bool hosted_job_is_stuck(const struct hosted_job *job);
/* Whether a queued job lacks nothing but slots and memory to start. */
bool hosted_job_may_start(const struct hosted_job *job);

/* Notes that the open transaction writes to the job. */
void mark_touched(struct hosted_job *job);
/* Notes that a client has become absent or has returned. */
void mark_absence(struct hosted_job *job);

/* Writes the row from the engine and the live counters; in an open transaction. */
enum tally_status hosted_job_put_row(struct tally_store *store, struct hosted_job *job,
                                     int64_t now_ms, struct tally_error *err);
/* Writes the row, the state and the records of rounds that closed, and drops the updates of those
 * rounds. */
enum tally_status hosted_job_put_rounds(struct tally_store *store, struct hosted_job *job,
                                        const struct tally_job_outcome *outcome, int64_t now_ms,
                                        struct tally_error *err);

/* Adds what n clients of the job exchanged: the bytes, in and out, and the updates. */
void hosted_job_count_bytes(struct hosted_job *job, const struct traffic_part *parts, size_t n,
                            uint64_t in, uint64_t out);
void hosted_job_count_updates(struct hosted_job *job, const struct traffic_part *parts, size_t n);
/* Stores the traffic, in an open transaction in which the job's row has been written. */
enum tally_status hosted_job_put_traffic(struct tally_store *store, struct hosted_job *job,
                                         struct tally_error *err);

/* The job detail of a row and its document. waiting: what the job waits for, or NULL. NULL = out of
 * memory or a document that is not JSON. */
struct tally_json *job_detail(const struct tally_store_job *row,
                              const struct tally_buffer *document,
                              const struct tally_waiting *waiting);

#endif
