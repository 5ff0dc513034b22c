/* load_data: reads the files of a job's data, in any of the formats beside this file, into a
 * dataset. */
#ifndef TALLY_SERVICES_OBJECTIVES_DATA_LOAD_DATA_H
#define TALLY_SERVICES_OBJECTIVES_DATA_LOAD_DATA_H

#include "codec/numeric/rng.h"
#include "services/objectives/data/data_source.h"
#include "services/objectives/data/dataset.h"

/* Reads the data, whose spec is valid and not a matrix, or draws synthetic_linear; random choices
 * come from the key's sharding stream. For surveyed data, see tally_data_source.surveys. With
 * BINARY, labels 0 and 1 become -1 and 1. Errors: INVALID_ARGUMENT (a file that is
 * missing, not a regular file below the folder, malformed, not what the spec says, or too large;
 * the message names the file and, in text, the line), CANCELLED, NO_MEMORY. */
enum tally_status tally_dataset_load(const struct tally_data_spec *data, enum tally_labels labels,
                                     uint32_t clients, struct tally_rng_key key,
                                     const struct tally_data_source *source,
                                     struct tally_dataset **ret, struct tally_error *err);

/* Reads the points of the CSV file `name`, whose labels are not known: the column of the label may
 * be absent, and is ignored. Columns are matched with source->columns, and the scaling, if it is
 * fitted, is applied. A point with a missing value is an error unless the spec has `missing`
 * `mean`. Errors: as above. */
enum tally_status tally_dataset_load_unlabelled(const struct tally_data_spec *data,
                                                const char *name,
                                                const struct tally_data_source *source,
                                                struct tally_dataset **ret,
                                                struct tally_error *err);

struct tally_csv_labels;

/* Finds the number of features of CSV files, of which that of the spec is 0 or 1 and does not
 * count, in the header and, unless `labels` is NULL, their different labels, which it adds. Then
 * all points are checked; otherwise only one header is read. Errors: as above, and INVALID_ARGUMENT
 * with field "objective.data.features" or ".classes" if not all labels can be here. */
enum tally_status tally_dataset_survey(const struct tally_data_spec *data, uint32_t clients,
                                       const struct tally_data_source *source, size_t *ret_features,
                                       struct tally_csv_labels *labels, struct tally_error *err);

/* Reads a .npy file of `rows` times `columns` numbers (columns 0: a vector of `rows`) into a new
 * double[rows][columns]. Errors: as above. */
enum tally_status tally_matrix_load(const struct tally_data_source *source, const char *name,
                                    size_t rows, size_t columns, double **ret_values,
                                    struct tally_error *err);

/* Reads a .npy file of dim finite values, float32 or float64, of any shape in C order, into a new
 * double[dim]. Errors: as above. */
enum tally_status tally_vector_load(const struct tally_data_source *source, const char *name,
                                    size_t dim, double **ret_values, struct tally_error *err);

#endif
