#include "codec/dithered/trellis.h"

#include <math.h>
#include <stdlib.h>

#include "codec/dithered/dithered.h"
#include "tests/harness.h"

enum { DIM = 6, CANDIDATES = 5 };

/* The squared error of levels, whatever they are: each gives the grid of the next. */
static double error_of(const struct tally_vector *vector, const int32_t dithers[DIM],
                       const int32_t levels[DIM])
{
    double sum = 0;
    unsigned state = 0;
    for (size_t i = 0; i < DIM; i++) {
        const double value = levels[i] - tally_trellis_dither(state, dithers[i]) * 0x1p-32;
        const double error = value - (double)vector->y[i] / vector->grid->step;
        sum += error * error;
        state = tally_trellis_next(state, dithers[i], levels[i]);
    }
    return sum;
}

/* The least squared error of all vectors of levels up to `top` with levels near y. */
static double least_error(const struct tally_vector *vector, const int32_t dithers[DIM],
                          int32_t top)
{
    double least = INFINITY;
    for (int code = 0; code < 15625; code++) { /* 5^6 */
        int32_t levels[DIM];
        bool fits = true;
        for (int i = 0, rest = code; i < DIM; i++, rest /= CANDIDATES) {
            const int32_t near = (int32_t)lrint((double)vector->y[i] / vector->grid->step);
            levels[i] = (near > top    ? top
                         : near < -top ? -top
                                       : near) +
                        rest % CANDIDATES - CANDIDATES / 2;
            fits = fits && levels[i] <= top && levels[i] >= -top;
        }
        const double error = fits ? error_of(vector, dithers, levels) : INFINITY;
        least = error < least ? error : least;
    }
    return least;
}

static void check_best(uint32_t k, uint32_t intervals)
{
    struct tally_rng rng, noise;
    struct tally_grid grid = {.step = 0.3, .intervals = intervals};
    float y[DIM];
    double normal[DIM];
    int32_t levels[DIM], dithers[DIM];
    uint32_t words[TALLY_RNG_LANES];
    uint64_t clipped = 0;
    tally_rng_init(&noise, tally_rng_key(3, 0), k, 1, TALLY_RNG_NOISE);
    tally_rng_init(&rng, tally_rng_key(3, 0), k, 1, TALLY_RNG_UPLINK);
    tally_rng_normal(&noise, normal, DIM);
    tally_rng_lanes(&rng, 0, words);
    for (int i = 0; i < DIM; i++) {
        y[i] = (float)(0.4 * normal[i]);
        dithers[i] = (int32_t)words[i];
    }
    const struct tally_vector vector = {.y = y, .dim = DIM, .grid = &grid, .rng = &rng};
    CU_ASSERT_EQUAL_FATAL(tally_trellis_round(&vector, levels, &clipped), DIM);
    const double least = least_error(&vector, dithers, (int32_t)intervals / 2);
    CU_ASSERT_DOUBLE_EQUAL(error_of(&vector, dithers, levels), least, 1e-9);
    for (int i = 0; i < DIM; i++) {
        CU_ASSERT_TRUE(abs(levels[i]) <= (int32_t)intervals / 2);
    }
}

static void test_codec_trellis__no_other_levels_are_nearer(void)
{
    for (uint32_t k = 0; k < 60; k++) {
        check_best(k, 2000);
        check_best(k, 2 * (1 + k % 3)); /* some are clipped */
    }
}

/* A coordinate far beyond the top changes nothing for those after it. */
static void test_codec_trellis__an_outlier_is_clipped_alone(void)
{
    enum { LENGTH = 20000 };
    static float y[LENGTH];
    static int32_t levels[LENGTH];
    const struct tally_grid grid = {.step = 1, .intervals = 1 << 20};
    uint32_t words[TALLY_RNG_LANES];
    uint64_t clipped = 0;
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(4, 0), 0, 1, TALLY_RNG_UPLINK);
    for (size_t i = 0; i < LENGTH; i++) {
        y[i] = i == 3 ? 1e30F : (float)(i % 100) / 7;
    }
    const struct tally_vector vector = {.y = y, .dim = LENGTH, .grid = &grid, .rng = &rng};
    CU_ASSERT_EQUAL_FATAL(tally_trellis_round(&vector, levels, &clipped), LENGTH);
    CU_ASSERT_EQUAL(clipped, 1);
    double square = 0;
    unsigned state = 0;
    for (size_t i = 0; i < LENGTH; i++) {
        if (i % TALLY_RNG_LANES == 0) {
            tally_rng_lanes(&rng, (uint32_t)(i / TALLY_RNG_LANES), words);
        }
        const int32_t dither = (int32_t)words[i % TALLY_RNG_LANES];
        const double value = levels[i] - tally_trellis_dither(state, dither) * 0x1p-32;
        square += i == 3 ? 0 : (value - y[i]) * (value - y[i]);
        state = tally_trellis_next(state, dither, levels[i]);
    }
    CU_ASSERT_DOUBLE_EQUAL(square / LENGTH / tally_dithered_error(LENGTH), 1, 0.02);
}

/* Two paths from a state part at once, and meet again after four coordinates at the earliest. */
static void test_codec_trellis__paths_part(void)
{
    for (unsigned state = 0; state < TALLY_TRELLIS_STATES; state++) {
        const unsigned even = tally_trellis_after(state, 0), odd = tally_trellis_after(state, 1);
        CU_ASSERT_TRUE(even < TALLY_TRELLIS_STATES && odd < TALLY_TRELLIS_STATES);
        for (unsigned path = 0; path < 16; path++) {
            unsigned a = even, b = odd;
            for (unsigned i = 0; i < 2; i++) {
                a = tally_trellis_after(a, path >> (2 * i) & 1);
                b = tally_trellis_after(b, path >> (2 * i + 1) & 1);
                CU_ASSERT_NOT_EQUAL(a, b);
            }
        }
    }
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_codec_trellis__no_other_levels_are_nearer),
    TALLY_TEST(test_codec_trellis__an_outlier_is_clipped_alone),
    TALLY_TEST(test_codec_trellis__paths_part),
};
TALLY_SUITE(codec_trellis, TESTS);
