#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/coordinator/rest_thinning.h"
#include "tests/harness.h"

/* Repeatable values without a pattern: norm and loss are hashes of the round. */
static double hash_of(int64_t round, uint64_t salt)
{
    uint64_t x = ((uint64_t)round + salt) * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 29)) * UINT64_C(0xbf58476d1ce4e5b9);
    return (double)((x ^ (x >> 32)) >> 11) / 9007199254740992.0;
}

static struct tally_round_record record_of(int64_t round)
{
    return (struct tally_round_record){
        .round = round,
        .time_step = 3 * round,
        .iterate = round / 7 + 1,
        .stage = round % 7,
        .samples = 3,
        .received = 10,
        .norm = hash_of(round, 1),
        .passed = round % 7 == 0,
        .cut = round % 11 == 0,
        .loss = hash_of(round, 2),
        .cumulative_regret = 0.5 * (double)round,
        .bits = {.uplink = {.formula_bits = (uint64_t)round, .payload_bits = 7, .messages = 10},
                 .downlink = {.formula_bits = 5, .payload_bits = 6, .messages = 1},
                 .control_bits = 1,
                 .telemetry_bits = 64},
        .closed_ms = 1000 + 2 * round};
}

static void add(struct series *series, const struct tally_round_record *record)
{
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(series_add(series, record, &err), TALLY_OK, &err);
}

static void fill(struct series *series, int64_t n)
{
    *series = (struct series){0};
    for (int64_t round = 1; round <= n; round++) {
        const struct tally_round_record record = record_of(round);
        add(series, &record);
    }
}

/* Checks that each row matches its round and has exact totals. */
static void assert_rows_true(const struct series_row *rows, size_t n)
{
    size_t n_wrong = 0;
    for (size_t i = 0; i < n; i++) {
        const struct series_row *row = &rows[i];
        const struct tally_round_record record = record_of(row->round);
        const uint64_t r = (uint64_t)row->round;
        const struct series_totals *totals = &row->totals;
        const struct tally_ledger *bits = &totals->bits;
        const bool same = row->time_step == record.time_step && row->iterate == record.iterate &&
                          row->stage == record.stage && row->samples == record.samples &&
                          row->norm == record.norm && row->loss == record.loss &&
                          row->passed == record.passed && row->cut == record.cut &&
                          row->closed_ms == record.closed_ms;
        const bool exact =
            totals->cumulative_regret == record.cumulative_regret &&
            bits->uplink.formula_bits == r * (r + 1) / 2 && bits->uplink.payload_bits == 7 * r &&
            bits->downlink.formula_bits == 5 * r && bits->downlink.payload_bits == 6 * r &&
            bits->uplink.messages == 10 * r && bits->downlink.messages == r &&
            bits->control_bits == r && bits->telemetry_bits == 64 * r;
        n_wrong += !same || !exact || (i > 0 && row->round <= rows[i - 1].round);
    }
    CU_ASSERT_EQUAL(n_wrong, 0);
}

static bool has_round(const struct series_row *rows, size_t n, int64_t round)
{
    for (size_t i = 0; i < n; i++) {
        if (rows[i].round == round) {
            return true;
        }
    }
    return false;
}

/* Whether the rows include the four extremes of rounds first..last. */
static bool has_extremes(const struct series_row *rows, size_t n, int64_t first, int64_t last)
{
    int64_t at[4] = {first, first, first, first};
    for (int64_t round = first + 1; round <= last; round++) {
        at[0] = hash_of(round, 1) < hash_of(at[0], 1) ? round : at[0];
        at[1] = hash_of(round, 1) > hash_of(at[1], 1) ? round : at[1];
        at[2] = hash_of(round, 2) < hash_of(at[2], 2) ? round : at[2];
        at[3] = hash_of(round, 2) > hash_of(at[3], 2) ? round : at[3];
    }
    return has_round(rows, n, at[0]) && has_round(rows, n, at[1]) && has_round(rows, n, at[2]) &&
           has_round(rows, n, at[3]);
}

static struct series_row ROWS[SERIES_MAX_POINTS];

