#include "services/coordinator/jobs_prepare.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "services/base/load_watch.h"
#include "services/job/job_footprint.h"

/* A job on its way through the thread: first in `waiting`, then in `done`. */
struct work {
    struct tally_job_spec spec;
    int64_t bytes; /* needed to solve it */
    struct prepared result;
    struct work *next;
};

struct queue {
    struct work *first, **last;
};

struct preparer {
    pthread_t thread;
    pthread_mutex_t mutex; /* guards all below */
    pthread_cond_t changed;
    struct queue waiting, done;
    bool stopping;
    bool is_left_alone;  /* the owner is gone: the thread frees this struct */
    struct work *solved; /* what the thread is solving, or NULL */
    atomic_bool stop;    /* its result is not needed; not guarded by the mutex */
    int wake_fd;
    const char *data_dir;
};

static void push(struct queue *queue, struct work *work)
{
    work->next = NULL;
    *queue->last = work;
    queue->last = &work->next;
}

static struct work *pop(struct queue *queue)
{
    struct work *work = queue->first;
    if (work != NULL) {
        queue->first = work->next;
        if (queue->first == NULL) {
            queue->last = &queue->first;
        }
    }
    return work;
}

static void solve(struct work *work, const char *data_dir, const atomic_bool *stop)
{
    struct prepared *result = &work->result;
    struct tally_objective *objective = NULL;
    const struct tally_job_spec *spec = &work->spec;
    result->status = TALLY_OK;
    if (spec->reference.type == TALLY_REFERENCE_SOLVE) {
        struct tally_load_watch watch = {.job = result->job_id};
        const struct tally_data_source files = {
            .dir = data_dir, .on_progress = tally_load_watch_tell, .context = &watch};
        struct tally_objective_spec solved = spec->objective;
        tally_objective_spec_drop_report(&solved);
        result->status =
            tally_objective_load(&solved, (uint32_t)spec->clients, tally_job_spec_setting(spec).key,
                                 &files, &objective, &result->err);
    }
    if (objective != NULL) {
        result->columns = objective->columns;
    }
    if (result->status == TALLY_OK) {
        result->status =
            tally_local_prepare(spec, objective, stop, &result->preparation, &result->err);
    }
    tally_objective_free(objective);
}

/* Precondition: neither its owner nor its thread uses the preparer any more. */
static void destroy(struct preparer *preparer)
{
    struct work *work;
    while ((work = pop(&preparer->waiting)) != NULL || (work = pop(&preparer->done)) != NULL) {
        free(work);
    }
    pthread_cond_destroy(&preparer->changed);
    pthread_mutex_destroy(&preparer->mutex);
    free(preparer);
}

static void *run(void *context)
{
    struct preparer *preparer = context;
    pthread_mutex_lock(&preparer->mutex);
    while (!preparer->stopping) {
        struct work *work = pop(&preparer->waiting);
        if (work == NULL) {
            pthread_cond_wait(&preparer->changed, &preparer->mutex);
            continue;
        }
        preparer->solved = work;
        atomic_store(&preparer->stop, false);
        pthread_mutex_unlock(&preparer->mutex);
        solve(work, preparer->data_dir, &preparer->stop);
        pthread_mutex_lock(&preparer->mutex);
        preparer->solved = NULL;
        push(&preparer->done, work);
        const uint64_t one = 1;
        ssize_t n = write(preparer->wake_fd, &one, sizeof one);
        (void)n; /* fails only when the counter is full, and then it is readable already */
    }
    const bool is_left_alone = preparer->is_left_alone;
    pthread_mutex_unlock(&preparer->mutex);
    if (is_left_alone) {
        destroy(preparer);
    }
    return NULL;
}

enum tally_status preparer_new(int wake_fd, const char *data_dir, struct preparer **ret_preparer,
                               struct tally_error *err)
{
    struct preparer *preparer = calloc(1, sizeof *preparer);
    if (preparer == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the solver thread");
    }
    preparer->wake_fd = wake_fd;
    preparer->data_dir = data_dir;
    preparer->waiting.last = &preparer->waiting.first;
    preparer->done.last = &preparer->done.first;
    pthread_mutex_init(&preparer->mutex, NULL);
    pthread_cond_init(&preparer->changed, NULL);
    if (pthread_create(&preparer->thread, NULL, run, preparer) != 0) {
        pthread_cond_destroy(&preparer->changed);
        pthread_mutex_destroy(&preparer->mutex);
        free(preparer);
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "cannot start the solver thread");
    }
    *ret_preparer = preparer;
    return TALLY_OK;
}

void preparer_free(struct preparer *preparer)
{
    if (preparer == NULL) {
        return;
    }
    pthread_mutex_lock(&preparer->mutex);
    preparer->stopping = true;
    /* Reading a file cannot be stopped, so this does not wait for the thread: the process is about
     * to end. */
    const bool solving = preparer->is_left_alone = preparer->solved != NULL;
    const pthread_t thread = preparer->thread;
    atomic_store(&preparer->stop, true);
    pthread_cond_signal(&preparer->changed);
    pthread_mutex_unlock(&preparer->mutex);
    if (solving) {
        pthread_detach(thread);
        return;
    }
    pthread_join(thread, NULL);
    destroy(preparer);
}

enum tally_status preparer_submit(struct preparer *preparer, const char *job_id,
                                  const struct tally_job_spec *spec, struct tally_error *err)
{
    struct work *work = calloc(1, sizeof *work);
    if (work == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory to prepare job %s", job_id);
    }
    work->spec = *spec;
    work->bytes = tally_footprint_solving(spec);
    snprintf(work->result.job_id, sizeof work->result.job_id, "%s", job_id);
    pthread_mutex_lock(&preparer->mutex);
    push(&preparer->waiting, work);
    pthread_cond_signal(&preparer->changed);
    pthread_mutex_unlock(&preparer->mutex);
    return TALLY_OK;
}

int64_t preparer_bytes(struct preparer *preparer)
{
    pthread_mutex_lock(&preparer->mutex);
    int64_t bytes = preparer->solved != NULL ? preparer->solved->bytes : 0;
    for (const struct work *work = preparer->waiting.first; work != NULL; work = work->next) {
        bytes += work->bytes;
    }
    pthread_mutex_unlock(&preparer->mutex);
    return bytes;
}

void preparer_forget(struct preparer *preparer, const char *job_id)
{
    pthread_mutex_lock(&preparer->mutex);
    struct work **at = &preparer->waiting.first;
    while (*at != NULL) {
        struct work *work = *at;
        if (strcmp(work->result.job_id, job_id) == 0) {
            *at = work->next;
            free(work);
        } else {
            at = &work->next;
        }
    }
    preparer->waiting.last = at;
    if (preparer->solved != NULL && strcmp(preparer->solved->result.job_id, job_id) == 0) {
        atomic_store(&preparer->stop, true);
    }
    pthread_mutex_unlock(&preparer->mutex);
}

bool preparer_take(struct preparer *preparer, struct prepared *ret_result)
{
    pthread_mutex_lock(&preparer->mutex);
    struct work *work = pop(&preparer->done);
    pthread_mutex_unlock(&preparer->mutex);
    if (work == NULL) {
        return false;
    }
    *ret_result = work->result;
    free(work);
    return true;
}
