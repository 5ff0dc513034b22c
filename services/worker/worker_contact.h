/* worker_contact: a worker's contact with its coordinator: token, session, and pauses between
 * attempts. */
#ifndef TALLY_SERVICES_WORKER_WORKER_CONTACT_H
#define TALLY_SERVICES_WORKER_WORKER_CONTACT_H

#include "services/worker/worker_state.h"

bool contact_is_stopping(const struct worker *worker);
/* Whether a retry may help. */
bool contact_is_passing(enum tally_status status);

/* Waits before the next attempt: twice as long as the last time, less a random part. `why`: the
 * failure of a call; NULL = the coordinator has responded. */
void contact_pause(struct worker *worker, const struct tally_error *why);
/* Whether the pauses since the last successful call have grown to the longest. */
bool contact_is_at_longest_pause(const struct worker *worker);
/* Whether a small call is answered now, even by a refusal. Otherwise the coordinator is away, or
 * nothing passes on the way to it. */
bool contact_is_answered(struct worker *worker);
/* To be called after each successful call to the coordinator. */
void contact_reached(struct worker *worker);
/* To be called before a call: limits its silence to silence_ms, INT64_MAX for the call's own limit,
 * or to what is left of the patience if that is less, plus a second. */
void contact_limit_calls(struct worker *worker, int64_t silence_ms);
/* Errors: DEADLINE, as patience_check(). */
enum tally_status contact_check_patience(const struct worker *worker, struct tally_error *err);

struct tally_http_client_config contact_client_config(struct worker *worker);
/* Adds the bytes that the HTTP client has counted to the totals. */
void contact_add_wire_bytes(struct worker *worker);
/* Reads a refused token from its file again, where it may have been replaced. Returns true if the
 * worker has a different token now. */
bool contact_renew_token(struct worker *worker);

/* Joins, and retries as long as that may help. While another worker has the same name, it pauses
 * first, longer each time. Errors: CANCELLED when asked to stop, DEADLINE (patience), and those
 * that a retry cannot fix, among them NOT_FOUND with worker->has_ended. */
enum tally_status contact_join(struct worker *worker, struct tally_error *err);
/* Fills in how long a poll may wait, what the worker holds, and what it cannot post. The caller
 * sets the session. */
void contact_begin_poll(struct worker *worker, struct tally_poll_request *ret_request);
/* Returns the slots, on a connection that a stop does not cancel. */
void contact_leave(struct worker *worker);

#endif
