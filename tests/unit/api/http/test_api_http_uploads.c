/* Tests the list alone, with the test's own clock. */
#include "api/http/http_uploads.h"
#include "tests/harness.h"

enum { HALF = HTTP_UPLOADS_MAX_BYTES / 2 };

static void test_api_http_uploads__few_bytes_are_under_way(void)
{
    struct http_uploads uploads;
    struct http_upload u[4] = {{.n_bytes = 0}};
    http_uploads_init(&uploads);
    CU_ASSERT_TRUE(http_uploads_begin(&uploads, &u[0], HALF, 0));
    CU_ASSERT_TRUE(http_uploads_begin(&uploads, &u[1], HALF, 0));
    CU_ASSERT_FALSE(http_uploads_begin(&uploads, &u[2], HALF, 0));
    CU_ASSERT_FALSE(http_uploads_begin(&uploads, &u[3], 1, 0));
    CU_ASSERT_PTR_NULL(http_uploads_next(&uploads, 0));
    http_uploads_end(&uploads, &u[1]);
    CU_ASSERT_EQUAL(http_uploads_wait_ms(&uploads, 0), 0);
    CU_ASSERT_PTR_EQUAL(http_uploads_next(&uploads, 0), &u[2]); /* first come, first served */
    CU_ASSERT_PTR_NULL(http_uploads_next(&uploads, 0));
    http_uploads_end(&uploads, &u[0]);
    CU_ASSERT_PTR_EQUAL(http_uploads_next(&uploads, 0), &u[3]);
    CU_ASSERT_EQUAL(uploads.under_way_bytes, HALF + 1);
    CU_ASSERT_EQUAL(http_uploads_wait_ms(&uploads, 0), -1);
}

/* Uploads keep their order, even if a later one would fit. */
static void test_api_http_uploads__nobody_is_overtaken(void)
{
    struct http_uploads uploads;
    struct http_upload u[3] = {{.n_bytes = 0}};
    http_uploads_init(&uploads);
    CU_ASSERT_TRUE(http_uploads_begin(&uploads, &u[0], HALF, 0));
    CU_ASSERT_FALSE(http_uploads_begin(&uploads, &u[1], HALF + 1, 0));
    CU_ASSERT_FALSE(http_uploads_begin(&uploads, &u[2], 1, 0));
    CU_ASSERT_PTR_NULL(http_uploads_next(&uploads, 0));
    http_uploads_end(&uploads, &u[1]); /* its peer has left */
    CU_ASSERT_PTR_EQUAL(http_uploads_next(&uploads, 0), &u[2]);
    CU_ASSERT_TRUE(tally_list_is_empty(&uploads.waiting));
}

static void test_api_http_uploads__any_may_come_alone(void)
{
    struct http_uploads uploads;
    struct http_upload u[2] = {{.n_bytes = 0}};
    http_uploads_init(&uploads);
    CU_ASSERT_TRUE(http_uploads_begin(&uploads, &u[0], 4 * (size_t)HTTP_UPLOADS_MAX_BYTES, 0));
    CU_ASSERT_FALSE(http_uploads_begin(&uploads, &u[1], 4 * (size_t)HTTP_UPLOADS_MAX_BYTES, 0));
    http_uploads_end(&uploads, &u[0]);
    CU_ASSERT_PTR_EQUAL(http_uploads_next(&uploads, 0), &u[1]);
}

/* Peers that stop sending block no other peer, whatever they have announced. */
static void test_api_http_uploads__slow_ones_hold_nobody_up(void)
{
    struct http_uploads uploads;
    struct http_upload u[4] = {{.n_bytes = 0}};
    http_uploads_init(&uploads);
    const size_t n = 100 * (size_t)HTTP_UPLOADS_MAX_BYTES;
    CU_ASSERT_TRUE(http_uploads_begin(&uploads, &u[0], n, 100));
    for (int i = 1; i < 4; i++) {
        CU_ASSERT_FALSE(http_uploads_begin(&uploads, &u[i], n, 100));
    }
    for (int i = 1; i < 4; i++) {
        const int64_t due_ms = 100 + i;
        CU_ASSERT_EQUAL(http_uploads_wait_ms(&uploads, due_ms - 1), 1);
        CU_ASSERT_PTR_NULL(http_uploads_next(&uploads, due_ms - 1));
        CU_ASSERT_PTR_EQUAL(http_uploads_next(&uploads, due_ms), &u[i]);
        CU_ASSERT_PTR_NULL(http_uploads_next(&uploads, due_ms));
    }
    for (int i = 0; i < 4; i++) {
        http_uploads_end(&uploads, &u[i]);
        http_uploads_end(&uploads, &u[i]); /* no effect the second time */
    }
    CU_ASSERT_EQUAL(uploads.under_way_bytes, 0);
}

/* While many bytes arrive, no further upload begins. Few bytes in many pieces are still few. */
static void test_api_http_uploads__fast_ones_go_first(void)
{
    struct http_uploads uploads;
    struct http_upload u[2] = {{.n_bytes = 0}};
    http_uploads_init(&uploads);
    const size_t n = HTTP_UPLOADS_MAX_BYTES, piece = HTTP_UPLOAD_BYTES_PER_MS / 4;
    CU_ASSERT_TRUE(http_uploads_begin(&uploads, &u[0], n, 0));
    CU_ASSERT_FALSE(http_uploads_begin(&uploads, &u[1], n, 0));
    for (int64_t now_ms = 0; now_ms < 100; now_ms += 2) {
        CU_ASSERT_PTR_NULL(http_uploads_next(&uploads, now_ms));
        http_uploads_receive(&uploads, &u[0], (size_t)4 * HTTP_UPLOAD_BYTES_PER_MS, now_ms);
    }
    http_uploads_receive(&uploads, &u[0], n, 100);
    CU_ASSERT_EQUAL(http_uploads_wait_ms(&uploads, 100), HTTP_UPLOAD_QUIET_MS);
    int64_t now_ms = 100 + HTTP_UPLOAD_QUIET_MS;
    for (int i = 0; i < 4; i++) {
        CU_ASSERT_EQUAL(http_uploads_wait_ms(&uploads, now_ms), 0);
        http_uploads_receive(&uploads, &u[0], piece, now_ms);
    }
    CU_ASSERT_EQUAL(http_uploads_wait_ms(&uploads, now_ms), 1);
    http_uploads_receive(&uploads, &u[1], n, now_ms); /* not under way, so not counted */
    CU_ASSERT_PTR_EQUAL(http_uploads_next(&uploads, now_ms + 1), &u[1]);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_api_http_uploads__few_bytes_are_under_way),
    TALLY_TEST(test_api_http_uploads__nobody_is_overtaken),
    TALLY_TEST(test_api_http_uploads__any_may_come_alone),
    TALLY_TEST(test_api_http_uploads__slow_ones_hold_nobody_up),
    TALLY_TEST(test_api_http_uploads__fast_ones_go_first),
};

TALLY_SUITE(api_http_uploads, TESTS);
