/* Checks that the generated documents of services/job are current. If TALLY_WRITE_REFERENCE=1 is
 * set in the environment, the tests write them first. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/algorithms/compression.h"
#include "services/algorithms/server_optimizer.h"
#include "services/job/document.h"
#include "services/job/job_reasons.h"
#include "services/job/job_spec.h"
#include "tests/harness.h"
#include "tests/unit/services/job/reference.h"

/* Reads a file. NULL = it does not exist. The caller frees the text with free(). */
static char *text_of(const char *name)
{
    enum { CAPACITY = 1 << 20 };
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", TALLY_SOURCE_DIR, name);
    FILE *file = fopen(path, "r");
    char *text = file != NULL ? calloc(1, CAPACITY) : NULL;
    if (text != NULL) {
        CU_ASSERT_TRUE(fread(text, 1, CAPACITY - 1, file) < CAPACITY - 1);
    }
    if (file != NULL) {
        fclose(file);
    }
    return text;
}

static void write_file(const char *name, const struct tally_buffer *content)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", TALLY_SOURCE_DIR, name);
    FILE *file = fopen(path, "w");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    CU_ASSERT_EQUAL(fwrite(content->data, 1, content->size, file), content->size);
    CU_ASSERT_EQUAL(fclose(file), 0);
}

static void expect_current(const char *name, void (*write)(struct tally_buffer *))
{
    struct tally_buffer content = {0};
    write(&content);
    const char *wanted = getenv("TALLY_WRITE_REFERENCE");
    if (wanted != NULL && strcmp(wanted, "1") == 0) {
        write_file(name, &content);
    }
    CU_ASSERT_EQUAL(tally_buffer_append(&content, "", 1), TALLY_OK);
    char *text = text_of(name);
    TALLY_ASSERT_TEXT(text, (const char *)content.data);
    free(text);
    tally_buffer_fini(&content);
}

static void test_document_reference__reasons_are_current(void)
{
    expect_current("services/job/REASONS.md", reference_write_reasons);
}

static void test_document_reference__the_job_document_is_current(void)
{
    expect_current("services/job/DOCUMENT.md", reference_write_document);
}

static void test_document_reference__the_example_is_a_job_document(void)
{
    struct tally_job_spec spec;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(
        tally_document_parse(REFERENCE_EXAMPLE, strlen(REFERENCE_EXAMPLE), &spec, &err), TALLY_OK,
        &err);
}

static void expect_documented(const struct tally_field *fields, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (fields[i].doc == NULL || strlen(fields[i].doc) < 8) {
            printf("\n%s has no doc", fields[i].name);
            CU_FAIL();
        }
    }
}

static void test_document_reference__every_member_has_a_meaning(void)
{
    expect_documented(TALLY_JOB_FIELDS, TALLY_N_JOB_FIELDS);
    for (int i = 0; TALLY_INITIAL_POINT_NAMES[i] != NULL; i++) {
        const struct tally_initial_point_kind *kind = &TALLY_INITIAL_POINT_KINDS[i];
        expect_documented(kind->fields, kind->n_fields);
    }
    expect_documented(TALLY_REFERENCE_FIELDS, TALLY_N_REFERENCE_FIELDS);
    expect_documented(TALLY_BUDGET_FIELDS, TALLY_N_BUDGET_FIELDS);
    expect_documented(TALLY_STOP_FIELDS, TALLY_N_STOP_FIELDS);
    expect_documented(TALLY_KEEP_FIELDS, TALLY_N_KEEP_FIELDS);
    for (size_t i = 0; TALLY_ALGORITHMS[i] != NULL; i++) {
        expect_documented(TALLY_ALGORITHMS[i]->fields, TALLY_ALGORITHMS[i]->n_fields);
    }
    for (int i = 0; TALLY_SERVER_OPTIMIZER_NAMES[i] != NULL; i++) {
        expect_documented(TALLY_SERVER_OPTIMIZER_KINDS[i].fields,
                          TALLY_SERVER_OPTIMIZER_KINDS[i].n_fields);
    }
    expect_documented(TALLY_COMPRESSION_FIELDS, TALLY_N_COMPRESSION_FIELDS);
    for (int i = 0; TALLY_OBJECTIVE_NAMES[i] != NULL; i++) {
        expect_documented(TALLY_OBJECTIVE_KINDS[i]->fields, TALLY_OBJECTIVE_KINDS[i]->n_fields);
    }
    for (int i = 0; i < TALLY_N_DATA_TYPES; i++) {
        expect_documented(TALLY_DATA_KINDS[i].fields, TALLY_DATA_KINDS[i].n_fields);
    }
    for (int i = 0; TALLY_DOMAIN_NAMES[i] != NULL; i++) {
        expect_documented(TALLY_DOMAIN_KINDS[i].fields, TALLY_DOMAIN_KINDS[i].n_fields);
    }
}

