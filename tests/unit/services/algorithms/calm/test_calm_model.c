/* The recursion of CALM. The numbers of the fixed cases come from a NumPy program that was written
 * independently, from the equations. */
#include "services/algorithms/calm/calm_model.h"

#include <math.h>

#include "codec/dithered/dithered.h"
#include "tests/harness.h"
#include "tests/unit/services/algorithms/calm/synthetic_job.h"

static void assert_near(double actual, double expected)
{
    CU_ASSERT_DOUBLE_EQUAL(actual, expected, 1e-11 * fabs(expected));
}

static struct tally_calm_walk walked(const struct tally_calm_constants *constants, double variance,
                                     int64_t n, double *ret_steps)
{
    struct tally_calm_walk walk;
    tally_calm_walk_begin(&walk, constants, variance);
    for (int64_t i = 0; i < n; i++) {
        const double foreseen = tally_calm_walk_step(&walk);
        const double e = tally_calm_walk_next(&walk);
        CU_ASSERT_EQUAL(e, foreseen);
        if (ret_steps != NULL) {
            ret_steps[i] = e;
        }
    }
    return walk;
}

/* A short walk far from x*, and a long one near it, where the pull is stronger than the curvature.
 */
static void test_algorithms_calm_model__steps(void)
{
    double steps[400];
    struct tally_calm_walk walk = walked(&LOUD, 5.0 / 30, 14, steps);
    assert_near(walk.pull, 0.06);
    assert_near(walk.sum_variance, 2.13060510315834);
    assert_near(tally_calm_walk_message_noise(&walk), 0.754684454565053);
    assert_near(steps[0], 0.0446561476629949);
    assert_near(steps[1], 0.0441790725072293);
    assert_near(steps[13], 0.0389732292590431);

    walk = walked(&LOUD, 0.0063, 400, steps);
    assert_near(walk.pull, 1.58730158730159);
    assert_near(walk.sum_variance, 2.30801962112801);
    assert_near(tally_calm_walk_message_noise(&walk), 0.0154327536789615);
    assert_near(steps[0], 0.00303599826514385);
    assert_near(steps[1], 0.0030184905977022);
    assert_near(steps[399], 0.000914399035951542);
    const double rest = 1 - walk.sum_progress / 400;
    assert_near(0.0144 * rest * rest * 0.0063, 7.60993510215983e-05);
}

/* e_i minimises the next v, unless the limit cuts it. */
static void test_algorithms_calm_model__step_minimises_the_next_variance(void)
{
    struct tally_calm_walk walk = walked(&LOUD, 0.05, 40, NULL);
    const struct tally_calm_walk before = walk;
    const double best = tally_calm_walk_next(&walk);
    CU_ASSERT_TRUE(best > 0 && best < LOUD.local_step_limit);
    for (int side = -1; side <= 1; side += 2) {
        const double e = best * (1 + side * 0.01);
        const double q = before.curvature + before.pull;
        const double a = before.progress + e * (before.curvature - q * before.progress);
        const double noise = LOUD.noise + LOUD.noise_growth * before.variance;
        const double own = (1 - e * q) * (1 - e * q) * before.own_noise + e * e * noise;
        CU_ASSERT_TRUE((1 - a) * (1 - a) * 0.05 + a * a * LOUD.client_spread + own > walk.variance);
    }
    struct tally_calm_constants limited = LOUD;
    limited.local_step_limit = best / 2;
    tally_calm_walk_begin(&walk, &limited, 0.05);
    CU_ASSERT_EQUAL(tally_calm_walk_next(&walk), best / 2);
    limited.local_step_limit = 0;
    walk = walked(&limited, 0.05, 30, NULL);
    CU_ASSERT_EQUAL(walk.variance, 0.05);
    CU_ASSERT_EQUAL(walk.sum_progress, 0);
    assert_near(walk.sum_variance, 1.5);
}

/* Constants at and beyond the limits of a document: no step is NaN or outside its limit. */
static void test_algorithms_calm_model__steps_of_extreme_constants(void)
{
    static const double EXTREMES[] = {0, 1e-300, 1e-9, 1, 1e9};
    for (int i = 0; i < 5 * 5 * 5; i++) {
        struct tally_calm_constants constants = LOUD;
        constants.noise = EXTREMES[i % 5];
        constants.client_spread = EXTREMES[i / 5 % 5];
        constants.local_step_limit = 6;
        struct tally_calm_walk walk;
        tally_calm_walk_begin(&walk, &constants, EXTREMES[i / 25]);
        for (int n = 0; n < 20; n++) {
            const double e = tally_calm_walk_next(&walk);
            CU_ASSERT_TRUE(e >= 0 && e <= 6);
            CU_ASSERT_TRUE(isfinite(walk.variance));
        }
    }
}

