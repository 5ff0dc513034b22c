/* stored_state: what the store has of an engine's state, and whether a round that closes adds to it
 * what it changed, or puts the whole. */
#ifndef TALLY_SERVICES_COORDINATOR_JOBS_STORED_STATE_H
#define TALLY_SERVICES_COORDINATOR_JOBS_STORED_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The whole at some round, and what changed since. */
struct stored_state {
    int64_t iterate;     /* with the changes */
    size_t whole_bytes;  /* 0 = not known: the whole is due */
    size_t change_bytes; /* of all changes */
    int n_changes;
};

enum {
    STATE_SHORTER = 4,
    STATE_MOST_CHANGES = 64,
    STATE_MOST_WHOLES = 2,
    STATE_MOST_BYTES = 900 * 1000 * 1000
};

/* Whether a change of n bytes is worth its own row: if it is much shorter than the whole; and the
 * whole is due once the changes weigh twice as much: they are read, and gone through, when the job
 * is loaded. Together they stay below what PostgreSQL (1 GiB) and SQLite (10^9 bytes) have as one
 * value: as one they are read and migrated. */
static inline bool stored_state_takes(const struct stored_state *stored, size_t n)
{
    const size_t changes = stored->change_bytes + n;
    return stored->n_changes < STATE_MOST_CHANGES && n <= stored->whole_bytes / STATE_SHORTER &&
           changes <= STATE_MOST_WHOLES * stored->whole_bytes &&
           stored->whole_bytes + changes <= STATE_MOST_BYTES;
}

#endif
