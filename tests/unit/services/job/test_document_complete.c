/* Documents that leave the features or the classes of a CSV file open. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "services/job/document.h"
#include "services/job/document_complete.h"
#include "tests/harness.h"

/* A folder for x.csv. */
static char folder[] = "/tmp/tally-test-XXXXXX";

static void path_of(char ret_path[64])
{
    snprintf(ret_path, 64, "%s/x.csv", folder);
}

static void open_folder(void)
{
    strcpy(folder, "/tmp/tally-test-XXXXXX");
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(folder));
}

static void remove_folder(void)
{
    char path[64];
    path_of(path);
    remove(path);
    CU_ASSERT_EQUAL(rmdir(folder), 0);
}

static void write_csv(const char *text)
{
    char path[64];
    path_of(path);
    FILE *file = fopen(path, "w");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    CU_ASSERT_TRUE(fputs(text, file) >= 0);
    CU_ASSERT_EQUAL(fclose(file), 0);
}

static void write_document(struct tally_buffer *text, const char *type, const char *members)
{
    *text = (struct tally_buffer){0};
    tally_buffer_printf(text,
                        "{\"algorithm\": {\"type\": \"minibatch_sgd\", \"step_size\": 0.1, "
                        "\"local_steps\": 1}, \"objective\": {\"type\": \"%s\", \"data\": "
                        "{\"type\": \"csv\", \"file\": \"x.csv\", \"label\": \"y\"%s}}, "
                        "\"clients\": 2, \"horizon\": 20}",
                        type, members);
}

/* Completes a document; ret_spec <- the result. */
static enum tally_status complete(const char *type, const char *members, const char *csv,
                                  struct tally_job_spec *ret_spec,
                                  char ret_found[TALLY_FOUND_CAPACITY], struct tally_error *err)
{
    const struct tally_data_source source = {.dir = folder};
    struct tally_buffer text;
    *err = (struct tally_error)TALLY_ERROR_INIT;
    if (csv != NULL) {
        write_csv(csv);
    }
    write_document(&text, type, members);
    enum tally_status status = tally_document_complete(&text, &source, ret_found, err);
    if (status == TALLY_OK) {
        status = tally_document_parse((const char *)text.data, text.size, ret_spec, err);
    }
    tally_buffer_fini(&text);
    return status;
}

static const struct {
    const char *type, *members, *csv;
    int64_t features, classes;
    const char *first, *last; /* names; NULL = none */
    const char *found;
} ROWS[] = {
    {"logistic_regression", "", "a,y,b\n1,m,2\n3,b,4\n", 2, 2, "b", "m",
     "x.csv: features 2, classes \"b\", \"m\""},
    {"logistic_regression", "", "a,y\n1,0\n3,1\n", 1, 2, NULL, NULL,
     "x.csv: features 1, classes \"0\", \"1\""},
    {"logistic_regression", "", "a,y\n1,-1\n3,1\n", 1, 0, NULL, NULL,
     "x.csv: features 1, classes \"-1\", \"1\""},
    {"logistic_regression", "", "a,y\n1,2\n3,1\n", 1, 2, "1", "2",
     "x.csv: features 1, classes \"1\", \"2\""},
    {"logistic_regression", ", \"features\": 1, \"classes\": \"auto\"", "a,y\n1,no\n3,yes\n", 1, 2,
     "no", "yes", "x.csv: features 1, classes \"no\", \"yes\""},
    {"softmax_regression", "", "a,y\n1,2\n3,0\n5,1\n", 1, 3, NULL, NULL,
     "x.csv: features 1, classes \"0\", \"1\", \"2\""},
    {"softmax_regression", ", \"features\": 1", "a,y\n1,c\n3,a\n5,b\n", 1, 3, "a", "c",
     "x.csv: features 1, classes \"a\", \"b\", \"c\""},
    {"softmax_regression", ", \"classes\": [\"c\", \"a\", \"b\"]", "a,y\n1,c\n3,a\n5,b\n", 1, 3,
     "c", "b", "x.csv: features 1"},
    {"least_squares", "", "a,y\nonly the header is read\n", 1, 0, NULL, NULL, "x.csv: features 1"},
};

static void test_document_complete__finds_what_is_open(void)
{
    open_folder();
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        struct tally_job_spec spec = {.clients = 0};
        struct tally_error err;
        char found[TALLY_FOUND_CAPACITY];
        TALLY_ASSERT_STATUS(
            complete(ROWS[i].type, ROWS[i].members, ROWS[i].csv, &spec, found, &err), TALLY_OK,
            &err);
        const struct tally_data_spec *data = &spec.objective.data;
        TALLY_ASSERT_TEXT(found, ROWS[i].found);
        CU_ASSERT_EQUAL(data->table.features, ROWS[i].features);
        CU_ASSERT_EQUAL(data->table.classes, ROWS[i].classes);
        CU_ASSERT_EQUAL(tally_data_spec_class_name(data, 0) == NULL, ROWS[i].first == NULL);
        if (ROWS[i].first != NULL) {
            TALLY_ASSERT_TEXT(tally_data_spec_class_name(data, 0), ROWS[i].first);
            TALLY_ASSERT_TEXT(tally_data_spec_class_name(data, data->table.classes - 1),
                              ROWS[i].last);
        }
    }
    remove_folder();
}

