/* Data files of every format: rows, labels, layouts and progress. */
#include "services/objectives/data/load_data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness.h"
#include "tests/unit/services/objectives/data_files.h"
#include "tests/unit/services/objectives/datasets.h"

/* Rows are double[points][features]. */
static void expect_points(const struct tally_dataset *dataset, uint32_t points, size_t features,
                          const double *rows, const double *labels)
{
    double row[16];
    CU_ASSERT_EQUAL_FATAL(dataset->points, points);
    CU_ASSERT_EQUAL_FATAL(dataset->features, features);
    for (uint32_t i = 0; i < points; i++) {
        tally_dataset_row(dataset, i, row);
        CU_ASSERT_EQUAL(memcmp(row, rows + i * features, features * sizeof *row), 0);
        CU_ASSERT_EQUAL(dataset->labels[i], labels[i]);
    }
}

static const double ROWS[3][4] = {{0.5, 0, -2, 0}, {0, 0, 0, 1e-3}, {1, 2, 3, 4}};
static const double LABELS[3] = {1.5, -2, 0};

static void expect_three(const struct tally_data_spec *spec)
{
    struct tally_dataset *dataset = dataset_load(spec, TALLY_LABELS_REAL, 1);
    expect_points(dataset, 3, 4, &ROWS[0][0], LABELS);
    CU_ASSERT_TRUE(dataset->is_whole);
    CU_ASSERT_EQUAL(dataset->shards[0].first, 0);
    CU_ASSERT_EQUAL(dataset->shards[0].size, 3);
    tally_dataset_free(dataset);
}

static void test_objectives_dataset__reads_libsvm(void)
{
    static const char *const spellings[] = {
        "1.5 1:0.5 3:-2\n-2 4:1e-3\n0 1:1 2:2 3:3 4:4\n",
        "1.5 1:0.5 3:-2\n-2 4:1e-3\n0 1:1 2:2 3:3 4:4",
        "1.5 1:0.5 3:-2\r\n-2 4:1e-3\r\n0 1:1 2:2 3:3 4:4\r\n",
        "# three points\n\n+1.5\t1:.5  3:-2 # the first\n \t\n-2 4:0.001 \n0 1:1 2:2 3:3 4:4# last",
        "1.5 001:0.5 2:0 3:-2e0\n-2 4:1E-3\n0.0 1:1 2:2 3:3 4:4\n#\n",
        "\357\273\2771.5 1:0.5 3:-2\n-2 4:1e-3\n0 1:1 2:2 3:3 4:4\n",
    };
    idx_files_init(&DATASET_FILES);
    const struct tally_data_spec spec = dataset_spec_of(TALLY_DATA_LIBSVM, 4);
    for (size_t i = 0; i < sizeof spellings / sizeof spellings[0]; i++) {
        data_files_text(&DATASET_FILES, "file", spellings[i]);
        expect_three(&spec);
    }
    idx_files_fini(&DATASET_FILES);
}

/* Features that a line does not name take no memory; a point may be all zeros. */
static void test_objectives_dataset__libsvm_stays_sparse(void)
{
    idx_files_init(&DATASET_FILES);
    const struct tally_data_spec spec = dataset_spec_of(TALLY_DATA_LIBSVM, 10000000);
    data_files_text(&DATASET_FILES, "file", "1 10000000:7\n2\n3 1:5 2:0 9999999:6\n");
    struct tally_dataset *dataset = dataset_load(&spec, TALLY_LABELS_REAL, 1);
    static const size_t first[] = {0, 1, 1, 3};
    static const uint32_t columns[] = {9999999, 0, 9999998};
    CU_ASSERT_EQUAL(dataset->points, 3);
    CU_ASSERT_EQUAL(memcmp(dataset->row_first, first, sizeof first), 0);
    CU_ASSERT_EQUAL(memcmp(dataset->columns, columns, sizeof columns), 0);
    CU_ASSERT_EQUAL(dataset->values[2], 6);
    tally_dataset_free(dataset);
    idx_files_fini(&DATASET_FILES);
}

