/* CSV files whose label is the column y. */
#include "services/objectives/data/loaders/formats.h"
#include "tests/fuzz/fuzz_data.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_data fuzz;
    struct tally_data_file *file;
    if (fuzz_data_init(&fuzz, false, data, size, &file)) {
        const enum tally_status status =
            tally_csv_read(file, "y", fuzz.dataset.features, &fuzz.builder);
        FUZZ_CHECK(status != TALLY_OK ||
                   fuzz.builder.n_values == fuzz.dataset.points * fuzz.dataset.features);
        fuzz_data_fini(&fuzz, file, status);
    }
    return 0;
}
