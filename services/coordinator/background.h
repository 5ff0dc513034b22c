/* background: work that takes too long for the loop, done in a thread, one piece after the other.
 * f(x*) of queued jobs (jobs_prepare.h), the files of initial points (jobs_initial.h), the plans of
 * dry runs (rest_plans.h), the files that complete documents (rest_surveys.h) and bundles
 * (rest_imports.h) have a thread each, so that none waits for the others.
 *
 * A piece of work is the first member of a struct from malloc(). The owner, which is the loop, adds
 * it; the thread calls run() and wakes the loop; the owner takes it, reads the result that run()
 * left in the struct, and frees it. In between, the owner writes only to `stop` and to members that
 * run() does not use, and reads only what run() does not write. */
#ifndef TALLY_SERVICES_COORDINATOR_BACKGROUND_H
#define TALLY_SERVICES_COORDINATOR_BACKGROUND_H

#include <stdatomic.h>

#include "codec/error.h"
#include "codec/list.h"

struct background;

struct background_work {
    void (*run)(struct background_work *work);
    /* The owner sets it when it no longer needs the result: run() should return soon, or is not
     * called at all. The work must be taken all the same. */
    atomic_bool stop;
    struct tally_list_node in_works; /* background_works() */
    struct tally_list_node in_queue; /* guarded by the mutex */
};

/* Starts the thread, which adds to the eventfd wake_fd when work is done. Errors: NO_MEMORY. */
enum tally_status background_new(int wake_fd, struct background **ret_background,
                                 struct tally_error *err);
/* Frees all work. The piece in progress keeps its memory until run() returns, because reading a
 * file, for example, cannot be stopped: until then, wake_fd must stay open, and what run() uses
 * outside its struct must stay valid. NULL is allowed. */
void background_free(struct background *background);

void background_add(struct background *background, struct background_work *work);
/* The oldest piece that is done; NULL = none. */
struct background_work *background_take(struct background *background);
/* All work that was added and has not been taken, oldest first, linked by in_works. */
const struct tally_list *background_works(const struct background *background);

#endif
