/* invariants: what must hold whatever happens, checked against the fault-free run of each job.
 *
 * After every turn of the coordinator that changed the disk, and after every restart, the store is
 * read:
 *   - jobs: none is lost, none is there twice (idempotency); a job that has ended does not change;
 *   - counters never go back and equal the sum of the round records;
 *   - records are contiguous and equal those of the fault-free run, the point's checksum included;
 *   - every acknowledged update is stored in the open round, or its round has closed.
 * Every message is checked in transit:
 *   - what a worker posts equals what that client sent in the fault-free run, hence its point, too;
 *   - the checksum in every task is that of the fault-free run's point;
 *   - a job's detail shows what the store holds, and what the job waits for if it is stalled;
 *   - no worker has to discard its point, and no update is refused because it differs;
 *   - each of several updates in one request has a result, and acknowledged ones are stored.
 * Once a job's policy lets a round close without some client, the fault-free run is no longer the
 * measure. Then the record names the missing clients, no update of theirs was acknowledged, and
 * there is a quorum. The measure is a replay by the engine alone, without the same clients
 * (sim_replay.h): records, points and messages equal it bit for bit. A job fails only where the
 * replay fails, because the steps of a client diverge.
 *
 * With several coordinators, the leader of a job responds with what the store holds. A coordinator
 * that has lost the job may respond with what the store held before, and with nothing else.
 *
 * A power cut without power_loss_safe may undo the last commits. The job then continues from the
 * state in the store, and all of the above holds from there. */
#ifndef TALLY_TESTS_SIMULATION_CHECKS_INVARIANTS_H
#define TALLY_TESTS_SIMULATION_CHECKS_INVARIANTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/error.h"
#include "storage/store.h"
#include "tests/simulation/checks/sim_job.h"
#include "tests/simulation/world/sim_network.h"

/* How the invariants see what is committed. */
struct invariants_source {
    struct tally_store *(*store)(void);
    uint64_t (*n_changes)(void);    /* of the committed data, so far */
    void (*hold_faults)(bool hold); /* while invariants read; NULL = no faults */
    bool is_shared;                 /* several coordinators use the store */
};

void invariants_begin(const struct sim_job *jobs, int n_jobs,
                      const struct invariants_source *source);
void invariants_end(void);

/* Checks after a turn; reads the store only if it has changed. */
void invariants_check(void);
void invariants_see_restart(void);
void invariants_see_power_cut(bool power_loss_safe);

/* The coordinator responds to a request that arrived age_us ago. */
void invariants_see_answer(const struct sim_peer *peer, const struct sim_message *message,
                           int64_t age_us, int status, const uint8_t *body, size_t n_body);
/* A worker calls, is refused, writes into its log, ends. */
void invariants_see_post(const char *worker, const char *method, const uint8_t *body,
                         size_t n_body);
void invariants_see_refusal(const char *worker, const char *method, const uint8_t *body,
                            size_t n_body, const struct tally_error *why);
void invariants_see_worker_log(const char *worker, const char *event, const char *text);
void invariants_see_worker_end(const char *worker, const struct tally_error *why);

/* The coordinator writes into its log. */
void invariants_see_coordinator_log(const char *event);

/* An administrator is about to cancel a job, so that it need not complete. */
void invariants_allow_cancel(const struct sim_job *job);

/* Whether all jobs have ended in the store. */
bool invariants_all_ended(void);
/* At the end: every job is completed like the fault-free run, or cancelled. */
void invariants_check_end(void);

#endif
