/* sqlite_schema: whose database it is, and the steps that bring it up to date.
 *
 * A migration, once released, never changes; a change of the schema is a new migration.
 * The columns are those of round_columns.c. Conventions: reals are of type ANY, because REAL
 * affinity writes -0.0 as the integer 0 and loses the sign; NULL in one is NaN. 64-bit counters and
 * checksums are stored as the int64 of the same bits, so an x_checksum may print negative. */
#include "storage/sqlite/sqlite_internal.h"

/* "Taly", so that file(1) and a careful operator can recognise it. */
#define APPLICATION_ID 0x54616c79

/* As of version 2: the columns that a checksum covers, in their order. */
#define LEDGER_NAMES_2                                                                             \
    "uplink_formula_bits, uplink_payload_bits, uplink_messages, uplink_clipped,"                   \
    "downlink_formula_bits, downlink_payload_bits, downlink_messages, downlink_clipped,"           \
    "delivered_payload_bits, control_bits, telemetry_bits"

/* As of version 4: the columns that the row checksum of a job covers. */
#define MOVING_NAMES_4                                                                             \
    "status, reason, started_ms, finished_ms, round, time_step, iterate, stage,"                   \
    " cumulative_regret, f_star, has_f_star, loss, has_loss, x_checksum, " LEDGER_NAMES_2          \
    ", recovery_bits, wire_in_bytes, wire_out_bytes, estimated_sigma, estimated_gradient_bound,"   \
    " smoothness, strong_convexity"

#define LEDGER_COLUMNS                                                                             \
    "uplink_formula_bits INTEGER NOT NULL, uplink_payload_bits INTEGER NOT NULL,"                  \
    "uplink_messages INTEGER NOT NULL, uplink_clipped INTEGER NOT NULL,"                           \
    "downlink_formula_bits INTEGER NOT NULL, downlink_payload_bits INTEGER NOT NULL,"              \
    "downlink_messages INTEGER NOT NULL, downlink_clipped INTEGER NOT NULL,"                       \
    "delivered_payload_bits INTEGER NOT NULL, control_bits INTEGER NOT NULL,"                      \
    "telemetry_bits INTEGER NOT NULL"

/* Entry i takes the schema from version i to i + 1; after the last entry add_columns() does. */
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

    /* 1 to 2: which clients did not answer, row checksums. */
    "ALTER TABLE rounds ADD COLUMN missing TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE jobs ADD COLUMN fixed_checksum INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE jobs ADD COLUMN row_checksum INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE job_documents ADD COLUMN row_checksum INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE job_states ADD COLUMN row_checksum INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE updates ADD COLUMN row_checksum INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE rounds ADD COLUMN row_checksum INTEGER NOT NULL DEFAULT 0;"
    "UPDATE jobs SET fixed_checksum = tally_checksum('jobs', job_key, idempotency_key,"
    " request_digest, id, name, algorithm, created_ms, clients, dim, horizon);"
    "UPDATE jobs SET row_checksum = tally_checksum('jobs', fixed_checksum, status, reason,"
    " started_ms, finished_ms, round, time_step, iterate, stage, cumulative_regret, f_star,"
    " has_f_star, loss, has_loss, x_checksum, " LEDGER_NAMES_2 ", recovery_bits, wire_in_bytes,"
    " wire_out_bytes);"
    "UPDATE job_documents SET row_checksum = tally_checksum('job_documents', job_key, document);"
    "UPDATE job_states SET row_checksum = tally_checksum('job_states', job_key, state);"
    "UPDATE updates SET row_checksum = tally_checksum('updates', job_key, round, client, body);"
    "UPDATE rounds SET row_checksum = tally_checksum('rounds', job_key, round, time_step, iterate,"
    " stage, samples, received, norm, passed, cut, loss, cumulative_regret, " LEDGER_NAMES_2
    ", missing);",

    /* 2 to 3: the tables are the same, but the bits of "unary" have a different order
     * (codec/FORMAT.md, version 2), and a message in the old order can often be decoded in the new
     * one, to other levels. Until then every job of this algorithm was "unary"; updates of other
     * algorithms have no levels. Clients that are asked again send the same levels, which are a
     * function of job and seed. */
    "DELETE FROM updates WHERE job_key IN (SELECT job_key FROM jobs WHERE algorithm = 'ceal');",

    /* 3 to 4: the results of opening rounds, which no job had before, and the curvature of f, which
     * was not determined before. A row that was damaged keeps its checksum, and stays damaged. */
    "ALTER TABLE jobs ADD COLUMN estimated_sigma ANY DEFAULT 0.0;"
    "ALTER TABLE jobs ADD COLUMN estimated_gradient_bound ANY DEFAULT 0.0;"
    "ALTER TABLE jobs ADD COLUMN smoothness ANY;"
    "ALTER TABLE jobs ADD COLUMN strong_convexity ANY;"
    "UPDATE jobs SET row_checksum = tally_checksum('jobs', fixed_checksum, status, reason,"
    " started_ms, finished_ms, round, time_step, iterate, stage, cumulative_regret, f_star,"
    " has_f_star, loss, has_loss, x_checksum, " LEDGER_NAMES_2 ", recovery_bits, wire_in_bytes,"
    " wire_out_bytes, estimated_sigma, estimated_gradient_bound, smoothness, strong_convexity)"
    " WHERE row_checksum = tally_checksum('jobs', fixed_checksum, status, reason, started_ms,"
    " finished_ms, round, time_step, iterate, stage, cumulative_regret, f_star, has_f_star, loss,"
    " has_loss, x_checksum, " LEDGER_NAMES_2 ", recovery_bits, wire_in_bytes, wire_out_bytes);",

    /* 4 to 5: a state may be put whole once, and then only what rounds change in it. */
    "CREATE TABLE job_state_changes ("
    "job_key INTEGER NOT NULL REFERENCES job_states ON DELETE CASCADE,"
    "round INTEGER NOT NULL,"
    "change BLOB NOT NULL,"
    "row_checksum INTEGER NOT NULL,"
    "PRIMARY KEY (job_key, round)"
    ") STRICT, WITHOUT ROWID;",

    /* 5 to 6: the schedule that was planned for a job. A damaged row stays damaged, as above. */
    "ALTER TABLE jobs ADD COLUMN schedule TEXT NOT NULL DEFAULT '';"
    "UPDATE jobs SET row_checksum = tally_checksum('jobs', fixed_checksum, " MOVING_NAMES_4
    ", schedule)"
    " WHERE row_checksum = tally_checksum('jobs', fixed_checksum, " MOVING_NAMES_4 ");",
};

