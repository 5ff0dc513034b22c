#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "storage/sqlite/sqlite_internal.h"

/* The text of a statement, in which {...} stand for lists of `columns` (round_columns.h). */
struct statement_text {
    const struct tally_columns *columns; /* NULL = no {...} */
    const char *sql;
};

const char TALLY_SQL_COUNT_LIVE_JOBS[] =
    "SELECT count(*) FROM jobs WHERE status NOT IN (" TALLY_SQL_TERMINAL_NAMES ")";

/* Whether a row is as it was written, by table (sqlite_checksum.c, DESIGN.md). */
#define JOB_IS_INTACT                                                                              \
    "(fixed_checksum IS tally_checksum('jobs', job_key, idempotency_key, request_digest,"          \
    " {fixed_names}) AND row_checksum IS tally_checksum('jobs', fixed_checksum, {moving_names}))"
#define DOCUMENT_IS_INTACT "(row_checksum IS tally_checksum('job_documents', job_key, document))"
#define STATE_IS_INTACT    "(row_checksum IS tally_checksum('job_states', job_key, state))"
#define CHANGE_IS_INTACT                                                                           \
    "(row_checksum IS tally_checksum('job_state_changes', job_key, round, change))"
#define UPDATE_IS_INTACT "(row_checksum IS tally_checksum('updates', job_key, round, client, body))"
#define ROUND_IS_INTACT  "(row_checksum IS tally_checksum('rounds', job_key, {names}))"
#define MODEL_IS_INTACT  "(row_checksum IS tally_checksum('models', job_key, {names}))"
#define POINT_IS_INTACT  "(row_checksum IS tally_checksum('model_points', job_key, slot, point))"

/* The table and key of a row, for messages. */
#define JOB_PLACE      "format('jobs, job_key %d', job_key)"
#define DOCUMENT_PLACE "format('job_documents, job_key %d', job_key)"
#define STATE_PLACE    "format('job_states, job_key %d', job_key)"
#define CHANGE_PLACE   "format('job_state_changes, job_key %d, round %d', job_key, round)"
#define UPDATE_PLACE   "format('updates, job_key %d, round %d, client %d', job_key, round, client)"
#define ROUND_PLACE    "format('rounds, job_key %d, round %d', job_key, round)"
#define MODEL_PLACE    "format('models, job_key %d, slot %d', job_key, slot)"
#define POINT_PLACE    "format('model_points, job_key %d, slot %d', job_key, slot)"

/* The last column of every statement that reads rows: NULL, or the table and key of a damaged
 * row. */
#define DAMAGE(is_intact, place) ", CASE WHEN " is_intact " THEN NULL ELSE " place " END AS damage"
#define JOB_DAMAGE               DAMAGE(JOB_IS_INTACT, JOB_PLACE)

/* All rows of a table, for verifying the whole database. */
#define VERIFY(table, is_intact, place) "SELECT 1" DAMAGE(is_intact, place) " FROM " table

