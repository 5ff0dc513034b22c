/* --set: edits of a job document's text. */
#include "services/cli/document_text.h"

#include <string.h>

#include "tests/harness.h"

static enum tally_status edit(const char *edits, const char *text, struct tally_buffer *out,
                              struct tally_error *err)
{
    *out = (struct tally_buffer){0};
    TALLY_ASSERT_STATUS(tally_buffer_append_text(out, text), TALLY_OK, NULL);
    return tally_document_text_edit(edits, out, err);
}

/* Returns the same JSON on one line. */
static struct tally_buffer plain(const void *text, size_t n)
{
    struct tally_buffer out = {0};
    struct tally_json *value = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_json_parse(text, n, &value, &err), TALLY_OK, &err);
    TALLY_ASSERT_STATUS(tally_json_dump(value, 0, &out), TALLY_OK, NULL);
    TALLY_ASSERT_STATUS(tally_buffer_append(&out, "", 1), TALLY_OK, NULL);
    tally_json_free(value);
    return out;
}

static void expect(const char *edits, const char *text, const char *edited)
{
    struct tally_buffer out;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(edit(edits, text, &out, &err), TALLY_OK, &err);
    struct tally_buffer found = plain(out.data, out.size), wanted = plain(edited, strlen(edited));
    TALLY_ASSERT_TEXT((const char *)found.data, (const char *)wanted.data);
    tally_buffer_fini(&found);
    tally_buffer_fini(&wanted);
    tally_buffer_fini(&out);
}

static void test_document_text__edits_replace_and_add(void)
{
    expect("a=2", "{\"a\":1,\"b\":0}", "{\"a\":2,\"b\":0}");
    expect("a=2:b.c=x y", "{\"a\":1}", "{\"a\":2,\"b\":{\"c\":\"x y\"}}");
    expect("a=\"7\"", "{}", "{\"a\":\"7\"}");
    expect("a={\"b\":1}", "{}", "{\"a\":{\"b\":1}}");
    expect("a=", "{}", "{\"a\":\"\"}");
    /* A ':' is part of a value unless an edit follows. */
    expect("a=x:y", "{}", "{\"a\":\"x:y\"}");
    expect("a=http://h/p=q:b=1", "{}", "{\"a\":\"http://h/p=q\",\"b\":1}");
    expect("b.c=auto:b.d=0.1", "{\"b\":{\"c\":1}}", "{\"b\":{\"c\":\"auto\",\"d\":0.1}}");
}

/* What a member is may depend on types that other edits set. */
static void test_document_text__texts_may_look_like_numbers(void)
{
    expect("name=123", "{}", "{\"name\":\"123\"}");
    expect("name=1e3:seed=7", "{\"name\":\"a\"}", "{\"name\":\"1e3\",\"seed\":7}");
    expect("name=true", "{}", "{\"name\":\"true\"}");
    expect("name=\"7\"", "{}", "{\"name\":\"7\"}");
    expect("objective.data.label=2020:objective.data.type=csv", "{}",
           "{\"objective\":{\"data\":{\"label\":\"2020\",\"type\":\"csv\"}}}");
    expect("objective.options=5", "{\"objective\":{\"type\":\"plugin\"}}",
           "{\"objective\":{\"type\":\"plugin\",\"options\":\"5\"}}");
    expect("objective.data.points=2000",
           "{\"objective\":{\"data\":{\"type\":\"synthetic_linear\"}}}",
           "{\"objective\":{\"data\":{\"type\":\"synthetic_linear\",\"points\":2000}}}");
    expect("objective.data.points=2000", "{\"objective\":{\"data\":{\"type\":\"npz\"}}}",
           "{\"objective\":{\"data\":{\"type\":\"npz\",\"points\":\"2000\"}}}");
    expect("a=2", "\xEF\xBB\xBF{\"a\":1}", "{\"a\":2}");
}

static void test_document_text__labels_are_texts_under_any_key(void)
{
    expect("labels.run=7", "{}", "{\"labels\":{\"run\":\"7\"}}");
    expect("labels.run=\"7\"", "{}", "{\"labels\":{\"run\":\"7\"}}");
    expect("labels.example.org/run=true:labels.team=a:b",
           "{\"labels\":{\"team\":\"c\",\"x\":\"y\"},\"a\":1}",
           "{\"labels\":{\"team\":\"a:b\",\"x\":\"y\",\"example.org/run\":\"true\"},\"a\":1}");
}

static void expect_refused(const char *edits, const char *text, enum tally_status status,
                           const char *part)
{
    struct tally_buffer out;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(edit(edits, text, &out, &err), status, &err);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.message, part));
    tally_buffer_fini(&out);
}

static void test_document_text__what_is_no_edit_is_refused(void)
{
    expect_refused("labels.a=1", "{\"labels\":1}", TALLY_INVALID_ARGUMENT,
                   "labels is not an object");
    expect_refused("a", "{}", TALLY_INVALID_ARGUMENT, "PATH=VALUE");
    expect_refused("=1", "{}", TALLY_INVALID_ARGUMENT, "PATH=VALUE");
    expect_refused("a..b=1", "{}", TALLY_INVALID_ARGUMENT, "not a path");
    expect_refused("a.b=1", "{\"a\":1}", TALLY_INVALID_ARGUMENT, "a is not an object");
    expect_refused("a=1", "[]", TALLY_MALFORMED, "not an object");
    expect_refused("a=1", "{", TALLY_MALFORMED, "line 1");
    expect_refused("a=\xff", "{}", TALLY_INVALID_ARGUMENT, "UTF-8");
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_document_text__edits_replace_and_add),
    TALLY_TEST(test_document_text__texts_may_look_like_numbers),
    TALLY_TEST(test_document_text__labels_are_texts_under_any_key),
    TALLY_TEST(test_document_text__what_is_no_edit_is_refused),
};
TALLY_SUITE(document_text, TESTS);
