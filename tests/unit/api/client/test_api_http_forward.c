/* The forwarder runs in the test's thread. Its peers run in their own threads: our server, or a
 * socket that misbehaves. */
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "api/client/http_forward.h"
#include "codec/monotonic.h"
#include "tests/harness.h"
#include "tests/unit/api/client/forward_peers.h"
#include "tests/unit/api/raw_socket.h"

/* ---- Answers ---- */

static void test_api_http_forward__answer_comes_back_as_it_is(void)
{
    struct forward_host host;
    struct forward_owner owner;
    struct tally_http_forward_result result;
    forward_start_both(&host, &owner, NULL);
    forward_expect_submit(&owner, host.url, "/a%20b/c?x=1&y&z=%26", 5000, &host);
    forward_take(&owner, &result);
    TALLY_ASSERT_STATUS(result.err.status, TALLY_OK, &result.err);
    CU_ASSERT_PTR_EQUAL(result.user, &host);
    CU_ASSERT_EQUAL(result.http_status, 201);
    TALLY_ASSERT_TEXT(result.content_type, "text/x-test; charset=utf-8");
    TALLY_ASSERT_TEXT(result.headers[0].name, "Location");
    TALLY_ASSERT_TEXT(result.headers[0].value, "/elsewhere");
    TALLY_ASSERT_TEXT(forward_header(&result, "X-Two"), "a, b");
    CU_ASSERT_PTR_NULL(forward_header(&result, "Content-Type"));
    CU_ASSERT_PTR_NULL(forward_header(&result, "Content-Length"));
    CU_ASSERT_PTR_NULL(forward_header(&result, "Date"));
    CU_ASSERT_PTR_NULL(forward_header(&result, "Connection"));
    forward_assert_body(&result, "GET /a%20b/c?x=1&y&z=%26\n"); /* no header added by libcurl */
    tally_http_forward_result_fini(&result);
    forward_expect_submit(&owner, host.url, "/none", 5000, NULL);
    forward_take(&owner, &result);
    CU_ASSERT_EQUAL(result.http_status, 204);
    CU_ASSERT_PTR_NULL(result.content_type);
    CU_ASSERT_EQUAL(result.body.size, 0);
    tally_http_forward_result_fini(&result);
    forward_stop_both(&host, &owner);
}

static void test_api_http_forward__request_goes_as_it_is(void)
{
    struct forward_host host;
    struct forward_owner owner;
    struct tally_http_forward *forward;
    struct tally_http_forward_result result;
    struct tally_buffer body = {.size = 0};
    forward_start_both(&host, &owner, NULL);
    char url[80];
    snprintf(url, sizeof url, "%s//", host.url);
    struct tally_http_forward_request request = {.method = "POST",
                                                 .base_url = url,
                                                 .target = "/p",
                                                 .headers = {{"Authorization", "Bearer s3cret"},
                                                             {"Content-Type", "a/b"},
                                                             {"Accept", "c/d"},
                                                             {"User-Agent", "me"},
                                                             {"X-Empty", ""}},
                                                 .body = &body,
                                                 .timeout_ms = FORWARD_HANG_MS};
    (void)tally_buffer_append_text(&body, "hello");
    CU_ASSERT_EQUAL_FATAL(tally_http_forward(owner.forwarder, &request, &forward, NULL), TALLY_OK);
    CU_ASSERT_PTR_NULL(body.data); /* moved */
    forward_take(&owner, &result);
    forward_assert_body(&result, "POST /p Accept=c/d Authorization=Bearer s3cret Content-Type=a/b "
                                 "Content-Length=5 User-Agent=me X-Empty=\nhello");
    tally_http_forward_result_fini(&result);
    request = (struct tally_http_forward_request){
        .method = "PUT", .base_url = url, .target = "/q", .timeout_ms = FORWARD_HANG_MS};
    CU_ASSERT_EQUAL_FATAL(tally_http_forward(owner.forwarder, &request, &forward, NULL), TALLY_OK);
    forward_take(&owner, &result);
    forward_assert_body(&result, "PUT /q Content-Length=0\n");
    tally_http_forward_result_fini(&result);
    forward_stop_both(&host, &owner);
}

