/* hostile_files: loading files that must be refused. */
#ifndef TALLY_TESTS_UNIT_SERVICES_OBJECTIVES_HOSTILE_FILES_H
#define TALLY_TESTS_UNIT_SERVICES_OBJECTIVES_HOSTILE_FILES_H

#include "services/objectives/data/load_data.h"
#include "tests/unit/services/objectives/data_files.h"

extern struct idx_files HOSTILE_FILES;
extern const struct tally_data_source HOSTILE_SOURCE;

struct tally_data_spec hostile_spec_of(int type, int64_t features);

enum tally_status hostile_try_load(const struct tally_data_spec *spec, enum tally_labels labels,
                                   struct tally_error *err);

/* The header of an NPY file. */
#define HOSTILE_NPY(shape) "{'descr': '<f8', 'fortran_order': False, 'shape': " shape "}"
extern const double HOSTILE_NUMBERS[6]; /* 1 .. 6 */

#endif