static void test_coordinator_thinning__few_rounds_are_all_there(void)
{
    static const int64_t lengths[] = {0, 1, 2, 9, 10, 999, 1000, 10000};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        struct series series;
        fill(&series, lengths[i]);
        const size_t n_max = lengths[i] > 1000 ? 10000 : lengths[i] > 10 ? 1000 : 10;
        CU_ASSERT_EQUAL(series_thin(&series, n_max, ROWS), (size_t)lengths[i]);
        CU_ASSERT_EQUAL(series.n_rounds, lengths[i]);
        CU_ASSERT_EQUAL(series_last_round(&series), lengths[i]);
        assert_rows_true(ROWS, (size_t)lengths[i]);
        series_fini(&series);
    }
}

static void test_coordinator_thinning__many_rounds_are_bounded(void)
{
    static const int64_t lengths[] = {11, 1001, 10001, 12000, 12001, 12345, 50000, 100003};
    static const size_t points[] = {10, 11, 100, 1000, 9999, 10000};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        struct series series;
        fill(&series, lengths[i]);
        CU_ASSERT_TRUE(series.n_rows <= SERIES_MAX_ROWS);
        CU_ASSERT_EQUAL(series.n_rounds, lengths[i]);
        for (size_t j = 0; j < sizeof points / sizeof points[0]; j++) {
            const size_t n = series_thin(&series, points[j], ROWS);
            CU_ASSERT_TRUE_FATAL(n >= 2 && n <= points[j]);
            /* Thinning uses most of the permitted rows; how many depends on the steps of the
             * width. */
            CU_ASSERT_TRUE((int64_t)n == lengths[i] || n >= points[j] / 5);
            CU_ASSERT_EQUAL(ROWS[0].round, 1);
            CU_ASSERT_EQUAL(ROWS[n - 1].round, lengths[i]);
            assert_rows_true(ROWS, n);
            CU_ASSERT_TRUE(has_extremes(ROWS, n, 1, lengths[i]));
        }
        series_fini(&series);
    }
}

/* The result is as if all rounds had been kept and thinned at once: each bucket keeps its extremes,
 * even if the list was thinned several times in between. */
static void test_coordinator_thinning__every_bucket_keeps_its_extremes(void)
{
    static const int64_t n_rounds = 100003;
    struct series series;
    fill(&series, n_rounds);
    CU_ASSERT_TRUE_FATAL(series.width > 1);
    const size_t n_max = 1000;
    const size_t n = series_thin(&series, n_max, ROWS);
    const int64_t n_buckets = (int64_t)(n_max - 2) / 4;
    int64_t width = (n_rounds + n_buckets - 1) / n_buckets;
    width = (width + series.width - 1) / series.width * series.width;
    size_t n_bad = 0;
    for (int64_t first = 1; first <= n_rounds; first += width) {
        const int64_t last = first + width - 1 < n_rounds ? first + width - 1 : n_rounds;
        n_bad += !has_extremes(ROWS, n, first, last);
    }
    CU_ASSERT_EQUAL(n_bad, 0);
    /* The narrow buckets of the list itself keep their extremes too. */
    n_bad = 0;
    for (int64_t first = 1; first <= 6000; first += series.width) {
        n_bad += !has_extremes(series.rows, series.n_rows, first, first + series.width - 1);
    }
    CU_ASSERT_EQUAL(n_bad, 0);
    series_fini(&series);
}

static void test_coordinator_thinning__a_single_spike_survives(void)
{
    for (int64_t spike = 2; spike < 60000; spike += 9973) {
        struct series series = {0};
        for (int64_t round = 1; round <= 60000; round++) {
            struct tally_round_record record = record_of(round);
            record.norm = round == spike ? 1e6 : 1;
            record.loss = round == spike + 1 ? -1e6 : round == spike + 2 ? 1e6 : NAN;
            add(&series, &record);
        }
        const size_t n = series_thin(&series, SERIES_MIN_POINTS, ROWS);
        CU_ASSERT_TRUE(n <= SERIES_MIN_POINTS);
        CU_ASSERT_TRUE(has_round(ROWS, n, spike));
        CU_ASSERT_TRUE(has_round(ROWS, n, spike + 1)); /* the only rounds with a loss */
        CU_ASSERT_TRUE(has_round(ROWS, n, spike + 2));
        series_fini(&series);
    }
}

