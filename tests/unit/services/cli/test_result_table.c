#include "services/cli/result_table.h"

#include <string.h>

#include "tests/harness.h"

static void expect(const char *json, const char *expected)
{
    struct tally_json *detail = NULL;
    struct tally_buffer text = {0};
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_json_parse(json, strlen(json), &detail, &err), TALLY_OK, &err);
    TALLY_ASSERT_STATUS(tally_result_table_render(detail, &text), TALLY_OK, NULL);
    TALLY_ASSERT_STATUS(tally_buffer_append(&text, "", 1), TALLY_OK, NULL);
    TALLY_ASSERT_TEXT((const char *)text.data, expected);
    tally_buffer_fini(&text);
    tally_json_free(detail);
}

static void test_cli_result_table__shows_all_of_a_finished_job(void)
{
    expect(
        "{\"id\":\"ab12\",\"name\":\"synthetic-ceal\",\"algorithm\":{\"type\":\"ceal\",\"step_"
        "size\":2.5},"
        "\"smoothness\":0.3125,\"strong_convexity\":0.25,\"warnings\":[\"beware of a\",\"b\"],"
        "\"encoding\":\"unary\",\"clients\":10,\"horizon\":2000,\"status\":\"completed\","
        "\"reason\":null,\"waiting\":null,\"time_step\":2000,\"round\":40,\"iterate\":4,\"stage\":"
        "3,"
        "\"cumulative_regret\":412.34567890123,\"loss\":1.0625,\"f_star\":0.998,"
        "\"planned\":{\"regret\":400.04,\"uplink_bits\":280.5,\"downlink_bits\":290.25,"
        "\"epochs\":[{\"samples\":15},{\"samples\":1985}]},"
        "\"x_checksum\":\"00deadbeef001122\","
        "\"estimates\":{\"sigma\":4.5,\"gradient_bound\":null},\"bits\":{"
        "\"uplink\":{\"formula\":2633,\"payload\":2890,\"messages\":40,\"clipped\":0},"
        "\"downlink\":{\"formula\":289,\"payload\":301,\"messages\":3,\"clipped\":1,"
        "\"delivered_payload\":3010},\"uplink_per_client\":{\"formula\":263.3,\"payload\":289.0},"
        "\"recovery\":11,\"control\":12,\"telemetry\":13,"
        "\"wire_bytes\":{\"in\":123456,\"out\":654321}}}",
        "job         ab12  synthetic-ceal\n"
        "status      completed\n"
        "algorithm   ceal, encoding unary, 10 clients\n"
        "  sigma     4.5\n"
        "step size   2.5\n"
        "smoothness  0.3125\n"
        "convexity   0.25\n"
        "warning     beware of a\n"
        "warning     b\n"
        "time step   2000 / 2000\n"
        "round       40\n"
        "iterate     4\n"
        "stage       3\n"
        "regret      412.34567890123\n"
        "loss        1.0625\n"
        "planned     400.0 at 280.5 bits up, 290.2 down\n"
        "  queries   15 | 1985\n"
        "f_star      0.998\n"
        "x_checksum  00deadbeef001122\n"
        "\n"
        "bits          formula  payload  messages  clipped\n"
        "uplink           2633     2890        40        0\n"
        "  per client    263.3    289.0\n"
        "downlink          289      301         3        1\n"
        "  delivered               3010\n"
        "recovery                    11\n"
        "control                     12\n"
        "telemetry                   13\n"
        "\n"
        "wire bytes  in 123456  out 654321\n");
}

