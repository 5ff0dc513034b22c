/* backends: opens and maintains a store by its URI, whatever its kind.
 *
 * backends.c has one row per kind of store: "sqlite:PATH", "postgres:CONNINFO", "memory:".
 *
 * verify, backup and owner work beside a coordinator that uses the store: they read one snapshot of
 * it, take no lock and change nothing. Meanwhile the log of a SQLite database cannot be
 * truncated. */
#ifndef TALLY_STORAGE_BACKENDS_H
#define TALLY_STORAGE_BACKENDS_H

#include "storage/backend.h"
#include "storage/store.h"

/* Opens "sqlite:PATH", "postgres:CONNINFO" (also "postgres://..." and "postgresql://...") or
 * "memory:". Creates what is missing. `options` may be NULL. Errors: INVALID_ARGUMENT (unknown
 * scheme), STORE, DATA_LOSS (damaged), FAILED_PRECONDITION (of another schema version; the message
 * names the release that reads it); read-only also NOT_FOUND (no such store). The caller closes the
 * store with store->ops->close(store). */
enum tally_status tally_store_open(const char *uri, const struct tally_store_options *options,
                                   struct tally_store **ret_store, struct tally_error *err);

/* Appends the part of a URI that may be shown, with a NUL: everything but the password and the
 * options of a connection. Errors: NO_MEMORY. */
enum tally_status tally_store_label(const char *uri, struct tally_buffer *out);

/* Checks a whole store. SQLite: structure, references, the checksum of every row. PostgreSQL, which
 * checks its pages itself: reads every row. `progress` may be NULL. If damage is found, *ret_report
 * is written as far as it is known. Errors: NOT_FOUND (no such database, or an empty one),
 * DATA_LOSS (the message has the first damage and, for SQLite, how many there are),
 * FAILED_PRECONDITION (of another schema version), STORE, CANCELLED, INVALID_ARGUMENT (wrong kind
 * of store). */
enum tally_status tally_store_verify(const char *uri, const struct tally_store_progress *progress,
                                     struct tally_store_report *ret_report,
                                     struct tally_error *err);

/* Copies a store, as it is at one instant, to the file `path`, which appears whole, verified and on
 * the medium, or not at all. Errors: those of verify, ALREADY_EXISTS if `path` exists and may not
 * be replaced. */
enum tally_status tally_store_backup(const char *uri, const char *path, bool replace,
                                     const struct tally_store_progress *progress,
                                     struct tally_error *err);

/* Verifies the copy in the file `path` and replaces the store with it. Errors: those of verify for
 * the copy, STORE also if a coordinator uses the store, ALREADY_EXISTS if the store exists and may
 * not be replaced. */
enum tally_status tally_store_restore(const char *uri, const char *path, bool replace,
                                      const struct tally_store_progress *progress,
                                      struct tally_error *err);

/* The id of the coordinator process that has the store open; 0 = none, -1 = it left no id. Errors:
 * INVALID_ARGUMENT, STORE. */
enum tally_status tally_store_owner(const char *uri, int64_t *ret_process, struct tally_error *err);

/* The path of the store's file. Borrowed from `uri`. Errors: INVALID_ARGUMENT. */
enum tally_status tally_store_path(const char *uri, const char **ret_path, struct tally_error *err);

/* For migrate.c. Returns the backend of a URI, or NULL if there is none. *ret_location points into
 * `uri`. */
const struct tally_store_backend *tally_store_backend_of(const char *uri,
                                                         const char **ret_location);

#endif
