/* workers: what the coordinator does with the workers that have joined. workers.c ends sessions and
 * marks those that may have something to do; the others are
 *
 *     workers_service.c      the methods of tally.v1.WorkerService but PostUpdate
 *     workers_updates.c      PostUpdate
 *     workers_assignment.c   gives clients of jobs to sessions, starts jobs, as workers_matching.h
 *                            decides
 *     workers_tasks.c        the next task of a session, and what a client that returns gets
 *     workers_long_polls.c   waiting polls and their responses: a task, idle or released
 *     workers_deadlines.c    silent sessions, rounds and jobs past their deadline
 *     workers_waiting.c      what a job waits for, in words */
#ifndef TALLY_SERVICES_COORDINATOR_WORKERS_H
#define TALLY_SERVICES_COORDINATOR_WORKERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/worker/worker_messages.h"
#include "services/coordinator/call_counts.h"
#include "services/coordinator/calls.h"
#include "services/coordinator/session.h"
#include "services/job/job_detail.h"

enum { N_POLL_KINDS = TALLY_POLL_RELEASED + 1 };

struct worker_counts {
    uint64_t joined, lost;
    struct histogram polls[N_POLL_KINDS]; /* seconds until the response, by its kind */
};

/* Coordinates that the updates of all requests with several updates may have together in a turn,
 * besides the first update of each request: a few hundred bytes can stand for a million
 * coordinates, which take 0.3 to 4 ms. */
enum { MOST_DECODED = 1 << 24 };

struct workers {
    struct session_table sessions;
    struct tally_list ready;    /* sessions whose long poll may have a response */
    struct tally_buffer answer; /* response to a poll, while it is made */
    struct worker_counts counts;
    int64_t n_decoded; /* coordinates of updates that came with others, in this turn */
};

/* Sets coordinator->workers. */
void workers_new(struct tally_coordinator *coordinator);
/* Frees all sessions. NULL is allowed. */
void workers_free(struct workers *workers);

/* Adds the session to those whose poll is examined after the commit. */
void workers_mark_ready(struct tally_coordinator *coordinator, struct session *session);
/* Gives the slots of clients that do not take part to those clients of the job's open round that
 * have no worker. Does nothing while their former workers may still return, or if each worker has
 * its own data. */
void workers_fill_cohort(struct tally_coordinator *coordinator, struct hosted_job *job);
/* workers_fill_cohort(), then workers_mark_ready() for all sessions that the job's state concerns.
 */
void workers_mark_job_ready(struct tally_coordinator *coordinator, struct hosted_job *job);
void workers_mark_all_ready(struct tally_coordinator *coordinator);
/* Notes that the worker has called: rounds wait for its clients (again). */
void workers_session_heard(struct session *session);
/* Whether another worker that is alive has joined under the same name within the last minutes. */
bool workers_session_has_rival(const struct session *session);
/* Answers the session's poll, ends the session and frees its slots. */
void workers_end_session(struct tally_coordinator *coordinator, struct session *session);

/* ---- workers_deadlines.c ---- */

/* The loop has stalled (loop.h) for at least STALL_MS: no more than that counts as silence of
 * workers and for the deadlines of rounds, nor more than a quarter of the limit. */
void workers_forgive_stall(struct tally_coordinator *coordinator, int64_t now_ms,
                           int64_t stalled_ms);
/* Marks polls that have timed out, and ends sessions that are silent. */
void workers_check_sessions(struct tally_coordinator *coordinator, int64_t now_ms);
/* Ends rounds and jobs past their deadline, as their policy requires. Writes. */
void workers_check_deadlines(struct tally_coordinator *coordinator, int64_t now_ms);

/* ---- Gives clients of jobs to sessions, and starts jobs, as workers_matching.h
 * decides. */

struct hosted_job;
struct tally_coordinator;

/* Fills vacant clients and starts queued jobs that can be filled. Writes. */
void workers_assign_slots(struct tally_coordinator *coordinator);

/* Counts the slots that are free for the job now. */
int64_t workers_count_free_slots(const struct tally_coordinator *coordinator,
                                 const struct hosted_job *job);