static const struct statement_text STATEMENT_TEXT[TALLY_N_SQL] = {
    /* IMMEDIATE: waits for the lock here, not in the middle of the transaction. */
    [TALLY_SQL_BEGIN] = {NULL, "BEGIN IMMEDIATE"},
    [TALLY_SQL_COMMIT] = {NULL, "COMMIT"},
    [TALLY_SQL_ROLLBACK] = {NULL, "ROLLBACK"},
    [TALLY_SQL_JOB_NEXT_KEY] = {NULL, "SELECT coalesce(max(job_key), 0) + 1 FROM jobs"},
    [TALLY_SQL_JOB_INSERT] =
        {&TALLY_JOB_COLUMNS,
         "INSERT INTO jobs (job_key, idempotency_key, request_digest, {fixed_names}, "
         "{moving_names},"
         " fixed_checksum, row_checksum)"
         " SELECT ?1, ?2, ?3, {fixed_values}, {moving_values},"
         " c, tally_checksum('jobs', c, {moving_values})"
         " FROM (SELECT tally_checksum('jobs', ?1, ?2, ?3, {fixed_values}) AS c)"},
    [TALLY_SQL_DOCUMENT_INSERT] = {NULL,
                                   "INSERT INTO job_documents (job_key, document, row_checksum)"
                                   " VALUES (?1, ?2, tally_checksum('job_documents', ?1, ?2))"},
    [TALLY_SQL_JOB_UPDATE] =
        {&TALLY_JOB_COLUMNS,
         "UPDATE jobs SET {sets}, row_checksum = tally_checksum('jobs', fixed_checksum,"
         " {moving_values}) WHERE job_key = ?1"},
    /* Rows of the other tables reference it with ON DELETE CASCADE. */
    [TALLY_SQL_JOB_DELETE] = {NULL, "DELETE FROM jobs WHERE job_key = ?1"
                                    " AND status IN (" TALLY_SQL_TERMINAL_NAMES ")"},
    /* Of content (tally_sql_bind_content()), a row has the first parameter, its sum the second. */
    [TALLY_SQL_STATE_UPDATE] = {NULL, "UPDATE job_states SET state = ?2, row_checksum ="
                                      " tally_checksum('job_states', ?1, ?3) WHERE job_key = ?1"},
    [TALLY_SQL_STATE_INSERT] = {NULL, "INSERT INTO job_states (job_key, state, row_checksum)"
                                      " VALUES (?1, ?2, tally_checksum('job_states', ?1, ?3))"},
    [TALLY_SQL_STATE_APPEND] = {NULL, "INSERT INTO job_state_changes (job_key, round, change,"
                                      " row_checksum) VALUES (?1, ?2, ?3,"
                                      " tally_checksum('job_state_changes', ?1, ?2, ?4))"},
    [TALLY_SQL_CHANGES_DELETE] = {NULL, "DELETE FROM job_state_changes WHERE job_key = ?1"},
    [TALLY_SQL_UPDATE_INSERT] = {NULL, "INSERT INTO updates (job_key, round, client, body,"
                                       " row_checksum) VALUES (?1, ?2, ?3, ?4,"
                                       " tally_checksum('updates', ?1, ?2, ?3, ?5))"},
    [TALLY_SQL_UPDATES_DELETE] = {NULL, "DELETE FROM updates"
                                        " WHERE job_key = ?1 AND round BETWEEN ?2 AND ?3"},
    [TALLY_SQL_ROUND_INSERT] = {&TALLY_ROUND_COLUMNS,
                                "INSERT INTO rounds (job_key, {names}, row_checksum)"
                                " VALUES (?1, {values}, tally_checksum('rounds', ?1, {values}))"},
    [TALLY_SQL_ROUND_UPDATE] = {&TALLY_ROUND_COLUMNS,
                                "UPDATE rounds SET {sets},"
                                " row_checksum = tally_checksum('rounds', ?1, {values})"
                                " WHERE job_key = ?1 AND round = ?2"},
    /* Not REPLACE, which would delete the model's point first. */
    [TALLY_SQL_MODEL_PUT] = {&TALLY_MODEL_COLUMNS,
                             "INSERT INTO models (job_key, {names}, row_checksum)"
                             " VALUES (?1, {values}, tally_checksum('models', ?1, {values}))"
                             " ON CONFLICT DO UPDATE SET {sets},"
                             " row_checksum = tally_checksum('models', ?1, {values})"},
    [TALLY_SQL_POINT_PUT] = {NULL, "REPLACE INTO model_points (job_key, slot, point, row_checksum)"
                                   " VALUES (?1, ?2, ?3,"
                                   " tally_checksum('model_points', ?1, ?2, ?4))"},
    [TALLY_SQL_JOB_GET] = {&TALLY_JOB_COLUMNS,
                           "SELECT job_key, {names}" JOB_DAMAGE " FROM jobs WHERE id = ?1"},
    [TALLY_SQL_JOB_BY_IDEMPOTENCY_KEY] = {&TALLY_JOB_COLUMNS,
                                          "SELECT job_key, {names}, request_digest" JOB_DAMAGE
                                          " FROM jobs WHERE idempotency_key = ?1"},
    [TALLY_SQL_REQUEST_GET] = {&TALLY_JOB_COLUMNS,
                               "SELECT request_digest, idempotency_key" JOB_DAMAGE
                               " FROM jobs WHERE job_key = ?1"},
    [TALLY_SQL_JOB_LIST] = {&TALLY_JOB_COLUMNS,
                            "SELECT job_key, {names}" JOB_DAMAGE " FROM jobs"
                            " WHERE job_key < ?1 AND (?2 IS NULL OR status = ?2)"
                            " ORDER BY job_key DESC LIMIT max(0, ?3)"},
    [TALLY_SQL_JOB_LIST_LIVE] = {&TALLY_JOB_COLUMNS,
                                 "SELECT job_key, {names}" JOB_DAMAGE " FROM jobs"
                                 " WHERE status NOT IN (" TALLY_SQL_TERMINAL_NAMES
                                 ") ORDER BY job_key"},
    [TALLY_SQL_DOCUMENT_GET] = {NULL, "SELECT document" DAMAGE(
                                          DOCUMENT_IS_INTACT,
                                          DOCUMENT_PLACE) " FROM job_documents WHERE job_key = ?1"},
    [TALLY_SQL_STATE_GET] = {NULL, "SELECT state" DAMAGE(
                                       STATE_IS_INTACT,
                                       STATE_PLACE) " FROM job_states WHERE job_key = ?1"},
    [TALLY_SQL_CHANGES_GET] =
        {NULL, "SELECT change" DAMAGE(
                   CHANGE_IS_INTACT,
                   CHANGE_PLACE) " FROM job_state_changes WHERE job_key = ?1 ORDER BY round"},
    [TALLY_SQL_UPDATE_LIST] =
        {NULL, "SELECT round, client, body" DAMAGE(
                   UPDATE_IS_INTACT,
                   UPDATE_PLACE) " FROM updates WHERE job_key = ?1 AND round = ?2 ORDER BY client"},
    [TALLY_SQL_ROUND_LIST] = {&TALLY_ROUND_COLUMNS,
                              "SELECT {names}" DAMAGE(
                                  ROUND_IS_INTACT, ROUND_PLACE) " FROM rounds"
                                                                " WHERE job_key = ?1 AND round > ?2"
                                                                " ORDER BY round LIMIT max(0, ?3)"},
    [TALLY_SQL_MODEL_LIST] = {&TALLY_MODEL_COLUMNS,
                              "SELECT {names}" DAMAGE(MODEL_IS_INTACT,
                                                      MODEL_PLACE) " FROM models WHERE job_key = ?1"
                                                                   " ORDER BY slot"},
    [TALLY_SQL_POINT_GET] =
        {NULL,
         "SELECT point" DAMAGE(POINT_IS_INTACT,
                               POINT_PLACE) " FROM model_points WHERE job_key = ?1 AND slot = ?2"},
    [TALLY_SQL_VERIFY_JOBS] = {&TALLY_JOB_COLUMNS, VERIFY("jobs", JOB_IS_INTACT, JOB_PLACE)},
    [TALLY_SQL_VERIFY_DOCUMENTS] = {NULL,
                                    VERIFY("job_documents", DOCUMENT_IS_INTACT, DOCUMENT_PLACE)},
    [TALLY_SQL_VERIFY_STATES] = {NULL, VERIFY("job_states", STATE_IS_INTACT, STATE_PLACE)},
    [TALLY_SQL_VERIFY_CHANGES] = {NULL,
                                  VERIFY("job_state_changes", CHANGE_IS_INTACT, CHANGE_PLACE)},
    [TALLY_SQL_VERIFY_UPDATES] = {NULL, VERIFY("updates", UPDATE_IS_INTACT, UPDATE_PLACE)},
    [TALLY_SQL_VERIFY_ROUNDS] = {&TALLY_ROUND_COLUMNS,
                                 VERIFY("rounds", ROUND_IS_INTACT, ROUND_PLACE)},
    [TALLY_SQL_VERIFY_MODELS] = {&TALLY_MODEL_COLUMNS,
                                 VERIFY("models", MODEL_IS_INTACT, MODEL_PLACE)},
    [TALLY_SQL_VERIFY_POINTS] = {NULL, VERIFY("model_points", POINT_IS_INTACT, POINT_PLACE)},
};

