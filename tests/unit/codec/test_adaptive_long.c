/* `adaptive`, the form of long messages: every instruction set gives the same messages and levels,
 * they are short, and a decoder refuses what no encoder writes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codec/adaptive/adaptive_kernels.h"
#include "codec/adaptive/adaptive_long.h"
#include "codec/dithered/dithered.h"
#include "tests/adaptive_long_form.h"
#include "tests/harness.h"
#include "tests/unit/codec/dithered_sample.h"

static struct tally_rng stream(void)
{
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(17, 0), 2, 1, TALLY_RNG_UPLINK);
    return rng;
}

/* Levels, their message and what it decodes to. */
struct sample {
    size_t dim;
    int32_t *levels, *decoded;
    struct tally_rng rng;
    const struct tally_rng *dither;
    struct tally_buffer payload;
    struct tally_level_stats stats;
};

/* Levels of coordinates of standard deviation sigma steps; of the first half, a tenth of it. */
static void init(struct sample *sample, size_t dim, bool dithered, double sigma)
{
    *sample = (struct sample){.dim = dim, .rng = stream()};
    float *y = dithered_allocate(dim * sizeof *y);
    struct tally_rng rng;
    uint64_t clipped;
    sample->levels = dithered_allocate(dim * sizeof *sample->levels);
    sample->decoded = dithered_allocate(dim * sizeof *sample->decoded);
    sample->dither = dithered ? &sample->rng : NULL;
    tally_rng_init(&rng, tally_rng_key(5, 0), 0, 0, TALLY_RNG_SAMPLING);
    dithered_fill_normal(&rng, sigma, y, dim);
    for (size_t i = 0; i < dim / 2; i++) {
        y[i] /= 10;
    }
    const struct tally_grid grid = {1, 2 * TALLY_ADAPTIVE_MAX_LEVEL, tally_dithered_scale_of(1)};
    const struct tally_vector vector = {y, dim, &grid, &sample->rng};
    CU_ASSERT_EQUAL_FATAL(tally_adaptive_round(&vector, sample->levels, &clipped, NULL), TALLY_OK);
    for (size_t i = 0; !dithered && i < dim; i++) {
        sample->levels[i] = (int32_t)lrintf(y[i]);
    }
    free(y);
}

static void fini(struct sample *sample)
{
    free(sample->levels);
    free(sample->decoded);
    tally_buffer_fini(&sample->payload);
}

