/* `dithered`: grids, model, messages and their length, and the distribution of its errors. */
#include "codec/dithered/dithered.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codec/dithered/dithered_model.h"
#include "tests/harness.h"
#include "tests/unit/codec/dithered_sample.h"

static struct tally_rng stream(uint32_t round, enum tally_rng_purpose purpose)
{
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(11, 0), 3, round, purpose);
    return rng;
}

static struct tally_grid grid_of(double step, double ratio)
{
    return (struct tally_grid){.step = step,
                               .intervals = 2 * TALLY_DITHERED_MAX_TOP,
                               .scale = tally_dithered_scale_of(ratio)};
}

static enum tally_status encode(struct dithered_sample *sample, uint32_t round)
{
    sample->rng = stream(round, TALLY_RNG_UPLINK);
    return dithered_sample_encode(sample);
}

/* --- grids ----------------------------------------------------------------------------------- */

static void test_codec_dithered__scales_are_the_nearest_on_a_logarithmic_scale(void)
{
    bool good = true;
    for (uint32_t k = 0; k < TALLY_DITHERED_SCALES; k++) {
        const double ratio = tally_dithered_ratio(k);
        good = good && fabs(ratio / exp2(k / 16.0 - 8) - 1) < 1e-14;
        good = good && tally_dithered_scale_of(ratio) == k;
        good = good && tally_dithered_scale_of(ratio * exp2(0.499 / 16)) == k;
        good = good && tally_dithered_scale_of(ratio * exp2(-0.499 / 16)) == k;
    }
    CU_ASSERT_TRUE(good);
    CU_ASSERT_EQUAL(tally_dithered_scale_of(0), 0);
    CU_ASSERT_EQUAL(tally_dithered_scale_of(-1), 0);
    CU_ASSERT_EQUAL(tally_dithered_scale_of((double)NAN), 0);
    CU_ASSERT_EQUAL(tally_dithered_scale_of(1e300), TALLY_DITHERED_SCALES - 1);
    CU_ASSERT_EQUAL(tally_dithered_scale_of((double)INFINITY), TALLY_DITHERED_SCALES - 1);
}

static void test_codec_dithered__sums_of_all_clients_fit(void)
{
    CU_ASSERT_EQUAL(tally_dithered_top(1), 1 << 20);
    CU_ASSERT_EQUAL(tally_dithered_top(1024), 1 << 20);
    CU_ASSERT_EQUAL(tally_dithered_top(1025), (1 << 30) / 1025);
    CU_ASSERT_EQUAL(tally_dithered_top(UINT32_MAX), 1);
    for (uint64_t clients = 1; clients <= 1 << 29; clients = clients * 3 + 1) {
        CU_ASSERT_TRUE(clients * tally_dithered_top((uint32_t)clients) < UINT64_C(1) << 31);
    }
}

static void test_codec_dithered__grids_are_checked(void)
{
    struct tally_grid grid = grid_of(0.1, 1);
    CU_ASSERT_TRUE(tally_dithered_grid_is_valid(&grid));
    grid.intervals += 2;
    CU_ASSERT_FALSE(tally_dithered_grid_is_valid(&grid));
    grid = grid_of(0.1, 1);
    grid.scale = TALLY_DITHERED_SCALES;
    CU_ASSERT_FALSE(tally_dithered_grid_is_valid(&grid));
    grid = grid_of(0, 1);
    CU_ASSERT_FALSE(tally_dithered_grid_is_valid(&grid));
}

/* --- model ----------------------------------------------------------------------------------- */

static void test_codec_dithered__the_table_is_the_normal_distribution(void)
{
    struct tally_rng rng = stream(1, TALLY_RNG_SAMPLING);
    bool good = true;
    for (int k = 0; k < 200000; k++) {
        const uint32_t scale = tally_rng_below(&rng, TALLY_DITHERED_SCALES);
        const double z = 14 * tally_rng_uniform(&rng) - 7;
        const int64_t boundary = llrint(z * tally_dithered_ratio(scale) * 0x1p32);
        const uint32_t got = tally_dithered_normal(scale, boundary);
        good = good && fabs(got * 0x1p-24 - erfc(-z / sqrt(2)) / 2) < 1.3e-4;
        good = good && got + tally_dithered_normal(scale, -boundary) == 1 << 24;
    }
    CU_ASSERT_TRUE(good);
    CU_ASSERT_EQUAL(tally_dithered_normal(0, INT64_C(1) << 60), 1 << 24);
    CU_ASSERT_EQUAL(tally_dithered_normal(384, -(INT64_C(1) << 60)), 0);
}

