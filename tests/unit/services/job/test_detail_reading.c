#include "services/job/detail_reading.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "codec/utf8.h"
#include "services/job/job_detail.h"
#include "tests/harness.h"

/* Fills every byte of a struct's numbers with a different small value, through its members. */
static struct tally_ledger ledger(uint64_t first)
{
    return (struct tally_ledger){.uplink = {first, first + 1, first + 2, first + 3},
                                 .downlink = {first + 4, first + 5, first + 6, first + 7},
                                 .delivered_payload_bits = first + 8,
                                 .control_bits = first + 9,
                                 .telemetry_bits = first + 10};
}

static bool is_same_text(const struct tally_json *a, const struct tally_json *b)
{
    struct tally_buffer texts[2] = {{0}, {0}};
    TALLY_ASSERT_STATUS(tally_json_dump(a, 0, &texts[0]), TALLY_OK, NULL);
    TALLY_ASSERT_STATUS(tally_json_dump(b, 0, &texts[1]), TALLY_OK, NULL);
    const bool same =
        texts[0].size == texts[1].size && memcmp(texts[0].data, texts[1].data, texts[0].size) == 0;
    tally_buffer_fini(&texts[0]);
    tally_buffer_fini(&texts[1]);
    return same;
}

/* All members of a record, NaN among them, come back. */
static void test_job_detail_reading__a_record_comes_back(void)
{
    const struct tally_round_record record = {.round = 7,
                                              .time_step = 80,
                                              .iterate = 6,
                                              .stage = 5,
                                              .samples = 12,
                                              .received = 3,
                                              .missing = "3 7-9 ...",
                                              .norm = 0.1,
                                              .passed = true,
                                              .cut = true,
                                              .loss = (double)NAN,
                                              .cumulative_regret = 1.0 / 3,
                                              .bits = ledger(100),
                                              .closed_ms = 123456,
                                              .metrics = "a 0.10000000000000001 -0 1;b 2 1 3;"};
    struct tally_round_record read;
    struct tally_json *object = tally_detail_round(&record);
    tally_detail_read_round(object, &read);
    CU_ASSERT_TRUE(isnan(read.loss));
    read.loss = record.loss;
    CU_ASSERT_EQUAL(memcmp(&read, &record, sizeof read), 0);
    tally_json_free(object);
}

static void test_job_detail_reading__a_detail_comes_back(void)
{
    static const struct {
        enum tally_job_status status;
        const char *reason;
    } ENDS[] = {{TALLY_JOB_COMPLETED, ""},
                {TALLY_JOB_COMPLETED, "stop_rule_met: loss 1 is below 2"},
                {TALLY_JOB_FAILED, "diverged: the regret is not finite"},
                {TALLY_JOB_FAILED, "what an early release wrote"},
                {TALLY_JOB_CANCELLED, ""}};
    for (size_t i = 0; i < sizeof ENDS / sizeof *ENDS; i++) {
        const struct tally_job_facts facts = {.id = "0123456789ab",
                                              .status = ENDS[i].status,
                                              .reason = ENDS[i].reason,
                                              .clients = 10,
                                              .dim = 30,
                                              .created_ms = 1000,
                                              .started_ms = i > 0 ? 2000 : 0,
                                              .finished_ms = 3000,
                                              .recovery_bits = 64,
                                              .wire_in_bytes = 5000,
                                              .wire_out_bytes = 6000,
                                              .curvature = {3.5, 0.25}};
        const struct tally_progress progress = {
            .round = 4,
            .time_step = 88,
            .iterate = 3,
            .stage = 5,
            .cumulative_regret = 1.0 / 3,
            .f_star = i > 0 ? -0.0 : 0,
            .has_f_star = i > 0,
            .loss = 0.4375,
            .x_checksum = 0xabcdef,
            .estimates = {.sigma = 0.5, .step_size = 0.125},
            .bits = ledger(9),
            .metrics = "a 1 2 3;",
            .stopped = {.rule = "loss", .value = 0.1, .round = 3},
            .setback = "it said no"};
        struct tally_detail_facts read;
        struct tally_progress read_progress;
        struct tally_json *object = tally_json_object(), *again = tally_json_object();
        CU_ASSERT_TRUE(tally_detail_add(object, &facts, &progress));
        tally_detail_read(object, &read, &read_progress);
        TALLY_ASSERT_TEXT(read.reason, ENDS[i].reason);
        CU_ASSERT_EQUAL(read_progress.x_checksum, progress.x_checksum);
        CU_ASSERT_EQUAL(memcmp(&read_progress.bits, &progress.bits, sizeof progress.bits), 0);
        const struct tally_job_facts read_facts = {.id = read.id,
                                                   .status = read.status,
                                                   .reason = read.reason,
                                                   .clients = 10,
                                                   .dim = 30,
                                                   .created_ms = read.created_ms,
                                                   .started_ms = read.started_ms,
                                                   .finished_ms = read.finished_ms,
                                                   .recovery_bits = read.recovery_bits,
                                                   .wire_in_bytes = read.wire_in_bytes,
                                                   .wire_out_bytes = read.wire_out_bytes,
                                                   .curvature = read.curvature};
        CU_ASSERT_TRUE(tally_detail_add(again, &read_facts, &read_progress));
        CU_ASSERT_TRUE(is_same_text(object, again));
        tally_json_free(object);
        tally_json_free(again);
    }
}

