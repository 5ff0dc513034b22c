/* Orders of the list of jobs, their cursors, and pages in these orders. */
#include "services/coordinator/rest_lists.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "storage/backends.h"
#include "tests/harness.h"

static struct tally_store_job job(int64_t key, const char *name, double regret)
{
    struct tally_store_job row = {.key = key, .clients = 4, .horizon = 100};
    snprintf(row.id, sizeof row.id, "%012lld", (long long)key);
    snprintf(row.name, sizeof row.name, "%s", name);
    snprintf(row.algorithm, sizeof row.algorithm, "ceal");
    row.progress.cumulative_regret = regret;
    row.progress.f_star = regret;
    row.progress.round = key;
    row.progress.time_step = key;
    row.progress.loss = -regret;
    row.progress.bits.uplink.payload_bits = (uint64_t)(1000 - key);
    row.progress.bits.downlink.payload_bits = (uint64_t)key;
    return row;
}

static struct job_order order_of(const char *text)
{
    struct job_order order = JOB_ORDER_DEFAULT;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(job_order_parse(text, &order, &err), TALLY_OK, &err);
    return order;
}

/* Whether a comes before b. */
static bool precedes(const char *sort, const struct tally_store_job *a,
                     const struct tally_store_job *b)
{
    const struct job_order order = order_of(sort);
    struct job_place place_a, place_b;
    job_order_place(&order, a, &place_a);
    job_order_place(&order, b, &place_b);
    const int result = job_order_compare(&order, &place_a, &place_b);
    CU_ASSERT_EQUAL(result > 0, job_order_compare(&order, &place_b, &place_a) < 0);
    CU_ASSERT_EQUAL(job_order_compare(&order, &place_a, &place_a), 0);
    return result < 0;
}

static void test_coordinator_job_order__every_column_has_two_directions(void)
{
    static const char *const columns[] = {"created",  "id",    "name",   "time_step",
                                          "progress", "round", "regret", "downlink_bits"};
    static const char *const falling[] = {"loss", "uplink_bits", "uplink_bits_per_client"};
    const struct tally_store_job a = job(7, "a", 1.5), b = job(8, "ab", 2);
    char text[40];
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
        snprintf(text, sizeof text, "-%s", columns[i]);
        CU_ASSERT_TRUE(precedes(columns[i], &a, &b));
        CU_ASSERT_FALSE(precedes(text, &a, &b));
    }
    for (size_t i = 0; i < sizeof falling / sizeof falling[0]; i++) {
        snprintf(text, sizeof text, "-%s", falling[i]);
        CU_ASSERT_FALSE(precedes(falling[i], &a, &b));
        CU_ASSERT_TRUE(precedes(text, &a, &b));
    }
    struct tally_store_job c = a;
    c.status = TALLY_JOB_FAILED;
    snprintf(c.algorithm, sizeof c.algorithm, "calm");
    CU_ASSERT_TRUE(precedes("status", &a, &c));
    CU_ASSERT_FALSE(precedes("-status", &a, &c));
    CU_ASSERT_TRUE(precedes("algorithm", &c, &a));
    CU_ASSERT_FALSE(precedes("-algorithm", &c, &a));
}

static void test_coordinator_job_order__equal_values_are_newest_first_and_unknown_ones_last(void)
{
    const struct tally_store_job old = job(7, "a", 1), new = job(8, "a", 1);
    const struct tally_store_job unknown = job(9, "a", (double)NAN),
                                 other = job(6, "a", (double)NAN);
    CU_ASSERT_TRUE(precedes("name", &new, &old));
    CU_ASSERT_TRUE(precedes("-name", &new, &old));
    CU_ASSERT_TRUE(precedes("regret", &new, &old));
    CU_ASSERT_TRUE(precedes("-regret", &new, &old));
    CU_ASSERT_TRUE(precedes("regret", &old, &unknown));
    CU_ASSERT_TRUE(precedes("-regret", &old, &unknown));
    CU_ASSERT_TRUE(precedes("regret", &unknown, &other));
    CU_ASSERT_TRUE(precedes("-regret", &unknown, &other));
}

static void test_coordinator_job_order__metrics_are_sorted_by_their_means(void)
{
    struct tally_store_job low = job(7, "a", 1), high = job(6, "a", 1);
    const struct tally_store_job none = job(9, "a", 1);
    snprintf(low.progress.metrics, sizeof low.progress.metrics, "acc 0.5 0.1 0.99;zeal 2 2 2;");
    snprintf(high.progress.metrics, sizeof high.progress.metrics, "acc 0.75 0 0.8;");
    CU_ASSERT_TRUE(precedes("metric:acc", &low, &high));
    CU_ASSERT_TRUE(precedes("-metric:acc", &high, &low));
    CU_ASSERT_TRUE(precedes("metric:acc", &high, &none));
    CU_ASSERT_TRUE(precedes("-metric:acc", &low, &none));
    CU_ASSERT_TRUE(precedes("-metric:zeal", &low, &high));
    CU_ASSERT_TRUE(precedes("metric:zeal", &none, &high)); /* both unknown: newest first */
}