/* Every symbol has a share, initially and after any levels. */
static void test_codec_dithered__every_symbol_has_a_share(void)
{
    struct tally_rng rng = stream(2, TALLY_RNG_SAMPLING);
    bool good = true;
    for (uint32_t k = 0; k < 4 * TALLY_DITHERED_SCALES; k++) {
        struct tally_dithered_model model = tally_dithered_model(k / 4, 0);
        good = good && model.reach <= 16 && model.shift <= 15;
        good = good && model.reach >= 4 * tally_dithered_ratio(k / 4) / (1 << model.shift) - 0.51;
        for (int step = 0; step < 30; step++) {
            const int32_t dither = k % 4 == 0   ? INT32_MIN
                                   : k % 4 == 1 ? INT32_MAX
                                                : (int32_t)tally_rng_u32(&rng);
            const uint32_t chosen = tally_rng_below(&rng, (uint32_t)(2 * model.reach + 3));
            struct tally_dithered_bound bound, before = {0}, first = {0}, end = {0};
            tally_dithered_bound(&model, -model.reach - 1, dither, &before);
            good = good && before.shares == 0;
            for (uint32_t s = 0; s < (uint32_t)(2 * model.reach + 3); s++, before = bound) {
                tally_dithered_bound(&model, (int32_t)s - model.reach, dither, &bound);
                good = good && bound.shares > before.shares;
                first = s == chosen ? before : first;
                end = s == chosen ? bound : end;
            }
            good = good && before.shares == 1 << 16;
            tally_dithered_learn(&model, &first, &end);
            uint64_t weight = 0;
            for (int h = 0; h < TALLY_DITHERED_HYPOTHESES; h++) {
                good = good && model.weights[h] > 0;
                weight += model.weights[h];
            }
            good = good && weight < 1 << 25;
        }
    }
    CU_ASSERT_TRUE(good);
}

/* --- messages -------------------------------------------------------------------------------- */

/* Messages of every scale and shape: normal, far too wide or narrow for the scale, and clipped. */
static void test_codec_dithered__round_trip(void)
{
    struct tally_rng rng = stream(3, TALLY_RNG_SAMPLING);
    bool good = true;
    for (uint32_t k = 0; k < 1200; k++) {
        struct dithered_sample sample;
        const double step = exp2(40 * tally_rng_uniform(&rng) - 20);
        const double ratio = exp2(26 * tally_rng_uniform(&rng) - 9);
        dithered_sample_init(&sample, 1 + tally_rng_below(&rng, k % 10 == 0 ? 700 : 40),
                             grid_of(step, ratio));
        sample.grid.intervals = 2 * (1 + (tally_rng_u32(&rng) >> (12 + tally_rng_below(&rng, 20))));
        const double width = k % 3 == 0 ? exp2(10 * tally_rng_uniform(&rng) - 5) : 1;
        dithered_fill_normal(&rng, step * ratio * width, sample.y, sample.dim);
        CU_ASSERT_EQUAL_FATAL(encode(&sample, k), TALLY_OK);
        const struct tally_level_stats sent = sample.stats;
        struct tally_level_stats seen;
        enum tally_status status;
        good = good &&
               dithered_sample_decodes(&sample, sample.payload.data, sample.payload.size,
                                       sent.payload_bits, &status, &seen) &&
               status == TALLY_OK;
        good = good && dithered_same_stats(&sent, &seen);
        uint64_t formula = sample.dim, nonzeros = 0;
        bool is_clipped = false;
        const double top = sample.grid.intervals / 2;
        for (size_t i = 0; i < sample.dim; i++) {
            const int32_t level = sample.levels[i];
            const double exact = sample.y[i] / step + sample.dithers[i] * 0x1p-32;
            good =
                good && sample.values[i] == (int64_t)level * (INT64_C(1) << 32) - sample.dithers[i];
            is_clipped = is_clipped || abs(level) >= (int32_t)top - 1;
            good = good && abs(level) <= (int32_t)top;
            good = good && (abs(level) >= (int32_t)top - 1 || fabs(exact - level) <= 1);
            formula += (uint64_t)abs(level);
            nonzeros += level != 0;
        }
        good = good && (is_clipped || sample.clipped == 0) && formula == sent.formula_bits;
        good = good && nonzeros == sent.nonzeros;
        dithered_sample_fini(&sample);
    }
    CU_ASSERT_TRUE(good);
}

