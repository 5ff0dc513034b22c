#include "services/coordinator/jobs_initial.h"
#include "services/base/alloc.h"

#include <stdlib.h>
#include <string.h>

#include "codec/numeric/checksum.h"
#include "services/base/log.h"
#include "services/base/time.h"
#include "services/coordinator/background.h"
#include "services/coordinator/calls.h"
#include "services/coordinator/coordinator.h"
#include "services/coordinator/hosted_job.h"
#include "services/coordinator/jobs_lifecycle.h"
#include "services/coordinator/jobs_live.h"
#include "services/coordinator/jobs_models.h"
#include "services/coordinator/loop.h"

/* How long the slots of a job wait for its file, so that a slow file does not keep other jobs from
 * starting. */
enum { SLOTS_WAIT_MS = 1000 };

struct initial_read {
    struct background_work work; /* must be first */
    struct tally_initial_point initial;
    size_t dim;
    struct call *call;                  /* that submits the job; NULL = it is about to start */
    char job_id[TALLY_JOB_ID_CAPACITY]; /* of the latter */
    /* The result. */
    enum tally_status status;
    struct tally_error err; /* unless it is OK */
    uint64_t checksum;
    double *x;       /* double[dim], for a job that is about to start */
    char data_dir[]; /* its own copy: reading may outlive the options at the end of the process */
};

struct initial_reads {
    struct background *background;     /* NULL = no file has been read yet */
    int n, n_calls;                    /* in progress or waiting; how many of them hold a call */
    const struct initial_read *result; /* whose call runs again; NULL = none */
};

static struct initial_read *read_at(struct tally_list_node *node)
{
    return (struct initial_read *)TALLY_LIST_MEMBER(struct background_work, in_works, node);
}

static bool goes_on(void *context, const struct tally_load_progress *progress)
{
    const struct initial_read *read = context;
    (void)progress;
    return !atomic_load(&read->work.stop);
}

/* Reads the file, in the background. */
static void run(struct background_work *work)
{
    struct initial_read *read = (struct initial_read *)work;
    const struct tally_data_source files = {
        .dir = read->data_dir, .on_progress = goes_on, .context = read};
    double *x = NULL;
    read->status = tally_initial_point_read(&read->initial, read->dim, &files, &x, &read->err);
    if (read->status == TALLY_OK) {
        read->checksum = tally_checksum64(x, read->dim * sizeof *x);
    }
    if (read->call == NULL && !atomic_load(&work->stop)) {
        read->x = x;
    } else {
        free(x);
    }
}

void jobs_initial_new(struct tally_coordinator *coordinator)
{
    coordinator->initials = tally_xcalloc(1, sizeof *coordinator->initials);
}

static void drop_call(struct tally_coordinator *coordinator, const struct initial_read *read)
{
    if (read->call != NULL) {
        call_free(coordinator, read->call);
    }
}

void jobs_initial_free(struct tally_coordinator *coordinator)
{
    struct initial_reads *reads = coordinator->initials;
    struct background_work *work;
    if (reads != NULL && reads->background != NULL) {
        while ((work = background_take(reads->background)) != NULL) {
            drop_call(coordinator, (struct initial_read *)work);
            free(((struct initial_read *)work)->x);
            free(work);
        }
        TALLY_LIST_EACH(node, background_works(reads->background))
        {
            drop_call(coordinator, read_at(node));
        }
        background_free(reads->background);
    }
    free(reads);
    coordinator->initials = NULL;
}

/* Has a file read, for a call or for a job. Errors: NO_MEMORY. */
static enum tally_status begin(struct tally_coordinator *coordinator,
                               const struct tally_initial_point *initial, size_t dim,
                               struct call *call, const struct hosted_job *job,
                               struct tally_error *err)
{
    struct initial_reads *reads = coordinator->initials;
    const char *dir = coordinator->config.data_dir != NULL ? coordinator->config.data_dir : "";
    if (reads->background == NULL &&
        background_new(coordinator->loop->wake_fd, &reads->background, err) != TALLY_OK) {
        return TALLY_NO_MEMORY;
    }
    struct initial_read *read = tally_xcalloc(1, sizeof *read + strlen(dir) + 1);
    read->work.run = run;
    read->initial = *initial;
    read->dim = dim;
    read->call = call;
    memcpy(read->data_dir, dir, strlen(dir) + 1);
    if (job != NULL) {
        memcpy(read->job_id, job->row.id, sizeof read->job_id);
    }
    background_add(reads->background, &read->work);
    reads->n++;
    reads->n_calls += call != NULL;
    return TALLY_OK;
}

/* Takes what has been read, and compares its checksum with the document's. */
static enum tally_status take_result(const struct initial_read *read,
                                     struct tally_initial_point *initial, struct tally_error *err)
{
    return read->status == TALLY_OK
               ? tally_initial_point_match(initial, read->checksum, err)
               : tally_fail(err, read->status, read->err.field, "%s", read->err.message);
}

