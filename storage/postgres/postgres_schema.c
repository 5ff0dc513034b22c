/* postgres_schema: whose database it is, and its tables.
 *
 * The columns of the widest tables are those of round_columns.c. Reals are exact in PostgreSQL;
 * 64-bit counters and checksums are stored as the bigint of the same bits, so an x_checksum may
 * print negative. Documents are bytea: they may be any bytes; convert_from(document, 'UTF8') shows
 * one. */
#include "storage/postgres/postgres_internal.h"

static const char *const TYPES[TALLY_N_COLUMN_KINDS] = {
    [TALLY_COLUMN_INT64] = "bigint NOT NULL",
    [TALLY_COLUMN_UINT64] = "bigint NOT NULL",
    [TALLY_COLUMN_REAL] = "double precision NOT NULL",
    [TALLY_COLUMN_BOOL] = "boolean NOT NULL",
    [TALLY_COLUMN_TEXT] = "text NOT NULL",
    [TALLY_COLUMN_STATUS] = "text NOT NULL",
};

/* {definitions} stand for those of `columns` (round_columns.h). */
static const struct {
    const struct tally_columns *columns;
    const char *sql;
} TABLES[] = {
    {NULL, "CREATE TABLE tally_schema (version bigint NOT NULL)"},

    {&TALLY_JOB_COLUMNS,
     "CREATE TABLE jobs ("
     "job_key bigint PRIMARY KEY,"
     "{definitions},"
     "idempotency_key text UNIQUE, request_digest bigint NOT NULL,"
     "UNIQUE (id)"
     ") WITH (fillfactor = 50)"}, /* a row changes in each round: room for its next version */
    /* Every heartbeat looks up the live jobs. The index keeps this cheap however many jobs have
     * ended. It does not make updates of a running job more expensive, because its status stays the
     * same. */
    {NULL, "CREATE INDEX jobs_live ON jobs (job_key)"
           " WHERE status NOT IN (" TALLY_SQL_TERMINAL_NAMES ")"},

    {NULL, "CREATE TABLE job_keys (last_key bigint NOT NULL)"},
    {NULL, "INSERT INTO job_keys VALUES (0)"},

    {NULL,
     "CREATE TABLE job_documents ("
     "job_key bigint PRIMARY KEY REFERENCES jobs ON DELETE CASCADE, document bytea NOT NULL)"},

    {NULL, "CREATE TABLE job_states ("
           "job_key bigint PRIMARY KEY REFERENCES jobs ON DELETE CASCADE, state bytea NOT NULL)"},

    /* What rounds have changed in a state since it was put. Changes and the bodies of updates are
     * packed bits, so compression would gain nothing. */
    {NULL, "CREATE TABLE job_state_changes ("
           "job_key bigint NOT NULL REFERENCES job_states ON DELETE CASCADE,"
           "round bigint NOT NULL, change bytea NOT NULL,"
           "PRIMARY KEY (job_key, round))"},
    {NULL, "ALTER TABLE job_state_changes ALTER COLUMN change SET STORAGE EXTERNAL"},

    {NULL, "CREATE TABLE updates ("
           "job_key bigint NOT NULL REFERENCES jobs ON DELETE CASCADE,"
           "round bigint NOT NULL, client bigint NOT NULL, body bytea NOT NULL,"
           "PRIMARY KEY (job_key, round, client))"},
    {NULL, "ALTER TABLE updates ALTER COLUMN body SET STORAGE EXTERNAL"},

    {&TALLY_ROUND_COLUMNS, "CREATE TABLE rounds ("
                           "job_key bigint NOT NULL REFERENCES jobs ON DELETE CASCADE,"
                           "{definitions},"
                           "PRIMARY KEY (job_key, round))"},

    {&TALLY_MODEL_COLUMNS, "CREATE TABLE models ("
                           "job_key bigint NOT NULL REFERENCES jobs ON DELETE CASCADE,"
                           "{definitions},"
                           "PRIMARY KEY (job_key, slot))"},
    {NULL, "CREATE TABLE model_points ("
           "job_key bigint NOT NULL, slot bigint NOT NULL, point bytea NOT NULL,"
           "PRIMARY KEY (job_key, slot),"
           "FOREIGN KEY (job_key, slot) REFERENCES models ON DELETE CASCADE)"},
    {NULL, "ALTER TABLE model_points ALTER COLUMN point SET STORAGE EXTERNAL"},

    {NULL, "CREATE TABLE replicas ("
           "number bigint PRIMARY KEY CHECK (number BETWEEN 1 AND 65535),"
           "id text NOT NULL UNIQUE, address text NOT NULL,"
           "jobs bigint NOT NULL, slots bigint NOT NULL, free_slots bigint NOT NULL,"
           "wants_key bigint NOT NULL, wants_slots bigint NOT NULL,"
           "lease interval NOT NULL, expires_at timestamptz NOT NULL, is_member boolean NOT NULL,"
           "incarnation bigint NOT NULL, backend_pid integer, backend_start timestamptz"
           ") WITH (fillfactor = 50)"},

    /* One row each: the time of the last renewal, and the lock that makes replicas join one after
     * the other. */
    {NULL, "CREATE TABLE lease_clock (renewed_at timestamptz NOT NULL) WITH (fillfactor = 10)"},
    {NULL, "INSERT INTO lease_clock VALUES (clock_timestamp())"},
    {NULL, "CREATE TABLE lease_turn (only_row boolean PRIMARY KEY)"},
    {NULL, "INSERT INTO lease_turn VALUES (true)"},

    {NULL, "CREATE TABLE job_leases ("
           "job_key bigint PRIMARY KEY REFERENCES jobs ON DELETE CASCADE,"
           "leader bigint REFERENCES replicas, token bigint NOT NULL"
           ") WITH (fillfactor = 50)"},
    {NULL, "CREATE INDEX job_leases_leader ON job_leases (leader)"},
};

