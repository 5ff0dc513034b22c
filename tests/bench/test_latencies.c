#include "tests/bench/latencies.h"

#include "tests/harness.h"

static struct tally_latencies latencies, more; /* large */

static void test_bench_latencies__quantiles_are_within_a_percent(void)
{
    latencies = (struct tally_latencies){0};
    for (int64_t i = 1; i <= 1000; i++) {
        tally_latencies_add(&latencies, i * 1000);
    }
    CU_ASSERT_EQUAL(latencies.n, 1000);
    CU_ASSERT_DOUBLE_EQUAL(tally_latencies_quantile_ms(&latencies, 0.5), 0.5, 0.005);
    CU_ASSERT_DOUBLE_EQUAL(tally_latencies_quantile_ms(&latencies, 0.99), 0.99, 0.01);
    CU_ASSERT_DOUBLE_EQUAL(tally_latencies_quantile_ms(&latencies, 0), 0.001, 0.00001);
    CU_ASSERT_DOUBLE_EQUAL(tally_latencies_quantile_ms(&latencies, 1), 1, 0.01);
}

static void test_bench_latencies__extremes_have_a_place(void)
{
    latencies = (struct tally_latencies){0};
    CU_ASSERT_EQUAL(tally_latencies_quantile_ms(&latencies, 0.5), 0);
    tally_latencies_add(&latencies, 0);
    tally_latencies_add(&latencies, INT64_MAX);
    CU_ASSERT(tally_latencies_quantile_ms(&latencies, 0.5) < 0.00001);
    CU_ASSERT(tally_latencies_quantile_ms(&latencies, 1) > 20 * 60 * 1000.0);
}

static void test_bench_latencies__merging_counts_both(void)
{
    latencies = more = (struct tally_latencies){0};
    tally_latencies_add(&latencies, 1000000);
    tally_latencies_add(&more, 4000000);
    tally_latencies_add(&more, 4000000);
    tally_latencies_merge(&latencies, &more);
    CU_ASSERT_EQUAL(latencies.n, 3);
    CU_ASSERT_DOUBLE_EQUAL(tally_latencies_quantile_ms(&latencies, 0.33), 1, 0.01);
    CU_ASSERT_DOUBLE_EQUAL(tally_latencies_quantile_ms(&latencies, 0.5), 4, 0.04);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_bench_latencies__quantiles_are_within_a_percent),
    TALLY_TEST(test_bench_latencies__extremes_have_a_place),
    TALLY_TEST(test_bench_latencies__merging_counts_both),
};
TALLY_SUITE(bench_latencies, TESTS);
