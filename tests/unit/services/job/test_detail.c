#include "services/job/job_detail.h"

#include <math.h>
#include <string.h>

#include "services/job/document.h"
#include "tests/harness.h"

static const struct tally_progress PROGRESS = {
    .round = 4,
    .time_step = 88,
    .iterate = 3,
    .stage = 5,
    .cumulative_regret = 433.25,
    .loss = 0.4375,
    .f_star = 0.98,
    .has_f_star = true,
    .x_checksum = 0x00ab,
    .bits = {.uplink = {2633, 2890, 40, 1},
             .downlink = {289, 301, 3, 2},
             .delivered_payload_bits = 3010,
             .control_bits = 1,
             .telemetry_bits = 960},
};

static const struct tally_round_record RECORD = {
    .round = 2,
    .time_step = 21,
    .iterate = 1,
    .stage = 3,
    .samples = 13,
    .received = 10,
    .missing = "3 17-20",
    .norm = 0.1,
    .passed = true,
    .loss = 1.5,
    .cumulative_regret = 12.75,
    .bits = {.uplink = {11, 12, 13, 14},
             .downlink = {21, 22, 23, 24},
             .delivered_payload_bits = 31,
             .control_bits = 32,
             .telemetry_bits = 33},
    .closed_ms = INT64_C(1795244547432),
};

static void expect_json(struct tally_json *value, const char *expected)
{
    struct tally_buffer out = {0};
    CU_ASSERT_PTR_NOT_NULL_FATAL(value);
    CU_ASSERT_EQUAL(tally_json_dump(value, 0, &out), TALLY_OK);
    CU_ASSERT_EQUAL(tally_buffer_append(&out, "", 1), TALLY_OK);
    /* Ignore spaces. */
    char *to = (char *)out.data;
    for (const char *from = to; *from != '\0'; from++) {
        if (*from != ' ') {
            *to++ = *from;
        }
    }
    *to = '\0';
    TALLY_ASSERT_TEXT((const char *)out.data, expected);
    tally_buffer_fini(&out);
    tally_json_free(value);
}

static void test_document_detail__job_has_the_members_of_the_architecture(void)
{
    const struct tally_job_facts facts = {.id = "job-1",
                                          .status = TALLY_JOB_RUNNING,
                                          .reason = "",
                                          .clients = 10,
                                          .dim = 30,
                                          .created_ms = 1000,
                                          .started_ms = 2000,
                                          .recovery_bits = 64,
                                          .wire_in_bytes = 5000,
                                          .wire_out_bytes = 6000};
    struct tally_json *object = tally_json_object();
    CU_ASSERT_TRUE(tally_detail_add(object, &facts, &PROGRESS));
    expect_json(
        object,
        "{\"id\":\"job-1\",\"status\":\"running\",\"reason\":null,\"reason_code\":null,"
        "\"stopped_by\":null,"
        "\"created_ms\":1000,"
        "\"started_ms\":2000,\"finished_ms\":null,\"dim\":30,\"time_step\":88,\"round\":4,"
        "\"iterate\":3,\"stage\":5,\"cumulative_regret\":433.25,\"loss\":0.4375,\"f_star\":0.98,"
        "\"x_checksum\":\"00000000000000ab\",\"estimates\":null,\"smoothness\":null,"
        "\"strong_convexity\":null,\"warnings\":[],\"planned\":null,\"waiting\":null,"
        "\"bits\":{"
        "\"uplink\":{\"formula\":2633,\"payload\":2890,\"messages\":40,\"clipped\":1},"
        "\"downlink\":{\"formula\":289,\"payload\":301,\"messages\":3,\"clipped\":2,"
        "\"delivered_payload\":3010},\"control\":1,\"telemetry\":960,"
        "\"uplink_per_client\":{\"formula\":263.3,\"payload\":289.0},\"recovery\":64,"
        "\"wire_bytes\":{\"in\":5000,\"out\":6000}}}");
}

