/* The data in a job document: what each type accepts, what it means, and how it is written back. */
#include <stdio.h>
#include <string.h>

#include "services/job/document.h"
#include "tests/harness.h"

static enum tally_status parse_objective(const char *objective, const char *reference,
                                         struct tally_job_spec *spec, struct tally_error *err)
{
    char text[2000];
    const int n =
        snprintf(text, sizeof text,
                 "{\"algorithm\": {\"type\": \"minibatch_sgd\", \"step_size\": 0.1, "
                 "\"local_steps\": 1}, \"objective\": %s, \"clients\": 4, \"horizon\": 20, "
                 "\"reference\": %s}",
                 objective, reference);
    CU_ASSERT_FATAL(n < (int)sizeof text);
    *err = (struct tally_error)TALLY_ERROR_INIT;
    return tally_document_parse(text, strlen(text), spec, err);
}

/* Parses `data` in an objective of the given type. */
static enum tally_status parse_data(const char *type, const char *data, struct tally_job_spec *spec,
                                    struct tally_error *err)
{
    char objective[1000];
    const int n =
        snprintf(objective, sizeof objective, "{\"type\": \"%s\", \"data\": %s}", type, data);
    CU_ASSERT_FATAL(n < (int)sizeof objective);
    return parse_objective(objective, "{\"type\": \"value\", \"value\": 0}", spec, err);
}

#define LIBSVM "{\"type\": \"libsvm\", \"file\": \"a9a\", \"features\": 123"
#define CSV                                                                                        \
    "{\"type\": \"csv\", \"file\": \"d/x.csv\", \"label\": \"price in \\u20ac\", \"features\": 8"
#define NPY "{\"type\": \"npy\", \"points\": \"X.npy\", \"labels\": \"y.npy\", \"features\": 8"
#define NPZ                                                                                        \
    "{\"type\": \"npz\", \"file\": \"d.npz\", \"points\": \"X\", \"labels\": \"y\", "              \
    "\"features\": 8"
#define IDX                                                                                        \
    "{\"type\": \"idx\", \"images\": \"i\", \"labels\": \"l\", \"features\": 6, \"classes\": 3"
#define MATRIX "{\"type\": \"matrix\", \"matrix\": \"A.npy\", \"vector\": \"b.npy\", \"dim\": 8}"

static void test_document_data__every_type_is_read(void)
{
    struct tally_job_spec spec;
    struct tally_error err;
    const struct tally_data_spec *data = &spec.objective.data;
    const struct tally_table_data *table = &data->table;
    TALLY_ASSERT_STATUS(parse_data("least_squares", LIBSVM "}", &spec, &err), TALLY_OK, &err);
    CU_ASSERT_EQUAL(data->type, TALLY_DATA_LIBSVM);
    CU_ASSERT_EQUAL(data->sharding, TALLY_SHARDING_IID);
    TALLY_ASSERT_TEXT(table->file, "a9a");
    CU_ASSERT_EQUAL(table->features, 123);
    CU_ASSERT_EQUAL(table->classes, 0);
    CU_ASSERT_EQUAL(tally_objective_spec_dim(&spec.objective), 123);

    TALLY_ASSERT_STATUS(parse_data("softmax_regression",
                                   CSV ", \"classes\": 5, \"sharding\": "
                                       "\"by_label\"}",
                                   &spec, &err),
                        TALLY_OK, &err);
    CU_ASSERT_EQUAL(data->type, TALLY_DATA_CSV);
    CU_ASSERT_EQUAL(data->sharding, TALLY_SHARDING_BY_LABEL);
    TALLY_ASSERT_TEXT(table->file, "d/x.csv");
    TALLY_ASSERT_TEXT(table->label, "price in \xe2\x82\xac");
    CU_ASSERT_EQUAL(tally_objective_spec_dim(&spec.objective), 40);

    TALLY_ASSERT_STATUS(
        parse_data("logistic_regression", NPY ", \"sharding\": \"contiguous\"}", &spec, &err),
        TALLY_OK, &err);
    CU_ASSERT_EQUAL(data->type, TALLY_DATA_NPY);
    CU_ASSERT_EQUAL(data->sharding, TALLY_SHARDING_CONTIGUOUS);
    TALLY_ASSERT_TEXT(table->points, "X.npy");
    TALLY_ASSERT_TEXT(table->labels, "y.npy");

    TALLY_ASSERT_STATUS(
        parse_data("huber_regression", NPZ ", \"sharding\": \"local\"}", &spec, &err), TALLY_OK,
        &err);
    CU_ASSERT_EQUAL(data->type, TALLY_DATA_NPZ);
    CU_ASSERT_EQUAL(data->sharding, TALLY_SHARDING_LOCAL);
    TALLY_ASSERT_TEXT(table->file, "d.npz");

    TALLY_ASSERT_STATUS(parse_data("softmax_regression", IDX "}", &spec, &err), TALLY_OK, &err);
    CU_ASSERT_EQUAL(data->type, TALLY_DATA_IDX);
    CU_ASSERT_EQUAL(data->idx.points_per_class, 0);

    TALLY_ASSERT_STATUS(parse_data("quadratic", MATRIX, &spec, &err), TALLY_OK, &err);
    CU_ASSERT_EQUAL(data->type, TALLY_DATA_MATRIX);
    TALLY_ASSERT_TEXT(data->matrix.matrix, "A.npy");
    TALLY_ASSERT_TEXT(data->matrix.vector, "b.npy");
    CU_ASSERT_EQUAL(tally_objective_spec_dim(&spec.objective), 8);
}

