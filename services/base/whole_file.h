/* whole_file: files that are read and written in one piece. */
#ifndef TALLY_SERVICES_BASE_WHOLE_FILE_H
#define TALLY_SERVICES_BASE_WHOLE_FILE_H

#include "codec/buffer.h"

/* The start of a small file as text, such as those below /proc; "" if it cannot be read. */
void tally_file_peek(const char *path, char *ret_text, size_t capacity);

/* Appends the file's bytes, at most up to out->limit. "-" is an ordinary file name. Errors:
 * INVALID_ARGUMENT (not readable), TOO_LARGE, NO_MEMORY. */
enum tally_status tally_file_read(const char *path, struct tally_buffer *out,
                                  struct tally_error *err);
/* As tally_file_read(), but "-" is standard input. */
enum tally_status tally_whole_file_read(const char *path, struct tally_buffer *out,
                                        struct tally_error *err);

/* Writes a temporary file beside `path`, syncs it and renames it: `path` never names a partly
 * written file. "-" is standard output. A symbolic link is followed. Anything but a regular file (a
 * device, a pipe) is written to directly. Errors: INVALID_ARGUMENT (cannot be created), UNAVAILABLE
 * (disk full). */
enum tally_status tally_whole_file_write(const char *path, const void *bytes, size_t n,
                                         struct tally_error *err);

#endif
