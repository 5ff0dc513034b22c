/* sqlite_schema: whose database it is, and the steps that bring it up to date.
 *
 * A migration, once released, never changes; a change of the schema is a new row. The columns are
 * those of columns.c. Conventions: reals are of type ANY, because REAL affinity writes -0.0 as the
 * integer 0 and loses the sign; NULL in one is NaN. 64-bit counters and checksums are stored as the
 * int64 of the same bits, so an x_checksum may print negative. */
#include "storage/sqlite_internal.h"

/* "Taly", so that file(1) and a careful operator can tell. */
#define APPLICATION_ID 0x54616c79

#define LEDGER_COLUMNS                                                                             \
    "uplink_formula_bits INTEGER NOT NULL, uplink_payload_bits INTEGER NOT NULL,"                  \
    "uplink_messages INTEGER NOT NULL, uplink_clipped INTEGER NOT NULL,"                           \
    "downlink_formula_bits INTEGER NOT NULL, downlink_payload_bits INTEGER NOT NULL,"              \
    "downlink_messages INTEGER NOT NULL, downlink_clipped INTEGER NOT NULL,"                       \
    "delivered_payload_bits INTEGER NOT NULL, control_bits INTEGER NOT NULL,"                      \
    "telemetry_bits INTEGER NOT NULL"

/* Entry i takes the schema from version i to i + 1. */
static const char *const MIGRATIONS[] = {
    "CREATE TABLE jobs ("
    "job_key INTEGER PRIMARY KEY,"
    "id TEXT NOT NULL UNIQUE,"
    "name TEXT NOT NULL,"
    "algorithm TEXT NOT NULL,"
    "status TEXT NOT NULL,"
    "reason TEXT NOT NULL,"
    "created_ms INTEGER NOT NULL, started_ms INTEGER NOT NULL, finished_ms INTEGER NOT NULL,"
    "clients INTEGER NOT NULL, dim INTEGER NOT NULL, horizon INTEGER NOT NULL,"
    "round INTEGER NOT NULL, time_step INTEGER NOT NULL,"
    "iterate INTEGER NOT NULL, stage INTEGER NOT NULL,"
    "cumulative_regret ANY,"
    "f_star ANY, has_f_star INTEGER NOT NULL,"
    "loss ANY, has_loss INTEGER NOT NULL,"
    "x_checksum INTEGER NOT NULL," LEDGER_COLUMNS ","
    "recovery_bits INTEGER NOT NULL,"
    "wire_in_bytes INTEGER NOT NULL, wire_out_bytes INTEGER NOT NULL,"
    "idempotency_key TEXT UNIQUE, request_digest INTEGER NOT NULL"
    ") STRICT;"

    "CREATE TABLE job_documents ("
    "job_key INTEGER PRIMARY KEY REFERENCES jobs ON DELETE CASCADE,"
    "document TEXT NOT NULL"
    ") STRICT;"

    "CREATE TABLE job_states ("
    "job_key INTEGER PRIMARY KEY REFERENCES jobs ON DELETE CASCADE,"
    "state BLOB NOT NULL"
    ") STRICT;"

    "CREATE TABLE updates ("
    "job_key INTEGER NOT NULL REFERENCES jobs ON DELETE CASCADE,"
    "round INTEGER NOT NULL,"
    "client INTEGER NOT NULL,"
    "body BLOB NOT NULL,"
    "PRIMARY KEY (job_key, round, client)"
    ") STRICT, WITHOUT ROWID;"

    "CREATE TABLE rounds ("
    "job_key INTEGER NOT NULL REFERENCES jobs ON DELETE CASCADE,"
    "round INTEGER NOT NULL,"
    "time_step INTEGER NOT NULL, iterate INTEGER NOT NULL, stage INTEGER NOT NULL,"
    "samples INTEGER NOT NULL, received INTEGER NOT NULL,"
    "norm ANY,"
    "passed INTEGER NOT NULL, cut INTEGER NOT NULL,"
    "loss ANY, cumulative_regret ANY," LEDGER_COLUMNS ","
    "PRIMARY KEY (job_key, round)"
    ") STRICT, WITHOUT ROWID;",

    "ALTER TABLE rounds ADD COLUMN missing TEXT NOT NULL DEFAULT '';",
};