/* Written data are complete, and reading them again gives the same data. */
static void test_document_data__is_written_as_it_was_read(void)
{
    static const struct {
        const char *objective, *text, *written;
    } rows[] = {
        {"least_squares", LIBSVM "}", LIBSVM ", \"classes\": 0, \"sharding\": \"iid\"}"},
        {"softmax_regression", CSV ", \"classes\": 5, \"sharding\": \"by_label\"}",
         CSV ", \"classes\": 5, \"sharding\": \"by_label\"}"},
        {"logistic_regression", NPY ", \"sharding\": \"contiguous\"}",
         NPY ", \"classes\": 0, \"sharding\": \"contiguous\"}"},
        {"huber_regression", NPZ ", \"sharding\": \"local\"}",
         NPZ ", \"classes\": 0, \"sharding\": \"local\"}"},
        {"softmax_regression", IDX "}", IDX ", \"points_per_class\": 0, \"sharding\": \"iid\"}"},
        {"least_squares", LIBSVM ", \"test_file\": \"\"}",
         LIBSVM ", \"classes\": 0, \"sharding\": \"iid\"}"},
        {"least_squares", LIBSVM ", \"test_file\": \"t\"}",
         LIBSVM ", \"classes\": 0, \"sharding\": \"iid\", \"test_file\": \"t\"}"},
        {"softmax_regression", IDX ", \"test_images\": \"ti\", \"test_labels\": \"tl\"}",
         IDX ", \"points_per_class\": 0, \"sharding\": \"iid\", \"test_images\": \"ti\", "
             "\"test_labels\": \"tl\"}"},
        {"quadratic", MATRIX, MATRIX},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tally_job_spec spec, again;
        struct tally_error err;
        struct tally_json *expected = NULL;
        struct tally_buffer first = {0}, second = {0}, whole = {0};
        TALLY_ASSERT_STATUS(parse_data(rows[i].objective, rows[i].text, &spec, &err), TALLY_OK,
                            &err);
        struct tally_json *document = tally_document_of(&spec);
        CU_ASSERT_PTR_NOT_NULL_FATAL(document);
        const struct tally_json *data =
            tally_json_get(tally_json_get(document, "objective"), "data");
        CU_ASSERT_EQUAL(tally_json_dump(data, 0, &first), TALLY_OK);
        CU_ASSERT_EQUAL_FATAL(
            tally_json_parse(rows[i].written, strlen(rows[i].written), &expected, &err), TALLY_OK);
        CU_ASSERT_EQUAL(tally_json_dump(expected, 0, &second), TALLY_OK);
        CU_ASSERT_EQUAL(tally_buffer_append(&first, "", 1), TALLY_OK);
        CU_ASSERT_EQUAL(tally_buffer_append(&second, "", 1), TALLY_OK);
        TALLY_ASSERT_TEXT((const char *)first.data, (const char *)second.data);
        CU_ASSERT_EQUAL(tally_json_dump(document, 0, &whole), TALLY_OK);
        TALLY_ASSERT_STATUS(
            tally_document_parse((const char *)whole.data, whole.size, &again, &err), TALLY_OK,
            &err);
        CU_ASSERT_EQUAL(again.objective.data.type, spec.objective.data.type);
        CU_ASSERT_EQUAL(again.objective.data.sharding, spec.objective.data.sharding);
        tally_json_free(document);
        tally_json_free(expected);
        tally_buffer_fini(&first);
        tally_buffer_fini(&second);
        tally_buffer_fini(&whole);
    }
}

