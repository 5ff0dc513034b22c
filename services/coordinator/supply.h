/* supply: which slots there are for which job, counted as they come and go.
 *
 * A session serves any job, or the one that it is bound to, but for those that it has refused. So
 * what there is for a job is what the unbound sessions have, plus what those bound to the job have,
 * less what those of both have that refuse it. Each of the three is kept as a sum: no question
 * below walks over the sessions, of which strangers may bring a hundred thousand. */
#ifndef TALLY_SERVICES_COORDINATOR_SUPPLY_H
#define TALLY_SERVICES_COORDINATOR_SUPPLY_H

#include <stdbool.h>
#include <stdint.h>

#include "services/coordinator/ordered.h"

struct hosted_job;
struct refusal;
struct session;
struct session_table;

/* Sessions that serve the same jobs, refusals apart. */
struct supply {
    struct ordered_node *free; /* those that have a free slot, in the order in which they joined */
    int64_t n_sessions;
    int64_t n_free; /* slots */
};

/* What a job knows of sessions. */
struct job_supply {
    struct supply bound;      /* sessions that serve this job alone */
    int64_t n_played;         /* clients that unbound sessions play */
    struct refusal *refusals; /* of it, by any session */
    int64_t n_refusing;       /* sessions that would serve it if they did not refuse it ... */
    int64_t n_refused_free;   /* ... and their free slots */
};

/* The session has joined; all of its slots are free. */
void supply_add(struct session_table *table, struct session *session);
/* It leaves. It refuses nothing by now. */
void supply_remove(struct session_table *table, struct session *session);
/* So many of its slots have become free; less than 0: they are taken. */
void supply_change_free(struct session_table *table, struct session *session, int64_t n);
/* The session refuses the job from now on, or takes that back. */
void supply_add_refusal(struct refusal *refusal);
void supply_remove_refusal(struct refusal *refusal);
/* The job goes: sessions bound to it serve none from now on. None of them plays it by now. */
void supply_unbind(struct hosted_job *job);

/* Slots that are free for the job. */
int64_t supply_n_free(const struct session_table *table, const struct hosted_job *job);
/* Sessions that serve the job. */
int64_t supply_n_serving(const struct session_table *table, const struct hosted_job *job);
/* Clients of the jobs that the caller counts which unbound sessions play that refuse `job`. Takes a
 * step for each of them. */
int64_t supply_n_refused_played(const struct hosted_job *job,
                                bool counts(const struct hosted_job *));
/* The session that serves the job, has a free slot, and joined last before the one with that number
 * (UINT64_MAX: of all). NULL = none. Takes a step for each that refuses the job in between. */
struct session *supply_next_free(const struct session_table *table, const struct hosted_job *job,
                                 uint64_t before);

#endif
