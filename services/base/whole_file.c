#include "services/base/whole_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK_BYTES = 1 << 16 };

static bool is_standard(const char *path)
{
    return strcmp(path, "-") == 0;
}

void tally_file_peek(const char *path, char *ret_text, size_t capacity)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd >= 0 ? read(fd, ret_text, capacity - 1) : 0;
    ret_text[n > 0 ? n : 0] = '\0';
    if (fd >= 0) {
        close(fd);
    }
}

static enum tally_status read_all(int fd, const char *path, struct tally_buffer *out,
                                  struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    ssize_t n = 1;
    while (status == TALLY_OK && n > 0) {
        uint8_t chunk[CHUNK_BYTES];
        n = read(fd, chunk, sizeof chunk);
        if (n < 0) {
            status = tally_fail(err, errno == EINTR ? TALLY_CANCELLED : TALLY_INVALID_ARGUMENT,
                                NULL, "%.200s: %s", path, strerror(errno));
        } else if ((status = tally_buffer_append(out, chunk, (size_t)n)) != TALLY_OK) {
            tally_fail(err, status, NULL, "%.200s: %s", path, tally_status_info(status)->title);
        }
    }
    return status;
}

enum tally_status tally_file_read(const char *path, struct tally_buffer *out,
                                  struct tally_error *err)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL, "%.200s: %s", path, strerror(errno));
    }
    enum tally_status status = read_all(fd, path, out, err);
    close(fd);
    return status;
}

enum tally_status tally_whole_file_read(const char *path, struct tally_buffer *out,
                                        struct tally_error *err)
{
    return is_standard(path) ? read_all(STDIN_FILENO, path, out, err)
                             : tally_file_read(path, out, err);
}

static enum tally_status write_all(int fd, const void *bytes, size_t n, const char *path,
                                   struct tally_error *err)
{
    const uint8_t *rest = bytes;
    while (n > 0) {
        ssize_t written = write(fd, rest, n);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written < 0) {
            return tally_fail(err, TALLY_UNAVAILABLE, NULL, "%.200s: %s", path, strerror(errno));
        }
        rest += written;
        n -= (size_t)written;
    }
    return TALLY_OK;
}

/* Writes directly to standard output, a device or a pipe. */
static enum tally_status write_through(const char *path, const void *bytes, size_t n,
                                       struct tally_error *err)
{
    int fd = is_standard(path) ? STDOUT_FILENO : open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL, "%.200s: %s", path, strerror(errno));
    }
    enum tally_status status = write_all(fd, bytes, n, path, err);
    if (!is_standard(path)) {
        close(fd);
    }
    return status;
}

/* mkstemp() makes files for their owner only; this gives them the mode that open() would. */
static void apply_umask(int fd)
{
    mode_t mask = umask(0);
    umask(mask);
    fchmod(fd, 0666 & ~mask);
}

static enum tally_status write_and_rename(const char *path, const void *bytes, size_t n,
                                          struct tally_error *err)
{
    char temporary[PATH_MAX];
    int length = snprintf(temporary, sizeof temporary, "%s.XXXXXX", path);
    if (length < 0 || (size_t)length >= sizeof temporary) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL, "%.200s: path too long", path);
    }
    int fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL, "%.200s: %s", path, strerror(errno));
    }
    apply_umask(fd);
    enum tally_status status = write_all(fd, bytes, n, path, err);
    if (status == TALLY_OK && fsync(fd) != 0) {
        status = tally_fail(err, TALLY_UNAVAILABLE, NULL, "%.200s: %s", path, strerror(errno));
    }
    close(fd);
    if (status == TALLY_OK && rename(temporary, path) != 0) {
        status = tally_fail(err, TALLY_INVALID_ARGUMENT, NULL, "%.200s: %s", path, strerror(errno));
    }
    if (status != TALLY_OK) {
        unlink(temporary);
    }
    return status;
}

enum tally_status tally_whole_file_write(const char *path, const void *bytes, size_t n,
                                         struct tally_error *err)
{
    struct stat info;
    bool exists = !is_standard(path) && stat(path, &info) == 0;
    if (is_standard(path) || (exists && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode))) {
        return write_through(path, bytes, n, err);
    }
    char target[PATH_MAX];
    if (exists && realpath(path, target) != NULL) {
        return write_and_rename(target, bytes, n, err);
    }
    return write_and_rename(path, bytes, n, err);
}
