#include "storage/sqlite/lock_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* The previous owner removes the file before it releases the lock, so the lock may be taken on a
 * file that has no name any more. Only a lock on the file that `path` names now counts. */
static bool is_named(int fd, const char *path)
{
    struct stat held;
    struct stat named;
    return fstat(fd, &held) == 0 && stat(path, &named) == 0 && held.st_dev == named.st_dev &&
           held.st_ino == named.st_ino;
}

enum { OWNER_CAPACITY = 24 };

/* Reads the id of the process that holds the lock, in digits, from the file. */
static void read_owner(int fd, char ret_owner[OWNER_CAPACITY])
{
    ssize_t n = pread(fd, ret_owner, OWNER_CAPACITY - 1, 0);
    ret_owner[n > 0 ? n : 0] = '\0';
    ret_owner[strspn(ret_owner, "0123456789")] = '\0';
}

static enum tally_status fail_in_use(int fd, const char *path, struct tally_error *err)
{
    char owner[OWNER_CAPACITY];
    read_owner(fd, owner);
    if (owner[0] == '\0') {
        snprintf(owner, sizeof owner, "unknown");
    }
    return tally_fail(err, TALLY_STORE, NULL, "in use by another process (process %s holds \"%s\")",
                      owner, path);
}

/* The id is for messages only, so a full disk is not an error. */
static void write_owner(int fd)
{
    char owner[24];
    int n = snprintf(owner, sizeof owner, "%ld\n", (long)getpid());
    if (ftruncate(fd, 0) != 0 || pwrite(fd, owner, (size_t)n, 0) != n) {
        return;
    }
}

enum tally_status tally_lock_file_open(struct tally_lock_file *lock, const char *path,
                                       struct tally_error *err)
{
    for (;;) {
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
        if (fd < 0) {
            return tally_fail(err, TALLY_STORE, NULL, "lock file \"%s\": %s", path,
                              strerror(errno));
        }
        if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
            enum tally_status status =
                errno == EWOULDBLOCK ? fail_in_use(fd, path, err)
                                     : tally_fail(err, TALLY_STORE, NULL, "cannot lock \"%s\": %s",
                                                  path, strerror(errno));
            close(fd);
            return status;
        }
        if (is_named(fd, path)) {
            lock->path = strdup(path);
            if (lock->path == NULL) {
                close(fd);
                return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a lock file");
            }
            lock->fd = fd;
            write_owner(fd);
            return TALLY_OK;
        }
        close(fd);
    }
}

/* Past the end of the largest SQLite database, 2^48 bytes. SQLite's own locks are near 2^30. */
static const off_t HELD_BYTE = INT64_C(1) << 62;

/* Returns 0 or an errno; EAGAIN: another process holds the file. */
static int hold(int fd)
{
    struct flock byte = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = HELD_BYTE, .l_len = 1};
    if (fcntl(fd, F_OFD_SETLK, &byte) == 0) {
        return 0;
    }
    return errno == EACCES ? EAGAIN : errno;
}

enum tally_status tally_lock_file_hold(struct tally_lock_file *lock, const char *path,
                                       struct tally_error *err)
{
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return tally_fail(err, TALLY_STORE, NULL, "cannot lock \"%s\": %s", path, strerror(errno));
    }
    const int why = hold(fd);
    lock->held_fd = fd;
    if (why == EAGAIN) {
        return tally_fail(err, TALLY_STORE, NULL,
                          "in use by another process, which opened \"%s\" under another name or "
                          "has lost its lock file",
                          path);
    }
    /* Any other errno means that there are no such locks here: the lock file alone must suffice. */
    return TALLY_OK;
}

bool tally_lock_file_is_in_place(const struct tally_lock_file *lock)
{
    struct stat held;
    return fstat(lock->fd, &held) == 0 && held.st_nlink > 0;
}

void tally_lock_file_close(struct tally_lock_file *lock)
{
    if (lock->fd >= 0) {
        if (is_named(lock->fd, lock->path)) {
            unlink(lock->path);
        }
        if (lock->held_fd >= 0) {
            close(lock->held_fd);
        }
        close(lock->fd);
        free(lock->path);
        *lock = (struct tally_lock_file)TALLY_LOCK_FILE_INIT;
    }
}

enum tally_status tally_lock_file_owner(const char *path, int64_t *ret_process,
                                        struct tally_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        if (errno != ENOENT) {
            return tally_fail(err, TALLY_STORE, NULL, "lock file \"%s\": %s", path,
                              strerror(errno));
        }
        *ret_process = 0;
        return TALLY_OK;
    }
    /* Shared, so that two callers do not block each other. An owner that starts at this very moment
     * may find the file in use, once. */
    if (flock(fd, LOCK_SH | LOCK_NB) == 0) {
        *ret_process = 0;
    } else {
        char owner[OWNER_CAPACITY];
        read_owner(fd, owner);
        *ret_process = owner[0] != '\0' ? strtoll(owner, NULL, 10) : -1;
    }
    close(fd);
    return TALLY_OK;
}
