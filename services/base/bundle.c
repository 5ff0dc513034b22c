#include "services/base/bundle.h"
#include "services/base/alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/http/sha256.h"

/* A header of ustar. Numbers are octal texts. */
struct header {
    char name[100];
    char mode[8], uid[8], gid[8];
    char size[12], mtime[12];
    char checksum[8];
    char type;
    char link[100];
    char magic[8];
    char user[32], group[32];
    char device[16];
    char prefix[155];
    char rest[12];
};
enum { BLOCK = 512, SIZE_DIGITS = 11 };
_Static_assert(sizeof(struct header) == BLOCK, "a block");

#define MOST_BYTES (UINT64_C(1) << (3 * SIZE_DIGITS))

static const char FIRST_NAME[] = "bundle.json";
static const char SUMS_NAME[] = "SHA256SUMS";
static const char MAGIC[8] = "ustar\00000"; /* and no final NUL */

/* The sum of all bytes, with the checksum itself as blanks. */
static unsigned sum_of(const struct header *header)
{
    struct header copy = *header;
    unsigned sum = 0;
    memset(copy.checksum, ' ', sizeof copy.checksum);
    for (size_t i = 0; i < sizeof copy; i++) {
        sum += ((const uint8_t *)&copy)[i];
    }
    return sum;
}

struct tally_bundle_writer {
    FILE *file;
    char path[PATH_MAX], temporary[PATH_MAX];
    int64_t mtime_s;
    char name[100];                  /* of the open member; "" = none is open */
    long header_at;                  /* where its header is */
    uint64_t n_bytes;                /* of it */
    struct tally_sha256_stream *sum; /* of it */
    struct tally_buffer sums;        /* of the ended ones: the text of SHA256SUMS */
    bool is_too_large;
    int why; /* the errno of the first write that failed; 0 = none has */
};

static void put(struct tally_bundle_writer *writer, const void *bytes, size_t n)
{
    errno = 0;
    if (n > 0 && fwrite(bytes, 1, n, writer->file) != n && writer->why == 0) {
        writer->why = errno != 0 ? errno : EIO;
    }
}

static void move_to(struct tally_bundle_writer *writer, long offset, int whence)
{
    if (fseek(writer->file, offset, whence) != 0 && writer->why == 0) {
        writer->why = errno; /* what was buffered could not be written */
    }
}

enum tally_status tally_bundle_create(const char *path, int64_t mtime_s,
                                      struct tally_bundle_writer **ret_writer,
                                      struct tally_error *err)
{
    struct tally_bundle_writer *writer = tally_xcalloc(1, sizeof *writer);
    writer->mtime_s = mtime_s > 0 ? mtime_s : 0;
    const int n = snprintf(writer->path, sizeof writer->path, "%s", path);
    const int n_temporary =
        snprintf(writer->temporary, sizeof writer->temporary, "%.4000s.XXXXXX", path);
    int fd = -1;
    if (n >= 4000 || n_temporary < 0) {
        errno = ENAMETOOLONG;
    } else {
        fd = mkostemp(writer->temporary, O_CLOEXEC);
        writer->file = fd >= 0 ? fdopen(fd, "w+b") : NULL;
    }
    if (writer->file == NULL) {
        const enum tally_status status =
            tally_fail(err, TALLY_INVALID_ARGUMENT, NULL, "%.200s: %s", path, strerror(errno));
        if (fd >= 0) {
            unlink(writer->temporary);
            close(fd);
        }
        free(writer);
        return status;
    }
    const mode_t mask = umask(0); /* mkostemp() makes files for their owner only */
    umask(mask);
    fchmod(fd, 0666 & ~mask);
    *ret_writer = writer;
    return TALLY_OK;
}

/* The header of a member with a name of less than 100 bytes. */
static struct header make_header(const char *name, uint64_t n_bytes, uint64_t mtime_s)
{
    struct header header = {.type = '0'};
    snprintf(header.name, sizeof header.name, "%s", name);
    memcpy(header.magic, MAGIC, sizeof header.magic);
    snprintf(header.mode, sizeof header.mode, "%07o", 0644U);
    snprintf(header.uid, sizeof header.uid, "%07o", 0U);
    snprintf(header.gid, sizeof header.gid, "%07o", 0U);
    snprintf(header.size, sizeof header.size, "%011" PRIo64, n_bytes % MOST_BYTES);
    snprintf(header.mtime, sizeof header.mtime, "%011" PRIo64, mtime_s % MOST_BYTES);
    snprintf(header.checksum, sizeof header.checksum, "%06o", sum_of(&header) % (1U << 18));
    header.checksum[7] = ' ';
    return header;
}

