#include <math.h>
#include <stdio.h>
#include <string.h>

#include "api/json/json.h"
#include "tests/harness.h"

struct job {
    bool log_factor;
    int64_t horizon;
    int64_t seed;
    double step_size;
    double sigma;
    double bound;
    char name[9];
    int encoding;
};

static const char *const ENCODINGS[] = {"unary", "fixed", "entropy", NULL};

#define AT(member) .offset = offsetof(struct job, member)
static const struct tally_field FIELDS[] = {
    {.name = "log_factor", .kind = TALLY_FIELD_BOOL, AT(log_factor)},
    {.name = "horizon",
     .kind = TALLY_FIELD_INTEGER,
     AT(horizon),
     .required = true,
     .min = 1,
     .max = 2147483647},
    {.name = "seed", .kind = TALLY_FIELD_INTEGER, AT(seed), .min = -INFINITY, .max = INFINITY},
    {.name = "step_size",
     .kind = TALLY_FIELD_REAL,
     AT(step_size),
     .min = 0,
     .max = 1e6,
     .min_exclusive = true},
    {.name = "sigma", .kind = TALLY_FIELD_REAL, AT(sigma), .min = 0, .max = INFINITY},
    {.name = "bound",
     .kind = TALLY_FIELD_REAL,
     AT(bound),
     .min = 0,
     .max = 10,
     .min_exclusive = true,
     .auto_allowed = true},
    {.name = "name", .kind = TALLY_FIELD_TEXT, AT(name), .capacity = 9},
    {.name = "encoding", .kind = TALLY_FIELD_CHOICE, AT(encoding), .choices = ENCODINGS},
};
static const size_t N_FIELDS = sizeof FIELDS / sizeof FIELDS[0];
static const char *const OTHERS[] = {"algorithm", "objective", NULL};

static const struct job DEFAULTS = {
    .horizon = 5, .seed = 1, .step_size = 2, .bound = 1, .name = "default"};

static enum tally_status read_job(const char *text, struct job *ret_job, struct tally_error *err)
{
    struct tally_json *value = NULL;
    CU_ASSERT_EQUAL_FATAL(tally_json_parse(text, strlen(text), &value, NULL), TALLY_OK);
    *ret_job = DEFAULTS;
    enum tally_status status =
        tally_json_read_fields(value, FIELDS, N_FIELDS, OTHERS, ret_job, err);
    tally_json_free(value);
    return status;
}

static void assert_refused(const char *text, enum tally_status expected, const char *field,
                           const char *message)
{
    struct job job;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(read_job(text, &job, &err), expected, &err);
    TALLY_ASSERT_TEXT(err.field, field);
    TALLY_ASSERT_TEXT(err.message, message);
}

static void test_api_json_fields__all_kinds_are_read(void)
{
    struct job job;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(read_job("{\"log_factor\":true,\"horizon\":2000,\"seed\":-7,"
                                 "\"step_size\":0.5,\"sigma\":3,\"name\":\"ab\xC3\xA9\","
                                 "\"encoding\":\"entropy\",\"algorithm\":{\"any\":1}}",
                                 &job, &err),
                        TALLY_OK, &err);
    CU_ASSERT_TRUE(job.log_factor);
    CU_ASSERT_EQUAL(job.horizon, 2000);
    CU_ASSERT_EQUAL(job.seed, -7);
    CU_ASSERT_EQUAL(job.step_size, 0.5);
    CU_ASSERT_EQUAL(job.sigma, 3.0);
    TALLY_ASSERT_TEXT(job.name, "ab\xC3\xA9");
    CU_ASSERT_EQUAL(job.encoding, 2);
}

