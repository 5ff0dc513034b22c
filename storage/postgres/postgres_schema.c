/* postgres_schema: whose database it is, and the steps that bring it up to date.
 *
 * A migration, once released, never changes; a change of the schema is a new migration.
 * The versions are this backend's own and say nothing about those of SQLite. Reals are exact in
 * PostgreSQL; 64-bit counters and checksums are stored as the bigint of the same bits, so an
 * x_checksum may print negative. Documents are bytea: they may be any bytes; convert_from(document,
 * 'UTF8') shows one.
 */
#include "storage/postgres/postgres_internal.h"

#define LEDGER_COLUMNS                                                                             \
    "uplink_formula_bits bigint NOT NULL, uplink_payload_bits bigint NOT NULL,"                    \
    "uplink_messages bigint NOT NULL, uplink_clipped bigint NOT NULL,"                             \
    "downlink_formula_bits bigint NOT NULL, downlink_payload_bits bigint NOT NULL,"                \
    "downlink_messages bigint NOT NULL, downlink_clipped bigint NOT NULL,"                         \
    "delivered_payload_bits bigint NOT NULL, control_bits bigint NOT NULL,"                        \
    "telemetry_bits bigint NOT NULL"

static const char *const VERSION_1[] = {
    "CREATE TABLE tally_schema (version bigint NOT NULL)",
    "INSERT INTO tally_schema VALUES (0)",

    "CREATE TABLE jobs ("
    "job_key bigint PRIMARY KEY,"
    "id text NOT NULL UNIQUE, name text NOT NULL, algorithm text NOT NULL,"
    "status text NOT NULL, reason text NOT NULL,"
    "created_ms bigint NOT NULL, started_ms bigint NOT NULL, finished_ms bigint NOT NULL,"
    "clients bigint NOT NULL, dim bigint NOT NULL, horizon bigint NOT NULL,"
    "round bigint NOT NULL, time_step bigint NOT NULL,"
    "iterate bigint NOT NULL, stage bigint NOT NULL,"
    "cumulative_regret double precision NOT NULL,"
    "f_star double precision NOT NULL, has_f_star boolean NOT NULL,"
    "loss double precision NOT NULL, has_loss boolean NOT NULL,"
    "x_checksum bigint NOT NULL," LEDGER_COLUMNS ","
    "recovery_bits bigint NOT NULL,"
    "wire_in_bytes bigint NOT NULL, wire_out_bytes bigint NOT NULL,"
    "estimated_sigma double precision NOT NULL,"
    "estimated_gradient_bound double precision NOT NULL,"
    "smoothness double precision NOT NULL, strong_convexity double precision NOT NULL,"
    "idempotency_key text UNIQUE, request_digest bigint NOT NULL"
    ") WITH (fillfactor = 50)", /* a row changes in each round: room for its next version */

    "CREATE TABLE job_keys (last_key bigint NOT NULL)",
    "INSERT INTO job_keys VALUES (0)",

    "CREATE TABLE job_documents ("
    "job_key bigint PRIMARY KEY REFERENCES jobs ON DELETE CASCADE, document bytea NOT NULL)",

    "CREATE TABLE job_states ("
    "job_key bigint PRIMARY KEY REFERENCES jobs ON DELETE CASCADE, state bytea NOT NULL)",

    "CREATE TABLE updates ("
    "job_key bigint NOT NULL REFERENCES jobs ON DELETE CASCADE,"
    "round bigint NOT NULL, client bigint NOT NULL, body bytea NOT NULL,"
    "PRIMARY KEY (job_key, round, client))",
    /* The bodies are packed bits, so compression would gain nothing. */
    "ALTER TABLE updates ALTER COLUMN body SET STORAGE EXTERNAL",

    "CREATE TABLE rounds ("
    "job_key bigint NOT NULL REFERENCES jobs ON DELETE CASCADE,"
    "round bigint NOT NULL,"
    "time_step bigint NOT NULL, iterate bigint NOT NULL, stage bigint NOT NULL,"
    "samples bigint NOT NULL, received bigint NOT NULL,"
    "norm double precision NOT NULL, passed boolean NOT NULL, cut boolean NOT NULL,"
    "loss double precision NOT NULL, cumulative_regret double precision NOT NULL," LEDGER_COLUMNS
    ","
    "missing text NOT NULL,"
    "PRIMARY KEY (job_key, round))",

    "CREATE TABLE replicas ("
    "number bigint PRIMARY KEY CHECK (number BETWEEN 1 AND 65535),"
    "id text NOT NULL UNIQUE, address text NOT NULL,"
    "jobs bigint NOT NULL, slots bigint NOT NULL, free_slots bigint NOT NULL,"
    "wants_key bigint NOT NULL, wants_slots bigint NOT NULL,"
    "lease interval NOT NULL, expires_at timestamptz NOT NULL, is_member boolean NOT NULL,"
    "session bigint NOT NULL, backend_pid integer, backend_start timestamptz"
    ") WITH (fillfactor = 50)",

    /* One row each: the time of the last renewal, and the lock that makes replicas join one after
     * the other. */
    "CREATE TABLE lease_clock (renewed_at timestamptz NOT NULL) WITH (fillfactor = 10)",
    "INSERT INTO lease_clock VALUES (clock_timestamp())",
    "CREATE TABLE lease_turn (only_row boolean PRIMARY KEY)",
    "INSERT INTO lease_turn VALUES (true)",

    "CREATE TABLE job_leases ("
    "job_key bigint PRIMARY KEY REFERENCES jobs ON DELETE CASCADE,"
    "leader bigint REFERENCES replicas, token bigint NOT NULL"
    ") WITH (fillfactor = 50)",
    "CREATE INDEX job_leases_leader ON job_leases (leader)",

    /* Contains a row while the database is filled from another store: a checksum of that store. */
    "CREATE TABLE import_mark (source bigint NOT NULL)",
    NULL,
};

