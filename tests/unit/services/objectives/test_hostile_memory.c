/* Data files that claim or expand to more than they hold are refused in bounded memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "services/objectives/data/dataset.h"
#include "services/objectives/data/load_data.h"
#include "tests/harness.h"
#include "tests/unit/services/objectives/data_files.h"
#include "tests/unit/services/objectives/hostile_files.h"

/* Returns the peak memory of a child that loads the data, or does nothing if `spec` is NULL. */
static long peak_kib(const struct tally_data_spec *spec, const char *message)
{
    const pid_t child = fork();
    if (child == 0) {
        struct tally_error err = TALLY_ERROR_INIT;
        if (spec != NULL && hostile_try_load(spec, TALLY_LABELS_REAL, &err) == TALLY_OK) {
            _exit(1);
        }
        if (spec != NULL && strstr(err.message, message) == NULL) {
            fprintf(stderr, "\n%s\n", err.message);
            _exit(2);
        }
        _exit(0);
    }
    int status = -1;
    struct rusage used;
    CU_ASSERT_EQUAL_FATAL(wait4(child, &status, 0, &used), child);
    CU_ASSERT_EQUAL(status, 0);
    return used.ru_maxrss;
}

/* Expects a peak of at most 32 MiB more; zlib, libzip and the windows take one or two. */
static void expect_small(const struct tally_data_spec *spec, const char *message)
{
    const long before = peak_kib(NULL, "");
    const long peak = peak_kib(spec, message);
    if (peak > before + 32768) {
        fprintf(stderr, "\n%s: %ld KiB, %ld before\n", message, peak, before);
    }
    CU_ASSERT_TRUE(peak <= before + 32768);
}

static uint8_t MEGABYTE[1 << 20];

