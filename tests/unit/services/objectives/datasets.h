/* datasets: loading files that the tests write. */
#ifndef TALLY_TESTS_UNIT_SERVICES_OBJECTIVES_DATASETS_H
#define TALLY_TESTS_UNIT_SERVICES_OBJECTIVES_DATASETS_H

#include "services/objectives/data/load_data.h"
#include "tests/unit/services/objectives/data_files.h"

extern struct idx_files DATASET_FILES;
extern const struct tally_data_source DATASET_SOURCE;

struct tally_data_spec dataset_spec_of(int type, int64_t features);

struct tally_dataset *dataset_load(const struct tally_data_spec *spec, enum tally_labels labels,
                                   uint32_t clients);

void dataset_expect_refused(const struct tally_data_spec *spec, uint32_t clients,
                            const char *message);

void dataset_write_images(const char *images, const char *labels, uint32_t n, uint8_t first);

struct tally_data_spec dataset_idx_spec(int sharding, int64_t points_per_class);

#endif