static void encode(struct sample *sample)
{
    sample->payload.size = 0;
    CU_ASSERT_EQUAL_FATAL(tally_adaptive_long_encode(sample->levels, sample->dim, sample->dither,
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
    const enum tally_status status = adaptive_long_decode(
        bytes, n, bits, sample->dim, sample->dither, sample->decoded, ret_stats, err);
    CU_ASSERT_TRUE(adaptive_long_adds_alike(bytes, n, bits, sample->dim, sample->dither));
    free(bytes);
    return status;
}

static bool same_levels(const struct sample *sample)
{
    return memcmp(sample->levels, sample->decoded, sample->dim * sizeof *sample->levels) == 0;
}

/* The message of plain C, in a copy, is that of every instruction set, and they all read it. */
static void check(struct sample *sample)
{
    uint8_t *plain = NULL;
    for (int cpu = TALLY_CPU_PORTABLE; cpu <= (int)tally_cpu_best(); cpu++) {
        struct tally_level_stats stats;
        struct tally_error err = TALLY_ERROR_INIT;
        tally_cpu_set_limit((enum tally_cpu)cpu);
        encode(sample);
        if (plain == NULL) {
            plain = dithered_allocate(sample->payload.size);
            memcpy(plain, sample->payload.data, sample->payload.size);
        }
        CU_ASSERT_EQUAL(memcmp(plain, sample->payload.data, sample->payload.size), 0);
        TALLY_ASSERT_STATUS(
            decode(sample, sample->payload.size, sample->stats.payload_bits, &stats, &err),
            TALLY_OK, &err);
        CU_ASSERT_TRUE(same_levels(sample));
        CU_ASSERT_TRUE(dithered_same_stats(&stats, &sample->stats));
    }
    tally_cpu_set_limit(TALLY_CPU_AVX512);
    uint64_t formula = sample->dim, nonzeros = 0;
    for (size_t i = 0; i < sample->dim; i++) {
        formula += (uint64_t)labs((long)sample->levels[i]);
        nonzeros += sample->levels[i] != 0;
    }
    CU_ASSERT_EQUAL(sample->stats.formula_bits, formula);
    CU_ASSERT_EQUAL(sample->stats.nonzeros, nonzeros);
    free(plain);
}

static void test_codec_adaptive_long__instruction_sets_agree(void)
{
    static const double sigmas[] = {0, 0.1, 0.5, 3, 1000};
    static const size_t dims[] = {1, 63, 64, 65, 4095, 4096, 4097, 30000, 130000};
    for (size_t i = 0; i < sizeof sigmas / sizeof *sigmas; i++) {
        for (size_t j = 0; j < sizeof dims / sizeof *dims; j++) {
            for (int dithered = 0; dithered < 2; dithered++) {
                struct sample sample;
                init(&sample, dims[j], dithered, sigmas[i]);
                check(&sample);
                fini(&sample);
            }
        }
    }
}

/* The public reader adds as its parts do, whether a level of 1 is within the bound or not even a
 * level of 0. */
static void test_codec_adaptive_long__sums_have_a_bound(void)
{
    enum { DIM = TALLY_ADAPTIVE_LONG_MESSAGE + 77 };
    static const double bounds[] = {0.5, 1, 1.5, 2, 3, 1000};
    struct sample sample;
    struct tally_level_stats stats;
    int64_t *sums = dithered_allocate(DIM * sizeof *sums);
    init(&sample, DIM, true, 0.3);
    encode(&sample);
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        struct tally_error err = TALLY_ERROR_INIT;
        struct tally_adaptive_sum sum = {.step = 1, .bound = bounds[i], .sums = sums};
        int64_t wrong = 0, largest = 0;
        memset(sums, 0, DIM * sizeof *sums);
        for (size_t j = 0; j < DIM; j++) {
            const int64_t magnitude = labs((long)sample.levels[j]);
            largest = magnitude > largest ? magnitude : largest;
        }
        const enum tally_status status = tally_adaptive_read_into(
            sample.payload.data, sample.payload.size, sample.stats.payload_bits, DIM, sample.dither,
            &sum, &stats, &err);
        const bool fits = (double)largest <= bounds[i] - 1;
        TALLY_ASSERT_STATUS(status, fits ? TALLY_OK : TALLY_MALFORMED, &err);
        for (size_t j = 0; j < DIM; j++) {
            const double value = tally_fixed_point_value(sums[j]);
            wrong += fits ? fabs(value - sample.levels[j]) > 0.5 : sums[j] != 0;
        }
        CU_ASSERT_EQUAL(wrong, 0);
    }
    free(sums);
    fini(&sample);
}

static void test_codec_adaptive_long__the_largest_levels_pass(void)
{
    static const int32_t levels[] = {
        TALLY_ADAPTIVE_MAX_LEVEL, -TALLY_ADAPTIVE_MAX_LEVEL, 14, 15, -16, 1, 0, -1};
    for (int dithered = 0; dithered < 2; dithered++) {
        struct sample sample;
        init(&sample, 5000, dithered, 1);
        for (size_t i = 0; i < sample.dim; i++) {
            sample.levels[i] = levels[i % 8];
        }
        check(&sample);
        fini(&sample);
    }
}

/* Vectors from 2^18 coordinates on take this form, which takes about the bits of the other. */
static void test_codec_adaptive_long__messages_are_short(void)
{
    for (int dithered = 0; dithered < 2; dithered++) {
        struct sample sample;
        struct tally_buffer other = {0};
        struct tally_level_stats stats;
        init(&sample, TALLY_ADAPTIVE_LONG_MESSAGE, dithered, 0.4);
        check(&sample);
        const double most = dithered ? 0.58 : 0.49; /* a short message: 0.573 and 0.481 bits */
        CU_ASSERT_TRUE((double)sample.stats.payload_bits < most * (double)sample.dim);
        CU_ASSERT_EQUAL_FATAL(
            tally_adaptive_encode(sample.levels, sample.dim, sample.dither, &other, &stats, NULL),
            TALLY_OK);
        CU_ASSERT_TRUE(stats.payload_bits == sample.stats.payload_bits &&
                       memcmp(other.data, sample.payload.data, other.size) == 0);
        memset(sample.levels, 0, sample.dim * sizeof *sample.levels);
        check(&sample);
        CU_ASSERT_TRUE(sample.stats.payload_bits < 2000);
        tally_buffer_fini(&other);
        fini(&sample);
    }
}

static void check_other_strings(struct sample *sample)
{
    struct tally_level_stats stats;
    encode(sample);
    const uint64_t bits = sample->stats.payload_bits;
    const size_t n = sample->payload.size;
    for (uint64_t fewer = 0; fewer < bits; fewer++) {
        struct tally_error err = TALLY_ERROR_INIT;
        CU_ASSERT_EQUAL(decode(sample, (size_t)((fewer + 7) / 8), fewer, &stats, &err),
                        TALLY_MALFORMED);
        CU_ASSERT_STRING_EQUAL(err.field, "payload");
    }
    CU_ASSERT_EQUAL(decode(sample, n - 1, bits, &stats, NULL), TALLY_MALFORMED);
    for (uint64_t i = 0; i < bits; i++) {
        sample->payload.data[i / 8] ^= (uint8_t)(1 << i % 8);
        if (decode(sample, n, bits, &stats, NULL) == TALLY_OK) {
            CU_ASSERT_FALSE(same_levels(sample));
        }
        sample->payload.data[i / 8] ^= (uint8_t)(1 << i % 8);
    }
}

static void test_codec_adaptive_long__every_other_string_is_refused_or_another_message(void)
{
    for (int dithered = 0; dithered < 2; dithered++) {
        struct sample sample;
        init(&sample, 700, dithered, 0.5);
        check_other_strings(&sample);
        fini(&sample);
    }
}

/* Levels that differ in one coordinate have different messages, and no message is the beginning of
 * another: a byte more is refused. */
static void test_codec_adaptive_long__a_byte_more_is_refused(void)
{
    struct sample sample;
    struct tally_level_stats stats;
    const uint8_t zero = 0;
    init(&sample, 5000, true, 0.3);
    encode(&sample);
    const uint64_t bits = sample.stats.payload_bits;
    CU_ASSERT_EQUAL_FATAL(tally_buffer_append(&sample.payload, &zero, 1), TALLY_OK);
    CU_ASSERT_EQUAL(decode(&sample, (size_t)((bits + 8 + 7) / 8), bits + 8, &stats, NULL),
                    TALLY_MALFORMED);
    fini(&sample);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_codec_adaptive_long__instruction_sets_agree),
    TALLY_TEST(test_codec_adaptive_long__sums_have_a_bound),
    TALLY_TEST(test_codec_adaptive_long__the_largest_levels_pass),
    TALLY_TEST(test_codec_adaptive_long__messages_are_short),
    TALLY_TEST(test_codec_adaptive_long__every_other_string_is_refused_or_another_message),
    TALLY_TEST(test_codec_adaptive_long__a_byte_more_is_refused),
};
TALLY_SUITE(codec_adaptive_long, TESTS);
