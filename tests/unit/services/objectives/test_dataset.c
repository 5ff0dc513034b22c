#include "services/objectives/data/loaders/load.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness.h"
#include "tests/unit/services/objectives/data_files.h"

static struct idx_files FILES;
static const struct tally_data_source SOURCE = {.dir = FILES.folder};

static struct tally_data_spec spec_of(int type, int64_t features)
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

static struct tally_dataset *load(const struct tally_data_spec *spec, enum tally_labels labels,
                                  uint32_t clients)
{
    struct tally_dataset *dataset = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(
        tally_dataset_load(spec, labels, clients, tally_rng_key(9, 0), &SOURCE, &dataset, &err),
        TALLY_OK, &err);
    CU_ASSERT_PTR_NOT_NULL_FATAL(dataset);
    return dataset;
}

static void expect_refused(const struct tally_data_spec *spec, uint32_t clients,
                           const char *message)
{
    struct tally_dataset *dataset = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_dataset_load(spec, TALLY_LABELS_REAL, clients, tally_rng_key(9, 0),
                                           &SOURCE, &dataset, &err),
                        TALLY_INVALID_ARGUMENT, &err);
    TALLY_ASSERT_TEXT(err.message, message);
    CU_ASSERT_PTR_NULL(dataset);
}

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
    struct tally_dataset *dataset = load(spec, TALLY_LABELS_REAL, 1);
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
    };
    idx_files_init(&FILES);
    const struct tally_data_spec spec = spec_of(TALLY_DATA_LIBSVM, 4);
    for (size_t i = 0; i < sizeof spellings / sizeof spellings[0]; i++) {
        data_files_text(&FILES, "file", spellings[i]);
        expect_three(&spec);
    }
    idx_files_fini(&FILES);
}

/* What is not named takes no room; a point may be all zeros. */
static void test_objectives_dataset__libsvm_stays_sparse(void)
{
    idx_files_init(&FILES);
    const struct tally_data_spec spec = spec_of(TALLY_DATA_LIBSVM, 10000000);
    data_files_text(&FILES, "file", "1 10000000:7\n2\n3 1:5 2:0 9999999:6\n");
    struct tally_dataset *dataset = load(&spec, TALLY_LABELS_REAL, 1);
    static const size_t first[] = {0, 1, 1, 3};
    static const uint32_t columns[] = {9999999, 0, 9999998};
    CU_ASSERT_EQUAL(dataset->points, 3);
    CU_ASSERT_EQUAL(memcmp(dataset->row_first, first, sizeof first), 0);
    CU_ASSERT_EQUAL(memcmp(dataset->columns, columns, sizeof columns), 0);
    CU_ASSERT_EQUAL(dataset->values[2], 6);
    tally_dataset_free(dataset);
    idx_files_fini(&FILES);
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
    idx_files_init(&FILES);
    const struct tally_data_spec spec = spec_of(TALLY_DATA_CSV, 4);
    for (size_t i = 0; i < sizeof spellings / sizeof spellings[0]; i++) {
        data_files_text(&FILES, "file", spellings[i]);
        expect_three(&spec);
    }
    idx_files_fini(&FILES);
}

