/* sqlite_copy: a database copied while it is used, and a copy put in its place. */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "storage/sqlite/sqlite_internal.h"

/* 4 MB at the usual page size: what is copied between two progress reports. */
enum { PAGES_PER_STEP = 1024 };

/* The files that SQLite may leave next to a database. */
static const char *const SIDE_FILES[] = {"-wal", "-shm", "-journal"};
enum { N_SIDE_FILES = sizeof SIDE_FILES / sizeof SIDE_FILES[0] };

static enum tally_status fail_file(const char *what, const char *path, struct tally_error *err)
{
    return tally_fail(err, TALLY_STORE, NULL, "%s \"%s\": %s", what, path, strerror(errno));
}

static char *path_with(const char *path, const char *suffix)
{
    char *joined = NULL;
    return asprintf(&joined, "%s%s", path, suffix) >= 0 ? joined : NULL;
}

static void remove_side_files(const char *path)
{
    for (int i = 0; i < N_SIDE_FILES; i++) {
        char *name = path_with(path, SIDE_FILES[i]);
        if (name != NULL) {
            unlink(name);
        }
        free(name);
    }
}

static void remove_database(const char *path)
{
    remove_side_files(path);
    unlink(path);
}

/* Syncs a file or folder to the medium. */
static enum tally_status sync_path(const char *path, int flags, struct tally_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | flags);
    if (fd < 0) {
        return fail_file("cannot open", path, err);
    }
    enum tally_status status = TALLY_OK;
    if (fsync(fd) != 0) {
        status = fail_file("cannot write", path, err);
    }
    close(fd);
    return status;
}

static enum tally_status sync_folder_of(const char *path, struct tally_error *err)
{
    char *copy = strdup(path);
    if (copy == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a path");
    }
    enum tally_status status = sync_path(dirname(copy), O_DIRECTORY, err);
    free(copy);
    return status;
}

/* Creates a file with the mode of `like`, the file that is copied, so that a copy is not readable
 * by more people; for root, with `same_owner`, also with its owner. */
static enum tally_status make_empty(const char *path, const struct stat *like, bool same_owner,
                                    struct tally_error *err)
{
    remove_database(path); /* left behind by an attempt that was killed */
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return fail_file("cannot make", path, err);
    }
    enum tally_status status = TALLY_OK;
    if ((same_owner && geteuid() == 0 && fchown(fd, like->st_uid, like->st_gid) != 0) ||
        fchmod(fd, S_ISREG(like->st_mode) ? like->st_mode & 0777 : 0644) != 0) {
        status = fail_file("cannot set the owner of", path, err);
    }
    close(fd);
    return status;
}

static enum tally_status copy_pages(sqlite3 *from, sqlite3 *to, const char *path,
                                    const struct tally_store_progress *progress,
                                    struct tally_error *err)
{
    sqlite3_backup *backup = sqlite3_backup_init(to, "main", from, "main");
    int rc = backup != NULL ? SQLITE_OK : sqlite3_extended_errcode(to);
    bool go_on = true;
    while (rc == SQLITE_OK && go_on) {
        rc = sqlite3_backup_step(backup, PAGES_PER_STEP);
        const int64_t total = sqlite3_backup_pagecount(backup);
        go_on = progress == NULL || progress->tell(progress->context, "copied pages",
                                                   total - sqlite3_backup_remaining(backup), total);
    }
    sqlite3_backup_finish(backup);
    if (rc == SQLITE_OK) {
        return tally_fail(err, TALLY_CANCELLED, NULL, "stopped before the end");
    }
    const struct tally_sqlite target = {.db = to, .path = (char *)(uintptr_t)path};
    return rc == SQLITE_DONE ? TALLY_OK : tally_sqlite_fail(&target, rc, err);
}

/* Copies what `from` reads to the empty file `path`. The copy has no write-ahead log, so that it is
 * one file, readable where nothing can be written. */
static enum tally_status copy_to_file(sqlite3 *from, const char *path,
                                      const struct tally_store_progress *progress,
                                      struct tally_error *err)
{
    struct tally_sqlite target = {.path = (char *)(uintptr_t)path};
    enum tally_status status = tally_sqlite_open_file(&target, SQLITE_OPEN_READWRITE, err);
    if (status == TALLY_OK) {
        status = copy_pages(from, target.db, path, progress, err);
    }
    if (status == TALLY_OK) {
        status = tally_sqlite_exec(&target, "PRAGMA journal_mode = DELETE", err);
    }
    sqlite3_close(target.db);
    return status == TALLY_OK ? sync_path(path, 0, err) : status;
}

/* Gives the finished file its name. */
static enum tally_status publish(const char *made, const char *path, bool replace,
                                 struct tally_error *err)
{
    if (renameat2(AT_FDCWD, made, AT_FDCWD, path, replace ? 0 : RENAME_NOREPLACE) != 0) {
        return errno == EEXIST ? tally_fail(err, TALLY_ALREADY_EXISTS, NULL,
                                            "\"%s\" exists; --force replaces it", path)
                               : fail_file("cannot make", path, err);
    }
    return sync_folder_of(path, err);
}

/* Makes the file `made`, copies `from` to it and verifies it. */
static enum tally_status make_copy(sqlite3 *from, const char *made, const struct stat *like,
                                   bool same_owner, const struct tally_store_progress *progress,
                                   struct tally_error *err)
{
    struct tally_store_report report;
    enum tally_status status = make_empty(made, like, same_owner, err);
    if (status == TALLY_OK) {
        status = copy_to_file(from, made, progress, err);
    }
    return status == TALLY_OK ? tally_sqlite_verify(made, progress, &report, err) : status;
}