static void test_document_data__errors_name_the_field(void)
{
    const enum tally_status invalid = TALLY_INVALID_ARGUMENT, range = TALLY_OUT_OF_RANGE;
    const struct {
        const char *objective, *data;
        enum tally_status status;
        const char *field;
    } rows[] = {
        {"least_squares", "{\"type\": \"parquet\"}", invalid, "objective.data.type"},
        {"least_squares", "{\"type\": \"libsvm\", \"features\": 3}", invalid,
         "objective.data.file"},
        {"least_squares", "{\"type\": \"libsvm\", \"file\": \"x\"}", invalid,
         "objective.data.features"},
        {"least_squares", "{\"type\": \"libsvm\", \"file\": \"x\", \"features\": 0}", range,
         "objective.data.features"},
        {"least_squares", "{\"type\": \"libsvm\", \"file\": \"x\", \"features\": 1000000000}",
         range, "objective.data.features"},
        {"least_squares", "{\"type\": \"csv\", \"file\": \"x\", \"features\": 3}", invalid,
         "objective.data.label"},
        {"least_squares", LIBSVM ", \"label\": \"y\"}", invalid, "objective.data.label"},
        {"least_squares", NPY ", \"file\": \"y\"}", invalid, "objective.data.file"},
        {"least_squares", LIBSVM ", \"sharding\": \"random\"}", invalid, "objective.data.sharding"},
        {"least_squares", LIBSVM ", \"sharding\": 1}", invalid, "objective.data.sharding"},
        /* Held-out points. */
        {"least_squares", LIBSVM ", \"test_file\": \"/t\"}", invalid, "objective.data.test_file"},
        {"least_squares", CSV ", \"test_file\": \"a/../t\"}", invalid, "objective.data.test_file"},
        {"least_squares", NPZ ", \"test_file\": \"{client}\"}", invalid,
         "objective.data.test_file"},
        {"least_squares", NPY ", \"test_points\": \"t\"}", invalid, "objective.data.test_labels"},
        {"least_squares", NPY ", \"test_labels\": \"t\"}", invalid, "objective.data.test_points"},
        {"softmax_regression", IDX ", \"test_images\": \"t\"}", invalid,
         "objective.data.test_labels"},
        {"softmax_regression",
         IDX ", \"sharding\": \"local\", \"test_images\": \"t{client}\", \"test_labels\": "
             "\"t\"}",
         invalid, "objective.data.test_labels"},
        {"least_squares", NPY ", \"test_file\": \"t\"}", invalid, "objective.data.test_file"},
        /* Labels that are classes. */
        {"softmax_regression", LIBSVM "}", invalid, "objective.data.classes"},
        {"softmax_regression", LIBSVM ", \"classes\": 1}", invalid, "objective.data.classes"},
        {"softmax_regression", LIBSVM ", \"classes\": 1000001}", range, "objective.data.classes"},
        {"softmax_regression", LIBSVM ", \"classes\": 100000}", invalid, "objective.data.features"},
        /* Names that lead outside the folder. */
        {"least_squares", "{\"type\": \"libsvm\", \"file\": \"../x\", \"features\": 3}", invalid,
         "objective.data.file"},
        {"least_squares", "{\"type\": \"libsvm\", \"file\": \"/etc/passwd\", \"features\": 3}",
         invalid, "objective.data.file"},
        {"least_squares", "{\"type\": \"libsvm\", \"file\": \"\", \"features\": 3}", invalid,
         "objective.data.file"},
        {"least_squares", "{\"type\": \"libsvm\", \"file\": \"a/../../x\", \"features\": 3}",
         invalid, "objective.data.file"},
        {"least_squares", "{\"type\": \"libsvm\", \"file\": \"a\\u0000b\", \"features\": 3}",
         TALLY_MALFORMED, ""},
        {"least_squares",
         "{\"type\": \"npy\", \"points\": \"x\", \"labels\": \"..\", \"features\": 3}", invalid,
         "objective.data.labels"},
        {"least_squares",
         "{\"type\": \"npy\", \"points\": \"/x\", \"labels\": \"y\", \"features\": 3}", invalid,
         "objective.data.points"},
        {"softmax_regression",
         "{\"type\": \"idx\", \"images\": \"../i\", \"labels\": \"l\", \"features\": 6, "
         "\"classes\": "
         "3}",
         invalid, "objective.data.images"},
        {"quadratic", "{\"type\": \"matrix\", \"matrix\": \"A\", \"vector\": \"../b\", \"dim\": 8}",
         invalid, "objective.data.vector"},
        {"quadratic", "{\"type\": \"matrix\", \"matrix\": \"A\", \"vector\": \"b\", \"dim\": 8193}",
         range, "objective.data.dim"},
        /* One file for each client. */
        {"least_squares", "{\"type\": \"libsvm\", \"file\": \"x{client}\", \"features\": 3}",
         invalid, "objective.data.file"},
        {"least_squares",
         "{\"type\": \"npy\", \"points\": \"x{client}\", \"labels\": \"y\", \"features\": 3, "
         "\"sharding\": \"local\"}",
         invalid, "objective.data.labels"},
        {"softmax_regression", IDX ", \"points_per_class\": 1}", invalid,
         "objective.data.points_per_class"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tally_job_spec spec;
        struct tally_error err;
        TALLY_ASSERT_STATUS(parse_data(rows[i].objective, rows[i].data, &spec, &err),
                            rows[i].status, &err);
        TALLY_ASSERT_TEXT(err.field, rows[i].field);
    }
}

/* The coordinator cannot solve without the data. */
static void test_document_data__local_data_have_no_solved_reference(void)
{
    static const char own[] =
        "{\"type\": \"least_squares\", \"data\": " LIBSVM ", \"sharding\": \"local\"}}";
    static const char marked[] =
        "{\"type\": \"least_squares\", \"data\": {\"type\": \"libsvm\", \"file\": \"x-{client}\", "
        "\"features\": 3, \"sharding\": \"local\"}}";
    struct tally_job_spec spec;
    struct tally_error err;
    TALLY_ASSERT_STATUS(parse_objective(own, "{\"type\": \"solve\"}", &spec, &err),
                        TALLY_INVALID_ARGUMENT, &err);
    TALLY_ASSERT_TEXT(err.field, "reference.type");
    CU_ASSERT_PTR_NOT_NULL(strstr(err.message, "{client}"));
    TALLY_ASSERT_STATUS(parse_objective(own, "{\"type\": \"none\"}", &spec, &err), TALLY_OK, &err);
    TALLY_ASSERT_STATUS(parse_objective(own, "{\"type\": \"value\", \"value\": 1}", &spec, &err),
                        TALLY_OK, &err);
    TALLY_ASSERT_STATUS(parse_objective(marked, "{\"type\": \"solve\"}", &spec, &err), TALLY_OK,
                        &err);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_document_data__every_type_is_read),
    TALLY_TEST(test_document_data__is_written_as_it_was_read),
    TALLY_TEST(test_document_data__errors_name_the_field),
    TALLY_TEST(test_document_data__local_data_have_no_solved_reference),
};
TALLY_SUITE(document_data, TESTS);