static void write_header(struct tally_bundle_writer *writer)
{
    const struct header header =
        make_header(writer->name, writer->n_bytes < MOST_BYTES ? writer->n_bytes : 0,
                    (uint64_t)writer->mtime_s);
    put(writer, &header, sizeof header);
}

static void end_sum(struct tally_bundle_writer *writer)
{
    uint8_t digest[TALLY_SHA256_BYTES];
    char text[TALLY_SHA256_TEXT_CAPACITY];
    tally_sha256_end(writer->sum, digest);
    tally_sha256_text(digest, text);
    if (tally_buffer_printf(&writer->sums, "%s  %s\n", text, writer->name) != TALLY_OK &&
        writer->why == 0) {
        writer->why = ENOMEM;
    }
}

/* Pads the open member to whole blocks and writes its length into its header. */
static void end_member(struct tally_bundle_writer *writer)
{
    static const uint8_t zeros[BLOCK];
    if (writer->name[0] == '\0') {
        return;
    }
    put(writer, zeros, (BLOCK - writer->n_bytes % BLOCK) % BLOCK);
    writer->is_too_large |= writer->n_bytes >= MOST_BYTES;
    move_to(writer, writer->header_at, SEEK_SET);
    write_header(writer);
    move_to(writer, 0, SEEK_END);
    end_sum(writer);
    writer->name[0] = '\0';
}

void tally_bundle_begin(struct tally_bundle_writer *writer, const char *name)
{
    end_member(writer);
    memset(writer->name, 0, sizeof writer->name);
    snprintf(writer->name, sizeof writer->name, "%s", name);
    writer->header_at = ftell(writer->file);
    writer->n_bytes = 0;
    writer->sum = tally_sha256_begin();
    write_header(writer);
}

void tally_bundle_write(struct tally_bundle_writer *writer, const void *bytes, size_t n)
{
    put(writer, bytes, n);
    tally_sha256_add(writer->sum, bytes, n);
    writer->n_bytes += n;
}

void tally_bundle_add(struct tally_bundle_writer *writer, const char *name, const void *bytes,
                      size_t n)
{
    tally_bundle_begin(writer, name);
    tally_bundle_write(writer, bytes, n);
}

enum tally_status tally_bundle_commit(struct tally_bundle_writer *writer, enum tally_status made,
                                      uint64_t *ret_n_bytes, struct tally_error *err)
{
    static const uint8_t end[2 * BLOCK];
    enum tally_status status = made;
    end_member(writer);
    tally_bundle_add(writer, SUMS_NAME, writer->sums.data, writer->sums.size);
    end_member(writer);
    put(writer, end, sizeof end);
    if ((fflush(writer->file) != 0 || fsync(fileno(writer->file)) != 0) && writer->why == 0) {
        writer->why = errno;
    }
    *ret_n_bytes = (uint64_t)ftell(writer->file);
    if (status == TALLY_OK && writer->is_too_large) {
        status = tally_fail(err, TALLY_TOO_LARGE, NULL, "%.200s: a member has 8 GiB or more",
                            writer->path);
    }
    if (status == TALLY_OK && writer->why != 0) {
        status = tally_fail(err, TALLY_UNAVAILABLE, NULL, "%.200s: %s", writer->path,
                            strerror(writer->why));
    }
    fclose(writer->file);
    if (status == TALLY_OK && rename(writer->temporary, writer->path) != 0) {
        status = tally_fail(err, TALLY_INVALID_ARGUMENT, NULL, "%.200s: %s", writer->path,
                            strerror(errno));
    }
    if (status != TALLY_OK) {
        unlink(writer->temporary);
    }
    tally_buffer_fini(&writer->sums);
    free(writer);
    return status;
}

/* ---- Reading. */

static bool read_octal(const char *text, size_t n, uint64_t *ret_value)
{
    uint64_t value = 0;
    size_t i = 0;
    for (; i < n && text[i] >= '0' && text[i] <= '7'; i++) {
        value = 8 * value + (uint64_t)(text[i] - '0');
    }
    *ret_value = value;
    return i > 0 && (i == n || text[i] == '\0' || text[i] == ' ');
}

/* False at the end of the archive, or if it is damaged. */
static bool read_header(FILE *file, struct header *ret_header, uint64_t *ret_size)
{
    uint64_t sum;
    return fread(ret_header, sizeof *ret_header, 1, file) == 1 &&
           memcmp(ret_header->magic, MAGIC, 5) == 0 &&
           read_octal(ret_header->checksum, sizeof ret_header->checksum, &sum) &&
           sum == sum_of(ret_header) &&
           read_octal(ret_header->size, sizeof ret_header->size, ret_size);
}