/* The stored text of a plan has all digits. */
static void test_job_detail_reading__a_plan_comes_back(void)
{
    const struct tally_planned planned = {
        .schedule = {.n = 1, .epochs = {{14, 1.0 / 3, 1.5}}},
        .forecast = {.n = 2, .epochs = {{.samples = 14}, {.samples = 86}}}};
    struct tally_detail_facts read;
    struct tally_progress progress;
    char expected[64];
    struct tally_json *object = tally_json_object();
    CU_ASSERT_TRUE(tally_planned_set(object, &planned));
    tally_detail_read(object, &read, &progress);
    snprintf(expected, sizeof expected, "1 14 %a %a", 1.0 / 3, 1.5);
    TALLY_ASSERT_TEXT(read.schedule, expected);
    tally_json_free(object);
}

static struct tally_json *parsed(const char *text)
{
    struct tally_json *value = NULL;
    TALLY_ASSERT_STATUS(tally_json_parse(text, strlen(text), &value, NULL), TALLY_OK, NULL);
    return value;
}

/* What is of another type, too long or out of order is left out, and nothing is read past. */
static void test_job_detail_reading__foreign_members_are_left_out(void)
{
    static const char *const TEXTS[] = {
        "{}", "{\"id\":5,\"status\":\"x\",\"round\":\"9\",\"bits\":7,\"metrics\":[1]}",
        "{\"metrics\":{\"b\":{},\"a\":{\"mean\":1}},\"bits\":{\"control\":-1}}",
        "{\"metrics\":{\"A\":{}},\"stopped_by\":{\"rule\":3},\"planned\":{\"epochs\":5}}"};
    for (size_t i = 0; i < sizeof TEXTS / sizeof *TEXTS; i++) {
        struct tally_json *value = parsed(TEXTS[i]);
        struct tally_detail_facts facts;
        struct tally_progress progress;
        tally_detail_read(value, &facts, &progress);
        TALLY_ASSERT_TEXT(facts.id, "");
        CU_ASSERT_EQUAL(facts.status, TALLY_JOB_QUEUED);
        CU_ASSERT_EQUAL(progress.round, 0);
        CU_ASSERT_EQUAL(progress.bits.control_bits, 0);
        CU_ASSERT_PTR_NULL(strchr(progress.metrics, 'A'));
        TALLY_ASSERT_TEXT(progress.stopped.rule, "");
        tally_json_free(value);
    }
    /* As many metrics as there is room for, with the longest names and numbers. */
    struct tally_buffer text = {0};
    struct tally_round_record record;
    for (int i = 0; i < 40; i++) {
        tally_buffer_printf(
            &text,
            "%s\"m%02d_abcdefghijklmnopqrstuvwxyz_0\":{\"mean\":-1.2345678901234567e-308,"
            "\"min\":-1.2345678901234567e-308,\"max\":-1.2345678901234567e-308}",
            i == 0 ? "{\"metrics\":{" : ",", i);
    }
    tally_buffer_append(&text, "}}", 3);
    struct tally_json *value = parsed((const char *)text.data);
    tally_detail_read_round(value, &record);
    const char *at = record.metrics;
    struct tally_metric_summary summary;
    int n = 0;
    while (tally_metrics_next(&at, &summary)) {
        n++;
    }
    CU_ASSERT_EQUAL(n, TALLY_JOB_METRICS_MOST);
    tally_json_free(value);
    tally_buffer_fini(&text);
}

