#include "tests/unit/api/http/http_fixture.h"

static void test_api_http_wait__deferred_answer_is_sent(void)
{
    struct fixture f;
    fixture_open(&f);
    struct tally_buffer in = {.size = 0};
    int fd = connected(&f);
    const char *request = "GET /wait HTTP/1.1\r\nHost: h\r\n\r\n";
    CU_ASSERT_TRUE(send_all(&f, fd, request, strlen(request)));
    await_requests(&f, 1);
    pass_time(&f, 30);
    CU_ASSERT_TRUE(tally_raw_receive(fd, &in));
    CU_ASSERT_EQUAL(in.size, 0);
    CU_ASSERT_PTR_EQUAL(tally_http_user(f.waiting[0]), &f);
    TALLY_ASSERT_TEXT(tally_http_path(f.waiting[0]), "/wait"); /* still valid */
    answer_text(&f, f.waiting[0], 200, "later");
    CU_ASSERT_TRUE(await_response(&f, fd, &in, true));
    TALLY_ASSERT_TEXT(body_of(&in), "later");
    /* The connection serves further requests. */
    in.size = 0;
    const char *next = "GET /now HTTP/1.1\r\nHost: h\r\n\r\n";
    CU_ASSERT_TRUE(send_all(&f, fd, next, strlen(next)));
    CU_ASSERT_TRUE(await_response(&f, fd, &in, true));
    TALLY_ASSERT_TEXT(body_of(&in), "hello");
    CU_ASSERT_EQUAL(f.n_abandoned, 0);
    close(fd);
    tally_buffer_fini(&in);
    fixture_close(&f);
}

static void test_api_http_wait__answers_may_come_in_any_order(void)
{
    enum { N = 20 };
    struct fixture f;
    fixture_open(&f);
    int fds[N];
    for (size_t i = 0; i < N; i++) {
        char request[64];
        int n = snprintf(request, sizeof request, "GET /wait/%02zu HTTP/1.1\r\nHost: h\r\n\r\n", i);
        fds[i] = connected(&f);
        CU_ASSERT_TRUE(send_all(&f, fds[i], request, (size_t)n));
        await_requests(&f, i + 1);
    }
    for (size_t k = 0; k < N; k++) {
        size_t i = (k * 7 + 3) % N;
        struct tally_buffer in = {.size = 0};
        /* The path is freed with the request, so the text is copied. */
        struct tally_buffer body = {.size = 0};
        (void)tally_buffer_append_text(&body, tally_http_path(f.waiting[i]));
        struct tally_http_response response = {.status = 200, .body = &body};
        answer(&f, f.waiting[i], &response);
        CU_ASSERT_TRUE(await_response(&f, fds[i], &in, true));
        char expected[16];
        snprintf(expected, sizeof expected, "/wait/%02zu", i);
        TALLY_ASSERT_TEXT(body_of(&in), expected);
        tally_buffer_fini(&in);
        close(fds[i]);
    }
    CU_ASSERT_EQUAL(f.n_abandoned, 0);
    fixture_close(&f);
}

static void test_api_http_wait__five_hundred_wait_and_are_answered(void)
{
    enum { N = 500 };
    struct fixture f;
    fixture_open(&f);
    int *fds = calloc(N, sizeof *fds);
    const char *request = "GET /wait HTTP/1.1\r\nHost: h\r\n\r\n";
    for (size_t i = 0; i < N; i++) {
        fds[i] = connected(&f);
        CU_ASSERT_TRUE(send_all(&f, fds[i], request, strlen(request)));
    }
    await_requests(&f, N);
    for (size_t i = 0; i < N; i++) { /* all at once, as a group commit does */
        answer_text(&f, f.waiting[i], 200, "go");
    }
    for (size_t i = 0; i < N; i++) {
        struct tally_buffer in = {.size = 0};
        CU_ASSERT_TRUE(await_response(&f, fds[i], &in, true));
        TALLY_ASSERT_TEXT(body_of(&in), "go");
        tally_buffer_fini(&in);
        close(fds[i]);
    }
    CU_ASSERT_EQUAL(f.n_abandoned, 0);
    free(fds);
    fixture_close(&f);
}

