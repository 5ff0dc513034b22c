/* invariants_job: what the checks know of each job, shared by the checks of the store
 * (invariants.c) and of messages (invariants_messages.c). */
#ifndef TALLY_TESTS_SIMULATION_CHECKS_INVARIANTS_JOB_H
#define TALLY_TESTS_SIMULATION_CHECKS_INVARIANTS_JOB_H

#include "storage/store.h"
#include "tests/simulation/checks/invariants.h"
#include "tests/simulation/checks/sim_replay.h"
#include "tests/simulation/programs/sim_replica.h"

/* A job as the store has shown it so far. Arrays of message digests are [max_rounds][clients], 0 =
 * none. The fault-free run is expected up to the first round that closed without some client; from
 * there on, the replay is. Values that neither gives yet must stay as first seen. */
struct invariants_job {
    const struct sim_job *job;
    bool is_known; /* has been seen in the store */
    struct tally_store_job row;
    int64_t n_records, max_rounds;
    struct tally_ledger sum;      /* of the records */
    uint64_t last_telemetry_bits; /* of the last one, as they are in the sum */
    int64_t dropped_in_round;     /* first round with a client missing; INT64_MAX = none */
    int64_t dropped_at_iterate;   /* the iterate that this round queried */
    uint64_t *surveyed;           /* surveys, once acknowledged, [clients], until it closes */
    bool has_scaling;             /* the survey has closed */
    uint64_t *acknowledged;       /* updates, once acknowledged */
    uint64_t *sent;               /* updates, as expected or first seen */
    uint64_t *checksums;          /* of the point of iterate k, as expected or first seen */
    uint64_t *failing;            /* not 0: the client cannot continue in that round */
    struct sim_replay *replay;    /* NULL before dropped_in_round */
    uint64_t *stored;             /* updates in the open round, [clients] */
    int64_t *payload_bits;        /* of the uplink, after round r */
    int64_t moved_us;             /* when a round last closed or the coordinator last failed */
    int64_t said_us;              /* when the job was last seen to say what it waits for */
    int64_t lost_rounds;          /* most rounds that had closed when a power cut undid some */
    bool has_two_histories; /* rounds that a power cut undid closed again with other clients */
    bool may_be_cancelled;
    char waiting[160]; /* what the job waits for, according to its last detail */
    bool is_listed;    /* in the current walk */
};

/* The state of all checks. */
struct invariants_seen {
    struct invariants_job watches[SIM_MAX_JOBS];
    int n;
    uint64_t n_changes;            /* of the disk, at the last check */
    bool has_gone_back;            /* a power cut has taken commits back */
    bool is_stale;                 /* the store could not be read when it had changed */
    int64_t age_us;                /* of the request that is answered */
    bool serves[SIM_MAX_REPLICAS]; /* the replica has not stepped down */
    struct invariants_source source;
};
extern struct invariants_seen seen;

/* The job of this name. */
struct invariants_job *invariants_job_named(const char *name);
/* The job of an id, or NULL if the store has not shown it. */
struct invariants_job *invariants_job(const char *id);

/* Whether the coordinator that responds must know what the store now holds of the job. False if it
 * may pass on what the former leader said. */
bool invariants_is_current(const struct invariants_job *watch);

/* Whether the job's time is up. The fault-free run, which has no clock, then goes on without it. */
bool invariants_is_stopped(const struct invariants_job *watch);

/* The length of the arrays of digests. */
size_t invariants_n_updates(const struct invariants_job *watch);
/* The entry of a round and client in one of the arrays of digests; NULL if there is none. */
uint64_t *invariants_at_update(const struct invariants_job *watch, uint64_t *digests, int64_t round,
                               int64_t client);

/* Whether the point of iterate k is the expected one or, if none is expected yet, the first
 * seen. */
bool invariants_is_point(const struct invariants_job *watch, int64_t iterate, uint64_t checksum);

#endif
