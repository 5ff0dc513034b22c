/* data_columns: the names of the feature columns of a job's CSV files.
 *
 * A gradient has a coordinate for each feature, so all files of a job must agree on which feature
 * is which. The first file that a process reads sets the order of the features. The columns of
 * further files are matched by name. */
#ifndef TALLY_SERVICES_OBJECTIVES_DATA_DATA_COLUMNS_H
#define TALLY_SERVICES_OBJECTIVES_DATA_DATA_COLUMNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The names that are kept of a file; further columns only count and enter the digest. */
enum { TALLY_COLUMNS_MAX_BYTES = 1 << 20 };

struct tally_columns {
    char *text; /* the kept names, one after the other, each with its NUL */
    size_t size, capacity;
    size_t n, n_kept;
    uint64_t sum;   /* of all names, in their order */
    char file[300]; /* that they come from, for messages */
};

/* Appends a name. False if memory ran out. */
bool tally_columns_add(struct tally_columns *columns, const char *name);
void tally_columns_fini(struct tally_columns *columns);

/* Borrows the name of column i; NULL if it is not kept. */
const char *tally_columns_name(const struct tally_columns *columns, size_t i);

/* Tells whether two processes have the same names in the same order: in [1, 2^28), so that it takes
 * at most four bytes as a varint. 0 = there are no columns. */
uint32_t tally_columns_digest(const struct tally_columns *columns);

enum tally_columns_match {
    TALLY_COLUMNS_EQUAL,     /* the same names in the same order */
    TALLY_COLUMNS_REORDERED, /* the same names in another order */
    TALLY_COLUMNS_DIFFERENT, /* `why` says how, as a clause after "the columns" */
    TALLY_COLUMNS_NO_MEMORY
};

/* Compares the columns of a file with those of an earlier one that has as many. If they are
 * REORDERED, ret_places[i], of `columns->n` numbers, is the place among the earlier ones of column
 * i; free() frees it. */
enum tally_columns_match tally_columns_match(const struct tally_columns *earlier,
                                             const struct tally_columns *columns,
                                             uint32_t **ret_places, char ret_why[200]);

#endif