/* Every heartbeat looks up the live jobs. The index keeps this cheap however many jobs have ended.
 * It does not make updates of a running job more expensive, because its status stays the same. */
static const char *const VERSION_2[] = {
    "CREATE INDEX jobs_live ON jobs (job_key)"
    " WHERE status NOT IN ('', 'completed', 'failed', 'cancelled')",
    NULL,
};

/* What rounds changed in a state since it was put. A coordinator of an older version would take a
 * state without its changes for the whole state, so it must not lead a job from now on. Because the
 * column is renamed, it can neither renew its lease nor take a job, and its jobs go to others. */
static const char *const VERSION_3[] = {
    "ALTER TABLE replicas RENAME COLUMN session TO incarnation",
    "CREATE TABLE job_state_changes ("
    "job_key bigint NOT NULL REFERENCES job_states ON DELETE CASCADE,"
    "round bigint NOT NULL, change bytea NOT NULL,"
    "PRIMARY KEY (job_key, round))",
    /* The changes are packed bits, so compression would gain nothing. */
    "ALTER TABLE job_state_changes ALTER COLUMN change SET STORAGE EXTERNAL",
    NULL,
};

/* The schedule that was planned for a job. Coordinators of older versions do not touch it. */
static const char *const VERSION_4[] = {
    "ALTER TABLE jobs ADD COLUMN schedule text NOT NULL DEFAULT ''",
    NULL,
};

/* Entry i takes the schema from version i to i + 1; after the last entry add_columns() does. */
static const char *const *const MIGRATIONS[] = {VERSION_1, VERSION_2, VERSION_3, VERSION_4};

enum {
    N_MIGRATIONS = sizeof MIGRATIONS / sizeof MIGRATIONS[0],
    SQLITE_AHEAD = 2, /* SQLite schema versions before version 1 here; for tally_column.since */
};
_Static_assert((int)N_MIGRATIONS >= (int)TALLY_COLUMNS_FIRST_ADDING - SQLITE_AHEAD - 1,
               "no version is left out");

int tally_pg_newest_version(void)
{
    const int newest = tally_columns_newest() - SQLITE_AHEAD;
    return newest > N_MIGRATIONS ? newest : N_MIGRATIONS;
}