static void test_objectives_dataset__reads_csv(void)
{
    static const char *const spellings[] = {
        "a,b,label,c,d\n0.5,0,1.5,-2,0\n0,0,-2,0,1e-3\n1,2,0,3,4\n",
        "\xef\xbb\xbf"
        "label,a,b,c,d\r\n1.5,0.5,0,-2,0\r\n-2,0,0,0,0.001\r\n0,1,2,3,4",
        "\xef\xbb\xbf"
        "a,b,c,d,label\n0.5,0,-2,0,1.5\n\n0,0,0,1e-3,-2\n\r\n1,2,3,4,0\n\n",
        "\"a, or "
        "\"\"b\"\"\",b,\"two\nlines\",d,\"label\"\n0.5,0,-2,0,1.5\n0,0,0,1e-3,-2\n1,2,3,4,0",
        "a , b,c,d, label \n 0.5,0\t, -2 ,\"0\",1.5\n0,0,0,1e-3,-2\n\"1\",2,3,4,\"0\"\n",
    };
    idx_files_init(&DATASET_FILES);
    const struct tally_data_spec spec = dataset_spec_of(TALLY_DATA_CSV, 4);
    for (size_t i = 0; i < sizeof spellings / sizeof spellings[0]; i++) {
        data_files_text(&DATASET_FILES, "file", spellings[i]);
        expect_three(&spec);
    }
    idx_files_fini(&DATASET_FILES);
}

/* Lines and windows of the file may end anywhere. */
static void test_objectives_dataset__reads_text_across_windows(void)
{
    enum { POINTS = 40000 };
    char *text = malloc(POINTS * 40);
    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    idx_files_init(&DATASET_FILES);
    for (int type = TALLY_DATA_LIBSVM; type <= TALLY_DATA_CSV; type++) {
        size_t n = type == TALLY_DATA_CSV ? (size_t)sprintf(text, "x,label\r\n") : 0;
        for (int i = 0; i < POINTS; i++) {
            n += (size_t)(type == TALLY_DATA_CSV ? sprintf(text + n, "%d,%d\r\n\r\n", 7 * i, i)
                                                 : sprintf(text + n, "%d 1:%d\r\n\r\n", i, 7 * i));
        }
        data_files_text(&DATASET_FILES, "file", text);
        const struct tally_data_spec spec = dataset_spec_of(type, 1);
        struct tally_dataset *dataset = dataset_load(&spec, TALLY_LABELS_REAL, 1);
        CU_ASSERT_EQUAL_FATAL(dataset->points, POINTS);
        uint32_t n_right = 0;
        for (uint32_t i = 0; i < POINTS; i++) {
            double x = -1;
            tally_dataset_row(dataset, i, &x);
            n_right += dataset->labels[i] == i && x == 7.0 * i;
        }
        CU_ASSERT_EQUAL(n_right, POINTS);
        tally_dataset_free(dataset);
    }
    idx_files_fini(&DATASET_FILES);
    free(text);
}