static enum tally_status append_parameter(struct tally_buffer *out, int number,
                                          enum tally_column_kind kind)
{
    (void)kind;
    return tally_buffer_printf(out, "?%d", number);
}

enum tally_status tally_sqlite_prepare(struct tally_sqlite *sqlite, struct tally_error *err)
{
    const struct tally_columns_dialect dialect = {.first_parameter = TALLY_SQL_N_RESERVED + 1,
                                                  .has_gaps = true,
                                                  .append_parameter = append_parameter};
    struct tally_buffer sql = {0};
    enum tally_status status = TALLY_OK;
    for (int i = 0; i < TALLY_N_SQL && status == TALLY_OK; i++) {
        sql.size = 0;
        status =
            tally_columns_expand(&sql, STATEMENT_TEXT[i].sql, STATEMENT_TEXT[i].columns, &dialect);
        if (status != TALLY_OK) {
            tally_fail(err, status, NULL, "no memory for the statements of a database");
            break;
        }
        int rc = sqlite3_prepare_v3(sqlite->db, (const char *)sql.data, (int)sql.size,
                                    SQLITE_PREPARE_PERSISTENT, &sqlite->statements[i], NULL);
        if (rc != SQLITE_OK) {
            status = tally_sqlite_fail(sqlite, rc, err);
        }
    }
    tally_buffer_fini(&sql);
    return status;
}

