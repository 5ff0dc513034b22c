#include "codec/ledger.h"

#include <string.h>

#include "tests/harness.h"

/* A ledger consists only of 64-bit counters, so the tests can treat it as an array. */
enum { N_COUNTERS = sizeof(struct tally_ledger) / sizeof(uint64_t) };

static void test_codec_ledger__adds_every_counter(void)
{
    uint64_t a[N_COUNTERS], b[N_COUNTERS], sum[N_COUNTERS];
    for (size_t i = 0; i < N_COUNTERS; i++) {
        a[i] = UINT64_C(1) << (2 * i);
        b[i] = 3 * i + 1 + (UINT64_C(1) << 40); /* above 32 bits */
    }
    struct tally_ledger ledger, more;
    memcpy(&ledger, a, sizeof ledger);
    memcpy(&more, b, sizeof more);
    tally_ledger_add(&ledger, &more);
    memcpy(sum, &ledger, sizeof sum);
    for (size_t i = 0; i < N_COUNTERS; i++) {
        CU_ASSERT_EQUAL(sum[i], a[i] + b[i]);
    }
    CU_ASSERT_EQUAL(memcmp(&more, b, sizeof more), 0);
}

static void test_codec_ledger__keeps_directions_apart(void)
{
    struct tally_ledger ledger = {0};
    tally_ledger_add(&ledger, &(struct tally_ledger){.uplink.formula_bits = 5});
    tally_ledger_add(&ledger, &(struct tally_ledger){.downlink.payload_bits = 7});
    tally_ledger_add(&ledger, &(struct tally_ledger){.telemetry_bits = 9, .control_bits = 1});
    CU_ASSERT_EQUAL(ledger.uplink.formula_bits, 5);
    CU_ASSERT_EQUAL(ledger.uplink.payload_bits, 0);
    CU_ASSERT_EQUAL(ledger.downlink.formula_bits, 0);
    CU_ASSERT_EQUAL(ledger.downlink.payload_bits, 7);
    CU_ASSERT_EQUAL(ledger.delivered_payload_bits, 0);
    CU_ASSERT_EQUAL(ledger.control_bits, 1);
    CU_ASSERT_EQUAL(ledger.telemetry_bits, 9);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_codec_ledger__adds_every_counter),
    TALLY_TEST(test_codec_ledger__keeps_directions_apart),
};
TALLY_SUITE(codec_ledger, TESTS);
