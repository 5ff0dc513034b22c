/* npy_data: points, labels and matrices from .npy files, as a stream.
 *
 * Values are integers or floats of any width; those that are not finite, or integers that no double
 * is, are refused with their row. Rows count from 0, as NumPy's do. */
#ifndef TALLY_SERVICES_OBJECTIVES_DATA_LOADERS_NPY_DATA_H
#define TALLY_SERVICES_OBJECTIVES_DATA_LOADERS_NPY_DATA_H

#include "services/objectives/data/dataset_builder.h"

/* Appends the rows of an array of shape (points, features), in C or Fortran order; no labels yet.
 * Errors: as tally_dataset_load(). */
enum tally_status tally_npy_read_points(struct tally_data_file *file, size_t features,
                                        struct tally_dataset_builder *builder, size_t *ret_points);
/* Gives them their labels, from an array of shape (points,) or (points, 1). */
enum tally_status tally_npy_read_labels(struct tally_data_file *file, size_t points,
                                        struct tally_dataset_builder *builder);

#endif