struct expected_epoch {
    int64_t samples;
    double regret, uplink_bits, downlink_bits, uplink_step, downlink_step;
    double variance, estimate_variance;
};

struct expected {
    struct tally_calm_schedule schedule;
    double regret, uplink_bits, downlink_bits;
    struct expected_epoch epochs[5];
};

static const struct expected EXPECTED_LOUD = {
    {4, {{14, 1.08, 1.17}, {28, 1.38, 1.32}, {103, 1.06, 1.41}, {321, 1.83, 1.38}}},
    533.3127116367,
    258.3796146463,
    284.6458777226,
    {{14, 106.5302551579, 65.75422905371, 71.51394360919, 0.9382238260696, 0.2773808841088,
      0.06261750532229, 0.05620582574988},
     {28, 79.80466043227, 57.23037855855, 67.2867731467, 0.7241525634833, 0.1897042708651,
      0.02365307962137, 0.020654103756},
     {103, 107.3232608951, 74.1489048777, 75.02253913431, 0.2688352581746, 0.1035467091199,
      0.006286542541222, 0.005393049127091},
     {321, 93.26162677833, 61.24610215635, 70.82262183245, 0.2538009063433, 0.05732621101457,
      0.001999490338985, 0.001725632466545},
     {1534, 146.3929083731, 0, 0, 0, 0, 0.001999490338985, 0.001725632466545}},
};

static const struct expected EXPECTED_QUIET = {
    {2, {{5, 0.94, 1.03}, {8, 1.34, 1.38}}},
    42.2237492919,
    127.7813660049,
    143.2232084462,
    {{5, 15.62705927402, 69.99380195868, 72.76245309215, 0.576128310178, 0.1643292712869,
      0.02770430550196, 0.02545396305182},
     {8, 9.912290048572, 57.78756404627, 70.46075535405, 0.4093096170445, 0.1211176125184,
      0.008925394829462, 0.007702938490948},
     {1987, 16.68439996928, 0, 0, 0, 0, 0.008925394829462, 0.007702938490948}},
};

/* One epoch so precise that V / 25 limits its broadcast, and one that is not. */
static const struct expected EXPECTED_CAPPED = {
    {2, {{600, 0.5, 0.01}, {300, 0.4, 0.5}}},
    1734.7882120988,
    277.5486374689,
    217.2994560369,
    {{600, 1593.260253006, 153.2086436078, 84.4187407154, 0.056248186093, 0.2484773594673,
      0.006666666666667, 0.001521583486014},
     {300, 92.28765412498, 124.3399938611, 132.8807153215, 0.05743204823441, 0.01495455141689,
      0.0009131909829949, 0.0008945544323215},
     {1100, 49.24030496773, 0, 0, 0, 0, 0.0009131909829949, 0.0008945544323215}},
};

/* What the bits and the step of a message would be without a trellis: those of the reference. */
static void assert_message(size_t dim, struct tally_calm_grid grid, double bits,
                           double expected_step, double expected_bits)
{
    const double plain = grid.step * sqrt(12 * tally_dithered_error(dim));
    CU_ASSERT_DOUBLE_EQUAL(plain, expected_step, 1e-11);
    if (expected_bits > 0) {
        const double rest = bits - (double)dim * tally_calm_rate(grid.step / grid.scale);
        CU_ASSERT_DOUBLE_EQUAL((double)dim * tally_calm_rate(plain / grid.scale) + rest,
                               expected_bits, 1e-8);
        CU_ASSERT_TRUE(bits < expected_bits - 0.05 * (double)dim);
    } else {
        CU_ASSERT_EQUAL(bits, 0);
    }
}