struct tally_sql_call tally_sql_call(struct tally_sqlite *sqlite, enum tally_sql which)
{
    sqlite3_stmt *statement = sqlite->statements[which];
    assert(sqlite3_stmt_busy(statement) == 0);
    return (struct tally_sql_call){sqlite, statement, SQLITE_OK};
}

static void keep_first(struct tally_sql_call *call, int rc)
{
    if (call->rc == SQLITE_OK) {
        call->rc = rc;
    }
}

void tally_sql_bind_int64(struct tally_sql_call *call, int parameter, int64_t value)
{
    keep_first(call, sqlite3_bind_int64(call->statement, parameter, value));
}

void tally_sql_bind_uint64(struct tally_sql_call *call, int parameter, uint64_t value)
{
    int64_t same_bits = 0;
    memcpy(&same_bits, &value, sizeof same_bits);
    tally_sql_bind_int64(call, parameter, same_bits);
}

void tally_sql_bind_text(struct tally_sql_call *call, int parameter, const char *text)
{
    keep_first(call, sqlite3_bind_text(call->statement, parameter, text, -1, SQLITE_STATIC));
}

/* SQLite takes a NULL pointer for SQL NULL, so a blob of 0 bytes needs a non-NULL pointer. */
void tally_sql_bind_bytes(struct tally_sql_call *call, int parameter, const void *bytes, size_t n)
{
    keep_first(call, sqlite3_bind_blob64(call->statement, parameter, n > 0 ? bytes : "", n,
                                         SQLITE_STATIC));
}

void tally_sql_bind_content(struct tally_sql_call *call, int parameter, const void *bytes, size_t n)
{
    tally_sql_bind_bytes(call, parameter, bytes, n);
    tally_sql_bind_bytes(call, parameter + 1, bytes, n);
    if (tally_sql_is_long(n)) {
        keep_first(call, sqlite3_bind_zeroblob64(call->statement, parameter, n));
    }
}

