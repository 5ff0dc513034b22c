/* hosted_job: a live job in the coordinator: its engine, its row in the store, and which sessions
 * have its clients. */
#ifndef TALLY_SERVICES_COORDINATOR_HOSTED_JOB_H
#define TALLY_SERVICES_COORDINATOR_HOSTED_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/json/json.h"
#include "api/worker/worker_messages.h"
#include "codec/buffer.h"
#include "codec/list.h"
#include "codec/shared_bytes.h"
#include "services/coordinator/access.h"
#include "services/coordinator/traffic.h"
#include "services/job/job.h"
#include "services/job/job_detail.h"
#include "storage/store.h"

/* ---- What the store has of an engine's state, and whether a closing round appends
 * its change to that or stores the whole state again. */

/* The whole state at some round, and what changed since. */
struct stored_state {
    struct tally_saved at; /* after the changes */
    size_t whole_bytes;    /* 0 = unknown: the whole state must be stored */
    size_t change_bytes;   /* of all changes */
    int n_changes, most_changes;
};

enum {
    STATE_SHORT_EIGHTHS = 2,
    STATE_SHORT_SUM_EIGHTHS = 16,
    STATE_LONG_BYTES = 64 * 1024,
    STATE_LONG_EIGHTHS = 5,
    STATE_LONG_SUM_EIGHTHS = 10,
    STATE_MOST_CHANGES = 64,
    STATE_MOST_ROUNDS_AGAIN = 32, /* if loading a change closes its round again: 50 ms at 10^6 */
    STATE_MOST_BYTES = 900 * 1000 * 1000
};

/* Whether a change of n bytes gets a row of its own. It must be much shorter than the whole state,
 * and all changes at most twice as long, because they are read and applied when the job is loaded.
 * A change whose bytes cost more than its row may be longer, as a broadcast of float32 is half of
 * the state; then all changes are at most a quarter longer, because `memory:` holds them. Whole and
 * changes together stay below the limit of one value in PostgreSQL (1 GiB) and SQLite (10^9 bytes),
 * because they are read and migrated as one. */
static inline bool stored_state_takes(const struct stored_state *stored, size_t n)
{
    const size_t eighth = stored->whole_bytes / 8, changes = stored->change_bytes + n;
    const bool is_short = n <= eighth * STATE_SHORT_EIGHTHS;
    const bool is_long = n >= STATE_LONG_BYTES && n <= eighth * STATE_LONG_EIGHTHS;
    return stored->n_changes < stored->most_changes && (is_short || is_long) &&
           changes <= eighth * (is_short ? STATE_SHORT_SUM_EIGHTHS : STATE_LONG_SUM_EIGHTHS) &&
           stored->whole_bytes + changes <= STATE_MOST_BYTES;
}

struct refusal; /* of session.h */
struct session;

/* Sessions that would serve the same jobs if there were no refusals: all unbound ones, which serve
 * any job, or those bound to one job. */
struct supply {
    int64_t n_sessions;
    int64_t n_free; /* slots */
};

/* What a job knows of sessions. */
struct job_supply {
    struct supply bound;      /* sessions that serve only this job */
    int64_t n_assigned;       /* clients at unbound sessions */
    struct refusal *refusals; /* of this job, by any session */
};

/* The last worker that refused the job because the job's plug-in is not loaded there, or because it
 * cannot post its updates. Kept when the worker leaves, because the job waits for another. */
struct worker_absence {
    char worker[TALLY_WORKER_NAME_CAPACITY]; /* "" = none */
    char reason[TALLY_FAILURE_CAPACITY];
};

/* The columns of the job's data, known from the first update that carries them or from the solution
 * of f(x*). Not stored: every update carries them. */
struct known_columns {
    uint32_t digest; /* tally_columns_digest(); 0 = not known */
    uint32_t client;
    char worker[TALLY_WORKER_NAME_CAPACITY]; /* "" = the coordinator, which has solved f(x*) */
};

/* One of the M clients of a job. */
struct client_slot {
    struct session *session;                   /* the client's session; NULL = vacant */
    struct tally_list_node in_assigned;        /* hosted_job.assigned */
    uint32_t place;                            /* in session.assignments */
    char previous[TALLY_WORKER_NAME_CAPACITY]; /* the client's previous worker; "" = none */
    struct token_identity previous_identity;   /* of its token */
    int64_t delivered_iterate;                 /* newest point sent to its workers */
    int64_t setback_round;                     /* of its last failed training ... */
    uint32_t setbacks[TALLY_RETRIES_MOST + 1]; /* ... and the numbers of those of that round */
    bool has_shift;                            /* its session has the client's shift (shift.h) */
    bool has_had_scaling; /* one of its sessions has been sent the scaling of the features */
    bool absent;          /* rounds do not wait for it, if the policy allows (jobs_rounds.h) */
};

