/* columns: the members of a stored struct as a const table, one row per database column.
 *
 * One table drives three things that must never disagree: the column lists of the SQL, binding a
 * struct to a statement, and reading it back. The struct's plain-data rule makes that possible: a
 * member is a fixed-size value at an offset. Only CREATE TABLE spells the columns again, because a
 * migration is history and must not change when the struct does. */
#ifndef TALLY_STORAGE_COLUMNS_H
#define TALLY_STORAGE_COLUMNS_H

#include <stdbool.h>
#include <stddef.h>

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
    int since;       /* the schema version that brought it; 0 = all that have checksums */
};

struct tally_columns {
    const char *table; /* for messages */
    const struct tally_column *column;
    int n_columns;
};

extern const struct tally_columns TALLY_JOB_COLUMNS;   /* struct tally_store_job, except its key */
extern const struct tally_columns TALLY_ROUND_COLUMNS; /* struct tally_round_record */

#endif
