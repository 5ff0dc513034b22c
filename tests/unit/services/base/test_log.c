#include "services/base/log.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "codec/utf8.h"
#include "tests/harness.h"

enum { AT_MS = 123 };
#define TEXT_HEAD "1970-01-01T00:00:00.123Z level=info"
#define JSON_HEAD "{\"time\":\"1970-01-01T00:00:00.123Z\",\"level\":\"info\""

struct rendered {
    char text[TALLY_LOG_LINE_CAPACITY + 1];
};

static struct rendered render(enum tally_log_format format, struct tally_log_pair pair)
{
    struct rendered line;
    memset(line.text, 'Z', sizeof line.text);
    size_t n = tally_log_render(format, AT_MS, TALLY_LOG_INFO, &pair, 1, line.text);
    CU_ASSERT_FATAL(n > 0 && n <= TALLY_LOG_LINE_CAPACITY);
    CU_ASSERT_EQUAL(line.text[n - 1], '\n');
    CU_ASSERT_PTR_EQUAL(memchr(line.text, '\n', n), line.text + n - 1);
    line.text[n - 1] = '\0';
    return line;
}

static void expect_text(struct tally_log_pair pair, const char *expected)
{
    TALLY_ASSERT_TEXT(render(TALLY_LOG_TEXT, pair).text, expected);
}

static void expect_json(struct tally_log_pair pair, const char *expected)
{
    TALLY_ASSERT_TEXT(render(TALLY_LOG_JSON, pair).text, expected);
}

static void test_base_log__text_quotes_only_where_needed(void)
{
    expect_text(tally_log_text("job", "ab12"), TEXT_HEAD " job=ab12");
    expect_text(tally_log_text("url", "http://[::1]:80/a?b"), TEXT_HEAD " url=http://[::1]:80/a?b");
    expect_text(tally_log_event("job started"), TEXT_HEAD " event=\"job started\"");
    expect_text(tally_log_text("x", ""), TEXT_HEAD " x=\"\"");
    expect_text(tally_log_text("x", "a=b"), TEXT_HEAD " x=\"a=b\"");
    expect_text(tally_log_text("x", NULL), TEXT_HEAD " x=null");
}

static void test_base_log__values_cannot_forge_lines(void)
{
    expect_text(tally_log_text("x", "a\nlevel=error \"b\" \\ \r\t\x01\x7F"),
                TEXT_HEAD " x=\"a\\nlevel=error \\\"b\\\" \\\\ \\r\\t\\u0001\\u007f\"");
    expect_json(tally_log_text("x", "a\n\"\\\x1B[2J"),
                JSON_HEAD ",\"x\":\"a\\n\\\"\\\\\\u001b[2J\"}");
    /* NEL, CSI, LINE SEPARATOR, PARAGRAPH SEPARATOR */
    expect_json(tally_log_text("x", "\xC2\x85\xC2\x9B\xE2\x80\xA8\xE2\x80\xA9"),
                JSON_HEAD ",\"x\":\"\\u0085\\u009b\\u2028\\u2029\"}");
}

static void test_base_log__invalid_utf8_becomes_the_replacement_character(void)
{
    expect_text(tally_log_text("x", "\xFFgr\xC3\xBC\xC3"),
                TEXT_HEAD " x=\"\xEF\xBF\xBDgrü\xEF\xBF\xBD\"");
    expect_json(tally_log_text("x", "\xED\xA0\x80"),
                JSON_HEAD ",\"x\":\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"}");
}

static void test_base_log__numbers_and_booleans(void)
{
    expect_text(tally_log_integer("n", INT64_MIN), TEXT_HEAD " n=-9223372036854775808");
    expect_text(tally_log_unsigned("n", UINT64_MAX), TEXT_HEAD " n=18446744073709551615");
    expect_text(tally_log_real("x", 0.1), TEXT_HEAD " x=0.1");
    expect_text(tally_log_real("x", 1.0 / 3), TEXT_HEAD " x=0.3333333333333333");
    expect_text(tally_log_real("x", 5e-324), TEXT_HEAD " x=4.94065645841247e-324");
    expect_text(tally_log_real("x", NAN), TEXT_HEAD " x=nan");
    expect_json(tally_log_real("x", -INFINITY), JSON_HEAD ",\"x\":null}");
    expect_json(tally_log_integer("n", -5), JSON_HEAD ",\"n\":-5}");
}