/* `planned` holds the totals of the job and its epochs. The last epoch sends nothing. */
static void test_document_detail__a_planned_job_says_what_it_expects(void)
{
    const struct tally_planned planned = {
        .schedule = {.n = 1, .epochs = {{14, 1.25, 1.5}}},
        .forecast = {.regret = 522.5,
                     .uplink_bits = 62.25,
                     .downlink_bits = 61.5,
                     .n = 2,
                     .epochs = {{.samples = 14,
                                 .regret = 120.25,
                                 .uplink_bits = 62.25,
                                 .downlink_bits = 61.5,
                                 .variance = 0.0625},
                                {.samples = 86, .regret = 402.25, .variance = 0.0625}}}};
    const struct tally_job_facts facts = {
        .id = "", .status = TALLY_JOB_QUEUED, .reason = "", .clients = 10, .planned = &planned};
    struct tally_json *object = tally_json_object();
    CU_ASSERT_TRUE(tally_detail_add(object, &facts, &PROGRESS));
    expect_json(tally_json_copy(tally_json_get(object, "planned")),
                "{\"regret\":522.5,\"uplink_bits\":62.25,\"downlink_bits\":61.5,\"epochs\":["
                "{\"samples\":14,\"uplink_resolution\":1.25,\"downlink_resolution\":1.5,"
                "\"uplink_bits\":62.25,\"downlink_bits\":61.5,\"regret\":120.25,"
                "\"variance\":0.0625},{\"samples\":86,\"uplink_resolution\":null,"
                "\"downlink_resolution\":null,\"uplink_bits\":0.0,\"downlink_bits\":0.0,"
                "\"regret\":402.25,\"variance\":0.0625}]}");
    tally_json_free(object);
}

static struct tally_job_spec parsed(const char *document)
{
    struct tally_job_spec spec;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_document_parse(document, strlen(document), &spec, &err), TALLY_OK,
                        &err);
    return spec;
}

#define CALM(more)                                                                                 \
    "{\"name\":\"n\",\"clients\":2,\"horizon\":100,\"encoding\":\"dithered\","                     \
    "\"algorithm\":{\"type\":\"calm\",\"step_size\":3" more                                        \
    ",\"objective\":{\"type\":\"least_squares\",\"data\":{\"type\":\"synthetic_linear\","          \
    "\"dim\":30,\"points\":20,\"frobenius_norm\":10,\"noise_std\":1}}}"
#define KNOWN ",\"noise\":0.6,\"initial_variance\":0.2}"

/* A text is read as a plan only for jobs that are planned. */
static void test_document_detail__only_a_planned_job_has_a_plan(void)
{
    static const char TEXT[] = "1 14 0x1.4p+0 0x1.8p+0";
    const struct tally_job_spec known = parsed(CALM(KNOWN ",\"budget\":{\"uplink_bits\":200}"));
    const struct tally_job_spec free_of_budget = parsed(CALM(KNOWN));
    const struct tally_job_spec unknown = parsed(CALM("},\"budget\":{\"uplink_bits\":200}"));
    struct tally_planned planned;
    CU_ASSERT_TRUE_FATAL(tally_planned_read(&known, TEXT, &planned));
    CU_ASSERT_EQUAL(planned.schedule.epochs[0].samples, 14);
    CU_ASSERT_EQUAL(planned.forecast.n, 2);
    CU_ASSERT_EQUAL(planned.forecast.epochs[1].samples, 86);
    CU_ASSERT_TRUE(planned.forecast.regret > 0);
    CU_ASSERT_FALSE(tally_planned_read(&known, "", &planned));
    CU_ASSERT_FALSE(tally_planned_read(&free_of_budget, TEXT, &planned));
    CU_ASSERT_FALSE(tally_planned_read(&unknown, TEXT, &planned));
    struct tally_job_spec extreme = known;
    extreme.params.calm.step_size = 1e-300;
    CU_ASSERT_FALSE(tally_planned_read(&extreme, TEXT, &planned));
}

