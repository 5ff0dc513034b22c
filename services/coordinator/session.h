/* session: one worker process as the coordinator knows it, and its clients.
 *
 * There are at most as many sessions as connections (coordinator_config.max_sessions): some ten
 * thousand. What every call needs is found at once: a session by its id or its name, in a hash
 * table, and the sessions that are due, in a heap. What happens when a job starts, ends or is
 * listed walks the list of all sessions, newest first. A queued job asks how many slots are free
 * for it each time that slots change, and there may be thousands of queued jobs, so slots are
 * counted as they come and go (struct supply, hosted_job.h). */
#ifndef TALLY_SERVICES_COORDINATOR_SESSION_H
#define TALLY_SERVICES_COORDINATOR_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "api/http/http_line.h"
#include "api/http/http_server.h"
#include "api/worker/worker_messages.h"
#include "codec/list.h"
#include "services/coordinator/calls.h"
#include "services/coordinator/hosted_job.h"

/* A job that a worker has said it cannot serve, whichever client it has. */
struct refusal {
    struct session *session;
    struct hosted_job *job;
    bool tried; /* the computation failed, although nothing was missing */
    char reason[TALLY_FAILURE_CAPACITY];
    struct refusal *next; /* of the session */
    struct refusal *next_of_job, **link_of_job;
};

/* A client of a job that is assigned to a session. */
struct assignment {
    struct hosted_job *job;
    uint32_t client;
};

/* The token, or the tokens with one name, that workers joined with. */
struct session_token {
    struct token_identity identity;       /* all zero where no token is needed */
    char name[TALLY_TOKEN_NAME_CAPACITY]; /* "" = none */
    int64_t n_sessions;                   /* 1 or more */
    struct session_token *next;
};

/* Another live worker of the same name: each joins again when it has been replaced. */
struct rival {
    char address[TALLY_ADDRESS_CAPACITY];
    int64_t n;       /* times that one of the two came back after it had been replaced; 0 = none */
    int64_t last_ms; /* monotonic */
};

/* A session that another of the same name has replaced. */
struct replaced_session {
    uint64_t id;
    char name[TALLY_WORKER_NAME_CAPACITY];
    char by[TALLY_ADDRESS_CAPACITY]; /* the other worker */
    bool has_called;                 /* since then: its worker is alive */
};
enum { REPLACED_SESSIONS = 256 }; /* the last ones; a worker that is alive calls at once */

struct session {
    uint64_t id; /* random except for its home; together with a token of the identity below, the
                    right to post */
    struct session_token *token; /* that its worker joined with */
    char name[TALLY_WORKER_NAME_CAPACITY];
    char address[TALLY_ADDRESS_CAPACITY]; /* that it joined from */
    struct rival rival;
    char pinned_job[TALLY_MESSAGE_JOB_ID_CAPACITY]; /* "" = serves any job */
    char *starts; /* plug-ins that offer a start, with spaces between; NULL = none */
    char asked_job[TALLY_MESSAGE_JOB_ID_CAPACITY]; /* for its start; "" = none */
    struct hosted_job *bound_to; /* the pinned job; NULL = none, or it was removed */
    uint32_t n_slots;
    struct assignment *assignments; /* [n_slots] */
    uint32_t n_assignments;
    uint32_t n_refusals;
    struct refusal *refusals;
    uint32_t next_assignment; /* after the one served last, since jobs take turns */
    bool may_be_absent;       /* some of its clients have missed a deadline since its last call */
    int64_t last_contact_ms;
    struct tally_http_line line;       /* the connection of its last request */
    struct tally_http_motion progress; /* of a long message, as the worker said; n_whole 0 = none */
    int64_t progress_ms;               /* monotonic; when the worker said it */
    /* Its last task with a broadcast or a point, and how often it has been sent in a row. */
    struct {
        int64_t job_key, round, n;
    } sent;
    int64_t joined_ms; /* Unix time */
    int64_t n_removed; /* live_jobs.n_removed when it joined */
    /* The long poll that waits, if request is not NULL. */
    struct {
        struct tally_http_request *request;
        struct request_holder holder; /* this session */
        struct tally_poll_request *message;
        int64_t until_ms;
        int64_t arrived_ns; /* monotonic */
        /* It came with updates, which are durable; the response must acknowledge them. */
        bool has_update;
        struct tally_update_response update;
        struct tally_buffer parts;                  /* struct traffic_part of each */
        char job_id[TALLY_MESSAGE_JOB_ID_CAPACITY]; /* of the updates */
    } poll;
    struct tally_list_node in_ready; /* sessions whose poll is to be examined */
    uint64_t number;                 /* of sessions that had joined before */
    struct session *next, **link;    /* all sessions, newest first */
    struct session *next_of_id;      /* in the same bucket */
    uint64_t name_hash;
    struct session *next_of_name; /* in the same bucket */
    size_t place;                 /* in session_table.heap */
    int64_t due_ms;               /* not after session_due_ms() */
    struct session *next_due;
};

