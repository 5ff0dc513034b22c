/* Labels: their text, filters, and the member `labels` of a document. */
#include "services/job/document.h"

#include <stdio.h>
#include <string.h>

#include "services/job/document_faults.h"
#include "tests/harness.h"
#include "tests/unit/services/job/documents.h"

static void test_document_labels__keys_and_values_have_limits(void)
{
    char text[TALLY_LABEL_KEY_CAPACITY + 1] = "";
    static const char *const keys[] = {"a", "0", "Team", "example.org/run-7_b"};
    static const char *const no_keys[] = {"",    "-a",  "_a",  ".a",      "/a",
                                          "a b", "a=b", "a:b", "\xC3\xA9"};
    static const char *const no_values[] = {"a\tb",         "a\n",  "\x7F", "\xC2\x80",
                                            "\xE2\x80\xA8", "\xFF", "\xC3"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        CU_ASSERT_TRUE(tally_label_is_key(keys[i]));
    }
    for (size_t i = 0; i < sizeof no_keys / sizeof no_keys[0]; i++) {
        CU_ASSERT_FALSE(tally_label_is_key(no_keys[i]));
    }
    for (size_t i = 0; i < sizeof no_values / sizeof no_values[0]; i++) {
        CU_ASSERT_FALSE(tally_label_is_value(no_values[i]));
    }
    CU_ASSERT_TRUE(tally_label_is_value(""));
    CU_ASSERT_TRUE(tally_label_is_value("a=b: \xC3\xA9"));
    memset(text, 'x', TALLY_LABEL_KEY_CAPACITY - 1);
    CU_ASSERT_TRUE(tally_label_is_key(text));
    CU_ASSERT_TRUE(tally_label_is_value(text));
    text[TALLY_LABEL_KEY_CAPACITY - 1] = 'x';
    CU_ASSERT_FALSE(tally_label_is_key(text));
    CU_ASSERT_FALSE(tally_label_is_value(text));
}

static void add(char text[TALLY_LABELS_CAPACITY], const char *key, const char *value)
{
    struct tally_label label;
    snprintf(label.key, sizeof label.key, "%s", key);
    snprintf(label.value, sizeof label.value, "%s", value);
    tally_labels_add(text, &label);
}

static void test_document_labels__stand_in_the_order_of_their_keys(void)
{
    char text[TALLY_LABELS_CAPACITY] = "";
    add(text, "m", "1=2");
    add(text, "z", "");
    add(text, "a", "x y");
    add(text, "ma", "3");
    TALLY_ASSERT_TEXT(text, "a=x y\nm=1=2\nma=3\nz=\n");
    const char *at = text;
    struct tally_label label;
    CU_ASSERT_TRUE_FATAL(tally_labels_next(&at, &label) && tally_labels_next(&at, &label));
    TALLY_ASSERT_TEXT(label.key, "m");
    TALLY_ASSERT_TEXT(label.value, "1=2");
    CU_ASSERT_TRUE(tally_labels_next(&at, &label) && tally_labels_next(&at, &label));
    CU_ASSERT_FALSE(tally_labels_next(&at, &label));
}

static void test_document_labels__damaged_text_ends_the_list(void)
{
    static const char *const texts[] = {"a", "a=1", "=1\n", "a 1\n", " =1\n"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        const char *at = texts[i];
        struct tally_label label;
        CU_ASSERT_FALSE(tally_labels_next(&at, &label));
        CU_ASSERT_PTR_EQUAL(at, texts[i]);
    }
}

static bool matches(const char *filter_text, const char *labels)
{
    struct tally_label_filter filter;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_label_filter_parse(filter_text, &filter, &err), TALLY_OK, &err);
    return tally_labels_match(labels, &filter);
}

static void test_document_labels__filters_match_keys_and_values(void)
{
    static const char labels[] = "run=a=1\nteam=vision\nz=\n";
    CU_ASSERT_TRUE(matches("team=vision", labels));
    CU_ASSERT_TRUE(matches("team", labels));
    CU_ASSERT_TRUE(matches("run=a=1", labels));
    CU_ASSERT_TRUE(matches("z=", labels));
    CU_ASSERT_FALSE(matches("team=", labels));
    CU_ASSERT_FALSE(matches("team=visio", labels));
    CU_ASSERT_FALSE(matches("tea=vision", labels));
    CU_ASSERT_FALSE(matches("Team=vision", labels));
    CU_ASSERT_FALSE(matches("vision", labels));
    CU_ASSERT_FALSE(matches("a", labels));
    CU_ASSERT_FALSE(matches("team", ""));
}

static void test_document_labels__filters_that_no_label_can_match_are_refused(void)
{
    char long_value[80] = "a=";
    memset(long_value + 2, 'x', TALLY_LABEL_VALUE_CAPACITY);
    const char *const texts[] = {"", "=a", "a b=1", "-a", "a=\n", "a=\xFF", long_value};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct tally_label_filter filter;
        struct tally_error err = TALLY_ERROR_INIT;
        TALLY_ASSERT_STATUS(tally_label_filter_parse(texts[i], &filter, &err),
                            TALLY_INVALID_ARGUMENT, &err);
        TALLY_ASSERT_TEXT(err.field, "label");
    }
}

/* Writes the shortest document with labels. */
static void with_labels(const char *labels, char ret_text[8000])
{
    snprintf(ret_text, 8000, "{\"labels\": %s, %s", labels, DOCUMENT_SHORTEST + 1);
}

