/* store_bar: shows the progress of work on a store, as a line on stderr if that is a terminal; a
 * stop signal ends the work early. */
#ifndef TALLY_SERVICES_BASE_STORE_BAR_H
#define TALLY_SERVICES_BASE_STORE_BAR_H

#include "services/base/progress_bar.h"
#include "storage/backend.h"

struct tally_store_bar {
    struct tally_store_progress base; /* for the functions of storage/backends.h */
    struct tally_progress_painter painter;
    const char *what; /* the current stage */
    int64_t began_ms;
};

/* `progress` must not be moved or copied. */
void tally_store_bar_init(struct tally_store_bar *progress);
/* Clears the line. */
void tally_store_bar_end(struct tally_store_bar *progress);

#endif
