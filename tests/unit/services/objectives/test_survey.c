/* Surveys: exact sums, in any order and split in any way, and the scaling that follows from them.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/numeric/rng.h"
#include "services/objectives/data/scaling.h"
#include "services/objectives/data/survey.h"
#include "services/objectives/objective.h"
#include "tests/harness.h"
#include "tests/unit/services/objectives/datasets.h"

enum { MOST_POINTS = 600, FEATURES = 3 };

static struct tally_buffer survey_of(double *values, uint32_t points, size_t features)
{
    const struct tally_dataset dataset = {.points = points, .features = features, .values = values};
    struct tally_buffer survey = {0};
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(
        tally_survey_make(&dataset, (struct tally_shard){0, points}, NULL, &survey, &err), TALLY_OK,
        &err);
    return survey;
}

static void add(struct tally_buffer *total, const struct tally_buffer *survey, size_t features)
{
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_survey_add(total, survey->data, survey->size, features, &err),
                        TALLY_OK, &err);
}

static void conclude(double *values, uint32_t points, bool standardizes, double *ret_numbers)
{
    struct tally_buffer survey = survey_of(values, points, 1);
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_survey_conclude(&survey, 1, standardizes, NULL, ret_numbers, &err),
                        TALLY_OK, &err);
    tally_buffer_fini(&survey);
}

/* Values of all sizes, some of them missing. */
static void draw(struct tally_rng *rng, double *values, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const int exponent = (int)tally_rng_below(rng, 1500) - 1000;
        const double value = ldexp(tally_rng_uniform(rng) - 0.5, exponent);
        values[i] = tally_rng_below(rng, 10) == 0 ? NAN : value;
    }
}

static void test_objectives_survey__neither_order_nor_split_changes_a_bit(void)
{
    static double values[MOST_POINTS * FEATURES];
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(5, 0), 0, 0, TALLY_RNG_SAMPLING);
    draw(&rng, values, sizeof values / sizeof *values);
    struct tally_buffer whole = survey_of(values, MOST_POINTS, FEATURES);
    for (int turn = 0; turn < 20; turn++) {
        struct tally_buffer total = {0};
        for (uint32_t first = 0; first < MOST_POINTS;) {
            const uint32_t left = MOST_POINTS - first, n = 1 + tally_rng_below(&rng, left);
            struct tally_buffer part = survey_of(values + first * FEATURES, n, FEATURES);
            struct tally_buffer sum = {0};
            add(&sum, &part, FEATURES); /* the other way round than the first time */
            if (total.size > 0) {
                add(&sum, &total, FEATURES);
            }
            tally_buffer_fini(&total);
            tally_buffer_fini(&part);
            total = sum;
            first += n;
        }
        CU_ASSERT_EQUAL_FATAL(total.size, whole.size);
        CU_ASSERT_EQUAL(memcmp(total.data, whole.data, whole.size), 0);
        tally_buffer_fini(&total);
    }
    tally_buffer_fini(&whole);
}

/* Computed with fractions of integers, and rounded once. */
static const struct {
    double values[5];
    uint32_t n;
    double mean, s;
} EXACT[] = {
    {{0x1.8000000000000p+0, 0x1.2000000000000p+1, -0x1.9000000000000p+1, 0x1.2a05f20000000p+33,
      0x1.b7cdfd9d7bdbbp-34},
     5,
     0x1.dcd6500080000p+30,
     0x1.dcd64fffe0000p+31},
    {{0x1.999999999999ap-4, 0x1.999999999999ap-3, 0x1.3333333333333p-2},
     3,
     0x1.999999999999ap-3,
     0x1.4e6fdf33cf031p-4},
    {{0x1.38d352e5096afp+498, -0x1.38d352e5096afp+498, 0x1.7763fd12d819fp+496,
      0x1.56e1fc2f8f359p-997},
     4,
     0x1.7763fd12d819fp+494,
     0x1.c1ce3d8c75b5fp+497},
    {{0x0.0000000000001p-1022, 0x0.0000000000002p-1022, 0x0.0p+0},
     3,
     0x0.0000000000001p-1022,
     0x0.0000000000001p-1022},
    {{0x1.999999999999ap-4, NAN, 0x1.6666666666666p-1},
     3,
     0x1.9999999999999p-2,
     0x1.f5a7cecdb684ap-3},
    {{0x1.c6bf526340000p+49, 0x1.c6bf526340008p+49, 0x1.c6bf526340000p+49, 0x1.c6bf526340008p+49},
     4,
     0x1.c6bf526340004p+49,
     0x1.0000000000000p-1},
    {{-0x1.c000000000000p+2, -0x1.c666666666666p+2, -0x1.b99999999999ap+2, -0x1.d333333333333p+2},
     4,
     -0x1.c4ccccccccccdp+2,
     0x1.2ee73dadc9b50p-3},
    {{0x1.ca3d8e6d80cbbp+510, -0x1.ca3d8e6d80cbbp+510, 0x0.0000000000001p-1022,
      0x1.0000000000000p+0},
     4,
     0x1.0000000000000p-2,
     0x1.440661ff1d7f5p+510},
};

