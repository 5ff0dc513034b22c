/* postgres_fill: the one transaction in which `tally migrate` fills an empty database.
 *
 * The transaction holds the lock for which a joining replica waits (TURN), so that no coordinator
 * starts on the database meanwhile. Killed anywhere, it leaves the database as it was. */
#include <string.h>

#include "storage/postgres/postgres_internal.h"

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
    return require_no_replica(pg, err);
}