/* A process that has the target open may have lost its lock file, but holds the database itself. */
static enum tally_status lock_target(struct tally_lock_file *lock, const char *lock_path,
                                     const char *path, struct tally_error *err)
{
    enum tally_status status = tally_lock_file_open(lock, lock_path, err);
    return status == TALLY_OK && access(path, F_OK) == 0 ? tally_lock_file_hold(lock, path, err)
                                                         : status;
}

/* Copies the database that `from` reads to the file `path`: whole and verified, or not at all. */
static enum tally_status copy_database(const struct tally_sqlite *from, const char *path,
                                       bool replace, const struct tally_store_progress *progress,
                                       struct tally_error *err)
{
    struct stat source;
    struct tally_lock_file lock = TALLY_LOCK_FILE_INIT;
    char *made = path_with(path, ".tmp");
    char *lock_path = path_with(path, "-lock");
    enum tally_status status = TALLY_OK;
    if (made == NULL || lock_path == NULL) {
        status = tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a path");
    } else if (!replace && access(path, F_OK) == 0) {
        status =
            tally_fail(err, TALLY_ALREADY_EXISTS, NULL, "\"%s\" exists; --force replaces it", path);
    } else if (stat(sqlite3_db_filename(from->db, "main"), &source) != 0) {
        status = fail_file("cannot read", from->path, err);
    } else { /* keeps out a second copy, and a coordinator that uses `path` */
        status = lock_target(&lock, lock_path, path, err);
    }
    if (status == TALLY_OK) {
        status = make_copy(from->db, made, &source, false, progress, err);
        if (status == TALLY_OK) {
            status = publish(made, path, replace, err);
        }
        if (status != TALLY_OK) {
            remove_database(made);
        }
    }
    tally_lock_file_close(&lock);
    free(lock_path);
    free(made);
    return status;
}

enum tally_status tally_sqlite_backup(const char *from, const char *to, bool replace,
                                      const struct tally_store_progress *progress,
                                      struct tally_error *err)
{
    struct tally_sqlite *sqlite = NULL;
    enum tally_status status = tally_sqlite_open_reader(from, &sqlite, err);
    /* One snapshot: without it, every commit of the coordinator would start the copy again. */
    if (status == TALLY_OK) {
        status = tally_sqlite_exec(sqlite, "BEGIN; SELECT count(*) FROM jobs;", err);
    }
    if (status == TALLY_OK) {
        status = copy_database(sqlite, to, replace, progress, err);
    }
    tally_sqlite_close_reader(sqlite);
    return status;
}

/* The path beside which a database's lock lies: that of the file behind symbolic links. */
static char *resolve(const char *path)
{
    char *real = realpath(path, NULL);
    return real != NULL ? real : strdup(path);
}

/* With the lock of `to` held: removes what is there and renames `made`. The log is removed first,
 * because it would be applied to any database that it lies beside. */
static enum tally_status replace_database(const char *made, const char *to, bool replace,
                                          struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    if (access(to, F_OK) != 0 || replace) {
        remove_side_files(to);
        status = sync_folder_of(to, err);
    }
    return status == TALLY_OK ? publish(made, to, replace, err) : status;
}

static enum tally_status restore_locked(const struct tally_sqlite *source, const char *to,
                                        bool replace, const struct tally_store_progress *progress,
                                        struct tally_error *err)
{
    struct stat like;
    char *folder = strdup(to);
    char *made = path_with(to, ".tmp");
    enum tally_status status = TALLY_OK;
    if (folder == NULL || made == NULL) {
        status = tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a path");
    } else if (stat(to, &like) == 0) {
        status = replace ? TALLY_OK
                         : tally_fail(err, TALLY_ALREADY_EXISTS, NULL,
                                      "database \"%s\" exists; --force replaces it", to);
    } else if (stat(dirname(folder), &like) != 0) {
        status = fail_file("no folder for", to, err);
    }
    if (status == TALLY_OK) {
        status = make_copy(source->db, made, &like, true, progress, err);
        if (status == TALLY_OK) {
            status = replace_database(made, to, replace, err);
        }
        if (status != TALLY_OK) {
            remove_database(made);
        }
    }
    free(folder);
    free(made);
    return status;
}

enum tally_status tally_sqlite_restore(const char *to, const char *from, bool replace,
                                       const struct tally_store_progress *progress,
                                       struct tally_error *err)
{
    struct tally_sqlite *source = NULL;
    struct tally_lock_file lock = TALLY_LOCK_FILE_INIT;
    struct tally_store_report report = {0};
    char *real = resolve(to);
    char *lock_path = real != NULL ? path_with(real, "-lock") : NULL;
    enum tally_status status = TALLY_OK;
    if (lock_path == NULL) {
        status = tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a path");
    }
    if (status == TALLY_OK) {
        status = tally_sqlite_open_reader(from, &source, err);
    }
    if (status == TALLY_OK) {
        status = tally_sqlite_verify_open(source, progress, &report, err);
    }
    if (status == TALLY_OK) {
        status = lock_target(&lock, lock_path, real, err);
    }
    if (status == TALLY_OK) {
        status = restore_locked(source, real, replace, progress, err);
    }
    tally_lock_file_close(&lock);
    tally_sqlite_close_reader(source);
    free(lock_path);
    free(real);
    return status;
}

enum tally_status tally_sqlite_owner(const char *path, int64_t *ret_process,
                                     struct tally_error *err)
{
    char *real = resolve(path);
    char *name = real != NULL ? path_with(real, "-lock") : NULL;
    free(real);
    if (name == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a path");
    }
    enum tally_status status = tally_lock_file_owner(name, ret_process, err);
    free(name);
    return status;
}
