/* Documents of CALM jobs. */
#include <math.h>
#include <stdio.h>

#include "services/job/document.h"
#include "tests/harness.h"

/* Parses a document with this algorithm and these additional members. */
static enum tally_status parse(const char *algorithm, const char *more, struct tally_job_spec *spec,
                               struct tally_error *err)
{
    char text[1000];
    const int n = snprintf(
        text, sizeof text,
        "{\"algorithm\": {%s}, \"objective\": {\"type\": \"least_squares\", \"data\": {\"type\": "
        "\"synthetic_linear\", \"dim\": 30, \"points\": 2000}}, \"clients\": 10, "
        "\"horizon\": 2000%s}",
        algorithm, more);
    *err = (struct tally_error)TALLY_ERROR_INIT;
    return tally_document_parse(text, (size_t)n, spec, err);
}

static const char ALONE[] = "\"type\": \"calm\"", CALM[] = "\"type\": \"calm\", \"step_size\": 3.0";

static void test_document_calm__the_name_is_enough(void)
{
    struct tally_job_spec spec;
    struct tally_error err;
    TALLY_ASSERT_STATUS(parse(ALONE, "", &spec, &err), TALLY_OK, &err);
    CU_ASSERT_TRUE(isnan(spec.params.calm.step_size));
    TALLY_ASSERT_STATUS(parse("\"type\": \"calm\", \"step_size\": \"auto\"", "", &spec, &err),
                        TALLY_OK, &err);
    CU_ASSERT_TRUE(isnan(spec.params.calm.step_size));
}

static void test_document_calm__step_size_may_be_given(void)
{
    struct tally_job_spec spec;
    struct tally_error err;
    TALLY_ASSERT_STATUS(parse(CALM, "", &spec, &err), TALLY_OK, &err);
    CU_ASSERT_PTR_EQUAL(tally_job_spec_algorithm(&spec), &TALLY_CALM);
    CU_ASSERT_EQUAL(spec.encoding, TALLY_ENCODING_INDEX_DITHERED);
    const struct tally_calm_params *params = &spec.params.calm;
    CU_ASSERT_EQUAL(params->step_size, 3);
    CU_ASSERT_TRUE(isnan(params->noise) && isnan(params->client_spread) &&
                   isnan(params->initial_variance) && isnan(params->local_step_limit));
    CU_ASSERT_EQUAL(params->noise_growth, 0);
    CU_ASSERT_EQUAL(params->curvature_spread, 0.02);
    CU_ASSERT_TRUE(spec.budget.uplink_bits == 0 && spec.budget.downlink_bits == 0);
}

static void expect_error(const char *algorithm, const char *more, const char *field)
{
    struct tally_job_spec spec;
    struct tally_error err;
    const enum tally_status status = parse(algorithm, more, &spec, &err);
    CU_ASSERT_TRUE(status == TALLY_INVALID_ARGUMENT || status == TALLY_OUT_OF_RANGE);
    TALLY_ASSERT_TEXT(err.field, field);
}

