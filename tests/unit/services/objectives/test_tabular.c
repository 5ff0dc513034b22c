/* Tables as they come: labels that are names, missing values, standardized features, points held
 * out of the same file, and all errors of a file at once. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/objectives/data/formats.h"
#include "services/objectives/data/scaling.h"
#include "services/objectives/objective.h"
#include "tests/harness.h"
#include "tests/unit/services/objectives/datasets.h"

static struct tally_data_spec csv_of(const char *text, int64_t features)
{
    data_files_text(&DATASET_FILES, "file", text);
    return dataset_spec_of(TALLY_DATA_CSV, features);
}

/* Classes with these names. */
static void name_classes(struct tally_data_spec *spec, const char *names, size_t n, int64_t classes)
{
    memcpy(spec->table.class_names, names, n);
    spec->table.classes = classes;
}

#define NAME_CLASSES(spec, names, classes) name_classes(spec, names, sizeof(names), classes)

static void expect_values(const struct tally_dataset *dataset, const double *values, size_t n)
{
    CU_ASSERT_EQUAL_FATAL(dataset->points * dataset->features, n);
    for (size_t i = 0; i < n; i++) {
        CU_ASSERT_EQUAL(dataset->values[i], values[i]);
    }
}

static void expect_labels(const struct tally_dataset *dataset, const double *labels, uint32_t n)
{
    CU_ASSERT_EQUAL_FATAL(dataset->points, n);
    for (uint32_t i = 0; i < n; i++) {
        CU_ASSERT_EQUAL(dataset->labels[i], labels[i]);
    }
}

static void test_objectives_tabular__labels_may_be_names(void)
{
    idx_files_init(&DATASET_FILES);
    struct tally_data_spec spec = csv_of("a,label\n1,pear\n2, apple \n3,\"pe\"\n4,pear\n", 1);
    NAME_CLASSES(&spec, "pear\0apple\0pe\0", 3);
    struct tally_dataset *dataset = dataset_load(&spec, TALLY_LABELS_CLASSES, 2);
    static const double labels[] = {0, 1, 2, 0};
    expect_labels(dataset, labels, 4);
    tally_dataset_free(dataset);

    spec = csv_of("a,label\n1,no\n2,yes\n3,yes\n", 1);
    NAME_CLASSES(&spec, "no\0yes\0", 2);
    dataset = dataset_load(&spec, TALLY_LABELS_BINARY, 1);
    static const double signs[] = {-1, 1, 1};
    expect_labels(dataset, signs, 3);
    tally_dataset_free(dataset);
    TALLY_ASSERT_TEXT(tally_data_spec_class_name(&spec, 1), "yes");
    CU_ASSERT_PTR_NULL(tally_data_spec_class_name(&spec, 2));

    /* The name NA is a class if it is given. */
    spec = csv_of("a,label\n1,NA\n2,DE\n", 1);
    spec.table.missing = TALLY_MISSING_DROP;
    NAME_CLASSES(&spec, "DE\0NA\0", 2);
    dataset = dataset_load(&spec, TALLY_LABELS_BINARY, 1);
    CU_ASSERT_EQUAL(dataset->points, 2);
    tally_dataset_free(dataset);

    spec = csv_of("a,label\n1,no\n2,maybe\n3,\n", 1);
    NAME_CLASSES(&spec, "no\0yes\0", 2);
    dataset_expect_refused(&spec, 1,
                           "file:3: column label: \"maybe\" is none of the 2 classes, no, ... (the "
                           "first of 2 errors); also in line 4");
    /* Without names, the error says how to get them. */
    spec = csv_of("a,label\n1,no\n", 1);
    struct tally_dataset *none = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    CU_ASSERT_EQUAL(tally_dataset_load(&spec, TALLY_LABELS_BINARY, 1, tally_rng_key(9, 0),
                                       &DATASET_SOURCE, &none, &err),
                    TALLY_INVALID_ARGUMENT);
    TALLY_ASSERT_TEXT(err.message,
                      "file:2: column label: \"no\" is not a number; if labels are names, "
                      "\"classes\": \"auto\" finds them, or list them there");
    idx_files_fini(&DATASET_FILES);
}

