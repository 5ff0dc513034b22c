#include "codec/quantize/qsgd.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/numeric/cpu.h"
#include "codec/numeric/fixed_point.h"
#include "tests/harness.h"

enum { MAX_DIM = 200 };

static struct tally_rng stream(uint32_t round)
{
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(5, 0), 1, round, TALLY_RNG_UPLINK);
    return rng;
}

/* Encodes a message into a heap block of exact size; the caller frees it. */
static uint8_t *message(const struct tally_qsgd *qsgd, const int32_t *levels, size_t dim,
                        size_t *ret_n, uint64_t *ret_bits)
{
    *ret_bits = tally_qsgd_bits(qsgd->levels, dim);
    *ret_n = (size_t)((*ret_bits + 7) / 8);
    uint8_t *data = malloc(*ret_n);
    CU_ASSERT_PTR_NOT_NULL_FATAL(data);
    memset(data, 0xaa, *ret_n);
    CU_ASSERT_EQUAL(tally_qsgd_encode(qsgd, levels, dim, data, *ret_n), TALLY_OK);
    return data;
}

/* FORMAT.md, section qsgd. */
static void test_codec_qsgd__example_of_format_md(void)
{
    const struct tally_qsgd qsgd = {.levels = 3, .norm = 2.5f};
    const int32_t levels[5] = {0, 1, -2, 3, -3};
    const uint8_t expected[6] = {0x00, 0x00, 0x20, 0x40, 0x50, 0x7d};
    size_t n;
    uint64_t bits;
    uint8_t *data = message(&qsgd, levels, 5, &n, &bits);
    CU_ASSERT_EQUAL(bits, 47);
    CU_ASSERT_EQUAL_FATAL(n, 6);
    CU_ASSERT_EQUAL(memcmp(data, expected, 6), 0);
    struct tally_qsgd back;
    int32_t got[5];
    CU_ASSERT_EQUAL(tally_qsgd_decode(expected, 6, 47, 3, 5, &back, got, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(memcmp(got, levels, sizeof got), 0);
    CU_ASSERT_EQUAL(back.norm, 2.5f);
    CU_ASSERT_EQUAL(back.levels, 3);
    free(data);
}

/* 32 + d (1 + ceil(log2(s + 1))); the test computes the logarithm by repeated doubling. */
static void test_codec_qsgd__costs_what_the_formula_says(void)
{
    CU_ASSERT_EQUAL(tally_qsgd_bits(3, 30), 122);
    CU_ASSERT_EQUAL(tally_qsgd_bits(5, 7840), 31392);
    bool same = true;
    for (uint32_t s = 1; s <= TALLY_QSGD_MAX_LEVELS; s++) {
        uint64_t width = 0;
        for (uint32_t reach = 1; reach < s + 1; reach *= 2) {
            width++;
        }
        same = same && tally_qsgd_bits(s, 1) == 33 + width &&
               tally_qsgd_bits(s, 10000000) == 32 + 10000000 * (1 + width);
    }
    CU_ASSERT_TRUE(same);
    CU_ASSERT_EQUAL(tally_qsgd_bits(7, 0), 32);
}

/* Numbers of levels around powers of two, and dimensions that end at and inside a byte. */
static void test_codec_qsgd__round_trip(void)
{
    static const uint32_t all[] = {1, 2, 3, 4, 5, 7, 8, 9, 255, 256, 32766, 32767};
    for (size_t a = 0; a < sizeof all / sizeof all[0]; a++) {
        const int32_t s = (int32_t)all[a];
        for (size_t dim = 1; dim <= 17; dim++) {
            const struct tally_qsgd qsgd = {.levels = all[a], .norm = 1e-3f * (float)dim};
            int32_t levels[17], got[17];
            for (size_t i = 0; i < dim; i++) {
                levels[i] = (int32_t)(i * 7919 % (2 * all[a] + 1)) - s;
            }
            levels[dim / 2] = dim % 2 == 0 ? s : -s;
            size_t n;
            uint64_t bits;
            uint8_t *data = message(&qsgd, levels, dim, &n, &bits);
            struct tally_qsgd back;
            struct tally_error err = TALLY_ERROR_INIT;
            TALLY_ASSERT_STATUS(tally_qsgd_decode(data, n, bits, all[a], dim, &back, got, &err),
                                TALLY_OK, &err);
            CU_ASSERT_EQUAL(memcmp(got, levels, dim * sizeof *got), 0);
            CU_ASSERT_EQUAL(back.norm, qsgd.norm);
            CU_ASSERT_EQUAL(back.levels, all[a]);
            free(data);
        }
    }
}

/* Messages of several blocks, which are read with one load a coordinate but for their last bytes. A
 * fault is named wherever it lies. */
static void test_codec_qsgd__long_messages(void)
{
    enum { DIM = 1300 };
    static const uint32_t all[] = {1, 3, 6, 7, 100, 255, 32766, 32767};
    static int32_t levels[DIM], got[DIM];
    for (size_t a = 0; a < sizeof all / sizeof all[0]; a++) {
        const int32_t s = (int32_t)all[a];
        const struct tally_qsgd qsgd = {.levels = all[a], .norm = 2};
        for (size_t dim = DIM - 20; dim <= DIM; dim += 4) {
            for (size_t i = 0; i < dim; i++) {
                levels[i] = (int32_t)(i * 7919 % (2 * all[a] + 1)) - s;
            }
            size_t n;
            uint64_t bits;
            struct tally_qsgd back;
            uint8_t *data = message(&qsgd, levels, dim, &n, &bits);
            memset(got, 0x55, sizeof got);
            CU_ASSERT_EQUAL(tally_qsgd_decode(data, n, bits, all[a], dim, &back, got, NULL),
                            TALLY_OK);
            CU_ASSERT_EQUAL(memcmp(got, levels, dim * sizeof *got), 0);
            free(data);
        }
        for (size_t at = 0; at < DIM; at += 97) {
            struct tally_error err = TALLY_ERROR_INIT;
            char expected[64];
            size_t n;
            uint64_t bits;
            struct tally_qsgd back;
            memset(levels, 0, sizeof levels);
            levels[at] = 1;
            uint8_t *data = message(&qsgd, levels, DIM, &n, &bits);
            memset(data, 0, 4); /* the norm */
            snprintf(expected, sizeof expected, "coordinate %zu is not zero though the norm is",
                     at);
            TALLY_ASSERT_STATUS(tally_qsgd_decode(data, n, bits, all[a], DIM, &back, got, &err),
                                TALLY_MALFORMED, &err);
            TALLY_ASSERT_TEXT(err.message, expected);
            free(data);
        }
    }
    /* Of the 3-bit numbers 0 to 7, s = 2 leaves 6 and 7 unused, and 1 is a negative zero. */
    static const struct {
        unsigned bits;
        const char *before, *after; /* of the coordinate in the message */
    } faults[] = {{1, "", " is a negative zero"},
                  {6, "level 3 of ", " is above 2"},
                  {7, "level 3 of ", " is above 2"}};
    for (size_t f = 0; f < sizeof faults / sizeof faults[0]; f++) {
        for (size_t at = 0; at < DIM; at += 97) {
            const struct tally_qsgd qsgd = {.levels = 2, .norm = 2};
            struct tally_error err = TALLY_ERROR_INIT;
            char expected[64];
            size_t n;
            uint64_t bits;
            struct tally_qsgd back;
            memset(levels, 0, sizeof levels);
            uint8_t *data = message(&qsgd, levels, DIM, &n, &bits);
            for (unsigned b = 0; b < 3; b++) {
                const size_t bit = 32 + 3 * at + b;
                data[bit / 8] |= (uint8_t)((faults[f].bits >> b & 1) << bit % 8);
            }
            snprintf(expected, sizeof expected, "%scoordinate %zu%s", faults[f].before, at,
                     faults[f].after);
            TALLY_ASSERT_STATUS(tally_qsgd_decode(data, n, bits, 2, DIM, &back, got, &err),
                                TALLY_MALFORMED, &err);
            TALLY_ASSERT_TEXT(err.message, expected);
            free(data);
        }
    }
}

static void test_codec_qsgd__zero_vector_costs_the_same(void)
{
    const float y[9] = {0, -0.0f};
    const struct tally_rng rng = stream(0);
    struct tally_qsgd qsgd;
    int32_t levels[9];
    CU_ASSERT_EQUAL(tally_qsgd_quantize(3, y, 9, &rng, &qsgd, levels, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(qsgd.norm, 0);
    CU_ASSERT_FALSE(signbit(qsgd.norm));
    size_t n;
    uint64_t bits;
    uint8_t *data = message(&qsgd, levels, 9, &n, &bits);
    CU_ASSERT_EQUAL(bits, 32 + 9 * 3);
    for (size_t i = 0; i < n; i++) {
        CU_ASSERT_EQUAL(data[i], 0);
    }
    CU_ASSERT_EQUAL(tally_qsgd_decode(data, n, bits, 3, 9, &qsgd, levels, NULL), TALLY_OK);
    free(data);
}

/* The norm of a one-hot vector is its coordinate: it takes the top level whatever the draw, and
 * never the one above. */
static void test_codec_qsgd__one_hot_vectors_take_the_top_level(void)
{
    static const float all[] = {1,        0.1f,   FLT_MAX,       FLT_MIN,     FLT_TRUE_MIN,
                                1e-40f,   3e-45f, 1e-20f,        16777215.0f, 0x1.fffffep-1f,
                                0x1p-74f, 7e19f,  0x1.000002p0f, 1.0f / 3,    1.1754942e-38f};
    static const uint32_t counts[] = {1, 2, 3, 5, 6, 7, 8, 100, 1000, 32767};
    for (size_t a = 0; a < sizeof all / sizeof all[0]; a++) {
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
            for (uint32_t round = 0; round < 20; round++) {
                const struct tally_rng rng = stream(round);
                float y[70] = {0};
                y[round * 3] = round % 2 == 0 ? all[a] : -all[a];
                struct tally_qsgd qsgd;
                int32_t levels[70];
                CU_ASSERT_EQUAL_FATAL(
                    tally_qsgd_quantize(counts[c], y, 70, &rng, &qsgd, levels, NULL), TALLY_OK);
                CU_ASSERT_EQUAL(qsgd.norm, all[a]);
                for (size_t i = 0; i < 70; i++) {
                    const int32_t top = round % 2 == 0 ? (int32_t)counts[c] : -(int32_t)counts[c];
                    CU_ASSERT_EQUAL(levels[i], i == round * 3 ? top : 0);
                }
            }
        }
    }
}

/* Nearly one-hot vectors, whose norm may exceed the coordinate by less than float32 resolves. */
static void test_codec_qsgd__top_level_never_overflows(void)
{
    static const float scales[] = {1, 1e-42f, 1e-30f, 3e37f, 0.3f};
    for (uint32_t round = 0; round < 2000; round++) {
        struct tally_rng rng = stream(round);
        const float scale = scales[round % 5];
        const uint32_t s = 1 + round % 40;
        float y[5];
        double square = 0;
        for (size_t i = 0; i < 5; i++) {
            const double tiny = i == 0 ? 1 : exp2(-(double)(round % 30));
            y[i] = scale * (float)((tally_rng_uniform(&rng) - 0.5) * 2 * tiny);
            square += (double)y[i] * (double)y[i];
        }
        rng = stream(round + 10000);
        struct tally_qsgd qsgd;
        int32_t levels[5];
        CU_ASSERT_EQUAL_FATAL(tally_qsgd_quantize(s, y, 5, &rng, &qsgd, levels, NULL), TALLY_OK);
        const double norm = (double)qsgd.norm;
        CU_ASSERT_TRUE(norm >= sqrt(square));
        CU_ASSERT_TRUE((double)nextafterf(qsgd.norm, 0) <= sqrt(square));
        for (size_t i = 0; i < 5; i++) {
            CU_ASSERT_TRUE(abs(levels[i]) <= (int32_t)s);
            CU_ASSERT_TRUE(fabs((double)y[i]) <= norm);
            CU_ASSERT_TRUE(levels[i] == 0 || (levels[i] < 0) == (y[i] < 0));
            CU_ASSERT_TRUE(fabs(norm * levels[i] / s - (double)y[i]) <= norm / s * (1 + 1e-12));
        }
    }
}

/* Draw 0 rounds up most readily. It occurs once in 2^32 draws, so this stream was found by search.
 * The draw must not round up a coordinate that lies on the grid: neither a zero nor, where
 * s / norm is rounded so that norm (s / norm) > s, the top level. */
static void test_codec_qsgd__draw_of_zero_lifts_nothing_off_the_grid(void)
{
    enum { LANE = 13 };
    const struct tally_rng rng = stream(5657782);
    uint32_t words[TALLY_RNG_LANES];
    tally_rng_lanes(&rng, 0, words);
    CU_ASSERT_EQUAL_FATAL(words[LANE], 0);
    float y[20] = {0};
    int32_t levels[20];
    struct tally_qsgd qsgd;
    CU_ASSERT_EQUAL(tally_qsgd_quantize(3, y, 20, &rng, &qsgd, levels, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(levels[LANE], 0);
    y[0] = 1;
    CU_ASSERT_EQUAL(tally_qsgd_quantize(3, y, 20, &rng, &qsgd, levels, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(levels[LANE], 0);
    y[0] = 0;
    int above = 0;
    for (uint32_t s = 1; s < 3000; s++) {
        y[LANE] = 1 + 0x1p-12f * (float)s;
        above += (double)y[LANE] * ((double)s / (double)y[LANE]) > s;
        CU_ASSERT_EQUAL(tally_qsgd_quantize(s, y, 20, &rng, &qsgd, levels, NULL), TALLY_OK);
        CU_ASSERT_EQUAL(levels[LANE], (int32_t)s);
    }
    CU_ASSERT_TRUE(above > 10);
}

/* Each level is one of the two neighbours, selected by the coordinate's own random word. */
static void test_codec_qsgd__coordinates_take_their_own_words(void)
{
    float y[MAX_DIM];
    double square = 0;
    for (size_t i = 0; i < MAX_DIM; i++) {
        y[i] = (float)sin(1.0 + 3.7 * (double)i);
        square += (double)y[i] * (double)y[i];
    }
    const struct tally_rng rng = stream(77);
    struct tally_qsgd qsgd;
    int32_t levels[MAX_DIM];
    CU_ASSERT_EQUAL(tally_qsgd_quantize(50, y, MAX_DIM, &rng, &qsgd, levels, NULL), TALLY_OK);
    int up = 0;
    for (size_t i = 0; i < MAX_DIM; i++) {
        uint32_t words[TALLY_RNG_LANES];
        tally_rng_lanes(&rng, (uint32_t)(i / 64), words);
        const double exact = 50 * fabs((double)y[i]) / (double)qsgd.norm;
        const double threshold = ldexp(words[i % 64], -32);
        const bool is_up = threshold < exact - floor(exact);
        CU_ASSERT_TRUE(fabs(threshold - (exact - floor(exact))) > 1e-9); /* not a rounding error */
        CU_ASSERT_EQUAL(abs(levels[i]), (int32_t)floor(exact) + is_up);
        up += is_up;
    }
    CU_ASSERT_TRUE(up > 60 && up < 140);
    CU_ASSERT_DOUBLE_EQUAL((double)qsgd.norm, sqrt(square), 1e-6);
    CU_ASSERT_EQUAL(qsgd.levels, 50);
}

static void test_codec_qsgd__not_finite_is_refused_by_coordinate(void)
{
    static const struct {
        float y[3];
        const char *message;
    } rows[] = {
        {{1, NAN, NAN}, "coordinate 1 of 3 is NaN"},
        {{1, 2, INFINITY}, "coordinate 2 of 3 is infinite"},
        {{-INFINITY, 2, NAN}, "coordinate 0 of 3 is infinite"},
        {{FLT_MAX, FLT_MAX, 0}, "the norm 4.81232e+38 is not a float32"},
        {{FLT_MAX, 1e32f, 0}, "the norm 3.40282e+38 is not a float32"}, /* only by rounding up */
    };
    const struct tally_rng rng = stream(0);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tally_qsgd qsgd = {.norm = 7};
        int32_t levels[3];
        struct tally_error err = TALLY_ERROR_INIT;
        TALLY_ASSERT_STATUS(tally_qsgd_quantize(3, rows[i].y, 3, &rng, &qsgd, levels, &err),
                            TALLY_NOT_FINITE, &err);
        TALLY_ASSERT_TEXT(err.message, rows[i].message);
        CU_ASSERT_EQUAL(qsgd.norm, 7);
    }
}

static void test_codec_qsgd__capacity_is_respected(void)
{
    const struct tally_qsgd qsgd = {.levels = 5, .norm = 1};
    const int32_t levels[30] = {5, -5, 5};
    const size_t need = (32 + 30 * 4 + 7) / 8;
    for (size_t capacity = 0; capacity <= need; capacity++) {
        uint8_t *data = malloc(capacity + (capacity == 0));
        CU_ASSERT_PTR_NOT_NULL_FATAL(data);
        CU_ASSERT_EQUAL(tally_qsgd_encode(&qsgd, levels, 30, data, capacity),
                        capacity < need ? TALLY_OUT_OF_RANGE : TALLY_OK);
        free(data);
    }
}

/* Adding a message gives the sums of its decoded levels, or nothing where it is malformed. */
static void check_addition(const uint8_t *data, size_t n, uint64_t bits, uint32_t s, size_t dim)
{
    int64_t sums[MAX_DIM], expected[MAX_DIM];
    int32_t levels[MAX_DIM];
    struct tally_qsgd qsgd;
    const double bound = tally_fixed_point_bound(10);
    const bool counts = tally_qsgd_decode(data, n, bits, s, dim, &qsgd, levels, NULL) == TALLY_OK &&
                        (double)qsgd.norm <= bound && s <= TALLY_QSGD_MAX_ADDED;
    for (size_t i = 0; i < MAX_DIM; i++) {
        sums[i] = expected[i] = (int64_t)i << 40;
        expected[i] +=
            counts && i < dim ? tally_fixed_point_of((double)qsgd.norm / (double)s * levels[i]) : 0;
    }
    for (int cpu = 0; cpu <= (int)tally_cpu_best(); cpu++) {
        int64_t got[MAX_DIM];
        memcpy(got, sums, sizeof got);
        tally_cpu_set_limit((enum tally_cpu)cpu);
        CU_ASSERT_EQUAL(tally_qsgd_add(data, n, bits, s, dim, bound, got), counts);
        CU_ASSERT_TRUE(memcmp(got, expected, sizeof got) == 0);
    }
    tally_cpu_set_limit(TALLY_CPU_AVX512);
}

static void test_codec_qsgd__sums_are_those_of_the_levels(void)
{
    static const uint32_t counts[] = {1, 2, 3, 5, 7, 8, 100, 127, 128, 32767};
    static const float norms[] = {0, 2.5f, 0x1p18f, 419431, FLT_TRUE_MIN};
    for (size_t c = 0; c < sizeof counts / sizeof counts[0] * 5; c++) {
        const struct tally_qsgd qsgd = {.levels = counts[c / 5], .norm = norms[c % 5]};
        const int32_t s = qsgd.norm > 0 ? (int32_t)qsgd.levels : 0;
        int32_t levels[MAX_DIM];
        for (size_t dim = 1; dim <= MAX_DIM; dim += dim < 70 ? 1 : 29) {
            for (size_t i = 0; i < dim; i++) {
                levels[i] = (int32_t)(i * 7919 % (2 * (size_t)s + 1)) - s;
            }
            size_t n;
            uint64_t bits;
            uint8_t *data = message(&qsgd, levels, dim, &n, &bits);
            check_addition(data, n, bits, qsgd.levels, dim);
            check_addition(data, n - 1, bits, qsgd.levels, dim);
            for (size_t at = 0; at < n; at += 1 + n / 5) {
                data[at] ^= 0x11;
                check_addition(data, n, bits, qsgd.levels, dim);
                data[at] ^= 0x11;
            }
            free(data);
        }
    }
}

static void expect_malformed(const uint8_t *data, size_t n, uint64_t bits, uint32_t s, size_t dim,
                             const char *message)
{
    uint8_t *copy = malloc(n + (n == 0));
    CU_ASSERT_PTR_NOT_NULL_FATAL(copy);
    memcpy(copy, data, n);
    struct tally_qsgd qsgd = {.levels = 99, .norm = 7};
    int32_t levels[MAX_DIM];
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_qsgd_decode(copy, n, bits, s, dim, &qsgd, levels, &err),
                        TALLY_MALFORMED, &err);
    TALLY_ASSERT_TEXT(err.field, "payload");
    if (message != NULL) {
        TALLY_ASSERT_TEXT(err.message, message);
    }
    CU_ASSERT_TRUE(qsgd.levels == 99 && qsgd.norm == 7); /* written only on success */
    free(copy);
}

static void test_codec_qsgd__other_lengths_are_malformed(void)
{
    const uint8_t zeros[40] = {0};
    const uint64_t bits = 32 + 7 * 3; /* 53 bits in 7 bytes */
    for (size_t n = 0; n <= 40; n++) {
        if (n != 7) {
            expect_malformed(zeros, n, bits, 3, 7, NULL);
            expect_malformed(zeros, n, 8 * n, 3, 7, NULL);
        }
    }
    const uint64_t lies[] = {0, 32, 52, 54, 56, UINT64_MAX, bits + (UINT64_C(1) << 32)};
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        expect_malformed(zeros, 7, lies[i], 3, 7, NULL);
    }
    expect_malformed(zeros, 7, bits, 4, 7,
                     "7 bytes with 53 bits; expected 60 bits with zero padding");
    expect_malformed(zeros, 7, bits, 3, 8,
                     "7 bytes with 53 bits; expected 56 bits with zero padding");
    expect_malformed(zeros, 7, bits, 3, 6, NULL);
}

static void test_codec_qsgd__every_kind_of_nonsense_is_malformed(void)
{
    /* Four coordinates of 5 levels, 4 bits each: norm 1, levels 5, 0, -1, 0. */
    const uint8_t good[6] = {0x00, 0x00, 0x80, 0x3f, 0x0a, 0x03};
    const uint64_t bits = 48;
    struct tally_qsgd qsgd;
    int32_t levels[4];
    CU_ASSERT_EQUAL(tally_qsgd_decode(good, 6, bits, 5, 4, &qsgd, levels, NULL), TALLY_OK);
    CU_ASSERT_TRUE(levels[0] == 5 && levels[1] == 0 && levels[2] == -1 && levels[3] == 0);
    static const struct {
        uint8_t at[3], value[3]; /* up to three bytes that differ */
        const char *message;
    } rows[] = {
        {{3, 3, 3}, {0xbf, 0xbf, 0xbf}, "the norm is not a number >= 0"}, /* -1 */
        {{2, 3, 3}, {0x80, 0x7f, 0x7f}, "the norm is not a number >= 0"}, /* infinity */
        {{2, 3, 3}, {0x80, 0xff, 0xff}, "the norm is not a number >= 0"}, /* -infinity */
        {{2, 3, 3}, {0xc0, 0x7f, 0x7f}, "the norm is not a number >= 0"}, /* NaN */
        {{0, 2, 3}, {0x01, 0x80, 0x7f}, "the norm is not a number >= 0"}, /* signalling NaN */
        {{2, 3, 3}, {0x00, 0x80, 0x80}, "the norm is not a number >= 0"}, /* -0 */
        {{2, 3, 3}, {0x00, 0x00, 0x00}, "coordinate 0 is not zero though the norm is"},
        {{4, 4, 4}, {0x0c, 0x0c, 0x0c}, "level 6 of coordinate 0 is above 5"},
        {{4, 4, 4}, {0xfa, 0xfa, 0xfa}, "level 7 of coordinate 1 is above 5"},
        {{5, 5, 5}, {0xd3, 0xd3, 0xd3}, "level 6 of coordinate 3 is above 5"},
        {{4, 4, 4}, {0x1a, 0x1a, 0x1a}, "coordinate 1 is a negative zero"},
        {{5, 5, 5}, {0x01, 0x01, 0x01}, "coordinate 2 is a negative zero"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint8_t bad[6];
        memcpy(bad, good, 6);
        for (size_t j = 0; j < 3; j++) {
            bad[rows[i].at[j]] = rows[i].value[j];
        }
        expect_malformed(bad, 6, bits, 5, 4, rows[i].message);
    }
    const uint8_t padded[7] = {0, 0, 0, 0, 0, 0, 0x20}; /* 53 bits: bit 53 is padding */
    expect_malformed(padded, 7, 53, 3, 7,
                     "7 bytes with 53 bits; expected 53 bits with zero padding");
}

/* A message with one flipped bit is refused, or is the only encoding of other content. */
static void test_codec_qsgd__every_flipped_bit_is_refused_or_canonical(void)
{
    static const uint32_t counts[] = {1, 3, 5, 8, 32767};
    static const float norms[] = {0, 2.5f, 3e38f, FLT_TRUE_MIN};
    int refused = 0, accepted = 0;
    for (size_t c = 0; c < sizeof counts / sizeof counts[0] * 4; c++) {
        const struct tally_qsgd qsgd = {.levels = counts[c / 4], .norm = norms[c % 4]};
        const int32_t s = qsgd.norm > 0 ? (int32_t)qsgd.levels : 0;
        const int32_t levels[6] = {0, s, -s, s > 0, 0, -(s > 0)};
        size_t n;
        uint64_t bits;
        uint8_t *data = message(&qsgd, levels, 6, &n, &bits);
        for (size_t bit = 0; bit < 8 * n; bit++) {
            data[bit / 8] ^= (uint8_t)(1 << bit % 8);
            struct tally_qsgd other;
            int32_t got[6];
            if (tally_qsgd_decode(data, n, bits, qsgd.levels, 6, &other, got, NULL) == TALLY_OK) {
                size_t n_again;
                uint64_t bits_again;
                uint8_t *again = message(&other, got, 6, &n_again, &bits_again);
                CU_ASSERT_TRUE(n_again == n && bits_again == bits && memcmp(data, again, n) == 0);
                CU_ASSERT_TRUE(other.norm != qsgd.norm || memcmp(got, levels, sizeof got) != 0);
                free(again);
                accepted++;
            } else {
                struct tally_error err = TALLY_ERROR_INIT;
                TALLY_ASSERT_STATUS(
                    tally_qsgd_decode(data, n, bits, qsgd.levels, 6, &other, got, &err),
                    TALLY_MALFORMED, &err);
                refused++;
            }
            data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
        free(data);
    }
    CU_ASSERT_TRUE(refused > 100);
    CU_ASSERT_TRUE(accepted > 500);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_codec_qsgd__example_of_format_md),
    TALLY_TEST(test_codec_qsgd__costs_what_the_formula_says),
    TALLY_TEST(test_codec_qsgd__round_trip),
    TALLY_TEST(test_codec_qsgd__long_messages),
    TALLY_TEST(test_codec_qsgd__zero_vector_costs_the_same),
    TALLY_TEST(test_codec_qsgd__one_hot_vectors_take_the_top_level),
    TALLY_TEST(test_codec_qsgd__top_level_never_overflows),
    TALLY_TEST(test_codec_qsgd__draw_of_zero_lifts_nothing_off_the_grid),
    TALLY_TEST(test_codec_qsgd__coordinates_take_their_own_words),
    TALLY_TEST(test_codec_qsgd__not_finite_is_refused_by_coordinate),
    TALLY_TEST(test_codec_qsgd__capacity_is_respected),
    TALLY_TEST(test_codec_qsgd__sums_are_those_of_the_levels),
    TALLY_TEST(test_codec_qsgd__other_lengths_are_malformed),
    TALLY_TEST(test_codec_qsgd__every_kind_of_nonsense_is_malformed),
    TALLY_TEST(test_codec_qsgd__every_flipped_bit_is_refused_or_canonical),
};
TALLY_SUITE(codec_qsgd, TESTS);
