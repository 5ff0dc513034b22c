#include "services/objectives/data/data_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "codec/utf8.h"
#include "services/objectives/data/open_below.h"

/* Unpacked bytes between two calls of on_progress: some tens of milliseconds of parsing. */
enum { TELL_BYTES = 1 << 22 };

/* The unit of st_blocks, on every file system: stat(3type). */
enum { BLOCK_BYTES = 512 };

/* Reads gzip and plain files. */

static int zlib_read(void *reader, void *ret_bytes, size_t n, const char **ret_why)
{
    gzFile file = reader;
    const int n_read = gzread(file, ret_bytes, (unsigned)n);
    int code = Z_OK;
    const char *why = n_read > 0 ? "" : gzerror(file, &code);
    if (n_read > 0 || code == Z_OK) {
        return n_read;
    }
    *ret_why = code == Z_BUF_ERROR ? "the gzip file ends early" : why;
    return -1;
}

static uint64_t zlib_offset(void *reader)
{
    return (uint64_t)gzoffset(reader);
}

static void zlib_close(void *reader)
{
    gzclose_r(reader);
}

static const struct tally_data_file_ops ZLIB_OPS = {zlib_read, zlib_offset, zlib_close};

/* Opening. */

static enum tally_status fail_to_open(const struct tally_data_source *source, const char *name,
                                      int why, struct tally_error *err)
{
    switch (why) {
    case ENOENT:
    case ENOTDIR:
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "objective.data",
                          "%s (or .gz) is not in the data folder %s; put it there, or name "
                          "another folder with --data-dir",
                          name, source->dir);
    case EXDEV:
    case ELOOP:
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "objective.data",
                          "%s leads out of the data folder %s; copy the file into it", name,
                          source->dir);
    case EINVAL:
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "objective.data",
                          "%s in the data folder %s is not a regular file", name, source->dir);
    default:
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "objective.data",
                          "cannot read %s in the data folder %s: %s", name, source->dir,
                          strerror(why));
    }
}

/* A descriptor, or a negative errno. */
static int open_in(int folder, const char *name)
{
    char packed[TALLY_DATA_NAME_CAPACITY + 3];
    const int fd = tally_open_below(folder, name);
    if (fd == -ENOENT && snprintf(packed, sizeof packed, "%s.gz", name) < (int)sizeof packed) {
        return tally_open_below(folder, packed);
    }
    return fd;
}

static int open_folder(const struct tally_data_source *source)
{
    return open(source->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

bool tally_data_file_exists(const struct tally_data_source *source, const char *name)
{
    const int folder = open_folder(source);
    const int fd = folder >= 0 ? open_in(folder, name) : -errno;
    if (folder >= 0) {
        close(folder);
    }
    if (fd >= 0) {
        close(fd);
    }
    return fd != -ENOENT && fd != -ENOTDIR;
}

enum tally_status tally_data_file_descriptor(const struct tally_data_source *source,
                                             const char *name, int *ret_fd, struct tally_error *err)
{
    if (!tally_is_name_below(name)) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "objective.data", TALLY_DATA_NAME_REFUSAL,
                          name);
    }
    const int folder = open_folder(source);
    if (folder < 0) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "objective.data",
                          "cannot open the data folder %s (--data-dir): %s", source->dir,
                          strerror(errno));
    }
    const int fd = open_in(folder, name);
    close(folder);
    if (fd < 0) {
        return fail_to_open(source, name, -fd, err);
    }
    *ret_fd = fd;
    return TALLY_OK;
}

enum tally_status tally_data_file_of(const struct tally_data_source *source, const char *name,
                                     const struct tally_data_file_ops *ops, void *reader,
                                     uint64_t total_bytes, struct tally_data_file **ret_file,
                                     struct tally_error *err)
{
    struct tally_data_file *file = malloc(sizeof *file);
    if (file == NULL) {
        ops->close(reader);
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory to read %s", name);
    }
    *file = (struct tally_data_file){
        .source = source, .ops = ops, .reader = reader, .total_bytes = total_bytes, .err = err};
    snprintf(file->name, sizeof file->name, "%s", name);
    *ret_file = file;
    return TALLY_OK;
}

enum tally_status tally_data_file_open(const struct tally_data_source *source, const char *name,
                                       struct tally_data_file **ret_file, struct tally_error *err)
{
    int fd;
    struct stat facts = {0};
    enum tally_status status = tally_data_file_descriptor(source, name, &fd, err);
    if (status != TALLY_OK) {
        return status;
    }
    fstat(fd, &facts);
    gzFile reader = gzdopen(fd, "rb");
    if (reader == NULL) {
        close(fd);
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory to read %s", name);
    }
    const bool is_gzip = gzdirect(reader) == 0;
    status =
        tally_data_file_of(source, name, &ZLIB_OPS, reader, (uint64_t)facts.st_size, ret_file, err);
    if (status == TALLY_OK) {
        /* A file with holes, like a gzip file, can be much larger than its space on disk. */
        (*ret_file)->is_packed = is_gzip || facts.st_blocks * BLOCK_BYTES < facts.st_size / 2;
    }
    return status;
}

void tally_data_file_close(struct tally_data_file *file)
{
    if (file != NULL) {
        file->ops->close(file->reader);
        free(file);
    }
}

/* Reading. */

