/* replica: a client's side of a job: its copy of the point, the data, and what it computes.
 *
 * One replica serves all clients of a job that one process plays, since they share the point
 * between rounds. Pure like the engine; worker and simulator are its hosts. */
#ifndef TALLY_SERVICES_JOB_REPLICA_H
#define TALLY_SERVICES_JOB_REPLICA_H

#include <stdbool.h>
#include <stdint.h>

#include "services/algorithms/algorithm.h"
#include "services/job/job.h"
#include "services/job/spec.h"

struct tally_replica;

/* At the initial point, iterate 1. `objective` is borrowed and outlives it. Errors: NO_MEMORY. */
enum tally_status tally_replica_new(const struct tally_job_spec *spec,
                                    const struct tally_objective *objective,
                                    struct tally_replica **ret_replica, struct tally_error *err);
void tally_replica_free(struct tally_replica *replica);

int64_t tally_replica_iterate(const struct tally_replica *replica);
uint64_t tally_replica_checksum(const struct tally_replica *replica);

/* Moves the point by the broadcast that leads to `iterate`. Errors: FAILED_PRECONDITION (not the
 * next one), MALFORMED. On failure the point is unchanged. */
enum tally_status tally_replica_apply(struct tally_replica *replica, int64_t iterate,
                                      const struct tally_message_view *broadcast,
                                      struct tally_error *err);

/* Takes the point itself: dim little-endian float64. Errors: MALFORMED (size). */
enum tally_status tally_replica_load(struct tally_replica *replica, int64_t iterate,
                                     const uint8_t *snapshot, size_t n, struct tally_error *err);

/* What one client sends for a round; the message's payload is the replica's until the next call.
 * Errors: NOT_FINITE (the iterates diverged), OUT_OF_RANGE (client, samples, or no
 * grid), NO_MEMORY. */
enum tally_status tally_replica_compute(struct tally_replica *replica,
                                        const struct tally_job_round *round, uint32_t client,
                                        struct tally_job_update *ret_update,
                                        struct tally_bits *ret_bits, struct tally_error *err);

#endif
