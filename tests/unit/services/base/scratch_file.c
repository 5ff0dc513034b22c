#include "tests/unit/services/base/scratch_file.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/harness.h"

void scratch_file_init(struct scratch_file *file, const void *bytes, size_t n)
{
    strcpy(file->path, "/tmp/tally-test-XXXXXX");
    int fd = mkstemp(file->path);
    CU_ASSERT_FATAL(fd >= 0);
    CU_ASSERT_FATAL(write(fd, bytes, n) == (ssize_t)n);
    close(fd);
}

void scratch_file_init_text(struct scratch_file *file, const char *text)
{
    scratch_file_init(file, text, strlen(text));
}

void scratch_file_fini(struct scratch_file *file)
{
    unlink(file->path);
}