static void test_document_calm__members_that_do_not_go_together(void)
{
    static const char CEAL[] = "\"type\": \"ceal\", \"step_size\": 2, \"sigma\": 4",
                      FEDAVG[] = "\"type\": \"fedavg\", \"step_size\": 2, \"local_steps\": 5";
    struct tally_job_spec spec;
    struct tally_error err;
    TALLY_ASSERT_STATUS(parse(CEAL, "", &spec, &err), TALLY_OK, &err);
    TALLY_ASSERT_STATUS(parse(FEDAVG, "", &spec, &err), TALLY_OK, &err);
    TALLY_ASSERT_STATUS(parse(CALM, ", \"encoding\": \"dithered\"", &spec, &err), TALLY_OK, &err);
    expect_error(CALM, ", \"encoding\": \"entropy\"", "encoding");
    expect_error(CALM, ", \"encoding\": \"unary\"", "encoding");
    expect_error(CEAL, ", \"encoding\": \"dithered\"", "encoding");
    expect_error(FEDAVG, ", \"budget\": {\"uplink_bits\": 100}", "budget");
    expect_error(CEAL, ", \"budget\": {\"downlink_bits\": 100}", "budget");
    expect_error(CALM, ", \"budget\": {\"uplink_bits\": -1}", "budget.uplink_bits");
    expect_error(CALM, ", \"budget\": {\"uplink_bits\": 19}", "budget.uplink_bits");
    expect_error(CALM, ", \"budget\": {\"downlink_bits\": 19}", "budget.downlink_bits");
    expect_error(ALONE, ", \"budget\": {\"uplink_bits\": 43}", "budget.uplink_bits");
    expect_error(ALONE, ", \"budget\": {\"downlink_bits\": 33}", "budget.downlink_bits");
    TALLY_ASSERT_STATUS(
        parse(ALONE, ", \"budget\": {\"uplink_bits\": 44, \"downlink_bits\": 34}", &spec, &err),
        TALLY_OK, &err);
    expect_error("\"type\": \"calm\", \"step_size\": 3, \"noise\": 0", "", "algorithm.noise");
}

static bool same_real(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

static void expect_round_trip(const char *algorithm, const char *more)
{
    struct tally_job_spec spec, again;
    struct tally_error err;
    TALLY_ASSERT_STATUS(parse(algorithm, more, &spec, &err), TALLY_OK, &err);
    struct tally_json *document = tally_document_of(&spec);
    CU_ASSERT_PTR_NOT_NULL_FATAL(document);
    struct tally_buffer text = {0};
    CU_ASSERT_EQUAL_FATAL(tally_json_dump(document, 0, &text), TALLY_OK);
    TALLY_ASSERT_STATUS(tally_document_parse((const char *)text.data, text.size, &again, &err),
                        TALLY_OK, &err);
    const struct tally_calm_params *a = &spec.params.calm, *b = &again.params.calm;
    CU_ASSERT_TRUE(a->step_size == b->step_size && same_real(a->noise, b->noise) &&
                   a->noise_growth == b->noise_growth &&
                   same_real(a->client_spread, b->client_spread) &&
                   a->curvature_spread == b->curvature_spread &&
                   same_real(a->initial_variance, b->initial_variance) &&
                   same_real(a->local_step_limit, b->local_step_limit));
    CU_ASSERT_TRUE(spec.algorithm == again.algorithm && spec.encoding == again.encoding);
    CU_ASSERT_EQUAL(spec.budget.uplink_bits, again.budget.uplink_bits);
    CU_ASSERT_EQUAL(spec.budget.downlink_bits, again.budget.downlink_bits);
    tally_buffer_fini(&text);
    tally_json_free(document);
}

static void test_document_calm__written_and_read_again_is_the_same(void)
{
    struct tally_job_spec spec;
    struct tally_error err;
    static const char BUDGET[] = ", \"budget\": {\"uplink_bits\": 257, \"downlink_bits\": 282}";
    expect_round_trip(CALM, "");
    expect_round_trip(CALM, BUDGET);
    expect_round_trip(
        "\"type\": \"calm\", \"step_size\": 3, \"noise\": 0.6, \"noise_growth\": 3.3, "
        "\"client_spread\": 0.03, \"curvature_spread\": 0.0144, "
        "\"initial_variance\": 0.17, \"local_step_limit\": 0.1",
        BUDGET);
    TALLY_ASSERT_STATUS(parse(CALM, BUDGET, &spec, &err), TALLY_OK, &err);
    CU_ASSERT_TRUE(spec.budget.uplink_bits == 257 && spec.budget.downlink_bits == 282);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_document_calm__the_name_is_enough),
    TALLY_TEST(test_document_calm__step_size_may_be_given),
    TALLY_TEST(test_document_calm__members_that_do_not_go_together),
    TALLY_TEST(test_document_calm__written_and_read_again_is_the_same),
};
TALLY_SUITE(document_calm, TESTS);