static void test_objectives_tabular__missing_values_are_refused_filled_or_dropped(void)
{
    static const char TEXT[] = "a,b,label\n1,2,3\n,4,5\n3,?,6\n5,6,7\n8,nan,9\n";
    idx_files_init(&DATASET_FILES);
    struct tally_data_spec spec = csv_of(TEXT, 2);
    dataset_expect_refused(&spec, 1,
                           "file:3: column a: \"\" is empty; \"missing\": \"mean\" or \"drop\" "
                           "would accept a missing value (the first of 3 errors); also in line 4, "
                           "6");

    spec.table.missing = TALLY_MISSING_DROP;
    struct tally_dataset *dataset = dataset_load(&spec, TALLY_LABELS_REAL, 1);
    static const double kept[] = {1, 2, 5, 6}, labels[] = {3, 7};
    expect_values(dataset, kept, 4);
    expect_labels(dataset, labels, 2);
    tally_dataset_free(dataset);

    spec.table.missing = TALLY_MISSING_MEAN; /* a: (1 + 3 + 5 + 8) / 4; b: (2 + 4 + 6) / 3 */
    dataset = dataset_load(&spec, TALLY_LABELS_REAL, 1);
    static const double filled[] = {1, 2, 4.25, 4, 3, 4, 5, 6, 8, 4};
    expect_values(dataset, filled, 10);
    tally_dataset_free(dataset);

    spec = csv_of("a,label\n1,\n2,3\n", 1);
    spec.table.missing = TALLY_MISSING_MEAN;
    dataset_expect_refused(&spec, 1,
                           "file:2: column label: \"\" is a missing label; \"missing\": \"drop\" "
                           "would drop the point");
    spec = csv_of("a,b,label\n1,,3\n2,NA,3\n", 2);
    spec.table.missing = TALLY_MISSING_MEAN;
    dataset_expect_refused(&spec, 1, "column b has no value at any training point; remove it");
    spec = csv_of("a,b,label\n1,inf,3\n", 2); /* is a value, but none to compute with */
    spec.table.missing = TALLY_MISSING_DROP;
    dataset_expect_refused(&spec, 1, "file:2: column b: \"inf\" is not finite");
    idx_files_fini(&DATASET_FILES);
}

static void count_fault(void *context, const char *fault)
{
    int *n = context;
    *n += strncmp(fault, "file:", 5) == 0;
}

static void test_objectives_tabular__a_file_reports_its_errors_together(void)
{
    idx_files_init(&DATASET_FILES);
    struct tally_data_spec spec =
        csv_of("a,b,label\n1,x,3\n1,2\n1,2,3\n1,2,3,4\ny,z,3\n1,2,w\n", 2);
    dataset_expect_refused(&spec, 1,
                           "file:2: column b: \"x\" is not a number (the first of 6 errors); also "
                           "in line 3, 5, 6, 6, 7");
    char text[4000] = "a,label\n";
    for (int i = 0; i < 300; i++) {
        strcat(text, "x,1\n");
    }
    spec = csv_of(text, 1);
    dataset_expect_refused(&spec, 1,
                           "file:2: column a: \"x\" is not a number (the first of 20 errors, "
                           "perhaps of more); also in line 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, "
                           "14, 15, 16, ...");
    int n = 0;
    struct tally_dataset *dataset = NULL;
    const struct tally_data_source source = {
        .dir = DATASET_FILES.folder, .on_fault = count_fault, .context = &n};
    CU_ASSERT_EQUAL(tally_dataset_load(&spec, TALLY_LABELS_REAL, 1, tally_rng_key(9, 0), &source,
                                       &dataset, NULL),
                    TALLY_INVALID_ARGUMENT);
    CU_ASSERT_EQUAL(n, TALLY_DATA_FAULTS_MOST);
    /* After an error that ends the reading, the first one is still the first. */
    spec = csv_of("a,label\nx,1\n\"y,1\n", 1);
    dataset_expect_refused(&spec, 1,
                           "file:2: column a: \"x\" is not a number (the first of 2 errors); also "
                           "in line 4");
    idx_files_fini(&DATASET_FILES);
}

enum { POINTS = 101 };

/* Point i is (i, 7, i^2) with label i. */
static struct tally_data_spec numbered(void)
{
    char text[8192] = "a,b,c,label\n";
    size_t n = strlen(text);
    for (int i = 0; i < POINTS; i++) {
        n += (size_t)snprintf(text + n, sizeof text - n, "%d,7,%d,%d\n", i, i * i, i);
    }
    return csv_of(text, 3);
}