/* What was valid before keeps its meaning and reads no file. */
static void test_document_complete__leaves_other_documents_alone(void)
{
    static const char *const rows[][2] = {
        {"logistic_regression", ", \"features\": 3"},
        {"least_squares", ", \"features\": 3"},
        {"softmax_regression", ", \"features\": 3, \"classes\": 2"},
        {"softmax_regression", ", \"features\": 3, \"classes\": [\"a\", \"b\"]"},
        {"least_squares", ", \"features\": 3, \"classes\": \"auto\""}, /* refused afterwards */
        {"logistic_regression", ", \"no_such_member\": 3"},
        {"no_such_type", ""},
    };
    const struct tally_data_source source = {.dir = "/nowhere"};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tally_buffer text, before;
        char found[TALLY_FOUND_CAPACITY];
        write_document(&text, rows[i][0], rows[i][1]);
        write_document(&before, rows[i][0], rows[i][1]);
        CU_ASSERT_FALSE(tally_document_is_open((const char *)text.data, text.size));
        CU_ASSERT_EQUAL(tally_document_complete(&text, &source, found, NULL), TALLY_OK);
        TALLY_ASSERT_TEXT(found, "");
        CU_ASSERT_EQUAL_FATAL(text.size, before.size);
        CU_ASSERT_EQUAL(memcmp(text.data, before.data, text.size), 0);
        tally_buffer_fini(&text);
        tally_buffer_fini(&before);
    }
}

static void expect_refusal(const char *type, const char *members, const char *csv,
                           const char *field, const char *message)
{
    struct tally_job_spec spec;
    struct tally_error err;
    char found[TALLY_FOUND_CAPACITY];
    CU_ASSERT_EQUAL(complete(type, members, csv, &spec, found, &err), TALLY_INVALID_ARGUMENT);
    TALLY_ASSERT_TEXT(err.field, field);
    TALLY_ASSERT_TEXT(err.message, message);
}

static void test_document_complete__says_what_the_file_lacks(void)
{
    static const char CLASSES[] = "objective.data.classes", FEATURES[] = "objective.data.features";
    char message[300];
    open_folder();
    snprintf(message, sizeof message,
             "to find features and classes in the file: x.csv (or .gz) is not in the data folder "
             "%s; put it there, or name another folder with --data-dir",
             folder);
    expect_refusal("logistic_regression", "", NULL, FEATURES, message);
    expect_refusal("logistic_regression", "", "a,y\n1,a\n2,b\n3,c\n", CLASSES,
                   "column y of x.csv has 3 different labels (\"a\", \"b\", \"c\"); "
                   "logistic_regression takes two, softmax_regression any number");
    expect_refusal("softmax_regression", "", "a,y\n1,a\n2,a\n", CLASSES,
                   "column y of x.csv has 1 different labels (\"a\"); a classifier needs two or "
                   "more");
    expect_refusal("softmax_regression", "", "a,y\n1,\x80\n2,a\n", CLASSES,
                   "a label in column y of x.csv is not UTF-8, or has a control character: \"a\", "
                   "\"?\"");
    expect_refusal("least_squares", "", "a,z\n1,2\n", FEATURES,
                   "to find features in the file: x.csv:1: no column \"y\", only a, z");
    expect_refusal("softmax_regression", ", \"features\": 1, \"classes\": \"auto\"",
                   "a,y\n1,a\nx,b\n", CLASSES,
                   "to find classes in the file: x.csv:3: column a: \"x\" is not a number");
    remove_folder();
}