/* Checks that a long value gives one valid line, marked as truncated exactly when it is. */
static void check_long_value(enum tally_log_format format, const char *unit, size_t n_units)
{
    static char text[16384];
    text[0] = '\0';
    size_t n_unit = strlen(unit);
    for (size_t i = 0; i < n_units; i++) {
        memcpy(text + i * n_unit, unit, n_unit + 1);
    }
    const struct tally_log_pair pairs[] = {tally_log_text("x", text), tally_log_integer("n", 7)};
    char line[TALLY_LOG_LINE_CAPACITY + 1];
    size_t n = tally_log_render(format, AT_MS, TALLY_LOG_INFO, pairs, 2, line);
    CU_ASSERT_FATAL(n <= TALLY_LOG_LINE_CAPACITY);
    line[n] = '\0';
    bool has_last = strstr(line, format == TALLY_LOG_JSON ? ",\"n\":7}" : " n=7\n") != NULL;
    bool is_marked = strstr(line, format == TALLY_LOG_JSON ? ",\"truncated\":true}\n"
                                                           : " truncated=true\n") != NULL;
    CU_ASSERT_EQUAL(has_last, !is_marked);
    CU_ASSERT_EQUAL(strchr(line, '\n'), line + n - 1);
    uint32_t point;
    for (const char *c = line; *c != '\0';) {
        c += tally_utf8_next(c, &point);
        CU_ASSERT(point != TALLY_UTF8_INVALID);
    }
}

static void test_base_log__long_values_are_cut_between_characters(void)
{
    for (size_t n = 3850; n < 4100; n++) {
        check_long_value(TALLY_LOG_TEXT, "a", n);
        check_long_value(TALLY_LOG_JSON, "a", n);
    }
    for (size_t n = 600; n < 700; n++) {
        check_long_value(TALLY_LOG_JSON, "\x01", n);
        check_long_value(TALLY_LOG_TEXT, "\x01", n);
    }
    for (size_t n = 1250; n < 1400; n++) {
        check_long_value(TALLY_LOG_JSON, "€", n);
        check_long_value(TALLY_LOG_TEXT, "€", n);
    }
}

/* Checks that only whole pairs are written. The padding shifts the limit through all parts of a
 * pair. */
static void check_dropped_pair(enum tally_log_format format, int n_padding, const char *mark)
{
    char text[TALLY_LOG_LINE_CAPACITY], padding[64];
    memset(padding, 'p', sizeof padding);
    padding[n_padding] = '\0';
    struct tally_log_pair pairs[400] = {tally_log_text("padding", padding)};
    for (int i = 1; i < 400; i++) {
        pairs[i] = tally_log_integer("key_of_a_number", 7);
    }
    size_t n = tally_log_render(format, AT_MS, TALLY_LOG_INFO, pairs, 400, text);
    CU_ASSERT_FATAL(n > strlen(mark));
    text[n - 1] = '\0';
    const char *tail = text + n - 1 - strlen(mark);
    TALLY_ASSERT_TEXT(tail, mark);
    CU_ASSERT_EQUAL(tail[-1], '7'); /* a whole pair comes before the mark */
}

static void test_base_log__a_pair_that_does_not_fit_is_left_out(void)
{
    for (int n = 1; n < 40; n++) {
        check_dropped_pair(TALLY_LOG_TEXT, n, " truncated=true");
        check_dropped_pair(TALLY_LOG_JSON, n, ",\"truncated\":true}");
    }
}

static void test_base_log__writes_lines_at_or_above_its_level(void)
{
    int fds[2];
    CU_ASSERT_FATAL(pipe(fds) == 0);
    tally_log_set(&(struct tally_log_settings){TALLY_LOG_WARN, TALLY_LOG_JSON, fds[1]});
    errno = EDOM;
    tally_log(TALLY_LOG_INFO, tally_log_event("no"));
    tally_log(TALLY_LOG_WARN, tally_log_event("yes"), tally_log_integer("n", 1));
    CU_ASSERT_EQUAL(errno, EDOM);
    close(fds[1]);
    tally_log(TALLY_LOG_ERROR, tally_log_event("lost")); /* closed: ignored */
    CU_ASSERT_EQUAL(errno, EDOM);
    tally_log_set(&(struct tally_log_settings){TALLY_LOG_INFO, TALLY_LOG_TEXT, STDERR_FILENO});
    char got[512];
    ssize_t n = read(fds[0], got, sizeof got - 1);
    CU_ASSERT_FATAL(n > 0);
    got[n] = '\0';
    close(fds[0]);
    CU_ASSERT_PTR_NULL(strstr(got, "\"no\""));
    TALLY_ASSERT_TEXT(strstr(got, ",\"level\""),
                      ",\"level\":\"warn\",\"event\":\"yes\",\"n\":1}\n");
}