void tally_sql_bind_json(struct tally_sql_call *call, int parameter, const char *json, size_t n)
{
    keep_first(call, sqlite3_bind_text64(call->statement, parameter, n > 0 ? json : "", n,
                                         SQLITE_STATIC, SQLITE_UTF8));
}

void tally_sql_bind_row(struct tally_sql_call *call, const struct tally_columns *columns,
                        const void *row)
{
    for (int i = 0; i < columns->n_columns; i++) {
        const struct tally_column *column = &columns->column[i];
        const void *member = (const char *)row + column->offset;
        int parameter = TALLY_SQL_N_RESERVED + 1 + i;
        switch (column->kind) {
        case TALLY_COLUMN_INT64:
            tally_sql_bind_int64(call, parameter, *(const int64_t *)member);
            break;
        case TALLY_COLUMN_UINT64:
            tally_sql_bind_uint64(call, parameter, *(const uint64_t *)member);
            break;
        case TALLY_COLUMN_REAL: /* SQLite stores NaN as NULL; take_real() undoes that */
            keep_first(call,
                       sqlite3_bind_double(call->statement, parameter, *(const double *)member));
            break;
        case TALLY_COLUMN_BOOL:
            tally_sql_bind_int64(call, parameter, *(const bool *)member ? 1 : 0);
            break;
        case TALLY_COLUMN_TEXT:
            tally_sql_bind_text(call, parameter, member);
            break;
        case TALLY_COLUMN_STATUS:
            tally_sql_bind_text(call, parameter,
                                tally_job_status_name(*(const enum tally_job_status *)member));
            break;
        }
    }
}

void tally_sql_end(struct tally_sql_call *call)
{
    sqlite3_reset(call->statement);
    sqlite3_clear_bindings(call->statement);
}

/* DATA_LOSS if the statement has a column `damage` and that names a row. */
static enum tally_status require_intact(const struct tally_sql_call *call, struct tally_error *err)
{
    int last = sqlite3_column_count(call->statement) - 1;
    if (strcmp(sqlite3_column_name(call->statement, last), "damage") != 0 ||
        sqlite3_column_type(call->statement, last) == SQLITE_NULL) {
        return TALLY_OK;
    }
    return tally_fail(err, TALLY_DATA_LOSS, NULL,
                      "database \"%s\" is damaged: a row does not match its checksum (%s)",
                      call->sqlite->path, (const char *)sqlite3_column_text(call->statement, last));
}

bool tally_sql_walk(struct tally_sql_call *call, enum tally_status *status, struct tally_error *err)
{
    if (*status != TALLY_OK) {
        return false;
    }
    int rc = call->rc == SQLITE_OK ? sqlite3_step(call->statement) : call->rc;
    if (rc != SQLITE_ROW && rc != SQLITE_DONE) {
        *status = tally_sqlite_fail(call->sqlite, rc, err);
    } else if (rc == SQLITE_ROW) {
        *status = require_intact(call, err);
    }
    return *status == TALLY_OK && rc == SQLITE_ROW;
}

enum tally_status tally_sql_run(struct tally_sql_call *call, struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    tally_sql_walk(call, &status, err);
    tally_sql_end(call);
    return status;
}

struct tally_sql_row tally_sql_row(const struct tally_sql_call *call, struct tally_error *err)
{
    return (struct tally_sql_row){.call = call, .err = err};
}

/* Fails because of the column that was taken last. */
static void fail_value(struct tally_sql_row *row)
{
    sqlite3_stmt *statement = row->call->statement;
    if (row->status == TALLY_OK) {
        const unsigned char *text = sqlite3_column_text(statement, row->column - 1);
        row->status = tally_fail(
            row->err, TALLY_DATA_LOSS, NULL, "database \"%s\": column %s holds \"%.40s\"",
            row->call->sqlite->path, sqlite3_column_name(statement, row->column - 1),
            text != NULL ? (const char *)text : "NULL");
    }
}

