/* out_folder: the folder that a command writes its files to, and gnuplot, which draws some of
 * them. */
#ifndef TALLY_SERVICES_CLI_OUT_FOLDER_H
#define TALLY_SERVICES_CLI_OUT_FOLDER_H

#include "codec/buffer.h"

/* Creates the folder unless it exists; its parent must exist. Errors: INVALID_ARGUMENT (in
 * `field`; NULL = in none). */
enum tally_status tally_folder_make(const char *folder, const char *field, struct tally_error *err);
/* The same for the folder that --out names. */
enum tally_status tally_out_folder_make(const char *folder, struct tally_error *err);

/* Writes the file folder/name as a whole. `made` is the status of producing the text; unless it is
 * OK, nothing is written, and `made` is returned. Errors: `made`, those of
 * tally_whole_file_write(). */
enum tally_status tally_out_folder_write(const char *folder, const char *name,
                                         enum tally_status made, const struct tally_buffer *text,
                                         struct tally_error *err);

/* Runs gnuplot on n scripts of the folder, in the folder. If gnuplot is not installed, prints a
 * line on stderr, which is not an error. Errors: INVALID_ARGUMENT (gnuplot rejected a script, with
 * the reason on stderr). */
enum tally_status tally_out_folder_draw(const char *folder, const char *const *scripts, size_t n,
                                        struct tally_error *err);

#endif
