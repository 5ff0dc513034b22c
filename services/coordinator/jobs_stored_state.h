/* jobs_stored_state: what the store has of an engine's state, and whether a closing round appends
 * its change to that or stores the whole state again. */
#ifndef TALLY_SERVICES_COORDINATOR_JOBS_STORED_STATE_H
#define TALLY_SERVICES_COORDINATOR_JOBS_STORED_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The whole state at some round, and what changed since. */
struct stored_state {
    int64_t iterate;     /* after the changes */
    size_t whole_bytes;  /* 0 = unknown: the whole state must be stored */
    size_t change_bytes; /* of all changes */
    int n_changes;
};

enum {
    STATE_SHORTER = 4,
    STATE_MOST_CHANGES = 64,
    STATE_MOST_WHOLES = 2,
    STATE_MOST_BYTES = 900 * 1000 * 1000
};

/* Whether a change of n bytes gets a row of its own: it must be much shorter than the whole state.
 * Once the changes are many, or twice as long as the whole, the whole is stored again, because all
 * changes are read and applied when the job is loaded. Whole and changes together stay below the
 * limit of one value in PostgreSQL (1 GiB) and SQLite (10^9 bytes), because they are read and
 * migrated as one. */
static inline bool stored_state_takes(const struct stored_state *stored, size_t n)
{
    const size_t changes = stored->change_bytes + n;
    return stored->n_changes < STATE_MOST_CHANGES && n <= stored->whole_bytes / STATE_SHORTER &&
           changes <= STATE_MOST_WHOLES * stored->whole_bytes &&
           stored->whole_bytes + changes <= STATE_MOST_BYTES;
}

#endif
