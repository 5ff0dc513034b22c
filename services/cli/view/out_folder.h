/* out_folder: the folder that a command leaves its files in, and gnuplot for those that it can
 * draw. */
#ifndef TALLY_SERVICES_CLI_VIEW_OUT_FOLDER_H
#define TALLY_SERVICES_CLI_VIEW_OUT_FOLDER_H

#include "codec/base/buffer.h"

/* Makes the folder unless it is there; its parent must be. Errors: INVALID_ARGUMENT. */
enum tally_status tally_out_folder_make(const char *folder, struct tally_error *err);

/* Writes folder/name whole, if `made`, the status of making the text, is OK. Errors: NO_MEMORY if
 * it is not, those of tally_whole_file_write(). */
enum tally_status tally_out_folder_write(const char *folder, const char *name,
                                         enum tally_status made, const struct tally_buffer *text,
                                         struct tally_error *err);

/* Runs gnuplot on n scripts of the folder, in the folder. Where it is not installed a line on
 * stderr says so, and that is not an error. Errors: INVALID_ARGUMENT (it refused a script, and said
 * why on stderr). */
enum tally_status tally_out_folder_draw(const char *folder, const char *const *scripts, size_t n,
                                        struct tally_error *err);

#endif