/* The file of a submission: begins to read it or, once it has been read, takes the result. */
static enum tally_status check_file(struct tally_coordinator *coordinator, struct call *call,
                                    struct tally_initial_point *initial, size_t dim,
                                    struct tally_error *err)
{
    struct initial_reads *reads = coordinator->initials;
    if (reads->result != NULL) {
        return take_result(reads->result, initial, err);
    }
    if (reads->n_calls == MAX_INITIAL_CALLS) {
        return tally_fail(err, TALLY_RESOURCE_EXHAUSTED, "initial_point.file",
                          "%d files of other jobs are being read, which is the limit",
                          (int)MAX_INITIAL_CALLS);
    }
    const enum tally_status status = begin(coordinator, initial, dim, call, NULL, err);
    call->is_held = status == TALLY_OK;
    return status;
}

bool jobs_initial_is_unread(const struct hosted_job *job)
{
    return job->spec.initial_point.type == TALLY_INITIAL_NPY && job->start == NULL &&
           tally_job_status(job->engine) == TALLY_JOB_QUEUED;
}

bool jobs_initial_read(struct tally_coordinator *coordinator, struct hosted_job *job)
{
    struct tally_error err = TALLY_ERROR_INIT;
    const int64_t now_ms = tally_monotonic_ms();
    if (job->start_read_ms == 0) {
        if (begin(coordinator, &job->spec.initial_point, (size_t)job->row.dim, NULL, job, &err) !=
            TALLY_OK) {
            tally_log(TALLY_LOG_ERROR, tally_log_event("job not started"),
                      tally_log_text("job", job->row.id), tally_log_problem(&err));
            coordinator->jobs->match_failed = true;
            return false;
        }
        job->start_read_ms = now_ms;
    }
    const bool waits = now_ms - job->start_read_ms < SLOTS_WAIT_MS;
    coordinator->jobs->match_failed |= waits; /* look again, whether it still does */
    return waits;
}

/* Gives the point to the job, or fails the job. */
static void give_to_job(struct tally_coordinator *coordinator, struct initial_read *read)
{
    struct tally_error err = TALLY_ERROR_INIT;
    struct hosted_job *job = jobs_find(coordinator, read->job_id);
    if (job == NULL || !jobs_initial_is_unread(job)) { /* it has ended meanwhile, or moved away */
        return;
    }
    job->start_read_ms = 0;
    if (job->needs_reload) {
        coordinator->jobs->match_failed = true;
        return;
    }
    coordinator->jobs->match_due = true;
    const enum tally_status status = take_result(read, &job->spec.initial_point, &err);
    if (status == TALLY_OK) {
        job->start = read->x;
        read->x = NULL;
        return;
    }
    tally_error_wrap(&err, "%s", err.field);
    if (status != TALLY_INVALID_ARGUMENT ||
        jobs_fail_preparation(coordinator, job, err.message) != TALLY_OK) {
        coordinator->jobs->match_failed = true; /* it is read again */
    }
}

static void run_again(struct tally_coordinator *coordinator, const struct initial_read *read)
{
    struct initial_reads *reads = coordinator->initials;
    reads->n_calls--;
    if (read->call->request == NULL) {
        call_send(coordinator, read->call); /* its client has disconnected */
        return;
    }
    reads->result = read;
    coordinator->jobs->ops->run_again(coordinator, read->call);
    reads->result = NULL;
}

void jobs_initial_take(struct tally_coordinator *coordinator)
{
    struct initial_reads *reads = coordinator->initials;
    struct background_work *work;
    if (reads->n == 0) {
        return;
    }
    TALLY_LIST_EACH(node, background_works(reads->background))
    {
        struct initial_read *read = read_at(node);
        if (read->call != NULL ? read->call->request == NULL
                               : jobs_find(coordinator, read->job_id) == NULL) {
            atomic_store(&read->work.stop, true);
        }
    }
    while ((work = background_take(reads->background)) != NULL) {
        struct initial_read *read = (struct initial_read *)work;
        reads->n--;
        if (read->call != NULL) {
            run_again(coordinator, read);
        } else {
            give_to_job(coordinator, read);
        }
        free(read->x);
        free(read);
    }
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

enum tally_status jobs_initial_check(struct tally_coordinator *coordinator, struct call *call,
                                     struct tally_job_spec *spec, struct tally_error *err)
{
    const size_t dim = tally_objective_spec_dim(&spec->objective);
    struct earlier_model model;
    enum tally_status status = TALLY_OK;
    if (spec->initial_point.type == TALLY_INITIAL_NPY) {
        status = check_file(coordinator, call, &spec->initial_point, dim, err);
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
    if (initial.type == TALLY_INITIAL_JOB) {
        status = find_job(coordinator, &initial, dim, &model, err);
        if (status == TALLY_OK) {
            status = model.is_last ? copy_model(coordinator, &model.row, &x, err)
                                   : take_kept(coordinator, &model, &x, err);
        }
    } else if (job->start != NULL) {
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
