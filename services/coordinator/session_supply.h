/* session_supply: counts of the slots that are available to each job.
 *
 * An unbound session serves any job; a bound one serves only its own job. Neither serves a job that
 * it has refused. So the slots for a job are those of unbound sessions, plus those of sessions
 * bound to the job, minus those of sessions that refuse it. Each of the three is kept as a sum,
 * because a walk over all sessions is too slow: strangers may open a hundred thousand. */
#ifndef TALLY_SERVICES_COORDINATOR_SESSION_SUPPLY_H
#define TALLY_SERVICES_COORDINATOR_SESSION_SUPPLY_H

#include <stdbool.h>
#include <stdint.h>

#include "services/coordinator/session_order.h"

struct hosted_job;
struct refusal;
struct session;
struct session_table;

/* The session has joined; all of its slots are free. */
void supply_add(struct session_table *table, struct session *session);
/* The session leaves. Precondition: it has no refusals. */
void supply_remove(struct session_table *table, struct session *session);
/* `n` slots of the session have become free; negative: taken. */
void supply_change_free(struct session_table *table, struct session *session, int64_t n);
/* The session refuses the job from now on, or takes that back. */
void supply_add_refusal(struct refusal *refusal);
void supply_remove_refusal(struct refusal *refusal);
/* The job is removed: sessions bound to it serve no job from now on. Precondition: no session has
 * clients of it. */
void supply_unbind(struct hosted_job *job);

/* Slots that are free for the job. */
int64_t supply_n_free(const struct session_table *table, const struct hosted_job *job);
/* Sessions that serve the job. */
int64_t supply_n_serving(const struct session_table *table, const struct hosted_job *job);
/* Clients of unbound sessions that refuse `job`, in jobs for which counts() is
 * true. Takes time proportional to those clients and refusals. */
int64_t supply_n_refused_assigned(const struct hosted_job *job,
                                  bool counts(const struct hosted_job *));
/* The newest session that serves the job, has a free slot and a number below `before` (UINT64_MAX:
 * no limit). NULL = none. Takes one step for each refusing session that is skipped. */
struct session *supply_next_free(const struct session_table *table, const struct hosted_job *job,
                                 uint64_t before);

#endif
