#include "services/job/job_metrics.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/harness.h"
#include "tests/unit/services/job/job_host.h"

static enum tally_status take(struct job_metrics *metrics, uint32_t client,
                              const struct tally_metric *reported, size_t n,
                              struct tally_error *err)
{
    *err = (struct tally_error)TALLY_ERROR_INIT;
    enum tally_status status = job_metrics_check(metrics, 3, reported, n, err);
    if (status == TALLY_OK) {
        job_metrics_take(metrics, client, 0, reported, n);
    }
    return status;
}

/* The sum of 0.1, 0.2 and 0.3 depends on the order of addition. Names are sorted, and a client that
 * does not report a metric does not count. */
static void test_job_metrics__arrival_does_not_show(void)
{
    static const struct tally_metric reported[3][2] = {
        {{"b", 0.1}, {"a", -2}}, {{"b", 0.2}, {"z", 7}}, {{"b", 0.3}, {"a", 4}}};
    static const uint32_t orders[][3] = {{0, 1, 2}, {2, 1, 0}, {1, 2, 0}, {2, 0, 1}};
    char expected[TALLY_METRICS_CAPACITY], text[TALLY_METRICS_CAPACITY];
    snprintf(expected, sizeof expected, "a 1 -2 4;b %.17g %.17g %.17g;z 7 7 7;",
             (0.1 + 0.2 + 0.3) / 3, 0.1, 0.3);
    struct job_metrics metrics = {.clients = 0};
    struct tally_error err;
    for (size_t o = 0; o < sizeof orders / sizeof orders[0]; o++) {
        job_metrics_clear(&metrics);
        for (int i = 0; i < 3; i++) {
            CU_ASSERT_EQUAL(take(&metrics, orders[o][i], reported[orders[o][i]], 2, &err),
                            TALLY_OK);
        }
        job_metrics_close(&metrics, 1, text);
        TALLY_ASSERT_TEXT(text, expected);
    }
    job_metrics_clear(&metrics);
    job_metrics_close(&metrics, 1, text);
    TALLY_ASSERT_TEXT(text, "");
    job_metrics_fini(&metrics);
}