static void test_cli_result_table__metrics_have_a_row_each(void)
{
    struct tally_json *detail = NULL;
    struct tally_buffer out = {0};
    static const char JSON[] =
        "{\"loss\":0.5,\"metrics\":{\"accuracy\":{\"mean\":0.912345678,\"min\":0.5,\"max\":1},"
        "\"seconds\":{\"mean\":2e30,\"min\":-1,\"max\":null}}}";
    CU_ASSERT_EQUAL_FATAL(tally_json_parse(JSON, strlen(JSON), &detail, NULL), TALLY_OK);
    CU_ASSERT_EQUAL_FATAL(tally_result_table_render(detail, &out), TALLY_OK);
    CU_ASSERT_EQUAL_FATAL(tally_buffer_append(&out, "", 1), TALLY_OK);
    CU_ASSERT_PTR_NOT_NULL(strstr((const char *)out.data,
                                  "loss        0.5\n"
                                  "metrics     accuracy 0.912346  min 0.5  max 1\n"
                                  "            seconds 2e+30  min -1  max nan\n"
                                  "f_star"));
    tally_buffer_fini(&out);
    tally_json_free(detail);
}

static void test_cli_result_table__what_is_missing_is_a_dash(void)
{
    expect("{\"id\":\"\",\"name\":\"n\",\"reason\":\"worker 3 "
           "diverged\",\"reason_code\":\"client_failed\",\"clients\":1,"
           "\"waiting\":{\"since_ms\":1795232400123,\"text\":\"waits for client 0 (w)\"},"
           "\"f_star\":null,\"bits\":{\"uplink\":{\"formula\":\"18446744073709551615\"}}}",
           "job         n\n"
           "status      -\n"
           "reason      worker 3 diverged\n"
           "  code      client_failed\n"
           "waiting     waits for client 0 (w)\n"
           "  since     2026-11-21T03:40:00.123Z\n"
           "algorithm   -, encoding -, 1 client\n"
           "time step   - / -\n"
           "round       -\n"
           "iterate     -\n"
           "stage       -\n"
           "regret      -\n"
           "loss        -\n"
           "f_star      -\n"
           "x_checksum  -\n"
           "\n"
           "bits                       formula  payload  messages  clipped\n"
           "uplink        18446744073709551615        -         -        -\n"
           "  per client                     -        -\n"
           "downlink                         -        -         -        -\n"
           "  delivered                               -\n"
           "recovery                                  -\n"
           "control                                   -\n"
           "telemetry                                 -\n"
           "\n"
           "wire bytes  in -  out -\n");
}

static void expect_algorithm(const char *json, const char *line)
{
    struct tally_json *detail = NULL;
    struct tally_buffer out = {0};
    CU_ASSERT_EQUAL_FATAL(tally_json_parse(json, strlen(json), &detail, NULL), TALLY_OK);
    CU_ASSERT_EQUAL_FATAL(tally_result_table_render(detail, &out), TALLY_OK);
    CU_ASSERT_EQUAL_FATAL(tally_buffer_append(&out, "", 1), TALLY_OK);
    CU_ASSERT_PTR_NOT_NULL(strstr((const char *)out.data, line));
    tally_buffer_fini(&out);
    tally_json_free(detail);
}

static void test_cli_result_table__tells_who_takes_part(void)
{
    expect_algorithm("{\"clients\":9,\"cohort\":0.25}", "encoding -, 9 clients, cohort 0.25\n");
    expect_algorithm("{\"clients\":9,\"cohort\":4,\"over_selection\":0.5}",
                     "encoding -, 9 clients, cohort 4, over-selection 0.5\n");
}

static void test_cli_result_table__cells_cut_what_is_too_long(void)
{
    char name[1000];
    memset(name, 'x', sizeof name);
    name[999] = '\0';
    struct tally_json *object = tally_json_object();
    CU_ASSERT_TRUE(tally_json_set_text(object, "name", name));
    char cell[TALLY_RESULT_CELL_CAPACITY];
    tally_result_cell(object, "name", cell);
    CU_ASSERT_EQUAL(strlen(cell), TALLY_RESULT_CELL_CAPACITY - 1);
    tally_json_free(object);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_cli_result_table__shows_all_of_a_finished_job),
    TALLY_TEST(test_cli_result_table__metrics_have_a_row_each),
    TALLY_TEST(test_cli_result_table__what_is_missing_is_a_dash),
    TALLY_TEST(test_cli_result_table__tells_who_takes_part),
    TALLY_TEST(test_cli_result_table__cells_cut_what_is_too_long),
};
TALLY_SUITE(cli_result_table, TESTS);