static void expect_kept(const char *sort, const struct tally_store_job *row)
{
    const struct job_order order = order_of(sort);
    struct job_place place, read;
    struct tally_error err = TALLY_ERROR_INIT;
    char cursor[JOB_CURSOR_CAPACITY];
    job_order_place(&order, row, &place);
    job_order_write_cursor(&order, &place, cursor);
    TALLY_ASSERT_STATUS(job_order_read_cursor(&order, cursor, &read, &err), TALLY_OK, &err);
    CU_ASSERT_EQUAL(job_order_compare(&order, &place, &read), 0);
    CU_ASSERT_EQUAL(read.key, row->key);
}

static void test_coordinator_job_order__cursors_keep_the_place(void)
{
    char longest[TALLY_JOB_NAME_CAPACITY];
    memset(longest, 0xF4, sizeof longest);
    longest[sizeof longest - 1] = '\0';
    const struct tally_store_job rows[] = {job(1, "", 0), job(INT64_MAX - 1, longest, -0.1),
                                           job(3, "a.b", (double)NAN), job(4, "7", 1e300)};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        expect_kept("name", &rows[i]);
        expect_kept("-regret", &rows[i]);
        expect_kept("uplink_bits_per_client", &rows[i]);
        expect_kept("id", &rows[i]);
        expect_kept("-metric:a23456789_123456789_123456789_12", &rows[i]);
    }
}

static void test_coordinator_job_order__other_cursors_are_refused(void)
{
    static const char *const cursors[] = {"",           "12",
                                          "-name.1.61", "id.1.61",
                                          "name",       "name.",
                                          "name.1",     "name.0.61",
                                          "name.-1.61", "name.1.6",
                                          "name.1.zz",  "name.1.00",
                                          "name. 1.61", "name.99999999999999999999.61"};
    const struct job_order by_name = order_of("name"), by_regret = order_of("regret");
    struct job_place place;
    for (size_t i = 0; i < sizeof cursors / sizeof cursors[0]; i++) {
        struct tally_error err = TALLY_ERROR_INIT;
        TALLY_ASSERT_STATUS(job_order_read_cursor(&by_name, cursors[i], &place, &err),
                            TALLY_INVALID_ARGUMENT, &err);
        TALLY_ASSERT_TEXT(err.field, "cursor");
    }
    CU_ASSERT_NOT_EQUAL(job_order_read_cursor(&by_regret, "regret.1.3ff", &place, NULL), TALLY_OK);
    CU_ASSERT_EQUAL(job_order_check_default_cursor("12", NULL), TALLY_OK);
    CU_ASSERT_NOT_EQUAL(job_order_check_default_cursor("name.1.61", NULL), TALLY_OK);
    const struct job_order by_metric = order_of("metric:acc");
    CU_ASSERT_NOT_EQUAL(
        job_order_read_cursor(&by_metric, "metric:ac.1.3ff0000000000000", &place, NULL), TALLY_OK);
    struct job_order order;
    static const char *const no_orders[] = {"",
                                            "-",
                                            "--name",
                                            "Name",
                                            "name ",
                                            "title",
                                            "metric",
                                            "metric:",
                                            "metric:Acc",
                                            "metric:a.b",
                                            "metric:a23456789_123456789_123456789_123"};
    for (size_t i = 0; i < sizeof no_orders / sizeof no_orders[0]; i++) {
        struct tally_error err = TALLY_ERROR_INIT;
        TALLY_ASSERT_STATUS(job_order_parse(no_orders[i], &order, &err), TALLY_INVALID_ARGUMENT,
                            &err);
        TALLY_ASSERT_TEXT(err.field, "sort");
    }
}

static struct tally_store *open_store(void)
{
    struct tally_store *store = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_store_open("memory:", NULL, &store, &err), TALLY_OK, &err);
    CU_ASSERT_PTR_NOT_NULL_FATAL(store);
    return store;
}

static void insert(struct tally_store *store, int n, int n_values)
{
    TALLY_ASSERT_STATUS(store->ops->begin(store, NULL), TALLY_OK, NULL);
    for (int i = 0; i < n; i++) {
        const struct tally_store_job row = job(i + 1, i % 3 == 0 ? "a" : "b", (i * 7) % n_values);
        int64_t key;
        store->ops->job_insert(store, &row, "{}", 2, NULL, 0, &key, NULL);
    }
    TALLY_ASSERT_STATUS(store->ops->commit(store, NULL), TALLY_OK, NULL);
}

