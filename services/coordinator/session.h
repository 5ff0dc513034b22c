/* session: one worker process as the coordinator knows it, and the clients that it plays. */
#ifndef TALLY_SERVICES_COORDINATOR_SESSION_H
#define TALLY_SERVICES_COORDINATOR_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "api/http_server.h"
#include "api/worker_messages.h"
#include "services/coordinator/hosted_job.h"

/* A job that a worker has said it cannot serve, whichever client it plays. */
struct refusal {
    const struct hosted_job *job;
    bool tried; /* what it computed with has failed; nothing was lacking */
    char reason[TALLY_FAILURE_CAPACITY];
    struct refusal *next;
};

/* What holds a request that is not answered yet: a call, or a session whose poll it is. */
struct request_holder {
    struct call *call;       /* NULL = a session */
    struct session *session; /* NULL = a call */
};

/* A client of a job that a session plays. */
struct assignment {
    struct hosted_job *job;
    uint32_t client;
};

struct session {
    uint64_t id; /* random but for its home; the right to post, together with a token of the
                    identity below */
    struct token_identity identity;             /* who joined */
    char token_name[TALLY_TOKEN_NAME_CAPACITY]; /* likewise; "" = none */
    char name[TALLY_WORKER_NAME_CAPACITY];
    char pinned_job[TALLY_MESSAGE_JOB_ID_CAPACITY]; /* "" = serves any job */
    uint32_t n_slots;
    struct assignment *assignments; /* [n_slots] */
    uint32_t n_assignments;
    struct refusal *refusals;
    uint32_t turn; /* the assignment after the last one served: jobs take turns */
    int64_t last_contact_ms;
    int64_t joined_ms; /* Unix time */
    /* The long poll that waits, if request is not NULL. */
    struct {
        struct tally_http_request *request;
        struct request_holder holder; /* this session */
        struct tally_poll_request *message;
        int64_t until_ms;
        int64_t arrived_ns; /* monotonic */
        /* It came with an update, which is durable and to be acknowledged with the answer. */
        bool has_update;
        struct tally_update_response update;
        char job_id[TALLY_MESSAGE_JOB_ID_CAPACITY]; /* of the update */
    } poll;
    bool is_ready; /* stands in the coordinator's list of sessions to look at */
    struct session *next_ready;
    struct session *next, **link; /* all sessions, newest first */
    struct session *next_of_id;   /* in the same bucket */
};

struct session_table {
    int64_t home; /* number of this replica, which new ids have in their top 16 bits; 0 = none */
    struct session **by_id; /* [n_buckets], by the low bits of the ids, which are random */
    size_t n_buckets;       /* a power of two, or 0 */
    struct session *first;
    int64_t n_sessions;
    int64_t n_free; /* slots that play nothing, over all sessions */
};

/* Frees all sessions. */
void session_table_fini(struct session_table *table);

/* Errors: NO_MEMORY. */
enum tally_status session_new(struct session_table *table, const struct tally_join_request *join,
                              struct session **ret_session, struct tally_error *err);
/* Vacates its clients. Its poll must have been answered. */
void session_free(struct session_table *table, struct session *session);
struct session *session_by_id(const struct session_table *table, uint64_t id);
struct session *session_by_name(const struct session_table *table, const char *name);

/* Gives client slot `client` of `job`, which must be vacant, to the session, which must have a free
 * slot. */
void session_assign(struct session_table *table, struct session *session, struct hosted_job *job,
                    uint32_t client);
/* Takes one client away from the session that plays it, whose slot is free then. */
void session_unassign(struct session_table *table, struct hosted_job *job, uint32_t client);
/* The session plays no client of the job any more, and is not to: the worker refuses it, as the
 * update says. Idempotent. Errors: NO_MEMORY. */
enum tally_status session_refuse(struct session_table *table, struct session *session,
                                 struct hosted_job *job, const struct tally_update *update,
                                 struct tally_error *err);
/* NULL if the worker has not refused the job. */
const struct refusal *session_refusal(const struct session *session, const struct hosted_job *job);
/* The job is taken out: no session plays or refuses it any more. */
void session_release_job(struct session_table *table, struct hosted_job *job);

static inline uint32_t session_n_free(const struct session *session)
{
    return session->n_slots - session->n_assignments;
}

/* Whether the session may play clients of the job. */
bool session_serves(const struct session *session, const struct hosted_job *job);

#endif
