/* workers: what the coordinator does with the workers that have joined.
 *
 *     assignment   assigns the clients of jobs to sessions and starts jobs, as matching/ decides
 *     long_polls   waiting polls and their responses: a task (workers_tasks.h), idle or released
 *     deadlines    silent sessions, rounds and jobs past their deadline
 *     waiting      what a job waits for, in words
 *     worker_calls the methods of tally.v1.WorkerService; those for updates are in
 * workers_updates.c */
#ifndef TALLY_SERVICES_COORDINATOR_WORKERS_H
#define TALLY_SERVICES_COORDINATOR_WORKERS_H

#include <stdint.h>

#include "services/coordinator/histogram.h"
#include "services/coordinator/session.h"

enum { N_POLL_KINDS = TALLY_POLL_RELEASED + 1 };

struct worker_counts {
    uint64_t joined, lost;
    struct histogram polls[N_POLL_KINDS]; /* seconds until the response, by its kind */
};

/* Coordinates that the updates of all PostUpdates requests of a turn may have together, besides the
 * first update of each request: a few hundred bytes can stand for a million coordinates, which take
 * 0.3 to 4 ms. */
enum { MOST_DECODED = 1 << 23 };

struct workers {
    struct session_table sessions;
    struct tally_list ready;    /* sessions whose long poll may have a response */
    struct tally_buffer answer; /* response to a poll, while it is made */
    struct worker_counts counts;
    int64_t n_decoded; /* coordinates of updates that came with others, in this turn */
};

/* Sets coordinator->workers. Errors: NO_MEMORY. */
enum tally_status workers_new(struct tally_coordinator *coordinator, struct tally_error *err);
/* Frees all sessions. NULL is allowed. */
void workers_free(struct workers *workers);

/* Adds the session to those whose poll is examined after the commit. */
void mark_ready(struct tally_coordinator *coordinator, struct session *session);
/* Gives the slots of clients that do not take part to those clients of the job's open round that
 * have no worker. Does nothing while their former workers may still return, or if each worker has
 * its own data. */
void fill_cohort(struct tally_coordinator *coordinator, struct hosted_job *job);
/* fill_cohort(), then mark_ready() for all sessions that the job's state concerns. */
void mark_job_ready(struct tally_coordinator *coordinator, struct hosted_job *job);
void mark_all_ready(struct tally_coordinator *coordinator);
/* Notes that the worker has called: rounds wait for its clients (again). */
void session_heard(struct session *session);
/* Whether another worker that is alive has joined under the same name within the last minutes. */
bool session_has_rival(const struct session *session);
/* Answers the session's poll, ends the session and frees its slots. */
void end_session(struct tally_coordinator *coordinator, struct session *session);

/* ---- workers_deadlines.c ---- */

/* The loop has stalled (loop.h) for at least STALL_MS: no more than that counts as silence of
 * workers and for the deadlines of rounds, nor more than a quarter of the limit. */
void forgive_stall(struct tally_coordinator *coordinator, int64_t now_ms, int64_t stalled_ms);
/* Marks polls that have timed out, and ends sessions that are silent. */
void check_sessions(struct tally_coordinator *coordinator, int64_t now_ms);
/* Ends rounds and jobs past their deadline, as their policy requires. Writes. */
void check_deadlines(struct tally_coordinator *coordinator, int64_t now_ms);

#endif