/* Finds one page. */
static enum tally_status find(struct tally_store *store, struct sorted_page *page,
                              struct tally_error *err)
{
    bool is_done = false;
    enum tally_status status = TALLY_OK;
    while (status == TALLY_OK && !is_done) {
        status = sorted_page_read(page, store, &is_done, err);
    }
    return status;
}

/* Walks through all pages, checks that each place comes after the previous one, and returns the
 * number of places. */
static int walk(struct tally_store *store, const struct job_filter *filter,
                const struct job_order *order, int64_t limit)
{
    struct job_place last;
    bool more = true;
    int n = 0;
    while (more) {
        struct sorted_page page = {
            .filter = filter, .order = *order, .has_after = n > 0, .limit = limit};
        struct tally_error err = TALLY_ERROR_INIT;
        if (n > 0) {
            page.after = last;
        }
        TALLY_ASSERT_STATUS(find(store, &page, &err), TALLY_OK, &err);
        more = page.has_more;
        const size_t n_places = page.places.size / sizeof last;
        CU_ASSERT_TRUE_FATAL(!more || n_places == (size_t)limit);
        for (size_t i = 0; i < n_places; i++, n++) {
            struct job_place place;
            memcpy(&place, page.places.data + i * sizeof place, sizeof place);
            CU_ASSERT_TRUE(n == 0 || job_order_compare(order, &last, &place) < 0);
            last = place;
        }
        sorted_page_fini(&page);
    }
    return n;
}

static void test_coordinator_job_order__pages_have_each_job_once(void)
{
    struct tally_store *store = open_store();
    insert(store, 1200, 10);
    static const char *const sorts[] = {"name", "-regret", "regret", "created", "-uplink_bits"};
    static const int64_t limits[] = {1, 7, 100, 1000, 1200, 5000};
    for (size_t i = 0; i < sizeof sorts / sizeof sorts[0]; i++) {
        const struct job_order order = order_of(sorts[i]);
        for (size_t k = i == 0 ? 1 : 2; k < sizeof limits / sizeof limits[0]; k++) {
            const struct job_filter all = {.status = -1}, one = {.status = -1, .name = "a"},
                                    none = {.status = TALLY_JOB_FAILED};
            CU_ASSERT_EQUAL(walk(store, &all, &order, limits[k]), 1200);
            CU_ASSERT_EQUAL(walk(store, &one, &order, limits[k]), 400);
            CU_ASSERT_EQUAL(walk(store, &none, &order, limits[k]), 0);
        }
    }
    store->ops->close(store);
}

static void test_coordinator_job_order__more_jobs_than_a_request_examines_are_refused(void)
{
    struct tally_store *store = open_store();
    insert(store, JOBS_EXAMINED, 10);
    const struct job_order order = order_of("name");
    const struct job_filter all = {.status = -1};
    CU_ASSERT_EQUAL(walk(store, &all, &order, JOBS_EXAMINED), JOBS_EXAMINED);
    TALLY_ASSERT_STATUS(store->ops->begin(store, NULL), TALLY_OK, NULL);
    struct tally_store_job row = job(0, "last", 0);
    int64_t key;
    TALLY_ASSERT_STATUS(store->ops->job_insert(store, &row, "{}", 2, NULL, 0, &key, NULL), TALLY_OK,
                        NULL);
    TALLY_ASSERT_STATUS(store->ops->commit(store, NULL), TALLY_OK, NULL);
    struct sorted_page page = {.filter = &all, .order = order, .limit = 1};
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(find(store, &page, &err), TALLY_OUT_OF_RANGE, &err);
    TALLY_ASSERT_TEXT(err.field, "sort");
    sorted_page_fini(&page);
    const struct job_filter none = {.status = TALLY_JOB_FAILED};
    CU_ASSERT_EQUAL(walk(store, &none, &order, 10), 0);
    store->ops->close(store);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_coordinator_job_order__every_column_has_two_directions),
    TALLY_TEST(test_coordinator_job_order__equal_values_are_newest_first_and_unknown_ones_last),
    TALLY_TEST(test_coordinator_job_order__metrics_are_sorted_by_their_means),
    TALLY_TEST(test_coordinator_job_order__cursors_keep_the_place),
    TALLY_TEST(test_coordinator_job_order__other_cursors_are_refused),
    TALLY_TEST(test_coordinator_job_order__pages_have_each_job_once),
    TALLY_TEST(test_coordinator_job_order__more_jobs_than_a_request_examines_are_refused),
};
TALLY_SUITE(coordinator_job_order, TESTS);