static void test_document_labels__are_read_and_written_back(void)
{
    char text[8000];
    struct tally_job_spec spec;
    struct tally_error err;
    with_labels("{\"team\": \"vision\", \"example.org/run\": \"\\u00e9\"}", text);
    TALLY_ASSERT_STATUS(document_parse(text, &spec, &err), TALLY_OK, &err);
    TALLY_ASSERT_TEXT(spec.labels, "example.org/run=\xC3\xA9\nteam=vision\n");
    struct tally_json *document = tally_document_of(&spec);
    const struct tally_json *labels = tally_json_get(document, "labels");
    TALLY_ASSERT_TEXT(tally_json_get_text(labels, "team"), "vision");
    TALLY_ASSERT_TEXT(tally_json_get_text(labels, "example.org/run"), "\xC3\xA9");
    CU_ASSERT_PTR_NULL(tally_json_key(labels, 2));
    tally_json_free(document);
    with_labels("{}", text);
    TALLY_ASSERT_STATUS(document_parse(text, &spec, &err), TALLY_OK, &err);
    document = tally_document_of(&spec);
    CU_ASSERT_PTR_NULL(tally_json_get(document, "labels"));
    tally_json_free(document);
}

/* Writes n labels whose keys and values have the maximum length. */
static void make_labels(int n, char ret_labels[4000])
{
    size_t used = (size_t)snprintf(ret_labels, 4000, "{");
    for (int i = 0; i < n; i++) {
        used += (size_t)snprintf(ret_labels + used, 4000 - used, "%s\"%063d\": \"%063d\"",
                                 i > 0 ? ", " : "", n - i, i);
    }
    snprintf(ret_labels + used, 4000 - used, "}");
}

static void test_document_labels__sixteen_of_the_greatest_length_fit(void)
{
    char labels[4000], text[8000];
    struct tally_job_spec spec;
    struct tally_error err;
    make_labels(TALLY_LABELS_MOST, labels);
    with_labels(labels, text);
    TALLY_ASSERT_STATUS(document_parse(text, &spec, &err), TALLY_OK, &err);
    CU_ASSERT_EQUAL(strlen(spec.labels), TALLY_LABELS_MOST * 128);
    make_labels(TALLY_LABELS_MOST + 1, labels);
    with_labels(labels, text);
    TALLY_ASSERT_STATUS(document_parse(text, &spec, &err), TALLY_OUT_OF_RANGE, &err);
    TALLY_ASSERT_TEXT(err.field, "labels");
    TALLY_ASSERT_TEXT(err.message, "17 labels, at most 16");
}

#define LONG_TEXT "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx" /* 64 */

static void test_document_labels__every_wrong_one_is_named(void)
{
    static const char *const rows[][3] = {
        {"labels.a b", "not_allowed", "\"a b\" is not a key: a key has 1 to 63 letters"},
        {"labels.n", "wrong_type", "n must be text, not an integer"},
        {"labels.long", "out_of_range", "long of 64 bytes, at most 63"},
        {"labels.tab", "not_allowed", "tab contains a control character"},
        {"labels.line", "not_allowed", "line contains a control character"},
        {"labels", "not_allowed", "\"\" is not a key"},
        {"labels." LONG_TEXT, "not_allowed", "is not a key"},
    };
    char text[8000];
    with_labels("{\"ok\": \"\", \"a b\": 1, \"n\": 7, \"long\": \"" LONG_TEXT
                "\", \"tab\": \"\\t\", \"line\": \"\\u2028\", \"\": \"x\", \"" LONG_TEXT
                "\": \"x\"}",
                text);
    struct tally_json *faults = tally_document_faults(text, strlen(text));
    CU_ASSERT_EQUAL(tally_json_size(faults), sizeof rows / sizeof rows[0]);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct tally_json *fault = tally_json_at(faults, i);
        const char *detail = tally_json_get_text(fault, "detail");
        TALLY_ASSERT_TEXT(tally_json_get_text(fault, "field"), rows[i][0]);
        TALLY_ASSERT_TEXT(tally_json_get_text(fault, "code"), rows[i][1]);
        CU_ASSERT_TRUE(detail != NULL && strstr(detail, rows[i][2]) != NULL);
    }
    tally_json_free(faults);
    struct tally_job_spec spec;
    struct tally_error err;
    TALLY_ASSERT_STATUS(document_parse(text, &spec, &err), TALLY_INVALID_ARGUMENT, &err);
    TALLY_ASSERT_TEXT(err.field, "labels.a b");
    with_labels("[]", text);
    TALLY_ASSERT_STATUS(document_parse(text, &spec, &err), TALLY_INVALID_ARGUMENT, &err);
    TALLY_ASSERT_TEXT(err.field, "labels");
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_document_labels__keys_and_values_have_limits),
    TALLY_TEST(test_document_labels__stand_in_the_order_of_their_keys),
    TALLY_TEST(test_document_labels__damaged_text_ends_the_list),
    TALLY_TEST(test_document_labels__filters_match_keys_and_values),
    TALLY_TEST(test_document_labels__filters_that_no_label_can_match_are_refused),
    TALLY_TEST(test_document_labels__are_read_and_written_back),
    TALLY_TEST(test_document_labels__sixteen_of_the_greatest_length_fit),
    TALLY_TEST(test_document_labels__every_wrong_one_is_named),
};
TALLY_SUITE(document_labels, TESTS);
