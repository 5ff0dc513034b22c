#include <math.h>
#include <stdio.h>

#include "services/coordinator/metrics_exposition.h"
#include "tests/harness.h"

static const double BOUNDS[] = {0.5, 1, 10};

/* Checks what was written since the buffer was last empty, then empties it. */
static void assert_written(struct exposition *exposition, const char *expected)
{
    CU_ASSERT_EQUAL(exposition->status, TALLY_OK);
    CU_ASSERT_EQUAL(tally_buffer_append(exposition->out, "", 1), TALLY_OK);
    CU_ASSERT_STRING_EQUAL(exposition->out->data, expected);
    exposition->out->size = 0;
}

static void test_coordinator_exposition__family_and_samples(void)
{
    struct tally_buffer out = {0};
    struct exposition exposition = {.out = &out};
    exposition_family(&exposition, "a_total", EXPOSITION_COUNTER, "All of a.");
    exposition_unsigned(&exposition, "a_total", NULL, UINT64_MAX);
    exposition_unsigned(&exposition, "a_total", EXPOSITION_LABELS({"x", "1"}), 0);
    exposition_unsigned(&exposition, "a_total", EXPOSITION_LABELS({"x", ""}, {"y", "z"}), 7);
    assert_written(&exposition, "# HELP a_total All of a.\n# TYPE a_total counter\n"
                                "a_total 18446744073709551615\n"
                                "a_total{x=\"1\"} 0\na_total{x=\"\",y=\"z\"} 7\n");
    tally_buffer_fini(&out);
}

static void test_coordinator_exposition__labels_are_escaped(void)
{
    static const char *const CASES[][2] = {
        {"a\"b\\c\nd", "a\\\"b\\\\c\\nd"},
        {"\\n", "\\\\n"},
        {"\n", "\\n"},
        {"tab\t{}=,#'", "tab\t{}=,#'"},
        {"\xC3\xA9\xE2\x80\xA8\xF0\x9F\x98\x80", "\xC3\xA9\xE2\x80\xA8\xF0\x9F\x98\x80"},
        {"\xEF\xBF\xBD", "\xEF\xBF\xBD"},         /* U+FFFD itself */
        {"\xFF", "\xEF\xBF\xBD"},                 /* never valid */
        {"a\xC3", "a\xEF\xBF\xBD"},               /* truncated */
        {"\xC0\xAF", "\xEF\xBF\xBD\xEF\xBF\xBD"}, /* overlong */
        {"\xC3\"", "\xEF\xBF\xBD\\\""},           /* must not swallow the quote */
    };
    struct tally_buffer out = {0};
    struct exposition exposition = {.out = &out};
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        char expected[80];
        snprintf(expected, sizeof expected, "a{x=\"%s\"} 1\n", CASES[i][1]);
        exposition_unsigned(&exposition, "a", EXPOSITION_LABELS({"x", CASES[i][0]}), 1);
        assert_written(&exposition, expected);
    }
    tally_buffer_fini(&out);
}

static void test_coordinator_exposition__reals_read_back(void)
{
    static const struct {
        double value;
        const char *text;
    } CASES[] = {{0, "0"},
                 {0.1, "0.1"},
                 {-2.5, "-2.5"},
                 {1e300, "1e+300"},
                 {NAN, "NaN"},
                 {INFINITY, "+Inf"},
                 {-INFINITY, "-Inf"},
                 {1.0 / 3, "0.3333333333333333"},
                 {493.10252166338705, "493.10252166338705"},
                 {5e-324, "4.94066e-324"}};
    struct tally_buffer out = {0};
    struct exposition exposition = {.out = &out};
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        char expected[80];
        snprintf(expected, sizeof expected, "a %s\n", CASES[i].text);
        exposition_real(&exposition, "a", NULL, CASES[i].value);
        assert_written(&exposition, expected);
    }
    tally_buffer_fini(&out);
}

static void test_coordinator_exposition__bounds_are_inclusive_and_cumulative(void)
{
    struct histogram histogram = {.bounds = BOUNDS, .n_bounds = 3};
    static const double VALUES[] = {0, 0.5, 0.75, 1, 10, 10.5, 1000};
    for (size_t i = 0; i < sizeof VALUES / sizeof VALUES[0]; i++) {
        histogram_observe(&histogram, VALUES[i]);
    }
    CU_ASSERT_EQUAL(histogram_total(&histogram), 7);
    struct tally_buffer out = {0};
    struct exposition exposition = {.out = &out};
    exposition_histogram(&exposition, "h", EXPOSITION_LABELS({"r", "q"}), &histogram);
    assert_written(&exposition, "h_bucket{r=\"q\",le=\"0.5\"} 2\nh_bucket{r=\"q\",le=\"1\"} 4\n"
                                "h_bucket{r=\"q\",le=\"10\"} 5\nh_bucket{r=\"q\",le=\"+Inf\"} 7\n"
                                "h_sum{r=\"q\"} 1022.75\nh_count{r=\"q\"} 7\n");
    exposition_histogram(&exposition, "h", NULL, &(struct histogram){.bounds = BOUNDS});
    assert_written(&exposition, "h_bucket{le=\"+Inf\"} 0\nh_sum 0\nh_count 0\n");
    tally_buffer_fini(&out);
}

static void test_coordinator_exposition__what_does_not_fit_is_an_error(void)
{
    struct tally_buffer out = {.limit = 20};
    struct exposition exposition = {.out = &out};
    exposition_unsigned(&exposition, "short", NULL, 1);
    CU_ASSERT_EQUAL(exposition.status, TALLY_OK);
    exposition_unsigned(&exposition, "much_too_long_for_it", NULL, 1);
    CU_ASSERT_EQUAL(exposition.status, TALLY_TOO_LARGE);
    const size_t size = out.size;
    exposition_unsigned(&exposition, "x", NULL, 1); /* would fit, but a sample is missing */
    CU_ASSERT_EQUAL(exposition.status, TALLY_TOO_LARGE);
    CU_ASSERT_EQUAL(out.size, size);
    tally_buffer_fini(&out);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_coordinator_exposition__family_and_samples),
    TALLY_TEST(test_coordinator_exposition__labels_are_escaped),
    TALLY_TEST(test_coordinator_exposition__reals_read_back),
    TALLY_TEST(test_coordinator_exposition__bounds_are_inclusive_and_cumulative),
    TALLY_TEST(test_coordinator_exposition__what_does_not_fit_is_an_error),
};
TALLY_SUITE(coordinator_exposition, TESTS);