/* A few hundred KiB that unpack to 64 MiB and more. */
static void test_objectives_hostile_memory__bombs_take_no_memory(void)
{
    idx_files_init(&HOSTILE_FILES);
    struct tally_data_spec spec = hostile_spec_of(TALLY_DATA_LIBSVM, 10000000);
    static const struct {
        int type;
        char fill;
        const char *message;
    } texts[] = {
        {TALLY_DATA_LIBSVM, ' ', "file has no points"},
        {TALLY_DATA_LIBSVM, '\n', "file has no points"},
        {TALLY_DATA_LIBSVM, '#', "file has no points"},
        {TALLY_DATA_LIBSVM, '1', "file:1: label \"111111111111111111111111...\" is too long"},
        {TALLY_DATA_LIBSVM, '\0', "file:1: label \"\" has a NUL byte"},
        {TALLY_DATA_CSV, ' ', "file:1: no column \"y\", only number 1"},
        {TALLY_DATA_CSV, ',', "file:1: no column \"y\", only number 1, number 2"},
        {TALLY_DATA_CSV, '"', "file:1: a field of more than 127 bytes"},
        {TALLY_DATA_CSV, 'y', "file:1: a field of more than 127 bytes"},
        {TALLY_DATA_CSV, '\n', "file:1: no column \"y\""},
        {TALLY_DATA_NPY, '\0', "X: not a .npy file"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        memset(MEGABYTE, texts[i].fill, sizeof MEGABYTE);
        data_files_gzip(&HOSTILE_FILES, texts[i].type == TALLY_DATA_NPY ? "X.gz" : "file.gz",
                        MEGABYTE, sizeof MEGABYTE, 64);
        spec.type = texts[i].type;
        expect_small(&spec, texts[i].message);
    }
    /* A zip whose array is longer than its header says, or truly as large as that says. */
    memset(MEGABYTE, 0, sizeof MEGABYTE);
    uint8_t *bytes = malloc(sizeof MEGABYTE + 200);
    CU_ASSERT_PTR_NOT_NULL_FATAL(bytes);
    static const struct {
        const char *header, *message;
        int64_t features;
    } arrays[] = {
        {HOSTILE_NPY("(2, 3)"), "file/X: has data after its 6 values", 3},
        {HOSTILE_NPY("(16777216, 100)"), "file/X: 16777216 points of 100 numbers are more than",
         100},
        {HOSTILE_NPY("(1, 10000000)"), "file/X: row 0: the value of column 0 is not finite",
         10000000},
    };
    for (size_t i = 0; i < 3; i++) {
        if (i == 2) {
            memset(MEGABYTE, 0xff, sizeof MEGABYTE);
        }
        const size_t n = data_files_npy_bytes(arrays[i].header, MEGABYTE, sizeof MEGABYTE, bytes);
        const struct zip_member member = {
            .name = "X.npy", .bytes = bytes, .n = n, .n_tail = sizeof MEGABYTE, .n_times = 64};
        data_files_zip(&HOSTILE_FILES, "file", &member, 1, 1);
        spec = hostile_spec_of(TALLY_DATA_NPZ, arrays[i].features);
        expect_small(&spec, arrays[i].message);
    }
    free(bytes);
    idx_files_fini(&HOSTILE_FILES);
}

/* Writes a file of `size` bytes that begins with `bytes`; the rest is a hole. */
static void write_sparse(const char *name, const void *bytes, size_t n, off_t size)
{
    char path[400];
    idx_files_write(&HOSTILE_FILES, name, bytes, n);
    snprintf(path, sizeof path, "%s/%s", HOSTILE_FILES.folder, name);
    CU_ASSERT_EQUAL_FATAL(truncate(path, size), 0);
}

#define BYTES(shape)   "{'descr': '|i1', 'fortran_order': False, 'shape': " shape "}"
#define FORTRAN(shape) "{'descr': '|i1', 'fortran_order': True, 'shape': " shape "}"

/* A few KiB that unpack to 64 MiB, which would be 512 MiB of doubles, followed by an error. */
static void test_objectives_hostile_memory__a_late_mistake_takes_no_memory(void)
{
    static const struct {
        const char *points, *labels, *message;
    } arrays[] = {
        {BYTES("(8388608, 8)"), HOSTILE_NPY("(3,)"),
         "file/y: has shape (3,), not (8388608,), a label"},
        {FORTRAN("(8388608, 8)"), HOSTILE_NPY("(3,)"),
         "file/y: has shape (3,), not (8388608,), a label"},
        {BYTES("(8388607, 8)"), HOSTILE_NPY("(8388607,)"),
         "file/X: has data after its 67108856 values"},
        {BYTES("(8388609, 8)"), HOSTILE_NPY("(8388609,)"),
         "file/X: row 8388608: the file ends there, 8 values too early"},
        {BYTES("(8388608, 8)"), HOSTILE_NPY("(8388608,)"),
         "file/y: row 3: the file ends there, 8388605 values too early"},
    };
    uint8_t *bytes = malloc(sizeof MEGABYTE + 200), labels[200];
    CU_ASSERT_PTR_NOT_NULL_FATAL(bytes);
    idx_files_init(&HOSTILE_FILES);
    memset(MEGABYTE, 0, sizeof MEGABYTE);
    struct tally_data_spec spec = hostile_spec_of(TALLY_DATA_NPZ, 8);
    size_t n = 0;
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        n = data_files_npy_bytes(arrays[i].points, MEGABYTE, sizeof MEGABYTE, bytes);
        const struct zip_member members[] = {
            {.name = "X.npy", .bytes = bytes, .n = n, .n_tail = sizeof MEGABYTE, .n_times = 64},
            {.name = "y.npy",
             .bytes = labels,
             .n = data_files_npy_bytes(arrays[i].labels, HOSTILE_NUMBERS, 24, labels)}};
        data_files_zip(&HOSTILE_FILES, "file", members, 2, 1);
        expect_small(&spec, arrays[i].message);
    }
    /* A hole in the file instead of compression. */
    spec.type = TALLY_DATA_NPY;
    n = data_files_npy_bytes(BYTES("(8388608, 8)"), HOSTILE_NUMBERS, 0, bytes);
    write_sparse("X", bytes, n, (off_t)n + (64 << 20));
    data_files_npy(&HOSTILE_FILES, "y", HOSTILE_NPY("(3,)"), HOSTILE_NUMBERS, 24);
    expect_small(&spec, "y: has shape (3,), not (8388608,), a label for each point");
    spec =
        (struct tally_data_spec){.type = TALLY_DATA_MATRIX, .matrix = {.matrix = "A", .dim = 8192}};
    n = data_files_npy_bytes(FORTRAN("(8192, 8192)"), HOSTILE_NUMBERS, 0, bytes);
    write_sparse("A", bytes, n, (off_t)n + (64 << 20) + 1);
    expect_small(&spec, "A: has data after its 67108864 values");
    /* Text: one point more than the limit of 2^25. */
    for (size_t i = 0; i < sizeof MEGABYTE; i++) {
        MEGABYTE[i] = i % 2 == 0 ? '1' : '\n';
    }
    data_files_gzip(&HOSTILE_FILES, "points.gz", MEGABYTE, sizeof MEGABYTE, 65);
    spec = hostile_spec_of(TALLY_DATA_LIBSVM, 8);
    strcpy(spec.table.file, "points");
    expect_small(&spec, "points:33554433: more than 33554432 points in all");
    /* Images with a pixel too few, and labels with a byte too many. */
    spec = (struct tally_data_spec){
        .type = TALLY_DATA_IDX,
        .idx = {.images = "X", .labels = "y", .features = 1 << 20, .classes = 2}};
    memcpy(bytes, (const uint8_t[16]){0, 0, 8, 3, 0, 0, 0, 64, 0, 0, 4, 0, 0, 0, 4, 0}, 16);
    write_sparse("X", bytes, 16, 16 + (64 << 20) - 1);
    n = idx_labels(64, MEGABYTE + sizeof MEGABYTE - 200, bytes);
    memset(bytes + 8, 0, 64);
    idx_files_write(&HOSTILE_FILES, "y", bytes, n);
    expect_small(&spec, "X: ends before its 64 images");
    memcpy(bytes, (const uint8_t[8]){0, 0, 8, 1, 2, 0, 0, 0}, 8); /* 2^25 labels */
    write_sparse("y", bytes, 8, 8 + (1 << 25) + 1);
    expect_small(&spec, "y: has data after its 33554432 labels");
    free(bytes);
    idx_files_fini(&HOSTILE_FILES);
}

