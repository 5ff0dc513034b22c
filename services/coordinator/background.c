#include "services/coordinator/background.h"
#include "services/base/alloc.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

struct background {
    int wake_fd;
    pthread_t thread;
    struct tally_list works; /* used by the owner alone */
    pthread_mutex_t mutex;   /* guards all below */
    pthread_cond_t changed;
    struct tally_list waiting, done;
    bool is_busy; /* the thread runs a piece, which is in neither list */
    bool is_stopping;
    bool is_left_alone; /* the owner is gone: the thread frees this struct */
};

static struct background_work *pop(struct tally_list *queue)
{
    struct background_work *work = TALLY_LIST_FIRST(struct background_work, in_queue, queue);
    if (work != NULL) {
        tally_list_remove(&work->in_queue);
    }
    return work;
}

static void free_all(struct tally_list *queue)
{
    struct tally_list_node *node = queue->head.next;
    while (node != &queue->head) {
        struct background_work *work = TALLY_LIST_MEMBER(struct background_work, in_queue, node);
        node = node->next;
        free(work);
    }
}

/* Precondition: neither its owner nor its thread uses it any more. */
static void destroy(struct background *background)
{
    free_all(&background->waiting);
    free_all(&background->done);
    pthread_cond_destroy(&background->changed);
    pthread_mutex_destroy(&background->mutex);
    free(background);
}

static void *run(void *context)
{
    struct background *background = context;
    pthread_mutex_lock(&background->mutex);
    while (!background->is_stopping) {
        struct background_work *work = pop(&background->waiting);
        if (work == NULL) {
            pthread_cond_wait(&background->changed, &background->mutex);
            continue;
        }
        background->is_busy = true;
        pthread_mutex_unlock(&background->mutex);
        if (!atomic_load(&work->stop)) {
            work->run(work);
        }
        pthread_mutex_lock(&background->mutex);
        background->is_busy = false;
        tally_list_append(&background->done, &work->in_queue);
        const uint64_t one = 1;
        ssize_t n = write(background->wake_fd, &one, sizeof one);
        (void)n; /* fails only when the counter is full, and then it is readable already */
    }
    const bool is_left_alone = background->is_left_alone;
    pthread_mutex_unlock(&background->mutex);
    if (is_left_alone) {
        destroy(background);
    }
    return NULL;
}

enum tally_status background_new(int wake_fd, struct background **ret_background,
                                 struct tally_error *err)
{
    struct background *background = tally_xcalloc(1, sizeof *background);
    background->wake_fd = wake_fd;
    tally_list_init(&background->works);
    tally_list_init(&background->waiting);
    tally_list_init(&background->done);
    pthread_mutex_init(&background->mutex, NULL);
    pthread_cond_init(&background->changed, NULL);
    if (pthread_create(&background->thread, NULL, run, background) != 0) {
        destroy(background);
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "cannot start a thread");
    }
    *ret_background = background;
    return TALLY_OK;
}

void background_free(struct background *background)
{
    if (background == NULL) {
        return;
    }
    TALLY_LIST_EACH(node, &background->works)
    {
        atomic_store(&TALLY_LIST_MEMBER(struct background_work, in_works, node)->stop, true);
    }
    pthread_mutex_lock(&background->mutex);
    background->is_stopping = true;
    const bool is_busy = background->is_left_alone = background->is_busy;
    const pthread_t thread = background->thread;
    pthread_cond_signal(&background->changed);
    pthread_mutex_unlock(&background->mutex);
    if (is_busy) {
        pthread_detach(thread);
        return;
    }
    pthread_join(thread, NULL);
    destroy(background);
}

void background_add(struct background *background, struct background_work *work)
{
    tally_list_append(&background->works, &work->in_works);
    pthread_mutex_lock(&background->mutex);
    tally_list_append(&background->waiting, &work->in_queue);
    pthread_cond_signal(&background->changed);
    pthread_mutex_unlock(&background->mutex);
}

struct background_work *background_take(struct background *background)
{
    pthread_mutex_lock(&background->mutex);
    struct background_work *work = pop(&background->done);
    pthread_mutex_unlock(&background->mutex);
    if (work != NULL) {
        tally_list_remove(&work->in_works);
    }
    return work;
}

const struct tally_list *background_works(const struct background *background)
{
    return &background->works;
}