static const struct tally_waiting WAITING = {.what = TALLY_WAITS_FOR_CLIENTS,
                                             .since_ms = 3000,
                                             .n_clients = 3,
                                             .clients = "3 7-8",
                                             .workers = {"a", "b"},
                                             .n_workers = 2,
                                             .text = "waits for clients 3 7-8 (a, b)"};

static void test_document_detail__a_job_says_what_it_waits_for(void)
{
    const struct tally_job_facts facts = {
        .id = "", .status = TALLY_JOB_RUNNING, .reason = "", .clients = 10, .waiting = &WAITING};
    struct tally_json *object = tally_json_object();
    CU_ASSERT_TRUE(tally_detail_add(object, &facts, &PROGRESS));
    expect_json(tally_json_copy(tally_json_get(object, "waiting")),
                "{\"for\":\"clients\",\"since_ms\":3000,\"clients\":\"37-8\","
                "\"workers\":[\"a\",\"b\"],\"text\":\"waitsforclients37-8(a,b)\"}");
    tally_json_free(object);
}

static void test_document_detail__waiting_is_compared_by_all_it_says(void)
{
    struct tally_waiting other = WAITING;
    CU_ASSERT_TRUE(tally_waiting_equals(&WAITING, &other));
    other.since_ms++;
    CU_ASSERT_FALSE(tally_waiting_equals(&WAITING, &other));
    other = WAITING;
    other.what = TALLY_WAITS_FOR_STORE;
    CU_ASSERT_FALSE(tally_waiting_equals(&WAITING, &other));
    other = WAITING;
    other.clients[0] = '4';
    CU_ASSERT_FALSE(tally_waiting_equals(&WAITING, &other));
    other = WAITING;
    other.workers[1][0] = 'c';
    CU_ASSERT_FALSE(tally_waiting_equals(&WAITING, &other));
    other = WAITING;
    other.n_workers = 1;
    CU_ASSERT_FALSE(tally_waiting_equals(&WAITING, &other));
    other = WAITING;
    other.text[0] = 'W';
    CU_ASSERT_FALSE(tally_waiting_equals(&WAITING, &other));
}

static void test_document_detail__unknown_things_are_null(void)
{
    const struct tally_job_facts facts = {
        .id = "", .status = TALLY_JOB_FAILED, .reason = "disk", .clients = 1, .dim = 1};
    struct tally_progress progress = PROGRESS;
    progress.has_f_star = false;
    struct tally_json *object = tally_json_object();
    CU_ASSERT_TRUE(tally_detail_add(object, &facts, &progress));
    TALLY_ASSERT_TEXT(tally_json_get_text(object, "reason"), "disk");
    CU_ASSERT_PTR_NOT_NULL(tally_json_get(object, "reason_code"));
    CU_ASSERT_PTR_NULL(tally_json_get_text(object, "reason_code"));
    TALLY_ASSERT_TEXT(tally_json_get_text(object, "status"), "failed");
    CU_ASSERT_PTR_NOT_NULL(tally_json_get(object, "f_star"));
    CU_ASSERT_EQUAL(tally_json_get_real(object, "f_star", -7), -7);
    CU_ASSERT_EQUAL(tally_json_get_integer(object, "created_ms", -7), -7);
    tally_json_free(object);
}

static void expect_reason(enum tally_job_status status, const char *stored, const char *text,
                          const char *code)
{
    const struct tally_job_facts facts = {
        .id = "", .status = status, .reason = stored, .clients = 1, .dim = 1};
    struct tally_json *object = tally_json_object();
    CU_ASSERT_TRUE(tally_detail_add(object, &facts, &PROGRESS));
    const char *found = tally_json_get_text(object, "reason");
    TALLY_ASSERT_TEXT(found != NULL ? found : "null", text);
    TALLY_ASSERT_TEXT(tally_json_get_text(object, "reason_code"), code);
    tally_json_free(object);
}

