/* round_columns: the members of a stored struct as a const table, one row per database column.
 *
 * One table drives four things that must never disagree: the columns of the database's table, the
 * column lists of the SQL, binding a struct to a statement, and reading it back. The struct's
 * plain-data rule makes that possible: a member is a fixed-size value at an offset. */
#ifndef TALLY_STORAGE_ROUND_COLUMNS_H
#define TALLY_STORAGE_ROUND_COLUMNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/buffer.h"
#include "codec/error.h"
#include "codec/record.h"

/* The version of the schema, for both databases. A change of the tables, or of the form of a value
 * in them, takes the next number: there are no migrations before 1.0 (DESIGN.md). */
enum { TALLY_SCHEMA_VERSION = 11 };

/* Fails unless the database named `label` has that version. Errors: FAILED_PRECONDITION (another
 * version; the message names the release that reads it), DATA_LOSS (not a version). */
enum tally_status tally_schema_require(const char *label, int64_t version, struct tally_error *err);

enum tally_column_kind {
    TALLY_COLUMN_INT64,  /* int64_t */
    TALLY_COLUMN_UINT64, /* uint64_t; stored as the int64 of the same 64 bits */
    TALLY_COLUMN_REAL,   /* double */
    TALLY_COLUMN_BOOL,   /* bool; stored as 0 or 1 */
    TALLY_COLUMN_TEXT,   /* char[capacity], NUL-terminated */
    TALLY_COLUMN_STATUS, /* enum tally_job_status; stored as its name */
};

struct tally_column {
    const char *name;
    enum tally_column_kind kind;
    size_t offset;   /* of the member in its struct */
    size_t capacity; /* of TEXT, with its NUL */
    bool fixed;      /* written at insert only */
};
enum { TALLY_N_COLUMN_KINDS = TALLY_COLUMN_STATUS + 1 };

struct tally_columns {
    const struct tally_column *column;
    int n_columns;
};

extern const struct tally_columns TALLY_JOB_COLUMNS;   /* struct tally_store_job, except its key */
extern const struct tally_columns TALLY_ROUND_COLUMNS; /* struct tally_round_record */
extern const struct tally_columns TALLY_MODEL_COLUMNS; /* struct tally_store_model */

/* How a database types its columns, and numbers and types the parameters of a statement. */
struct tally_columns_dialect {
    const char *const *types; /* by kind, for {definitions} */
    int first_parameter;      /* number of the first column's parameter */
    bool has_gaps;            /* columns keep their numbers in lists that lack others */
    enum tally_status (*append_parameter)(struct tally_buffer *out, int number,
                                          enum tally_column_kind kind);
};

/* Appends `sql` and a NUL. In it {names}, {values} and {sets} stand for the list of `columns` (NULL
 * = there is none), of their parameters, and of "column = parameter" for those that are not fixed;
 * {fixed_names} and {fixed_values} for the columns that are fixed, {moving_names} and
 * {moving_values} for the others; {definitions} for "column TYPE", as in CREATE TABLE. Errors:
 * NO_MEMORY. */
enum tally_status tally_columns_expand(struct tally_buffer *out, const char *sql,
                                       const struct tally_columns *columns,
                                       const struct tally_columns_dialect *dialect);

/* "'', 'completed', 'failed', 'cancelled'": a name per terminal status, for SQL. A status that this
 * program does not know counts as live, so that start-up fails instead of losing the job. */
/* NOLINTBEGIN(readability-identifier-naming): "true" and "false" are those of the table */
#define TALLY_NAME_IF_true(name) ", '" name "'"
#define TALLY_NAME_IF_false(name)
/* NOLINTEND(readability-identifier-naming) */
#define TALLY_TERMINAL_NAME(symbol, name, terminal) TALLY_NAME_IF_##terminal(name)
#define TALLY_SQL_TERMINAL_NAMES                    "''" TALLY_JOB_STATUS_TABLE(TALLY_TERMINAL_NAME)

/* The text with which job_list compares the column `status`: NULL = any, "" = a number that is not
 * a status. */
const char *tally_status_filter(int status);

#endif
