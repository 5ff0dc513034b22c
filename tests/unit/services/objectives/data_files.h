/* data_files: writes small data files of every kind into the folder of idx_files.h. */
#ifndef TALLY_TESTS_UNIT_SERVICES_OBJECTIVES_DATA_FILES_H
#define TALLY_TESTS_UNIT_SERVICES_OBJECTIVES_DATA_FILES_H

#include "tests/unit/services/objectives/idx_files.h"

void data_files_text(const struct idx_files *files, const char *name, const char *text);

/* Makes the bytes of a .npy file, version 1.0; `header` is the text of the dictionary. Returns
 * their number, at most 12 + strlen(header) + n. */
size_t data_files_npy_bytes(const char *header, const void *values, size_t n, uint8_t *ret_bytes);
void data_files_npy(const struct idx_files *files, const char *name, const char *header,
                    const void *values, size_t n);

/* Writes a gzip file of `n_times` copies of `chunk`. */
void data_files_gzip(const struct idx_files *files, const char *name, const void *chunk, size_t n,
                     size_t n_times);

/* A member of a zip: its n bytes, the last n_tail of them repeated n_times. */
struct zip_member {
    const char *name;
    const void *bytes;
    size_t n, n_tail, n_times;
};
void data_files_zip(const struct idx_files *files, const char *name,
                    const struct zip_member *members, size_t n_members, int is_compressed);

#endif