/* Takes the next column, whose type must be one of `types`, a mask of 1 << SQLITE_INTEGER and so
 * on. False after this or an earlier failure. */
static bool take(struct tally_sql_row *row, unsigned types)
{
    const int type = sqlite3_column_type(row->call->statement, row->column++);
    if ((types >> type & 1U) == 0) {
        fail_value(row);
    }
    return row->status == TALLY_OK;
}

int64_t tally_sql_take_int64(struct tally_sql_row *row)
{
    return take(row, 1U << SQLITE_INTEGER)
               ? sqlite3_column_int64(row->call->statement, row->column - 1)
               : 0;
}

const void *tally_sql_take_bytes(struct tally_sql_row *row, size_t *ret_n)
{
    const struct tally_sql_call *call = row->call;
    *ret_n = 0;
    if (!take(row, 1U << SQLITE_BLOB | 1U << SQLITE_TEXT)) {
        return "";
    }
    const void *bytes = sqlite3_column_blob(call->statement, row->column - 1);
    const size_t n = (size_t)sqlite3_column_bytes(call->statement, row->column - 1);
    if (bytes == NULL && sqlite3_errcode(call->sqlite->db) == SQLITE_NOMEM) {
        row->status = tally_sqlite_fail(call->sqlite, SQLITE_NOMEM, row->err);
    }
    *ret_n = bytes != NULL ? n : 0;
    return bytes != NULL ? bytes : ""; /* for 0 bytes, SQLite's pointer may be NULL */
}

static double take_real(struct tally_sql_row *row)
{
    sqlite3_stmt *statement = row->call->statement;
    if (!take(row, 1U << SQLITE_FLOAT | 1U << SQLITE_INTEGER | 1U << SQLITE_NULL)) {
        return 0;
    }
    return sqlite3_column_type(statement, row->column - 1) == SQLITE_NULL
               ? (double)NAN
               : sqlite3_column_double(statement, row->column - 1);
}

static bool take_bool(struct tally_sql_row *row)
{
    const int64_t value = tally_sql_take_int64(row);
    if (value != 0 && value != 1) {
        fail_value(row);
    }
    return value == 1;
}

static void take_text(struct tally_sql_row *row, char *ret_text, size_t capacity)
{
    size_t n = 0;
    const void *bytes = tally_sql_take_bytes(row, &n);
    if (n >= capacity || memchr(bytes, '\0', n) != NULL) {
        fail_value(row);
    }
    if (row->status == TALLY_OK) {
        memset(ret_text, 0, capacity);
        memcpy(ret_text, bytes, n);
    }
}

static void take_status(struct tally_sql_row *row, enum tally_job_status *ret_status)
{
    char name[32] = "";
    take_text(row, name, sizeof name);
    if (!tally_job_status_of_name(name, ret_status)) {
        fail_value(row);
    }
}

static void take_member(struct tally_sql_row *row, const struct tally_column *column, void *member)
{
    switch (column->kind) {
    case TALLY_COLUMN_INT64:
    case TALLY_COLUMN_UINT64: /* the same bits */
        *(int64_t *)member = tally_sql_take_int64(row);
        break;
    case TALLY_COLUMN_REAL:
        *(double *)member = take_real(row);
        break;
    case TALLY_COLUMN_BOOL:
        *(bool *)member = take_bool(row);
        break;
    case TALLY_COLUMN_TEXT:
        take_text(row, member, column->capacity);
        break;
    case TALLY_COLUMN_STATUS:
        take_status(row, member);
        break;
    }
}

void tally_sql_take_columns(struct tally_sql_row *row, const struct tally_columns *columns,
                            void *ret_struct)
{
    for (int i = 0; i < columns->n_columns && row->status == TALLY_OK; i++) {
        take_member(row, &columns->column[i], (char *)ret_struct + columns->column[i].offset);
    }
}
