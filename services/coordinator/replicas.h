/* replicas: this coordinator as one of several on one store (storage/leases.h).
 *
 * One replica leads each job: only this replica has the job's engine and the sessions of the
 * workers that serve it. What a replica knows of the others is a directory, read with every
 * heartbeat: which are alive, and how many slots they have free. The directory decides where
 * requests go (replicas_routing.h) and which jobs and workers move (replicas_placement.h). Nothing
 * durable depends on it: a replica that is wrong about its jobs cannot write to them.
 *
 *     heartbeat   renews our lease, reads the directory, and drops jobs that another replica leads.
 *                 Then takes jobs without a leader, and gives queued jobs and idle workers to
 *                 the replicas that they help
 *     step down   no heartbeat has succeeded for a lease: others may lead our jobs. We hand out no
 *                 work and take no requests about jobs until one succeeds
 *
 * The lower modules see struct replica_view of coordinator.h, which is updated here. A store that
 * only one process uses has no leases: then coordinator->replicas is NULL. */
#ifndef TALLY_SERVICES_COORDINATOR_REPLICAS_H
#define TALLY_SERVICES_COORDINATOR_REPLICAS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/error.h"
#include "storage/leases.h"

struct hosted_job;
struct replicas;
struct tally_coordinator;

/* Counters of this process. */
struct replica_counts {
    uint64_t jobs_taken, jobs_lost, jobs_given, workers_given;
    uint64_t failed_heartbeats, step_downs;
};

/* Sets coordinator->replicas if the store has leases. The first heartbeat, in the first turn, joins
 * the others: by then this process listens on its address. */
void replicas_new(struct tally_coordinator *coordinator);
/* NULL is allowed. */
void replicas_free(struct replicas *replicas);

/* The functions below do nothing if the store has no replicas. */

/* The heartbeat, if it is due. No transaction may be open. */
void replicas_step(struct tally_coordinator *coordinator, int64_t now_ms);
/* To be called when a write was refused because another replica leads the job: finds out at once
 * which jobs are still ours, and drops the others. No transaction may be open. */
void replicas_recount(struct tally_coordinator *coordinator);
/* Releases all jobs, for other replicas to take. Once, at a clean shutdown; no transaction may be
 * open. */
void replicas_leave(struct tally_coordinator *coordinator);

/* Whether this replica leads the job, according to the store. True without replicas. */
bool replicas_still_leads(struct tally_coordinator *coordinator, const struct hosted_job *job);
/* The replica with this number, if it is another one and alive; NULL = none. Borrowed until the
 * next heartbeat. */
const struct tally_replica *replicas_find(const struct tally_coordinator *coordinator,
                                          int64_t number);
/* Where a worker with `slots` slots that joins here must go; NULL = it stays. If the result is not
 * NULL, the directory counts the worker there from now on. */
const struct tally_replica *replicas_home(struct tally_coordinator *coordinator, int64_t slots);
/* The whole directory, by number; *ret_n is 0 without replicas. Borrowed until the next
 * heartbeat. */
const struct tally_replica *replicas_list(const struct tally_coordinator *coordinator,
                                          size_t *ret_n);
/* Counters of this process; NULL without replicas. */
const struct replica_counts *replicas_counts(const struct tally_coordinator *coordinator);
/* Counts the replicas that are alive, and those that died without leaving. */
void replicas_count(const struct tally_coordinator *coordinator, int64_t *ret_alive,
                    int64_t *ret_dead);

#endif