static void test_codec_dithered__refuses_what_is_not_finite(void)
{
    struct dithered_sample sample;
    dithered_sample_init(&sample, 70, grid_of(1, 1));
    dithered_fill_normal(&(struct tally_rng){.n_used = 4}, 1, sample.y, 70);
    sample.y[66] = INFINITY;
    CU_ASSERT_EQUAL(encode(&sample, 0), TALLY_NOT_FINITE);
    sample.y[66] = NAN;
    CU_ASSERT_EQUAL(encode(&sample, 0), TALLY_NOT_FINITE);
    sample.y[66] = 0x1p127f; /* far beyond any int32 */
    CU_ASSERT_EQUAL(encode(&sample, 0), TALLY_OK);
    CU_ASSERT_EQUAL(sample.clipped, 1);
    CU_ASSERT_TRUE(sample.levels[66] >= TALLY_DITHERED_MAX_TOP - 1);
    dithered_sample_fini(&sample);
}

/* Random bytes and messages that have a flipped bit, are truncated or are extended: each is refused
 * or equals the encoding of the decoded levels. */
static void test_codec_dithered__a_message_is_refused_or_canonical(void)
{
    struct tally_rng rng = stream(4, TALLY_RNG_SAMPLING);
    size_t n_accepted = 0;
    bool good = true;
    for (uint32_t k = 0; k < 6000; k++) {
        struct dithered_sample sample;
        const double ratio = exp2(14 * tally_rng_uniform(&rng) - 7);
        dithered_sample_init(&sample, 1 + tally_rng_below(&rng, 12), grid_of(1, ratio));
        sample.grid.intervals = 2 * (1 + tally_rng_below(&rng, 2 + (uint32_t)(8 * ratio)));
        dithered_fill_normal(&rng, ratio, sample.y, sample.dim);
        CU_ASSERT_EQUAL_FATAL(encode(&sample, k), TALLY_OK);
        uint8_t bytes[400];
        size_t n = sample.payload.size;
        uint64_t n_bits = sample.stats.payload_bits;
        CU_ASSERT_TRUE_FATAL(n + 1 <= sizeof bytes);
        memcpy(bytes, sample.payload.data, n);
        if (k % 3 == 0) {
            n = tally_rng_below(&rng, 8);
            n_bits = 8 * n;
            for (size_t i = 0; i < n; i++) {
                bytes[i] = (uint8_t)tally_rng_u32(&rng);
            }
        } else if (k % 3 == 1 && n_bits > 0) {
            const uint32_t at = tally_rng_below(&rng, (uint32_t)n_bits);
            bytes[at / 8] = (uint8_t)(bytes[at / 8] ^ 1 << at % 8);
        } else {
            bytes[n] = 0;
            n_bits = n_bits + tally_rng_below(&rng, 3) - 1;
            n = (size_t)((n_bits + 7) / 8);
        }
        enum tally_status status = TALLY_MALFORMED;
        if (n_bits > UINT32_MAX) {
            dithered_sample_fini(&sample);
            continue;
        }
        struct tally_level_stats seen;
        good = good && dithered_sample_decodes(&sample, bytes, n, n_bits, &status, &seen);
        if (status == TALLY_OK) {
            n_accepted++;
            for (size_t i = 0; i < sample.dim; i++) {
                sample.y[i] = (float)((double)sample.values[i] * 0x1p-32);
            }
            CU_ASSERT_EQUAL_FATAL(encode(&sample, k), TALLY_OK);
            good = good && sample.stats.payload_bits == n_bits && sample.payload.size == n &&
                   memcmp(sample.payload.data, bytes, n) == 0;
        }
        dithered_sample_fini(&sample);
    }
    CU_ASSERT_TRUE(good);
    CU_ASSERT_TRUE(n_accepted > 500);
}

