/* lock_file: at most one process holds a path, and the kernel lets go when that process dies.
 *
 * The lock is flock(2) on a file of its own. It belongs to the open file description: released by
 * close, exit and kill -9 alike, and refused to a second opener even within one process. (A child
 * forked without exec shares it.) The file holds the owner's process id, for messages only.
 *
 * A lock file can be removed, and a hard link has another lock file beside it. So the database that
 * it stands for is held too, by an open-file-description lock (fcntl(2)) on one byte far past its
 * end, where SQLite's own locks are not: that one goes with the inode, whatever its names are. */
#ifndef TALLY_STORAGE_LOCK_FILE_H
#define TALLY_STORAGE_LOCK_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "codec/base/error.h"

struct tally_lock_file {
    int fd;      /* -1 = not held */
    int held_fd; /* of the file that is held with it; -1 = none */
    char *path;  /* heap */
};

#define TALLY_LOCK_FILE_INIT                                                                       \
    {                                                                                              \
        -1, -1, NULL                                                                               \
    }

/* Takes the lock, creating the file if need be. Precondition: *lock is not held.
 * Errors: STORE (someone has it, or the file cannot be made), NO_MEMORY. */
enum tally_status tally_lock_file_open(struct tally_lock_file *lock, const char *path,
                                       struct tally_error *err);

/* Holds the existing file `path` too, until the lock is closed. Precondition: *lock is held.
 * Closing a file drops the POSIX locks that the process has on it (fcntl(2)): close *lock after the
 * last connection to the database. Errors: STORE (someone holds it, or it has several names: its
 * log lies beside only one of them). */
enum tally_status tally_lock_file_hold(struct tally_lock_file *lock, const char *path,
                                       struct tally_error *err);

/* Whether the lock file that is held still has a name: it was not removed, nor another put in its
 * place. One fstat(), since every transaction asks. */
bool tally_lock_file_is_in_place(const struct tally_lock_file *lock);

/* Removes the file, unless it is another one by now, and lets go; harmless if not held. */
void tally_lock_file_close(struct tally_lock_file *lock);

/* The process that holds the lock, 0 for none, -1 for one that left no number. Errors: STORE. */
enum tally_status tally_lock_file_owner(const char *path, int64_t *ret_process,
                                        struct tally_error *err);

#endif