enum { NEWEST_VERSION = sizeof MIGRATIONS / sizeof MIGRATIONS[0] };

enum tally_status tally_sqlite_identify(const struct tally_sqlite *sqlite, int *ret_version,
                                        struct tally_error *err)
{
    int64_t n_tables = 0;
    int64_t application_id = 0;
    int64_t version = 0;
    enum tally_status status =
        tally_sqlite_query(sqlite, "SELECT count(*) FROM sqlite_schema", &n_tables, err);
    if (status == TALLY_OK) {
        status = tally_sqlite_query(sqlite, "PRAGMA application_id", &application_id, err);
    }
    if (status == TALLY_OK) {
        status = tally_sqlite_query(sqlite, "PRAGMA user_version", &version, err);
    }
    if (status != TALLY_OK) {
        return status;
    }
    bool is_empty = n_tables == 0 && application_id == 0 && version == 0;
    if (!is_empty && application_id != APPLICATION_ID) {
        return tally_fail(err, TALLY_DATA_LOSS, NULL,
                          "database \"%s\" belongs to another program (application_id 0x%08x, "
                          "not 0x%08x)",
                          sqlite->path, (unsigned)application_id, APPLICATION_ID);
    }
    if (version > NEWEST_VERSION) {
        return tally_fail(err, TALLY_DATA_LOSS, NULL,
                          "database \"%s\" has schema version %lld, newer than %d, the newest that "
                          "this program knows",
                          sqlite->path, (long long)version, (int)NEWEST_VERSION);
    }
    if (!is_empty && version < 1) {
        return tally_fail(err, TALLY_DATA_LOSS, NULL,
                          "database \"%s\" has schema version %lld outside [1, %d]", sqlite->path,
                          (long long)version, (int)NEWEST_VERSION);
    }
    *ret_version = (int)version;
    return TALLY_OK;
}

/* Sets the header's fields in the transaction of the caller. */
static enum tally_status mark(const struct tally_sqlite *sqlite, int version,
                              struct tally_error *err)
{
    char sql[96];
    sqlite3_snprintf((int)sizeof sql, sql, "PRAGMA application_id = %d; PRAGMA user_version = %d;",
                     APPLICATION_ID, version);
    return tally_sqlite_exec(sqlite, sql, err);
}

/* Runs `sql` and marks the file as of `version`, both or neither. */
static enum tally_status apply(const struct tally_sqlite *sqlite, const char *sql, int version,
                               struct tally_error *err)
{
    enum tally_status status = tally_sqlite_exec(sqlite, "BEGIN IMMEDIATE", err);
    if (status != TALLY_OK) {
        return status;
    }
    status = tally_sqlite_exec(sqlite, sql, err);
    if (status == TALLY_OK) {
        status = mark(sqlite, version, err);
    }
    if (status == TALLY_OK) {
        status = tally_sqlite_exec(sqlite, "COMMIT", err);
    }
    if (sqlite3_get_autocommit(sqlite->db) == 0) {
        tally_sqlite_exec(sqlite, "ROLLBACK", NULL);
    }
    return status;
}

enum tally_status tally_sqlite_migrate(const struct tally_sqlite *sqlite, int version,
                                       struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    for (int i = version; i < NEWEST_VERSION && status == TALLY_OK; i++) {
        status = apply(sqlite, MIGRATIONS[i], i + 1, err);
    }
    return status;
}

enum tally_status tally_sqlite_touch(const struct tally_sqlite *sqlite, struct tally_error *err)
{
    return apply(sqlite, "", NEWEST_VERSION, err);
}