/* Lines and windows of the file end anywhere. */
static void test_objectives_dataset__reads_text_across_windows(void)
{
    enum { POINTS = 40000 };
    char *text = malloc(POINTS * 40);
    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    idx_files_init(&FILES);
    for (int type = TALLY_DATA_LIBSVM; type <= TALLY_DATA_CSV; type++) {
        size_t n = type == TALLY_DATA_CSV ? (size_t)sprintf(text, "x,label\r\n") : 0;
        for (int i = 0; i < POINTS; i++) {
            n += (size_t)(type == TALLY_DATA_CSV ? sprintf(text + n, "%d,%d\r\n\r\n", 7 * i, i)
                                                 : sprintf(text + n, "%d 1:%d\r\n\r\n", i, 7 * i));
        }
        data_files_text(&FILES, "file", text);
        const struct tally_data_spec spec = spec_of(type, 1);
        struct tally_dataset *dataset = load(&spec, TALLY_LABELS_REAL, 1);
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
    idx_files_fini(&FILES);
    free(text);
}

/* 2 points of 3 numbers, whatever NumPy stores them as. */
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
    idx_files_init(&FILES);
    const struct tally_data_spec spec = spec_of(TALLY_DATA_NPY, 3);
    data_files_npy(&FILES, "y.npy", "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 1), }",
                   labels, sizeof labels);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (int is_fortran = 0; is_fortran < 2; is_fortran++) {
            char header[100];
            snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': %s, 'shape': (2, 3)}",
                     rows[i].descr, is_fortran ? "True" : "False");
            data_files_npy(&FILES, "X.npy", header, rows[i].values, rows[i].n);
            struct tally_dataset *dataset = load(&spec, TALLY_LABELS_REAL, 1);
            const double in_c[] = {1, rows[i].second, 3, 4, 5, rows[i].last};
            const double in_fortran[] = {1, 3, 5, rows[i].second, 4, rows[i].last};
            expect_points(dataset, 2, 3, is_fortran ? in_fortran : in_c, labels);
            tally_dataset_free(dataset);
        }
    }
    /* One feature may come as a vector. */
    const struct tally_data_spec single = spec_of(TALLY_DATA_NPY, 1);
    data_files_npy(&FILES, "X.npy", "{'descr': '<f8', 'fortran_order': True, 'shape': (2,)}", f8,
                   16);
    struct tally_dataset *dataset = load(&single, TALLY_LABELS_REAL, 1);
    expect_points(dataset, 2, 1, f8, labels);
    tally_dataset_free(dataset);
    idx_files_fini(&FILES);
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
    idx_files_init(&FILES);
    struct tally_data_spec spec = spec_of(TALLY_DATA_NPZ, 4);
    for (int is_compressed = 0; is_compressed < 2; is_compressed++) {
        data_files_zip(&FILES, "file", members, 3, is_compressed);
        expect_three(&spec);
    }
    strcpy(spec.table.points, "X.npy"); /* as the zip has it */
    expect_three(&spec);
    spec = spec_of(TALLY_DATA_NPY, 4);
    data_files_gzip(&FILES, "X.npy.gz", points, n_points, 1);
    data_files_gzip(&FILES, "y.npy", labels, n_labels, 1); /* known by its first bytes */
    expect_three(&spec);
    spec = spec_of(TALLY_DATA_LIBSVM, 4);
    static const char text[] = "1.5 1:0.5 3:-2\n-2 4:1e-3\n0 1:1 2:2 3:3 4:4\n";
    idx_files_remove(&FILES, "file");
    data_files_gzip(&FILES, "file.gz", text, sizeof text - 1, 1);
    expect_three(&spec);
    idx_files_fini(&FILES);
}

static void write_images(const char *images, const char *labels, uint32_t n, uint8_t first)
{
    uint8_t bytes[IDX_MAX_BYTES], pixels[64], classes[32];
    for (uint32_t i = 0; i < n; i++) {
        classes[i] = (uint8_t)((i * 7 + 3) % 3);
        pixels[2 * i] = (uint8_t)(first + i);
        pixels[2 * i + 1] = (uint8_t)(255 - i);
    }
    idx_files_write(&FILES, images, bytes, idx_images(n, 1, 2, pixels, bytes));
    idx_files_write(&FILES, labels, bytes, idx_labels(n, classes, bytes));
}

static struct tally_data_spec idx_spec(int sharding, int64_t points_per_class)
{
    return (struct tally_data_spec){.type = TALLY_DATA_IDX,
                                    .sharding = sharding,
                                    .idx = {.images = "images",
                                            .labels = "labels",
                                            .features = 2,
                                            .classes = 3,
                                            .points_per_class = points_per_class}};
}