/* The part of a round's tasks that is the same for clients that hold the same point, as most do. */
struct shared_task {
    int64_t round, have;             /* 0 = none is encoded */
    struct tally_buffer bytes;       /* tally_task.shared */
    struct tally_shared_bytes *tail; /* used instead of `bytes` if large */
};

/* What a coordinator knows of all its live jobs, so that it need not scan them in every turn. */
struct job_marks {
    const uint64_t *transaction; /* number of the open transaction, or of the next one */
    bool absence_changed;        /* of some jobs */
    bool ended;                  /* some rows say that their job has ended */
    bool webhooks_due;           /* webhook_is_due of some active jobs */
    /* All jobs except those that only wait in the queue, and perhaps some of those; oldest first.
     * So the work at each submission, tick and second does not grow with the queue. */
    struct tally_list active;
};

/* The clients' metrics of the last closed round that has any are stored among the updates, under
 * TALLY_STORE_METRICS_ROUND. Each block of the round's clients has one row, under the place of its
 * first client among them: an encoded PostUpdateRequest without payloads. Every round that closes
 * replaces these rows. They stay when the job ends. */
enum { CLIENT_METRICS_BLOCK = TALLY_MAX_UPDATES };

/* The traffic of each client is stored in the same transaction as the row's wire counters, so that
 * its sum never exceeds them. It is stored this often, when the job ends, and when the coordinator
 * shuts down. Traffic lost in a crash remains only in the job's counters. */
enum { TRAFFIC_STORED_EVERY_MS = 10000 };

/* The origins of updates (provenance.h) that the store has, by the checksums of their texts. */
struct known_origins {
    uint64_t *checksums; /* heap; NULL = not read yet */
    uint32_t n;
};

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
    struct tally_list assigned; /* the slots that are not vacant, in order of assignment */
    struct job_supply supply;
    struct worker_absence absence;
    struct known_columns columns;
    uint64_t data_digest;       /* of its data, if f(x*) was solved for here; 0 = not known */
    bool provenance_is_current; /* the store names this program as the job's coordinator */
    struct known_origins origins;
    int64_t started_bytes, solving_bytes; /* estimates of services/job/job_footprint.h */
    bool prepared;            /* f_star and schedule below are known: the job may start */
    int64_t prepare_began_ms; /* monotonic; when it was requested; 0 = not yet, or not here */
    int64_t prepare_took_ms;
    double
        *start; /* double[dim]: offered by a worker, or read, until the job starts; NULL = none */
    int64_t start_read_ms; /* monotonic; when its file began to be read; 0 = it is not being read */
    uint64_t asked_session; /* the session that was asked for it last; 0 = none */
    double f_star;
    char schedule[TALLY_SCHEDULE_CAPACITY]; /* the one to start with; "" = none was planned */
    struct tally_curvature curvature;       /* of f; unknown until prepared */
    struct tally_error prepare_error; /* why f_star cannot be determined; OK = no error so far */
    uint64_t touched_in;              /* number of the last transaction that wrote to the job */
    struct stored_state stored_state;
    bool has_stored_updates; /* the store may hold updates, of closed or open rounds */
    bool needs_reload;   /* a commit failed, so the engine is ahead of the store; or lacks_memory */
    bool is_deleted;     /* by the open transaction; leaves the live jobs after the commit */
    char *damage;        /* what a write has read of the job and found damaged; NULL = nothing */
    bool lacks_memory;   /* to be reloaded from the store; a queued engine stands in for its own */
    bool deadline_noted; /* the open round's deadline has passed without ending it */
    bool absence_changed;     /* the engine does not know it yet: hosted_job_mark_absence() */
    int64_t round_opened_ms;  /* monotonic; or when the job was resumed or loaded */
    int64_t deadline_from_ms; /* monotonic; the same; also restarted after a store failure */
    int64_t waits_since_ms;   /* Unix time of round_opened_ms, or of the last change of status */
    char noted_missing[TALLY_MISSING_CAPACITY]; /* of the last record; already logged */
    int64_t arrived_ms; /* monotonic; when this replica read it from the store, at its start or as
                           its new leader; 0 = it was submitted here */
    struct shared_task shared_task;
    bool webhook_is_due;     /* its status has changed, and it has a webhook */
    struct event_feed *feed; /* of its event streams (rest_events.h); NULL = none */
    uint64_t recovery_bits, wire_in_bytes, wire_out_bytes; /* live; the row's lag behind */
    struct tally_list_node in_active;                      /* job_marks.active */
    struct tally_list_node in_prepared;                    /* live_jobs.prepared */
    struct hosted_job *next;                               /* by age, oldest first */
    struct hosted_job *next_of_id;                         /* in the same bucket */
};

