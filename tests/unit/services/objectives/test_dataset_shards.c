/* The points of each client: shardings, and files of the workers' own. */
#include "services/objectives/data/load_data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness.h"
#include "tests/unit/services/objectives/data_files.h"
#include "tests/unit/services/objectives/datasets.h"

/* Each point is identified by its only number, 0 to 9; labels repeat. */
static void write_ten(void)
{
    data_files_text(&DATASET_FILES, "file",
                    "2 1:10\n1 1:1\n2 1:2\n0 1:3\n1 1:4\n0 1:5\n2 1:6\n1 1:7\n0 1:8\n2 1:9\n");
}

static uint32_t point_at(const struct tally_dataset *dataset, uint32_t at)
{
    double x;
    tally_dataset_row(dataset, at, &x);
    return (uint32_t)x % 10;
}

static void test_objectives_dataset_shards__shardings_order_and_cut(void)
{
    static const uint32_t by_label[] = {3, 5, 8, 1, 4, 7, 0, 2, 6, 9};
    static const double labels[] = {2, 1, 2, 0, 1, 0, 2, 1, 0, 2};
    uint32_t permutation[10];
    idx_files_init(&DATASET_FILES);
    write_ten();
    tally_shard_permutation(tally_rng_key(9, 0), 10, permutation);
    for (int type = TALLY_DATA_LIBSVM; type <= TALLY_DATA_CSV; type++) {
        if (type == TALLY_DATA_CSV) {
            data_files_text(&DATASET_FILES, "file",
                            "label,x\n2,10\n1,1\n2,2\n0,3\n1,4\n0,5\n2,6\n1,7\n0,8\n2,9\n");
        }
        for (int sharding = 0; sharding <= TALLY_SHARDING_CONTIGUOUS; sharding++) {
            struct tally_data_spec spec = dataset_spec_of(type, 1);
            spec.sharding = sharding;
            struct tally_dataset *dataset = dataset_load(&spec, TALLY_LABELS_REAL, 3);
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
    struct tally_data_spec spec = dataset_spec_of(TALLY_DATA_CSV, 1);
    dataset_expect_refused(&spec, 11, "file has 10 points, too few for 11 clients");
    idx_files_fini(&DATASET_FILES);
}

/* `local` without "{client}" in the file name: every client has the whole file, in its order. */
static void test_objectives_dataset_shards__local_is_the_file_of_this_worker(void)
{
    idx_files_init(&DATASET_FILES);
    write_ten();
    struct tally_data_spec spec = dataset_spec_of(TALLY_DATA_LIBSVM, 1);
    spec.sharding = TALLY_SHARDING_LOCAL;
    struct tally_dataset *dataset = dataset_load(&spec, TALLY_LABELS_REAL, 30);
    CU_ASSERT_FALSE(dataset->is_whole);
    CU_ASSERT_FALSE(tally_data_spec_is_shared(&spec));
    CU_ASSERT_EQUAL(dataset->points, 10);
    for (uint32_t m = 0; m < 30; m++) {
        CU_ASSERT_EQUAL(dataset->shards[m].first, 0);
        CU_ASSERT_EQUAL(dataset->shards[m].size, 10);
    }
    CU_ASSERT_EQUAL(point_at(dataset, 3), 3);
    tally_dataset_free(dataset);
    idx_files_fini(&DATASET_FILES);
}

/* The columns of the clients' files are matched by name, wherever the label is. */
static void test_objectives_dataset_shards__columns_are_matched_by_name(void)
{
    static const double expected[] = {1, 2, 3, 4, 5, 6};
    idx_files_init(&DATASET_FILES);
    data_files_text(&DATASET_FILES, "c0.csv", "a,b,c,label\n1,2,3,0\n");
    data_files_text(&DATASET_FILES, "c1.csv", "c,\"a\",label,b\n6,4,1,5\n");
    struct tally_data_spec spec = dataset_spec_of(TALLY_DATA_CSV, 3);
    spec.sharding = TALLY_SHARDING_LOCAL;
    strcpy(spec.table.file, "c{client}.csv");
    for (int is_packed = 0; is_packed < 2; is_packed++) {
        struct tally_dataset *dataset = dataset_load(&spec, TALLY_LABELS_REAL, 2);
        CU_ASSERT_EQUAL(memcmp(dataset->values, expected, sizeof expected), 0);
        CU_ASSERT_EQUAL(dataset->labels[1], 1);
        tally_dataset_free(dataset);
        if (!is_packed) { /* the trial, which reads only compressed files, does not set the order */
            static const char again[] = "c,a,label,b\n6,4,1,5\n";
            char path[400];
            snprintf(path, sizeof path, "%s/c1.csv", DATASET_FILES.folder);
            CU_ASSERT_EQUAL(remove(path), 0);
            data_files_gzip(&DATASET_FILES, "c1.csv.gz", again, sizeof again - 1, 1);
        }
    }
    idx_files_fini(&DATASET_FILES);
}

static void test_objectives_dataset_shards__other_columns_are_refused(void)
{
    static const struct {
        const char *first, *second, *message;
    } rows[] = {
        {"a,b,label\n1,2,0\n", "a,c,label\n1,2,0\n",
         "c1.csv:1: the columns are not those of c0.csv: only this file has c, only that has b"},
        {"a,B,label\n1,2,0\n", "x,b,label\n1,2,0\n",
         "c1.csv:1: the columns are not those of c0.csv: only this file has b, x, only that has B, "
         "a"},
        {"a,a,label\n1,2,0\n", "a,b,label\n1,2,0\n",
         "c1.csv:1: the columns are not those of c0.csv: only this file has b, only that has a"},
    };
    struct tally_data_spec spec = dataset_spec_of(TALLY_DATA_CSV, 2);
    spec.sharding = TALLY_SHARDING_LOCAL;
    strcpy(spec.table.file, "c{client}.csv");
    idx_files_init(&DATASET_FILES);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        data_files_text(&DATASET_FILES, "c0.csv", rows[i].first);
        data_files_text(&DATASET_FILES, "c1.csv", rows[i].second);
        dataset_expect_refused(&spec, 2, rows[i].message);
    }
    /* Two columns of one name have only their order. */
    data_files_text(&DATASET_FILES, "c0.csv", "a,a,b,label\n1,2,3,0\n");
    data_files_text(&DATASET_FILES, "c1.csv", "label,a,a,b\n0,4,5,6\n");
    spec.table.features = 3;
    struct tally_dataset *dataset = dataset_load(&spec, TALLY_LABELS_REAL, 2);
    CU_ASSERT_EQUAL(dataset->values[5], 6);
    tally_dataset_free(dataset);
    data_files_text(&DATASET_FILES, "c1.csv", "b,a,a,label\n6,4,5,0\n");
    dataset_expect_refused(&spec, 2,
                           "c1.csv:1: the columns have another order than in c0.csv, and two of "
                           "them are called \"a\"");
    idx_files_fini(&DATASET_FILES);
}

/* Names beyond the first MiB are compared, but cannot be matched in another order. */
static void test_objectives_dataset_shards__long_headers_are_compared(void)
{
    enum { COLUMNS = 200000 };
    char *text = malloc(COLUMNS * 10 + 100);
    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    idx_files_init(&DATASET_FILES);
    struct tally_data_spec spec = dataset_spec_of(TALLY_DATA_CSV, COLUMNS);
    spec.sharding = TALLY_SHARDING_LOCAL;
    strcpy(spec.table.file, "c{client}.csv");
    for (int file = 0; file < 3; file++) {
        static const char *const names[] = {"c0.csv", "c1.csv", "c1.csv"};
        size_t n = 0;
        for (int i = 0; i < COLUMNS; i++) { /* the third file swaps the last two */
            const int column = file == 2 && i >= COLUMNS - 2 ? 2 * COLUMNS - 3 - i : i;
            n += (size_t)sprintf(text + n, "c%d,", column);
        }
        n += (size_t)sprintf(text + n, "label\n");
        for (int i = 0; i < COLUMNS; i++) {
            n += (size_t)sprintf(text + n, "1,");
        }
        sprintf(text + n, "0\n");
        data_files_text(&DATASET_FILES, names[file], text);
        if (file == 1) {
            tally_dataset_free(dataset_load(&spec, TALLY_LABELS_REAL, 2));
        }
    }
    dataset_expect_refused(&spec, 2,
                           "c1.csv:1: the columns are not those of c0.csv in the same order, and "
                           "their names take more than 1048576 bytes, too many to match them by "
                           "name");
    free(text);
    idx_files_fini(&DATASET_FILES);
}

/* With "{client}" in the name each client has its own file. Missing files belong to other
 * workers. */
static void test_objectives_dataset_shards__local_files_are_the_clients_own(void)
{
    idx_files_init(&DATASET_FILES);
    data_files_text(&DATASET_FILES, "c0.csv", "label,x\n1,0\n1,1\n");
    data_files_text(&DATASET_FILES, "c2.csv", "label,x\n1,2\n1,3\n1,4\n");
    struct tally_data_spec spec = dataset_spec_of(TALLY_DATA_CSV, 1);
    spec.sharding = TALLY_SHARDING_LOCAL;
    strcpy(spec.table.file, "c{client}.csv");
    CU_ASSERT_TRUE(tally_data_spec_is_shared(&spec));
    struct tally_dataset *dataset = dataset_load(&spec, TALLY_LABELS_REAL, 4);
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
    data_files_text(&DATASET_FILES, "c1.csv", "label,x\n");
    dataset_expect_refused(&spec, 4, "c1.csv has no points");
    data_files_text(&DATASET_FILES, "c1.csv", "label,x\n5,5\n");
    data_files_text(&DATASET_FILES, "c3.csv", "x,label\n6,6\n");
    dataset = dataset_load(&spec, TALLY_LABELS_REAL, 4);
    CU_ASSERT_TRUE(dataset->is_whole);
    CU_ASSERT_EQUAL(dataset->points, 7);
    CU_ASSERT_EQUAL(dataset->labels[6], 6);
    tally_dataset_free(dataset);
    strcpy(spec.table.file, "d{client}.csv");
    char message[300];
    snprintf(message, sizeof message,
             "d0.csv (or .gz) is not in the data folder %s; put it there, or name another folder "
             "with --data-dir",
             DATASET_FILES.folder);
    dataset_expect_refused(&spec, 4, message);
    idx_files_fini(&DATASET_FILES);
}

/* Pairs of files are per client too: both files must exist, or neither. */
static void test_objectives_dataset_shards__local_pairs_must_be_complete(void)
{
    static const char header[] = "{'descr': '<f8', 'fortran_order': False, 'shape': (1,)}";
    idx_files_init(&DATASET_FILES);
    struct tally_data_spec spec = dataset_spec_of(TALLY_DATA_NPY, 1);
    spec.sharding = TALLY_SHARDING_LOCAL;
    strcpy(spec.table.points, "{client}/X.npy");
    strcpy(spec.table.labels, "y-{client}.npy");
    char path[400], message[300];
    snprintf(path, sizeof path, "mkdir %s/1", DATASET_FILES.folder);
    CU_ASSERT_EQUAL(system(path), 0);
    data_files_npy(&DATASET_FILES, "1/X.npy", header, (const double[1]){3}, 8);
    snprintf(message, sizeof message,
             "y-1.npy (or .gz) is not in the data folder %s; put it there, or name another folder "
             "with --data-dir",
             DATASET_FILES.folder);
    dataset_expect_refused(&spec, 3, message);
    data_files_npy(&DATASET_FILES, "y-1.npy", header, (const double[1]){4}, 8);
    struct tally_dataset *dataset = dataset_load(&spec, TALLY_LABELS_REAL, 3);
    CU_ASSERT_EQUAL(dataset->points, 1);
    CU_ASSERT_EQUAL(dataset->shards[1].size, 1);
    CU_ASSERT_EQUAL(dataset->values[0], 3);
    CU_ASSERT_EQUAL(dataset->labels[0], 4);
    tally_dataset_free(dataset);
    /* Images of several clients are loaded one client after the other. */
    dataset_write_images("images-0", "labels-0", 3, 10);
    dataset_write_images("images-1", "labels-1", 2, 20);
    spec = dataset_idx_spec(TALLY_SHARDING_LOCAL, 0);
    strcpy(spec.idx.images, "images-{client}");
    strcpy(spec.idx.labels, "labels-{client}");
    dataset = dataset_load(&spec, TALLY_LABELS_CLASSES, 2);
    CU_ASSERT_EQUAL(dataset->points, 5);
    static const uint8_t first_pixels[] = {10, 11, 12, 20, 21};
    for (uint32_t i = 0; i < 5; i++) {
        CU_ASSERT_EQUAL(dataset->bytes[2 * i], first_pixels[i]);
    }
    CU_ASSERT_EQUAL(dataset->shards[1].first, 3);
    CU_ASSERT_EQUAL(dataset->shards[1].size, 2);
    tally_dataset_free(dataset);
    idx_files_fini(&DATASET_FILES);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_objectives_dataset_shards__shardings_order_and_cut),
    TALLY_TEST(test_objectives_dataset_shards__local_is_the_file_of_this_worker),
    TALLY_TEST(test_objectives_dataset_shards__columns_are_matched_by_name),
    TALLY_TEST(test_objectives_dataset_shards__other_columns_are_refused),
    TALLY_TEST(test_objectives_dataset_shards__long_headers_are_compared),
    TALLY_TEST(test_objectives_dataset_shards__local_files_are_the_clients_own),
    TALLY_TEST(test_objectives_dataset_shards__local_pairs_must_be_complete),
};
TALLY_SUITE(objectives_dataset_shards, TESTS);