/* 2 points of 3 numbers, in every NumPy type. */
static void test_objectives_dataset__reads_npy_of_every_type(void)
{
    static const int8_t i1[] = {1, -2, 3, 4, 5, -128};
    static const int16_t i2[] = {1, -2, 3, 4, 5, -32768};
    static const int32_t i4[] = {1, -2, 3, 4, 5, INT32_MIN};
    static const int64_t i8[] = {1, -2, 3, 4, 5, -(INT64_C(1) << 53)};
    static const uint8_t u1[] = {1, 2, 3, 4, 5, 255};
    static const uint16_t u2[] = {1, 2, 3, 4, 5, 65535};
    static const uint32_t u4[] = {1, 2, 3, 4, 5, UINT32_MAX};
    static const uint64_t u8[] = {1, 2, 3, 4, 5, UINT64_C(1) << 53};
    static const float f4[] = {1, -2, 3, 4, 5, 0.1f};
    static const double f8[] = {1, -2, 3, 4, 5, 0.1};
    static const struct {
        const char *descr;
        const void *values;
        size_t n;
        double second, last;
    } rows[] = {
        {"|i1", i1, sizeof i1, -2, -128},         {"<i2", i2, sizeof i2, -2, -32768},
        {"<i4", i4, sizeof i4, -2, INT32_MIN},    {"<i8", i8, sizeof i8, -2, -9007199254740992.0},
        {"|u1", u1, sizeof u1, 2, 255},           {"<u2", u2, sizeof u2, 2, 65535},
        {"<u4", u4, sizeof u4, 2, 4294967295.0},  {"<u8", u8, sizeof u8, 2, 9007199254740992.0},
        {"<f4", f4, sizeof f4, -2, (double)0.1f}, {"<f8", f8, sizeof f8, -2, 0.1},
    };
    static const double labels[] = {7, 8};
    idx_files_init(&DATASET_FILES);
    const struct tally_data_spec spec = dataset_spec_of(TALLY_DATA_NPY, 3);
    data_files_npy(&DATASET_FILES, "y.npy",
                   "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 1), }", labels,
                   sizeof labels);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (int is_fortran = 0; is_fortran < 2; is_fortran++) {
            char header[100];
            snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': %s, 'shape': (2, 3)}",
                     rows[i].descr, is_fortran ? "True" : "False");
            data_files_npy(&DATASET_FILES, "X.npy", header, rows[i].values, rows[i].n);
            struct tally_dataset *dataset = dataset_load(&spec, TALLY_LABELS_REAL, 1);
            const double in_c[] = {1, rows[i].second, 3, 4, 5, rows[i].last};
            const double in_fortran[] = {1, 3, 5, rows[i].second, 4, rows[i].last};
            expect_points(dataset, 2, 3, is_fortran ? in_fortran : in_c, labels);
            tally_dataset_free(dataset);
        }
    }
    /* A single feature may be stored as a vector. */
    const struct tally_data_spec single = dataset_spec_of(TALLY_DATA_NPY, 1);
    data_files_npy(&DATASET_FILES, "X.npy",
                   "{'descr': '<f8', 'fortran_order': True, 'shape': (2,)}", f8, 16);
    struct tally_dataset *dataset = dataset_load(&single, TALLY_LABELS_REAL, 1);
    expect_points(dataset, 2, 1, f8, labels);
    tally_dataset_free(dataset);
    idx_files_fini(&DATASET_FILES);
}

static void test_objectives_dataset__reads_npz_and_gzip(void)
{
    uint8_t points[300], labels[200];
    static const char points_header[] = "{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4)}";
    static const char labels_header[] = "{'descr': '<f8', 'fortran_order': False, 'shape': (3,)}";
    const size_t n_points = data_files_npy_bytes(points_header, ROWS, sizeof ROWS, points);
    const size_t n_labels = data_files_npy_bytes(labels_header, LABELS, sizeof LABELS, labels);
    const struct zip_member members[] = {{.name = "y.npy", .bytes = labels, .n = n_labels},
                                         {.name = "other.npy", .bytes = "?", .n = 1},
                                         {.name = "X.npy", .bytes = points, .n = n_points}};
    idx_files_init(&DATASET_FILES);
    struct tally_data_spec spec = dataset_spec_of(TALLY_DATA_NPZ, 4);
    for (int is_compressed = 0; is_compressed < 2; is_compressed++) {
        data_files_zip(&DATASET_FILES, "file", members, 3, is_compressed);
        expect_three(&spec);
    }
    strcpy(spec.table.points, "X.npy"); /* the name inside the zip */
    expect_three(&spec);
    spec = dataset_spec_of(TALLY_DATA_NPY, 4);
    data_files_gzip(&DATASET_FILES, "X.npy.gz", points, n_points, 1);
    data_files_gzip(&DATASET_FILES, "y.npy", labels, n_labels, 1); /* gzip by its first bytes */
    expect_three(&spec);
    spec = dataset_spec_of(TALLY_DATA_LIBSVM, 4);
    static const char text[] = "1.5 1:0.5 3:-2\n-2 4:1e-3\n0 1:1 2:2 3:3 4:4\n";
    idx_files_remove(&DATASET_FILES, "file");
    data_files_gzip(&DATASET_FILES, "file.gz", text, sizeof text - 1, 1);
    expect_three(&spec);
    idx_files_fini(&DATASET_FILES);
}

