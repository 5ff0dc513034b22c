/* load_watch: logs the progress of reading a job's data, if it takes long.
 *
 *   event="reading data" job=ab12 file=a9a percent=45 points=14000
 *
 * The first line is written after two seconds, then one every five. */
#ifndef TALLY_SERVICES_BASE_LOAD_WATCH_H
#define TALLY_SERVICES_BASE_LOAD_WATCH_H

#include <signal.h>
#include <stdint.h>

#include "services/objectives/data/data_source.h"

struct tally_load_watch {
    const char *job;                   /* its id, borrowed */
    const volatile sig_atomic_t *stop; /* reading stops if it is not 0; NULL = never */
    int64_t next_ms;                   /* when to write a line; 0 at first */
};

/* For struct tally_data_source; context is a struct tally_load_watch. */
bool tally_load_watch_tell(void *context, const struct tally_load_progress *progress);
/* Logs an error in a file; the same. */
void tally_load_watch_fault(void *context, const char *fault);

#endif