/* Makes or frees the slots and the traffic of a job whose clients are all vacant. */
enum tally_status hosted_job_make_slots(struct hosted_job *job, struct tally_error *err);
void hosted_job_drop_slots(struct hosted_job *job);

/* Makes a new job, queued, which is yet to be stored: row.id and row.key are not set. Errors:
 * NO_MEMORY. */
enum tally_status hosted_job_new(const struct tally_job_spec *spec, struct hosted_job **ret_job,
                                 struct tally_error *err);
/* Loads a live job: engine restored, stored updates of the open round received again. Errors:
 * STORE, DATA_LOSS, NO_MEMORY. */
enum tally_status hosted_job_load(struct tally_store *store, const struct tally_store_job *row,
                                  struct hosted_job **ret_job, struct tally_error *err);
/* For a job whose hosted_job_load() failed with NO_MEMORY: loads all but the engine, and sets
 * needs_reload. */
enum tally_status hosted_job_load_later(struct tally_store *store,
                                        const struct tally_store_job *row,
                                        struct hosted_job **ret_job, struct tally_error *err);
/* Reloads the engine from the store. Errors as hosted_job_load(); DATA_LOSS, too, if a write has
 * noted damage. */
enum tally_status hosted_job_reload(struct tally_store *store, struct hosted_job *job,
                                    struct tally_error *err);
void hosted_job_free(struct hosted_job *job);
/* Drops the shared part of the round's tasks; the next task encodes it again. */
void hosted_job_forget_task(struct hosted_job *job);

/* How many more slots the job needs (tally_job_spec_slots) so that each client of a round can have
 * one, whichever clients are drawn. */
int64_t hosted_job_n_lacking(const struct hosted_job *job);
/* Whether the workers of a job that was read from the store have had time to rejoin. */
bool hosted_job_is_settled(const struct hosted_job *job);
/* Whether a started job will free its slots and its memory without outside help. */
bool hosted_job_is_progressing(const struct hosted_job *job);
/* Whether a started job cannot progress until it gets more slots. */
bool hosted_job_is_stuck(const struct hosted_job *job);
/* Whether a queued job lacks nothing but slots and memory to start. */
bool hosted_job_may_start(const struct hosted_job *job);

/* Adds the job to the active ones, before it stops to be merely queued. */
void hosted_job_mark_active(struct hosted_job *job);
/* Notes that the open transaction writes to the job, which is active from then on. */
void hosted_job_mark_touched(struct hosted_job *job);
/* Notes that a client has become absent or has returned. */
void hosted_job_mark_absence(struct hosted_job *job);

/* Writes the row from the engine and the live counters; in an open transaction. */
enum tally_status hosted_job_put_row(struct tally_store *store, struct hosted_job *job,
                                     int64_t now_ms, struct tally_error *err);
/* The last round whose earlier updates are not needed any more, just after rounds have closed. The
 * round of a last evaluation has no record; `stop.seconds` begins it in an open round, whose
 * updates no longer count. */
int64_t hosted_job_last_settled_round(const struct hosted_job *job);
/* Writes the row, the state, and the records and kept models of rounds that closed at now_ms, and
 * drops the updates of those rounds. */
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

/* The detail of a stored job and its document. spec: that of the document; NULL = is read from it.
 * waiting: what the job waits for, or NULL. Returns NULL if memory runs out or the document is not
 * JSON. */
struct tally_json *hosted_job_detail(const struct tally_store_job *row,
                                     const struct tally_buffer *document,
                                     const struct tally_job_spec *spec,
                                     const struct tally_waiting *waiting);
/* The same for a job that has just been made, without reading its document. */
struct tally_json *hosted_job_new_detail(const struct hosted_job *job,
                                         const struct tally_waiting *waiting);

#endif