static void test_api_http_wait__closed_connection_is_abandoned(void)
{
    struct fixture f;
    fixture_open(&f);
    int closed = wait_on_new_connection(&f);
    int kept = wait_on_new_connection(&f);
    pass_time(&f, 20);
    CU_ASSERT_EQUAL(f.n_abandoned, 0);
    close(closed);
    await_abandoned(&f, 1);
    CU_ASSERT_PTR_NULL(f.waiting[0]);
    CU_ASSERT_PTR_NOT_NULL(f.waiting[1]);
    CU_ASSERT_PTR_EQUAL(f.last_abandoned_user, &f);
    struct tally_buffer in = {.size = 0};
    answer_text(&f, f.waiting[1], 200, "for you");
    CU_ASSERT_TRUE(await_response(&f, kept, &in, true));
    TALLY_ASSERT_TEXT(body_of(&in), "for you");
    close(kept);
    await_connections(&f, 0);
    CU_ASSERT_EQUAL(f.n_abandoned, 1);
    tally_buffer_fini(&in);
    fixture_close(&f);
}

static void test_api_http_wait__reset_and_half_closed_are_abandoned(void)
{
    struct fixture f;
    fixture_open(&f);
    tally_raw_reset(wait_on_new_connection(&f));
    await_abandoned(&f, 1);
    int half = wait_on_new_connection(&f);
    shutdown(half, SHUT_WR);
    await_abandoned(&f, 2);
    close(half);
    fixture_close(&f);
}

static void test_api_http_wait__many_hang_up_at_once(void)
{
    enum { N = 200 };
    struct fixture f;
    fixture_open(&f);
    int fds[N];
    for (size_t i = 0; i < N; i++) {
        fds[i] = wait_on_new_connection(&f);
    }
    for (size_t i = 0; i < N; i++) {
        close(fds[i]);
    }
    await_abandoned(&f, N);
    fixture_close(&f);
}

static void test_api_http_wait__answer_to_a_peer_that_has_just_gone(void)
{
    struct fixture f;
    fixture_open(&f);
    int fd = wait_on_new_connection(&f);
    tally_raw_reset(fd);
    CU_ASSERT_TRUE(f.n_abandoned == 0);
    answer_text(&f, f.waiting[0], 200, "too late"); /* before the server looks */
    await_connections(&f, 0);
    CU_ASSERT_EQUAL(f.n_abandoned, 0); /* answered, so not abandoned */
    fixture_close(&f);
}

static void test_api_http_wait__free_abandons_the_unanswered(void)
{
    struct fixture f;
    fixture_open(&f);
    int first = wait_on_new_connection(&f);
    int second = wait_on_new_connection(&f);
    int third = wait_on_new_connection(&f);
    answer_text(&f, f.waiting[1], 200, "prepared, not sent");
    fixture_close(&f);
    CU_ASSERT_EQUAL(f.n_abandoned, 2);
    tally_http_server_free(NULL);
    close(first);
    close(second);
    close(third);
}

/* Waiting requests must not make the loop spin. */
static void test_api_http_wait__waiting_requests_cost_no_turns(void)
{
    struct fixture f;
    fixture_open(&f);
    int fd = wait_on_new_connection(&f);
    pass_time(&f, 30);
    CU_ASSERT_TRUE(f.waiting[0]->is_suspended);
    int n_slept = 0; /* one step may end early, for an event that was under way */
    for (int i = 0; i < 4; i++) {
        const int64_t began = manual_clock_real_ms();
        step(&f, 60);
        n_slept += manual_clock_real_ms() - began >= 55;
    }
    CU_ASSERT_TRUE(n_slept >= 3);
    close(fd);
    fixture_close(&f);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_api_http_wait__deferred_answer_is_sent),
    TALLY_TEST(test_api_http_wait__answers_may_come_in_any_order),
    TALLY_TEST(test_api_http_wait__five_hundred_wait_and_are_answered),
    TALLY_TEST(test_api_http_wait__closed_connection_is_abandoned),
    TALLY_TEST(test_api_http_wait__reset_and_half_closed_are_abandoned),
    TALLY_TEST(test_api_http_wait__many_hang_up_at_once),
    TALLY_TEST(test_api_http_wait__answer_to_a_peer_that_has_just_gone),
    TALLY_TEST(test_api_http_wait__free_abandons_the_unanswered),
    TALLY_TEST(test_api_http_wait__waiting_requests_cost_no_turns),
};

TALLY_SUITE(api_http_wait, TESTS);
