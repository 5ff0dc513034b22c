#include "services/experiment/run.h"

#include <math.h>
#include <string.h>

#include "codec/quantize/qsgd.h"
#include "tests/harness.h"
#include "tests/unit/services/experiment/shipped_jobs.h"

static void test_experiment_entropy__of_known_histograms(void)
{
    int32_t same[8] = {5, 5, 5, 5, 5, 5, 5, 5};
    CU_ASSERT_DOUBLE_EQUAL(tally_levels_entropy(same, 8), 0, 0);
    int32_t coin[8] = {1, -1, 1, -1, 1, -1, 1, -1};
    CU_ASSERT_DOUBLE_EQUAL(tally_levels_entropy(coin, 8), 8, 1e-12);
    int32_t all[4] = {3, -7, 0, 1};
    CU_ASSERT_DOUBLE_EQUAL(tally_levels_entropy(all, 4), 8, 1e-12);
    int32_t skewed[4] = {0, 0, 9, 0};
    CU_ASSERT_DOUBLE_EQUAL(tally_levels_entropy(skewed, 4), 3 * log2(4.0 / 3) + 2, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(tally_levels_entropy(skewed, 0), 0, 0);
}

static struct tally_job_spec job_with(const char *algorithm)
{
    char name[64];
    snprintf(name, sizeof name, "synthetic-%s-paper", algorithm);
    return shipped_job(name, 1, 1);
}

static double bits_of(const struct tally_job_spec *spec, bool is_uplink,
                      const struct tally_message_view *view)
{
    int32_t levels[30];
    double bits = -1;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_message_entropy(spec, is_uplink, view, levels, &bits, &err), TALLY_OK,
                        &err);
    return bits;
}

static void test_experiment_entropy__of_a_qsgd_message_has_its_norm(void)
{
    const struct tally_job_spec fedpaq = job_with("fedpaq");
    struct tally_job_spec diana = fedpaq;
    diana.algorithm = 7;
    CU_ASSERT_PTR_EQUAL_FATAL(tally_job_spec_algorithm(&diana), &TALLY_DIANA);
    int32_t levels[30] = {0};
    uint8_t bytes[64];
    const struct tally_qsgd zero = {3, 0};
    const uint64_t n_bits = tally_qsgd_bits(3, 30);
    struct tally_message_view view = {
        .payload = bytes, .n_payload = (n_bits + 7) / 8, .payload_bits = n_bits};
    TALLY_ASSERT_STATUS(tally_qsgd_encode(&zero, levels, 30, bytes, sizeof bytes), TALLY_OK, NULL);
    CU_ASSERT_DOUBLE_EQUAL(bits_of(&fedpaq, true, &view), 32, 0);

    const struct tally_qsgd half = {3, 2};
    for (int i = 0; i < 15; i++) {
        levels[i] = -3;
    }
    TALLY_ASSERT_STATUS(tally_qsgd_encode(&half, levels, 30, bytes, sizeof bytes), TALLY_OK, NULL);
    CU_ASSERT_DOUBLE_EQUAL(bits_of(&fedpaq, true, &view), 62, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(bits_of(&diana, true, &view), 62, 1e-12);
}

static void test_experiment_entropy__of_floats_is_their_size(void)
{
    const uint8_t bytes[120] = {0};
    const struct tally_message_view view = {
        .payload = bytes, .n_payload = sizeof bytes, .payload_bits = 960};
    static const char *const baselines[] = {"minibatch-sgd", "fedavg", "fedpaq", "fedcom"};
    for (size_t i = 0; i < 4; i++) {
        const struct tally_job_spec spec = job_with(baselines[i]);
        CU_ASSERT_DOUBLE_EQUAL(bits_of(&spec, false, &view), 960, 0);
        if (i < 2) { /* the others quantize */
            CU_ASSERT_DOUBLE_EQUAL(bits_of(&spec, true, &view), 960, 0);
        }
    }
}

static void test_experiment_entropy__of_ceal_is_that_of_its_levels(void)
{
    const struct tally_job_spec ceal = job_with("ceal");
    struct tally_grid grid;
    TALLY_ASSERT_STATUS(tally_grid_init(1, 1, 30, &grid, NULL), TALLY_OK, NULL);
    int32_t levels[30] = {0};
    levels[3] = 2;
    levels[17] = -1;
    uint8_t bytes[64];
    struct tally_level_stats stats;
    TALLY_ASSERT_STATUS(TALLY_ENCODING_UNARY.encode(levels, 30, &grid, bytes, sizeof bytes, &stats),
                        TALLY_OK, NULL);
    const struct tally_message_view view = {.payload = bytes,
                                            .n_payload = (stats.payload_bits + 7) / 8,
                                            .payload_bits = stats.payload_bits,
                                            .grid = grid};
    const double expected = 28 * log2(30.0 / 28) + 2 * log2(30.0);
    CU_ASSERT_DOUBLE_EQUAL(bits_of(&ceal, true, &view), expected, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(bits_of(&ceal, false, &view), expected, 1e-12);
}

static void test_experiment_entropy__refuses_junk(void)
{
    const struct tally_job_spec fedcom = job_with("fedcom");
    const uint8_t bytes[2] = {0xff, 0xff};
    const struct tally_message_view view = {
        .payload = bytes, .n_payload = sizeof bytes, .payload_bits = 16};
    int32_t levels[30];
    double bits;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_message_entropy(&fedcom, true, &view, levels, &bits, &err),
                        TALLY_MALFORMED, &err);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_experiment_entropy__of_known_histograms),
    TALLY_TEST(test_experiment_entropy__of_a_qsgd_message_has_its_norm),
    TALLY_TEST(test_experiment_entropy__of_floats_is_their_size),
    TALLY_TEST(test_experiment_entropy__of_ceal_is_that_of_its_levels),
    TALLY_TEST(test_experiment_entropy__refuses_junk),
};
TALLY_SUITE(experiment_entropy, TESTS);