static void test_api_json_fields__absent_keys_keep_defaults(void)
{
    struct job job;
    CU_ASSERT_EQUAL(read_job("{\"horizon\":9}", &job, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(job.horizon, 9);
    CU_ASSERT_EQUAL(job.seed, 1);
    CU_ASSERT_EQUAL(job.step_size, 2.0);
    TALLY_ASSERT_TEXT(job.name, "default");
}

static void test_api_json_fields__integer_limits_are_inclusive(void)
{
    struct job job;
    CU_ASSERT_EQUAL(read_job("{\"horizon\":1}", &job, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(read_job("{\"horizon\":2147483647}", &job, NULL), TALLY_OK);
    assert_refused("{\"horizon\":0}", TALLY_OUT_OF_RANGE, "horizon",
                   "horizon 0 outside [1, 2147483647]");
    assert_refused("{\"horizon\":2147483648}", TALLY_OUT_OF_RANGE, "horizon",
                   "horizon 2147483648 outside [1, 2147483647]");
}

static void test_api_json_fields__unlimited_integer_takes_all_of_int64(void)
{
    struct job job;
    CU_ASSERT_EQUAL(read_job("{\"horizon\":1,\"seed\":9223372036854775807}", &job, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(job.seed, INT64_MAX);
    CU_ASSERT_EQUAL(read_job("{\"horizon\":1,\"seed\":-9223372036854775808}", &job, NULL),
                    TALLY_OK);
    CU_ASSERT_EQUAL(job.seed, INT64_MIN);
}

/* People and programs write 1e3 and 100.0. */
static void test_api_json_fields__integral_reals_are_integers(void)
{
    static const struct {
        const char *text;
        int64_t seed;
    } rows[] = {{"1e3", 1000},
                {"100.0", 100},
                {"2e1", 20},
                {"-0.0", 0},
                {"-7.0", -7},
                {"12.5e1", 125},
                {"9007199254740992.0", INT64_C(1) << 53}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct job job;
        char text[80];
        snprintf(text, sizeof text, "{\"horizon\":1,\"seed\":%s}", rows[i].text);
        CU_ASSERT_EQUAL(read_job(text, &job, NULL), TALLY_OK);
        CU_ASSERT_EQUAL(job.seed, rows[i].seed);
    }
    assert_refused("{\"horizon\":1e10}", TALLY_OUT_OF_RANGE, "horizon",
                   "horizon 10000000000 outside [1, 2147483647]");
}

static void test_api_json_fields__other_reals_are_no_integers(void)
{
    assert_refused("{\"horizon\":1.5}", TALLY_INVALID_ARGUMENT, "horizon",
                   "horizon must be an integer, not 1.5");
    assert_refused("{\"horizon\":1,\"seed\":1e300}", TALLY_INVALID_ARGUMENT, "seed",
                   "seed must be an integer, not 1.0000000000000001e+300");
    assert_refused("{\"horizon\":1,\"seed\":9007199254740994.0}", TALLY_INVALID_ARGUMENT, "seed",
                   "seed must be an integer, not 9007199254740994");
    assert_refused("{\"horizon\":\"1\"}", TALLY_INVALID_ARGUMENT, "horizon",
                   "horizon must be an integer, not text");
    assert_refused("{\"horizon\":null}", TALLY_INVALID_ARGUMENT, "horizon",
                   "horizon must be an integer, not null");
}

static void test_api_json_fields__real_limits(void)
{
    struct job job;
    CU_ASSERT_EQUAL(read_job("{\"horizon\":1,\"step_size\":1e6}", &job, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(read_job("{\"horizon\":1,\"step_size\":1e-300}", &job, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(read_job("{\"horizon\":1,\"sigma\":0}", &job, NULL), TALLY_OK);
    assert_refused("{\"horizon\":1,\"step_size\":0}", TALLY_OUT_OF_RANGE, "step_size",
                   "step_size 0 outside (0, 1e+06]");
    assert_refused("{\"horizon\":1,\"step_size\":1000001}", TALLY_OUT_OF_RANGE, "step_size",
                   "step_size 1000001 outside (0, 1e+06]");
    assert_refused("{\"horizon\":1,\"sigma\":-0.5}", TALLY_OUT_OF_RANGE, "sigma",
                   "sigma -0.5 outside [0, inf)");
    assert_refused("{\"horizon\":1,\"sigma\":true}", TALLY_INVALID_ARGUMENT, "sigma",
                   "sigma must be a number, not a boolean");
}

static void test_api_json_fields__auto_is_nan_where_it_is_allowed(void)
{
    struct job job;
    CU_ASSERT_EQUAL(read_job("{\"horizon\":1,\"bound\":\"auto\"}", &job, NULL), TALLY_OK);
    CU_ASSERT_TRUE(isnan(job.bound));
    CU_ASSERT_EQUAL(read_job("{\"horizon\":1,\"bound\":3}", &job, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(job.bound, 3);
    assert_refused("{\"horizon\":1,\"bound\":\"Auto\"}", TALLY_INVALID_ARGUMENT, "bound",
                   "bound must be a number or \"auto\", not text");
    assert_refused("{\"horizon\":1,\"bound\":null}", TALLY_INVALID_ARGUMENT, "bound",
                   "bound must be a number or \"auto\", not null");
    assert_refused("{\"horizon\":1,\"bound\":0}", TALLY_OUT_OF_RANGE, "bound",
                   "bound 0 outside (0, 10]");
    assert_refused("{\"horizon\":1,\"sigma\":\"auto\"}", TALLY_INVALID_ARGUMENT, "sigma",
                   "sigma must be a number, not text");
}

static void test_api_json_fields__text_is_checked(void)
{
    struct job job;
    CU_ASSERT_EQUAL(read_job("{\"horizon\":1,\"name\":\"12345678\"}", &job, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(read_job("{\"horizon\":1,\"name\":\"\"}", &job, NULL), TALLY_OK);
    assert_refused("{\"horizon\":1,\"name\":\"123456789\"}", TALLY_OUT_OF_RANGE, "name",
                   "name of 9 bytes, at most 8");
    static const char *const controls[] = {"\\n", "\\u0001", "\\u007f", "\\u0080", "\\u009f"};
    for (size_t i = 0; i < sizeof controls / sizeof controls[0]; i++) {
        char text[64];
        snprintf(text, sizeof text, "{\"horizon\":1,\"name\":\"a%s\"}", controls[i]);
        assert_refused(text, TALLY_INVALID_ARGUMENT, "name", "name contains a control character");
    }
    CU_ASSERT_EQUAL(read_job("{\"horizon\":1,\"name\":\"a\\u00a0\"}", &job, NULL), TALLY_OK);
    assert_refused("{\"horizon\":1,\"name\":[]}", TALLY_INVALID_ARGUMENT, "name",
                   "name must be text, not an array");
}

static void test_api_json_fields__choice_lists_the_choices(void)
{
    assert_refused("{\"horizon\":1,\"encoding\":\"huffman\"}", TALLY_INVALID_ARGUMENT, "encoding",
                   "encoding \"huffman\" is not one of unary, fixed, entropy");
    assert_refused("{\"horizon\":1,\"encoding\":1}", TALLY_INVALID_ARGUMENT, "encoding",
                   "encoding must be text, not an integer");
    assert_refused("{\"horizon\":1,\"log_factor\":0}", TALLY_INVALID_ARGUMENT, "log_factor",
                   "log_factor must be true or false, not an integer");
}

static void test_api_json_fields__unknown_and_missing_keys_are_named(void)
{
    assert_refused("{\"horizon\":1,\"stepsize\":2}", TALLY_INVALID_ARGUMENT, "stepsize",
                   "unknown key \"stepsize\"");
    assert_refused("{}", TALLY_INVALID_ARGUMENT, "horizon", "horizon is missing");
    assert_refused("[1]", TALLY_INVALID_ARGUMENT, "", "must be an object, not an array");
    struct job job = DEFAULTS;
    CU_ASSERT_EQUAL(tally_json_read_fields(NULL, FIELDS, N_FIELDS, NULL, &job, NULL),
                    TALLY_INVALID_ARGUMENT);
}

static void test_api_json_fields__long_unknown_key_is_cut(void)
{
    char text[400] = "{\"";
    memset(text + 2, 'k', 300);
    snprintf(text + 302, sizeof text - 302, "\":1}");
    struct job job;
    struct tally_error err = TALLY_ERROR_INIT;
    CU_ASSERT_EQUAL(read_job(text, &job, &err), TALLY_INVALID_ARGUMENT);
    CU_ASSERT_EQUAL(strlen(err.field), sizeof err.field - 1);
}

static void test_api_json_fields__written_object_reads_back(void)
{
    struct job job = {.log_factor = true,
                      .horizon = 12,
                      .seed = INT64_MIN,
                      .step_size = 0.1,
                      .sigma = 3,
                      .bound = NAN,
                      .name = "n",
                      .encoding = 1};
    struct tally_json *object = tally_json_object();
    CU_ASSERT_TRUE(tally_json_write_fields(object, FIELDS, N_FIELDS, &job));
    struct tally_buffer out = {.size = 0};
    CU_ASSERT_EQUAL(tally_json_dump(object, 0, &out), TALLY_OK);
    (void)tally_buffer_append(&out, "", 1);
    TALLY_ASSERT_TEXT(
        (const char *)out.data,
        "{\"log_factor\": true, \"horizon\": 12, \"seed\": -9223372036854775808, "
        "\"step_size\": 0.1, \"sigma\": 3.0, \"bound\": \"auto\", \"name\": \"n\", \"encoding\": "
        "\"fixed\"}");
    struct job again;
    CU_ASSERT_EQUAL(read_job((const char *)out.data, &again, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(again.seed, job.seed);
    CU_ASSERT_EQUAL(again.step_size, job.step_size);
    CU_ASSERT_EQUAL(again.encoding, job.encoding);
    tally_buffer_fini(&out);
    tally_json_free(object);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_api_json_fields__all_kinds_are_read),
    TALLY_TEST(test_api_json_fields__absent_keys_keep_defaults),
    TALLY_TEST(test_api_json_fields__integer_limits_are_inclusive),
    TALLY_TEST(test_api_json_fields__unlimited_integer_takes_all_of_int64),
    TALLY_TEST(test_api_json_fields__integral_reals_are_integers),
    TALLY_TEST(test_api_json_fields__other_reals_are_no_integers),
    TALLY_TEST(test_api_json_fields__real_limits),
    TALLY_TEST(test_api_json_fields__auto_is_nan_where_it_is_allowed),
    TALLY_TEST(test_api_json_fields__text_is_checked),
    TALLY_TEST(test_api_json_fields__choice_lists_the_choices),
    TALLY_TEST(test_api_json_fields__unknown_and_missing_keys_are_named),
    TALLY_TEST(test_api_json_fields__long_unknown_key_is_cut),
    TALLY_TEST(test_api_json_fields__written_object_reads_back),
};
TALLY_SUITE(api_json_fields, TESTS);