/* Whatever is read can be shown again. */
static void test_job_detail_reading__long_texts_are_cut_between_characters(void)
{
    for (int n_before = 0; n_before < 2; n_before++) {
        struct tally_buffer text = {0};
        struct tally_detail_facts facts;
        struct tally_progress progress;
        struct tally_round_record record;
        static const char *const KEYS[] = {"missing", "reason", "setback"};
        for (size_t i = 0; i < 3; i++) {
            tally_buffer_printf(&text, "%s\"%s\":\"%.*s", i == 0 ? "{" : ",", KEYS[i], n_before,
                                "x");
            for (int j = 0; j < 1000; j++) {
                tally_buffer_append_text(&text, "\u00c4");
            }
            tally_buffer_append_text(&text, "\"");
        }
        tally_buffer_append(&text, "}", 2);
        struct tally_json *value = parsed((const char *)text.data);
        tally_detail_read(value, &facts, &progress);
        tally_detail_read_round(value, &record);
        const char *const texts[] = {record.missing, facts.reason, progress.setback};
        for (size_t i = 0; i < 3; i++) {
            const size_t n = strlen(texts[i]);
            CU_ASSERT_TRUE(n > 0 && n % 2 == (size_t)n_before);
            CU_ASSERT_EQUAL(tally_utf8_valid_prefix(texts[i], n), n);
        }
        tally_json_free(value);
        tally_buffer_fini(&text);
    }
}

static void test_job_detail_reading__differences_have_names(void)
{
    static const struct {
        const char *a, *b, *key; /* NULL = they match */
    } CASES[] = {{"{\"a\":1,\"b\":2}", "{\"b\":2,\"a\":1}", NULL},
                 {"{\"a\":1}", "{\"a\":1.0}", "a"},
                 {"{\"a\":1}", "{}", "a"},
                 {"{}", "{\"b\":null}", "b"},
                 {"{\"skip\":1}", "{\"skip\":2}", NULL},
                 {"{\"a\":{\"x\":1}}", "{\"a\":{\"x\":2}}", "a"}};
    static const char *const OTHERS[] = {"skip", NULL};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        char key[TALLY_DETAIL_KEY_CAPACITY] = "";
        struct tally_json *a = parsed(CASES[i].a), *b = parsed(CASES[i].b);
        CU_ASSERT_EQUAL(tally_detail_matches(a, b, OTHERS, key), CASES[i].key == NULL);
        TALLY_ASSERT_TEXT(key, CASES[i].key != NULL ? CASES[i].key : "");
        tally_json_free(a);
        tally_json_free(b);
    }
    CU_ASSERT_EQUAL(tally_detail_read_checksum("00000000000000ff"), 255);
    CU_ASSERT_EQUAL(tally_detail_read_checksum("00000000000000FF"), 0);
    CU_ASSERT_EQUAL(tally_detail_read_checksum("ff"), 0);
    CU_ASSERT_EQUAL(tally_detail_read_checksum(NULL), 0);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_job_detail_reading__a_record_comes_back),
    TALLY_TEST(test_job_detail_reading__a_detail_comes_back),
    TALLY_TEST(test_job_detail_reading__a_plan_comes_back),
    TALLY_TEST(test_job_detail_reading__foreign_members_are_left_out),
    TALLY_TEST(test_job_detail_reading__long_texts_are_cut_between_characters),
    TALLY_TEST(test_job_detail_reading__differences_have_names),
};
TALLY_SUITE(job_detail_reading, TESTS);
