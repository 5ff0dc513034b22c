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

/* Whether a change of n bytes is worth its own row: if it is much shorter than the whole; and the
 * whole is due once the changes weigh twice as much: they are read, and gone through, when the job
 * is loaded. Together they stay below what PostgreSQL (1 GiB) and SQLite (10^9 bytes) have as one
 * value: as one they are read and migrated. */
bool stored_state_takes(const struct stored_state *stored, size_t n);

#endif
