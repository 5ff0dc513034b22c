/* `adaptive`: messages of levels with and without dither, their length, and what a decoder refuses.
 */
#include "codec/adaptive/adaptive.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codec/adaptive/adaptive_long.h"
#include "codec/dithered/dithered.h"
#include "codec/numeric/cpu.h"
#include "tests/harness.h"
#include "tests/unit/codec/dithered_sample.h"

static struct tally_rng stream(uint32_t round)
{
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(17, 0), 2, round, TALLY_RNG_UPLINK);
    return rng;
}

/* A vector, its levels and its message. */
struct sample {
    size_t dim;
    float *y;
    int32_t *levels, *decoded;
    struct tally_rng rng;
    const struct tally_rng *dither;
    struct tally_buffer payload;
    struct tally_level_stats stats;
};

static void init(struct sample *sample, size_t dim, bool dithered)
{
    *sample = (struct sample){.dim = dim, .rng = stream(1)};
    sample->y = dithered_allocate(dim * sizeof *sample->y);
    sample->levels = dithered_allocate(dim * sizeof *sample->levels);
    sample->decoded = dithered_allocate(dim * sizeof *sample->decoded);
    sample->dither = dithered ? &sample->rng : NULL;
}

static void fini(struct sample *sample)
{
    free(sample->y);
    free(sample->levels);
    free(sample->decoded);
    tally_buffer_fini(&sample->payload);
}

static void encode(struct sample *sample)
{
    sample->payload.size = 0;
    CU_ASSERT_EQUAL_FATAL(tally_adaptive_encode(sample->levels, sample->dim, sample->dither,
                                                &sample->payload, &sample->stats, NULL),
                          TALLY_OK);
    CU_ASSERT_EQUAL(sample->payload.size, (sample->stats.payload_bits + 7) / 8);
}

/* Decodes a copy of exactly n bytes, so that ASan sees reads beyond them. */
static enum tally_status decode(struct sample *sample, size_t n, uint64_t bits,
                                struct tally_level_stats *ret_stats, struct tally_error *err)
{
    uint8_t *bytes = dithered_allocate(n);
    if (n > 0) {
        memcpy(bytes, sample->payload.data, n);
    }
    const enum tally_status status = tally_adaptive_decode(
        bytes, n, bits, sample->dim, sample->dither, sample->decoded, ret_stats, err);
    free(bytes);
    return status;
}

static void check(struct sample *sample)
{
    struct tally_level_stats stats;
    struct tally_error err = TALLY_ERROR_INIT;
    uint64_t formula = sample->dim, nonzeros = 0;
    encode(sample);
    TALLY_ASSERT_STATUS(
        decode(sample, sample->payload.size, sample->stats.payload_bits, &stats, &err), TALLY_OK,
        &err);
    CU_ASSERT_EQUAL(memcmp(sample->levels, sample->decoded, sample->dim * sizeof *sample->levels),
                    0);
    for (size_t i = 0; i < sample->dim; i++) {
        formula += (uint64_t)labs((long)sample->levels[i]);
        nonzeros += sample->levels[i] != 0;
    }
    CU_ASSERT_TRUE(dithered_same_stats(&stats, &sample->stats));
    CU_ASSERT_EQUAL(stats.formula_bits, formula);
    CU_ASSERT_EQUAL(stats.nonzeros, nonzeros);
}

/* Coordinates of standard deviation sigma, that of the first half a tenth of it. */
static void fill(struct sample *sample, double sigma)
{
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(5, 0), 0, 0, TALLY_RNG_SAMPLING);
    dithered_fill_normal(&rng, sigma, sample->y, sample->dim);
    for (size_t i = 0; i < sample->dim / 2; i++) {
        sample->y[i] /= 10;
    }
}