static void test_objectives_survey__means_and_deviations_are_rounded_once(void)
{
    for (size_t i = 0; i < sizeof EXACT / sizeof *EXACT; i++) {
        double values[5], numbers[3];
        memcpy(values, EXACT[i].values, sizeof values);
        conclude(values, EXACT[i].n, true, numbers);
        CU_ASSERT_EQUAL(numbers[0], EXACT[i].mean);
        CU_ASSERT_EQUAL(numbers[1], EXACT[i].mean);
        CU_ASSERT_EQUAL(numbers[2], EXACT[i].s);
        conclude(values, EXACT[i].n, false, numbers);
        CU_ASSERT_EQUAL(numbers[0], EXACT[i].mean);
        CU_ASSERT_EQUAL(numbers[1], 0);
        CU_ASSERT_EQUAL(numbers[2], 1);
    }
}

static void test_objectives_survey__constant_features_are_recognized(void)
{
    static const double constants[] = {0, -0.1, 1e100, 0x1p-1074, 123456.789};
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++) {
        double values[1000], numbers[3];
        for (int k = 0; k < 1000; k++) {
            values[k] = k % 7 == 3 ? NAN : constants[i];
        }
        conclude(values, 1000, true, numbers);
        CU_ASSERT_EQUAL(numbers[0], constants[i]);
        CU_ASSERT_EQUAL(numbers[1], 0);
        CU_ASSERT_EQUAL(numbers[2], 1);
    }
}

static void expect_malformed(const struct tally_buffer *before, const void *bytes, size_t n,
                             size_t features, const char *message)
{
    struct tally_buffer total = {0};
    struct tally_error err = TALLY_ERROR_INIT;
    CU_ASSERT_EQUAL(tally_buffer_append(&total, before->data, before->size), TALLY_OK);
    CU_ASSERT_EQUAL(tally_survey_add(&total, bytes, n, features, &err), TALLY_MALFORMED);
    TALLY_ASSERT_TEXT(err.field, "payload");
    if (message != NULL) {
        TALLY_ASSERT_TEXT(err.message, message);
    }
    CU_ASSERT_EQUAL(total.size, before->size); /* as it was */
    CU_ASSERT_TRUE(total.size == 0 || memcmp(total.data, before->data, before->size) == 0);
    tally_buffer_fini(&total);
}