enum tally_status tally_pg_identify(struct tally_postgres *pg, bool *ret_is_empty,
                                    struct tally_error *err)
{
    int64_t version = 0;
    int64_t is_there = 0;
    enum tally_status status = tally_pg_ask(
        pg, "SELECT (to_regclass('tally_schema') IS NOT NULL)::int::bigint", &is_there, err);
    if (status == TALLY_OK && is_there != 0) {
        status = tally_pg_ask(pg, "SELECT version FROM tally_schema", &version, err);
    }
    if (status == TALLY_OK && is_there != 0) {
        status = tally_schema_require(pg->label, version, err);
    }
    *ret_is_empty = is_there == 0;
    return status;
}

/* Makes the tables of an empty database, in the transaction of the caller. */
static enum tally_status make_tables(struct tally_postgres *pg, struct tally_error *err)
{
    const struct tally_columns_dialect dialect = {.types = TYPES};
    struct tally_buffer sql = {0};
    char mark[64];
    enum tally_status status = TALLY_OK;
    for (size_t i = 0; i < sizeof TABLES / sizeof TABLES[0] && status == TALLY_OK; i++) {
        sql.size = 0;
        status = tally_columns_expand(&sql, TABLES[i].sql, TABLES[i].columns, &dialect);
        if (status == TALLY_OK) {
            tally_pg_queue_sql(pg, (const char *)sql.data);
        }
    }
    tally_buffer_fini(&sql);
    if (status != TALLY_OK) {
        return tally_fail(err, status, NULL, "no memory for a table");
    }
    snprintf(mark, sizeof mark, "INSERT INTO tally_schema VALUES (%d)", TALLY_SCHEMA_VERSION);
    tally_pg_queue_sql(pg, mark);
    return tally_pg_exchange(pg, NULL, NULL, err);
}

enum tally_status tally_pg_create(struct tally_postgres *pg, struct tally_error *err)
{
    /* One lock per schema: another process that finds no tables waits, and then finds all of them.
     */
    static const char *const BEGIN[] = {
        "BEGIN",
        "SET LOCAL statement_timeout = 0",
        "SET LOCAL lock_timeout = 0",
        "SELECT pg_advisory_xact_lock(hashtextextended('tally_schema ' || current_schema(), 0))",
        NULL,
    };
    static const char *const COMMIT[] = {"COMMIT", NULL};
    static const char *const ROLLBACK[] = {"ROLLBACK", NULL};
    bool is_empty = false;
    enum tally_status status = tally_pg_exec(pg, BEGIN, err);
    if (status == TALLY_OK) {
        status = tally_pg_identify(pg, &is_empty, err);
    }
    if (status == TALLY_OK && is_empty) {
        status = make_tables(pg, err);
    }
    if (status == TALLY_OK) {
        status = tally_pg_exec(pg, COMMIT, err);
    }
    if (status != TALLY_OK && pg->connection != NULL) {
        tally_pg_exec(pg, ROLLBACK, NULL);
    }
    return status;
}
