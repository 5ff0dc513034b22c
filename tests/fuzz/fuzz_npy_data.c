/* Points in .npy files, read as a stream. */
#include "services/objectives/data/formats.h"
#include "tests/fuzz/fuzz_data.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_data fuzz;
    struct tally_data_file *file;
    size_t points = 0;
    if (fuzz_data_init(&fuzz, false, data, size, &file)) {
        const enum tally_status status =
            tally_npy_read_points(file, fuzz.dataset.features, &fuzz.builder, &points);
        FUZZ_CHECK(status != TALLY_OK || fuzz.builder.n_values == points * fuzz.dataset.features);
        FUZZ_CHECK(fuzz.builder.n_values <= size);
        fuzz_data_fini(&fuzz, file, status);
    }
    return 0;
}
