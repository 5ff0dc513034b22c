/* jobs_models: the models of a job: its current point, and those that it keeps (`keep` of its
 * document), which are in the store. */
#ifndef TALLY_SERVICES_COORDINATOR_JOBS_MODELS_H
#define TALLY_SERVICES_COORDINATOR_JOBS_MODELS_H

#include "services/coordinator/coordinator.h"
#include "services/coordinator/hosted_job.h"

/* Which model of a job: "last", "best", or the round that made it. */
enum model_choice { MODEL_LAST, MODEL_BEST, MODEL_ROUND };
struct model_which {
    enum model_choice choice;
    int64_t round; /* of MODEL_ROUND */
};

/* NULL = "last". Errors: INVALID_ARGUMENT (field "which"). */
enum tally_status jobs_read_which(const char *text, struct model_which *ret_which,
                                  struct tally_error *err);

/* Finds a kept model of a stored job. *ret_is_last: `which` is the current point, which is not
 * among the kept models, and nothing else is returned. Errors: NOT_FOUND (no such model; the
 * message says which there are), those of the store. */
enum tally_status jobs_find_model(struct tally_coordinator *coordinator,
                                  const struct tally_store_job *row,
                                  const struct model_which *which, bool *ret_is_last,
                                  struct tally_store_model *ret_model, struct tally_error *err);
/* Appends the numbers of a kept model to *out, double[dim]. Errors: DATA_LOSS (its checksum is
 * wrong), NO_MEMORY, those of the store. */
enum tally_status jobs_load_model(struct tally_coordinator *coordinator,
                                  const struct tally_store_job *row,
                                  const struct tally_store_model *model, struct tally_buffer *out,
                                  struct tally_error *err);

/* Finds the job, or loads it with its engine, since only the engine can read the point from the
 * state. The caller frees a job that it owns. Errors: NOT_FOUND, UNAVAILABLE (no coordinator leads
 * it now), those of hosted_job_load(). */
enum tally_status jobs_with_engine(struct tally_coordinator *coordinator, const char *id,
                                   struct hosted_job **ret_job, bool *ret_owned,
                                   struct tally_error *err);

/* Appends the numbers of any model of any job, double[dim]: the job may be queued (its initial
 * point), live or ended. Errors: those of the functions above. */
enum tally_status jobs_read_model(struct tally_coordinator *coordinator, const char *id,
                                  const struct model_which *which, struct tally_buffer *out,
                                  struct tally_error *err);

#endif