static void test_api_http_forward__no_line_ends_in_a_head(void)
{
    struct forward_owner owner;
    struct tally_http_forward *forward = NULL;
    forward_owner_start(&owner, NULL);
    struct tally_http_forward_request request = {.method = "GET",
                                                 .base_url = "http://127.0.0.1:1",
                                                 .target = "/",
                                                 .headers = {{"Accept", "a\r\nX-Evil: 1"}},
                                                 .timeout_ms = 1000};
    CU_ASSERT_EQUAL(tally_http_forward(owner.forwarder, &request, &forward, NULL),
                    TALLY_INVALID_ARGUMENT);
    request.headers[0].name = NULL;
    request.target = "/ HTTP/1.1\nX: y";
    CU_ASSERT_EQUAL(tally_http_forward(owner.forwarder, &request, &forward, NULL),
                    TALLY_INVALID_ARGUMENT);
    CU_ASSERT_PTR_NULL(forward);
    forward_owner_stop(&owner);
}

static void test_api_http_forward__large_bodies(void)
{
    enum { BIG = 8 << 20 };
    struct forward_host host;
    struct forward_owner owner;
    struct tally_http_forward *forward;
    struct tally_http_forward_result result;
    struct tally_buffer body = {.size = 0};
    forward_start_both(&host, &owner, NULL);
    CU_ASSERT_EQUAL_FATAL(tally_buffer_reserve(&body, BIG), TALLY_OK);
    body.size = BIG;
    for (size_t i = 0; i < BIG; i++) {
        body.data[i] = (uint8_t)(i * 2654435761U >> 24);
    }
    struct tally_buffer copy = {.size = 0};
    CU_ASSERT_EQUAL_FATAL(tally_buffer_append(&copy, body.data, body.size), TALLY_OK);
    const struct tally_http_forward_request request = {.method = "POST",
                                                       .base_url = host.url,
                                                       .target = "/mirror",
                                                       .body = &body,
                                                       .timeout_ms = FORWARD_HANG_MS};
    CU_ASSERT_EQUAL_FATAL(tally_http_forward(owner.forwarder, &request, &forward, NULL), TALLY_OK);
    forward_take(&owner, &result);
    TALLY_ASSERT_STATUS(result.err.status, TALLY_OK, &result.err);
    CU_ASSERT_EQUAL_FATAL(result.body.size, BIG);
    CU_ASSERT_EQUAL(memcmp(result.body.data, copy.data, BIG), 0);
    tally_http_forward_result_fini(&result);
    tally_buffer_fini(&copy);
    forward_stop_both(&host, &owner);
}

/* ---- Many, and waiting ---- */

static void test_api_http_forward__long_poll_holds_up_nobody(void)
{
    struct forward_host host;
    struct forward_owner owner;
    struct tally_http_forward_result result;
    int tags[2];
    forward_start_both(&host, &owner, NULL);
    forward_expect_submit(&owner, host.url, "/hold", FORWARD_HANG_MS, &tags[0]);
    forward_turn_until(&owner, &host.n_requests, 1);
    forward_expect_submit(&owner, host.url, "/x", 5000, &tags[1]);
    forward_take(&owner, &result);
    CU_ASSERT_PTR_EQUAL(result.user, &tags[1]);
    tally_http_forward_result_fini(&result);
    CU_ASSERT_FALSE(tally_http_forward_take(owner.forwarder, &result));
    forward_host_signal(&host, &host.releases);
    forward_take(&owner, &result);
    CU_ASSERT_PTR_EQUAL(result.user, &tags[0]);
    forward_assert_body(&result, "released");
    tally_http_forward_result_fini(&result);
    forward_stop_both(&host, &owner);
}

