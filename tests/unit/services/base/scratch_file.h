/* scratch_file: a temporary file for one test. */
#ifndef TALLY_TESTS_UNIT_SERVICES_PROGRAM_SCRATCH_FILE_H
#define TALLY_TESTS_UNIT_SERVICES_PROGRAM_SCRATCH_FILE_H

#include <stddef.h>

struct scratch_file {
    char path[64];
};

/* Creates the file. A disk error ends the test. */
void scratch_file_init(struct scratch_file *file, const void *bytes, size_t n);
void scratch_file_init_text(struct scratch_file *file, const char *text);
void scratch_file_fini(struct scratch_file *file);

#endif
