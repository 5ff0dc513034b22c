/* The generated documents of services/job are current. With TALLY_WRITE_REFERENCE=1 in the
 * environment the tests write them first. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/job/reasons.h"
#include "tests/harness.h"
#include "tests/unit/services/document/reference.h"

/* The file's text, which free() frees; NULL = there is none. */
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

/* Whether `text` has the word with no letter or underscore beside it. */
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
    char *end = strstr(schema, "]\n        created_ms:");
    CU_ASSERT_PTR_NOT_NULL_FATAL(end);
    *end = '\0';
    for (int i = 0; i < TALLY_N_REASONS; i++) {
        CU_ASSERT_TRUE(has_word(strstr(schema, "enum:"), TALLY_REASON_INFO[i].code));
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

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_document_reference__reasons_are_current),
    TALLY_TEST(test_document_reference__the_schema_has_every_reason_code),
    TALLY_TEST(test_document_reference__the_readme_of_the_api_has_every_reason_code),
};
TALLY_SUITE(document_reference, TESTS);