static FILE *open_file(const char *path)
{
    struct stat info;
    FILE *file = fopen(path, "rbe");
    if (file != NULL && (fstat(fileno(file), &info) != 0 || !S_ISREG(info.st_mode))) {
        fclose(file);
        errno = EINVAL;
        file = NULL;
    }
    return file;
}

bool tally_bundle_is_one(const char *path)
{
    struct header header;
    uint64_t size;
    FILE *file = open_file(path);
    const bool is_one = file != NULL && read_header(file, &header, &size) &&
                        strncmp(header.name, FIRST_NAME, sizeof header.name) == 0;
    if (file != NULL) {
        fclose(file);
    }
    return is_one;
}

static enum tally_status read_bytes(FILE *file, uint64_t size, struct tally_buffer *out)
{
    uint8_t bytes[8192];
    enum tally_status status = TALLY_OK;
    while (status == TALLY_OK && size > 0) {
        const size_t n = size < sizeof bytes ? (size_t)size : sizeof bytes;
        if (fread(bytes, 1, n, file) != n) {
            return TALLY_INVALID_ARGUMENT;
        }
        status = tally_buffer_append(out, bytes, n);
        size -= n;
    }
    return status;
}

enum tally_status tally_bundle_read(const char *path, const char *name, struct tally_buffer *out,
                                    struct tally_error *err)
{
    struct header header;
    uint64_t size = 0;
    enum tally_status status = TALLY_NOT_FOUND;
    FILE *file = open_file(path);
    if (file == NULL) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL, "%.200s: %s", path, strerror(errno));
    }
    while (status == TALLY_NOT_FOUND && read_header(file, &header, &size)) {
        if (strncmp(header.name, name, sizeof header.name) == 0) {
            status = read_bytes(file, size, out);
        } else if (fseek(file, (long)((size + BLOCK - 1) / BLOCK * BLOCK), SEEK_CUR) != 0) {
            break;
        }
    }
    fclose(file);
    switch ((int)status) {
    case TALLY_OK:
        return status;
    case TALLY_NOT_FOUND:
        return tally_fail(err, status, NULL, "%.200s has no member %s, or is damaged before it",
                          path, name);
    case TALLY_INVALID_ARGUMENT:
        return tally_fail(err, status, NULL, "%.200s ends early, in %s", path, name);
    default:
        return tally_fail(err, status, NULL, "%.200s: %s: %s", path, name,
                          tally_status_info(status)->title);
    }
}

/* ---- Reading a bundle in memory. */

enum { MOST_MEMBERS = 1100 }; /* a job keeps at most 1,000 models */

static enum tally_status fail_at(const char *field, const char *what, struct tally_error *err)
{
    return tally_fail(err, TALLY_INVALID_ARGUMENT, field, "the bundle is damaged: %s", what);
}

static bool is_zero(const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] != 0) {
            return false;
        }
    }
    return true;
}

/* Whether the header is one that a writer makes, with a name of letters, digits and ".-" alone. */
static bool is_sound(const struct header *header, uint64_t *ret_size)
{
    static const char LETTERS[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-";
    const size_t n = strnlen(header->name, sizeof header->name);
    uint64_t mtime_s;
    if (n == 0 || n == sizeof header->name || strspn(header->name, LETTERS) != n ||
        !read_octal(header->size, sizeof header->size, ret_size) ||
        !read_octal(header->mtime, sizeof header->mtime, &mtime_s)) {
        return false;
    }
    const struct header again = make_header(header->name, *ret_size, mtime_s);
    return memcmp(header, &again, sizeof again) == 0;
}

/* Reads the member at *at and advances behind its padding. */
static enum tally_status list_member(const uint8_t *bytes, size_t n, size_t *at,
                                     struct tally_bundle_member *ret_member,
                                     struct tally_error *err)
{
    struct header header;
    uint64_t size = 0;
    if (n - *at < sizeof header) {
        return fail_at("bundle", "it ends early", err);
    }
    memcpy(&header, bytes + *at, sizeof header);
    if (!is_sound(&header, &size)) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "bundle",
                          "the bundle is damaged: no valid header of a member at byte %zu", *at);
    }
    *at += sizeof header;
    memcpy(ret_member->name, header.name, sizeof ret_member->name);
    if (size > n - *at || (BLOCK - size % BLOCK) % BLOCK > n - *at - size) {
        return fail_at(ret_member->name, "it ends early", err);
    }
    ret_member->bytes = bytes + *at;
    ret_member->n = (size_t)size;
    *at += ret_member->n;
    const size_t n_padding = (BLOCK - ret_member->n % BLOCK) % BLOCK;
    const bool is_padded = is_zero(bytes + *at, n_padding);
    *at += n_padding;
    return is_padded ? TALLY_OK : fail_at(ret_member->name, "other bytes follow the member", err);
}

