/* LIBSVM files. */
#include "services/objectives/data/formats.h"
#include "tests/fuzz/fuzz_data.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_data fuzz;
    struct tally_data_file *file;
    if (fuzz_data_init(&fuzz, true, data, size, &file)) {
        const enum tally_status status =
            tally_libsvm_read(file, fuzz.dataset.features, &fuzz.builder);
        fuzz_data_fini(&fuzz, file, status);
    }
    return 0;
}
