/* mlflow_run: a job as a run in MLflow's file store, which mlflow ui --backend-store-uri DIR shows:
 *
 *   DIR/EXPERIMENT/meta.yaml       the experiment "tally", that of DIR if it has one
 *   DIR/EXPERIMENT/ID/meta.yaml    name, times and status of the run; ID is the job's
 *       metrics/NAME               "TIME VALUE STEP" for each round; names as in job_rounds.h
 *       params/KEY                 the members of the document: "algorithm.step_size"
 *       tags/KEY                   labels ("label.KEY"), status, version, checksum of the iterate
 *       artifacts/                 document.json, job.json (the detail), the models
 *
 * A run appears whole or not at all. A run that is there is never changed, as it may have been
 * annotated. */
#ifndef TALLY_SERVICES_CLI_MLFLOW_RUN_H
#define TALLY_SERVICES_CLI_MLFLOW_RUN_H

#include <limits.h>

#include "api/json/json.h"

struct tally_mlflow_run;
enum { TALLY_MLFLOW_PATH_CAPACITY = PATH_MAX };

/* Begins the run of a job in a folder, which is created if need be. Errors: INVALID_ARGUMENT (a
 * folder or file cannot be created), ALREADY_EXISTS (the folder has this run), INTERNAL (the disk
 * is full), NO_MEMORY. */
enum tally_status tally_mlflow_run_create(const char *folder, const struct tally_json *detail,
                                          const struct tally_json *document,
                                          struct tally_mlflow_run **ret_run,
                                          struct tally_error *err);
/* Adds a round record; a tally_record_fn, whose context is the run. Errors: INTERNAL, NO_MEMORY. */
enum tally_status tally_mlflow_run_add_round(void *context, const struct tally_json *record);
/* Adds a file; the context is the run, and the name has no '/'. Errors: those of
 * tally_whole_file_write(). */
enum tally_status tally_mlflow_run_add_artifact(void *context, const char *name, const void *bytes,
                                                size_t n, struct tally_error *err);
/* Completes the run, unless `made`, the status of adding to it, is not OK; frees it. Sets *ret_path
 * to its folder. Errors: `made`, and as above. */
enum tally_status tally_mlflow_run_commit(struct tally_mlflow_run *run, enum tally_status made,
                                          char ret_path[TALLY_MLFLOW_PATH_CAPACITY],
                                          struct tally_error *err);

#endif
