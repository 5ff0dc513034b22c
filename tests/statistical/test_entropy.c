/* The encoding `entropy` against the entropy. Levels are drawn from the distribution of a
 * stochastically rounded normal variable of s.d. s steps. Level m has the probability
 *
 *     p(m) = s (H((m + 1)/s) - 2 H(m/s) + H((m - 1)/s)),   H(t) = phi(t) - t Q(t)
 *
 * On average no code is shorter than d times its entropy. The mean length of R messages has the
 * standard error sqrt(d V / R), where V is the variance of -log2 p(m), which is below 3. The bounds
 * are on the mean of length - (-sum log2 p(m)), which has the same expectation as
 * length - d * entropy and almost no variance. */
#include <math.h>
#include <stdlib.h>

#include "codec/encoding.h"
#include "codec/numeric/rng.h"
#include "tests/harness.h"

enum { REACH = 40 }; /* levels beyond have negligible probability */

struct source {
    double probability[2 * REACH + 1];
    double entropy; /* bits */
};

static double tail(double t)
{
    return exp(-t * t / 2) / sqrt(2 * M_PI) - t * 0.5 * erfc(t / M_SQRT2);
}

static struct source source_of(double s)
{
    struct source source = {.entropy = 0};
    for (int m = 0; m <= REACH; m++) {
        const double p = m == 0 ? 1 + 2 * s * (tail(1 / s) - tail(0))
                                : s * (tail((m + 1) / s) - 2 * tail(m / s) + tail((m - 1) / s));
        source.probability[REACH + m] = source.probability[REACH - m] = p;
        source.entropy -= p > 0 ? (m == 0 ? 1 : 2) * p * log2(p) : 0;
    }
    return source;
}

static double draw(const struct source *source, struct tally_rng *rng, double s, int32_t *levels,
                   size_t dim)
{
    double *normal = malloc(dim * sizeof *normal);
    CU_ASSERT_PTR_NOT_NULL_FATAL(normal);
    tally_rng_normal(rng, normal, dim);
    double information = 0;
    for (size_t i = 0; i < dim; i++) {
        levels[i] = (int32_t)floor(s * normal[i] + tally_rng_uniform(rng));
        information -= log2(source->probability[levels[i] + REACH]);
    }
    free(normal);
    return information;
}

static const double SPREADS[] = {0.3, 0.5, 1, 1.6, 3};
enum { N_SPREADS = sizeof SPREADS / sizeof SPREADS[0] };

/* Returns the mean number of bits above the entropy over R messages. Checks that the draws have the
 * expected entropy. */
static double mean_excess(double s, size_t dim, uint32_t repetitions, double *ret_entropy)
{
    static const struct tally_grid grid = {.step = 1, .intervals = 2 * REACH};
    const struct source source = source_of(s);
    const struct tally_encoding *entropy = &TALLY_ENCODING_ENTROPY;
    int32_t *levels = malloc(dim * sizeof *levels);
    CU_ASSERT_PTR_NOT_NULL_FATAL(levels);
    const size_t n = entropy->bound(levels, dim);
    uint8_t *data = malloc(n);
    CU_ASSERT_PTR_NOT_NULL_FATAL(data);
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(11, (uint32_t)dim), 0, (uint32_t)(10 * s), TALLY_RNG_NOISE);
    double excess = 0, information = 0;
    for (uint32_t r = 0; r < repetitions; r++) {
        const double bits = draw(&source, &rng, s, levels, dim);
        struct tally_level_stats stats;
        CU_ASSERT_EQUAL(entropy->encode(levels, dim, &grid, data, n, &stats), TALLY_OK);
        excess += (double)stats.payload_bits - bits;
        information += bits;
    }
    free(levels);
    free(data);
    const double draws = (double)dim * repetitions;
    CU_ASSERT_TRUE(fabs(information - draws * source.entropy) < 5 * sqrt(3 * draws));
    *ret_entropy = (double)dim * source.entropy;
    return excess / repetitions;
}

static void test_statistical_entropy__thirty_levels_cost_at_most_8_bits_more(void)
{
    for (int k = 0; k < N_SPREADS; k++) {
        double entropy;
        const double excess = mean_excess(SPREADS[k], 30, 4000, &entropy);
        CU_ASSERT_TRUE(excess <= 8);
        CU_ASSERT_TRUE(excess > 0);
    }
}

static void test_statistical_entropy__7840_levels_cost_at_most_1_5_percent_more(void)
{
    for (int k = 0; k < N_SPREADS; k++) {
        double entropy;
        const double excess = mean_excess(SPREADS[k], 7840, 40, &entropy);
        CU_ASSERT_TRUE(excess <= 0.015 * entropy);
        CU_ASSERT_TRUE(excess > 0);
    }
}

static void test_statistical_entropy__a_million_levels_cost_at_most_half_a_percent_more(void)
{
    for (int k = 0; k < N_SPREADS; k++) {
        double entropy;
        const double excess = mean_excess(SPREADS[k], 1000000, 2, &entropy);
        CU_ASSERT_TRUE(excess <= 0.005 * entropy);
        CU_ASSERT_TRUE(excess > 0);
    }
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_statistical_entropy__thirty_levels_cost_at_most_8_bits_more),
    TALLY_TEST(test_statistical_entropy__7840_levels_cost_at_most_1_5_percent_more),
    TALLY_TEST(test_statistical_entropy__a_million_levels_cost_at_most_half_a_percent_more),
};
TALLY_SUITE(statistical_entropy, TESTS);