static void assert_epoch(size_t dim, const struct tally_calm_epoch_forecast *actual,
                         const struct expected_epoch *expected)
{
    CU_ASSERT_EQUAL(actual->samples, expected->samples);
    CU_ASSERT_DOUBLE_EQUAL(actual->regret, expected->regret, 1e-8);
    assert_message(dim, actual->uplink, actual->uplink_bits, expected->uplink_step,
                   expected->uplink_bits);
    assert_message(dim, actual->downlink, actual->downlink_bits, expected->downlink_step,
                   expected->downlink_bits);
    CU_ASSERT_DOUBLE_EQUAL(actual->variance, expected->variance, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(actual->estimate_variance, expected->estimate_variance, 1e-12);
}

static void assert_forecast(const struct tally_calm_constants *constants,
                            const struct expected *expected)
{
    struct tally_calm_forecast forecast;
    const struct tally_calm_state start = tally_calm_start(constants);
    tally_calm_forecast(constants, &start, &expected->schedule, &forecast);
    CU_ASSERT_EQUAL_FATAL(forecast.n, expected->schedule.n + 1);
    CU_ASSERT_DOUBLE_EQUAL(forecast.regret, expected->regret, 1e-7);
    double up = 0, down = 0;
    for (int k = 0; k < forecast.n; k++) {
        assert_epoch(constants->dim, &forecast.epochs[k], &expected->epochs[k]);
        up += forecast.epochs[k].uplink_bits;
        down += forecast.epochs[k].downlink_bits;
    }
    CU_ASSERT_DOUBLE_EQUAL(forecast.uplink_bits, up, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(forecast.downlink_bits, down, 1e-9);
}

static void test_algorithms_calm_model__forecast_is_that_of_the_reference(void)
{
    const struct tally_calm_constants quiet_job = quiet();
    assert_forecast(&LOUD, &EXPECTED_LOUD);
    assert_forecast(&quiet_job, &EXPECTED_QUIET);
    assert_forecast(&LOUD, &EXPECTED_CAPPED);
}

/* A forecast from the state after an epoch equals the rest of the forecast from the start. */
static void test_algorithms_calm_model__forecast_from_the_middle(void)
{
    struct tally_calm_forecast all, rest;
    struct tally_calm_state at = tally_calm_start(&LOUD);
    struct tally_calm_schedule schedule = EXPECTED_LOUD.schedule;
    tally_calm_forecast(&LOUD, &at, &schedule, &all);
    at = (struct tally_calm_state){all.epochs[1].variance, all.epochs[1].estimate_variance,
                                   2000 - 14 - 28};
    schedule.n = 2;
    schedule.epochs[0] = schedule.epochs[2];
    schedule.epochs[1] = schedule.epochs[3];
    tally_calm_forecast(&LOUD, &at, &schedule, &rest);
    CU_ASSERT_EQUAL_FATAL(rest.n, 3);
    for (int k = 0; k < 3; k++) {
        CU_ASSERT_EQUAL(rest.epochs[k].regret, all.epochs[k + 2].regret);
        CU_ASSERT_EQUAL(rest.epochs[k].uplink_bits, all.epochs[k + 2].uplink_bits);
        CU_ASSERT_EQUAL(rest.epochs[k].downlink_bits, all.epochs[k + 2].downlink_bits);
    }
}

/* An epoch that ends at or after the horizon sends nothing, because no query could use it. */
static void test_algorithms_calm_model__horizon_cuts_the_schedule(void)
{
    static const int64_t LONG[] = {1999, 2000, 2001};
    for (int i = 0; i < 3; i++) {
        struct tally_calm_forecast forecast;
        const struct tally_calm_state start = tally_calm_start(&LOUD);
        const struct tally_calm_schedule schedule = {2, {{LONG[i], 1, 1}, {5, 1, 1}}};
        tally_calm_forecast(&LOUD, &start, &schedule, &forecast);
        CU_ASSERT_EQUAL(forecast.n, i == 0 ? 2 : 1);
        CU_ASSERT_EQUAL(forecast.uplink_bits > 0, i == 0);
        CU_ASSERT_EQUAL(forecast.downlink_bits > 0, i == 0);
        CU_ASSERT_EQUAL(forecast.epochs[forecast.n - 1].uplink_bits, 0);
        CU_ASSERT_EQUAL(forecast.epochs[forecast.n - 1].samples, i == 0 ? 1 : 2000);
    }
}

/* More noise, coarser grids and more spread between clients each increase the regret. Coarser grids
 * need fewer bits. */
static void test_algorithms_calm_model__monotone(void)
{
    struct tally_calm_constants worse[4] = {LOUD, LOUD, LOUD, LOUD};
    worse[0].noise *= 1.1;
    worse[1].noise_growth *= 1.1;
    worse[2].client_spread *= 1.1;
    worse[3].curvature_spread *= 1.1;
    struct tally_calm_forecast best, other;
    const struct tally_calm_state start = tally_calm_start(&LOUD);
    tally_calm_forecast(&LOUD, &start, &EXPECTED_LOUD.schedule, &best);
    for (int i = 0; i < 4; i++) {
        tally_calm_forecast(&worse[i], &start, &EXPECTED_LOUD.schedule, &other);
        CU_ASSERT_TRUE(other.regret > best.regret);
    }
    for (int k = 0; k < 4; k++) {
        struct tally_calm_schedule coarser = EXPECTED_LOUD.schedule;
        coarser.epochs[k].uplink_resolution *= 1.1;
        tally_calm_forecast(&LOUD, &start, &coarser, &other);
        CU_ASSERT_TRUE(other.regret > best.regret);
        CU_ASSERT_TRUE(other.uplink_bits < best.uplink_bits);
        coarser = EXPECTED_LOUD.schedule;
        coarser.epochs[k].downlink_resolution *= 1.1;
        tally_calm_forecast(&LOUD, &start, &coarser, &other);
        CU_ASSERT_TRUE(other.regret > best.regret);
        CU_ASSERT_TRUE(other.downlink_bits < best.downlink_bits);
    }
}

/* The gain minimises Vz. An absent client costs more than its share of the noise. */
static void test_algorithms_calm_model__merge(void)
{
    const struct tally_calm_walk walk = walked(&LOUD, 0.05, 40, NULL);
    const struct tally_calm_merge all = tally_calm_merge(&LOUD, &walk, 0.5, 10, 0.04);
    const struct tally_calm_merge eight = tally_calm_merge(&LOUD, &walk, 0.5, 8, 0.04);
    const double vnew = 0.04 * (1 / all.gain - 1);
    assert_near(all.variance, (1 - all.gain) * (1 - all.gain) * 0.04 + all.gain * all.gain * vnew);
    assert_near(all.variance, all.gain * vnew);
    const double message =
        tally_calm_walk_message_noise(&walk) + 0.5 * 0.5 * tally_dithered_error(LOUD.dim);
    const double absence = 0.03 * (1.0 / 8 - 1.0 / 10) * 10 / 9;
    assert_near(0.04 * (1 / eight.gain - 1), vnew + message * (1.0 / 8 - 1.0 / 10) + absence);

    struct tally_calm_constants alone = LOUD;
    alone.clients = 1;
    CU_ASSERT_TRUE(tally_calm_merge(&alone, &walk, 0.5, 1, 0.04).variance < 0.04);
}

/* If the recursion leaves nothing to send, the coder's scale is still above 0. */
static void test_algorithms_calm_model__grids(void)
{
    const struct tally_calm_grid none = tally_calm_downlink_grid(1 << 20, 0.05, 0.05, 1.5);
    assert_near(none.scale, sqrt(0.05 / 1000));
    assert_near(none.step, 1.5 * sqrt(0.05));
    assert_near(tally_calm_broadcast_variance(1 << 20, 0.05, none.step), 0.05 * (1 + 2.25 / 12));
    const struct tally_calm_grid capped = tally_calm_downlink_grid(30, 0.05, 0.0001, 1.5);
    assert_near(tally_calm_broadcast_variance(30, 0.0001, capped.step), 0.05 / 25);
    const struct tally_calm_walk walk = walked(&LOUD, 0.05, 40, NULL);
    const double noise = tally_calm_walk_message_noise(&walk);
    assert_near(tally_calm_rounding(LOUD.dim, tally_calm_uplink_grid(&walk, 1.5).step),
                1.5 * 1.5 * noise / 12);
    assert_near(tally_calm_uplink_grid(&walk, 1.5).scale, sqrt(noise + 0.05 + 0.03));
}

/* Probability of the normal distribution between the two. Above 0 it is computed from the mirror
 * image, where no digits cancel. */
static double mass_between(double from, double to)
{
    const double lower = from > 0 ? -to : from, upper = from > 0 ? -from : to;
    return (erfc(-upper / sqrt(2)) - erfc(-lower / sqrt(2))) / 2;
}

/* Entropy of rint(y / step + u) given u, averaged over u. */
static double rate_by_quadrature(double step)
{
    enum { N = 64 };
    double bits = 0;
    for (int i = 0; i < N; i++) {
        const double u = (i + 0.5) / N - 0.5;
        const int most = (int)(9 / step) + 2;
        for (int level = -most; level <= most; level++) {
            const double p = mass_between((level - 0.5 - u) * step, (level + 0.5 - u) * step);
            bits -= p > 0 ? p * log2(p) / N : 0;
        }
    }
    return bits;
}

static void test_algorithms_calm_model__rate(void)
{
    double before = 99;
    for (int k = 0; k < 60; k++) {
        const double ratio = 0.05 * pow(240, k / 59.0);
        CU_ASSERT_DOUBLE_EQUAL(tally_calm_rate(ratio), rate_by_quadrature(ratio), 1e-9);
        CU_ASSERT_TRUE(tally_calm_rate(ratio) < before);
        before = tally_calm_rate(ratio);
        const double between = 0.05 * pow(240, (k + 0.5) / 59.0);
        CU_ASSERT_DOUBLE_EQUAL(tally_calm_rate(between), rate_by_quadrature(between), 1e-3);
    }
    static const double OUTSIDE[] = {0.001, 0.01, 0.02, 14, 20};
    for (int i = 0; i < 5; i++) {
        const double rate = rate_by_quadrature(OUTSIDE[i]);
        CU_ASSERT_DOUBLE_EQUAL(tally_calm_rate(OUTSIDE[i]), rate, 0.01 * rate);
    }
    CU_ASSERT_DOUBLE_EQUAL(tally_calm_rate(0.3), 3.7894704906650496, 1e-11);
    CU_ASSERT_DOUBLE_EQUAL(tally_calm_rate(3.3), 0.7876831324173844, 1e-11);
}

static void test_algorithms_calm_model__step_ratio_is_the_inverse_of_the_rate(void)
{
    for (int i = 0; i < 400; i++) {
        const double ratio = 0.001 * pow(1.037, i);
        const double rate = tally_calm_rate(ratio);
        CU_ASSERT_DOUBLE_EQUAL(tally_calm_step_ratio(rate), ratio, 1e-12 * ratio);
    }
}

/* The coder's bits beyond d times the rate, averaged over messages of standard normal coordinates.
 * The tolerance includes 8 standard errors of the mean. */
static void test_algorithms_calm_model__message_bits_are_those_of_the_coder(void)
{
    enum { DIM = 30, MESSAGES = 8000 };
    const struct tally_grid grid = {
        .step = 1, .intervals = 200, .scale = tally_dithered_scale_of(1)};
    const struct tally_rng_key key = tally_rng_key(20, 0);
    struct tally_buffer payload = {0};
    struct tally_rng source;
    double bits = 0;
    tally_rng_init(&source, key, 0, 0, TALLY_RNG_NOISE);
    for (uint32_t i = 0; i < MESSAGES; i++) {
        struct tally_rng dither;
        struct tally_level_stats stats;
        uint64_t clipped;
        double values[DIM];
        float y[DIM];
        int32_t levels[DIM];
        tally_rng_normal(&source, values, DIM);
        for (int k = 0; k < DIM; k++) {
            y[k] = (float)values[k];
        }
        tally_rng_init(&dither, key, 0, i, TALLY_RNG_UPLINK);
        const struct tally_vector vector = {.y = y, .dim = DIM, .grid = &grid, .rng = &dither};
        TALLY_ASSERT_STATUS(
            tally_dithered_encode(&vector, levels, &payload, &stats, &clipped, NULL), TALLY_OK,
            NULL);
        bits += (double)stats.payload_bits / MESSAGES;
    }
    tally_buffer_fini(&payload);
    CU_ASSERT_DOUBLE_EQUAL(bits, DIM * tally_calm_rate(1) + TALLY_CALM_MESSAGE_BITS, 0.5);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_algorithms_calm_model__steps),
    TALLY_TEST(test_algorithms_calm_model__step_minimises_the_next_variance),
    TALLY_TEST(test_algorithms_calm_model__steps_of_extreme_constants),
    TALLY_TEST(test_algorithms_calm_model__forecast_is_that_of_the_reference),
    TALLY_TEST(test_algorithms_calm_model__forecast_from_the_middle),
    TALLY_TEST(test_algorithms_calm_model__horizon_cuts_the_schedule),
    TALLY_TEST(test_algorithms_calm_model__monotone),
    TALLY_TEST(test_algorithms_calm_model__merge),
    TALLY_TEST(test_algorithms_calm_model__grids),
    TALLY_TEST(test_algorithms_calm_model__rate),
    TALLY_TEST(test_algorithms_calm_model__message_bits_are_those_of_the_coder),
    TALLY_TEST(test_algorithms_calm_model__step_ratio_is_the_inverse_of_the_rate),
};
TALLY_SUITE(algorithms_calm_model, TESTS);