static void test_objectives_survey__bytes_that_are_no_survey_are_refused(void)
{
    static const struct {
        uint8_t bytes[12];
        size_t n;
        const char *message;
    } BAD[] = {
        {{0}, 0, "a survey begins with its number of points, 1 to 4294967295"},
        {{0}, 1, "a survey begins with its number of points, 1 to 4294967295"},
        {{1, 0, 0, 0, 0}, 5, "the survey is longer than its 1 features"},
        {{1, 0}, 2, "the survey is cut short or malformed at feature 0"},
        {{1, 2, 0, 0}, 4, "feature 0 of the survey has more missing values than points"},
        {{1, 1, 2, 0, 1, 2, 0, 1}, 8, "feature 0 of the survey has sums without a value"},
        {{2, 0, 2, 0, 4, 2, 0, 1},
         8,
         "feature 0 of the survey has squares that are too small for the sum"},
        {{1, 0, 1, 0}, 4, "the survey is cut short or malformed at feature 0"},       /* minus 0 */
        {{1, 0, 0, 3, 0, 1}, 6, "the survey is cut short or malformed at feature 0"}, /* Q < 0 */
        {{1, 0, 2, 0, 0, 0}, 6, "the survey is cut short or malformed at feature 0"}, /* a 0 */
        {{0x81, 0, 0, 0, 0}, 5, "a survey begins with its number of points, 1 to 4294967295"},
        {{1, 0, 0xff, 0xff, 0xff, 0x7f, 0}, 7, "the survey is cut short or malformed at feature 0"},
        {{1, 0, 2, 198, 1, 128, 0},
         7,
         "feature 0 of the survey has sums that are too large for its "
         "points"},
        {{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1},
         10,
         "a survey begins with its number of points, 1 to 4294967295"},
    };
    const struct tally_buffer none = {0};
    double values[] = {1, 2, -3, 0.5};
    struct tally_buffer total = survey_of(values, 4, 1);
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        expect_malformed(&none, BAD[i].bytes, BAD[i].n, 1, BAD[i].message);
        expect_malformed(&total, BAD[i].bytes, BAD[i].n, 1, BAD[i].message);
    }
    for (size_t n = 0; n < total.size; n++) { /* cut anywhere */
        expect_malformed(&none, total.data, n, 1, NULL);
    }
    expect_malformed(&none, total.data, total.size, 2, NULL);
    tally_buffer_fini(&total);
    static const uint8_t many[] = {0x80, 0x80, 0x80, 0x80, 0x10, 0, 0, 0}; /* 2^32 */
    expect_malformed(&none, many, sizeof many, 1,
                     "a survey begins with its number of points, 1 to 4294967295");
}

/* A damaged survey is refused, or it is one of other sums. */
static void test_objectives_survey__damage_is_noticed_or_means_other_sums(void)
{
    double values[8 * FEATURES], numbers[3 * FEATURES];
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(6, 0), 0, 0, TALLY_RNG_SAMPLING);
    draw(&rng, values, 8 * FEATURES);
    struct tally_buffer survey = survey_of(values, 8, FEATURES);
    for (size_t bit = 0; bit < 8 * survey.size; bit++) {
        struct tally_buffer total = {0};
        survey.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        if (tally_survey_add(&total, survey.data, survey.size, FEATURES, NULL) == TALLY_OK) {
            CU_ASSERT_EQUAL(total.size, survey.size);
            CU_ASSERT_EQUAL(memcmp(total.data, survey.data, survey.size), 0);
            if (tally_survey_conclude(&total, FEATURES, true, NULL, numbers, NULL) == TALLY_OK) {
                for (int i = 0; i < 3 * FEATURES; i++) {
                    CU_ASSERT_TRUE(isfinite(numbers[i]));
                }
            }
        }
        survey.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        tally_buffer_fini(&total);
    }
    tally_buffer_fini(&survey);
}

static void test_objectives_survey__errors_name_the_column(void)
{
    struct tally_columns columns = {.n = 0};
    struct tally_error err = TALLY_ERROR_INIT;
    struct tally_buffer survey = {0};
    double values[] = {1, NAN, 2, 0x1p511}, numbers[6];
    const struct tally_dataset dataset = {.points = 2, .features = 2, .values = values};
    CU_ASSERT_TRUE(tally_columns_add(&columns, "age") && tally_columns_add(&columns, "income"));
    CU_ASSERT_EQUAL(
        tally_survey_make(&dataset, (struct tally_shard){0, 2}, &columns, &survey, &err),
        TALLY_INVALID_ARGUMENT);
    TALLY_ASSERT_TEXT(err.message,
                      "the values of column income are too large to be added and squared");
    survey.size = 0;
    values[3] = NAN;
    CU_ASSERT_EQUAL(
        tally_survey_make(&dataset, (struct tally_shard){0, 2}, &columns, &survey, NULL), TALLY_OK);
    tally_error_clear(&err);
    CU_ASSERT_EQUAL(tally_survey_conclude(&survey, 2, true, &columns, numbers, &err),
                    TALLY_INVALID_ARGUMENT);
    TALLY_ASSERT_TEXT(err.message, "column income has no value at any training point; remove it");
    tally_error_clear(&err);
    CU_ASSERT_EQUAL(tally_survey_conclude(&survey, 2, true, NULL, numbers, &err),
                    TALLY_INVALID_ARGUMENT);
    TALLY_ASSERT_TEXT(err.message, "column 1 (counted from 0) has no value at any training point; "
                                   "remove it");
    tally_buffer_fini(&survey);
    tally_columns_fini(&columns);
}