static void test_document_detail__a_job_that_ended_has_a_reason_code(void)
{
    expect_reason(TALLY_JOB_COMPLETED, "", "null", "horizon_reached");
    expect_reason(TALLY_JOB_CANCELLED, "", "null", "cancelled_by_request");
    expect_reason(TALLY_JOB_FAILED, "diverged: norm is inf", "norm is inf", "diverged");
}

static void test_document_detail__curvature_comes_with_what_it_warns_of(void)
{
    const struct tally_advice advice = {.n = 2, .texts = {"too large", "too small"}};
    struct tally_job_facts facts = {.id = "",
                                    .status = TALLY_JOB_RUNNING,
                                    .reason = "",
                                    .clients = 1,
                                    .dim = 1,
                                    .curvature = {.smoothness = 4, .strong_convexity = 0},
                                    .advice = &advice};
    struct tally_json *object = tally_json_object();
    CU_ASSERT_TRUE(tally_detail_add(object, &facts, &PROGRESS));
    CU_ASSERT_EQUAL(tally_json_get_real(object, "smoothness", -7), 4);
    CU_ASSERT_EQUAL(tally_json_get_real(object, "strong_convexity", -7), 0);
    expect_json(tally_json_copy(tally_json_get(object, "warnings")), "[\"toolarge\",\"toosmall\"]");
    tally_json_free(object);
    facts.curvature = (struct tally_curvature){4, NAN}; /* as for a large quadratic */
    object = tally_json_object();
    CU_ASSERT_TRUE(tally_detail_add(object, &facts, &PROGRESS));
    CU_ASSERT_EQUAL(tally_json_get_real(object, "smoothness", -7), 4);
    CU_ASSERT_EQUAL(tally_json_get_real(object, "strong_convexity", -7), -7);
    tally_json_free(object);
}

static void test_document_detail__estimates_are_those_there_are(void)
{
    static const struct {
        struct tally_estimates estimates;
        const char *text;
    } rows[] = {
        {{.sigma = 0.5, .gradient_bound = 2},
         "{\"sigma\":0.5,\"gradient_bound\":2.0,\"step_size\":null,\"step_size_error\":null,"
         "\"noise_growth\":null}"},
        {{.sigma = 0.5},
         "{\"sigma\":0.5,\"gradient_bound\":null,\"step_size\":null,\"step_size_error\":null,"
         "\"noise_growth\":null}"},
        {{.gradient_bound = 2},
         "{\"sigma\":null,\"gradient_bound\":2.0,\"step_size\":null,\"step_size_error\":null,"
         "\"noise_growth\":null}"},
        {{.step_size = 4, .step_size_error = 0.25, .noise_growth = 3},
         "{\"sigma\":null,\"gradient_bound\":null,\"step_size\":4.0,\"step_size_error\":0.25,"
         "\"noise_growth\":3.0}"},
    };
    const struct tally_job_facts facts = {
        .id = "", .status = TALLY_JOB_RUNNING, .reason = "", .clients = 1, .dim = 1};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tally_progress progress = PROGRESS;
        progress.estimates = rows[i].estimates;
        struct tally_json *object = tally_json_object();
        CU_ASSERT_TRUE(tally_detail_add(object, &facts, &progress));
        expect_json(tally_json_copy(tally_json_get(object, "estimates")), rows[i].text);
        tally_json_free(object);
    }
}

