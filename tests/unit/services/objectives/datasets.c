#include "tests/unit/services/objectives/datasets.h"

#include <string.h>

#include "tests/harness.h"

struct idx_files DATASET_FILES;
const struct tally_data_source DATASET_SOURCE = {.dir = DATASET_FILES.folder};

struct tally_data_spec dataset_spec_of(int type, int64_t features)
{
    struct tally_data_spec spec = {
        .type = type,
        .sharding = TALLY_SHARDING_CONTIGUOUS,
        .table = {
            .file = "file", .points = "X", .labels = "y", .label = "label", .features = features}};
    if (type == TALLY_DATA_NPY) {
        strcpy(spec.table.points, "X.npy");
        strcpy(spec.table.labels, "y.npy");
    }
    return spec;
}

struct tally_dataset *dataset_load(const struct tally_data_spec *spec, enum tally_labels labels,
                                   uint32_t clients)
{
    struct tally_dataset *dataset = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_dataset_load(spec, labels, clients, tally_rng_key(9, 0),
                                           &DATASET_SOURCE, &dataset, &err),
                        TALLY_OK, &err);
    CU_ASSERT_PTR_NOT_NULL_FATAL(dataset);
    return dataset;
}

void dataset_expect_refused(const struct tally_data_spec *spec, uint32_t clients,
                            const char *message)
{
    struct tally_dataset *dataset = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_dataset_load(spec, TALLY_LABELS_REAL, clients, tally_rng_key(9, 0),
                                           &DATASET_SOURCE, &dataset, &err),
                        TALLY_INVALID_ARGUMENT, &err);
    TALLY_ASSERT_TEXT(err.message, message);
    CU_ASSERT_PTR_NULL(dataset);
}

void dataset_write_images(const char *images, const char *labels, uint32_t n, uint8_t first)
{
    uint8_t bytes[IDX_MAX_BYTES], pixels[64], classes[32];
    for (uint32_t i = 0; i < n; i++) {
        classes[i] = (uint8_t)((i * 7 + 3) % 3);
        pixels[2 * i] = (uint8_t)(first + i);
        pixels[2 * i + 1] = (uint8_t)(255 - i);
    }
    idx_files_write(&DATASET_FILES, images, bytes, idx_images(n, 1, 2, pixels, bytes));
    idx_files_write(&DATASET_FILES, labels, bytes, idx_labels(n, classes, bytes));
}

struct tally_data_spec dataset_idx_spec(int sharding, int64_t points_per_class)
{
    return (struct tally_data_spec){.type = TALLY_DATA_IDX,
                                    .sharding = sharding,
                                    .idx = {.images = "images",
                                            .labels = "labels",
                                            .features = 2,
                                            .classes = 3,
                                            .points_per_class = points_per_class}};
}
