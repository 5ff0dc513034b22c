#include <math.h>
#include <stdint.h>
#include <string.h>

#include "codec/encoding.h"
#include "codec/quantize/quantizer.h"
#include "services/libtally/tally.h"
#include "tests/harness.h"

enum { DIM = 1000, P = 64 };
static const double STEP = 0.25;

static void make_values(float values[DIM])
{
    for (int i = 0; i < DIM; i++) {
        values[i] = (float)(3 * sin(i * 0.7) + (i % 100 == 0 ? 20 : 0)); /* some are clipped */
    }
}

/* Expects what the codec itself makes of the values with the random numbers of a client in a
 * round. */
static void expect_payload(const struct tally_encoding *encoding,
                           const struct tally_rounding *rounding,
                           const struct tally_payload *payload)
{
    float values[DIM];
    int32_t scratch[DIM];
    struct tally_rng rng;
    struct tally_buffer bytes = {0};
    struct tally_level_stats stats;
    uint64_t clipped;
    const struct tally_grid grid = {.step = STEP, .intervals = P};
    make_values(values);
    tally_rng_init(&rng, tally_rng_key(rounding->seed, rounding->run), rounding->client,
                   rounding->round, TALLY_RNG_UPLINK);
    const struct tally_vector vector = {values, DIM, &grid, &rng};
    CU_ASSERT_EQUAL_FATAL(
        tally_quantize_encode(encoding, &vector, scratch, &bytes, &stats, &clipped, NULL),
        TALLY_OK);
    CU_ASSERT_EQUAL_FATAL(payload->size, bytes.size);
    CU_ASSERT_EQUAL(memcmp(payload->data, bytes.data, bytes.size), 0);
    CU_ASSERT_EQUAL(payload->payload_bits, stats.payload_bits);
    CU_ASSERT_EQUAL(payload->formula_bits, stats.formula_bits);
    CU_ASSERT_EQUAL(payload->nonzeros, stats.nonzeros);
    CU_ASSERT_EQUAL(payload->clipped, clipped);
    CU_ASSERT_TRUE(clipped > 0);
    tally_buffer_fini(&bytes);
}

static void test_libtally_codec__values_become_the_codec_s_bits(void)
{
    static const struct tally_rounding ROUNDINGS[] = {{1, 0, 0, 0}, {7, 2, 3, 40}};
    float values[DIM];
    make_values(values);
    for (size_t e = 0; TALLY_ENCODINGS[e] != NULL; e++) {
        TALLY_ASSERT_TEXT(tally_encoding_name(e), TALLY_ENCODINGS[e]->name);
        CU_ASSERT_PTR_NULL(tally_encoding_name(e + 100));
        for (size_t r = 0; r < 2; r++) {
            struct tally_payload *payload = NULL;
            CU_ASSERT_EQUAL_FATAL(tally_encode_values(TALLY_ENCODINGS[e]->name, P, STEP, values,
                                                      DIM, &ROUNDINGS[r], &payload, NULL),
                                  TALLY_CODE_OK);
            expect_payload(TALLY_ENCODINGS[e], &ROUNDINGS[r], payload);
            tally_payload_free(payload);
        }
    }
}

static void test_libtally_codec__levels_go_round(void)
{
    int32_t levels[DIM], back[DIM];
    struct tally_failure failure;
    for (int i = 0; i < DIM; i++) {
        levels[i] = i % (P + 1) - P / 2;
    }
    for (size_t e = 0; tally_encoding_name(e) != NULL; e++) {
        struct tally_payload *payload = NULL;
        CU_ASSERT_EQUAL_FATAL(
            tally_encode_levels(tally_encoding_name(e), P, STEP, levels, DIM, &payload, &failure),
            TALLY_CODE_OK);
        CU_ASSERT_EQUAL(payload->size, (payload->payload_bits + 7) / 8);
        CU_ASSERT_EQUAL(tally_decode_levels(tally_encoding_name(e), P, STEP, payload->data,
                                            payload->size, payload->payload_bits, DIM, back,
                                            &failure),
                        TALLY_CODE_OK);
        CU_ASSERT_EQUAL(memcmp(back, levels, sizeof levels), 0);
        CU_ASSERT_EQUAL(tally_decode_levels(tally_encoding_name(e), P, STEP, payload->data,
                                            payload->size - 1, payload->payload_bits, DIM, back,
                                            &failure),
                        TALLY_CODE_MALFORMED);
        tally_payload_free(payload);
    }
}

static void test_libtally_codec__float32_and_qsgd_go_round(void)
{
    float values[DIM], back[DIM], norm = 0;
    int32_t levels[DIM];
    const struct tally_rounding rounding = {.seed = 1};
    struct tally_payload *payload = NULL;
    make_values(values);
    CU_ASSERT_EQUAL_FATAL(tally_encode_float32(values, DIM, &payload, NULL), TALLY_CODE_OK);
    CU_ASSERT_EQUAL(payload->payload_bits, 32 * DIM);
    CU_ASSERT_EQUAL(payload->formula_bits, 32 * DIM);
    CU_ASSERT_EQUAL(tally_decode_float32(payload->data, payload->size, 32 * DIM, DIM, back, NULL),
                    TALLY_CODE_OK);
    CU_ASSERT_EQUAL(memcmp(back, values, sizeof values), 0);
    tally_payload_free(payload);

    CU_ASSERT_EQUAL_FATAL(tally_encode_qsgd(15, values, DIM, &rounding, &payload, NULL),
                          TALLY_CODE_OK);
    CU_ASSERT_EQUAL(payload->payload_bits, 32 + 5 * DIM);
    CU_ASSERT_EQUAL(tally_decode_qsgd(15, payload->data, payload->size, payload->payload_bits, DIM,
                                      &norm, levels, NULL),
                    TALLY_CODE_OK);
    for (int i = 0; i < DIM; i++) {
        CU_ASSERT_TRUE(fabs((double)norm * levels[i] / 15 - (double)values[i]) <
                       (double)norm / 15 * 1.0001);
    }
    tally_payload_free(payload);
}

