#include "tests/unit/services/objectives/idx_files.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/harness.h"

void idx_files_init(struct idx_files *files)
{
    strcpy(files->folder, "/tmp/tally-idx-XXXXXX");
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(files->folder));
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *level)
{
    (void)info;
    (void)type;
    (void)level;
    return remove(path);
}

void idx_files_fini(struct idx_files *files)
{
    CU_ASSERT_EQUAL(nftw(files->folder, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}

static void path_of(const struct idx_files *files, const char *name, char ret_path[400])
{
    CU_ASSERT_FATAL(snprintf(ret_path, 400, "%s/%s", files->folder, name) < 400);
}

void idx_files_write(const struct idx_files *files, const char *name, const uint8_t *bytes,
                     size_t n)
{
    char path[400];
    path_of(files, name, path);
    FILE *file = fopen(path, "wb");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    CU_ASSERT_EQUAL(fwrite(bytes, 1, n, file), n);
    CU_ASSERT_EQUAL(fclose(file), 0);
}

void idx_files_remove(const struct idx_files *files, const char *name)
{
    char path[400];
    path_of(files, name, path);
    CU_ASSERT_EQUAL(unlink(path), 0);
}

static void put_size(uint8_t *at, uint32_t size)
{
    for (unsigned b = 0; b < 4; b++) {
        at[b] = (uint8_t)(size >> (24 - 8 * b));
    }
}

size_t idx_images(uint32_t n, uint32_t rows, uint32_t columns, const uint8_t *pixels,
                  uint8_t ret_bytes[IDX_MAX_BYTES])
{
    const size_t n_pixels = (size_t)n * rows * columns;
    CU_ASSERT_FATAL(16 + n_pixels <= IDX_MAX_BYTES);
    memcpy(ret_bytes, (const uint8_t[4]){0, 0, 8, 3}, 4);
    put_size(ret_bytes + 4, n);
    put_size(ret_bytes + 8, rows);
    put_size(ret_bytes + 12, columns);
    memcpy(ret_bytes + 16, pixels, n_pixels);
    return 16 + n_pixels;
}

size_t idx_labels(uint32_t n, const uint8_t *labels, uint8_t ret_bytes[IDX_MAX_BYTES])
{
    CU_ASSERT_FATAL(8 + n <= IDX_MAX_BYTES);
    memcpy(ret_bytes, (const uint8_t[4]){0, 0, 8, 1}, 4);
    put_size(ret_bytes + 4, n);
    memcpy(ret_bytes + 8, labels, n);
    return 8 + n;
}

static uint32_t crc32_of(const uint8_t *bytes, size_t n)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < n; i++) {
        crc ^= bytes[i];
        for (int b = 0; b < 8; b++) {
            crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0xedb88320) : 0);
        }
    }
    return ~crc;
}

static void put_little_endian(uint8_t *at, uint32_t value, unsigned n)
{
    for (unsigned b = 0; b < n; b++) {
        at[b] = (uint8_t)(value >> (8 * b));
    }
}

size_t idx_gzip(const uint8_t *bytes, size_t n, uint8_t ret_bytes[IDX_MAX_BYTES])
{
    CU_ASSERT_FATAL(n < IDX_MAX_BYTES - 64);
    const uint8_t header[11] = {0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255, 1 /* last block, stored */};
    memcpy(ret_bytes, header, 11);
    put_little_endian(ret_bytes + 11, (uint32_t)n, 2);
    put_little_endian(ret_bytes + 13, ~(uint32_t)n, 2);
    memcpy(ret_bytes + 15, bytes, n);
    put_little_endian(ret_bytes + 15 + n, crc32_of(bytes, n), 4);
    put_little_endian(ret_bytes + 19 + n, (uint32_t)n, 4);
    return 23 + n;
}
