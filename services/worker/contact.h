/* contact: a worker's contact with its coordinator: token, session, and the pauses between tries.
 */
#ifndef TALLY_SERVICES_WORKER_CONTACT_H
#define TALLY_SERVICES_WORKER_CONTACT_H

#include "services/worker/worker_state.h"

bool contact_is_stopping(const struct worker *worker);
/* Whether a retry may help. */
bool contact_is_passing(enum tally_status status);

/* Waits before the next try: twice as long as the last time, less a random part. `why`: the failure
 * of a call, NULL = the coordinator has responded. */
void contact_pause(struct worker *worker, const struct tally_error *why);
/* The coordinator has responded as wanted. */
void contact_reached(struct worker *worker);
/* To be called before a call: limits its time to what is left of the patience. */
void contact_limit_calls(struct worker *worker);
/* Errors: DEADLINE, as patience_check(). */
enum tally_status contact_check_patience(const struct worker *worker, struct tally_error *err);

struct tally_http_client_config contact_client_config(const struct worker *worker);
/* Adds what the HTTP client has counted to the totals. */
void contact_add_wire_bytes(struct worker *worker);
/* A token that is refused may have been replaced in its file. True if there is a different one
 * now. */
bool contact_renew_token(struct worker *worker);

/* Joins, and retries as long as that may help. Errors: CANCELLED when asked to stop, DEADLINE
 * (patience), and those that a retry cannot fix. */
enum tally_status contact_join(struct worker *worker, struct tally_error *err);
/* A poll: how long it may wait, and what the worker holds; it is of the caller's session. */
void contact_begin_poll(const struct worker *worker, struct tally_poll_request *ret_request);
/* Returns the slots, on a connection that a stop does not cancel. */
void contact_leave(const struct worker *worker);

#endif
