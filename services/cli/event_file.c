#include "services/cli/event_file.h"
#include "services/base/alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    HEAD_BYTES = 12,              /* length and its checksum */
    TAIL_BYTES = 4,               /* the checksum of the payload */
    MOST_PAYLOAD_BYTES = 1 << 24, /* far above any step of ours */
    MOST_HELD_BYTES = 1 << 20
};

struct tally_event_file {
    int fd;
    char path[PATH_MAX];
    int64_t size; /* of the whole records in the file */
    int64_t last_step;
    struct tally_buffer records; /* complete, to be written */
    /* The open step. */
    bool is_open;
    struct tally_buffer event;  /* before the summary */
    struct tally_buffer values; /* the summary */
    struct tally_buffer value;  /* its latest value; reused */
};

uint32_t tally_crc32c(const void *bytes, size_t n)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < n; i++) {
        crc ^= ((const uint8_t *)bytes)[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = (crc >> 1) ^ (UINT32_C(0x82f63b78) & -(crc & 1)); /* the polynomial, reversed */
        }
    }
    return ~crc;
}

static uint32_t masked(const void *bytes, size_t n)
{
    const uint32_t crc = tally_crc32c(bytes, n);
    return ((crc >> 15) | (crc << 17)) + UINT32_C(0xa282ead8);
}

/* ---- Protobuf. */

enum wire { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };
enum { EVENT_WALL_TIME = 1, EVENT_STEP = 2, EVENT_VERSION = 3, EVENT_SUMMARY = 5 };
enum { SUMMARY_VALUE = 1 };
enum { VALUE_TAG = 1, VALUE_SIMPLE = 2, VALUE_TENSOR = 8, VALUE_METADATA = 9 };
enum { METADATA_PLUGIN = 1, METADATA_CLASS = 4, PLUGIN_NAME = 1 };
enum { TENSOR_TYPE = 1, TENSOR_SHAPE = 2, TENSOR_STRING = 8 };
enum { CLASS_TENSOR = 2, TYPE_STRING = 7 };

static enum tally_status put_varint(struct tally_buffer *out, uint64_t value)
{
    uint8_t bytes[10];
    size_t n = 0;
    for (; value >= 0x80; value >>= 7) {
        bytes[n++] = (uint8_t)(value | 0x80);
    }
    bytes[n++] = (uint8_t)value;
    return tally_buffer_append(out, bytes, n);
}

static enum tally_status put_key(struct tally_buffer *out, unsigned number, enum wire wire)
{
    return put_varint(out, number << 3 | (unsigned)wire);
}

static enum tally_status put_little_endian(struct tally_buffer *out, uint64_t value, size_t n)
{
    uint8_t bytes[8];
    for (size_t i = 0; i < n; i++) {
        bytes[i] = (uint8_t)(value >> (8 * i));
    }
    return tally_buffer_append(out, bytes, n);
}

static enum tally_status put_integer(struct tally_buffer *out, unsigned number, uint64_t value)
{
    const enum tally_status status = put_key(out, number, WIRE_VARINT);
    return status == TALLY_OK ? put_varint(out, value) : status;
}

static enum tally_status put_bytes(struct tally_buffer *out, unsigned number, const void *bytes,
                                   size_t n)
{
    enum tally_status status = put_key(out, number, WIRE_BYTES);
    status = status == TALLY_OK ? put_varint(out, n) : status;
    return status == TALLY_OK && n > 0 ? tally_buffer_append(out, bytes, n) : status;
}

static enum tally_status put_text(struct tally_buffer *out, unsigned number, const char *text)
{
    return put_bytes(out, number, text, strlen(text));
}

/* ---- Records. */

static enum tally_status put_record(struct tally_buffer *out, const struct tally_buffer *payload)
{
    const size_t at = out->size;
    enum tally_status status = put_little_endian(out, payload->size, 8);
    if (status == TALLY_OK) {
        status = put_little_endian(out, masked(out->data + at, 8), 4);
    }
    if (status == TALLY_OK) {
        status = tally_buffer_append(out, payload->data, payload->size);
    }
    if (status == TALLY_OK) {
        status = put_little_endian(out, masked(payload->data, payload->size), 4);
    }
    out->size = status == TALLY_OK ? out->size : at;
    return status;
}

static enum tally_status put_wall_time(struct tally_buffer *out, double wall_time_s)
{
    uint64_t image;
    memcpy(&image, &wall_time_s, sizeof image);
    const enum tally_status status = put_key(out, EVENT_WALL_TIME, WIRE_64);
    return status == TALLY_OK ? put_little_endian(out, image, 8) : status;
}

/* Moves the open step to the records. */
static enum tally_status end_step(struct tally_event_file *file)
{
    enum tally_status status = TALLY_OK;
    if (file->is_open) {
        status = put_bytes(&file->event, EVENT_SUMMARY, file->values.data, file->values.size);
        status = status == TALLY_OK ? put_record(&file->records, &file->event) : status;
        file->is_open = status != TALLY_OK;
    }
    return status;
}