static const struct tally_options_spec SPEC = {
    .program = "prog", .synopsis = "", .description = "d", .tables = {TALLY_LOG_OPTIONS}};

static enum tally_status configure(const char *flag, struct tally_error *err)
{
    char word[64];
    snprintf(word, sizeof word, "%s", flag);
    char program[] = "prog";
    char *argv[] = {program, word, NULL};
    struct tally_options *options = NULL;
    enum tally_status status = tally_options_new(&SPEC, 2, argv, NULL, &options, err);
    if (status == TALLY_OK) {
        status = tally_log_configure(options, err);
    }
    tally_options_free(options);
    return status;
}

static void test_base_log__options_choose_level_and_format(void)
{
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(configure("--log-level=error", &err), TALLY_OK, &err);
    CU_ASSERT_FALSE(tally_log_is_on(TALLY_LOG_WARN));
    TALLY_ASSERT_STATUS(configure("--log-level=debug", &err), TALLY_OK, &err);
    CU_ASSERT_TRUE(tally_log_is_on(TALLY_LOG_DEBUG));
    TALLY_ASSERT_STATUS(configure("--log-format=xml", &err), TALLY_INVALID_ARGUMENT, &err);
    TALLY_ASSERT_TEXT(err.message, "--log-format: \"xml\" is not one of text, json");
    tally_error_clear(&err);
    TALLY_ASSERT_STATUS(configure("--log-format=text", &err), TALLY_OK, &err);
    CU_ASSERT_FALSE(tally_log_is_on(TALLY_LOG_DEBUG)); /* the default */
}

struct kept {
    int n_lines;
    enum tally_log_level level;
    char event[32];
};

static void keep(void *context, enum tally_log_level level, const struct tally_log_pair *pairs,
                 size_t n_pairs)
{
    struct kept *kept = context;
    CU_ASSERT_EQUAL(n_pairs, 2);
    kept->n_lines++;
    kept->level = level;
    snprintf(kept->event, sizeof kept->event, "%s", pairs[0].value.text);
}

static void test_base_log__a_sink_takes_every_line(void)
{
    struct kept kept = {.n_lines = 0};
    const struct tally_log_sink sink = {.write = keep, .context = &kept};
    const struct tally_log_settings to_nowhere = {TALLY_LOG_ERROR, TALLY_LOG_JSON, -1};
    const struct tally_log_settings usual = {TALLY_LOG_INFO, TALLY_LOG_TEXT, STDERR_FILENO};
    tally_log_set(&to_nowhere);
    tally_log_divert(&sink);
    CU_ASSERT_TRUE(tally_log_is_on(TALLY_LOG_DEBUG));
    tally_log(TALLY_LOG_DEBUG, tally_log_event("seen"), tally_log_integer("n", 1));
    tally_log_divert(NULL);
    CU_ASSERT_FALSE(tally_log_is_on(TALLY_LOG_WARN));
    tally_log(TALLY_LOG_ERROR, tally_log_event("not seen"), tally_log_integer("n", 1));
    tally_log_set(&usual);
    CU_ASSERT_EQUAL(kept.n_lines, 1);
    CU_ASSERT_EQUAL(kept.level, TALLY_LOG_DEBUG);
    TALLY_ASSERT_TEXT(kept.event, "seen");
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_base_log__text_quotes_only_where_needed),
    TALLY_TEST(test_base_log__values_cannot_forge_lines),
    TALLY_TEST(test_base_log__invalid_utf8_becomes_the_replacement_character),
    TALLY_TEST(test_base_log__numbers_and_booleans),
    TALLY_TEST(test_base_log__long_values_are_cut_between_characters),
    TALLY_TEST(test_base_log__a_pair_that_does_not_fit_is_left_out),
    TALLY_TEST(test_base_log__writes_lines_at_or_above_its_level),
    TALLY_TEST(test_base_log__options_choose_level_and_format),
    TALLY_TEST(test_base_log__a_sink_takes_every_line),
};
TALLY_SUITE(base_log, TESTS);
