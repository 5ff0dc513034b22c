/* whole_file: files that are read and written in one piece; "-" is standard input or output. */
#ifndef TALLY_SERVICES_BASE_TEXT_WHOLE_FILE_H
#define TALLY_SERVICES_BASE_TEXT_WHOLE_FILE_H

#include "codec/base/buffer.h"

/* Appends the file's bytes; out->limit is heeded. Errors: INVALID_ARGUMENT (not readable),
 * TOO_LARGE, NO_MEMORY. */
enum tally_status tally_whole_file_read(const char *path, struct tally_buffer *out,
                                        struct tally_error *err);

/* Writes a temporary file beside `path`, syncs it and renames it: the file is there whole or not at
 * all, whatever happens. A symbolic link is followed; what is not a regular file (a device, a pipe)
 * is written to as it is. Errors: INVALID_ARGUMENT (cannot be created), UNAVAILABLE (disk full). */
enum tally_status tally_whole_file_write(const char *path, const void *bytes, size_t n,
                                         struct tally_error *err);

#endif
