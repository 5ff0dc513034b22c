#include "services/experiment/run_pool.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "services/base/time.h"

enum { WATCH_MS = 100 };

struct crew {
    size_t n;
    tally_pool_piece_fn *piece;
    void *context;
    atomic_size_t next;
    atomic_bool stop;

    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    size_t done;
    unsigned at_work;
    enum tally_status status;
    struct tally_error err;
};

static void note_end(struct crew *crew, enum tally_status status, const struct tally_error *err)
{
    pthread_mutex_lock(&crew->mutex);
    crew->done += status == TALLY_OK;
    if (status != TALLY_OK && crew->status == TALLY_OK) {
        crew->status = status;
        crew->err = *err;
        atomic_store(&crew->stop, true);
    }
    pthread_cond_signal(&crew->changed);
    pthread_mutex_unlock(&crew->mutex);
}

static void *work(void *argument)
{
    struct crew *crew = argument;
    for (;;) {
        const size_t index = atomic_fetch_add(&crew->next, 1);
        if (index >= crew->n || atomic_load(&crew->stop)) {
            break;
        }
        struct tally_error err = TALLY_ERROR_INIT;
        const enum tally_status status = crew->piece(crew->context, index, &crew->stop, &err);
        note_end(crew, status, &err);
    }
    pthread_mutex_lock(&crew->mutex);
    crew->at_work--;
    pthread_cond_signal(&crew->changed);
    pthread_mutex_unlock(&crew->mutex);
    return NULL;
}

/* Calls the pool's `watch` until all threads have ended. */
static void watch(const struct tally_pool *pool, struct crew *crew)
{
    pthread_mutex_lock(&crew->mutex);
    for (;;) {
        const size_t done = crew->done;
        const bool ended = crew->at_work == 0;
        pthread_mutex_unlock(&crew->mutex);
        if (pool->watch != NULL && !pool->watch(pool->context, done)) {
            atomic_store(&crew->stop, true);
        }
        if (ended) {
            return;
        }
        const int64_t until_ms = tally_monotonic_ms() + WATCH_MS;
        const struct timespec deadline = {until_ms / 1000, until_ms % 1000 * 1000000};
        int waited = 0;
        pthread_mutex_lock(&crew->mutex);
        while (crew->at_work > 0 && waited != ETIMEDOUT) {
            waited = pthread_cond_timedwait(&crew->changed, &crew->mutex, &deadline);
        }
    }
}

static void init_crew(struct crew *crew)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&crew->mutex, NULL);
    pthread_cond_init(&crew->changed, &attributes);
    pthread_condattr_destroy(&attributes);
}

enum tally_status tally_pool_run(const struct tally_pool *pool, size_t n,
                                 tally_pool_piece_fn *piece, void *piece_context,
                                 struct tally_error *err)
{
    struct crew crew = {.n = n, .piece = piece, .context = piece_context};
    const unsigned wanted = n < pool->threads ? (unsigned)n : pool->threads;
    pthread_t *threads = calloc(wanted > 0 ? wanted : 1, sizeof *threads);
    unsigned started = 0;
    if (threads == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for %u threads", wanted);
    }
    init_crew(&crew);
    int failure = 0;
    crew.at_work = wanted;
    while (started < wanted && failure == 0) {
        failure = pthread_create(&threads[started], NULL, work, &crew);
        started += failure == 0;
    }
    pthread_mutex_lock(&crew.mutex);
    crew.at_work -= wanted - started;
    pthread_mutex_unlock(&crew.mutex);
    if (started > 0) {
        watch(pool, &crew); /* fewer threads than wanted do the same work */
    }
    for (unsigned i = 0; i < started; i++) {
        pthread_join(threads[i], NULL);
    }
    free(threads);
    pthread_cond_destroy(&crew.changed);
    pthread_mutex_destroy(&crew.mutex);
    if (crew.status != TALLY_OK) {
        return tally_fail(err, crew.status, crew.err.field, "%s", crew.err.message);
    }
    if (started == 0 && wanted > 0) {
        return tally_fail(err, TALLY_RESOURCE_EXHAUSTED, "threads", "cannot start a thread: %s",
                          strerror(failure));
    }
    return crew.done == n ? TALLY_OK : tally_fail(err, TALLY_CANCELLED, NULL, "stopped");
}
