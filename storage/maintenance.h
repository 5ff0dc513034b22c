/* maintenance: looking through a store, copying it and putting a copy back, for operators.
 *
 * All but restore work beside a coordinator that uses the store: they read one snapshot of it, take
 * no lock and change nothing. The log of a database that is read through cannot be cut meanwhile.
 */
#ifndef TALLY_STORAGE_MAINTENANCE_H
#define TALLY_STORAGE_MAINTENANCE_H

#include <stdbool.h>
#include <stdint.h>

#include "codec/base/error.h"

/* Called now and then: what is being done, and how far it is in some unit; total 0 = not known.
 * False stops the work, which then returns CANCELLED. */
struct tally_store_progress {
    bool (*tell)(void *context, const char *what, int64_t done, int64_t total);
    void *context;
};

struct tally_store_report {
    int schema_version;        /* of the database */
    int newest_schema_version; /* that this program knows, and migrates to when it opens it */
    int64_t n_bytes;           /* of the database, log included */
    int64_t n_jobs, n_live_jobs, n_rounds, n_updates;
};

/* Looks through all of a store. SQLite: structure, references, the checksum of every row (not in
 * schema version 1, which has none). PostgreSQL, which checks its pages itself: reads every row.
 * `progress` may be NULL. *ret_report is also written as far as it is known when damage is found.
 * Errors: NOT_FOUND (no such database), DATA_LOSS (the message has the first damage and, of SQLite,
 * how many there are), STORE, CANCELLED, INVALID_ARGUMENT (another kind of store); PostgreSQL also
 * FAILED_PRECONDITION (of an older schema, or only half filled by a migration). */
enum tally_status tally_store_verify(const char *uri, const struct tally_store_progress *progress,
                                     struct tally_store_report *ret_report,
                                     struct tally_error *err);

/* Copies a store, as it is at one instant, to the file `path`, which appears whole, verified and on
 * the medium, or not at all. Errors: those of verify, ALREADY_EXISTS if `path` is there and may not
 * be replaced. */
enum tally_status tally_store_backup(const char *uri, const char *path, bool replace,
                                     const struct tally_store_progress *progress,
                                     struct tally_error *err);

/* Verifies the copy in the file `path` and puts it in the place of the store. Errors: those of
 * verify for the copy, STORE also if a coordinator uses the store, ALREADY_EXISTS if there is one
 * and it may not be replaced. */
enum tally_status tally_store_restore(const char *uri, const char *path, bool replace,
                                      const struct tally_store_progress *progress,
                                      struct tally_error *err);

/* The process that has the store open as its coordinator, 0 for none, -1 for one that cannot be
 * named. Errors: INVALID_ARGUMENT, STORE. */
enum tally_status tally_store_owner(const char *uri, int64_t *ret_process, struct tally_error *err);

/* The path of the file that holds the store. Borrowed from `uri`. Errors: INVALID_ARGUMENT. */
enum tally_status tally_store_path(const char *uri, const char **ret_path, struct tally_error *err);

#endif