static void round_on(struct sample *sample, double step)
{
    uint64_t clipped;
    const struct tally_grid grid = {step, 2 * TALLY_ADAPTIVE_MAX_LEVEL,
                                    tally_dithered_scale_of(1 / step)};
    const struct tally_vector vector = {sample->y, sample->dim, &grid, &sample->rng};
    CU_ASSERT_EQUAL_FATAL(tally_adaptive_round(&vector, sample->levels, &clipped, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(clipped, 0);
}

static void test_codec_adaptive__messages_decode_to_their_levels(void)
{
    static const double steps[] = {0.001, 0.1, 1, 8, 1000};
    static const size_t dims[] = {1, 2, 63, 64, 65, 255, 256, 257, 5000};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        for (size_t j = 0; j < sizeof dims / sizeof *dims; j++) {
            for (int dithered = 0; dithered < 2; dithered++) {
                struct sample sample;
                init(&sample, dims[j], dithered);
                fill(&sample, 1);
                round_on(&sample, steps[i]);
                check(&sample);
                fini(&sample);
            }
        }
    }
}

static void test_codec_adaptive__the_largest_levels_pass(void)
{
    static const int32_t levels[] = {
        TALLY_ADAPTIVE_MAX_LEVEL, -TALLY_ADAPTIVE_MAX_LEVEL, 14, 15, -16, 1, 0, -1};
    struct sample sample;
    init(&sample, 800, true);
    for (size_t i = 0; i < sample.dim; i++) {
        sample.levels[i] = levels[i % 8];
    }
    check(&sample);
    fini(&sample);
}

static void check_example(bool dithered, const uint8_t *payload, uint64_t bits)
{
    static const int32_t levels[7] = {0, 1, -1, 2, -3, 0, 20};
    struct sample sample;
    init(&sample, 7, dithered);
    tally_rng_init(&sample.rng, tally_rng_key(1, 0), 2, 3, TALLY_RNG_UPLINK);
    memcpy(sample.levels, levels, sizeof levels);
    check(&sample);
    CU_ASSERT_EQUAL(sample.stats.payload_bits, bits);
    CU_ASSERT_EQUAL(sample.stats.formula_bits, 34);
    CU_ASSERT_EQUAL(memcmp(sample.payload.data, payload, (size_t)((bits + 7) / 8)), 0);
    fini(&sample);
}

/* FORMAT.md, section 7.3: the worked example. */
static void test_codec_adaptive__example_of_format_md(void)
{
    static const uint8_t with[] = {0x7b, 0x50, 0x92, 0xec, 0x85, 0x4e, 0x47},
                         without[] = {0x7f, 0x77, 0xfc, 0xaa, 0x5b, 0xf4, 0x56, 0x15};
    check_example(true, with, 47);
    check_example(false, without, 61);
}

/* The bits beyond those of a code that knows every coordinate's deviation: at a step of eight
 * deviations, where a code for equal coordinates would take twice the bits. */
static void test_codec_adaptive__messages_are_short(void)
{
    struct sample sample;
    init(&sample, 100000, true);
    fill(&sample, 1);
    round_on(&sample, 8);
    check(&sample);
    const double bits = (double)sample.stats.payload_bits / (double)sample.dim;
    CU_ASSERT_TRUE(bits > 0.10 && bits < 0.20);
    memset(sample.levels, 0, sample.dim * sizeof *sample.levels);
    check(&sample);
    CU_ASSERT_TRUE(sample.stats.payload_bits < 400);
    fini(&sample);
}

/* Encodes the sample, in the long form if told, and reads it again. The caller calls _fini(). */
static struct tally_adaptive_message read_again(struct sample *sample, bool is_long)
{
    struct tally_adaptive_message message = {.dim = sample->dim, .dither = sample->dither};
    struct tally_level_stats stats;
    sample->payload.size = 0;
    if (is_long) {
        CU_ASSERT_EQUAL_FATAL(tally_adaptive_long_encode(sample->levels, sample->dim,
                                                         sample->dither, &sample->payload,
                                                         &sample->stats, NULL),
                              TALLY_OK);
        CU_ASSERT_EQUAL_FATAL(tally_adaptive_long_read(sample->payload.data,
                                                       sample->stats.payload_bits, &message, NULL,
                                                       &stats, NULL),
                              TALLY_OK);
    } else {
        encode(sample);
        CU_ASSERT_EQUAL_FATAL(tally_adaptive_read(sample->payload.data, sample->payload.size,
                                                  sample->stats.payload_bits, sample->dim,
                                                  sample->dither, &message, &stats, NULL),
                              TALLY_OK);
    }
    return message;
}

/* step (level - u), or step times level without dither. */
static double value_of(const struct sample *sample, size_t i, double step)
{
    uint32_t words[TALLY_RNG_LANES];
    if (sample->dither == NULL) {
        return step * sample->levels[i];
    }
    tally_rng_lanes(sample->dither, (uint32_t)(i / 128), words);
    const uint32_t word = words[i % 64];
    const int16_t half = (int16_t)(i / 64 % 2 == 0 ? word & 0xffff : word >> 16);
    return step * (sample->levels[i] - (half + 0.5) * 0x1p-16);
}

/* The mean over many streams of what a receiver takes for y is y, and its error uniform. */
static void test_codec_adaptive__values_are_those_of_subtractive_dither(void)
{
    enum { ROUNDS = 4000, DIM = 64 };
    double sum = 0, squares = 0;
    struct sample sample;
    init(&sample, DIM, true);
    for (size_t i = 0; i < DIM; i++) {
        sample.y[i] = 0.3F;
    }
    for (uint32_t round = 0; round < ROUNDS; round++) {
        int64_t sums[DIM] = {0};
        double unused[TALLY_FIXED_POINT_LANES] = {0};
        sample.rng = stream(round);
        round_on(&sample, 2);
        struct tally_adaptive_message message = read_again(&sample, false);
        tally_adaptive_add(&message, 0, DIM, 2, sums, unused);
        tally_adaptive_message_fini(&message);
        for (size_t i = 0; i < DIM; i++) {
            const double error = tally_fixed_point_value(sums[i]) - (double)sample.y[i];
            CU_ASSERT_TRUE_FATAL(fabs(error) <= 1);
            sum += error;
            squares += error * error;
        }
    }
    CU_ASSERT_TRUE(fabs(sum / (ROUNDS * DIM)) < 5 * sqrt(1 / 3.0 / (ROUNDS * DIM)));
    CU_ASSERT_TRUE(fabs(squares / (ROUNDS * DIM) - 1 / 3.0) < 0.005);
    fini(&sample);
}

/* From a coordinate on that begins a row and not the message. */
static void check_sums(struct sample *sample, bool is_long)
{
    enum { FIRST = 128, N = 250 };
    struct tally_adaptive_message message = read_again(sample, is_long);
    int32_t levels[TALLY_ADAPTIVE_BLOCK];
    int64_t sums[N];
    double squares[TALLY_FIXED_POINT_LANES] = {0}, square = 0, expected = 0;
    uint32_t largest = 0;
    for (size_t i = 0; i < N; i++) {
        sums[i] = (int64_t)i;
    }
    tally_adaptive_levels(&message, FIRST, N, levels);
    tally_adaptive_add(&message, FIRST, N, 2, sums, squares);
    for (size_t i = 0; i < N; i++) {
        const double value = value_of(sample, FIRST + i, 2);
        CU_ASSERT_EQUAL(levels[i], sample->levels[FIRST + i]);
        CU_ASSERT_EQUAL(sums[i], (int64_t)i + tally_fixed_point_of(value));
        expected += value * value;
    }
    for (size_t i = 0; i < TALLY_FIXED_POINT_LANES; i++) {
        square += squares[i];
    }
    for (size_t i = 0; i < sample->dim; i++) {
        const uint32_t magnitude = (uint32_t)abs(sample->levels[i]);
        largest = magnitude > largest ? magnitude : largest;
    }
    CU_ASSERT_DOUBLE_EQUAL(square, expected, 1e-9 * expected);
    CU_ASSERT_EQUAL(message.largest, largest);
    tally_adaptive_message_fini(&message);
}

static void test_codec_adaptive__sums_are_those_of_the_values(void)
{
    for (int choice = 0; choice < 4; choice++) {
        struct sample sample;
        init(&sample, 378, choice % 2 != 0);
        fill(&sample, 1);
        round_on(&sample, 0.7);
        check_sums(&sample, choice / 2 != 0);
        fini(&sample);
    }
}

static void test_codec_adaptive__every_other_string_is_refused_or_another_message(void)
{
    struct sample sample;
    struct tally_level_stats stats;
    init(&sample, 300, true);
    fill(&sample, 1);
    round_on(&sample, 2);
    encode(&sample);
    const uint64_t bits = sample.stats.payload_bits;
    const size_t n = sample.payload.size;
    for (uint64_t fewer = 0; fewer < bits; fewer++) {
        struct tally_error err = TALLY_ERROR_INIT;
        CU_ASSERT_EQUAL(decode(&sample, (size_t)((fewer + 7) / 8), fewer, &stats, &err),
                        TALLY_MALFORMED);
        CU_ASSERT_STRING_EQUAL(err.field, "payload");
    }
    CU_ASSERT_EQUAL(decode(&sample, n - 1, bits, &stats, NULL), TALLY_MALFORMED);
    for (uint64_t i = 0; i < bits; i++) {
        sample.payload.data[i / 8] ^= (uint8_t)(1 << i % 8);
        if (decode(&sample, n, bits, &stats, NULL) == TALLY_OK) {
            CU_ASSERT_NOT_EQUAL(
                memcmp(sample.levels, sample.decoded, sample.dim * sizeof *sample.levels), 0);
        }
        sample.payload.data[i / 8] ^= (uint8_t)(1 << i % 8);
    }
    fini(&sample);
}

static void test_codec_adaptive__not_finite_is_refused(void)
{
    struct sample sample;
    uint64_t clipped;
    struct tally_error err = TALLY_ERROR_INIT;
    const struct tally_grid grid = {1, 2, 128};
    init(&sample, 300, true);
    fill(&sample, 1);
    sample.y[270] = NAN;
    const struct tally_vector vector = {sample.y, sample.dim, &grid, &sample.rng};
    CU_ASSERT_EQUAL(tally_adaptive_round(&vector, sample.levels, &clipped, &err), TALLY_NOT_FINITE);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.message, "coordinate 270 of 300"));
    sample.y[270] = 9;
    CU_ASSERT_EQUAL(tally_adaptive_round(&vector, sample.levels, &clipped, &err), TALLY_OK);
    CU_ASSERT_TRUE(clipped >= 1 && sample.levels[270] == 1);
    fini(&sample);
}

