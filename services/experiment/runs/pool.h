/* pool: independent pieces of work on a few threads.
 *
 * Which thread does a piece, and when, is left to chance; a piece writes to its own place and
 * nowhere else, so results do not depend on the number of threads. */
#ifndef TALLY_SERVICES_EXPERIMENT_RUNS_POOL_H
#define TALLY_SERVICES_EXPERIMENT_RUNS_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "codec/base/error.h"

struct tally_pool {
    unsigned threads; /* at least 1 */
    /* Called by the thread that runs the pool, ten times a second and at the end, with the number
     * of pieces done; false asks to stop. May be NULL. */
    bool (*watch)(void *context, size_t done);
    void *context;
};

/* Does piece `index`; long ones look at *stop now and then and end with CANCELLED. */
typedef enum tally_status tally_pool_piece_fn(void *context, size_t index, const atomic_bool *stop,
                                              struct tally_error *err);

/* Pieces 0 .. n - 1, begun in that order. The first failure stops the rest and is returned. Errors:
 * those of the pieces, CANCELLED, RESOURCE_EXHAUSTED (no thread can be started). */
enum tally_status tally_pool_run(const struct tally_pool *pool, size_t n,
                                 tally_pool_piece_fn *piece, void *piece_context,
                                 struct tally_error *err);

#endif