static bool tell(struct tally_data_file *file)
{
    const struct tally_data_source *source = file->source;
    const struct tally_load_progress progress = {.file = file->name,
                                                 .read_bytes = file->ops->offset(file->reader),
                                                 .total_bytes = file->total_bytes,
                                                 .unpacked_bytes = file->unpacked_bytes,
                                                 .points = file->points};
    file->untold_bytes = 0;
    return source->on_progress == NULL || source->on_progress(source->context, &progress);
}

bool tally_data_file_fill(struct tally_data_file *file)
{
    const char *why = "";
    file->at = file->n = 0;
    if (file->status != TALLY_OK || file->is_at_end) {
        return false;
    }
    if (file->untold_bytes >= TELL_BYTES && !tell(file)) {
        file->status =
            tally_fail(file->err, TALLY_CANCELLED, NULL, "stopped while reading %s", file->name);
        return false;
    }
    const int n = file->ops->read(file->reader, file->window, sizeof file->window, &why);
    if (n < 0) {
        tally_data_file_refuse(file, "%s", why);
    }
    file->is_at_end = n <= 0;
    file->n = n > 0 ? (size_t)n : 0;
    file->untold_bytes += file->n;
    file->unpacked_bytes += file->n;
    if (file->unpacked_bytes > TALLY_DATA_MAX_BYTES) {
        tally_data_file_refuse(file, "it unpacks to more than %llu GiB",
                               (unsigned long long)(TALLY_DATA_MAX_BYTES >> 30));
        file->n = 0;
    }
    return file->n > 0;
}

size_t tally_data_file_read(struct tally_data_file *file, void *ret_bytes, size_t n)
{
    size_t done = 0;
    while (done < n && (file->at < file->n || tally_data_file_fill(file))) {
        const size_t there = file->n - file->at;
        const size_t some = there < n - done ? there : n - done;
        memcpy((uint8_t *)ret_bytes + done, file->window + file->at, some);
        file->at += some;
        done += some;
    }
    return done;
}

bool tally_data_file_skip(struct tally_data_file *file, uint64_t n)
{
    while (n > 0 && (file->at < file->n || tally_data_file_fill(file))) {
        const size_t there = file->n - file->at;
        const size_t some = there < n ? there : (size_t)n;
        file->at += some;
        n -= some;
    }
    return n == 0;
}

void tally_data_file_skip_mark(struct tally_data_file *file)
{
    if (tally_data_file_peek(file) != TALLY_DATA_END) {
        file->at += tally_utf8_mark(file->window + file->at, file->n - file->at);
    }
}

/* Writes "3:" or " row 3:". */
static void write_place(const struct tally_data_file *file, char ret_place[32])
{
    ret_place[0] = '\0';
    if (file->place == TALLY_DATA_LINE) {
        snprintf(ret_place, 32, "%llu:", (unsigned long long)file->line);
    } else if (file->place == TALLY_DATA_ROW) {
        snprintf(ret_place, 32, " row %llu:", (unsigned long long)file->line);
    }
}

static void note(struct tally_data_file *file, const char *reason)
{
    char place[32], line[sizeof file->name + 300];
    write_place(file, place);
    if (file->n_faults == 0) {
        snprintf(file->first_fault, sizeof file->first_fault, "%s %s", place, reason);
    } else {
        const size_t n = strlen(file->fault_lines);
        snprintf(file->fault_lines + n, TALLY_DATA_FAULT_LINES - n, "%s%llu",
                 n > 0 ? ", " : "; also in line ", (unsigned long long)file->line);
    }
    file->n_faults++;
    snprintf(line, sizeof line, "%s:%s %s", file->name, place, reason);
    if (file->source->on_fault != NULL) {
        file->source->on_fault(file->source->context, line);
    }
}

bool tally_data_file_note(struct tally_data_file *file, const char *format, ...)
{
    char reason[224];
    va_list args;
    if (file->status != TALLY_OK) {
        return false;
    }
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    tally_utf8_sanitize_line(reason);
    note(file, reason);
    return file->n_faults < TALLY_DATA_FAULTS_MOST || tally_data_file_settle(file) == TALLY_OK;
}

enum tally_status tally_data_file_settle(struct tally_data_file *file)
{
    char others[64] = "";
    if (file->status != TALLY_OK || file->n_faults == 0) {
        return file->status;
    }
    if (file->n_faults > 1) {
        const bool is_most = file->n_faults == TALLY_DATA_FAULTS_MOST;
        snprintf(others, sizeof others, " (the first of %u errors%s)", file->n_faults,
                 is_most ? ", perhaps of more" : "");
        char *comma = strrchr(file->fault_lines, ',');
        if (strlen(file->fault_lines) == TALLY_DATA_FAULT_LINES - 1 && comma != NULL) { /* cut */
            memcpy(comma, ", ...", sizeof ", ...");
        }
    }
    file->status = tally_fail(file->err, TALLY_INVALID_ARGUMENT, "objective.data", "%s:%s%s%s",
                              file->name, file->first_fault, others, file->fault_lines);
    return file->status;
}

enum tally_status tally_data_file_refuse(struct tally_data_file *file, const char *format, ...)
{
    if (file->status != TALLY_OK) {
        return file->status;
    }
    char reason[256], place[32];
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    tally_utf8_sanitize_line(reason);
    if (file->n_faults > 0) { /* the first error stays the first */
        note(file, reason);
        return tally_data_file_settle(file);
    }
    write_place(file, place);
    file->status = tally_fail(file->err, TALLY_INVALID_ARGUMENT, "objective.data", "%s:%s %s",
                              file->name, place, reason);
    return file->status;
}