static void test_document_complete__names_of_classes_are_checked(void)
{
    static const char FIELD[] = "objective.data.classes";
    char members[2 * TALLY_DATA_CLASS_NAMES_CAPACITY], message[200];
    expect_refusal("softmax_regression", ", \"features\": 1, \"classes\": [\"a\", \"b\", \"a\"]",
                   NULL, FIELD, "classes has \"a\" twice");
    expect_refusal("softmax_regression", ", \"features\": 1, \"classes\": [\"a\", 7]", NULL, FIELD,
                   "name 2 of classes must be a text that is not empty");
    expect_refusal("softmax_regression", ", \"features\": 1, \"classes\": [\"a\", \"b\\n\"]", NULL,
                   FIELD, "name 2 of classes contains a control character");
    expect_refusal("softmax_regression", ", \"features\": 1, \"classes\": [\"a\"]", NULL, FIELD,
                   "the number of classes, 2 or more, must be given");
    expect_refusal("logistic_regression", ", \"features\": 1, \"classes\": [\"a\", \"b\", \"c\"]",
                   NULL, FIELD,
                   "3 names; logistic_regression has two classes, softmax_regression any number");
    expect_refusal("least_squares", ", \"features\": 1, \"classes\": [\"a\", \"b\"]", NULL, FIELD,
                   "the labels of this objective are numbers; classes with names are for "
                   "logistic_regression and softmax_regression");
    expect_refusal("least_squares", ", \"features\": 1, \"classes\": \"auto\"", NULL, FIELD,
                   "classes must be an integer or an array of texts, not text");
    int n = snprintf(members, sizeof members, ", \"features\": 1, \"classes\": [\"a\", \"");
    memset(members + n, 'x', TALLY_DATA_CLASS_NAMES_CAPACITY);
    strcpy(members + n + TALLY_DATA_CLASS_NAMES_CAPACITY, "\"]");
    snprintf(message, sizeof message,
             "the names of classes take more than %d bytes, one between two included",
             TALLY_DATA_CLASS_NAMES_CAPACITY - 2);
    struct tally_job_spec spec;
    struct tally_error err;
    char found[TALLY_FOUND_CAPACITY];
    CU_ASSERT_EQUAL(complete("softmax_regression", members, NULL, &spec, found, &err),
                    TALLY_OUT_OF_RANGE);
    TALLY_ASSERT_TEXT(err.message, message);
}

static void test_document_complete__names_are_written_back(void)
{
    struct tally_job_spec spec, again = {.clients = 0};
    struct tally_error err;
    char found[TALLY_FOUND_CAPACITY];
    TALLY_ASSERT_STATUS(complete("softmax_regression",
                                 ", \"features\": 1, \"classes\": [\"a\", \"b, c\"], "
                                 "\"test_fraction\": 0.25, \"standardize\": true, \"missing\": "
                                 "\"mean\", \"sharding\": \"dirichlet\", \"alpha\": 0.5",
                                 NULL, &spec, found, &err),
                        TALLY_OK, &err);
    struct tally_json *document = tally_document_of(&spec);
    struct tally_buffer text = {0};
    CU_ASSERT_EQUAL(tally_json_dump(document, 0, &text), TALLY_OK);
    TALLY_ASSERT_STATUS(tally_document_parse((const char *)text.data, text.size, &again, &err),
                        TALLY_OK, &err);
    const struct tally_data_spec *data = &again.objective.data;
    TALLY_ASSERT_TEXT(tally_data_spec_class_name(data, 1), "b, c");
    CU_ASSERT_EQUAL(data->table.classes, 2);
    CU_ASSERT_EQUAL(data->table.test_fraction, 0.25);
    CU_ASSERT_TRUE(data->table.standardize);
    CU_ASSERT_EQUAL(data->table.missing, TALLY_MISSING_MEAN);
    CU_ASSERT_EQUAL(data->sharding, TALLY_SHARDING_DIRICHLET);
    CU_ASSERT_EQUAL(data->alpha, 0.5);
    tally_json_free(document);
    tally_buffer_fini(&text);
}

static void test_document_complete__members_must_agree(void)
{
    static const struct {
        const char *type, *members, *field, *message;
    } rows[] = {
        {"logistic_regression", ", \"test_file\": \"t\", \"test_fraction\": 0.1",
         "objective.data.test_fraction",
         "held-out points come from test_file or from test_fraction, not from both"},
        {"logistic_regression", ", \"sharding\": \"local\", \"test_fraction\": 0.1",
         "objective.data.test_fraction",
         "sharding local has no common file to hold points out of; name files of held-out points "
         "instead"},
        {"logistic_regression", ", \"sharding\": \"dirichlet\"", "objective.data.alpha",
         "sharding dirichlet needs alpha above 0, such as 0.5"},
        {"logistic_regression", ", \"alpha\": 1", "objective.data.alpha",
         "only sharding dirichlet takes alpha"},
        {"least_squares", ", \"sharding\": \"dirichlet\", \"alpha\": 1", "objective.data.sharding",
         "dirichlet splits the points of each class, but the labels are numbers here"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char members[300];
        snprintf(members, sizeof members, ", \"features\": 1%s", rows[i].members);
        expect_refusal(rows[i].type, members, NULL, rows[i].field, rows[i].message);
    }
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_document_complete__finds_what_is_open),
    TALLY_TEST(test_document_complete__leaves_other_documents_alone),
    TALLY_TEST(test_document_complete__says_what_the_file_lacks),
    TALLY_TEST(test_document_complete__names_of_classes_are_checked),
    TALLY_TEST(test_document_complete__names_are_written_back),
    TALLY_TEST(test_document_complete__members_must_agree),
};
TALLY_SUITE(document_complete, TESTS);