static void test_objectives_tabular__a_fraction_is_held_out(void)
{
    idx_files_init(&DATASET_FILES);
    struct tally_data_spec spec = numbered();
    spec.table.test_fraction = 0.25; /* 25.25 points: 26 */
    CU_ASSERT_TRUE(tally_data_spec_has_test(&spec));
    struct tally_data_spec held_out = tally_data_spec_test(&spec);
    CU_ASSERT_FALSE(tally_data_spec_has_test(&held_out));
    spec.sharding = TALLY_SHARDING_CONTIGUOUS;
    struct tally_dataset *training = dataset_load(&spec, TALLY_LABELS_REAL, 5);
    struct tally_dataset *test = dataset_load(&held_out, TALLY_LABELS_REAL, 1);
    CU_ASSERT_EQUAL(training->points, 75);
    CU_ASSERT_EQUAL(test->points, 26);
    int n_seen[POINTS] = {0}, n_moved = 0;
    for (int part = 0; part < 2; part++) {
        const struct tally_dataset *dataset = part == 0 ? training : test;
        for (uint32_t i = 0; i < dataset->points; i++) {
            const double label = dataset->labels[i];
            n_seen[(int)label]++;
            n_moved += part == 1 && label >= 26;
            CU_ASSERT_EQUAL(dataset->values[3 * i], label); /* rows stay whole, .. */
            CU_ASSERT_EQUAL(dataset->values[3 * i + 2], label * label);
            CU_ASSERT_TRUE(i == 0 || dataset->labels[i - 1] < label); /* .. in the file's order */
        }
    }
    for (int i = 0; i < POINTS; i++) {
        CU_ASSERT_EQUAL(n_seen[i], 1);
    }
    CU_ASSERT_TRUE(n_moved > 10); /* drawn, not the first */
    tally_dataset_free(training);
    tally_dataset_free(test);

    /* The coordinator leaves the points out, too, although it reports nothing. */
    tally_data_spec_drop_test(&spec);
    CU_ASSERT_FALSE(tally_data_spec_has_test(&spec));
    training = dataset_load(&spec, TALLY_LABELS_REAL, 5);
    CU_ASSERT_EQUAL(training->points, 75);
    tally_dataset_free(training);
    spec.table.test_fraction = 0.97; /* 98 points, and 3 for 5 clients */
    dataset_expect_refused(&spec, 5, "file has 3 points, too few for 5 clients");
    idx_files_fini(&DATASET_FILES);
}

static void test_objectives_tabular__sparse_rows_are_held_out_whole(void)
{
    idx_files_init(&DATASET_FILES);
    char text[4096] = "";
    for (int i = 0; i < 40; i++) {
        char line[64];
        snprintf(line, sizeof line,
                 i % 3 == 0   ? "%d\n"
                 : i % 3 == 1 ? "%d 1:%d\n"
                              : "%d 1:%d 2:7\n",
                 i, i);
        strcat(text, line);
    }
    data_files_text(&DATASET_FILES, "file", text);
    struct tally_data_spec spec = dataset_spec_of(TALLY_DATA_LIBSVM, 2);
    spec.table.test_fraction = 0.5;
    const struct tally_data_spec parts[] = {spec, tally_data_spec_test(&spec)};
    for (int part = 0; part < 2; part++) {
        struct tally_dataset *dataset = dataset_load(&parts[part], TALLY_LABELS_REAL, 1);
        CU_ASSERT_EQUAL(dataset->points, 20);
        for (uint32_t i = 0; i < dataset->points; i++) {
            double row[2];
            const int label = (int)dataset->labels[i];
            tally_dataset_row(dataset, i, row);
            CU_ASSERT_EQUAL(row[0], label % 3 == 0 ? 0 : label);
            CU_ASSERT_EQUAL(row[1], label % 3 == 2 ? 7 : 0);
        }
        tally_dataset_free(dataset);
    }
    idx_files_fini(&DATASET_FILES);
}

