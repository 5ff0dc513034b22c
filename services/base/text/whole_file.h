/* whole_file: files that are read and written in one piece. */
#ifndef TALLY_SERVICES_BASE_TEXT_WHOLE_FILE_H
#define TALLY_SERVICES_BASE_TEXT_WHOLE_FILE_H

#include "codec/base/buffer.h"

/* The start of a small file as text, such as those below /proc; "" if it cannot be read. */
void tally_file_peek(const char *path, char *ret_text, size_t capacity);

/* Appends the file's bytes; out->limit is heeded. "-" is a file's name like any other. Errors:
 * INVALID_ARGUMENT (not readable), TOO_LARGE, NO_MEMORY. */
enum tally_status tally_file_read(const char *path, struct tally_buffer *out,
                                  struct tally_error *err);
/* As tally_file_read(), but "-" is standard input. */
enum tally_status tally_whole_file_read(const char *path, struct tally_buffer *out,
                                        struct tally_error *err);

/* Writes a temporary file beside `path`, syncs it and renames it: the file is there whole or not at
 * all, whatever happens. "-" is standard output. A symbolic link is followed; what is not a regular
 * file (a device, a pipe) is written to as it is. Errors: INVALID_ARGUMENT (cannot be created),
 * UNAVAILABLE (disk full). */
enum tally_status tally_whole_file_write(const char *path, const void *bytes, size_t n,
                                         struct tally_error *err);

#endif
