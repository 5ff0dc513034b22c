/* dataset: the points of all clients in memory. load_data.h reads them from files,
 * synthetic_linear.h draws them.
 *
 * Points lie in the order of their shards. Three layouts, told apart by what is not NULL: dense,
 * sparse (LIBSVM) and bytes (IDX, whose pixels stay bytes; a value is byte / 255). */
#ifndef TALLY_SERVICES_OBJECTIVES_DATA_DATASET_H
#define TALLY_SERVICES_OBJECTIVES_DATA_DATASET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/error.h"
#include "services/objectives/data/data.h"
#include "services/objectives/data/data_file.h"
#include "services/objectives/data/sharding.h"

struct tally_dataset {
    uint32_t clients;
    uint32_t points;
    size_t features;
    /* The points of all clients are here, so f can be computed, not only some f_m. */
    bool is_whole;
    /* Client m's points are first .. first + size - 1 of shards[m]. With `local` sharding, size may
     * be 0 (no file of that client is here), and all clients may share all points. */
    struct tally_shard *shards;
    double *values;    /* dense: double[points][features]; sparse: double[row_first[points]] */
    size_t *row_first; /* sparse: size_t[points + 1] */
    uint32_t *columns; /* sparse: of each value, ascending within a row */
    uint8_t *bytes;    /* bytes: uint8[points][features] */
    double *labels;    /* double[points] */
    /* With weighting `points` (tally_dataset_weigh_points()); otherwise 0. */
    uint64_t n_weighed; /* sum of the sizes of all shards */
    uint32_t unit;      /* their greatest common divisor */
};

void tally_dataset_free(struct tally_dataset *dataset);

/* The points of a client. Errors: FAILED_PRECONDITION (it has none here). */
enum tally_status tally_dataset_shard(const struct tally_dataset *dataset, uint32_t client,
                                      struct tally_shard *ret_shard, struct tally_error *err);

/* The number of points of a client. Errors: as above. */
enum tally_status tally_dataset_count(const struct tally_dataset *dataset, uint32_t client,
                                      uint32_t *ret_n, struct tally_error *err);

/* The number of leading shards that contain all local points: 1 if all clients share the points,
 * otherwise all shards, some of which may be empty. */
uint32_t tally_dataset_n_shards(const struct tally_dataset *dataset);

/* Whether f can be computed. Errors: FAILED_PRECONDITION unless is_whole. */
enum tally_status tally_dataset_check_whole(const struct tally_dataset *dataset,
                                            struct tally_error *err);

/* Makes f the mean over all points instead of over the clients. */
void tally_dataset_weigh_points(struct tally_dataset *dataset);

/* The weight of the mean over a shard: 1, or n_m divided by the common divisor of all n_m, so that
 * equal weights change no bit. */
uint32_t tally_dataset_share(const struct tally_dataset *dataset, struct tally_shard shard);
/* The weight of a point of the shard in f: 1 / (M n_m), or 1 / sum n_m. */
double tally_dataset_weight(const struct tally_dataset *dataset, struct tally_shard shard);
/* The weight of every point, double[points], summed over the shards that share it. Precondition:
 * the dataset is whole. */
void tally_dataset_weights(const struct tally_dataset *dataset, double *ret_weights);

/* X_i . x, summed in the order of the columns; x is double[features]. */
double tally_dataset_dot(const struct tally_dataset *dataset, uint32_t point, const double *x);
/* x += factor X_i. */
void tally_dataset_add(const struct tally_dataset *dataset, uint32_t point, double factor,
                       double *x);
/* Writes X_i with its zeros, double[features]. */
void tally_dataset_row(const struct tally_dataset *dataset, uint32_t point, double *ret_row);

/* ---- A dataset while its files are read, for the loaders only.
 *
 * Memory grows with the numbers that the files actually contain, and never beyond the limits of
 * data.h. */

struct tally_dataset_builder {
    struct tally_dataset *dataset;
    enum tally_labels rule;
    int64_t classes; /* labels are 0 .. classes - 1; 0 = they are not classes */
    bool is_sparse;
    bool is_trial;          /* checks and counts everything, but keeps nothing */
    size_t expected_values; /* that a trial has counted; 0 = not known */
    size_t n_values, value_capacity, column_capacity;
    size_t label_capacity, row_capacity;
    bool has_zero, has_minus; /* labels 0 and -1 seen, for BINARY */
    bool is_unlabelled;       /* the points' labels are not known and become NaN */
};

/* All of these fail with the file's name and line through tally_data_file_refuse(), or with
 * NO_MEMORY. */

/* Appends a number; `column` counts from 0 and, within a row, up; it matters if sparse. */
enum tally_status tally_builder_value(struct tally_dataset_builder *builder,
                                      struct tally_data_file *file, uint32_t column, double value);
/* Ends the row of a point. If dense, it may also be called for all points after all values. */
enum tally_status tally_builder_point(struct tally_dataset_builder *builder,
                                      struct tally_data_file *file, double label);
/* Describes what is wrong with a label, and what helps. False: nothing is. */
bool tally_builder_label_fault(struct tally_dataset_builder *builder, double label,
                               char ret_fault[192]);
/* What helps against a label that is no class, to be appended to the error; "" = not known. */
const char *tally_builder_label_remedy(double label, int64_t classes);
/* Describes what is wrong with a label, or returns NULL; for formats without lines. */
const char *tally_builder_check_label(struct tally_dataset_builder *builder, double label);

/* A digest of the points with their labels; not 0. It depends neither on their order nor on the
 * shards, and so not on the seed of a job, and not on the format of their files. Detects accidents
 * only. */
uint64_t tally_dataset_digest(const struct tally_dataset *dataset);

/* ---- The names of the feature columns of a job's CSV files.
 *
 * A gradient has a coordinate for each feature, so all files of a job must agree on which feature
 * is which. The first file that a process reads sets the order of the features. The columns of
 * further files are matched by name. */

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
