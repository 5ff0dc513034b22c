#include "tests/unit/services/objectives/data_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zip.h>
#include <zlib.h>

#include "tests/harness.h"

void data_files_text(const struct idx_files *files, const char *name, const char *text)
{
    idx_files_write(files, name, (const uint8_t *)text, strlen(text));
}

size_t data_files_npy_bytes(const char *header, const void *values, size_t n, uint8_t *ret_bytes)
{
    const size_t length = strlen(header);
    memcpy(ret_bytes, "\x93NUMPY\x01\x00", 8);
    ret_bytes[8] = (uint8_t)length;
    ret_bytes[9] = (uint8_t)(length >> 8);
    memcpy(ret_bytes + 10, header, length);
    if (n > 0) {
        memcpy(ret_bytes + 10 + length, values, n);
    }
    return 10 + length + n;
}

void data_files_npy(const struct idx_files *files, const char *name, const char *header,
                    const void *values, size_t n)
{
    uint8_t *bytes = malloc(12 + strlen(header) + n);
    CU_ASSERT_PTR_NOT_NULL_FATAL(bytes);
    idx_files_write(files, name, bytes, data_files_npy_bytes(header, values, n, bytes));
    free(bytes);
}

static void path_of(const struct idx_files *files, const char *name, char ret_path[400])
{
    CU_ASSERT_FATAL(snprintf(ret_path, 400, "%s/%s", files->folder, name) < 400);
}

void data_files_gzip(const struct idx_files *files, const char *name, const void *chunk, size_t n,
                     size_t n_times)
{
    char path[400];
    path_of(files, name, path);
    gzFile file = gzopen(path, "wb9");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    for (size_t i = 0; i < n_times; i++) {
        CU_ASSERT_EQUAL_FATAL(gzwrite(file, chunk, (unsigned)n), (int)n);
    }
    CU_ASSERT_EQUAL(gzclose(file), Z_OK);
}

/* The bytes of a member, generated while they are written. */
struct stream {
    const struct zip_member *member;
    size_t at;
};

static size_t size_of(const struct zip_member *member)
{
    return member->n + member->n_tail * (member->n_times > 0 ? member->n_times - 1 : 0);
}

static zip_int64_t produce(void *context, void *data, zip_uint64_t n, zip_source_cmd_t command)
{
    struct stream *stream = context;
    const struct zip_member *member = stream->member;
    uint8_t *to = data;
    size_t done = 0;
    if (command == ZIP_SOURCE_OPEN) {
        stream->at = 0;
    } else if (command == ZIP_SOURCE_READ) {
        for (; done < n && stream->at < size_of(member); done++, stream->at++) {
            const size_t tail = member->n - member->n_tail;
            const size_t at =
                stream->at < member->n ? stream->at : tail + (stream->at - tail) % member->n_tail;
            to[done] = ((const uint8_t *)member->bytes)[at];
        }
        return (zip_int64_t)done;
    } else if (command == ZIP_SOURCE_STAT) {
        zip_stat_t *facts = data;
        zip_stat_init(facts);
        facts->valid = ZIP_STAT_SIZE;
        facts->size = size_of(member);
        return sizeof *facts;
    } else if (command == ZIP_SOURCE_SUPPORTS) {
        return zip_source_make_command_bitmap(ZIP_SOURCE_OPEN, ZIP_SOURCE_READ, ZIP_SOURCE_CLOSE,
                                              ZIP_SOURCE_STAT, ZIP_SOURCE_ERROR, ZIP_SOURCE_FREE,
                                              -1);
    }
    return 0;
}

void data_files_zip(const struct idx_files *files, const char *name,
                    const struct zip_member *members, size_t n_members, int is_compressed)
{
    char path[400];
    struct stream streams[8];
    path_of(files, name, path);
    zip_t *zip = zip_open(path, ZIP_CREATE | ZIP_TRUNCATE, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(zip);
    for (size_t i = 0; i < n_members; i++) {
        streams[i] = (struct stream){.member = &members[i]};
        zip_source_t *source = zip_source_function(zip, produce, &streams[i]);
        const zip_int64_t index = zip_file_add(zip, members[i].name, source, 0);
        CU_ASSERT_FATAL(index >= 0);
        CU_ASSERT_EQUAL(zip_set_file_compression(zip, (zip_uint64_t)index,
                                                 is_compressed ? ZIP_CM_DEFLATE : ZIP_CM_STORE, 9),
                        0);
    }
    CU_ASSERT_EQUAL_FATAL(zip_close(zip), 0);
}