static void test_api_http_forward__two_hundred_at_once(void)
{
    enum { N = 200 };
    struct forward_host host;
    struct forward_owner owner;
    struct tally_http_forward_result result;
    bool came[N] = {false};
    forward_start_both(&host, &owner, NULL);
    for (int round = 0; round < 2; round++) { /* the second uses kept connections */
        for (size_t i = 0; i < N; i++) {
            forward_expect_submit(&owner, host.url, "/hold", FORWARD_HANG_MS, &came[i]);
        }
        forward_turn_until(&owner, &host.n_requests, (size_t)(round + 1) * N);
        CU_ASSERT_FALSE(tally_http_forward_take(owner.forwarder, &result));
        forward_host_signal(&host, &host.releases);
        memset(came, 0, sizeof came);
        for (size_t i = 0; i < N; i++) {
            forward_take(&owner, &result);
            TALLY_ASSERT_STATUS(result.err.status, TALLY_OK, &result.err);
            bool *mine = result.user;
            CU_ASSERT_FALSE(*mine);
            *mine = true;
            tally_http_forward_result_fini(&result);
        }
    }
    forward_stop_both(&host, &owner);
}

static void test_api_http_forward__connections_are_used_again(void)
{
    struct forward_plain_peer peer;
    struct forward_owner owner;
    struct tally_http_forward_result result;
    forward_plain_peer_start(&peer, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", true);
    forward_owner_start(&owner, NULL);
    for (int i = 0; i < 5; i++) {
        forward_expect_submit(&owner, peer.url, "/", 5000, NULL);
        forward_take(&owner, &result);
        forward_assert_body(&result, "ok");
        tally_http_forward_result_fini(&result);
    }
    forward_owner_stop(&owner);
    forward_plain_peer_stop(&peer);
    CU_ASSERT_EQUAL(peer.n_connections, 1);
    CU_ASSERT_EQUAL(peer.n_requests, 5);
}

static double cpu_seconds(void)
{
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (double)used.tv_sec + (double)used.tv_nsec / 1e9;
}

static void test_api_http_forward__idle_connection_that_closes_is_quiet(void)
{
    struct forward_plain_peer peer;
    struct forward_owner owner;
    forward_plain_peer_start(&peer, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", false);
    forward_owner_start(&owner, NULL);
    forward_expect_submit(&owner, peer.url, "/", 5000, NULL);
    forward_take_any(&owner);
    const double before = cpu_seconds();
    struct tally_http_forward_result result;
    for (const int64_t end_ms = tally_monotonic_ms() + 300; tally_monotonic_ms() < end_ms;) {
        (void)forward_has_work(&owner, 300);
        CU_ASSERT_FALSE(tally_http_forward_take(owner.forwarder, &result));
    }
    CU_ASSERT_TRUE(cpu_seconds() - before < 0.03);
    forward_owner_stop(&owner);
    forward_plain_peer_stop(&peer);
}

static void test_api_http_forward__idle_connections_are_few(void)
{
    enum { N = 20 };
    struct forward_host host;
    struct forward_owner owner;
    forward_start_both(&host, &owner,
                       &(struct tally_http_forwarder_config){.max_idle_connections = 3});
    for (size_t i = 0; i < N; i++) {
        forward_expect_submit(&owner, host.url, "/hold", FORWARD_HANG_MS, NULL);
    }
    forward_turn_until(&owner, &host.n_requests, N);
    forward_host_signal(&host, &host.releases);
    for (size_t i = 0; i < N; i++) {
        forward_take_any(&owner);
    }
    struct tally_http_forward_result none;
    const int64_t end_ms = tally_monotonic_ms() + FORWARD_HANG_MS;
    while (atomic_load(&host.n_connections) > 3 && tally_monotonic_ms() < end_ms) {
        CU_ASSERT_FALSE_FATAL(tally_http_forward_take(owner.forwarder, &none));
        (void)forward_has_work(&owner, 1);
    }
    CU_ASSERT_EQUAL(atomic_load(&host.n_connections), 3);
    forward_stop_both(&host, &owner);
}

/* ---- Failures ---- */

static void test_api_http_forward__peer_refuses_the_connection(void)
{
    struct forward_owner owner;
    char url[64];
    close(forward_listen(url)); /* the port has no listener now */
    forward_owner_start(&owner, NULL);
    forward_expect_submit(&owner, url, "/", 5000, NULL);
    forward_assert_failure(&owner, TALLY_UNAVAILABLE);
    forward_expect_submit(&owner, "nonsense://x", "/", 5000, NULL);
    forward_assert_failure(&owner, TALLY_UNAVAILABLE);
    forward_owner_stop(&owner);
}

static void assert_broken(const char *answer)
{
    struct forward_plain_peer peer;
    struct forward_owner owner;
    forward_plain_peer_start(&peer, answer, false);
    forward_owner_start(&owner, NULL);
    forward_expect_submit(&owner, peer.url, "/", 5000, NULL);
    forward_assert_failure(&owner, TALLY_UNAVAILABLE);
    forward_owner_stop(&owner);
    forward_plain_peer_stop(&peer);
}

static void test_api_http_forward__peer_closes_before_the_answer_is_whole(void)
{
    assert_broken("");
    assert_broken("HTTP/1.1 200 OK\r\nContent-Le");
    assert_broken("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort");
    assert_broken("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
    assert_broken("SSH-2.0-OpenSSH_9.2\r\n");
    assert_broken("HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n");
}

/* A body is not sent a second time, because the peer may have acted on the first copy. */
static void test_api_http_forward__a_body_is_sent_once(void)
{
    struct forward_plain_peer peer;
    struct forward_owner owner;
    struct tally_http_forward *forward;
    forward_plain_peer_start(&peer, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", true);
    forward_owner_start(&owner, NULL);
    forward_expect_submit(&owner, peer.url, "/", 5000, NULL);
    forward_take_any(&owner);
    peer.answer = ""; /* from now on: read the request, then close */
    peer.keeps = false;
    struct tally_buffer body = {.size = 0};
    (void)tally_buffer_append_text(&body, "once");
    const struct tally_http_forward_request request = {.method = "POST",
                                                       .base_url = peer.url,
                                                       .target = "/",
                                                       .body = &body,
                                                       .timeout_ms = FORWARD_HANG_MS};
    CU_ASSERT_EQUAL_FATAL(tally_http_forward(owner.forwarder, &request, &forward, NULL), TALLY_OK);
    forward_assert_failure(&owner, TALLY_UNAVAILABLE);
    forward_owner_stop(&owner);
    forward_plain_peer_stop(&peer);
    CU_ASSERT_EQUAL(peer.n_requests, 2);
}

static void test_api_http_forward__timeout(void)
{
    struct forward_host host;
    struct forward_owner owner;
    forward_start_both(&host, &owner, NULL);
    forward_expect_submit(&owner, host.url, "/hold", 150, NULL);
    forward_assert_failure(&owner, TALLY_DEADLINE);
    forward_wait_until(&host.n_abandoned, 1);
    forward_stop_both(&host, &owner);
}

/* ---- Aborting ---- */

static void test_api_http_forward__abort_ends_it_at_the_peer(void)
{
    struct forward_host host;
    struct forward_owner owner;
    struct tally_http_forward *forward;
    struct tally_http_forward_result result;
    forward_start_both(&host, &owner, NULL);
    forward = forward_expect_submit(&owner, host.url, "/hold", FORWARD_HANG_MS, NULL);
    forward_turn_until(&owner, &host.n_requests, 1);
    tally_http_forward_abort(forward);
    forward_wait_until(&host.n_abandoned, 1);
    CU_ASSERT_FALSE(tally_http_forward_take(owner.forwarder, &result));
    /* Abort one request at once, and one after its result is ready. The result is ready soon
     * because the request cannot be sent. */
    forward = forward_expect_submit(&owner, host.url, "/hold", FORWARD_HANG_MS, NULL);
    tally_http_forward_abort(forward);
    struct tally_http_forward *others[2];
    others[0] = forward_expect_submit(&owner, "nonsense://x", "/", FORWARD_HANG_MS, &others[1]);
    others[1] = forward_expect_submit(&owner, "nonsense://x", "/", FORWARD_HANG_MS, &others[0]);
    forward_take(&owner, &result);
    tally_http_forward_abort(*(struct tally_http_forward **)result.user);
    tally_http_forward_result_fini(&result);
    CU_ASSERT_FALSE(tally_http_forward_take(owner.forwarder, &result));
    forward_stop_both(&host, &owner);
}

/* Aborts many requests while their responses arrive. */
static void test_api_http_forward__abort_races_with_the_answer(void)
{
    enum { N = 100, ROUNDS = 5 };
    struct forward_host host;
    struct forward_owner owner;
    struct tally_http_forward *forwards[N];
    struct tally_http_forward_result result;
    bool aborted[N], came[N];
    forward_start_both(&host, &owner, NULL);
    for (int round = 0; round < ROUNDS; round++) {
        memset(aborted, 0, sizeof aborted);
        memset(came, 0, sizeof came);
        for (size_t i = 0; i < N; i++) {
            forwards[i] = forward_expect_submit(&owner, host.url, "/x", FORWARD_HANG_MS, &came[i]);
        }
        for (size_t i = (size_t)round; i < N; i += 2) {
            if (tally_http_forward_take(owner.forwarder, &result)) {
                *(bool *)result.user = true;
                tally_http_forward_result_fini(&result);
            }
            if (!came[i]) {
                aborted[i] = true;
                tally_http_forward_abort(forwards[i]);
            }
        }
        for (size_t i = 0; i < N; i++) {
            while (!aborted[i] && !came[i]) {
                forward_take(&owner, &result);
                CU_ASSERT_FALSE(aborted[(bool *)result.user - came]);
                *(bool *)result.user = true;
                tally_http_forward_result_fini(&result);
            }
        }
        CU_ASSERT_FALSE(tally_http_forward_take(owner.forwarder, &result));
    }
    forward_stop_both(&host, &owner);
}

static void test_api_http_forward__free_while_requests_are_under_way(void)
{
    struct forward_host host;
    struct forward_owner owner;
    forward_start_both(&host, &owner, NULL);
    for (int i = 0; i < 20; i++) {
        forward_expect_submit(&owner, host.url, "/hold", FORWARD_HANG_MS, NULL);
    }
    forward_turn_until(&owner, &host.n_requests, 20);
    forward_expect_submit(&owner, host.url, "/x", FORWARD_HANG_MS, NULL);
    forward_expect_submit(&owner, host.url, "/hold", FORWARD_HANG_MS, NULL);
    forward_owner_stop(&owner);
    forward_wait_until(&host.n_abandoned, 20);
    forward_host_stop(&host);
    tally_http_forwarder_free(NULL);
}

/* ---- Limits ---- */

static void test_api_http_forward__requests_have_a_limit(void)
{
    struct forward_host host;
    struct forward_owner owner;
    struct tally_http_forward *first, *second, *third = NULL;
    forward_start_both(&host, &owner, &(struct tally_http_forwarder_config){.max_requests = 2});
    CU_ASSERT_EQUAL(forward_submit(&owner, host.url, "/hold", FORWARD_HANG_MS, NULL, &first),
                    TALLY_OK);
    CU_ASSERT_EQUAL(forward_submit(&owner, host.url, "/x", FORWARD_HANG_MS, NULL, &second),
                    TALLY_OK);
    CU_ASSERT_EQUAL(forward_submit(&owner, host.url, "/x", FORWARD_HANG_MS, NULL, &third),
                    TALLY_RESOURCE_EXHAUSTED);
    CU_ASSERT_PTR_NULL(third);
    CU_ASSERT_TRUE(
        forward_has_work(&owner, FORWARD_HANG_MS)); /* a request counts until its result is taken */
    CU_ASSERT_EQUAL(forward_submit(&owner, host.url, "/x", FORWARD_HANG_MS, NULL, &third),
                    TALLY_RESOURCE_EXHAUSTED);
    forward_take_any(&owner);
    CU_ASSERT_EQUAL(forward_submit(&owner, host.url, "/x", FORWARD_HANG_MS, NULL, &third),
                    TALLY_OK);
    forward_stop_both(&host, &owner);
}

static struct tally_buffer body_of(size_t n)
{
    struct tally_buffer body = {.size = 0};
    CU_ASSERT_EQUAL_FATAL(tally_buffer_reserve(&body, n), TALLY_OK);
    memset(body.data, 'b', n);
    body.size = n;
    return body;
}

static enum tally_status mirror(struct forward_owner *owner, const char *url,
                                struct tally_buffer *body)
{
    struct tally_http_forward *forward;
    const struct tally_http_forward_request request = {.method = "POST",
                                                       .base_url = url,
                                                       .target = "/mirror",
                                                       .body = body,
                                                       .timeout_ms = FORWARD_HANG_MS};
    return tally_http_forward(owner->forwarder, &request, &forward, NULL);
}

static void test_api_http_forward__bytes_have_a_limit(void)
{
    struct forward_host host;
    struct forward_owner owner;
    struct tally_http_forward_result result;
    forward_start_both(&host, &owner,
                       &(struct tally_http_forwarder_config){.max_held_bytes = 150000});
    struct tally_buffer body = body_of(200000);
    CU_ASSERT_EQUAL(mirror(&owner, host.url, &body), TALLY_RESOURCE_EXHAUSTED);
    CU_ASSERT_EQUAL(body.size, 200000); /* stays the caller's */
    tally_buffer_fini(&body);
    body = body_of(100001);
    CU_ASSERT_EQUAL(mirror(&owner, host.url, &body), TALLY_OK);
    forward_assert_failure(&owner, TALLY_RESOURCE_EXHAUSTED); /* body and response count together */
    for (int i = 0; i < 20; i++) {                            /* held bytes are released */
        body = body_of(50000);
        CU_ASSERT_EQUAL_FATAL(mirror(&owner, host.url, &body), TALLY_OK);
        forward_take(&owner, &result);
        TALLY_ASSERT_STATUS(result.err.status, TALLY_OK, &result.err);
        CU_ASSERT_EQUAL(result.body.size, 50000);
        tally_http_forward_result_fini(&result);
    }
    forward_owner_stop(&owner);
    forward_owner_start(&owner, &(struct tally_http_forwarder_config){.max_answer_bytes = 100000});
    body = body_of(100001);
    CU_ASSERT_EQUAL(mirror(&owner, host.url, &body), TALLY_OK);
    forward_assert_failure(&owner, TALLY_TOO_LARGE);
    body = body_of(100000);
    CU_ASSERT_EQUAL(mirror(&owner, host.url, &body), TALLY_OK);
    forward_take(&owner, &result);
    TALLY_ASSERT_STATUS(result.err.status, TALLY_OK, &result.err);
    tally_http_forward_result_fini(&result);
    forward_stop_both(&host, &owner);
}

static void test_api_http_forward__authorities_are_looked_at_at_once(void)
{
    struct tally_http_forwarder *forwarder = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    struct tally_http_forwarder_config config = {.tls_ca = "/nonexistent.pem"};
    TALLY_ASSERT_STATUS(tally_http_forwarder_new(&config, &forwarder, &err), TALLY_INVALID_ARGUMENT,
                        &err);
    TALLY_ASSERT_TEXT(err.field, "peer-tls-ca");
    CU_ASSERT_PTR_NULL(forwarder);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_api_http_forward__answer_comes_back_as_it_is),
    TALLY_TEST(test_api_http_forward__request_goes_as_it_is),
    TALLY_TEST(test_api_http_forward__no_line_ends_in_a_head),
    TALLY_TEST(test_api_http_forward__large_bodies),
    TALLY_TEST(test_api_http_forward__long_poll_holds_up_nobody),
    TALLY_TEST(test_api_http_forward__two_hundred_at_once),
    TALLY_TEST(test_api_http_forward__connections_are_used_again),
    TALLY_TEST(test_api_http_forward__idle_connection_that_closes_is_quiet),
    TALLY_TEST(test_api_http_forward__idle_connections_are_few),
    TALLY_TEST(test_api_http_forward__peer_refuses_the_connection),
    TALLY_TEST(test_api_http_forward__peer_closes_before_the_answer_is_whole),
    TALLY_TEST(test_api_http_forward__a_body_is_sent_once),
    TALLY_TEST(test_api_http_forward__timeout),
    TALLY_TEST(test_api_http_forward__abort_ends_it_at_the_peer),
    TALLY_TEST(test_api_http_forward__abort_races_with_the_answer),
    TALLY_TEST(test_api_http_forward__free_while_requests_are_under_way),
    TALLY_TEST(test_api_http_forward__requests_have_a_limit),
    TALLY_TEST(test_api_http_forward__bytes_have_a_limit),
    TALLY_TEST(test_api_http_forward__authorities_are_looked_at_at_once),
};
TALLY_SUITE(api_http_forward, TESTS);