enum { N_MIGRATIONS = sizeof MIGRATIONS / sizeof MIGRATIONS[0], FIRST_WITH_CHECKSUMS = 2 };
_Static_assert((int)N_MIGRATIONS >= (int)TALLY_COLUMNS_FIRST_ADDING - 1, "no version is left out");

int tally_sqlite_newest_version(void)
{
    const int newest = tally_columns_newest();
    return newest > N_MIGRATIONS ? newest : N_MIGRATIONS;
}

/* Sets the checksums over the columns of one version in rows whose checksums over those of the
 * version before are right: a damaged row keeps a checksum that does not match, and stays
 * damaged. */
#define JOB_KEYS "job_key, idempotency_key, request_digest"
static const struct {
    const struct tally_columns *columns;
    const char *set, *where;
} CHECKSUM_UPDATE[] = {
    {&TALLY_JOB_COLUMNS,
     "UPDATE jobs SET fixed_checksum = tally_checksum('jobs', " JOB_KEYS ", {fixed_names}),"
     " row_checksum = tally_checksum('jobs', tally_checksum('jobs', " JOB_KEYS ", {fixed_names}),"
     " {moving_names})",
     " WHERE fixed_checksum = tally_checksum('jobs', " JOB_KEYS ", {fixed_names})"
     " AND row_checksum = tally_checksum('jobs', fixed_checksum, {moving_names});"},
    {&TALLY_ROUND_COLUMNS,
     "UPDATE rounds SET row_checksum = tally_checksum('rounds', job_key, {names})",
     " WHERE row_checksum = tally_checksum('rounds', job_key, {names});"},
};
enum { N_CHECKSUM_UPDATES = sizeof CHECKSUM_UPDATE / sizeof CHECKSUM_UPDATE[0] };

/* Appends the expanded text, without the NUL at its end. */
static enum tally_status expand(struct tally_buffer *out, const char *sql,
                                const struct tally_columns *columns, int version)
{
    const struct tally_columns_dialect dialect = {.version = version};
    const enum tally_status status = tally_columns_expand(out, sql, columns, &dialect);
    out->size -= status == TALLY_OK;
    return status;
}

