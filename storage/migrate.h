/* migrate: moves a whole SQLite store into an empty PostgreSQL database.
 *
 *     read      source: lock, structure, row checksums; digest of all rows
 *     begin     target: it is empty, and no coordinator uses it
 *     copy      newest job first: row, document, state, the open round's updates, round records
 *     verify    digest of all rows of the target, compared with the source's job by job
 *     commit
 *
 * The target is filled in one transaction, so an interrupted migration leaves it empty. The source
 * is only read. */
#ifndef TALLY_STORAGE_MIGRATE_H
#define TALLY_STORAGE_MIGRATE_H

#include "storage/digest.h"

struct tally_migrate_report {
    bool was_there;              /* the target already held all of it, and nothing was written */
    int64_t n_copied_rows;       /* by this run */
    bool has_source, has_target; /* the array below is valid */
    struct tally_table_digest source[TALLY_N_TABLES];
    struct tally_table_digest target[TALLY_N_TABLES];
};

/* "sqlite:PATH" to "postgres:CONNINFO". `progress` may be NULL. *ret_report has what is known, also
 * on failure. Errors: INVALID_ARGUMENT (wrong kinds of store; field "from" or "to"), NOT_FOUND (no
 * such source), STORE (the source is in use, the target cannot be reached), DATA_LOSS (the source
 * is damaged, or the target does not read back as it was written), FAILED_PRECONDITION (the target
 * has other jobs, a coordinator, or another migration), CANCELLED, NO_MEMORY. */
enum tally_status tally_store_migrate(const char *from, const char *to,
                                      const struct tally_store_progress *progress,
                                      struct tally_migrate_report *ret_report,
                                      struct tally_error *err);

#endif