static void test_objectives_tabular__features_are_standardized_by_the_training_points(void)
{
    idx_files_init(&DATASET_FILES);
    struct tally_data_spec spec = numbered();
    spec.table.test_fraction = 0.25;
    struct tally_data_spec held_out = tally_data_spec_test(&spec);
    struct tally_dataset *raw = dataset_load(&spec, TALLY_LABELS_REAL, 1);
    struct tally_dataset *raw_test = dataset_load(&held_out, TALLY_LABELS_REAL, 1);
    double mean = 0, variance = 0;
    for (uint32_t i = 0; i < raw->points; i++) {
        mean += raw->values[3 * i + 2] / raw->points;
    }
    for (uint32_t i = 0; i < raw->points; i++) {
        variance += pow(raw->values[3 * i + 2] - mean, 2) / raw->points;
    }
    struct tally_columns columns = {.n = 0};
    struct tally_scaling scaling = {0};
    const struct tally_data_source source = {
        .dir = DATASET_FILES.folder, .columns = &columns, .scaling = &scaling};
    spec.table.standardize = held_out.table.standardize = true;
    struct tally_dataset *training = NULL, *test = NULL;
    CU_ASSERT_EQUAL_FATAL(tally_dataset_load(&spec, TALLY_LABELS_REAL, 1, tally_rng_key(9, 0),
                                             &source, &training, NULL),
                          TALLY_OK);
    CU_ASSERT_EQUAL_FATAL(tally_dataset_load(&held_out, TALLY_LABELS_REAL, 1, tally_rng_key(9, 0),
                                             &source, &test, NULL),
                          TALLY_OK);
    for (uint32_t i = 0; i < training->points; i++) {
        const double z = (raw->values[3 * i + 2] - mean) / sqrt(variance);
        CU_ASSERT_DOUBLE_EQUAL(training->values[3 * i + 2], z, 1e-12);
        CU_ASSERT_EQUAL(training->values[3 * i + 1], 7); /* constant */
    }
    for (uint32_t i = 0; i < test->points; i++) {
        const double z = (raw_test->values[3 * i + 2] - mean) / sqrt(variance);
        CU_ASSERT_DOUBLE_EQUAL(test->values[3 * i + 2], z, 1e-12);
    }
    tally_columns_fini(&columns);
    tally_scaling_fini(&scaling);
    tally_dataset_free(raw);
    tally_dataset_free(raw_test);
    tally_dataset_free(training);
    tally_dataset_free(test);

    spec = csv_of("a,label\n1e200,1\n-1e200,2\n", 1);
    spec.table.standardize = true;
    dataset_expect_refused(&spec, 1,
                           "the values of column a are too large to be added and squared");
    idx_files_fini(&DATASET_FILES);
}

/* The objective scales the points that it holds out by the numbers of its training points. */
static void test_objectives_tabular__held_out_points_have_the_scale_of_the_others(void)
{
    idx_files_init(&DATASET_FILES);
    struct tally_objective_spec spec = {.type = TALLY_LEAST_SQUARES,
                                        .data = {.type = TALLY_DATA_CSV,
                                                 .table = {.file = "file",
                                                           .label = "label",
                                                           .features = 1,
                                                           .test_fraction = 0.4,
                                                           .standardize = true}}};
    data_files_text(&DATASET_FILES, "file", "a,label\n1,1\n2,1\n4,2\n8,2\n16,3\n");
    struct tally_data_spec raw = spec.data, held_out = tally_data_spec_test(&spec.data);
    raw.table.standardize = held_out.table.standardize = false;
    struct tally_dataset *training = dataset_load(&raw, TALLY_LABELS_REAL, 1);
    struct tally_dataset *test = dataset_load(&held_out, TALLY_LABELS_REAL, 1);
    CU_ASSERT_EQUAL_FATAL(training->points, 3);
    CU_ASSERT_EQUAL_FATAL(test->points, 2);
    const double *t = training->values, mean = (t[0] + t[1] + t[2]) / 3;
    const double s = sqrt((pow(t[0] - mean, 2) + pow(t[1] - mean, 2) + pow(t[2] - mean, 2)) / 3);
    double expected = 0;
    for (uint32_t i = 0; i < 2; i++) {
        expected += pow((test->values[i] - mean) / s * 0.5 - test->labels[i], 2) / 2;
    }
    struct tally_objective *objective = NULL;
    struct tally_metric metrics[TALLY_METRICS_MOST];
    size_t n = 0;
    const double x = 0.5;
    CU_ASSERT_EQUAL_FATAL(
        tally_objective_new(&spec, 1, tally_rng_key(9, 0), DATASET_FILES.folder, &objective, NULL),
        TALLY_OK);
    CU_ASSERT_EQUAL(tally_objective_metrics(objective, 0, 1, &x, true, metrics, &n, NULL),
                    TALLY_OK);
    CU_ASSERT_EQUAL_FATAL(n, 1);
    TALLY_ASSERT_TEXT(metrics[0].name, "test_loss");
    CU_ASSERT_DOUBLE_EQUAL(metrics[0].value, expected, 1e-12);
    tally_objective_free(objective);
    tally_dataset_free(training);
    tally_dataset_free(test);
    idx_files_fini(&DATASET_FILES);
}

