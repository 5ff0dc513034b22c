/* postgres_fill: the one transaction in which `tally migrate` fills an empty database.
 *
 * The transaction holds the lock for which a joining replica waits (TURN), so that no coordinator
 * starts on the database meanwhile. Killed anywhere, it leaves the database as it was. */
#include <string.h>

#include "storage/postgres/postgres_internal.h"

/* Programs up to 0.11.0 filled a database in many transactions, and marked it meanwhile. */
enum tally_status tally_pg_require_whole(struct tally_postgres *pg, struct tally_error *err)
{
    int64_t n_marks = 0;
    enum tally_status status = tally_pg_ask(pg, "SELECT count(*) FROM import_mark", &n_marks, err);
    if (status == TALLY_OK && n_marks > 0) {
        status = tally_fail(err, TALLY_FAILED_PRECONDITION, NULL,
                            "database \"%s\" holds only a part of another store: run tally migrate "
                            "again to replace it",
                            pg->label);
    }
    return status;
}

/* Uses the wall clock: by the clock of leases, the lease of a dead only replica does not expire
 * until another replica renews. */
static enum tally_status require_no_replica(struct tally_postgres *pg, struct tally_error *err)
{
    int64_t n_replicas = 0;
    enum tally_status status = tally_pg_ask(
        pg, "SELECT count(*) FROM replicas WHERE is_member AND expires_at >= clock_timestamp()",
        &n_replicas, err);
    if (status == TALLY_OK && n_replicas > 0) {
        status = tally_fail(err, TALLY_FAILED_PRECONDITION, NULL,
                            "database \"%s\": a coordinator uses it; stop it first", pg->label);
    }
    return status;
}

enum tally_status tally_pg_begin_filling(struct tally_postgres *pg, struct tally_error *err)
{
    static const char *const BEGIN[] = {
        "BEGIN",
        "SELECT FROM lease_turn FOR UPDATE", /* waits for at most lock_timeout */
        /* Reading the source may be slow. */
        "SET LOCAL idle_in_transaction_session_timeout = '60s'",
        "SET LOCAL statement_timeout = 0",
        NULL,
    };
    static const char *const DROP_MARKED_PART[] = {
        "DELETE FROM jobs WHERE EXISTS (SELECT FROM import_mark)",
        "DELETE FROM import_mark",
        NULL,
    };
    static const char LOCK_NOT_AVAILABLE[] = "55P03";
    struct tally_error why = TALLY_ERROR_INIT;
    pg->transaction.is_begun = true;
    enum tally_status status = tally_pg_exec(pg, BEGIN, &why);
    if (status != TALLY_OK) {
        return strcmp(pg->sqlstate, LOCK_NOT_AVAILABLE) == 0
                   ? tally_fail(err, TALLY_FAILED_PRECONDITION, NULL,
                                "database \"%s\": another migration into it is under way, or a "
                                "coordinator is starting",
                                pg->label)
                   : tally_fail(err, status, NULL, "%s", why.message);
    }
    status = require_no_replica(pg, err);
    return status == TALLY_OK ? tally_pg_exec(pg, DROP_MARKED_PART, err) : status;
}