/* Images stay bytes. The set is all images, or equally many of every class. */
static void test_objectives_dataset__reads_idx(void)
{
    idx_files_init(&DATASET_FILES);
    dataset_write_images("images", "labels", 10, 0);
    struct tally_data_spec spec = dataset_idx_spec(TALLY_SHARDING_CONTIGUOUS, 0);
    struct tally_dataset *dataset = dataset_load(&spec, TALLY_LABELS_CLASSES, 2);
    CU_ASSERT_EQUAL_FATAL(dataset->points, 10);
    CU_ASSERT_PTR_NULL(dataset->values);
    for (uint32_t i = 0; i < 10; i++) {
        double row[2];
        tally_dataset_row(dataset, i, row);
        CU_ASSERT_EQUAL(row[0], i / 255.0);
        CU_ASSERT_EQUAL(row[1], (255 - i) / 255.0);
        CU_ASSERT_EQUAL(dataset->labels[i], (i * 7 + 3) % 3);
    }
    tally_dataset_free(dataset);
    /* The subset does not depend on the order. */
    bool chosen[4][10] = {{false}};
    for (int sharding = TALLY_SHARDING_IID; sharding <= TALLY_SHARDING_CONTIGUOUS; sharding++) {
        spec = dataset_idx_spec(sharding, 2);
        dataset = dataset_load(&spec, TALLY_LABELS_CLASSES, 2);
        CU_ASSERT_EQUAL_FATAL(dataset->points, 6);
        for (uint32_t i = 0; i < 6; i++) {
            chosen[sharding][dataset->bytes[2 * i]] = true;
            CU_ASSERT_EQUAL(dataset->labels[i], (dataset->bytes[2 * i] * 7 + 3) % 3);
            CU_ASSERT_TRUE(sharding != TALLY_SHARDING_BY_LABEL || dataset->labels[i] == i / 2);
            CU_ASSERT_TRUE(sharding != TALLY_SHARDING_CONTIGUOUS || i == 0 ||
                           dataset->bytes[2 * i] > dataset->bytes[2 * i - 2]);
        }
        CU_ASSERT_EQUAL(memcmp(chosen[0], chosen[sharding], sizeof chosen[0]), 0);
        tally_dataset_free(dataset);
    }
    spec = dataset_idx_spec(TALLY_SHARDING_IID, 0);
    spec.idx.classes = 2;
    dataset_expect_refused(&spec, 1,
                           "labels: label 2 of image 2 is not a class: classes are 0 to 1; if they "
                           "count from 1, subtract 1 from every label");
    idx_files_fini(&DATASET_FILES);
}