/* Whether `text` contains the word without an adjacent letter or underscore. */
static bool has_word(const char *text, const char *word)
{
    static const char LETTERS[] = "abcdefghijklmnopqrstuvwxyz_";
    for (const char *at = strstr(text, word); at != NULL; at = strstr(at + 1, word)) {
        const char next = at[strlen(word)];
        if (at > text && strchr(LETTERS, at[-1]) == NULL &&
            (next == '\0' || strchr(LETTERS, next) == NULL)) {
            return true;
        }
    }
    return false;
}

static void test_document_reference__the_schema_has_every_reason_code(void)
{
    char *text = text_of("api/openapi.yaml");
    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    const char *schema = strstr(text, "\n        reason_code:\n");
    CU_ASSERT_PTR_NOT_NULL_FATAL(schema);
    const char *list = strstr(schema, "enum: [");
    CU_ASSERT_PTR_NOT_NULL_FATAL(list);
    text[(size_t)(list - text) + strcspn(list, "]")] = '\0';
    for (int i = 0; i < TALLY_N_REASONS; i++) {
        CU_ASSERT_TRUE(has_word(list, TALLY_REASON_INFO[i].code));
    }
    free(text);
}

static void test_document_reference__the_readme_of_the_api_has_every_reason_code(void)
{
    char *text = text_of("api/README.md");
    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    for (int i = 0; i < TALLY_N_REASONS; i++) {
        CU_ASSERT_TRUE(has_word(text, TALLY_REASON_INFO[i].code));
    }
    free(text);
}

static void test_document_reference__the_dashboard_shows_every_member(void)
{
    static const char *const objects[] = {"labels",        "algorithm", "objective",
                                          "initial_point", "domain",    "reference",
                                          "budget",        "stop",      "keep"};
    char *text = text_of("services/dashboard/assets/job-document.js");
    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    const char *list = strstr(text, "IN_DOCUMENT = [");
    CU_ASSERT_PTR_NOT_NULL_FATAL(list);
    text[(size_t)(list - text) + strcspn(list, "]")] = '\0';
    for (size_t i = 0; i < TALLY_N_JOB_FIELDS; i++) {
        CU_ASSERT_TRUE(has_word(list, TALLY_JOB_FIELDS[i].name));
    }
    for (size_t i = 0; i < sizeof objects / sizeof objects[0]; i++) {
        CU_ASSERT_TRUE(has_word(list, objects[i]));
    }
    free(text);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_document_reference__reasons_are_current),
    TALLY_TEST(test_document_reference__the_job_document_is_current),
    TALLY_TEST(test_document_reference__the_example_is_a_job_document),
    TALLY_TEST(test_document_reference__every_member_has_a_meaning),
    TALLY_TEST(test_document_reference__the_schema_has_every_reason_code),
    TALLY_TEST(test_document_reference__the_readme_of_the_api_has_every_reason_code),
    TALLY_TEST(test_document_reference__the_dashboard_shows_every_member),
};
TALLY_SUITE(document_reference, TESTS);
