/* sim_replay: a job as the engine alone runs it, without faults but with the same clients missing.
 *
 * Once a policy has closed a round without some client, the replay replaces the fault-free run of
 * sim_job.h as the measure. It follows the records in the store, omits in each round the clients
 * that the record names, and gives every record, point and message that must result. It also tells
 * which clients cannot continue: fewer clients average out less noise, so steps may diverge that do
 * not diverge with all clients. */
#ifndef TALLY_TESTS_SIMULATION_CHECKS_SIM_REPLAY_H
#define TALLY_TESTS_SIMULATION_CHECKS_SIM_REPLAY_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/simulation/checks/sim_job.h"

struct sim_replay;

/* The job, started, with its first round open. */
struct sim_replay *sim_replay_new(const struct sim_job *job);
void sim_replay_free(struct sim_replay *replay); /* NULL is allowed */

/* Closes the next round as `record` says. Returns the record that the engine writes, borrowed until
 * the next call; NULL if the engine does not close the round, or has ended before. */
const struct tally_round_record *sim_replay_round(struct sim_replay *replay,
                                                  const struct tally_round_record *record);

/* The open round; 0 = the job has ended. */
int64_t sim_replay_open_round(const struct sim_replay *replay);
/* Checksum of the point that the open round queries, or of the last point. */
uint64_t sim_replay_checksum(const struct sim_replay *replay, int64_t *ret_iterate);
/* Digest of what the client sends in the open round (sim_update_digest). */
uint64_t sim_replay_update(const struct sim_replay *replay, uint32_t client);
/* Whether the client takes part in the open round. */
bool sim_replay_draws(const struct sim_replay *replay, uint32_t client);
/* Whether the client cannot continue in the open round, and reports that instead of an update. */
bool sim_replay_diverges(const struct sim_replay *replay, uint32_t client);
/* Whether the job fails in the open round, or has failed. */
bool sim_replay_fails(const struct sim_replay *replay);

#endif
