/* worker_posting: sends a task's updates to the coordinator.
 *
 * A worker that takes part with n clients computes their updates one after the other, and an
 * exchange costs more than a small update. The updates are therefore encoded as they are computed
 * and posted together in one PostUpdate, whose response also brings the next task:
 *
 *     compute client 3 -> batch | compute client 7 -> batch | compute client 9 -> batch -> post
 *
 * A batch is posted earlier when it is full (max_batch_bytes, which limits the memory for held
 * updates), or when the computation of its first update began POST_AFTER_MS ago, because the round
 * may close while the next client computes. An update is posted alone if it is the only one, if its
 * own computation took that long, or if it is too long for a batch.
 *
 * A call whose outcome is unknown is repeated with the same bytes. A batch that the coordinator
 * refuses as a whole is posted update by update, so that each has a result. */
#ifndef TALLY_SERVICES_WORKER_WORKER_POSTING_H
#define TALLY_SERVICES_WORKER_WORKER_POSTING_H

#include "services/worker/worker_state.h"

/* Begins the updates of a task: drops held ones, and starts the time of the first computation.
 * columns: tally_columns_digest() of the worker's data. */
void posting_begin(struct worker *worker, const struct tally_task *task, uint32_t columns);

/* Takes an update; its payload is not used afterwards. With is_last, the last update of the task,
 * posts all held updates, and polls. Errors: as posting_post(). */
enum tally_status posting_add(struct worker *worker, struct tally_update *update,
                              const struct tally_bits *bits, bool is_last, struct tally_error *err);
/* Posts the held updates; with `polls`, the response may bring the next task. */
enum tally_status posting_flush(struct worker *worker, bool polls, struct tally_error *err);

/* Posts one update, failure or refusal until it is acknowledged or finally refused. An update that
 * is refused whatever the round is, be it by a proxy, is noted in worker->undeliverables. With
 * `polls`, the response may bring the next task. A new session replaces one that the coordinator
 * has forgotten. A stop ends the attempts, and the coordinator hands out the round's task again.
 * Errors: CANCELLED (stop), DEADLINE (patience), DATA_LOSS (the coordinator counts other bits),
 * NO_MEMORY, and those of contact_join(). */
enum tally_status posting_post(struct worker *worker, struct tally_update *update,
                               const struct tally_bits *bits, bool polls, struct tally_error *err);

/* Refuses the task's job, which is then left to other workers: this one cannot create it from its
 * document (its data files are not here, or its plug-in is not loaded) or, with `tried`, its
 * plug-in has failed. Errors: as posting_post(). */
enum tally_status posting_refuse(struct worker *worker, uint32_t client, bool tried,
                                 const struct tally_error *why, struct tally_error *err);

/* Writes as much of the message as a failure can carry, in whole UTF-8 characters: it may quote a
 * file. */
void posting_write_reason(const struct tally_error *why, char ret_reason[TALLY_FAILURE_CAPACITY]);

#endif