/* Whether any worker of this replica may serve the job. */
bool workers_can_be_served(const struct tally_coordinator *coordinator,
                           const struct hosted_job *job);
/* Slots of unbound workers here that serve only progressing jobs, and so can move elsewhere once
 * these have ended. */
int64_t workers_count_moving_slots(const struct tally_coordinator *coordinator);
/* Key of the oldest queued job that the slots here will be enough for; 0 = none. */
int64_t workers_find_next_to_start(const struct tally_coordinator *coordinator);
/* The oldest job that lacks slots that other replicas could send, and how many; key 0 = none.
 * n_elsewhere: slots of all other replicas; n_free_elsewhere: of them, those that are free. */
void workers_find_lacking_job(const struct tally_coordinator *coordinator, int64_t n_elsewhere,
                              int64_t n_free_elsewhere, int64_t *ret_key, int64_t *ret_slots);

/* ---- The next task of a session.
 *
 * A task names the open round and the session's clients for which the round still waits. It carries
 * what updates the worker's copy of the iterate x to the current one:
 *
 *     have 0        the job document; every worker can make the initial point, number 1, from it
 *     have k < now  broadcasts k+1 .. now, if all are kept and shorter than x itself; else x
 *
 * The part that is the same for all clients that hold the same point is encoded once (struct
 * shared_task). */

struct hosted_job;
struct session;

/* Whether an open round waits for a client of the session. */
bool workers_has_work(const struct session *session);
/* The session's next job that has work for it, and the clients that it waits for:
 * clients[TALLY_MAX_SLOTS]. NULL = none. */
struct hosted_job *workers_find_work(struct session *session, uint32_t *clients,
                                     size_t *ret_n_clients);
/* Makes the response to the session's poll. It borrows `clients` and parts of the job until the
 * next event of its engine. Counts recovery bits, and tasks that are sent again. */
void workers_make_task(struct session *session, struct hosted_job *job, uint32_t *clients,
                       size_t n_clients, int64_t now_ms, struct tally_poll_response *ret_response);

/* ---- The initial point of a job that starts from what a worker offers (workers_initial.c). ----
 */

/* Whether the job is queued and a worker is still to offer its initial point. */
bool workers_lacks_start(const struct hosted_job *job);
/* The session that is asked for the job's start, or would be; NULL = none offers one. */
struct session *workers_find_start(const struct tally_coordinator *coordinator,
                                   const struct hosted_job *job);
/* Asks it. Returns whether it answers soon, because it has no clients to compute for. */
bool workers_ask_start(struct tally_coordinator *coordinator, struct hosted_job *job);
/* The job that the session is to be asked about; NULL = none. */
struct hosted_job *workers_find_question(struct tally_coordinator *coordinator,
                                         struct session *session);
/* Makes the response to the session's poll, which borrows the job's document. */
void workers_make_question(const struct hosted_job *job, struct tally_poll_response *ret_response);
/* Whether an update of that round is the session's answer. */
bool workers_is_asked(const struct session *session, const struct hosted_job *job, uint32_t round);
/* Takes the start, unless the job has one. Counts its bits as recovery. Errors: MALFORMED (not dim
 * finite float32), NO_MEMORY. */
enum tally_status workers_take_start(struct tally_coordinator *coordinator, struct session *session,
                                     struct hosted_job *job, const struct tally_update *update,
                                     bool *ret_is_repeated, struct tally_error *err);

/* ---- Polls that wait for a task, and their responses.
 *
 * A poll is a request of its own, or comes with an update; then it begins only once the update is
 * durable. From then on the session holds the request, which costs no thread. After each commit the
 * sessions that were marked ready are examined. The poll finishes with a response, or is dropped
 * because the worker has disconnected. */

/* The longest time that this coordinator lets a poll wait, in ms. */
int64_t poll_longest_wait(const struct tally_coordinator *coordinator);
/* Keeps a worker's poll message; finishes its earlier poll, which it has abandoned. */
void poll_keep(struct tally_coordinator *coordinator, struct call *call, struct session *session,
               const struct tally_poll_request *message);
/* Begins the session's poll with the call's request. */
void poll_begin(struct tally_coordinator *coordinator, struct session *session,
                const struct call *call);