/* Before the first round has closed, the engine's number has no meaning. */
static void test_document_detail__a_loss_needs_a_round_that_has_one(void)
{
    const struct tally_job_facts facts = {
        .id = "", .status = TALLY_JOB_RUNNING, .reason = "", .clients = 1, .dim = 1};
    const struct {
        int64_t round;
        double loss;
        const char *text;
    } rows[] = {{0, 0.5, "null"}, {1, 0.5, "0.5"}, {1, NAN, "null"}, {1, INFINITY, "null"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tally_progress progress = PROGRESS;
        progress.round = rows[i].round;
        progress.loss = rows[i].loss;
        struct tally_json *object = tally_json_object();
        CU_ASSERT_TRUE(tally_detail_add(object, &facts, &progress));
        expect_json(tally_json_copy(tally_json_get(object, "loss")), rows[i].text);
        tally_json_free(object);
    }
}

/* An unknown regret is null in JSON and empty in CSV. */
static void test_document_detail__an_unknown_regret_is_null_and_empty(void)
{
    const struct tally_job_facts facts = {
        .id = "", .status = TALLY_JOB_RUNNING, .reason = "", .clients = 1, .dim = 1};
    struct tally_progress progress = PROGRESS;
    progress.cumulative_regret = NAN;
    struct tally_json *object = tally_json_object();
    CU_ASSERT_TRUE(tally_detail_add(object, &facts, &progress));
    expect_json(tally_json_copy(tally_json_get(object, "cumulative_regret")), "null");
    tally_json_free(object);
    struct tally_round_record record = RECORD;
    record.cumulative_regret = NAN;
    struct tally_buffer out = {0};
    CU_ASSERT_EQUAL(tally_detail_round_csv(&record, "", &out), TALLY_OK);
    record.loss = NAN;
    CU_ASSERT_EQUAL(tally_detail_round_csv(&record, "", &out), TALLY_OK);
    CU_ASSERT_EQUAL(tally_buffer_append(&out, "", 1), TALLY_OK);
    TALLY_ASSERT_TEXT(
        (const char *)out.data,
        "2,21,1,3,13,10,0.10000000000000001,1,0,1.5,,11,12,13,14,21,22,23,24,31,32,33,"
        "3 17-20,1795244547432\n"
        "2,21,1,3,13,10,0.10000000000000001,1,0,,,11,12,13,14,21,22,23,24,31,32,33,"
        "3 17-20,1795244547432\n");
    tally_buffer_fini(&out);
    struct tally_json *round = tally_detail_round(&record);
    expect_json(tally_json_copy(tally_json_get(round, "regret")), "null");
    expect_json(tally_json_copy(tally_json_get(round, "loss")), "null");
    tally_json_free(round);
}

static void test_document_detail__round_as_object(void)
{
    expect_json(tally_detail_round(&RECORD),
                "{\"round\":2,\"t\":21,\"k\":1,\"j\":3,\"samples\":13,\"received\":10,\"norm\":0.1,"
                "\"passed\":true,\"cut\":false,\"loss\":1.5,\"regret\":12.75,\"missing\":\"317-"
                "20\",\"closed_ms\":1795244547432,\"bits\":{"
                "\"uplink\":{\"formula\":11,\"payload\":12,\"messages\":13,\"clipped\":14},"
                "\"downlink\":{\"formula\":21,\"payload\":22,\"messages\":23,\"clipped\":24,"
                "\"delivered_payload\":31},\"control\":32,\"telemetry\":33}}");
}

static size_t n_columns(const char *line)
{
    size_t n = 1;
    for (; *line != '\0'; line++) {
        n += *line == ',';
    }
    return n;
}

static void test_document_detail__csv_header_and_row_have_the_same_columns(void)
{
    struct tally_buffer header = {0}, row = {0};
    CU_ASSERT_EQUAL(tally_detail_round_csv_header("", &header), TALLY_OK);
    CU_ASSERT_EQUAL(tally_detail_round_csv(&RECORD, "", &row), TALLY_OK);
    CU_ASSERT_EQUAL(tally_buffer_append(&header, "", 1), TALLY_OK);
    CU_ASSERT_EQUAL(tally_buffer_append(&row, "", 1), TALLY_OK);
    CU_ASSERT_EQUAL(n_columns((const char *)header.data), n_columns((const char *)row.data));
    CU_ASSERT_EQUAL(n_columns((const char *)row.data), 24);
    TALLY_ASSERT_TEXT((const char *)row.data,
                      "2,21,1,3,13,10,0.10000000000000001,1,0,1.5,12.75,11,12,13,14,21,22,23,24,"
                      "31,32,33,3 17-20,1795244547432\n");
    CU_ASSERT_PTR_NOT_NULL(strstr((const char *)header.data, "telemetry_bits,missing,closed_ms\n"));
    tally_buffer_fini(&header);
    tally_buffer_fini(&row);
}

static void test_document_detail__checksum_has_sixteen_digits(void)
{
    char text[17];
    tally_detail_checksum(0, text);
    TALLY_ASSERT_TEXT(text, "0000000000000000");
    tally_detail_checksum(UINT64_C(0xFEDCBA9876543210), text);
    TALLY_ASSERT_TEXT(text, "fedcba9876543210");
}

/* NEP 1: magic, version, header length, and a header that ends in a newline. The data start right
 * after it, at a multiple of 64. */
static void test_document_detail__npy_follows_nep_1(void)
{
    const double values[3] = {1, -2.5, 0};
    struct tally_buffer out = {0};
    CU_ASSERT_EQUAL(tally_detail_npy(values, 3, &out), TALLY_OK);
    CU_ASSERT_EQUAL_FATAL(out.size, 128 + 24);
    CU_ASSERT_EQUAL(memcmp(out.data, "\x93NUMPY\x01\x00", 8), 0);
    size_t length = (size_t)out.data[8] | (size_t)out.data[9] << 8;
    CU_ASSERT_EQUAL_FATAL(length, 118);
    CU_ASSERT_EQUAL((10 + length) % 64, 0);
    const char dict[] = "{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }";
    CU_ASSERT_EQUAL(memcmp(out.data + 10, dict, strlen(dict)), 0);
    for (size_t i = 10 + strlen(dict); i < 127; i++) {
        CU_ASSERT_EQUAL(out.data[i], ' ');
    }
    CU_ASSERT_EQUAL(out.data[127], '\n');
    CU_ASSERT_EQUAL(memcmp(out.data + 128, values, sizeof values), 0);
    tally_buffer_fini(&out);
    CU_ASSERT_EQUAL(tally_detail_npy(NULL, 0, &out), TALLY_OK);
    CU_ASSERT_EQUAL(out.size, 128);
    tally_buffer_fini(&out);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_document_detail__job_has_the_members_of_the_architecture),
    TALLY_TEST(test_document_detail__a_planned_job_says_what_it_expects),
    TALLY_TEST(test_document_detail__only_a_planned_job_has_a_plan),
    TALLY_TEST(test_document_detail__a_job_says_what_it_waits_for),
    TALLY_TEST(test_document_detail__waiting_is_compared_by_all_it_says),
    TALLY_TEST(test_document_detail__unknown_things_are_null),
    TALLY_TEST(test_document_detail__a_job_that_ended_has_a_reason_code),
    TALLY_TEST(test_document_detail__curvature_comes_with_what_it_warns_of),
    TALLY_TEST(test_document_detail__estimates_are_those_there_are),
    TALLY_TEST(test_document_detail__a_loss_needs_a_round_that_has_one),
    TALLY_TEST(test_document_detail__an_unknown_regret_is_null_and_empty),
    TALLY_TEST(test_document_detail__round_as_object),
    TALLY_TEST(test_document_detail__csv_header_and_row_have_the_same_columns),
    TALLY_TEST(test_document_detail__checksum_has_sixteen_digits),
    TALLY_TEST(test_document_detail__npy_follows_nep_1),
};
TALLY_SUITE(document_detail, TESTS);
