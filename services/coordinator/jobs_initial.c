#include "services/coordinator/jobs_initial.h"

#include <stdlib.h>
#include <string.h>

#include "codec/numeric/checksum.h"
#include "services/coordinator/coordinator.h"
#include "services/coordinator/hosted_job.h"
#include "services/coordinator/jobs_live.h"
#include "services/coordinator/jobs_models.h"

/* Reads the file, and compares its checksum with the document's. */
static enum tally_status read_file(const struct tally_coordinator *coordinator,
                                   struct tally_initial_point *initial, size_t dim, double **ret_x,
                                   struct tally_error *err)
{
    const char *dir = coordinator->config.data_dir;
    const struct tally_data_source files = {.dir = dir != NULL ? dir : ""};
    double *x;
    enum tally_status status = tally_initial_point_read(initial, dim, &files, &x, err);
    if (status == TALLY_OK) {
        status = tally_initial_point_match(initial, tally_checksum64(x, dim * sizeof *x), err);
        if (status != TALLY_OK) {
            free(x);
            return status;
        }
        *ret_x = x;
    }
    return status;
}

/* The model of an earlier job. */
struct earlier_model {
    struct tally_store_job row;
    bool is_last;
    struct tally_store_model kept; /* unless it is the last */
};

/* Finds the model of the job that the document names. */
static enum tally_status find_model(struct tally_coordinator *coordinator,
                                    const struct tally_initial_point *initial,
                                    struct earlier_model *model, struct tally_error *err)
{
    const struct model_which which = {
        .choice = initial->which == TALLY_INITIAL_WHICH_BEST ? MODEL_BEST : MODEL_LAST};
    struct tally_error why = TALLY_ERROR_INIT;
    const enum tally_status status =
        jobs_find_model(coordinator, &model->row, &which, &model->is_last, &model->kept, &why);
    return status == TALLY_NOT_FOUND
               ? tally_fail(err, TALLY_INVALID_ARGUMENT, "initial_point.which", "%s", why.message)
           : status != TALLY_OK ? tally_fail(err, status, why.field, "%s", why.message)
                                : TALLY_OK;
}

/* Finds the earlier job and its model, whose checksum must be the document's. */
static enum tally_status find_job(struct tally_coordinator *coordinator,
                                  struct tally_initial_point *initial, size_t dim,
                                  struct earlier_model *ret_model, struct tally_error *err)
{
    struct tally_store_job *ret_row = &ret_model->row;
    static const char FIELD[] = "initial_point.job";
    const char *id = initial->job;
    struct tally_error why = TALLY_ERROR_INIT;
    enum tally_status status = jobs_read_row(coordinator, id, ret_row, &why);
    if (status == TALLY_NOT_FOUND) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, FIELD, "there is no job %s", id);
    }
    if (status != TALLY_OK) {
        return tally_fail(err, status, why.field, "%s", why.message);
    }
    if (!tally_job_status_is_terminal(ret_row->status)) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, FIELD, "job %s is %s; it has not ended", id,
                          tally_job_status_name(ret_row->status));
    }
    if (ret_row->started_ms == 0) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, FIELD,
                          "job %s has ended before it started and has no model", id);
    }
    if (ret_row->dim != (int64_t)dim) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, FIELD, "job %s has dim %lld, this one %zu",
                          id, (long long)ret_row->dim, dim);
    }
    status = find_model(coordinator, initial, ret_model, err);
    return status == TALLY_OK
               ? tally_initial_point_match(initial,
                                           ret_model->is_last ? ret_row->progress.x_checksum
                                                              : ret_model->kept.x_checksum,
                                           err)
               : status;
}

/* Takes a kept model of an earlier job. */
static enum tally_status take_kept(struct tally_coordinator *coordinator,
                                   const struct earlier_model *model, double **ret_x,
                                   struct tally_error *err)
{
    struct tally_buffer bytes = {0};
    const enum tally_status status =
        jobs_load_model(coordinator, &model->row, &model->kept, &bytes, err);
    if (status != TALLY_OK) {
        tally_buffer_fini(&bytes);
        return status;
    }
    *ret_x = (double *)(void *)bytes.data; /* of malloc() */
    return TALLY_OK;
}

/* Copies the last model of an earlier job. */
static enum tally_status copy_model(struct tally_coordinator *coordinator,
                                    const struct tally_store_job *row, double **ret_x,
                                    struct tally_error *err)
{
    struct hosted_job *job;
    enum tally_status status = hosted_job_load(coordinator->store, row, &job, err);
    if (status != TALLY_OK) {
        return status;
    }
    size_t dim;
    const double *point = tally_job_point(job->engine, &dim);
    double *x = point != NULL ? malloc(dim * sizeof *x) : NULL;
    if (point == NULL) {
        status = tally_fail(err, TALLY_DATA_LOSS, NULL, "job %s has no state", row->id);
    } else if (x == NULL) {
        status = tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a point of dim %zu", dim);
    } else {
        memcpy(x, point, dim * sizeof *x);
        *ret_x = x;
    }
    hosted_job_free(job);
    return status;
}

enum tally_status jobs_initial_check(struct tally_coordinator *coordinator,
                                     struct tally_job_spec *spec, struct tally_error *err)
{
    const size_t dim = tally_objective_spec_dim(&spec->objective);
    struct earlier_model model;
    double *x = NULL;
    enum tally_status status = TALLY_OK;
    if (spec->initial_point.type == TALLY_INITIAL_NPY) {
        status = read_file(coordinator, &spec->initial_point, dim, &x, err);
        free(x);
    } else if (spec->initial_point.type == TALLY_INITIAL_JOB) {
        status = find_job(coordinator, &spec->initial_point, dim, &model, err);
    }
    return status;
}

enum tally_status jobs_initial_make(struct tally_coordinator *coordinator,
                                    const struct hosted_job *job, double **ret_x,
                                    struct tally_error *err)
{
    const size_t dim = (size_t)job->row.dim;
    struct tally_initial_point initial = job->spec.initial_point;
    struct earlier_model model;
    double *x = NULL;
    enum tally_status status = TALLY_OK;
    if (initial.type == TALLY_INITIAL_NPY) {
        status = read_file(coordinator, &initial, dim, &x, err);
    } else if (initial.type == TALLY_INITIAL_JOB) {
        status = find_job(coordinator, &initial, dim, &model, err);
        if (status == TALLY_OK) {
            status = model.is_last ? copy_model(coordinator, &model.row, &x, err)
                                   : take_kept(coordinator, &model, &x, err);
        }
    } else if (initial.type == TALLY_INITIAL_FIRST) {
        x = malloc(dim * sizeof *x);
        if (x == NULL) {
            return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a point of dim %zu", dim);
        }
        memcpy(x, job->start, dim * sizeof *x);
    }
    if (status == TALLY_OK) {
        *ret_x = x;
    }
    return status;
}