/* Images stay bytes; all of them, or as many of every class. */
static void test_objectives_dataset__reads_idx(void)
{
    idx_files_init(&FILES);
    write_images("images", "labels", 10, 0);
    struct tally_data_spec spec = idx_spec(TALLY_SHARDING_CONTIGUOUS, 0);
    struct tally_dataset *dataset = load(&spec, TALLY_LABELS_CLASSES, 2);
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
    /* The subset is the same whatever the order. */
    bool chosen[4][10] = {{false}};
    for (int sharding = TALLY_SHARDING_IID; sharding <= TALLY_SHARDING_CONTIGUOUS; sharding++) {
        spec = idx_spec(sharding, 2);
        dataset = load(&spec, TALLY_LABELS_CLASSES, 2);
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
    spec = idx_spec(TALLY_SHARDING_IID, 0);
    spec.idx.classes = 2;
    expect_refused(&spec, 1, "labels: label 2 of image 2 is not a class: they are 0 to 1");
    idx_files_fini(&FILES);
}

/* X_i . x and x += factor X_i are what the rows say, in every layout. */
static void test_objectives_dataset__layouts_agree_with_their_rows(void)
{
    static const int types[] = {TALLY_DATA_LIBSVM, TALLY_DATA_CSV, TALLY_DATA_IDX};
    idx_files_init(&FILES);
    write_images("images", "labels", 3, 40);
    for (size_t k = 0; k < 3; k++) {
        struct tally_data_spec spec = types[k] == TALLY_DATA_IDX
                                          ? idx_spec(TALLY_SHARDING_CONTIGUOUS, 0)
                                          : spec_of(types[k], 2);
        data_files_text(&FILES, "file",
                        types[k] == TALLY_DATA_CSV ? "u,v,label\n1,2,0\n0,3,0\n-4,0.5,0\n"
                                                   : "0 1:1 2:2\n0 2:3\n0 1:-4 2:0.5\n");
        struct tally_dataset *dataset = load(&spec, TALLY_LABELS_REAL, 1);
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
    idx_files_fini(&FILES);
}

/* Points are known by their only number, 0 to 9; labels repeat. */
static void write_ten(void)
{
    data_files_text(&FILES, "file",
                    "2 1:10\n1 1:1\n2 1:2\n0 1:3\n1 1:4\n0 1:5\n2 1:6\n1 1:7\n0 1:8\n2 1:9\n");
}

static uint32_t point_at(const struct tally_dataset *dataset, uint32_t at)
{
    double x;
    tally_dataset_row(dataset, at, &x);
    return (uint32_t)x % 10;
}

static void test_objectives_dataset__shardings_order_and_cut(void)
{
    static const uint32_t by_label[] = {3, 5, 8, 1, 4, 7, 0, 2, 6, 9};
    static const double labels[] = {2, 1, 2, 0, 1, 0, 2, 1, 0, 2};
    uint32_t permutation[10];
    idx_files_init(&FILES);
    write_ten();
    tally_shard_permutation(tally_rng_key(9, 0), 10, permutation);
    for (int type = TALLY_DATA_LIBSVM; type <= TALLY_DATA_CSV; type++) {
        if (type == TALLY_DATA_CSV) {
            data_files_text(&FILES, "file",
                            "label,x\n2,10\n1,1\n2,2\n0,3\n1,4\n0,5\n2,6\n1,7\n0,8\n2,9\n");
        }
        for (int sharding = 0; sharding <= TALLY_SHARDING_CONTIGUOUS; sharding++) {
            struct tally_data_spec spec = spec_of(type, 1);
            spec.sharding = sharding;
            struct tally_dataset *dataset = load(&spec, TALLY_LABELS_REAL, 3);
            for (uint32_t i = 0; i < 10; i++) {
                const uint32_t expected = sharding == TALLY_SHARDING_IID        ? permutation[i]
                                          : sharding == TALLY_SHARDING_BY_LABEL ? by_label[i]
                                                                                : i;
                CU_ASSERT_EQUAL(point_at(dataset, i), expected);
                CU_ASSERT_EQUAL(dataset->labels[i], labels[expected]);
            }
            for (uint32_t m = 0; m < 3; m++) {
                struct tally_shard shard;
                const struct tally_shard expected = tally_shard_of(10, 3, m);
                CU_ASSERT_EQUAL(tally_dataset_shard(dataset, m, &shard, NULL), TALLY_OK);
                CU_ASSERT_EQUAL(shard.first, expected.first);
                CU_ASSERT_EQUAL(shard.size, expected.size);
            }
            CU_ASSERT_TRUE(dataset->is_whole);
            tally_dataset_free(dataset);
        }
    }
    struct tally_data_spec spec = spec_of(TALLY_DATA_CSV, 1);
    expect_refused(&spec, 11, "file has 10 points, too few for 11 clients");
    idx_files_fini(&FILES);
}

/* `local` without a mark: everybody has the whole file, in its order. */
static void test_objectives_dataset__local_is_the_file_of_this_worker(void)
{
    idx_files_init(&FILES);
    write_ten();
    struct tally_data_spec spec = spec_of(TALLY_DATA_LIBSVM, 1);
    spec.sharding = TALLY_SHARDING_LOCAL;
    struct tally_dataset *dataset = load(&spec, TALLY_LABELS_REAL, 30);
    CU_ASSERT_FALSE(dataset->is_whole);
    CU_ASSERT_FALSE(tally_data_spec_is_shared(&spec));
    CU_ASSERT_EQUAL(dataset->points, 10);
    for (uint32_t m = 0; m < 30; m++) {
        CU_ASSERT_EQUAL(dataset->shards[m].first, 0);
        CU_ASSERT_EQUAL(dataset->shards[m].size, 10);
    }
    CU_ASSERT_EQUAL(point_at(dataset, 3), 3);
    tally_dataset_free(dataset);
    idx_files_fini(&FILES);
}

/* With the mark each client has its own file; those that are not here belong to other workers. */
static void test_objectives_dataset__local_files_are_the_clients_own(void)
{
    idx_files_init(&FILES);
    data_files_text(&FILES, "c0.csv", "label,x\n1,0\n1,1\n");
    data_files_text(&FILES, "c2.csv", "label,x\n1,2\n1,3\n1,4\n");
    struct tally_data_spec spec = spec_of(TALLY_DATA_CSV, 1);
    spec.sharding = TALLY_SHARDING_LOCAL;
    strcpy(spec.table.file, "c{client}.csv");
    CU_ASSERT_TRUE(tally_data_spec_is_shared(&spec));
    struct tally_dataset *dataset = load(&spec, TALLY_LABELS_REAL, 4);
    static const struct tally_shard expected[] = {{0, 2}, {2, 0}, {2, 3}, {5, 0}};
    CU_ASSERT_FALSE(dataset->is_whole);
    for (uint32_t m = 0; m < 4; m++) {
        struct tally_shard shard;
        struct tally_error err = TALLY_ERROR_INIT;
        CU_ASSERT_EQUAL(dataset->shards[m].first, expected[m].first);
        CU_ASSERT_EQUAL(dataset->shards[m].size, expected[m].size);
        TALLY_ASSERT_STATUS(tally_dataset_shard(dataset, m, &shard, &err),
                            m % 2 == 0 ? TALLY_OK : TALLY_FAILED_PRECONDITION, &err);
        TALLY_ASSERT_TEXT(err.message, m == 1   ? "the data of client 1 are not in this data folder"
                                       : m == 3 ? "the data of client 3 are not in this data folder"
                                                : "");
    }
    tally_dataset_free(dataset);
    data_files_text(&FILES, "c1.csv", "label,x\n");
    expect_refused(&spec, 4, "c1.csv has no points");
    data_files_text(&FILES, "c1.csv", "label,x\n5,5\n");
    data_files_text(&FILES, "c3.csv", "x,label\n6,6\n");
    dataset = load(&spec, TALLY_LABELS_REAL, 4);
    CU_ASSERT_TRUE(dataset->is_whole);
    CU_ASSERT_EQUAL(dataset->points, 7);
    CU_ASSERT_EQUAL(dataset->labels[6], 6);
    tally_dataset_free(dataset);
    strcpy(spec.table.file, "d{client}.csv");
    char message[300];
    snprintf(message, sizeof message,
             "d0.csv (or .gz) is not in the data folder %s; put it there, or name another folder "
             "with --data-dir",
             FILES.folder);
    expect_refused(&spec, 4, message);
    idx_files_fini(&FILES);
}

/* Pairs of files go by the client too, whole pairs or none. */
static void test_objectives_dataset__local_pairs_must_be_complete(void)
{
    static const char header[] = "{'descr': '<f8', 'fortran_order': False, 'shape': (1,)}";
    idx_files_init(&FILES);
    struct tally_data_spec spec = spec_of(TALLY_DATA_NPY, 1);
    spec.sharding = TALLY_SHARDING_LOCAL;
    strcpy(spec.table.points, "{client}/X.npy");
    strcpy(spec.table.labels, "y-{client}.npy");
    char path[400], message[300];
    snprintf(path, sizeof path, "mkdir %s/1", FILES.folder);
    CU_ASSERT_EQUAL(system(path), 0);
    data_files_npy(&FILES, "1/X.npy", header, (const double[1]){3}, 8);
    snprintf(message, sizeof message,
             "y-1.npy (or .gz) is not in the data folder %s; put it there, or name another folder "
             "with --data-dir",
             FILES.folder);
    expect_refused(&spec, 3, message);
    data_files_npy(&FILES, "y-1.npy", header, (const double[1]){4}, 8);
    struct tally_dataset *dataset = load(&spec, TALLY_LABELS_REAL, 3);
    CU_ASSERT_EQUAL(dataset->points, 1);
    CU_ASSERT_EQUAL(dataset->shards[1].size, 1);
    CU_ASSERT_EQUAL(dataset->values[0], 3);
    CU_ASSERT_EQUAL(dataset->labels[0], 4);
    tally_dataset_free(dataset);
    /* Images of several clients, one after the other. */
    write_images("images-0", "labels-0", 3, 10);
    write_images("images-1", "labels-1", 2, 20);
    spec = idx_spec(TALLY_SHARDING_LOCAL, 0);
    strcpy(spec.idx.images, "images-{client}");
    strcpy(spec.idx.labels, "labels-{client}");
    dataset = load(&spec, TALLY_LABELS_CLASSES, 2);
    CU_ASSERT_EQUAL(dataset->points, 5);
    static const uint8_t first_pixels[] = {10, 11, 12, 20, 21};
    for (uint32_t i = 0; i < 5; i++) {
        CU_ASSERT_EQUAL(dataset->bytes[2 * i], first_pixels[i]);
    }
    CU_ASSERT_EQUAL(dataset->shards[1].first, 3);
    CU_ASSERT_EQUAL(dataset->shards[1].size, 2);
    tally_dataset_free(dataset);
    idx_files_fini(&FILES);
}

static void test_objectives_dataset__binary_labels_are_signs(void)
{
    idx_files_init(&FILES);
    const struct tally_data_spec spec = spec_of(TALLY_DATA_LIBSVM, 1);
    data_files_text(&FILES, "file", "0 1:1\n1\n0\n-0\n");
    struct tally_dataset *dataset = load(&spec, TALLY_LABELS_BINARY, 1);
    static const double signs[] = {-1, 1, -1, -1};
    CU_ASSERT_EQUAL(memcmp(dataset->labels, signs, sizeof signs), 0);
    tally_dataset_free(dataset);
    data_files_text(&FILES, "file", "-1 1:1\n+1\n1\n-1.0\n");
    dataset = load(&spec, TALLY_LABELS_BINARY, 1);
    static const double more[] = {-1, 1, 1, -1};
    CU_ASSERT_EQUAL(memcmp(dataset->labels, more, sizeof more), 0);
    tally_dataset_free(dataset);
    idx_files_fini(&FILES);
}

struct witness {
    int calls, most, n_readings;
    uint64_t read_bytes, total_bytes, points;
    char file[64];
};

static bool watch(void *context, const struct tally_load_progress *progress)
{
    struct witness *witness = context;
    if (witness->calls == 0 || progress->read_bytes < witness->read_bytes) { /* from the start */
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
    idx_files_init(&FILES);
    data_files_gzip(&FILES, "file.gz", line, sizeof line - 1, LINES);
    const struct tally_data_spec spec = spec_of(TALLY_DATA_LIBSVM, 1);
    struct witness witness = {.most = 1000};
    const struct tally_data_source source = {FILES.folder, watch, &witness};
    struct tally_dataset *dataset = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_dataset_load(&spec, TALLY_LABELS_REAL, 1, tally_rng_key(1, 0),
                                           &source, &dataset, &err),
                        TALLY_OK, &err);
    CU_ASSERT_EQUAL(dataset->points, LINES);
    CU_ASSERT_EQUAL(witness.n_readings, 2); /* it is packed */
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
    idx_files_fini(&FILES);
}

static void test_objectives_dataset__reads_matrices(void)
{
    static const double entries[] = {1, 2, 3, 4, 5, 6};
    static const double transposed[] = {1, 3, 5, 2, 4, 6};
    double *values = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    idx_files_init(&FILES);
    data_files_npy(&FILES, "A", "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3)}",
                   entries, sizeof entries);
    data_files_npy(&FILES, "F", "{'descr': '<f8', 'fortran_order': True, 'shape': (2, 3)}", entries,
                   sizeof entries);
    data_files_npy(&FILES, "b", "{'descr': '<f8', 'fortran_order': False, 'shape': (6,)}", entries,
                   sizeof entries);
    TALLY_ASSERT_STATUS(tally_matrix_load(&SOURCE, "A", 2, 3, &values, &err), TALLY_OK, &err);
    CU_ASSERT_EQUAL(memcmp(values, entries, sizeof entries), 0);
    free(values);
    TALLY_ASSERT_STATUS(tally_matrix_load(&SOURCE, "F", 2, 3, &values, &err), TALLY_OK, &err);
    CU_ASSERT_EQUAL(memcmp(values, transposed, sizeof transposed), 0);
    free(values);
    TALLY_ASSERT_STATUS(tally_matrix_load(&SOURCE, "b", 6, 0, &values, &err), TALLY_OK, &err);
    CU_ASSERT_EQUAL(memcmp(values, entries, sizeof entries), 0);
    free(values);
    TALLY_ASSERT_STATUS(tally_matrix_load(&SOURCE, "A", 3, 3, &values, &err),
                        TALLY_INVALID_ARGUMENT, &err);
    TALLY_ASSERT_TEXT(err.message, "A: has shape (2, 3), not (3, 3)");
    tally_error_clear(&err);
    TALLY_ASSERT_STATUS(tally_matrix_load(&SOURCE, "A", 2, 0, &values, &err),
                        TALLY_INVALID_ARGUMENT, &err);
    TALLY_ASSERT_TEXT(err.message, "A: has shape (2, 3), not (2,)");
    idx_files_fini(&FILES);
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
    TALLY_TEST(test_objectives_dataset__shardings_order_and_cut),
    TALLY_TEST(test_objectives_dataset__local_is_the_file_of_this_worker),
    TALLY_TEST(test_objectives_dataset__local_files_are_the_clients_own),
    TALLY_TEST(test_objectives_dataset__local_pairs_must_be_complete),
    TALLY_TEST(test_objectives_dataset__binary_labels_are_signs),
    TALLY_TEST(test_objectives_dataset__tells_how_far_it_is_and_stops),
    TALLY_TEST(test_objectives_dataset__reads_matrices),
};
TALLY_SUITE(objectives_dataset, TESTS);