static void test_coordinator_thinning__rounds_must_ascend(void)
{
    static const int64_t bad[] = {5, 4, 1, 0, -1, INT64_MIN};
    struct series series;
    fill(&series, 5);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct tally_round_record record = record_of(1);
        record.round = bad[i];
        struct tally_error err = TALLY_ERROR_INIT;
        TALLY_ASSERT_STATUS(series_add(&series, &record, &err), TALLY_DATA_LOSS, &err);
    }
    CU_ASSERT_EQUAL(series.n_rounds, 5);
    CU_ASSERT_EQUAL(series_thin(&series, 10, ROWS), 5);
    assert_rows_true(ROWS, 5);
    series_fini(&series);
    /* The largest round numbers do not overflow. */
    struct tally_round_record record = record_of(1);
    for (int i = 0; i < 20; i++) {
        record.round = i < 10 ? i + 1 : INT64_MAX - 20 + i;
        add(&series, &record);
    }
    const size_t n = series_thin(&series, 10, ROWS);
    CU_ASSERT_TRUE(n >= 2 && n <= 10);
    CU_ASSERT_EQUAL(ROWS[n - 1].round, INT64_MAX - 1);
    series_fini(&series);
}

static void test_coordinator_thinning__search(void)
{
    struct series series = {0};
    CU_ASSERT_PTR_NULL(series_at_or_before(&series, 7));
    fill(&series, 30000);
    size_t n_bad = 0;
    for (int64_t round = 1; round <= 30000; round++) {
        const struct series_row *row = series_at_or_before(&series, round);
        n_bad += row == NULL || row->round > round ||
                 (row + 1 < series.rows + series.n_rows && (row + 1)->round <= round);
    }
    CU_ASSERT_EQUAL(n_bad, 0);
    CU_ASSERT_PTR_NULL(series_at_or_before(&series, 0));
    CU_ASSERT_EQUAL(series_at_or_before(&series, INT64_MAX)->round, 30000);
    series_fini(&series);
}

static void test_coordinator_thinning__totals_of_progress_are_those_of_the_rounds(void)
{
    struct series series;
    struct tally_progress progress = {.round = 0};
    fill(&series, 100);
    for (int64_t round = 1; round <= 100; round++) {
        const struct tally_round_record record = record_of(round);
        tally_ledger_add(&progress.bits, &record.bits);
        progress.cumulative_regret = record.cumulative_regret;
    }
    const struct series_totals totals = series_totals_of(&progress);
    CU_ASSERT_EQUAL(memcmp(&totals, &series.totals, sizeof totals), 0);
    series_fini(&series);
}

/* Metric "b" occurs in every fifth round from round 1 on; "a" in every round from round 100 on. */
static void add_with_metrics(struct series *series, int64_t round)
{
    struct tally_round_record record = record_of(round);
    if (round >= 100) {
        const struct tally_metric_summary a = {"a", (double)round, -1, (double)round + 1};
        tally_metrics_append(record.metrics, &a);
    }
    if (round % 5 == 1) {
        const struct tally_metric_summary b = {"b", 0.5 * (double)round, 0, 0.25};
        tally_metrics_append(record.metrics, &b);
    }
    add(series, &record);
}

static bool has_metrics_of_its_round(const struct series *series, const struct series_row *row)
{
    const double *b = series_metric(series, row, 0);
    const double *a = series_metric(series, row, 1);
    const double r = (double)row->round;
    const bool a_is_right =
        row->round >= 100 ? a[0] == r && a[1] == -1 && a[2] == r + 1 : isnan(a[0]) && isnan(a[2]);
    const bool b_is_right = row->round % 5 == 1 ? b[0] == 0.5 * r && b[1] == 0 && b[2] == 0.25
                                                : isnan(b[0]) && isnan(b[1]);
    return a_is_right && b_is_right;
}