/* Images are dealt, too, each with its label. */
static void test_objectives_tabular__images_are_dealt(void)
{
    idx_files_init(&DATASET_FILES);
    dataset_write_images("images", "labels", 20, 0);
    struct tally_data_spec spec = dataset_idx_spec(TALLY_SHARDING_DIRICHLET, 0);
    spec.alpha = 0.1;
    struct tally_dataset *dataset = dataset_load(&spec, TALLY_LABELS_CLASSES, 4);
    uint32_t moved = 0;
    for (uint32_t i = 0; i < 20; i++) {
        const uint8_t image = dataset->bytes[2 * i]; /* its number in the file */
        CU_ASSERT_EQUAL(dataset->bytes[2 * i + 1], 255 - image);
        CU_ASSERT_EQUAL(dataset->labels[i], (image * 7 + 3) % 3);
        moved += image != i;
    }
    CU_ASSERT_TRUE(moved > 5);
    tally_dataset_free(dataset);
    idx_files_fini(&DATASET_FILES);
}

/* The digest is that of the file, whatever is left out or changed. */
static void test_objectives_tabular__the_digest_is_that_of_the_file(void)
{
    idx_files_init(&DATASET_FILES);
    struct tally_data_spec spec = numbered();
    uint64_t digests[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        struct tally_dataset *dataset = NULL;
        const struct tally_data_source source = {.dir = DATASET_FILES.folder,
                                                 .ret_digest = &digests[i]};
        spec.table.test_fraction = i == 0 ? 0 : 0.5;
        spec.table.standardize = i == 1;
        CU_ASSERT_EQUAL_FATAL(tally_dataset_load(&spec, TALLY_LABELS_REAL, 1, tally_rng_key(9, 0),
                                                 &source, &dataset, NULL),
                              TALLY_OK);
        tally_dataset_free(dataset);
    }
    CU_ASSERT_NOT_EQUAL(digests[0], 0);
    CU_ASSERT_EQUAL(digests[0], digests[1]);
    idx_files_fini(&DATASET_FILES);
}

static void survey(const char *text, const char *label, size_t features, const char *names)
{
    struct tally_data_spec spec = csv_of(text, 1);
    struct tally_csv_labels labels = {.n = 0};
    struct tally_error err = TALLY_ERROR_INIT;
    size_t found = 0;
    strcpy(spec.table.label, label);
    TALLY_ASSERT_STATUS(tally_dataset_survey(&spec, 2, &DATASET_SOURCE, &found, &labels, &err),
                        TALLY_OK, &err);
    CU_ASSERT_EQUAL(found, features);
    char list[256] = "";
    for (const char *at = labels.names; at[0] != '\0'; at += strlen(at) + 1) {
        strcat(strcat(list, at), ";");
    }
    TALLY_ASSERT_TEXT(list, names);
}

