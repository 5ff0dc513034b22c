#include "tests/unit/services/objectives/hostile_files.h"

#include "tests/harness.h"

struct idx_files HOSTILE_FILES;
const struct tally_data_source HOSTILE_SOURCE = {.dir = HOSTILE_FILES.folder};
const double HOSTILE_NUMBERS[6] = {1, 2, 3, 4, 5, 6};

struct tally_data_spec hostile_spec_of(int type, int64_t features)
{
    return (struct tally_data_spec){
        .type = type,
        .sharding = TALLY_SHARDING_CONTIGUOUS,
        .table = {
            .file = "file", .points = "X", .labels = "y", .label = "y", .features = features}};
}

enum tally_status hostile_try_load(const struct tally_data_spec *spec, enum tally_labels labels,
                                   struct tally_error *err)
{
    struct tally_dataset *dataset = NULL;
    if (spec->type == TALLY_DATA_MATRIX) {
        double *values;
        const size_t dim = (size_t)spec->matrix.dim;
        return tally_matrix_load(&HOSTILE_SOURCE, spec->matrix.matrix, dim, dim, &values, err);
    }
    const enum tally_status status =
        tally_dataset_load(spec, labels, 1, tally_rng_key(1, 0), &HOSTILE_SOURCE, &dataset, err);
    CU_ASSERT_EQUAL(dataset != NULL, status == TALLY_OK);
    tally_dataset_free(dataset);
    return status;
}