enum tally_status tally_event_begin(struct tally_event_file *file, double wall_time_s, int64_t step,
                                    struct tally_error *err)
{
    enum tally_status status = end_step(file);
    if (status == TALLY_OK && file->records.size > MOST_HELD_BYTES) {
        status = tally_event_file_flush(file, err);
    }
    file->event.size = file->values.size = 0;
    status = status == TALLY_OK ? put_wall_time(&file->event, wall_time_s) : status;
    status = status == TALLY_OK ? put_integer(&file->event, EVENT_STEP, (uint64_t)step) : status;
    if (status == TALLY_OK) {
        file->is_open = true;
        file->last_step = step;
    }
    return status == TALLY_OK ? status : tally_fail(err, status, NULL, "no memory for an event");
}

static enum tally_status begin_value(struct tally_event_file *file, const char *tag)
{
    file->value.size = 0;
    return put_text(&file->value, VALUE_TAG, tag);
}

static enum tally_status end_value(struct tally_event_file *file)
{
    return put_bytes(&file->values, SUMMARY_VALUE, file->value.data, file->value.size);
}

enum tally_status tally_event_scalar(struct tally_event_file *file, const char *tag, double value)
{
    const float simple = (float)value;
    uint32_t image;
    memcpy(&image, &simple, sizeof image);
    enum tally_status status = begin_value(file, tag);
    status = status == TALLY_OK ? put_key(&file->value, VALUE_SIMPLE, WIRE_32) : status;
    status = status == TALLY_OK ? put_little_endian(&file->value, image, 4) : status;
    return status == TALLY_OK ? end_value(file) : status;
}

static enum tally_status put_text_metadata(struct tally_buffer *out)
{
    struct tally_buffer plugin = {0}, metadata = {0};
    enum tally_status status = put_text(&plugin, PLUGIN_NAME, "text");
    if (status == TALLY_OK) {
        status = put_bytes(&metadata, METADATA_PLUGIN, plugin.data, plugin.size);
    }
    status = status == TALLY_OK ? put_integer(&metadata, METADATA_CLASS, CLASS_TENSOR) : status;
    if (status == TALLY_OK) {
        status = put_bytes(out, VALUE_METADATA, metadata.data, metadata.size);
    }
    tally_buffer_fini(&plugin);
    tally_buffer_fini(&metadata);
    return status;
}

enum tally_status tally_event_text(struct tally_event_file *file, const char *tag,
                                   const char *markdown)
{
    struct tally_buffer tensor = {0};
    enum tally_status status = put_integer(&tensor, TENSOR_TYPE, TYPE_STRING);
    status = status == TALLY_OK ? put_bytes(&tensor, TENSOR_SHAPE, "", 0) : status; /* a scalar */
    status = status == TALLY_OK ? put_text(&tensor, TENSOR_STRING, markdown) : status;
    status = status == TALLY_OK ? begin_value(file, tag) : status;
    if (status == TALLY_OK) {
        status = put_bytes(&file->value, VALUE_TENSOR, tensor.data, tensor.size);
    }
    status = status == TALLY_OK ? put_text_metadata(&file->value) : status;
    tally_buffer_fini(&tensor);
    return status == TALLY_OK ? end_value(file) : status;
}

/* ---- Reading what is there. */

static uint64_t little_endian(const uint8_t *bytes, size_t n)
{
    uint64_t value = 0;
    for (size_t i = n; i > 0; i--) {
        value = value << 8 | bytes[i - 1];
    }
    return value;
}

/* The step of an event that begins with its time and its step, as ours do; -1 = it has none. */
static int64_t step_of(const uint8_t *event, size_t n)
{
    uint64_t step = 0;
    if (n < 10 || event[0] != (EVENT_WALL_TIME << 3 | WIRE_64) ||
        event[9] != (EVENT_STEP << 3 | WIRE_VARINT)) {
        return -1;
    }
    for (size_t i = 10; i < n && i < 19; i++) {
        step |= (uint64_t)(event[i] & 0x7f) << (7 * (i - 10));
        if ((event[i] & 0x80) == 0) {
            return (int64_t)step;
        }
    }
    return -1;
}

enum found { FOUND_RECORD, FOUND_END, FOUND_DAMAGE };

/* Reads the next record and notes its step. A record that the file does not have in full is its
 * end. */
static enum found read_record(struct tally_event_file *file, FILE *stream)
{
    uint8_t head[HEAD_BYTES], tail[TAIL_BYTES];
    if (fread(head, sizeof head, 1, stream) != 1) {
        return ferror(stream) ? FOUND_DAMAGE : FOUND_END;
    }
    const uint64_t n = little_endian(head, 8);
    if (little_endian(head + 8, 4) != masked(head, 8) || n > MOST_PAYLOAD_BYTES) {
        return FOUND_DAMAGE;
    }
    file->event.size = 0;
    if (tally_buffer_reserve(&file->event, (size_t)n + 1) != TALLY_OK) {
        return FOUND_DAMAGE;
    }
    if (fread(file->event.data, 1, (size_t)n, stream) != n ||
        fread(tail, sizeof tail, 1, stream) != 1) {
        return ferror(stream) ? FOUND_DAMAGE : FOUND_END;
    }
    if (little_endian(tail, sizeof tail) != masked(file->event.data, (size_t)n)) {
        return FOUND_DAMAGE;
    }
    const int64_t step = step_of(file->event.data, (size_t)n);
    file->last_step = step > file->last_step ? step : file->last_step;
    file->size += HEAD_BYTES + (int64_t)n + TAIL_BYTES;
    return FOUND_RECORD;
}

