/* replicas_internal: what replicas.c and replicas_giving.c share. */
#ifndef TALLY_SERVICES_COORDINATOR_REPLICAS_INTERNAL_H
#define TALLY_SERVICES_COORDINATOR_REPLICAS_INTERNAL_H

#include "services/coordinator/jobs_live.h"
#include "services/coordinator/replicas.h"
#include "services/coordinator/replicas_placement.h"

struct replicas {
    const struct tally_store_leases *leases;
    struct tally_replica self;  /* id and address; number 0 = has not joined */
    struct placement directory; /* of the last heartbeat that succeeded */
    struct placement next;      /* being read */
    size_t capacity, next_capacity;
    struct job_rows taken; /* jobs that are ours and not loaded yet */
    bool is_down;          /* stepped down, or not up yet */
    bool has_left;
    struct replica_counts counts;
    int64_t next_beat_ms;
    int64_t neediest_key;   /* of the job that most needs workers of other replicas ... */
    int64_t n_beats_needed; /* ... and for how many heartbeats it has been the same */
    int64_t stuck_key;      /* of the oldest job here that is stuck; 0 = none */
    int64_t n_beats_stuck;  /* heartbeats for which it has been stuck */
};

/* Ends the sessions of the job's workers, and of those bound to it: they join again and are sent to
 * its leader. */
void send_away_workers(struct tally_coordinator *coordinator, const struct hosted_job *job);
/* After each heartbeat: moves queued jobs, stuck jobs and idle workers where they fit better. */
void give_away(struct tally_coordinator *coordinator, int64_t now_ms);

#endif
