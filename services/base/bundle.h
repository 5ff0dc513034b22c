/* bundle: a job with its results in one file, to be handed on.
 *
 * A tar archive (POSIX ustar) of regular files, so that any tar reads it:
 *
 *   bundle.json    {"format": 2, "version": of the program that wrote it}
 *   document.json  the job document, as GET /v1/jobs/{id}/document sends it
 *   job.json       the job's detail, with its provenance
 *   rounds.jsonl   one round record per line; the metrics of a round stand in its record
 *   metrics.jsonl  {"round", "client", "metrics"} per line: what GET metrics lists
 *   traffic.jsonl  what GET traffic lists, one client per line
 *   models.json    the models that the job has
 *   model.npy, model-best.npy, model-ROUND.npy   each of them
 *   SHA256SUMS     of all these members, as sha256sum writes and checks it
 *
 * A job that has not started has neither models.json nor models. A program makes the same bundle of
 * a job, bit for bit, whenever it makes it. Format 1, of unreleased builds, lacks metrics.jsonl,
 * traffic.jsonl and SHA256SUMS. */
#ifndef TALLY_SERVICES_BASE_BUNDLE_H
#define TALLY_SERVICES_BASE_BUNDLE_H

#include <stdbool.h>
#include <stdint.h>

#include "codec/buffer.h"
#include "codec/error.h"

enum { TALLY_BUNDLE_FORMAT = 2 };

/* ---- Writing. The file appears whole or not at all. The sums are added at its end. */

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

/* ---- Reading a bundle in memory, completely. */

enum { TALLY_BUNDLE_NAME_CAPACITY = 100 }; /* with NUL */

struct tally_bundle_member {
    char name[TALLY_BUNDLE_NAME_CAPACITY];
    const uint8_t *bytes; /* of the archive */
    size_t n;
};

/* Finds a member without looking at its bytes or sums; false if there is none. */
bool tally_bundle_find(const uint8_t *bytes, size_t n, const char *name,
                       struct tally_bundle_member *ret_member);

/* Lists the members, in their order; free() frees them. Every byte of the archive counts: headers,
 * paddings and the end must be as a writer makes them, SHA256SUMS the last member, and its sums
 * those of all others. It does not look into the others. Errors: INVALID_ARGUMENT, whose field is
 * the damaged member, or "bundle". */
enum tally_status tally_bundle_list(const uint8_t *bytes, size_t n,
                                    struct tally_bundle_member **ret_members, size_t *ret_n,
                                    struct tally_error *err);

#endif