/* Adds the columns of a version, empty. Coordinators of older versions do not touch them. */
static enum tally_status add_columns(struct tally_postgres *pg, int version,
                                     struct tally_error *err)
{
    static const char *const TYPES[] = {
        [TALLY_COLUMN_INT64] = "bigint NOT NULL DEFAULT 0",
        [TALLY_COLUMN_UINT64] = "bigint NOT NULL DEFAULT 0",
        [TALLY_COLUMN_REAL] = "double precision NOT NULL DEFAULT 'NaN'",
        [TALLY_COLUMN_BOOL] = "boolean NOT NULL DEFAULT false",
        [TALLY_COLUMN_TEXT] = "text NOT NULL DEFAULT ''",
        [TALLY_COLUMN_STATUS] = "text NOT NULL DEFAULT ''",
    };
    static const struct tally_columns *const TABLES[] = {&TALLY_JOB_COLUMNS, &TALLY_ROUND_COLUMNS};
    enum tally_status status = TALLY_OK;
    for (size_t t = 0; t < sizeof TABLES / sizeof TABLES[0]; t++) {
        for (int c = 0; c < TABLES[t]->n_columns && status == TALLY_OK; c++) {
            const struct tally_column *column = &TABLES[t]->column[c];
            char sql[256];
            const char *const statements[] = {sql, NULL};
            snprintf(sql, sizeof sql, "ALTER TABLE %s ADD COLUMN %s %s", TABLES[t]->table,
                     column->name, TYPES[column->kind]);
            if (column->since == version + SQLITE_AHEAD) {
                status = tally_pg_exec(pg, statements, err);
            }
        }
    }
    return status;
}

enum tally_status tally_pg_identify(struct tally_postgres *pg, int64_t *ret_version,
                                    struct tally_error *err)
{
    int64_t version = 0;
    int64_t is_there = 0;
    enum tally_status status = tally_pg_ask(
        pg, "SELECT (to_regclass('tally_schema') IS NOT NULL)::int::bigint", &is_there, err);
    if (status == TALLY_OK && is_there != 0) {
        status = tally_pg_ask(pg, "SELECT version FROM tally_schema", &version, err);
    }
    if (status != TALLY_OK) {
        return status;
    }
    const int newest = tally_pg_newest_version();
    if (version > newest) {
        return tally_fail(err, TALLY_DATA_LOSS, NULL,
                          "database \"%s\" has schema version %lld, newer than %d, the newest that "
                          "this program knows",
                          pg->label, (long long)version, newest);
    }
    if (is_there != 0 && version < 1) {
        return tally_fail(err, TALLY_DATA_LOSS, NULL,
                          "database \"%s\" has schema version %lld outside [1, %d]", pg->label,
                          (long long)version, newest);
    }
    *ret_version = version;
    return TALLY_OK;
}

/* Brings the schema to the newest version, in the transaction of the caller. */
static enum tally_status apply(struct tally_postgres *pg, struct tally_error *err)
{
    int64_t version = 0;
    enum tally_status status = tally_pg_identify(pg, &version, err);
    const int newest = tally_pg_newest_version();
    for (int i = (int)version; i < newest && status == TALLY_OK; i++) {
        if (i < N_MIGRATIONS) {
            status = tally_pg_exec(pg, MIGRATIONS[i], err);
        }
        if (i + 1 + SQLITE_AHEAD >= TALLY_COLUMNS_FIRST_ADDING && status == TALLY_OK) {
            status = add_columns(pg, i + 1, err);
        }
    }
    if (status == TALLY_OK && version < newest) {
        char mark[64];
        snprintf(mark, sizeof mark, "UPDATE tally_schema SET version = %d", newest);
        const char *const statements[] = {mark, NULL};
        status = tally_pg_exec(pg, statements, err);
    }
    return status;
}

enum tally_status tally_pg_migrate(struct tally_postgres *pg, struct tally_error *err)
{
    /* One lock per schema: another process that finds no tables waits, and then finds all of them.
     * No time limit: a step may rewrite large tables, and other processes wait for it. */
    static const char *const BEGIN[] = {
        "BEGIN",
        "SET LOCAL statement_timeout = 0",
        "SET LOCAL lock_timeout = 0",
        "SELECT pg_advisory_xact_lock(hashtextextended('tally_schema ' || current_schema(), 0))",
        NULL,
    };
    static const char *const COMMIT[] = {"COMMIT", NULL};
    static const char *const ROLLBACK[] = {"ROLLBACK", NULL};
    enum tally_status status = tally_pg_exec(pg, BEGIN, err);
    if (status == TALLY_OK) {
        status = apply(pg, err);
    }
    if (status == TALLY_OK) {
        status = tally_pg_exec(pg, COMMIT, err);
    }
    if (status != TALLY_OK && pg->connection != NULL) {
        tally_pg_exec(pg, ROLLBACK, NULL);
    }
    return status;
}
