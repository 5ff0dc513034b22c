/* idx_files: writes tiny IDX files, plain or gzip, into a folder of their own. */
#ifndef TALLY_TESTS_UNIT_SERVICES_OBJECTIVES_IDX_FILES_H
#define TALLY_TESTS_UNIT_SERVICES_OBJECTIVES_IDX_FILES_H

#include <stddef.h>
#include <stdint.h>

#include "services/objectives/data/idx.h"

enum { IDX_MAX_BYTES = 1 << 16 };

struct idx_files {
    char folder[64]; /* in /tmp */
};

/* idx_files_init() makes the folder, idx_files_fini() removes it with its contents. */
void idx_files_init(struct idx_files *files);
void idx_files_fini(struct idx_files *files);

void idx_files_write(const struct idx_files *files, const char *name, const uint8_t *bytes,
                     size_t n);
void idx_files_remove(const struct idx_files *files, const char *name);

/* Makes the bytes of an IDX file: n images of rows x columns, or n labels. Returns their number. */
size_t idx_images(uint32_t n, uint32_t rows, uint32_t columns, const uint8_t *pixels,
                  uint8_t ret_bytes[IDX_MAX_BYTES]);
size_t idx_labels(uint32_t n, const uint8_t *labels, uint8_t ret_bytes[IDX_MAX_BYTES]);

/* Makes a gzip file of `bytes` in stored blocks (RFC 1951, 1952); n < 65536 - 64. */
size_t idx_gzip(const uint8_t *bytes, size_t n, uint8_t ret_bytes[IDX_MAX_BYTES]);

#endif
