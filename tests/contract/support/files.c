#include "tests/contract/support/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/harness.h"

void file_write(const char *path, const void *bytes, size_t n)
{
    FILE *file = fopen(path, "wb");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    CU_ASSERT_EQUAL(fwrite(bytes, 1, n, file), n);
    fclose(file);
}

uint8_t *file_read(const char *path, size_t *ret_n)
{
    struct stat info;
    CU_ASSERT_EQUAL_FATAL(stat(path, &info), 0);
    size_t n = (size_t)info.st_size;
    uint8_t *bytes = malloc(n + 1);
    FILE *file = fopen(path, "rb");
    CU_ASSERT_FATAL(bytes != NULL && file != NULL);
    CU_ASSERT_EQUAL_FATAL(fread(bytes, 1, n, file), n);
    fclose(file);
    *ret_n = n;
    return bytes;
}

void file_patch(const char *path, size_t offset, const void *bytes, size_t n)
{
    size_t n_file = 0;
    uint8_t *file = file_read(path, &n_file);
    CU_ASSERT_FATAL(offset + n <= n_file);
    memcpy(file + offset, bytes, n);
    file_write(path, file, n_file);
    free(file);
}

void file_replace(const char *path, const char *old, const char *new)
{
    size_t n_file = 0;
    uint8_t *file = file_read(path, &n_file);
    int n_found = 0;
    uint8_t *at = memmem(file, n_file, old, strlen(old));
    while (at != NULL) {
        memcpy(at, new, strlen(new));
        n_found++;
        at = memmem(file, n_file, old, strlen(old));
    }
    CU_ASSERT(n_found > 0);
    file_write(path, file, n_file);
    free(file);
}
