/* libsvm: points in the text format of LIBSVM and SVMlight.
 *
 *     LABEL INDEX:VALUE INDEX:VALUE ...  # comment
 *
 * Indices count from 1 and ascend within a line; what is not named is 0. Lines that are empty or
 * only a comment are skipped. `qid:` (ranking) is refused. */
#ifndef TALLY_SERVICES_OBJECTIVES_DATA_LOADERS_LIBSVM_H
#define TALLY_SERVICES_OBJECTIVES_DATA_LOADERS_LIBSVM_H

#include "services/objectives/data/dataset_builder.h"

/* Appends the points of the file. Errors: as tally_dataset_load(). */
enum tally_status tally_libsvm_read(struct tally_data_file *file, size_t features,
                                    struct tally_dataset_builder *builder);

#endif