/* Files of clients are scaled like the same rows in one file, up to the rounding there. */
static void test_objectives_survey__files_of_clients_are_scaled_like_one(void)
{
    static const char one[] = "a,b,label\n1,0.5,1\n2,,2\n4,0.25,3\n-3,7,4\n2.5,?,5\n";
    idx_files_init(&DATASET_FILES);
    data_files_text(&DATASET_FILES, "file", one);
    data_files_text(&DATASET_FILES, "f0", "a,b,label\n1,0.5,1\n2,,2\n");
    data_files_text(&DATASET_FILES, "f1", "a,b,label\n4,0.25,3\n");
    data_files_text(&DATASET_FILES, "f2", "b,a,label\n7,-3,4\n?,2.5,5\n");
    struct tally_data_spec spec = dataset_spec_of(TALLY_DATA_CSV, 2);
    spec.table.standardize = true;
    spec.table.missing = TALLY_MISSING_MEAN;
    struct tally_data_spec parts = spec;
    spec.sharding = TALLY_SHARDING_CONTIGUOUS;
    parts.sharding = TALLY_SHARDING_LOCAL;
    strcpy(parts.table.file, "f{client}");
    struct tally_dataset *whole = dataset_load(&spec, TALLY_LABELS_REAL, 3);
    struct tally_dataset *local = dataset_load(&parts, TALLY_LABELS_REAL, 3);
    CU_ASSERT_EQUAL_FATAL(local->points, whole->points);
    for (size_t i = 0; i < 10; i++) {
        CU_ASSERT_DOUBLE_EQUAL(local->values[i], whole->values[i], 4e-16);
    }
    tally_dataset_free(whole);
    tally_dataset_free(local);

    /* Points that are not all here are refused, unless their surveys are asked for. */
    data_files_text(&DATASET_FILES, "f0", "a,b,label\n1,0.5,1\n2,,2\n");
    strcpy(parts.table.file, "f{client}");
    struct tally_error err = TALLY_ERROR_INIT;
    CU_ASSERT_EQUAL(tally_dataset_load(&parts, TALLY_LABELS_REAL, 4, tally_rng_key(9, 0),
                                       &DATASET_SOURCE, &local, &err),
                    TALLY_INVALID_ARGUMENT);
    TALLY_ASSERT_TEXT(err.message, "the means are those of the points of all clients, and those of "
                                   "client 3 are not here");
    struct tally_surveys surveys = {0};
    struct tally_data_source source = DATASET_SOURCE;
    source.surveys = &surveys;
    CU_ASSERT_EQUAL_FATAL(tally_dataset_load(&parts, TALLY_LABELS_REAL, 4, tally_rng_key(9, 0),
                                             &source, &local, NULL),
                          TALLY_OK);
    CU_ASSERT_EQUAL(local->values[0], 1);
    CU_ASSERT_TRUE(isnan(local->values[3]));
    CU_ASSERT_TRUE(tally_surveys_of(&surveys, 2)->size > 0);
    CU_ASSERT_EQUAL(tally_surveys_of(&surveys, 3)->size, 0);
    tally_dataset_free(local);
    tally_surveys_fini(&surveys);
    idx_files_fini(&DATASET_FILES);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_objectives_survey__neither_order_nor_split_changes_a_bit),
    TALLY_TEST(test_objectives_survey__means_and_deviations_are_rounded_once),
    TALLY_TEST(test_objectives_survey__constant_features_are_recognized),
    TALLY_TEST(test_objectives_survey__bytes_that_are_no_survey_are_refused),
    TALLY_TEST(test_objectives_survey__damage_is_noticed_or_means_other_sums),
    TALLY_TEST(test_objectives_survey__errors_name_the_column),
    TALLY_TEST(test_objectives_survey__files_of_clients_are_scaled_like_one),
};
TALLY_SUITE(objectives_survey, TESTS);