/* Dot products X_i . x and updates x += factor X_i agree with the rows in every layout. */
static void test_objectives_dataset__layouts_agree_with_their_rows(void)
{
    static const int types[] = {TALLY_DATA_LIBSVM, TALLY_DATA_CSV, TALLY_DATA_IDX};
    idx_files_init(&DATASET_FILES);
    dataset_write_images("images", "labels", 3, 40);
    for (size_t k = 0; k < 3; k++) {
        struct tally_data_spec spec = types[k] == TALLY_DATA_IDX
                                          ? dataset_idx_spec(TALLY_SHARDING_CONTIGUOUS, 0)
                                          : dataset_spec_of(types[k], 2);
        data_files_text(&DATASET_FILES, "file",
                        types[k] == TALLY_DATA_CSV ? "u,v,label\n1,2,0\n0,3,0\n-4,0.5,0\n"
                                                   : "0 1:1 2:2\n0 2:3\n0 1:-4 2:0.5\n");
        struct tally_dataset *dataset = dataset_load(&spec, TALLY_LABELS_REAL, 1);
        for (uint32_t i = 0; i < 3; i++) {
            const double x[2] = {0.3, -0.7};
            double row[2], sum[2] = {10, 20};
            tally_dataset_row(dataset, i, row);
            CU_ASSERT_EQUAL(tally_dataset_dot(dataset, i, x), row[0] * x[0] + row[1] * x[1]);
            tally_dataset_add(dataset, i, 1.5, sum);
            CU_ASSERT_EQUAL(sum[0], 10 + 1.5 * row[0]);
            CU_ASSERT_EQUAL(sum[1], 20 + 1.5 * row[1]);
        }
        tally_dataset_free(dataset);
    }
    idx_files_fini(&DATASET_FILES);
}

static void test_objectives_dataset__binary_labels_are_signs(void)
{
    idx_files_init(&DATASET_FILES);
    const struct tally_data_spec spec = dataset_spec_of(TALLY_DATA_LIBSVM, 1);
    data_files_text(&DATASET_FILES, "file", "0 1:1\n1\n0\n-0\n");
    struct tally_dataset *dataset = dataset_load(&spec, TALLY_LABELS_BINARY, 1);
    static const double signs[] = {-1, 1, -1, -1};
    CU_ASSERT_EQUAL(memcmp(dataset->labels, signs, sizeof signs), 0);
    tally_dataset_free(dataset);
    data_files_text(&DATASET_FILES, "file", "-1 1:1\n+1\n1\n-1.0\n");
    dataset = dataset_load(&spec, TALLY_LABELS_BINARY, 1);
    static const double more[] = {-1, 1, 1, -1};
    CU_ASSERT_EQUAL(memcmp(dataset->labels, more, sizeof more), 0);
    tally_dataset_free(dataset);
    idx_files_fini(&DATASET_FILES);
}

struct witness {
    int calls, most, n_readings;
    uint64_t read_bytes, total_bytes, points;
    char file[64];
};

static bool watch(void *context, const struct tally_load_progress *progress)
{
    struct witness *witness = context;
    if (witness->calls == 0 || progress->read_bytes < witness->read_bytes) { /* reading restarted */
        witness->n_readings++;
        witness->points = 0;
    }
    CU_ASSERT_TRUE(progress->read_bytes <= progress->total_bytes);
    CU_ASSERT_TRUE(progress->points >= witness->points);
    witness->read_bytes = progress->read_bytes;
    witness->total_bytes = progress->total_bytes;
    witness->points = progress->points;
    snprintf(witness->file, sizeof witness->file, "%s", progress->file);
    return ++witness->calls < witness->most;
}

static void test_objectives_dataset__tells_how_far_it_is_and_stops(void)
{
    enum { LINES = 2000000 };
    static const char line[] = "1 1:0.25\n";
    idx_files_init(&DATASET_FILES);
    data_files_gzip(&DATASET_FILES, "file.gz", line, sizeof line - 1, LINES);
    const struct tally_data_spec spec = dataset_spec_of(TALLY_DATA_LIBSVM, 1);
    struct witness witness = {.most = 1000};
    const struct tally_data_source source = {
        .dir = DATASET_FILES.folder, .on_progress = watch, .context = &witness};
    struct tally_dataset *dataset = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_dataset_load(&spec, TALLY_LABELS_REAL, 1, tally_rng_key(1, 0),
                                           &source, &dataset, &err),
                        TALLY_OK, &err);
    CU_ASSERT_EQUAL(dataset->points, LINES);
    CU_ASSERT_EQUAL(witness.n_readings, 2); /* twice, because the file is compressed */
    CU_ASSERT_EQUAL(witness.calls, 2 * (LINES * 9 / (4 << 20)));
    CU_ASSERT_TRUE(witness.points > LINES * 3 / 4 && witness.points < LINES);
    CU_ASSERT_TRUE(witness.total_bytes > 0 && witness.total_bytes < 200000);
    TALLY_ASSERT_TEXT(witness.file, "file");
    tally_dataset_free(dataset);
    witness = (struct witness){.most = 2};
    TALLY_ASSERT_STATUS(tally_dataset_load(&spec, TALLY_LABELS_REAL, 1, tally_rng_key(1, 0),
                                           &source, &dataset, &err),
                        TALLY_CANCELLED, &err);
    TALLY_ASSERT_TEXT(err.message, "stopped while reading file");
    CU_ASSERT_EQUAL(witness.calls, 2);
    idx_files_fini(&DATASET_FILES);
}

