/* store_bar: how far the work on a store is, as a line on stderr if that is a terminal; and the
 * signal that ends it early. */
#ifndef TALLY_SERVICES_PROGRESS_STORE_BAR_H
#define TALLY_SERVICES_PROGRESS_STORE_BAR_H

#include "services/progress/progress_bar.h"
#include "storage/backend.h"

struct tally_store_bar {
    struct tally_store_progress base; /* for the functions of storage/backends/ */
    struct tally_progress_painter painter;
    const char *what; /* the present stage */
    int64_t began_ms;
};

/* `progress` must stay where it is. */
void tally_store_bar_init(struct tally_store_bar *progress);
/* Clears the line. */
void tally_store_bar_end(struct tally_store_bar *progress);

#endif