/* --- bits ------------------------------------------------------------------------------------ */

/* Returns the mean bits of messages and of the ideal code, at a given ratio step / sigma. */
static void compare(size_t dim, uint32_t n_messages, double coarseness, double *ret_bits,
                    double *ret_ideal)
{
    struct tally_rng rng = stream((uint32_t)(1000 * coarseness), TALLY_RNG_SAMPLING);
    struct dithered_sample sample;
    const double step = 0.37, sigma = step / coarseness;
    dithered_sample_init(&sample, dim, grid_of(step, 1 / coarseness));
    *ret_bits = *ret_ideal = 0;
    for (uint32_t k = 0; k < n_messages; k++) {
        dithered_fill_normal(&rng, sigma, sample.y, dim);
        CU_ASSERT_EQUAL_FATAL(encode(&sample, k), TALLY_OK);
        *ret_bits += (double)sample.stats.payload_bits / n_messages;
        *ret_ideal += dithered_sample_ideal_bits(&sample, sigma) / n_messages;
    }
    dithered_sample_fini(&sample);
}

static const double COARSENESS[] = {0.3, 0.4, 0.55, 0.7, 0.91, 1, 1.3, 1.7, 2.2, 3, 4.1, 5.5, 8};
enum { N_COARSENESS = sizeof COARSENESS / sizeof COARSENESS[0] };

static void test_codec_dithered__bits_of_short_vectors_are_near_the_ideal(void)
{
    for (size_t k = 0; k < N_COARSENESS; k++) {
        double bits, ideal;
        compare(30, 2000, COARSENESS[k], &bits, &ideal);
        CU_ASSERT_TRUE(bits < ideal * 1.04 + 3);
        CU_ASSERT_TRUE(bits > ideal - 0.2);
    }
}

static void test_codec_dithered__bits_of_long_vectors_are_near_the_ideal(void)
{
    for (size_t k = 0; k < N_COARSENESS; k++) {
        double bits, ideal;
        compare(7840, 20, COARSENESS[k], &bits, &ideal);
        CU_ASSERT_TRUE(bits < ideal * 1.005);
        CU_ASSERT_TRUE(bits > ideal * 0.995);
    }
}

/* Runs of ten coordinates, like the classes of a pixel: two runs in five are far below the step,
 * the others have several widths. The expected deviation is that of all coordinates together. */
static void test_codec_dithered__scales_adapt(void)
{
    enum { DIM = 7840, RUN = 10 };
    static const double coarseness[] = {0.5, 1, 2, 4};
    for (size_t k = 0; k < sizeof coarseness / sizeof coarseness[0]; k++) {
        struct tally_rng rng = stream((uint32_t)k + 20, TALLY_RNG_SAMPLING);
        struct dithered_sample sample;
        double squares = 0;
        dithered_sample_init(&sample, DIM, grid_of(1, 1 / coarseness[k]));
        for (size_t i = 0; i < DIM; i += RUN) {
            const bool is_dark = i / RUN % 28 < 11; /* the ends of a row of the image */
            dithered_fill_normal(&rng, is_dark ? 0.01 : exp2((double)(i / RUN % 5) / 2 - 1),
                                 sample.y + i, RUN);
        }
        for (size_t i = 0; i < DIM; i++) {
            squares += (double)sample.y[i] * (double)sample.y[i] / DIM;
        }
        for (size_t i = 0; i < DIM; i++) {
            sample.y[i] = (float)((double)sample.y[i] / sqrt(squares) / coarseness[k]);
        }
        CU_ASSERT_EQUAL_FATAL(encode(&sample, 40), TALLY_OK);
        const double ideal = dithered_sample_ideal_bits(&sample, 1 / coarseness[k]);
        CU_ASSERT_TRUE((double)sample.stats.payload_bits < (k < 3 ? 0.88 : 0.97) * ideal);
        dithered_sample_fini(&sample);
    }
}