static void test_objectives_dataset__reads_matrices(void)
{
    static const double entries[] = {1, 2, 3, 4, 5, 6};
    static const double transposed[] = {1, 3, 5, 2, 4, 6};
    double *values = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    idx_files_init(&DATASET_FILES);
    data_files_npy(&DATASET_FILES, "A", "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3)}",
                   entries, sizeof entries);
    data_files_npy(&DATASET_FILES, "F", "{'descr': '<f8', 'fortran_order': True, 'shape': (2, 3)}",
                   entries, sizeof entries);
    data_files_npy(&DATASET_FILES, "b", "{'descr': '<f8', 'fortran_order': False, 'shape': (6,)}",
                   entries, sizeof entries);
    TALLY_ASSERT_STATUS(tally_matrix_load(&DATASET_SOURCE, "A", 2, 3, &values, &err), TALLY_OK,
                        &err);
    CU_ASSERT_EQUAL(memcmp(values, entries, sizeof entries), 0);
    free(values);
    TALLY_ASSERT_STATUS(tally_matrix_load(&DATASET_SOURCE, "F", 2, 3, &values, &err), TALLY_OK,
                        &err);
    CU_ASSERT_EQUAL(memcmp(values, transposed, sizeof transposed), 0);
    free(values);
    TALLY_ASSERT_STATUS(tally_matrix_load(&DATASET_SOURCE, "b", 6, 0, &values, &err), TALLY_OK,
                        &err);
    CU_ASSERT_EQUAL(memcmp(values, entries, sizeof entries), 0);
    free(values);
    TALLY_ASSERT_STATUS(tally_matrix_load(&DATASET_SOURCE, "A", 3, 3, &values, &err),
                        TALLY_INVALID_ARGUMENT, &err);
    TALLY_ASSERT_TEXT(err.message, "A: has shape (2, 3), not (3, 3)");
    tally_error_clear(&err);
    TALLY_ASSERT_STATUS(tally_matrix_load(&DATASET_SOURCE, "A", 2, 0, &values, &err),
                        TALLY_INVALID_ARGUMENT, &err);
    TALLY_ASSERT_TEXT(err.message, "A: has shape (2, 3), not (2,)");
    idx_files_fini(&DATASET_FILES);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_objectives_dataset__reads_libsvm),
    TALLY_TEST(test_objectives_dataset__libsvm_stays_sparse),
    TALLY_TEST(test_objectives_dataset__reads_csv),
    TALLY_TEST(test_objectives_dataset__reads_text_across_windows),
    TALLY_TEST(test_objectives_dataset__reads_npy_of_every_type),
    TALLY_TEST(test_objectives_dataset__reads_npz_and_gzip),
    TALLY_TEST(test_objectives_dataset__reads_idx),
    TALLY_TEST(test_objectives_dataset__layouts_agree_with_their_rows),
    TALLY_TEST(test_objectives_dataset__binary_labels_are_signs),
    TALLY_TEST(test_objectives_dataset__tells_how_far_it_is_and_stops),
    TALLY_TEST(test_objectives_dataset__reads_matrices),
};
TALLY_SUITE(objectives_dataset, TESTS);
