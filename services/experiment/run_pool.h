/* run_pool: independent pieces of work on a few threads.
 *
 * Which thread runs a piece, and when, is not deterministic. Each piece writes only to its own
 * place, so results do not depend on the number of threads. */
#ifndef TALLY_SERVICES_EXPERIMENT_RUN_POOL_H
#define TALLY_SERVICES_EXPERIMENT_RUN_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "codec/error.h"

struct tally_pool {
    unsigned threads; /* at least 1 */
    /* Called by the thread that runs the pool, ten times a second and at the end, with the number
     * of pieces done. Returning false asks to stop. May be NULL. */
    bool (*watch)(void *context, size_t done);
    void *context;
};

/* Runs piece `index`. A long piece checks *stop regularly, and ends with CANCELLED if it is set. */
typedef enum tally_status tally_pool_piece_fn(void *context, size_t index, const atomic_bool *stop,
                                              struct tally_error *err);

/* Runs pieces 0 .. n - 1, started in that order. The first failure stops the rest and is returned.
 * Errors: those of the pieces, CANCELLED, NO_MEMORY, RESOURCE_EXHAUSTED (no thread can be
 * started). */
enum tally_status tally_pool_run(const struct tally_pool *pool, size_t n,
                                 tally_pool_piece_fn *piece, void *piece_context,
                                 struct tally_error *err);

#endif
