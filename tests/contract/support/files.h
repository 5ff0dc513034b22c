/* files: reads and writes whole files, for tests that damage them. Failures end the test. */
#ifndef TALLY_TESTS_CONTRACT_SUPPORT_FILES_H
#define TALLY_TESTS_CONTRACT_SUPPORT_FILES_H

#include <stddef.h>
#include <stdint.h>

/* The file's bytes; the caller frees. */
uint8_t *file_read(const char *path, size_t *ret_n);
void file_write(const char *path, const void *bytes, size_t n);
/* Overwrites n bytes at `offset`, which must exist. */
void file_patch(const char *path, size_t offset, const void *bytes, size_t n);
/* Replaces every occurrence of a text, at least one, by another of the same length. */
void file_replace(const char *path, const char *old, const char *new);

#endif
