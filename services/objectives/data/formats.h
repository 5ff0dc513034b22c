/* formats: a reader for each format of a job's data. The .c file of each format describes it. */
#ifndef TALLY_SERVICES_OBJECTIVES_DATA_FORMATS_H
#define TALLY_SERVICES_OBJECTIVES_DATA_FORMATS_H

#include "services/objectives/data/dataset.h"

/* Append the points of a file. Errors: as tally_dataset_load(). */
/* `columns`: the features of the job's files so far, set by the first one; NULL = not matched. Up
 * to TALLY_DATA_FAULTS_MOST errors of values and lines are noted; points with missing values are
 * dropped, or have NaN in their place, as `table` says. If the builder is unlabelled, the column of
 * the label may be absent and is ignored. */
enum tally_status tally_csv_read(struct tally_data_file *file, const struct tally_table_data *table,
                                 struct tally_columns *columns,
                                 struct tally_dataset_builder *builder);
/* The different labels of CSV files, sorted by their bytes, as in tally_table_data.class_names. */
struct tally_csv_labels {
    char names[TALLY_DATA_CLASS_NAMES_CAPACITY];
    size_t n, size;
};
/* Reads the number of features from the header (0 in `table`: any number will do) and, unless
 * ret_labels is NULL, adds the labels of all points. The points are checked as in
 * tally_csv_read(). */
enum tally_status tally_csv_survey(struct tally_data_file *file,
                                   const struct tally_table_data *table, size_t *ret_features,
                                   struct tally_csv_labels *labels);
enum tally_status tally_libsvm_read(struct tally_data_file *file, size_t features,
                                    struct tally_dataset_builder *builder);
/* Appends the rows of an array of shape (points, features), in C or Fortran order; no labels yet.
 */
enum tally_status tally_npy_read_points(struct tally_data_file *file, size_t features,
                                        struct tally_dataset_builder *builder, size_t *ret_points);
/* Sets the labels of these points from an array of shape (points,) or (points, 1). */
enum tally_status tally_npy_read_labels(struct tally_data_file *file, size_t points,
                                        struct tally_dataset_builder *builder);

struct tally_npz;

/* Errors: INVALID_ARGUMENT (no such file, or not a zip), NO_MEMORY. */
enum tally_status tally_npz_open(const struct tally_data_source *source, const char *name,
                                 struct tally_npz **ret_npz, struct tally_error *err);
void tally_npz_close(struct tally_npz *npz);
/* The bytes of an array's .npy file. Close it before the .npz file. Errors: INVALID_ARGUMENT (no
 * such array; the message lists the arrays), NO_MEMORY. */
enum tally_status tally_npz_open_array(struct tally_npz *npz, const char *array,
                                       struct tally_data_file **ret_file, struct tally_error *err);

#endif