/* Every instruction set rounds and moves as single coordinates do. */
static void test_codec_adaptive__broadcasts_round_to_the_nearest_level(void)
{
    enum { DIM = 1000, TOP = TALLY_ADAPTIVE_MAX_LEVEL };
    static const double edges[] = {0.5, 1.5, -0.5, -2.5, TOP, TOP + 0.5, TOP + 1.0, -1e300, 1e300};
    double to[DIM], from[DIM], x[DIM];
    int32_t levels[DIM];
    for (int cpu = TALLY_CPU_PORTABLE; cpu <= (int)tally_cpu_best(); cpu++) {
        struct tally_rng rng;
        int wrong = 0;
        tally_cpu_set_limit((enum tally_cpu)cpu);
        tally_rng_init(&rng, tally_rng_key(65, 0), 0, 0, TALLY_RNG_NOISE);
        for (size_t n = 0; n <= DIM; n = n < 100 ? n + 1 : n + 300) {
            for (size_t i = 0; i < n; i++) {
                const size_t edge = tally_rng_below(&rng, 30);
                from[i] = (double)(int32_t)tally_rng_u32(&rng) * 0x1p-30;
                to[i] = from[i] + (double)(int32_t)tally_rng_u32(&rng) * 0x1p-26;
                if (edge < sizeof edges / sizeof edges[0]) {
                    from[i] = 0;
                    to[i] = edges[edge] / 2;
                }
                x[i] = from[i];
            }
            const double threshold = n % 2 == 0 ? 0.5 : 0.6;
            tally_adaptive_round_change(to, from, n, 2, threshold, levels);
            tally_adaptive_move(levels, n, 0.3, x);
            for (size_t i = 0; i < n; i++) {
                const double ratio = fmax(fmin((to[i] - from[i]) * 2, TOP), -TOP);
                const double level = copysign(fabs(ratio) - (threshold - 0.5), ratio);
                const bool stays = fabs(ratio)<threshold - 0.01, moves = fabs(ratio)> threshold;
                wrong += fabs(ratio) >= threshold && levels[i] != (int32_t)lrint(level);
                wrong += (stays && levels[i] != 0) || (moves && levels[i] == 0);
                wrong += x[i] != from[i] + 0.3 * levels[i];
            }
        }
        CU_ASSERT_EQUAL(wrong, 0);
    }
    tally_cpu_set_limit(TALLY_CPU_AVX512);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_codec_adaptive__messages_decode_to_their_levels),
    TALLY_TEST(test_codec_adaptive__the_largest_levels_pass),
    TALLY_TEST(test_codec_adaptive__example_of_format_md),
    TALLY_TEST(test_codec_adaptive__messages_are_short),
    TALLY_TEST(test_codec_adaptive__values_are_those_of_subtractive_dither),
    TALLY_TEST(test_codec_adaptive__sums_are_those_of_the_values),
    TALLY_TEST(test_codec_adaptive__broadcasts_round_to_the_nearest_level),
    TALLY_TEST(test_codec_adaptive__every_other_string_is_refused_or_another_message),
    TALLY_TEST(test_codec_adaptive__not_finite_is_refused),
};
TALLY_SUITE(codec_adaptive, TESTS);
