/* dataset_builder: a dataset while its files are read, for the loaders only.
 *
 * Memory grows with the numbers that the files actually contain, and never beyond the limits of
 * data.h. */
#ifndef TALLY_SERVICES_OBJECTIVES_DATA_DATASET_BUILDER_H
#define TALLY_SERVICES_OBJECTIVES_DATA_DATASET_BUILDER_H

#include "services/objectives/data/data_file.h"
#include "services/objectives/data/dataset.h"

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
};

/* All of these fail with the file's name and line through tally_data_file_refuse(), or with
 * NO_MEMORY. */

/* Appends a number; `column` counts from 0 and, within a row, up; it matters if sparse. */
enum tally_status tally_builder_value(struct tally_dataset_builder *builder,
                                      struct tally_data_file *file, uint32_t column, double value);
/* Ends the row of a point. If dense, it may also be called for all points after all values. */
enum tally_status tally_builder_point(struct tally_dataset_builder *builder,
                                      struct tally_data_file *file, double label);
/* What helps against a label that is no class, to be appended to the error; "" = not known. */
const char *tally_builder_label_remedy(double label, int64_t classes);
/* Describes what is wrong with a label, or returns NULL; for formats without lines. */
const char *tally_builder_check_label(struct tally_dataset_builder *builder, double label);

#endif