/* The same for a call whose update is durable. True: the session's poll has taken the call. False:
 * the call cannot wait and must be answered. */
bool poll_begin_after_update(struct tally_coordinator *coordinator, struct call *call);
/* Forgets the session's poll, because the worker has disconnected. */
void poll_drop(struct tally_coordinator *coordinator, struct session *session);

/* Answers the polls of ready sessions that have work or have timed out. */
void poll_serve(struct tally_coordinator *coordinator, int64_t now_ms);
/* Answers a waiting poll with `idle`. */
void poll_finish_idle(struct tally_coordinator *coordinator, struct session *session);
void poll_finish_all_idle(struct tally_coordinator *coordinator);
/* Answers the polls that came with updates of a job that has ended, while its bytes still count. */
void poll_finish_last_updates(struct tally_coordinator *coordinator, struct hosted_job *job);
/* Marks the polls with `until_idle` ready when a job is removed: it may have been their last. */
void poll_mark_until_idle(struct tally_coordinator *coordinator);
/* Whether an open round is waiting for a client of the session of this poll. */
bool poll_has_task(const struct tally_coordinator *coordinator, const struct call *call);

/* ---- What a live job waits for, in words that say what to do about it. */

struct hosted_job;
struct tally_coordinator;

/* A round that has been open for less than this, and whose deadline has not passed, is work in
 * progress, not waiting. */
enum { WAITING_AFTER_MS = 1000 };

/* What the job waits for at monotonic time now_ms; false if it progresses or has ended. */
bool workers_job_waiting(const struct tally_coordinator *coordinator, const struct hosted_job *job,
                         int64_t now_ms, struct tally_waiting *ret_waiting);

/* ---- The methods of tally.v1.WorkerService, worker.proto. PostUpdate is in workers_updates.c. */

/* Part of a worker's request has arrived, and the rest takes long: notes whose it is. Returns false
 * if more of it is needed for that. */
bool workers_on_part(struct tally_coordinator *coordinator, const struct call *call);

handler_fn workers_join, workers_poll, workers_update, workers_progress, workers_describe,
    workers_leave;

/* ---- What the methods of tally.v1.WorkerService have in common. */

/* The protobuf body of a Connect request. Errors: INVALID_ARGUMENT (the version),
 * UNSUPPORTED_MEDIA_TYPE. */
enum tally_status workers_read_body(struct call *call, const uint8_t **ret_body, size_t *ret_size,
                                    struct tally_error *err);
/* The response is call->body if `encoded` is OK. Errors: `encoded`. */
enum tally_status workers_answer_protobuf(struct call *call, enum tally_status encoded,
                                          struct tally_error *err);
/* The caller's session; notes that its worker has called. Errors: NOT_FOUND, PERMISSION_DENIED (a
 * different token). */
enum tally_status workers_find_session(struct tally_coordinator *coordinator,
                                       const struct call *call, uint64_t id,
                                       struct session **ret_session, struct tally_error *err);
/* Defines read_NAME(), which decodes a call's message, a struct tally_NAME, and finds its session
 * with `find`, which is workers_find_session() or has its type. */
#define DEFINE_READ_MESSAGE(name, find)                                                            \
    static enum tally_status read_##name(struct tally_coordinator *coordinator, struct call *call, \
                                         struct tally_##name *ret_message,                         \
                                         struct session **ret_session, struct tally_error *err)    \
    {                                                                                              \
        const uint8_t *body = NULL;                                                                \
        size_t n_body = 0;                                                                         \
        enum tally_status status = workers_read_body(call, &body, &n_body, err);                   \
        if (status == TALLY_OK) {                                                                  \
            status = tally_##name##_decode(body, n_body, ret_message, err);                        \
        }                                                                                          \
        return status == TALLY_OK                                                                  \
                   ? find(coordinator, call, ret_message->session, ret_session, err)               \
                   : status;                                                                       \
    }
/* Takes what a poll says of a job whose updates the worker cannot post. */
void workers_take_undeliverable(struct tally_coordinator *coordinator, struct session *session,
                                const struct tally_undeliverable *undeliverable);

#endif