/* Compares with the ideal code of a fixed deviation, on average: this is the cost of the other
 * hypotheses where there is nothing to adapt to. A scale represents the deviation exactly. */
static void test_codec_dithered__alike_coordinates_lose_nothing(void)
{
    double bits, ideal;
    compare(30, 4000, 0.5, &bits, &ideal);
    CU_ASSERT_TRUE(bits < ideal + 1.5); /* ending the string takes up to 1 bit */
    compare(30, 4000, 2, &bits, &ideal);
    CU_ASSERT_TRUE(bits < ideal + 1.5);
    compare(7840, 30, 0.5, &bits, &ideal);
    CU_ASSERT_TRUE(bits < ideal * 1.003);
    compare(7840, 30, 2, &bits, &ideal);
    CU_ASSERT_TRUE(bits < ideal * 1.003);
}

/* FORMAT.md, section 7: the worked example. */
static void test_codec_dithered__example_of_format_md(void)
{
    static const float y[7] = {0.7f, -1.2f, 0.1f, 2.6f, 0, -0.4f, 9.9f};
    static const int32_t levels[7] = {1, -1, 0, 3, 0, -1, 10};
    static const uint8_t payload[5] = {0x03, 0xe1, 0xef, 0x5f, 0x05};
    struct dithered_sample sample;
    dithered_sample_init(&sample, 7, grid_of(1, 1));
    memcpy(sample.y, y, sizeof y);
    tally_rng_init(&sample.rng, tally_rng_key(1, 0), 2, 3, TALLY_RNG_UPLINK);
    CU_ASSERT_EQUAL_FATAL(dithered_sample_encode(&sample), TALLY_OK);
    CU_ASSERT_EQUAL(sample.grid.scale, 128);
    CU_ASSERT_EQUAL(sample.stats.payload_bits, 35);
    CU_ASSERT_EQUAL(sample.stats.formula_bits, 23);
    CU_ASSERT_EQUAL(memcmp(sample.levels, levels, sizeof levels), 0);
    CU_ASSERT_EQUAL_FATAL(sample.payload.size, sizeof payload);
    CU_ASSERT_EQUAL(memcmp(sample.payload.data, payload, sizeof payload), 0);
    dithered_sample_fini(&sample);
}

/* --- errors ---------------------------------------------------------------------------------- */

/* For any value, the error has mean 0 and the same mean square, that of tally_dithered_error(), and
 * it is not correlated with the value. Errors of neighbours are hardly correlated. Fixed seeds. */
static void test_codec_dithered__the_error_is_independent_of_the_value(void)
{
    enum { DIM = 200000, CELLS = 20 };
    struct dithered_sample sample;
    struct tally_rng rng = stream(6, TALLY_RNG_SAMPLING);
    dithered_sample_init(&sample, DIM, grid_of(1, 0.5));
    dithered_fill_normal(&rng, 0.5, sample.y, DIM);
    CU_ASSERT_EQUAL_FATAL(encode(&sample, 6), TALLY_OK);
    enum tally_status status;
    struct tally_level_stats seen;
    CU_ASSERT_TRUE(dithered_sample_decodes(&sample, sample.payload.data, sample.payload.size,
                                           sample.stats.payload_bits, &status, &seen));
    CU_ASSERT_EQUAL_FATAL(status, TALLY_OK);
    const double expected = tally_dithered_error(DIM);
    double sums[CELLS] = {0}, squares[CELLS] = {0}, ns[CELLS] = {0}, fourths = 0, product = 0;
    bool bounded = true;
    for (size_t i = 0; i < DIM; i++) {
        const double error = (double)sample.values[i] * 0x1p-32 - sample.y[i];
        const double place = (double)sample.y[i] - floor((double)sample.y[i]);
        const size_t cell = (size_t)(place * CELLS) < CELLS ? (size_t)(place * CELLS) : CELLS - 1;
        bounded = bounded && fabs(error) <= 1;
        ns[cell]++;
        sums[cell] += error;
        squares[cell] += error * error;
        fourths += error * error * error * error / DIM;
        product += error * sample.y[i];
    }
    CU_ASSERT_TRUE(bounded);
    double all = 0;
    for (int c = 0; c < CELLS; c++) {
        const double scatter = sqrt(ns[c] * (fourths - expected * expected));
        CU_ASSERT_TRUE(fabs(sums[c]) < 4.5 * sqrt(ns[c] * expected));
        CU_ASSERT_TRUE(fabs(squares[c] - ns[c] * expected) < 4.5 * scatter);
        all += squares[c] / DIM;
    }
    CU_ASSERT_DOUBLE_EQUAL(all / expected, 1, 0.01);
    CU_ASSERT_TRUE(fabs(product) < 4.5 * 0.5 * sqrt(DIM * expected));
    dithered_sample_fini(&sample);
}

