/* workers_tasks: the next task of a session.
 *
 * A task names the open round and the session's clients for which the round still waits. It carries
 * what updates the worker's copy of the iterate x to the current one:
 *
 *     have 0        the job document; every worker can make the initial point, number 1, from it
 *     have k < now  broadcasts k+1 .. now, if all are kept and shorter than x itself; else x
 *
 * The part that is the same for all clients that hold the same point is encoded once (struct
 * shared_task). */
#ifndef TALLY_SERVICES_COORDINATOR_WORKERS_TASKS_H
#define TALLY_SERVICES_COORDINATOR_WORKERS_TASKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/worker/worker_messages.h"

struct hosted_job;
struct session;

/* Whether an open round waits for a client of the session. */
bool has_work(const struct session *session);
/* The session's next job that has work for it, and the clients that it waits for:
 * clients[TALLY_MAX_SLOTS]. NULL = none. */
struct hosted_job *find_work(struct session *session, uint32_t *clients, size_t *ret_n_clients);
/* Makes the response to the session's poll. It borrows `clients` and parts of the job until the
 * next event of its engine. Counts recovery bits, and tasks that are sent again. */
void make_task(struct session *session, struct hosted_job *job, uint32_t *clients, size_t n_clients,
               int64_t now_ms, struct tally_poll_response *ret_response);

#endif
