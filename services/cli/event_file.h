/* event_file: a file of scalars over steps, as TensorBoard reads it.
 *
 * The file is a sequence of records, each of which is
 *
 *     uint64 length | masked CRC-32C of the length | payload | masked CRC-32C of the payload
 *
 * in little-endian order, where masked is ((crc >> 15) | (crc << 17)) + 0xa282ead8 (TFRecord). A
 * payload is a protobuf message Event: wall_time (1, double), step (2, int64), and file_version (3,
 * string) or summary (5). The summary has values (1) of tag (1) and simple_value (2, float) or
 * tensor (8) with metadata (9).
 *
 * All values of a step stand in one record, so a step is in the file as a whole or not at all. Only
 * one program at a time writes to a file; a reader may read meanwhile. */
#ifndef TALLY_SERVICES_CLI_EVENT_FILE_H
#define TALLY_SERVICES_CLI_EVENT_FILE_H

#include <stdint.h>

#include "codec/buffer.h"
#include "codec/error.h"

struct tally_event_file;

/* Opens the file to append to it, or creates it. What a program that was killed has left of a
 * record at the end of the file is removed. Errors: INVALID_ARGUMENT (it cannot be opened, or is no
 * intact event file), FAILED_PRECONDITION (another program is writing to it), INTERNAL, NO_MEMORY.
 */
enum tally_status tally_event_file_open(const char *path, double wall_time_s,
                                        struct tally_event_file **ret_file,
                                        struct tally_error *err);
void tally_event_file_close(struct tally_event_file *file); /* NULL is allowed */
/* The largest step in the file; -1 = there is none, only the record that begins each file. */
int64_t tally_event_file_last_step(const struct tally_event_file *file);

/* Adds a step, which takes its values until the next one; steps ascend. Writes the steps before it,
 * if they are many. Errors: those of tally_event_file_flush(). */
enum tally_status tally_event_begin(struct tally_event_file *file, double wall_time_s, int64_t step,
                                    struct tally_error *err);
/* Give the step a value. Errors: NO_MEMORY. */
enum tally_status tally_event_scalar(struct tally_event_file *file, const char *tag, double value);
/* A text in Markdown. */
enum tally_status tally_event_text(struct tally_event_file *file, const char *tag,
                                   const char *markdown);
/* Writes the steps that were added. After an error the file is as before the call, and the steps
 * remain to be written. Errors: INTERNAL (the disk is full; waiting does not help), NO_MEMORY. */
enum tally_status tally_event_file_flush(struct tally_event_file *file, struct tally_error *err);

/* CRC-32C (Castagnoli), as in RFC 3720. */
uint32_t tally_crc32c(const void *bytes, size_t n);

#endif
