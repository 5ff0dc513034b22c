/* lock_file: at most one process holds a path, and the kernel lets go when that process dies.
 *
 * The lock is flock(2) on a file of its own. It belongs to the open file description: released by
 * close, exit and kill -9 alike, and refused to a second opener even within one process. (A child
 * forked without exec shares it.) The file holds the owner's process id, for messages only. */
#ifndef TALLY_STORAGE_LOCK_FILE_H
#define TALLY_STORAGE_LOCK_FILE_H

#include <stdint.h>

#include "codec/base/error.h"

struct tally_lock_file {
    int fd;     /* -1 = not held */
    char *path; /* heap */
};

#define TALLY_LOCK_FILE_INIT                                                                       \
    {                                                                                              \
        -1, NULL                                                                                   \
    }

/* Takes the lock, creating the file if need be. Precondition: *lock is not held.
 * Errors: STORE (someone has it, or the file cannot be made), NO_MEMORY. */
enum tally_status tally_lock_file_open(struct tally_lock_file *lock, const char *path,
                                       struct tally_error *err);

/* Removes the file and lets go; harmless if not held. */
void tally_lock_file_close(struct tally_lock_file *lock);

/* The process that holds the lock, 0 for none, -1 for one that left no number. Errors: STORE. */
enum tally_status tally_lock_file_owner(const char *path, int64_t *ret_process,
                                        struct tally_error *err);

#endif