static void test_job_metrics__what_is_wrong_is_named(void)
{
    struct job_metrics metrics = {.clients = 0};
    struct tally_error err;
    const struct {
        struct tally_metric reported[2];
        size_t n;
        const char *message;
    } rows[] = {
        {{{"", 1}}, 1, "\"\" is not a name of a metric: [a-z][a-z0-9_]{0,31}"},
        {{{"Loss", 1}}, 1, "\"Loss\" is not a name of a metric: [a-z][a-z0-9_]{0,31}"},
        {{{"1a", 1}}, 1, "\"1a\" is not a name of a metric: [a-z][a-z0-9_]{0,31}"},
        {{{"a-b", 1}}, 1, "\"a-b\" is not a name of a metric: [a-z][a-z0-9_]{0,31}"},
        {{{"a", 1}, {"a", 1}}, 2, "metric a appears twice"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CU_ASSERT_EQUAL(take(&metrics, 0, rows[i].reported, rows[i].n, &err), TALLY_MALFORMED);
        TALLY_ASSERT_TEXT(err.field, "metrics");
        TALLY_ASSERT_TEXT(err.message, rows[i].message);
    }
    CU_ASSERT_PTR_NULL(metrics.open.values);
    job_metrics_fini(&metrics);
}

/* They neither count as bits nor take the place of a name. */
static void test_job_metrics__values_that_are_not_finite_are_dropped(void)
{
    static const struct tally_metric reported[] = {{"a", NAN}, {"b", 1}, {"c", -INFINITY}};
    struct job_metrics metrics = {.clients = 0};
    struct tally_error err;
    char text[TALLY_METRICS_CAPACITY];
    CU_ASSERT_EQUAL(take(&metrics, 0, reported, 3, &err), TALLY_OK);
    CU_ASSERT_EQUAL(take(&metrics, 1, reported, 1, &err), TALLY_OK);
    CU_ASSERT_EQUAL(metrics.open.n_names, 1);
    CU_ASSERT_EQUAL(job_metrics_bits(reported, 3), 64 + 8);
    job_metrics_close(&metrics, 1, text);
    TALLY_ASSERT_TEXT(text, "b 1 1 1;");
    job_metrics_fini(&metrics);
}

static void test_job_metrics__mean_of_huge_values_is_finite(void)
{
    struct job_metrics metrics = {.clients = 0};
    struct tally_error err;
    const struct tally_metric huge = {.name = "a", .value = DBL_MAX};
    char text[TALLY_METRICS_CAPACITY], expected[128];
    for (uint32_t client = 0; client < 3; client++) {
        CU_ASSERT_EQUAL(take(&metrics, client, &huge, 1, &err), TALLY_OK);
    }
    job_metrics_close(&metrics, 1, text);
    snprintf(expected, sizeof expected, "a %.17g %.17g %.17g;", DBL_MAX, DBL_MAX, DBL_MAX);
    TALLY_ASSERT_TEXT(text, expected);
    job_metrics_fini(&metrics);
}

static void test_job_metrics__a_round_has_at_most_16_names(void)
{
    struct job_metrics metrics = {.clients = 0};
    struct tally_metric reported[TALLY_METRICS_MOST];
    struct tally_error err;
    for (int i = 0; i < TALLY_METRICS_MOST; i++) {
        memset(reported[i].name, 'a' + i, TALLY_METRIC_NAME_CAPACITY - 1);
        reported[i].name[TALLY_METRIC_NAME_CAPACITY - 1] = '\0';
        reported[i].value = -1.2345678901234567e-300;
    }
    CU_ASSERT_EQUAL(take(&metrics, 1, reported, TALLY_METRICS_MOST, &err), TALLY_OK);
    const struct tally_metric more[] = {{"q", 1}};
    CU_ASSERT_EQUAL(take(&metrics, 2, more, 1, &err), TALLY_MALFORMED);
    TALLY_ASSERT_TEXT(err.message,
                      "with these metrics the round has 17 different names, at most 16");
    CU_ASSERT_EQUAL(take(&metrics, 2, reported, 3, &err), TALLY_OK);
    char text[TALLY_METRICS_CAPACITY];
    const char *at = text;
    struct tally_metric_summary summary;
    int n = 0;
    job_metrics_close(&metrics, 1, text); /* the longest text possible */
    while (tally_metrics_next(&at, &summary)) {
        TALLY_ASSERT_TEXT(summary.name, reported[n].name);
        CU_ASSERT_EQUAL(summary.mean, reported[0].value);
        n++;
    }
    CU_ASSERT_EQUAL(n, TALLY_METRICS_MOST);
    CU_ASSERT_EQUAL(*at, '\0');
    job_metrics_fini(&metrics);
}

/* Prints the client's metrics as "a 1;b 2;". */
static void print_client(const struct job_metrics *metrics, uint32_t client, char ret_text[128])
{
    struct tally_metric found[TALLY_METRICS_MOST];
    const size_t n = job_metrics_of_client(metrics, client, found);
    size_t length = 0;
    ret_text[0] = '\0';
    for (size_t i = 0; i < n; i++) {
        length += (size_t)snprintf(ret_text + length, 128 - length, "%s %g;", found[i].name,
                                   found[i].value);
    }
}

static void assert_clients(const struct job_metrics *metrics, const char *const expected[3])
{
    for (uint32_t m = 0; m < 3; m++) {
        char text[128];
        print_client(metrics, m, text);
        TALLY_ASSERT_TEXT(text, expected[m]);
    }
}

/* The metrics of a closed round are kept until another round with metrics closes, and survive a
 * restart. */
static void test_job_metrics__single_clients_are_kept(void)
{
    static const struct tally_metric first[] = {{"b", 1}, {"a", 2}}, second[] = {{"c", 3}};
    static const char *const NOTHING[3] = {"", "", ""}, *const FIRST[3] = {"", "a 2;b 1;", "b 1;"},
                             *const SECOND[3] = {"c 3;", "", ""};
    struct job_metrics metrics = {.clients = 0}, restored = {.clients = 0};
    struct tally_error err;
    char text[TALLY_METRICS_CAPACITY];
    take(&metrics, 2, first, 1, &err);
    take(&metrics, 1, first, 2, &err);
    assert_clients(&metrics, NOTHING);
    job_metrics_close(&metrics, 4, text);
    assert_clients(&metrics, FIRST);
    job_metrics_close(&metrics, 5, text);
    TALLY_ASSERT_TEXT(text, "");
    take(&metrics, 0, second, 1, &err);
    assert_clients(&metrics, FIRST);
    CU_ASSERT_EQUAL(metrics.closed_round, 4);
    job_metrics_close(&metrics, 6, text);
    assert_clients(&metrics, SECOND);
    CU_ASSERT_EQUAL(metrics.closed_round, 6);

    CU_ASSERT_EQUAL(job_metrics_restore(&restored, 3, 4, 1, first, 2, &err), TALLY_OK);
    CU_ASSERT_EQUAL(job_metrics_restore(&restored, 3, 4, 2, first, 1, &err), TALLY_OK);
    assert_clients(&restored, FIRST);
    CU_ASSERT_EQUAL(restored.closed_round, 4);
    take(&restored, 0, second, 1, &err);
    job_metrics_close(&restored, 5, text);
    TALLY_ASSERT_TEXT(text, "c 3 3 3;");
    assert_clients(&restored, SECOND);
    job_metrics_fini(&metrics);
    job_metrics_fini(&restored);
}

static void set_metrics(struct job_host *host, const struct tally_metric *seconds)
{
    for (uint32_t m = 0; m < 5; m++) {
        host->updates[m].metrics[0] = seconds[m];
        host->updates[m].n_metrics = m % 2 == 0;
    }
}

/* The job is bit for bit that of clients that report no metrics; only the telemetry grows. */
static void test_job_metrics__change_nothing_but_telemetry(void)
{
    struct tally_metric seconds[5];
    struct job_host host, silent;
    job_host_init_standard(&host);
    job_host_init_standard(&silent);
    job_host_run(&silent);
    for (int i = 0; i < 5; i++) {
        seconds[i] = (struct tally_metric){"seconds", i};
    }
    while (!tally_job_status_is_terminal(tally_job_status(host.job))) {
        job_host_compute(&host);
        set_metrics(&host, seconds);
        for (uint32_t m = 0; m < 5; m++) {
            job_host_send(&host, m);
        }
    }
    CU_ASSERT_EQUAL_FATAL(host.n_records, silent.n_records);
    for (int i = 0; i < host.n_records; i++) {
        struct tally_round_record *record = &host.records[i];
        const bool has_clients = record->bits.telemetry_bits > 0;
        TALLY_ASSERT_TEXT(record->metrics, has_clients ? "seconds 2 0 4;" : "");
        record->bits.telemetry_bits -= has_clients ? 3 * (64 + 7 * 8) : 0;
        CU_ASSERT_TRUE(job_same_record(record, &silent.records[i]));
        TALLY_ASSERT_TEXT(silent.records[i].metrics, "");
    }
    TALLY_ASSERT_TEXT(tally_job_progress(host.job)->metrics, "seconds 2 0 4;");
    TALLY_ASSERT_TEXT(tally_job_progress(silent.job)->metrics, "");
    job_host_fini(&host);
    job_host_fini(&silent);
}

/* The same message with another number of seconds is still the same message; the first number is
 * kept. */
static void test_job_metrics__are_no_part_of_a_messages_identity(void)
{
    struct tally_metric first = {"seconds", 1}, second = {"seconds", 2};
    struct job_host host;
    struct tally_job_outcome outcome;
    job_host_init_standard(&host);
    job_host_compute(&host);
    host.updates[0].metrics[0] = first;
    host.updates[0].n_metrics = 1;
    job_host_send(&host, 0);
    host.updates[0].metrics[0] = second;
    CU_ASSERT_EQUAL(tally_job_receive(host.job, &host.updates[0], &outcome, NULL), TALLY_OK);
    CU_ASSERT_TRUE(outcome.duplicate);
    for (uint32_t m = 1; m < 5; m++) {
        job_host_send(&host, m);
    }
    TALLY_ASSERT_TEXT(host.records[0].metrics, "seconds 1 1 1;");
    job_host_fini(&host);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_job_metrics__arrival_does_not_show),
    TALLY_TEST(test_job_metrics__single_clients_are_kept),
    TALLY_TEST(test_job_metrics__what_is_wrong_is_named),
    TALLY_TEST(test_job_metrics__values_that_are_not_finite_are_dropped),
    TALLY_TEST(test_job_metrics__mean_of_huge_values_is_finite),
    TALLY_TEST(test_job_metrics__a_round_has_at_most_16_names),
    TALLY_TEST(test_job_metrics__change_nothing_but_telemetry),
    TALLY_TEST(test_job_metrics__are_no_part_of_a_messages_identity),
};
TALLY_SUITE(job_metrics, TESTS);