/* Adds the columns of a version, empty, and makes the checksums cover them. */
static enum tally_status add_columns(const struct tally_sqlite *sqlite, int version,
                                     struct tally_error *err)
{
    static const char *const TYPES[] = {
        [TALLY_COLUMN_INT64] = "INTEGER NOT NULL DEFAULT 0",
        [TALLY_COLUMN_UINT64] = "INTEGER NOT NULL DEFAULT 0",
        [TALLY_COLUMN_REAL] = "ANY", /* NULL: NaN */
        [TALLY_COLUMN_BOOL] = "INTEGER NOT NULL DEFAULT 0",
        [TALLY_COLUMN_TEXT] = "TEXT NOT NULL DEFAULT ''",
        [TALLY_COLUMN_STATUS] = "TEXT NOT NULL DEFAULT ''",
    };
    struct tally_buffer sql = {.size = 0};
    enum tally_status status = TALLY_OK;
    for (int i = 0; i < N_CHECKSUM_UPDATES && status == TALLY_OK; i++) {
        const struct tally_columns *columns = CHECKSUM_UPDATE[i].columns;
        for (int c = 0; c < columns->n_columns && status == TALLY_OK; c++) {
            const struct tally_column *column = &columns->column[c];
            if (column->since == version) {
                status = tally_buffer_printf(&sql, "ALTER TABLE %s ADD COLUMN %s %s;",
                                             columns->table, column->name, TYPES[column->kind]);
            }
        }
        if (status == TALLY_OK) {
            status = expand(&sql, CHECKSUM_UPDATE[i].set, columns, version);
        }
        if (status == TALLY_OK) {
            status = expand(&sql, CHECKSUM_UPDATE[i].where, columns, version - 1);
        }
    }
    if (status == TALLY_OK) {
        status = tally_buffer_append(&sql, "", 1);
    }
    status = status == TALLY_OK ? tally_sqlite_exec(sqlite, (const char *)sql.data, err)
                                : tally_fail(err, status, NULL, "no memory for a migration");
    tally_buffer_fini(&sql);
    return status;
}

bool tally_sqlite_has_checksums(int version)
{
    return version >= FIRST_WITH_CHECKSUMS;
}

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
    const int newest = tally_sqlite_newest_version();
    if (version > newest) {
        return tally_fail(err, TALLY_DATA_LOSS, NULL,
                          "database \"%s\" has schema version %lld, newer than %d, the newest that "
                          "this program knows",
                          sqlite->path, (long long)version, newest);
    }
    if (!is_empty && version < 1) {
        return tally_fail(err, TALLY_DATA_LOSS, NULL,
                          "database \"%s\" has schema version %lld outside [1, %d]", sqlite->path,
                          (long long)version, newest);
    }
    *ret_version = (int)version;
    return TALLY_OK;
}

/* Sets the header's fields in the transaction of the caller. */
static enum tally_status mark(const struct tally_sqlite *sqlite, struct tally_error *err)
{
    char sql[96];
    sqlite3_snprintf((int)sizeof sql, sql, "PRAGMA application_id = %d; PRAGMA user_version = %d;",
                     APPLICATION_ID, tally_sqlite_newest_version());
    return tally_sqlite_exec(sqlite, sql, err);
}

/* Brings the schema from `version` to the newest and marks the file, all or nothing: a new file is
 * never visible half-made. */
static enum tally_status apply(const struct tally_sqlite *sqlite, int version,
                               struct tally_error *err)
{
    enum tally_status status = tally_sqlite_exec(sqlite, "BEGIN IMMEDIATE", err);
    if (status != TALLY_OK) {
        return status;
    }
    const size_t newest = (size_t)tally_sqlite_newest_version();
    for (size_t i = (size_t)version; i < newest && status == TALLY_OK; i++) {
        if (i < N_MIGRATIONS) {
            status = tally_sqlite_exec(sqlite, MIGRATIONS[i], err);
        }
        if (i + 1 >= TALLY_COLUMNS_FIRST_ADDING && status == TALLY_OK) {
            status = add_columns(sqlite, (int)i + 1, err);
        }
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

/* A migration cannot be undone, and an older program refuses its result. The checksums that it
 * computes would also make damage look sound, so the structure is checked whatever the file's size.
 * Checksums that rows already have still show damage afterwards: one damaged row does not stop all
 * jobs. */
static enum tally_status keep_copy(const struct tally_sqlite *sqlite, int version,
                                   struct tally_error *err)
{
    enum tally_status status = tally_sqlite_check_structure(sqlite, NULL, err);
    if (status != TALLY_OK) {
        return status;
    }
    char *path = sqlite3_mprintf("%s.v%d.bak", sqlite->path, version);
    if (path == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a path");
    }
    status = tally_sqlite_copy(sqlite, path, true, true, NULL, err);
    if (status != TALLY_OK) {
        tally_error_wrap(err, "cannot keep a copy of schema version %d", version);
    }
    sqlite3_free(path);
    return status;
}

enum tally_status tally_sqlite_migrate(const struct tally_sqlite *sqlite, int version,
                                       struct tally_error *err)
{
    if (version == tally_sqlite_newest_version()) {
        return TALLY_OK;
    }
    enum tally_status status = version > 0 ? keep_copy(sqlite, version, err) : TALLY_OK;
    return status == TALLY_OK ? apply(sqlite, version, err) : status;
}

enum tally_status tally_sqlite_touch(const struct tally_sqlite *sqlite, struct tally_error *err)
{
    return apply(sqlite, tally_sqlite_newest_version(), err);
}
