/* sqlite_schema: whose database it is, and its tables.
 *
 * The columns of the widest tables are those of round_columns.c. Conventions: reals are of type
 * ANY, because REAL affinity writes -0.0 as the integer 0 and loses the sign; NULL in one is NaN.
 * 64-bit counters and checksums are stored as the int64 of the same bits, so an x_checksum may
 * print negative. */
#include "storage/sqlite/sqlite_internal.h"

/* "Taly", so that file(1) and a careful operator can recognise it. */
#define APPLICATION_ID 0x54616c79

static const char *const TYPES[TALLY_N_COLUMN_KINDS] = {
    [TALLY_COLUMN_INT64] = "INTEGER NOT NULL",
    [TALLY_COLUMN_UINT64] = "INTEGER NOT NULL",
    [TALLY_COLUMN_REAL] = "ANY",
    [TALLY_COLUMN_BOOL] = "INTEGER NOT NULL",
    [TALLY_COLUMN_TEXT] = "TEXT NOT NULL",
    [TALLY_COLUMN_STATUS] = "TEXT NOT NULL",
};

/* {definitions} stand for those of `columns` (round_columns.h). */
static const struct {
    const struct tally_columns *columns;
    const char *sql;
} TABLES[] = {
    {&TALLY_JOB_COLUMNS, "CREATE TABLE jobs ("
                         "job_key INTEGER PRIMARY KEY,"
                         "{definitions},"
                         "idempotency_key TEXT UNIQUE,"
                         "request_digest INTEGER NOT NULL,"
                         "fixed_checksum INTEGER NOT NULL,"
                         "row_checksum INTEGER NOT NULL,"
                         "UNIQUE (id)"
                         ") STRICT"},
    {NULL, "CREATE TABLE job_documents ("
           "job_key INTEGER PRIMARY KEY REFERENCES jobs ON DELETE CASCADE,"
           "document TEXT NOT NULL,"
           "row_checksum INTEGER NOT NULL"
           ") STRICT"},
    {NULL, "CREATE TABLE job_states ("
           "job_key INTEGER PRIMARY KEY REFERENCES jobs ON DELETE CASCADE,"
           "row_checksum INTEGER NOT NULL,"
           "state BLOB NOT NULL"
           ") STRICT"},
    /* What rounds have changed in a state since it was put. This table and the next one hold long
     * values, so they have rowids: without, SQLite reads whole values to compare their keys. */
    {NULL, "CREATE TABLE job_state_changes ("
           "job_key INTEGER NOT NULL REFERENCES job_states ON DELETE CASCADE,"
           "round INTEGER NOT NULL,"
           "row_checksum INTEGER NOT NULL,"
           "change BLOB NOT NULL,"
           "PRIMARY KEY (job_key, round)"
           ") STRICT"},
    {NULL, "CREATE TABLE updates ("
           "job_key INTEGER NOT NULL REFERENCES jobs ON DELETE CASCADE,"
           "round INTEGER NOT NULL,"
           "client INTEGER NOT NULL,"
           "row_checksum INTEGER NOT NULL,"
           "body BLOB NOT NULL,"
           "PRIMARY KEY (job_key, round, client)"
           ") STRICT"},
    {&TALLY_ROUND_COLUMNS, "CREATE TABLE rounds ("
                           "job_key INTEGER NOT NULL REFERENCES jobs ON DELETE CASCADE,"
                           "{definitions},"
                           "row_checksum INTEGER NOT NULL,"
                           "PRIMARY KEY (job_key, round)"
                           ") STRICT, WITHOUT ROWID"},
    {&TALLY_MODEL_COLUMNS, "CREATE TABLE models ("
                           "job_key INTEGER NOT NULL REFERENCES jobs ON DELETE CASCADE,"
                           "{definitions},"
                           "row_checksum INTEGER NOT NULL,"
                           "PRIMARY KEY (job_key, slot)"
                           ") STRICT, WITHOUT ROWID"},
    /* The numbers of the models: apart, so that a list of models does not read them. */
    {NULL, "CREATE TABLE model_points ("
           "job_key INTEGER NOT NULL,"
           "slot INTEGER NOT NULL,"
           "row_checksum INTEGER NOT NULL,"
           "point BLOB NOT NULL,"
           "PRIMARY KEY (job_key, slot),"
           "FOREIGN KEY (job_key, slot) REFERENCES models ON DELETE CASCADE"
           ") STRICT"},
};

