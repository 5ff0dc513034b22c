/* lock_file: at most one process holds a path, and the kernel releases it when that process dies.
 *
 * The lock is flock(2) on a file of its own. It belongs to the open file description: released by
 * close, exit and kill -9 alike, and refused to a second opener even within one process. (A child
 * forked without exec shares it.) The file holds the owner's process id, for messages only.
 *
 * A lock file can be removed, and a hard link to the database has a lock file of its own. So the
 * owner also holds an open-file-description lock (fcntl(2)) on one byte of the database, far past
 * its end and SQLite's own locks. That lock belongs to the inode, whatever its names are. */
#ifndef TALLY_STORAGE_SQLITE_LOCK_FILE_H
#define TALLY_STORAGE_SQLITE_LOCK_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "codec/error.h"

struct tally_lock_file {
    int fd;      /* -1 = not held */
    int held_fd; /* of the database; -1 = not held */
    char *path;  /* heap */
};

#define TALLY_LOCK_FILE_INIT                                                                       \
    {                                                                                              \
        -1, -1, NULL                                                                               \
    }

/* Takes the lock, creating the file if necessary. Precondition: *lock is not held. Errors: STORE
 * (the lock is held, or the file cannot be made), NO_MEMORY. */
enum tally_status tally_lock_file_open(struct tally_lock_file *lock, const char *path,
                                       struct tally_error *err);

/* Also holds the existing database `path`, until the lock is closed. Precondition: *lock is held.
 * Closing a file drops the POSIX locks that the process has on it (fcntl(2)), so close *lock after
 * the last connection to the database. On a file system without open-file-description locks the
 * lock file alone protects the database. Errors: STORE (the file cannot be opened, or another
 * process holds it). */
enum tally_status tally_lock_file_hold(struct tally_lock_file *lock, const char *path,
                                       struct tally_error *err);

/* Whether the held lock file still has a name, that is, was neither removed nor replaced. Costs
 * only one fstat(), because every transaction calls it. */
bool tally_lock_file_is_in_place(const struct tally_lock_file *lock);

/* Removes the lock file, unless another file has replaced it, and releases the locks. Does nothing
 * if *lock is not held. */
void tally_lock_file_close(struct tally_lock_file *lock);

/* The id of the process that holds the lock; 0 = none, -1 = it left no id. Errors: STORE. */
enum tally_status tally_lock_file_owner(const char *path, int64_t *ret_process,
                                        struct tally_error *err);

#endif
