/* .npz files with arrays X and y, from the file to the dataset. */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "services/objectives/data/load_data.h"
#include "tests/fuzz/fuzz.h"

static char FOLDER[] = "/tmp/tally-fuzz-npz-XXXXXX";
static const char *path;

static void remove_folder(void)
{
    rmdir(FOLDER);
}

/* Writes the file. The first call makes the folder. */
static void write_file(const uint8_t *data, size_t size)
{
    static char room[sizeof FOLDER + 10];
    if (path == NULL) {
        FUZZ_CHECK(mkdtemp(FOLDER) != NULL);
        atexit(remove_folder);
        snprintf(room, sizeof room, "%s/file", FOLDER);
        path = room;
    }
    FILE *file = fopen(path, "wb");
    FUZZ_CHECK(file != NULL && fwrite(data, 1, size, file) == size);
    FUZZ_CHECK(fclose(file) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1) {
        return 0;
    }
    const struct tally_data_spec spec = {
        .type = TALLY_DATA_NPZ,
        .table = {.file = "file", .points = "X", .labels = "y", .features = 1 + data[0] % 32}};
    struct tally_dataset *dataset = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    write_file(data + 1, size - 1);
    const struct tally_data_source source = {.dir = FOLDER};
    const enum tally_status status = tally_dataset_load(
        &spec, TALLY_LABELS_REAL, 1, tally_rng_key(1, 0), &source, &dataset, &err);
    unlink(path);
    if (status != TALLY_OK) {
        FUZZ_CHECK(status == TALLY_INVALID_ARGUMENT && strncmp(err.message, "file", 4) == 0);
        return 0;
    }
    for (size_t v = 0; v < dataset->points * dataset->features; v++) {
        FUZZ_CHECK(isfinite(dataset->values[v]));
    }
    tally_dataset_free(dataset);
    return 0;
}