struct session_table {
    int64_t home;             /* number of this replica, for the top 16 bits of new ids; 0 = none */
    struct session **by_id;   /* [n_buckets], by the low bits of the ids, which are random */
    struct session **by_name; /* [n_buckets], by a hash under the key */
    size_t n_buckets;         /* a power of two, not below n_sessions; or 0 */
    struct session **heap;    /* [n_buckets], all sessions; none is due before heap[(i - 1) / 2] */
    uint8_t key[16];          /* random: names that share a bucket cannot be chosen */
    uint64_t n_joined;        /* sessions so far; number of the next one */
    struct session_token *tokens; /* of all sessions; few */
    struct session *first;
    int64_t n_sessions;
    int64_t n_slots;
    int64_t n_free;    /* slots without a client */
    int64_t n_waiting; /* sessions with a poll that waits */
    struct supply unbound;
    struct replaced_session replaced[REPLACED_SESSIONS]; /* a ring */
    uint64_t n_replaced;                                 /* so far */
};

/* Frees all sessions. */
void session_table_fini(struct session_table *table);

/* What a worker joins with. */
struct session_request {
    const struct tally_join_request *join;
    struct hosted_job *bound_to;           /* the job that it names; NULL = it names none */
    const struct token_identity *identity; /* of the token */
    const char *token_name;                /* "" = none */
    const char *address;                   /* NULL = unknown */
};

/* The caller sets the time of its contact and calls session_set_timer(): until then the session is
 * never due. Precondition: no session has the name. Errors: NO_MEMORY. */
enum tally_status session_new(struct session_table *table, const struct session_request *request,
                              struct session **ret_session, struct tally_error *err);
/* Its clients are vacant and absent afterwards. Precondition: its poll has been answered. */
void session_free(struct session_table *table, struct session *session);
/* Notes that a worker at `address` takes the session's name over. */
void session_note_replaced(struct session_table *table, const struct session *session,
                           const char *address);
/* The replaced session with that id, if it is one of the last; NULL = none. */
struct replaced_session *session_replaced(struct session_table *table, uint64_t id);
struct session *session_by_id(const struct session_table *table, uint64_t id);
struct session *session_by_name(const struct session_table *table, const char *name);
/* The newest session with a number below `number`; NULL = none. Walks past all newer ones. */
struct session *session_before(const struct session_table *table, uint64_t number);
/* Number of sessions whose workers joined with a token of that identity. */
int64_t session_count_of(const struct session_table *table, const struct token_identity *identity);

/* Bytes that move on its connection are contact, too: notes it if a request of the worker, or a
 * response to it, has been under way since the last call. Returns whether one is under way, here or
 * as the worker has said; then fills in *ret_motion. */
bool session_motion(struct session *session, int64_t now_ms, struct tally_http_motion *ret_motion);

/* Monotonic time at which its poll ends or, if no poll waits, its silence exceeds timeout_ms. */
int64_t session_due_ms(const struct session *session, int64_t timeout_ms);
/* To be called when session_due_ms() has become earlier. */
void session_set_timer(struct session_table *table, struct session *session, int64_t timeout_ms);
/* The sessions that are due, newest first, linked by next_due. They stay due. */
struct session *session_find_due(struct session_table *table, int64_t now_ms, int64_t timeout_ms);

/* Gives client `client` of the job, who must be vacant, to the session, which must have a free
 * slot. */
void session_assign(struct session_table *table, struct session *session, struct hosted_job *job,
                    uint32_t client);
/* Gives the slot of client `from` of the job to its client `to`, which must be vacant. Afterwards
 * `from` is vacant, but not absent. Precondition: no open round waits for it. */
void session_replace_client(struct hosted_job *job, uint32_t from, uint32_t to);
/* Takes one client away from its session, which frees a slot. The client is vacant and absent
 * afterwards. */
void session_unassign(struct session_table *table, struct hosted_job *job, uint32_t client);
/* Takes the clients of the job from the session, as session_unassign() does; it gets no more of
 * them: the worker refuses the job, as the update says. Idempotent. */
void session_refuse(struct session_table *table, struct session *session, struct hosted_job *job,
                    const struct tally_update *update);
/* Takes a refusal back; does nothing if there is none. */
void session_accept(struct session *session, const struct hosted_job *job);
/* Returns NULL if the worker has not refused the job. */
const struct refusal *session_refusal(const struct session *session, const struct hosted_job *job);
/* The job is removed: no session serves or refuses it any more. */
void session_release_job(struct session_table *table, struct hosted_job *job);

static inline uint32_t session_n_free(const struct session *session)
{
    return session->n_slots - session->n_assignments;
}

/* Whether it serves only one job. */
static inline bool session_is_bound(const struct session *session)
{
    return session->pinned_job[0] != '\0';
}

/* Whether the session would serve the job if it did not refuse it. */
static inline bool session_may_serve(const struct session *session, const struct hosted_job *job)
{
    return !session_is_bound(session) || session->bound_to == job;
}

/* Whether the session may have clients of the job. */
bool session_serves(const struct session *session, const struct hosted_job *job);

/* ---- What the sessions have for a job. The first two take a step for each session that refuses
 * the job. ---- */

/* Slots that are free for the job. */
int64_t session_n_free_for(const struct session_table *table, const struct hosted_job *job);
/* Sessions that serve the job. */
int64_t session_n_serving(const struct session_table *table, const struct hosted_job *job);
/* Clients of unbound sessions that refuse `job`, in jobs for which counts() is true. Takes time
 * proportional to those clients and refusals. */
int64_t session_n_refused_assigned(const struct hosted_job *job,
                                   bool counts(const struct hosted_job *));
/* The newest session that serves the job and has a free slot, of those older than `after` (NULL:
 * of all). NULL = none. */
struct session *session_next_free(const struct session_table *table, const struct hosted_job *job,
                                  const struct session *after);

#endif
