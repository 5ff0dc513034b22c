/* model_copy: the client's side of a job: a copy of the point, the data, and the update of a round.
 *
 * All clients of a job in one process share a model copy, because they have the same point between
 * rounds. Pure like the engine; its hosts are the worker and the simulator. */
#ifndef TALLY_SERVICES_JOB_MODEL_COPY_H
#define TALLY_SERVICES_JOB_MODEL_COPY_H

#include <stdbool.h>
#include <stdint.h>

#include "services/algorithms/algorithm.h"
#include "services/job/job.h"
#include "services/job/job_spec.h"

struct tally_model_copy;

/* At the initial point, iterate 1. `objective` is borrowed and outlives it. Errors: NO_MEMORY. */
enum tally_status tally_model_copy_new(const struct tally_job_spec *spec,
                                       const struct tally_objective *objective,
                                       struct tally_model_copy **ret_copy, struct tally_error *err);
void tally_model_copy_free(struct tally_model_copy *copy);

/* Uses another objective from now on, of the same job, whose features are scaled. */
void tally_model_copy_use(struct tally_model_copy *copy, const struct tally_objective *objective);

int64_t tally_model_copy_iterate(const struct tally_model_copy *copy);
uint64_t tally_model_copy_checksum(const struct tally_model_copy *copy);

/* Applies the broadcast that leads to `iterate` to the point. Errors, after which the point is
 * unchanged: FAILED_PRECONDITION (not the next broadcast), MALFORMED. */
enum tally_status tally_model_copy_apply(struct tally_model_copy *copy, int64_t iterate,
                                         const struct tally_message_view *broadcast,
                                         struct tally_error *err);

/* Replaces the point by a snapshot: dim little-endian float64. Errors: MALFORMED (size). */
enum tally_status tally_model_copy_load(struct tally_model_copy *copy, int64_t iterate,
                                        const uint8_t *snapshot, size_t n, struct tally_error *err);

/* Sets the point to the initial one that this process offers, float[dim]. */
void tally_model_copy_start_at(struct tally_model_copy *copy, const float *weights);

/* For a job that keeps shifts (algorithm.h): sets the client's shift to its value after the
 * client's message of `round`, the last one that was counted; 0 = none. `vector` is that value, dim
 * little-endian float32; with n = 0 the copy uses the value that it has kept. Errors: MALFORMED,
 * DATA_LOSS (n = 0, and the copy has not kept it), NO_MEMORY. */
enum tally_status tally_model_copy_set_shift(struct tally_model_copy *copy, uint32_t client,
                                             int64_t round, const uint8_t *vector, size_t n,
                                             struct tally_error *err);

/* Computes one client's update of a round; if the round asks for it, the client evaluates the point
 * first. Its payload belongs to the model copy and is valid until
 * the next call. Errors: NOT_FINITE (the iterates diverged), OUT_OF_RANGE (client, samples or
 * quantizer grid), NO_MEMORY, FAILED_PRECONDITION (the objective cannot answer). */
enum tally_status tally_model_copy_compute(struct tally_model_copy *copy,
                                           const struct tally_job_round *round, uint32_t client,
                                           struct tally_update *ret_update,
                                           struct tally_bits *ret_bits, struct tally_error *err);

#endif
