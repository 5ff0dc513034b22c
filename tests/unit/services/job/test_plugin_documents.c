#include <stdio.h>
#include <string.h>

#include "services/job/document.h"
#include "tests/harness.h"

/* Parses a document with these members of the objective; `rest` follows the objective. */
static enum tally_status parse(const char *objective, const char *rest, struct tally_job_spec *spec,
                               struct tally_error *err)
{
    static char text[8000];
    snprintf(text, sizeof text,
             "{\"algorithm\": {\"type\": \"fedavg\", \"step_size\": 0.1, \"local_steps\": 2}, "
             "\"clients\": 3, \"horizon\": 10, \"objective\": {\"type\": \"plugin\"%s}%s}",
             objective, rest);
    *err = (struct tally_error)TALLY_ERROR_INIT;
    return tally_document_parse(text, strlen(text), spec, err);
}

#define MINE ", \"name\": \"mine\", \"dim\": 7"

static void test_document_plugin__name_dim_and_options_are_read(void)
{
    struct tally_job_spec spec;
    struct tally_error err;
    TALLY_ASSERT_STATUS(parse(MINE ", \"options\": \"depth=3 \\u00e9\"", "", &spec, &err), TALLY_OK,
                        &err);
    CU_ASSERT_EQUAL(spec.objective.type, TALLY_PLUGIN);
    TALLY_ASSERT_TEXT(spec.objective.plugin.name, "mine");
    CU_ASSERT_EQUAL(spec.objective.plugin.dim, 7);
    TALLY_ASSERT_TEXT(spec.objective.plugin.options, "depth=3 \xc3\xa9");
    CU_ASSERT_EQUAL(tally_objective_spec_dim(&spec.objective), 7);
    TALLY_ASSERT_STATUS(parse(MINE, "", &spec, &err), TALLY_OK, &err);
    TALLY_ASSERT_TEXT(spec.objective.plugin.options, "");
}

static void test_document_plugin__nobody_solves_for_its_minimum(void)
{
    struct tally_job_spec spec;
    struct tally_error err;
    TALLY_ASSERT_STATUS(parse(MINE, "", &spec, &err), TALLY_OK, &err);
    CU_ASSERT_EQUAL(spec.reference.type, TALLY_REFERENCE_NONE);
    TALLY_ASSERT_STATUS(
        parse(MINE, ", \"reference\": {\"type\": \"value\", \"value\": 2}", &spec, &err), TALLY_OK,
        &err);
    CU_ASSERT_EQUAL(spec.reference.value, 2);
    TALLY_ASSERT_STATUS(parse(MINE, ", \"reference\": {\"type\": \"solve\"}", &spec, &err),
                        TALLY_INVALID_ARGUMENT, &err);
    TALLY_ASSERT_TEXT(err.field, "reference.type");
    TALLY_ASSERT_TEXT(err.message, "f(x*) of a plug-in's objective cannot be solved for; give a "
                                   "reference of type value or none");
}

static void test_document_plugin__nobody_knows_all_of_its_points(void)
{
    struct tally_job_spec spec;
    struct tally_error err;
    TALLY_ASSERT_STATUS(parse(MINE, ", \"minibatch\": 0", &spec, &err), TALLY_INVALID_ARGUMENT,
                        &err);
    TALLY_ASSERT_TEXT(err.field, "minibatch");
}

static void test_document_plugin__errors_name_the_field(void)
{
    static const struct {
        const char *objective;
        enum tally_status status;
        const char *field;
    } rows[] = {
        {"", TALLY_INVALID_ARGUMENT, "objective.name"},
        {", \"name\": \"mine\"", TALLY_INVALID_ARGUMENT, "objective.dim"},
        {", \"name\": \"Mine\", \"dim\": 7", TALLY_INVALID_ARGUMENT, "objective.name"},
        {", \"name\": \"\", \"dim\": 7", TALLY_INVALID_ARGUMENT, "objective.name"},
        {", \"name\": \"mine\", \"dim\": 0", TALLY_OUT_OF_RANGE, "objective.dim"},
        {", \"name\": \"mine\", \"dim\": 10000001", TALLY_OUT_OF_RANGE, "objective.dim"},
        {MINE ", \"options\": {}", TALLY_INVALID_ARGUMENT, "objective.options"},
        {MINE ", \"options\": \"a\\nb\"", TALLY_INVALID_ARGUMENT, "objective.options"},
        {MINE ", \"data\": {\"type\": \"idx\"}", TALLY_INVALID_ARGUMENT, "objective.data"},
        {MINE ", \"l2\": 1", TALLY_INVALID_ARGUMENT, "objective.l2"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tally_job_spec spec;
        struct tally_error err;
        TALLY_ASSERT_STATUS(parse(rows[i].objective, "", &spec, &err), rows[i].status, &err);
        TALLY_ASSERT_TEXT(err.field, rows[i].field);
    }
}

static void test_document_plugin__options_have_4096_bytes(void)
{
    char objective[4400], options[4098];
    struct tally_job_spec spec;
    struct tally_error err;
    memset(options, 'x', 4097);
    options[4097] = '\0';
    snprintf(objective, sizeof objective, MINE ", \"options\": \"%s\"", options);
    TALLY_ASSERT_STATUS(parse(objective, "", &spec, &err), TALLY_OUT_OF_RANGE, &err);
    TALLY_ASSERT_TEXT(err.field, "objective.options");
    options[4096] = '\0';
    snprintf(objective, sizeof objective, MINE ", \"options\": \"%s\"", options);
    TALLY_ASSERT_STATUS(parse(objective, "", &spec, &err), TALLY_OK, &err);
    TALLY_ASSERT_TEXT(spec.objective.plugin.options, options);
}

static void test_document_plugin__written_document_reads_back(void)
{
    struct tally_job_spec spec, again;
    struct tally_error err;
    TALLY_ASSERT_STATUS(parse(MINE ", \"options\": \"a \\\"b\\\"\"", "", &spec, &err), TALLY_OK,
                        &err);
    struct tally_json *document = tally_document_of(&spec);
    CU_ASSERT_PTR_NOT_NULL_FATAL(document);
    const struct tally_json *objective = tally_json_get(document, "objective");
    CU_ASSERT_PTR_NULL(tally_json_get(objective, "data"));
    struct tally_buffer text = {0};
    CU_ASSERT_EQUAL_FATAL(tally_json_dump(document, 0, &text), TALLY_OK);
    TALLY_ASSERT_STATUS(tally_document_parse((const char *)text.data, text.size, &again, &err),
                        TALLY_OK, &err);
    TALLY_ASSERT_TEXT(again.objective.plugin.name, "mine");
    TALLY_ASSERT_TEXT(again.objective.plugin.options, "a \"b\"");
    CU_ASSERT_EQUAL(again.objective.plugin.dim, 7);
    CU_ASSERT_EQUAL(again.reference.type, TALLY_REFERENCE_NONE);
    tally_buffer_fini(&text);
    tally_json_free(document);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_document_plugin__name_dim_and_options_are_read),
    TALLY_TEST(test_document_plugin__nobody_solves_for_its_minimum),
    TALLY_TEST(test_document_plugin__nobody_knows_all_of_its_points),
    TALLY_TEST(test_document_plugin__errors_name_the_field),
    TALLY_TEST(test_document_plugin__options_have_4096_bytes),
    TALLY_TEST(test_document_plugin__written_document_reads_back),
};
TALLY_SUITE(document_plugin, TESTS);
