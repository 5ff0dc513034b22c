/* CSV files whose label is the column y. If the first column is called a..., they must have the
 * columns b and a of an earlier file. The length chooses what happens to missing values. */
#include <math.h>

#include "services/objectives/data/formats.h"
#include "tests/fuzz/fuzz_data.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_data fuzz;
    struct tally_data_file *file;
    if (fuzz_data_init(&fuzz, false, data, size, &file)) {
        struct tally_columns columns = {.n = 0};
        if (size > 0 && data[0] == 'a') {
            FUZZ_CHECK(tally_columns_add(&columns, "b") && tally_columns_add(&columns, "a"));
        }
        const struct tally_table_data table = {
            .label = "y", .features = (int64_t)fuzz.dataset.features, .missing = (int)(size % 3)};
        const enum tally_status status = tally_csv_read(file, &table, &columns, &fuzz.builder);
        tally_columns_fini(&columns);
        FUZZ_CHECK(status != TALLY_OK ||
                   fuzz.builder.n_values == fuzz.dataset.points * fuzz.dataset.features);
        for (size_t i = 0; table.missing == TALLY_MISSING_MEAN && i < fuzz.builder.n_values; i++) {
            double *value = &fuzz.dataset.values[i]; /* NaN stands for the mean */
            *value = isnan(*value) ? 0 : *value;
        }
        fuzz_data_fini(&fuzz, file, status);
    }
    return 0;
}