static void test_coordinator_thinning__metrics_stay_with_their_rounds(void)
{
    static const int64_t lengths[] = {100, 1000, 12000, 12001, 50000};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        struct series series = {0};
        for (int64_t round = 1; round <= lengths[i]; round++) {
            add_with_metrics(&series, round);
        }
        CU_ASSERT_EQUAL(series.metrics.n_names, 2);
        CU_ASSERT_STRING_EQUAL(series.metrics.names[0], "b");
        CU_ASSERT_STRING_EQUAL(series.metrics.names[1], "a");
        const size_t n = series_thin(&series, 500, ROWS);
        size_t n_wrong = 0;
        for (size_t k = 0; k < n; k++) {
            n_wrong += !has_metrics_of_its_round(&series, &ROWS[k]);
        }
        CU_ASSERT_EQUAL(n_wrong, 0);
        assert_rows_true(ROWS, n);
        series_fini(&series);
    }
}

static void test_coordinator_thinning__more_names_than_fit_are_left_out(void)
{
    struct series series = {0};
    for (int64_t round = 1; round <= 40; round++) {
        struct tally_round_record record = record_of(round);
        struct tally_metric_summary summary = {.mean = (double)round};
        snprintf(summary.name, sizeof summary.name, "m%02d", (int)round);
        tally_metrics_append(record.metrics, &summary);
        add(&series, &record);
    }
    CU_ASSERT_EQUAL(series.metrics.n_names, SERIES_METRICS_MOST);
    CU_ASSERT_STRING_EQUAL(series.metrics.names[31], "m32");
    CU_ASSERT_EQUAL(series_thin(&series, 100, ROWS), 40);
    for (int64_t round = 1; round <= 40; round++) {
        for (int name = 0; name < SERIES_METRICS_MOST; name++) {
            const double mean = series_metric(&series, &ROWS[round - 1], name)[0];
            CU_ASSERT_TRUE(name + 1 == round ? mean == (double)round : isnan(mean));
        }
    }
    series_fini(&series);
}

static void test_coordinator_thinning__the_last_round_may_get_its_evaluation(void)
{
    struct series series = {0};
    for (int64_t round = 1; round <= 3; round++) {
        struct tally_round_record record = record_of(round);
        record.bits.telemetry_bits = 100;
        add(&series, &record);
    }
    struct tally_round_record last = record_of(3);
    last.bits.telemetry_bits = 107;
    tally_metrics_append(last.metrics, &(struct tally_metric_summary){"accuracy", 0.5, 0.5, 0.5});
    for (int i = 0; i < 2; i++) { /* once more is no more */
        CU_ASSERT_EQUAL(series_renew(&series, &last, NULL), TALLY_OK);
        CU_ASSERT_EQUAL(series.n_rounds, 3);
        CU_ASSERT_EQUAL(series.totals.bits.telemetry_bits, 307);
        CU_ASSERT_EQUAL(series_thin(&series, 100, ROWS), 3);
        CU_ASSERT_TRUE(isnan(series_metric(&series, &ROWS[1], 0)[0]));
        CU_ASSERT_EQUAL(series_metric(&series, &ROWS[2], 0)[0], 0.5);
        CU_ASSERT_EQUAL(ROWS[2].totals.bits.telemetry_bits, 307);
    }
    struct tally_round_record next = record_of(4);
    next.bits.telemetry_bits = 1;
    add(&series, &next);
    CU_ASSERT_EQUAL(series.totals.bits.telemetry_bits, 308);
    series_fini(&series);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_coordinator_thinning__the_last_round_may_get_its_evaluation),
    TALLY_TEST(test_coordinator_thinning__few_rounds_are_all_there),
    TALLY_TEST(test_coordinator_thinning__many_rounds_are_bounded),
    TALLY_TEST(test_coordinator_thinning__every_bucket_keeps_its_extremes),
    TALLY_TEST(test_coordinator_thinning__a_single_spike_survives),
    TALLY_TEST(test_coordinator_thinning__rounds_must_ascend),
    TALLY_TEST(test_coordinator_thinning__search),
    TALLY_TEST(test_coordinator_thinning__totals_of_progress_are_those_of_the_rounds),
    TALLY_TEST(test_coordinator_thinning__metrics_stay_with_their_rounds),
    TALLY_TEST(test_coordinator_thinning__more_names_than_fit_are_left_out),
};
TALLY_SUITE(coordinator_thinning, TESTS);