/* The mean square of the error in messages of each length, within 4 %. */
static void test_codec_dithered__errors_of_short_vectors(void)
{
    static const size_t DIMS[] = {1, 2, 3, 5, 10, 20, 30, 100, 1000};
    for (size_t k = 0; k < sizeof DIMS / sizeof DIMS[0]; k++) {
        struct dithered_sample sample;
        enum tally_status status;
        struct tally_level_stats seen;
        double square = 0;
        const uint32_t n = (uint32_t)(100000 / DIMS[k]);
        dithered_sample_init(&sample, DIMS[k], grid_of(1, 1));
        for (uint32_t message = 0; message < n; message++) {
            for (size_t i = 0; i < DIMS[k]; i++) {
                sample.y[i] = (float)i / 7 - 2;
            }
            CU_ASSERT_EQUAL_FATAL(encode(&sample, message), TALLY_OK);
            dithered_sample_decodes(&sample, sample.payload.data, sample.payload.size,
                                    sample.stats.payload_bits, &status, &seen);
            CU_ASSERT_EQUAL_FATAL(status, TALLY_OK);
            for (size_t i = 0; i < DIMS[k]; i++) {
                const double error = (double)sample.values[i] * 0x1p-32 - sample.y[i];
                square += error * error / (double)(n * DIMS[k]);
            }
        }
        CU_ASSERT_DOUBLE_EQUAL(square / tally_dithered_error(DIMS[k]), 1, 0.04);
        dithered_sample_fini(&sample);
    }
    CU_ASSERT_EQUAL(tally_dithered_error(1 << 18), 1.0 / 12);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_codec_dithered__scales_are_the_nearest_on_a_logarithmic_scale),
    TALLY_TEST(test_codec_dithered__sums_of_all_clients_fit),
    TALLY_TEST(test_codec_dithered__grids_are_checked),
    TALLY_TEST(test_codec_dithered__the_table_is_the_normal_distribution),
    TALLY_TEST(test_codec_dithered__every_symbol_has_a_share),
    TALLY_TEST(test_codec_dithered__round_trip),
    TALLY_TEST(test_codec_dithered__refuses_what_is_not_finite),
    TALLY_TEST(test_codec_dithered__a_message_is_refused_or_canonical),
    TALLY_TEST(test_codec_dithered__bits_of_short_vectors_are_near_the_ideal),
    TALLY_TEST(test_codec_dithered__bits_of_long_vectors_are_near_the_ideal),
    TALLY_TEST(test_codec_dithered__scales_adapt),
    TALLY_TEST(test_codec_dithered__alike_coordinates_lose_nothing),
    TALLY_TEST(test_codec_dithered__example_of_format_md),
    TALLY_TEST(test_codec_dithered__the_error_is_independent_of_the_value),
    TALLY_TEST(test_codec_dithered__errors_of_short_vectors),
};
TALLY_SUITE(codec_dithered, TESTS);
