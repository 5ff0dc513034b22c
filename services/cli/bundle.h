/* bundle: a job with its results in one file, to be handed on.
 *
 * A tar archive (POSIX ustar) of regular files, so that any tar reads it:
 *
 *   bundle.json    {"format": 1, "version": of the program that wrote it}
 *   document.json  the job document, as GET /v1/jobs/{id}/document sends it
 *   job.json       the job's detail, with its provenance
 *   rounds.jsonl   one round record per line; the metrics of a round stand in its record
 *   models.json    the models that the job has
 *   model.npy, model-best.npy, model-ROUND.npy   each of them
 *
 * The bundle of a job is the same, bit for bit, whenever it is made. */
#ifndef TALLY_SERVICES_CLI_BUNDLE_H
#define TALLY_SERVICES_CLI_BUNDLE_H

#include <stdbool.h>
#include <stdint.h>

#include "codec/buffer.h"
#include "codec/error.h"

/* ---- Writing. The file appears whole or not at all. */

struct tally_bundle_writer;

/* mtime_s: of all members, Unix time. Errors: INVALID_ARGUMENT (the file cannot be created),
 * NO_MEMORY. */
enum tally_status tally_bundle_create(const char *path, int64_t mtime_s,
                                      struct tally_bundle_writer **ret_writer,
                                      struct tally_error *err);
/* Begins a member, whose length need not be known: names have at most 99 bytes. */
void tally_bundle_begin(struct tally_bundle_writer *writer, const char *name);
void tally_bundle_write(struct tally_bundle_writer *writer, const void *bytes, size_t n);
void tally_bundle_add(struct tally_bundle_writer *writer, const char *name, const void *bytes,
                      size_t n);
/* Completes the file, unless `made`, the status of making its contents, is not OK; frees the
 * writer. *ret_n_bytes is the length of the file. Errors: `made`; UNAVAILABLE (a write failed: disk
 * full); TOO_LARGE (a member of 8 GiB or more). */
enum tally_status tally_bundle_commit(struct tally_bundle_writer *writer, enum tally_status made,
                                      uint64_t *ret_n_bytes, struct tally_error *err);

/* ---- Reading. */

/* Whether the file begins as a bundle does. */
bool tally_bundle_is_one(const char *path);
/* Appends the member's bytes, at most up to out->limit. Errors: INVALID_ARGUMENT (the file cannot
 * be read, or is damaged), NOT_FOUND (no such member), TOO_LARGE, NO_MEMORY. */
enum tally_status tally_bundle_read(const char *path, const char *name, struct tally_buffer *out,
                                    struct tally_error *err);

#endif
