/* worker_job: a worker's part of one job: the data, the model copy, and the clients that it serves.
 */
#ifndef TALLY_SERVICES_WORKER_WORKER_JOB_H
#define TALLY_SERVICES_WORKER_WORKER_JOB_H

#include <signal.h>
#include <stdint.h>

#include "api/worker/worker_messages.h"
#include "services/job/model_copy.h"
#include "services/objectives/data/scaling.h"
#include "services/plugins/plugin_set.h"

struct job_copy {
    char id[TALLY_MESSAGE_JOB_ID_CAPACITY];
    struct tally_job_spec spec;
    struct tally_objective *objective;
    struct tally_model_copy *model;
    uint32_t *clients; /* served in this session or an earlier one, those of the last task first */
    size_t n_clients, capacity;
    uint32_t *places; /* [clients of the job]: 1 + its index in the list; 0 = not listed */
    char dropped[TALLY_METRICS_MOST][TALLY_METRIC_NAME_CAPACITY]; /* metrics that were not finite */
    size_t n_dropped;
    struct tally_scaling scaling; /* of the features, as a task gave it; features 0 = none */
    uint64_t described_in; /* the session that was told of its origin; 0 = none (worker_origin.h) */
    struct job_copy *next;
};

/* Creates data and initial point from the document. `plugins` must outlive the copy and may be
 * NULL. Reading data stops once *stop is not 0; NULL = never. Errors: those of
 * tally_document_parse() and tally_plugin_set_objective(), NO_MEMORY. */
enum tally_status job_copy_new(const char *id, const struct tally_bytes *document,
                               const char *data_dir, const struct tally_plugin_set *plugins,
                               const volatile sig_atomic_t *stop, struct job_copy **ret_copy,
                               struct tally_error *err);
void job_copy_free(struct job_copy *copy);

/* Borrows the copy of that job from a list; NULL if it has none. */
struct job_copy *job_copy_find(struct job_copy *jobs, const char *id);

/* Notes that a metric was dropped. Whether it is the first time, so that there is one warning per
 * name; false for more names than fit. */
bool job_copy_note_dropped(struct job_copy *copy, const char *name);

/* Scales the features as the task needs it: if the job has a scaling (job_survey.h) that the data
 * here do not have yet, reads the data again with it. Errors: DATA_LOSS (the scaling is not here,
 * or not the job's), those of reading the data (in job_copy_new()). After an error the copy is to
 * be freed. */
enum tally_status job_copy_scale(struct job_copy *copy, const struct tally_task *task,
                                 const char *data_dir, const struct tally_plugin_set *plugins,
                                 const volatile sig_atomic_t *stop, struct tally_error *err);
/* The digest of the scaling that the copy was given; 0 = none. */
uint32_t job_copy_scaling(const struct job_copy *copy);

/* Updates the point to the one that the task names, and remembers the task's clients. Errors:
 * MALFORMED, FAILED_PRECONDITION (a broadcast is missing), DATA_LOSS (the point's iterate or
 * checksum is not the coordinator's, or a shift is not here), NO_MEMORY. */
enum tally_status job_copy_follow(struct job_copy *copy, const struct tally_task *task,
                                  struct tally_error *err);

#endif