static void test_objectives_tabular__features_and_labels_are_found(void)
{
    idx_files_init(&DATASET_FILES);
    survey("a,y,b\n1,no,2\n1,yes,2\n1,no,2\n1,Yes,2\n1,\"a,b\",2\n", "y", 2, "Yes;a,b;no;yes;");
    survey("y,b\n1,2\n-1,2\n10,2\n", "y", 1, "-1;1;10;");
    struct tally_data_spec spec = csv_of("a,label\nx,1\n2,2\n3,\n", 1);
    struct tally_csv_labels labels = {.n = 0};
    struct tally_error err = TALLY_ERROR_INIT;
    size_t found = 0;
    CU_ASSERT_EQUAL(tally_dataset_survey(&spec, 2, &DATASET_SOURCE, &found, NULL, &err), TALLY_OK);
    CU_ASSERT_EQUAL(found, 1); /* only the header is read */
    CU_ASSERT_EQUAL(tally_dataset_survey(&spec, 2, &DATASET_SOURCE, &found, &labels, &err),
                    TALLY_INVALID_ARGUMENT);
    TALLY_ASSERT_TEXT(err.message, "file:2: column a: \"x\" is not a number (the first of 2 "
                                   "errors); also in line 4");

    char *text = calloc(1, 10000);
    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    size_t n = (size_t)sprintf(text, "a,label\n");
    for (int i = 0; i < TALLY_CSV_CLASSES_MOST + 1; i++) {
        n += (size_t)sprintf(text + n, "1,%d\n", i);
    }
    spec = csv_of(text, 1);
    free(text);
    labels.n = labels.size = 0;
    tally_error_clear(&err);
    CU_ASSERT_EQUAL(tally_dataset_survey(&spec, 2, &DATASET_SOURCE, &found, &labels, &err),
                    TALLY_INVALID_ARGUMENT);
    TALLY_ASSERT_TEXT(err.message,
                      "file:258: more than 256 different labels in column label; if they are "
                      "numbers, least_squares fits them; otherwise give classes");
    idx_files_fini(&DATASET_FILES);
}

static void test_objectives_tabular__labels_of_clients_are_found_if_all_are_here(void)
{
    idx_files_init(&DATASET_FILES);
    struct tally_data_spec spec = dataset_spec_of(TALLY_DATA_CSV, 1);
    struct tally_csv_labels labels = {.n = 0};
    struct tally_error err = TALLY_ERROR_INIT;
    size_t found = 0;
    strcpy(spec.table.file, "f{client}");
    spec.sharding = TALLY_SHARDING_LOCAL;
    data_files_text(&DATASET_FILES, "f1", "a,label\n1,no\n");
    CU_ASSERT_EQUAL(tally_dataset_survey(&spec, 2, &DATASET_SOURCE, &found, NULL, &err), TALLY_OK);
    CU_ASSERT_EQUAL(found, 1);
    CU_ASSERT_EQUAL(tally_dataset_survey(&spec, 2, &DATASET_SOURCE, &found, &labels, &err),
                    TALLY_INVALID_ARGUMENT);
    TALLY_ASSERT_TEXT(err.message, "classes must be given: the file of client 0 is not here, and "
                                   "its labels may be others");
    data_files_text(&DATASET_FILES, "f0", "a,label\n1,yes\n");
    tally_error_clear(&err);
    TALLY_ASSERT_STATUS(tally_dataset_survey(&spec, 2, &DATASET_SOURCE, &found, &labels, &err),
                        TALLY_OK, &err);
    CU_ASSERT_EQUAL(labels.n, 2);
    strcpy(spec.table.file, "f0");
    labels = (struct tally_csv_labels){.n = 0};
    CU_ASSERT_EQUAL(tally_dataset_survey(&spec, 2, &DATASET_SOURCE, &found, &labels, &err),
                    TALLY_INVALID_ARGUMENT);
    TALLY_ASSERT_TEXT(err.message, "classes must be given: with sharding local, each worker has a "
                                   "file of its own, whose labels may be others");
    idx_files_fini(&DATASET_FILES);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_objectives_tabular__labels_may_be_names),
    TALLY_TEST(test_objectives_tabular__missing_values_are_refused_filled_or_dropped),
    TALLY_TEST(test_objectives_tabular__a_file_reports_its_errors_together),
    TALLY_TEST(test_objectives_tabular__a_fraction_is_held_out),
    TALLY_TEST(test_objectives_tabular__sparse_rows_are_held_out_whole),
    TALLY_TEST(test_objectives_tabular__features_are_standardized_by_the_training_points),
    TALLY_TEST(test_objectives_tabular__held_out_points_have_the_scale_of_the_others),
    TALLY_TEST(test_objectives_tabular__images_are_dealt),
    TALLY_TEST(test_objectives_tabular__the_digest_is_that_of_the_file),
    TALLY_TEST(test_objectives_tabular__features_and_labels_are_found),
    TALLY_TEST(test_objectives_tabular__labels_of_clients_are_found_if_all_are_here),
};
TALLY_SUITE(objectives_tabular, TESTS);