static enum tally_status read_records(struct tally_event_file *file, struct tally_error *err)
{
    enum found found = FOUND_DAMAGE;
    const int copy = dup(file->fd);
    FILE *stream = copy >= 0 ? fdopen(copy, "rb") : NULL;
    if (stream != NULL) {
        do {
            found = read_record(file, stream);
        } while (found == FOUND_RECORD);
        fclose(stream);
    } else if (copy >= 0) {
        close(copy);
    }
    file->event.size = 0;
    if (found == FOUND_DAMAGE) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL,
                          "%.200s: damaged, or no event file, at byte %" PRId64
                          ": remove it to have it written again",
                          file->path, file->size);
    }
    return TALLY_OK;
}

static enum tally_status fail_to_write(const struct tally_event_file *file, int failure,
                                       struct tally_error *err)
{
    return tally_fail(err, TALLY_INTERNAL, NULL, "%.200s: %s", file->path, strerror(failure));
}

enum tally_status tally_event_file_flush(struct tally_event_file *file, struct tally_error *err)
{
    struct tally_buffer *records = &file->records;
    enum tally_status status = end_step(file);
    if (status != TALLY_OK) {
        return tally_fail(err, status, NULL, "no memory for an event");
    }
    for (size_t done = 0; done < records->size;) {
        const ssize_t n = pwrite(file->fd, records->data + done, records->size - done,
                                 (off_t)(file->size + (int64_t)done));
        if (n > 0) {
            done += (size_t)n;
        } else if (n == 0 || errno != EINTR) {
            const int failure = n == 0 ? EIO : errno;
            (void)!ftruncate(file->fd, (off_t)file->size);
            return fail_to_write(file, failure, err);
        }
    }
    file->size += (int64_t)records->size;
    records->size = 0;
    return TALLY_OK;
}

/* Removes what is left of a record. The first record of each file says what it is. */
static enum tally_status begin_file(struct tally_event_file *file, double wall_time_s,
                                    struct tally_error *err)
{
    if (ftruncate(file->fd, (off_t)file->size) != 0) {
        return fail_to_write(file, errno, err);
    }
    if (file->size > 0) {
        return TALLY_OK;
    }
    enum tally_status status = put_wall_time(&file->event, wall_time_s);
    if (status == TALLY_OK) {
        status = put_text(&file->event, EVENT_VERSION, "brain.Event:2");
    }
    status = status == TALLY_OK ? put_record(&file->records, &file->event) : status;
    return status == TALLY_OK ? tally_event_file_flush(file, err)
                              : tally_fail(err, status, NULL, "no memory for an event");
}

/* Opens and locks it. */
static enum tally_status open_file(struct tally_event_file *file, struct tally_error *err)
{
    struct stat found;
    file->fd = open(file->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
    if (file->fd < 0) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL, "%.200s: %s", file->path,
                          strerror(errno));
    }
    if (fstat(file->fd, &found) != 0 || !S_ISREG(found.st_mode)) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL, "%.200s: not a regular file",
                          file->path);
    }
    if (flock(file->fd, LOCK_EX | LOCK_NB) != 0) {
        return tally_fail(err, TALLY_FAILED_PRECONDITION, NULL,
                          "%.200s: another program is writing to it", file->path);
    }
    return TALLY_OK;
}

enum tally_status tally_event_file_open(const char *path, double wall_time_s,
                                        struct tally_event_file **ret_file, struct tally_error *err)
{
    struct tally_event_file *file = tally_xcalloc(1, sizeof *file);
    file->fd = -1;
    file->last_step = -1;
    const int n = snprintf(file->path, sizeof file->path, "%s", path);
    enum tally_status status = TALLY_OK;
    if (n < 0 || (size_t)n >= sizeof file->path) {
        status = tally_fail(err, TALLY_INVALID_ARGUMENT, NULL, "%.200s: path too long", path);
    }
    status = status == TALLY_OK ? open_file(file, err) : status;
    status = status == TALLY_OK ? read_records(file, err) : status;
    status = status == TALLY_OK ? begin_file(file, wall_time_s, err) : status;
    if (status != TALLY_OK) {
        tally_event_file_close(file);
        return status;
    }
    *ret_file = file;
    return TALLY_OK;
}

void tally_event_file_close(struct tally_event_file *file)
{
    if (file != NULL) {
        if (file->fd >= 0) {
            close(file->fd);
        }
        tally_buffer_fini(&file->records);
        tally_buffer_fini(&file->event);
        tally_buffer_fini(&file->values);
        tally_buffer_fini(&file->value);
        free(file);
    }
}

int64_t tally_event_file_last_step(const struct tally_event_file *file)
{
    return file->last_step;
}