/* Expects a code, and a failure that names the field. */
static void expect(enum tally_code code, enum tally_code expected,
                   const struct tally_failure *failure, const char *field)
{
    CU_ASSERT_EQUAL(code, expected);
    CU_ASSERT_EQUAL(failure->code, (int)expected);
    TALLY_ASSERT_TEXT(failure->field, field);
    CU_ASSERT_NOT_EQUAL(failure->message[0], '\0');
}

static void test_libtally_codec__what_is_wrong_is_named(void)
{
    const int32_t levels[] = {1, 2, 3};
    const float values[] = {1, NAN, 3};
    const struct tally_rounding rounding = {.seed = 1};
    struct tally_payload *payload = NULL;
    struct tally_failure failure;
    expect(tally_encode_levels("morse", P, 1, levels, 3, &payload, &failure),
           TALLY_CODE_INVALID_ARGUMENT, &failure, "encoding");
    expect(tally_encode_levels(NULL, P, 1, levels, 3, &payload, &failure),
           TALLY_CODE_INVALID_ARGUMENT, &failure, "encoding");
    expect(tally_encode_levels("dithered", P, 1, levels, 3, &payload, &failure),
           TALLY_CODE_INVALID_ARGUMENT, &failure, "encoding");
    CU_ASSERT_PTR_NOT_NULL(strstr(failure.message, "seed, client and round"));
    expect(tally_encode_levels("unary", 7, 1, levels, 3, &payload, &failure),
           TALLY_CODE_OUT_OF_RANGE, &failure, "intervals");
    expect(tally_encode_levels("unary", P, 0, levels, 3, &payload, &failure),
           TALLY_CODE_OUT_OF_RANGE, &failure, "intervals");
    expect(tally_encode_levels("unary", 4, 1, levels, 3, &payload, &failure),
           TALLY_CODE_OUT_OF_RANGE, &failure, "");
    TALLY_ASSERT_TEXT(failure.message, "level 3 of coordinate 2 outside [-2, 2]");
    expect(tally_encode_levels("unary", P, 1, levels, 0, &payload, &failure),
           TALLY_CODE_OUT_OF_RANGE, &failure, "dim");
    expect(tally_encode_values("entropy", P, 1, values, 3, &rounding, &payload, &failure),
           TALLY_CODE_NOT_FINITE, &failure, "");
    expect(tally_encode_qsgd(0, values, 3, &rounding, &payload, &failure), TALLY_CODE_OUT_OF_RANGE,
           &failure, "s");
    CU_ASSERT_PTR_NULL(payload);
    CU_ASSERT_EQUAL(tally_encode_float32(values, 3, &payload, NULL), TALLY_CODE_NOT_FINITE);
}

static void test_libtally_codec__codes_have_names(void)
{
    TALLY_ASSERT_TEXT(tally_code_name(TALLY_CODE_OK), "OK");
    TALLY_ASSERT_TEXT(tally_code_name(TALLY_CODE_DATA_LOSS), "DATA_LOSS");
    TALLY_ASSERT_TEXT(tally_code_name(TALLY_CODE_INTERNAL), "INTERNAL");
    TALLY_ASSERT_TEXT(tally_code_name(-1), "INTERNAL");
    TALLY_ASSERT_TEXT(tally_code_name(1000), "INTERNAL");
    TALLY_ASSERT_TEXT(tally_version(), TALLY_VERSION);
}

static void test_libtally_codec__the_grid_is_the_paper_s(void)
{
    double step = 0;
    uint32_t intervals = 0;
    CU_ASSERT_EQUAL(tally_grid_for(2, 0.5, 30, &step, &intervals, NULL), TALLY_CODE_OK);
    CU_ASSERT_EQUAL(intervals, 44); /* 8 sqrt(30) = 43.8 */
    CU_ASSERT_DOUBLE_EQUAL(step, 4.0 / 44, 1e-15);
    CU_ASSERT_EQUAL(tally_grid_for(2, -1, 30, &step, &intervals, NULL),
                    TALLY_CODE_INVALID_ARGUMENT);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_libtally_codec__values_become_the_codec_s_bits),
    TALLY_TEST(test_libtally_codec__levels_go_round),
    TALLY_TEST(test_libtally_codec__float32_and_qsgd_go_round),
    TALLY_TEST(test_libtally_codec__what_is_wrong_is_named),
    TALLY_TEST(test_libtally_codec__codes_have_names),
    TALLY_TEST(test_libtally_codec__the_grid_is_the_paper_s),
};
TALLY_SUITE(libtally_codec, TESTS);
