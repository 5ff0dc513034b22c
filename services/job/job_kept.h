/* job_kept: the messages of a round, kept by the engine of a job whose algorithm has a memory.
 *
 * A broadcast tells how the point moved in a round, but not how the memory changed. Messages tell
 * both: who adds them up and decides again gets every bit of the state after the round from the
 * state before it. So these messages are the change of such a job (job_saving.c), if they are much
 * shorter than its state; longer ones are not kept. */
#ifndef TALLY_SERVICES_JOB_JOB_KEPT_H
#define TALLY_SERVICES_JOB_JOB_KEPT_H

#include "codec/buffer.h"
#include "codec/error.h"
#include "services/job/job.h"

struct job_kept {
    int64_t round, iterate, stage; /* before the round closed; round 0: its messages are not kept */
    uint64_t n;
    struct tally_buffer messages; /* in the order of arrival, as in a change */
};

void job_kept_fini(struct job_kept *kept);

/* Keeps those of the open round from here on, if the job has a memory. */
void job_kept_open(struct tally_job *job);
/* Keeps a message that the open round has taken. */
void job_kept_add(struct tally_job *job, const struct tally_update *update);
/* The open round has closed. `decided`: by its messages; otherwise they tell nothing. */
void job_kept_close(struct tally_job *job, bool decided);

/* Bytes of the part of a change that has the messages of the last closed round, and its end at
 * `out`. SIZE_MAX if they are not kept, or do not lead from the state that `since` is of. */
size_t job_kept_bytes(const struct tally_job *job, const struct tally_saved *since);
void job_kept_save(const struct tally_job *job, struct tally_buffer *out);

/* Closes `round` again, with the messages that were saved at *at, and advances *at; `end` is one
 * past the last readable byte. The job is in the state before the round; its progress need not be.
 * Errors: DATA_LOSS, NO_MEMORY. */
enum tally_status job_kept_load(struct tally_job *job, int64_t round, int64_t iterate,
                                const uint8_t **at, const uint8_t *end, struct tally_error *err);

#endif