static enum tally_status list_all(const uint8_t *bytes, size_t n,
                                  struct tally_bundle_member *members, size_t *ret_n,
                                  struct tally_error *err)
{
    size_t at = 0;
    enum tally_status status = TALLY_OK;
    *ret_n = 0;
    while (status == TALLY_OK && (n - at < BLOCK || !is_zero(bytes + at, BLOCK))) {
        if (*ret_n == MOST_MEMBERS) {
            return tally_fail(err, TALLY_INVALID_ARGUMENT, "bundle", "more than %d members",
                              (int)MOST_MEMBERS);
        }
        status = list_member(bytes, n, &at, &members[*ret_n], err);
        for (size_t i = 0; status == TALLY_OK && i < *ret_n; i++) {
            if (strcmp(members[i].name, members[*ret_n].name) == 0) {
                status = fail_at(members[i].name, "the member is there twice", err);
            }
        }
        ++*ret_n;
    }
    if (status == TALLY_OK && (n - at != (size_t)2 * BLOCK || !is_zero(bytes + at, n - at))) {
        status = fail_at("bundle", "it does not end as an archive does", err);
    }
    return status;
}

/* The sums in `sums` must be those of the members before it. */
static enum tally_status check_sums(const struct tally_bundle_member *members, size_t n,
                                    const struct tally_bundle_member *sums, struct tally_error *err)
{
    enum { LINE_CAPACITY = TALLY_SHA256_TEXT_CAPACITY + 2 + TALLY_BUNDLE_NAME_CAPACITY };
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        uint8_t digest[TALLY_SHA256_BYTES];
        char text[TALLY_SHA256_TEXT_CAPACITY], line[LINE_CAPACITY];
        tally_sha256(members[i].bytes, members[i].n, digest);
        tally_sha256_text(digest, text);
        const size_t n_line =
            (size_t)snprintf(line, sizeof line, "%s  %s\n", text, members[i].name);
        if (sums->n - at < n_line || memcmp(sums->bytes + at, line, n_line) != 0) {
            return tally_fail(err, TALLY_INVALID_ARGUMENT, members[i].name,
                              "the bundle is damaged: the SHA-256 digest of %s is %s, which %s "
                              "does not say",
                              members[i].name, text, SUMS_NAME);
        }
        at += n_line;
    }
    return at == sums->n ? TALLY_OK : fail_at(SUMS_NAME, "it has more lines than members", err);
}

bool tally_bundle_find(const uint8_t *bytes, size_t n, const char *name,
                       struct tally_bundle_member *ret_member)
{
    size_t at = 0;
    for (int i = 0; i < MOST_MEMBERS; i++) {
        if (list_member(bytes, n, &at, ret_member, NULL) != TALLY_OK) {
            return false;
        }
        if (strcmp(ret_member->name, name) == 0) {
            return true;
        }
    }
    return false;
}

enum tally_status tally_bundle_list(const uint8_t *bytes, size_t n,
                                    struct tally_bundle_member **ret_members, size_t *ret_n,
                                    struct tally_error *err)
{
    struct header header = {0};
    uint64_t size;
    memcpy(&header, bytes, n < sizeof header ? n : sizeof header);
    if (!is_sound(&header, &size) || strcmp(header.name, FIRST_NAME) != 0) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "bundle",
                          "this is not a bundle of tally export --bundle");
    }
    struct tally_bundle_member *members = tally_xcalloc(MOST_MEMBERS, sizeof *members);
    size_t n_members = 0;
    enum tally_status status = list_all(bytes, n, members, &n_members, err);
    if (status == TALLY_OK && strcmp(members[n_members - 1].name, SUMS_NAME) != 0) {
        status = tally_fail(err, TALLY_INVALID_ARGUMENT, SUMS_NAME,
                            "the bundle has no %s at its end: tally export of this version writes "
                            "one",
                            SUMS_NAME);
    }
    if (status == TALLY_OK) {
        status = check_sums(members, n_members - 1, &members[n_members - 1], err);
    }
    if (status != TALLY_OK) {
        free(members);
        return status;
    }
    *ret_members = members;
    *ret_n = n_members;
    return TALLY_OK;
}