/* Headers of a few bytes that claim gigabytes are refused. */
static void test_objectives_hostile_memory__claims_are_not_allocated(void)
{
    idx_files_init(&HOSTILE_FILES);
    struct tally_data_spec spec = hostile_spec_of(TALLY_DATA_NPY, 10000000);
    data_files_npy(&HOSTILE_FILES, "X", HOSTILE_NPY("(13, 10000000)"), HOSTILE_NUMBERS, 48);
    expect_small(&spec, "X: row 0: the file ends there, 129999994 values too early");
    data_files_npy(&HOSTILE_FILES, "X",
                   "{'descr': '<f8', 'fortran_order': True, 'shape': (13, 10000000)}",
                   HOSTILE_NUMBERS, 48);
    expect_small(&spec, "X: row 6: the file ends there, 129999994 values too early");
    spec = (struct tally_data_spec){.type = TALLY_DATA_IDX,
                                    .idx = {.images = "X",
                                            .labels = "y",
                                            .features = 1000000,
                                            .classes = 2,
                                            .points_per_class = 500}};
    static uint8_t bytes[IDX_MAX_BYTES], labels[1000];
    for (size_t i = 0; i < sizeof labels; i++) {
        labels[i] = i % 2;
    }
    size_t n = idx_labels(1000, labels, bytes);
    idx_files_write(&HOSTILE_FILES, "y", bytes, n);
    n = idx_images(1, 1, 4, labels, bytes);
    bytes[6] = 1000 >> 8;
    bytes[7] = 1000 & 255;
    memcpy(bytes + 8, (const uint8_t[8]){0, 0, 1000 >> 8, 1000 & 255, 0, 0, 1000 >> 8, 1000 & 255},
           8);
    idx_files_write(&HOSTILE_FILES, "X", bytes, n);
    expect_small(&spec, "X: ends in image 0 of 1000");
    memcpy(bytes, (const uint8_t[8]){0, 0, 8, 1, 2, 0, 0, 0}, 8); /* 2^25 labels */
    idx_files_write(&HOSTILE_FILES, "y", bytes, 8);
    expect_small(&spec, "X has 1000 images of 1000 x 1000, not 33554432 of 1000000 pixels");
    data_files_npy(&HOSTILE_FILES, "A", HOSTILE_NPY("(8192, 8192)"), HOSTILE_NUMBERS, 48);
    spec =
        (struct tally_data_spec){.type = TALLY_DATA_MATRIX, .matrix = {.matrix = "A", .dim = 8192}};
    expect_small(&spec, "A: row 0: the file ends there, 67108858 values too early");
    idx_files_fini(&HOSTILE_FILES);
}

/* The limits of a dataset. The builder is set to have reached them. */
static void test_objectives_hostile_memory__there_is_an_end(void)
{
    idx_files_init(&HOSTILE_FILES);
    data_files_text(&HOSTILE_FILES, "file", "");
    for (int i = 0; i < 2; i++) {
        struct tally_data_file *file = NULL;
        struct tally_dataset dataset = {.points = TALLY_DATA_MAX_POINTS};
        struct tally_dataset_builder builder = {.dataset = &dataset,
                                                .n_values = TALLY_DATA_MAX_VALUES};
        struct tally_error err = TALLY_ERROR_INIT;
        CU_ASSERT_EQUAL_FATAL(tally_data_file_open(&HOSTILE_SOURCE, "file", &file, &err), TALLY_OK);
        file->place = TALLY_DATA_LINE;
        file->line = 77;
        CU_ASSERT_EQUAL(i == 0 ? tally_builder_value(&builder, file, 0, 1)
                               : tally_builder_point(&builder, file, 1),
                        TALLY_INVALID_ARGUMENT);
        TALLY_ASSERT_TEXT(
            err.message,
            i == 0 ? "file:77: more than 134217728 numbers in all, the most that a job's data may "
                     "hold"
                   : "file:77: more than 33554432 points in all, the most that a job may have");
        tally_data_file_close(file);
    }
    idx_files_fini(&HOSTILE_FILES);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_objectives_hostile_memory__bombs_take_no_memory),
    TALLY_TEST(test_objectives_hostile_memory__a_late_mistake_takes_no_memory),
    TALLY_TEST(test_objectives_hostile_memory__claims_are_not_allocated),
    TALLY_TEST(test_objectives_hostile_memory__there_is_an_end),
};
TALLY_SUITE(objectives_hostile_memory, TESTS);