enum tally_status tally_sqlite_identify(const struct tally_sqlite *sqlite, bool *ret_is_empty,
                                        struct tally_error *err)
{
    int64_t n_tables = 0;
    int64_t application_id = 0;
    int64_t version = 0;
    struct tally_error why = TALLY_ERROR_INIT;
    enum tally_status status =
        tally_sqlite_query(sqlite, "SELECT count(*) FROM sqlite_schema", &n_tables, &why);
    if (status == TALLY_DATA_LOSS && tally_sqlite_require_header_size(sqlite, err) != TALLY_OK) {
        return status; /* the schema is malformed because its pages are not there */
    }
    if (status != TALLY_OK) {
        return tally_fail(err, status, NULL, "%s", why.message);
    }
    status = tally_sqlite_query(sqlite, "PRAGMA application_id", &application_id, err);
    if (status == TALLY_OK) {
        status = tally_sqlite_query(sqlite, "PRAGMA user_version", &version, err);
    }
    if (status != TALLY_OK) {
        return status;
    }
    *ret_is_empty = n_tables == 0 && application_id == 0 && version == 0;
    if (*ret_is_empty) {
        return TALLY_OK;
    }
    status = application_id == APPLICATION_ID
                 ? tally_schema_require(sqlite->path, version, err)
                 : tally_fail(err, TALLY_DATA_LOSS, NULL,
                              "database \"%s\" belongs to another program (application_id 0x%08x, "
                              "not 0x%08x)",
                              sqlite->path, (unsigned)application_id, APPLICATION_ID);
    if (status != TALLY_OK) { /* nothing in it changes: closing does not move its log into it */
        sqlite3_db_config(sqlite->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    }
    return status;
}

static enum tally_status make_tables(const struct tally_sqlite *sqlite, struct tally_error *err)
{
    const struct tally_columns_dialect dialect = {.types = TYPES};
    struct tally_buffer sql = {0};
    enum tally_status status = TALLY_OK;
    for (size_t i = 0; i < sizeof TABLES / sizeof TABLES[0] && status == TALLY_OK; i++) {
        sql.size = 0;
        status = tally_columns_expand(&sql, TABLES[i].sql, TABLES[i].columns, &dialect);
        status = status == TALLY_OK ? tally_sqlite_exec(sqlite, (const char *)sql.data, err)
                                    : tally_fail(err, status, NULL, "no memory for a table");
    }
    tally_buffer_fini(&sql);
    return status;
}

/* Sets the header's fields in the transaction of the caller. */
static enum tally_status mark(const struct tally_sqlite *sqlite, struct tally_error *err)
{
    char sql[96];
    sqlite3_snprintf((int)sizeof sql, sql, "PRAGMA application_id = %d; PRAGMA user_version = %d;",
                     APPLICATION_ID, TALLY_SCHEMA_VERSION);
    return tally_sqlite_exec(sqlite, sql, err);
}

/* All or nothing: a new file is never visible half-made. */
static enum tally_status apply(const struct tally_sqlite *sqlite, bool is_empty,
                               struct tally_error *err)
{
    enum tally_status status = tally_sqlite_exec(sqlite, "BEGIN IMMEDIATE", err);
    if (status == TALLY_OK && is_empty) {
        status = make_tables(sqlite, err);
    }
    if (status == TALLY_OK) {
        status = mark(sqlite, err);
    }
    if (status == TALLY_OK) {
        status = tally_sqlite_exec(sqlite, "COMMIT", err);
    }
    if (sqlite3_get_autocommit(sqlite->db) == 0) {
        tally_sqlite_exec(sqlite, "ROLLBACK", NULL);
    }
    return status;
}

enum tally_status tally_sqlite_create(const struct tally_sqlite *sqlite, struct tally_error *err)
{
    return apply(sqlite, true, err);
}

enum tally_status tally_sqlite_touch(const struct tally_sqlite *sqlite, struct tally_error *err)
{
    return apply(sqlite, false, err);
}
