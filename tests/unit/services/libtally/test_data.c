#include <stdio.h>
#include <string.h>

#include "services/job/document.h"
#include "services/libtally/tally.h"
#include "services/objectives/data/synthetic_linear.h"
#include "tests/harness.h"

static const char DOCUMENT[] =
    "{\"objective\": {\"type\": \"least_squares\", \"data\": {\"type\": \"synthetic_linear\","
    " \"dim\": 3, \"points\": 10}}, \"algorithm\": {\"type\": \"minibatch_sgd\", \"step_size\": 1, "
    "\"local_steps\": 1},"
    " \"clients\": 4, \"quorum\": 4, \"horizon\": 10, \"seed\": 5}";

static void test_libtally_data__shards_are_those_of_the_objective(void)
{
    struct tally_job_data *data = NULL;
    struct tally_failure failure = {.code = 0};
    struct tally_job_spec spec;
    struct tally_dataset *dataset = NULL;
    CU_ASSERT_EQUAL_FATAL(tally_job_data_load(DOCUMENT, sizeof DOCUMENT - 1, NULL, &data, &failure),
                          TALLY_CODE_OK);
    CU_ASSERT_EQUAL_FATAL(tally_document_parse(DOCUMENT, sizeof DOCUMENT - 1, &spec, NULL),
                          TALLY_OK);
    CU_ASSERT_EQUAL_FATAL(tally_synthetic_linear_make(&spec.objective.data.synthetic_linear, 4,
                                                      tally_job_spec_setting(&spec).key, &dataset,
                                                      NULL),
                          TALLY_OK);
    CU_ASSERT_EQUAL(tally_job_data_clients(data), 4);
    size_t first = 0;
    for (uint32_t m = 0; m < 4; m++) {
        struct tally_points *points = NULL;
        CU_ASSERT_EQUAL_FATAL(tally_job_data_points(data, m, &points, NULL), TALLY_CODE_OK);
        CU_ASSERT_EQUAL(points->n, m < 2 ? 3 : 2);
        CU_ASSERT_EQUAL(points->features, 3);
        CU_ASSERT_EQUAL(
            memcmp(points->values, dataset->values + first * 3, points->n * 3 * sizeof(double)), 0);
        CU_ASSERT_EQUAL(memcmp(points->labels, dataset->labels + first, points->n * sizeof(double)),
                        0);
        first += points->n;
        tally_points_free(points);
    }
    struct tally_points *none = NULL;
    CU_ASSERT_EQUAL(tally_job_data_points(data, 4, &none, &failure), TALLY_CODE_OUT_OF_RANGE);
    TALLY_ASSERT_TEXT(failure.message, "client 4 outside [0, 3]");
    CU_ASSERT_PTR_NULL(none);
    tally_dataset_free(dataset);
    tally_job_data_free(data);
    tally_job_data_free(NULL);
    tally_points_free(NULL);
}

static void test_libtally_data__what_is_wrong_is_named(void)
{
    static const struct {
        const char *objective;
        enum tally_code code;
        const char *field;
    } CASES[] = {
        {"{\"type\": \"plugin\", \"name\": \"p\", \"dim\": 3}", TALLY_CODE_FAILED_PRECONDITION,
         "objective.type"},
        {"{\"type\": \"least_squares\", \"data\": {\"type\": \"synthetic_linear\", \"dim\": 0,"
         " \"points\": 10}}",
         TALLY_CODE_OUT_OF_RANGE, "objective.data.dim"},
    };
    struct tally_job_data *data = NULL;
    struct tally_failure failure;
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        char document[512];
        const int n = snprintf(document, sizeof document,
                               "{\"objective\": %s, \"algorithm\": {\"type\": \"minibatch_sgd\","
                               " \"step_size\": 1, \"local_steps\": 1}, \"clients\": 4, "
                               "\"quorum\": 4, \"horizon\": 10,"
                               " \"reference\": {\"type\": \"value\", \"value\": 0}}",
                               CASES[i].objective);
        const enum tally_code code =
            tally_job_data_load(document, (size_t)n, NULL, &data, &failure);
        CU_ASSERT_EQUAL(code, CASES[i].code);
        TALLY_ASSERT_TEXT(failure.field, CASES[i].field);
    }
    CU_ASSERT_EQUAL(tally_job_data_load("{", 1, NULL, &data, NULL), TALLY_CODE_MALFORMED);
    CU_ASSERT_PTR_NULL(data);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_libtally_data__shards_are_those_of_the_objective),
    TALLY_TEST(test_libtally_data__what_is_wrong_is_named),
};
TALLY_SUITE(libtally_data, TESTS);
