/* round_columns: the members of a stored struct as a const table, one row per database column.
 *
 * One table drives three things that must never disagree: the column lists of the SQL, binding a
 * struct to a statement, and reading it back. The struct's plain-data rule makes that possible: a
 * member is a fixed-size value at an offset. A new row with a new `since` is a migration, too: each
 * database adds the column (add_columns() of its schema). Only the original columns are repeated in
 * CREATE TABLE, because a migration is history and must not change when the struct does. */
#ifndef TALLY_STORAGE_ROUND_COLUMNS_H
#define TALLY_STORAGE_ROUND_COLUMNS_H

#include <stdbool.h>
#include <stddef.h>

#include "codec/buffer.h"
#include "codec/record.h"

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
    int since;       /* SQLite schema version that added it; 0 = all that have checksums */
};

/* From this schema version on, each version adds the columns that have it as `since`. */
enum { TALLY_COLUMNS_FIRST_ADDING = 7 };

struct tally_columns {
    const char *table;
    const struct tally_column *column;
    int n_columns;
};

extern const struct tally_columns TALLY_JOB_COLUMNS;   /* struct tally_store_job, except its key */
extern const struct tally_columns TALLY_ROUND_COLUMNS; /* struct tally_round_record */

/* How a database numbers and types the parameters of a statement. */
struct tally_columns_dialect {
    int version;         /* of the schema; columns added later are left out */
    int first_parameter; /* number of the first column's parameter */
    bool has_gaps;       /* columns keep their numbers in lists that lack others */
    enum tally_status (*append_parameter)(struct tally_buffer *out, int number,
                                          enum tally_column_kind kind);
};

/* Appends `sql` and a NUL. In it {names}, {values} and {sets} stand for the list of `columns` (NULL
 * = there is none), of their parameters, and of "column = parameter" for those that are not fixed;
 * {fixed_names} and {fixed_values} for the columns that are fixed, {moving_names} and
 * {moving_values} for the others. Errors: NO_MEMORY. */
enum tally_status tally_columns_expand(struct tally_buffer *out, const char *sql,
                                       const struct tally_columns *columns,
                                       const struct tally_columns_dialect *dialect);

/* The greatest `since`. */
int tally_columns_newest(void);

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
