/* workers_long_polls: polls that wait for a task, and their responses.
 *
 * A poll is a request of its own, or comes with an update; then it begins to wait only once the
 * update is durable. While it waits, the session holds the request, which costs no thread. After
 * each commit the sessions that were marked ready are examined. */
#ifndef TALLY_SERVICES_COORDINATOR_WORKERS_LONG_POLLS_H
#define TALLY_SERVICES_COORDINATOR_WORKERS_LONG_POLLS_H

#include <stdbool.h>
#include <stdint.h>

#include "services/coordinator/call.h"
#include "services/coordinator/session.h"

/* The longest time that this coordinator lets a poll wait, in ms. */
int64_t longest_wait(const struct tally_coordinator *coordinator);
/* Keeps a worker's poll message; ends its earlier poll, which it has abandoned. Errors:
 * NO_MEMORY. */
enum tally_status keep_poll(struct tally_coordinator *coordinator, struct call *call,
                            struct session *session, const struct tally_poll_request *message,
                            struct tally_error *err);
/* Makes the call's request wait as the session's poll. */
void hold_poll(struct tally_coordinator *coordinator, struct session *session,
               const struct call *call);
/* The same for a call whose update is durable. True: the session's poll has taken the call. False:
 * the call cannot wait and must be answered. */
bool hold_update_poll(struct tally_coordinator *coordinator, struct call *call);
/* Forgets the session's poll, because the worker has disconnected. */
void abandon_poll(struct tally_coordinator *coordinator, struct session *session);

/* Answers the polls of ready sessions that have work or have timed out. */
void serve_polls(struct tally_coordinator *coordinator, int64_t now_ms);
/* Answers a waiting poll with `idle`. */
void answer_idle(struct tally_coordinator *coordinator, struct session *session);
void answer_all_idle(struct tally_coordinator *coordinator);
/* Answers the polls that came with updates of a job that has ended, while its bytes still count. */
void answer_last_updates(struct tally_coordinator *coordinator, struct hosted_job *job);
/* Marks the polls with `until_idle` ready when a job is removed: it may have been their last. */
void mark_until_idle(struct tally_coordinator *coordinator);
/* Whether an open round is waiting for a client of the session of this poll. */
bool has_task(const struct tally_coordinator *coordinator, const struct call *call);

#endif
