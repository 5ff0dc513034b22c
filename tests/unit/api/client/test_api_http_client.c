/* The HTTP client: exchanges, bytes on the wire, failures, silence, cancellation, Connect calls.
 * The client blocks, so its peers run in threads. */
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "api/client/http_client.h"
#include "api/json/problem.h"
#include "tests/harness.h"
#include "tests/unit/api/client/client_peers.h"

/* ---- Exchanges ---- */

static void test_api_http_client__get_and_post(void)
{
    struct client_host host;
    struct caller c;
    client_host_start(&host, 0);
    caller_start(&c, host.url);
    TALLY_ASSERT_STATUS(caller_get(&c, "/v1/jobs?limit=1", 0), TALLY_OK, &c.err);
    CU_ASSERT_EQUAL(c.exchange.status, 200);
    TALLY_ASSERT_TEXT(c.exchange.response_type, "text/plain");
    client_assert_text(&c.out, "/v1/jobs");
    c.exchange = (struct tally_http_exchange){.method = "POST",
                                              .path = "/Echo",
                                              .content_type = "application/json",
                                              .body = (const uint8_t *)"{}\0{}",
                                              .n_body = 5};
    TALLY_ASSERT_STATUS(caller_perform(&c), TALLY_OK, &c.err);
    CU_ASSERT_EQUAL(c.out.size, 5);
    CU_ASSERT_EQUAL(memcmp(c.out.data, "{}\0{}", 5), 0);
    c.out.size = 0;
    c.exchange = (struct tally_http_exchange){.method = "HEAD", .path = "/x"};
    TALLY_ASSERT_STATUS(caller_perform(&c), TALLY_OK, &c.err);
    CU_ASSERT_EQUAL(c.exchange.status, 200);
    CU_ASSERT_EQUAL(c.out.size, 0);
    TALLY_ASSERT_STATUS(caller_get(&c, "/y", 0), TALLY_OK, &c.err);
    client_assert_text(&c.out, "/y"); /* GET again, after HEAD and POST */
    caller_stop(&c);
    client_host_stop(&host);
}

static void test_api_http_client__request_headers(void)
{
    struct client_host host;
    struct caller c;
    client_host_start(&host, 0);
    caller_start(&c, host.url);
    CU_ASSERT_EQUAL(caller_get(&c, "/Headers", 0), TALLY_OK);
    client_assert_text(&c.out, "GET User-Agent=tally;");
    c.exchange = (struct tally_http_exchange){.method = "POST", .path = "/Headers"};
    CU_ASSERT_EQUAL(caller_perform(&c), TALLY_OK);
    client_assert_text(&c.out, "POST User-Agent=tally;Content-Length=0;");
    caller_stop(&c);

    char url[80];
    snprintf(url, sizeof url, "%s/prefix//", host.url);
    struct tally_http_client_config config = {
        .base_url = url, .bearer_token = "s3cret", .user_agent = "tally-test/1"};
    caller_start_with(&c, &config);
    c.exchange = (struct tally_http_exchange){.method = "PUT",
                                              .path = "/Headers",
                                              .content_type = "a/b",
                                              .accept = "application/x-npy",
                                              .extra_header = "X-Extra: 1",
                                              .body = (const uint8_t *)"xyz",
                                              .n_body = 3};
    CU_ASSERT_EQUAL(caller_perform(&c), TALLY_OK);
    client_assert_text(&c.out,
                       "PUT User-Agent=tally-test/1;Accept=application/x-npy;Authorization=Bearer "
                       "s3cret;Content-Type=a/b;Content-Length=3;X-Extra=1;");
    CU_ASSERT_EQUAL(caller_get(&c, "/path", 0), TALLY_OK);
    client_assert_text(&c.out, "/prefix/path");
    caller_stop(&c);
    client_host_stop(&host);
}

static void test_api_http_client__any_status_is_an_answer(void)
{
    struct client_host host;
    struct caller c;
    client_host_start(&host, 0);
    caller_start(&c, host.url);
    CU_ASSERT_EQUAL(caller_get(&c, "/problem", 0), TALLY_OK);
    CU_ASSERT_EQUAL(c.exchange.status, 404);
    TALLY_ASSERT_TEXT(c.exchange.response_type, "application/problem+json");
    tally_problem_decode(c.exchange.status, (char *)c.out.data, c.out.size, &c.err);
    TALLY_ASSERT_STATUS(c.err.status, TALLY_NOT_FOUND, &c.err);
    TALLY_ASSERT_TEXT(c.err.field, "id");
    c.out.size = 0;
    CU_ASSERT_EQUAL(caller_get(&c, "/redirect", 0), TALLY_OK);
    CU_ASSERT_EQUAL(c.exchange.status, 302); /* not followed */
    TALLY_ASSERT_TEXT(c.exchange.location, "/elsewhere");
    TALLY_ASSERT_TEXT(c.exchange.response_type, "");
    caller_stop(&c);
    client_host_stop(&host);
}

static void test_api_http_client__answer_appends_and_has_a_limit(void)
{
    struct client_host host;
    struct caller c;
    client_host_start(&host, 0);
    caller_start(&c, host.url);
    c.out.limit = 8;
    CU_ASSERT_EQUAL(caller_get(&c, "/abc", 0), TALLY_OK);
    CU_ASSERT_EQUAL(caller_get(&c, "/def", 0), TALLY_OK);
    CU_ASSERT_EQUAL(c.out.size, 8);
    TALLY_ASSERT_STATUS(caller_get(&c, "/g", 0), TALLY_TOO_LARGE, &c.err);
    CU_ASSERT_EQUAL(c.out.size, 8);
    CU_ASSERT_EQUAL(memcmp(c.out.data, "/abc/def", 8), 0);
    c.out.size = 0;
    CU_ASSERT_EQUAL(caller_get(&c, "/again", 0), TALLY_OK);
    caller_stop(&c);
    client_host_stop(&host);
}

/* ---- Bytes on the wire ---- */

static void test_api_http_client__both_ends_count_the_same(void)
{
    enum { BIG = 3 << 20 };
    struct client_host host;
    struct caller c;
    client_host_start(&host, 0);
    struct tally_http_client_config config = {.base_url = host.url, .bearer_token = "t"};
    caller_start_with(&c, &config);
    uint8_t *body = calloc(1, BIG);
    static const size_t sizes[] = {0, 1, 1023, 1024, 65536, 1048577, BIG, 7};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        c.out.size = 0;
        CU_ASSERT_EQUAL(tally_connect_call(c.client, "Echo", body, sizes[i], 0, &c.out, NULL),
                        TALLY_OK);
        CU_ASSERT_EQUAL(c.out.size, sizes[i]);
        CU_ASSERT_EQUAL(caller_get(&c, "/x", 0), TALLY_OK);
        CU_ASSERT_EQUAL(caller_get(&c, "/problem", 0), TALLY_OK);
        c.exchange = (struct tally_http_exchange){.method = "HEAD", .path = "/h"};
        CU_ASSERT_EQUAL(caller_perform(&c), TALLY_OK);
        CU_ASSERT_EQUAL(tally_connect_call(c.client, "Fail", body, 3, 0, &c.out, NULL),
                        TALLY_NOT_FOUND);
    }
    uint64_t sent, received;
    tally_http_client_wire_bytes(c.client, &sent, &received);
    caller_stop(&c);
    client_host_stop(&host);
    CU_ASSERT_EQUAL(sent, host.in_bytes);
    CU_ASSERT_EQUAL(received, host.out_bytes);
    CU_ASSERT_TRUE(sent > BIG && received > BIG);
    free(body);
}

static void test_api_http_client__broken_exchanges_are_not_counted(void)
{
    struct client_host host;
    struct caller c;
    client_host_start(&host, 0);
    caller_start(&c, host.url);
    CU_ASSERT_EQUAL(caller_get(&c, "/x", 0), TALLY_OK);
    uint64_t sent, received, sent_after, received_after;
    tally_http_client_wire_bytes(c.client, &sent, &received);
    CU_ASSERT_EQUAL(caller_hang(&c, 50), TALLY_DEADLINE);
    tally_http_client_wire_bytes(c.client, &sent_after, &received_after);
    CU_ASSERT_EQUAL(sent_after, sent);
    CU_ASSERT_EQUAL(received_after, received);
    caller_stop(&c);
    client_host_stop(&host);
}

#define ANSWER_OK "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

/* The peer drops a kept connection when the second request arrives. libcurl sends that request
 * again, and only the copy that is answered counts. */
static void test_api_http_client__resent_request_counts_once(void)
{
    static const struct client_line script[] = {
        {ANSWER_OK, false}, {"", true}, {ANSWER_OK, true}, {NULL, false}};
    struct client_peer peer;
    struct caller c;
    client_peer_start(&peer, script);
    caller_start(&c, peer.url);
    uint64_t sent, received;
    TALLY_ASSERT_STATUS(caller_get(&c, "/1", 0), TALLY_OK, &c.err);
    tally_http_client_wire_bytes(c.client, &sent, &received);
    CU_ASSERT_EQUAL(received, strlen(ANSWER_OK));
    TALLY_ASSERT_STATUS(caller_get(&c, "/2", 0), TALLY_OK, &c.err);
    client_assert_text(&c.out, "okok");
    uint64_t one = sent;
    tally_http_client_wire_bytes(c.client, &sent, &received);
    CU_ASSERT_EQUAL(sent, 2 * one);
    CU_ASSERT_EQUAL(received, 2 * strlen(ANSWER_OK));
    caller_stop(&c);
    client_peer_stop(&peer);
}

static void test_api_http_client__connection_that_idled_out_is_replaced(void)
{
    struct client_host host;
    struct caller c;
    client_host_start(&host, 1);
    caller_start(&c, host.url);
    TALLY_ASSERT_STATUS(caller_get(&c, "/x", 0), TALLY_OK, &c.err);
    usleep(2200 * 1000);
    TALLY_ASSERT_STATUS(caller_get(&c, "/x", 0), TALLY_OK, &c.err);
    uint64_t sent, received;
    tally_http_client_wire_bytes(c.client, &sent, &received);
    caller_stop(&c);
    client_host_stop(&host);
    CU_ASSERT_EQUAL(sent, host.in_bytes);
    CU_ASSERT_EQUAL(received, host.out_bytes);
}

/* ---- Failure ---- */

static void test_api_http_client__refused_connection_is_unavailable(void)
{
    struct caller c;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    CU_ASSERT_EQUAL(bind(fd, (struct sockaddr *)&address, size), 0); /* no listen() */
    CU_ASSERT_EQUAL(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    char url[64];
    snprintf(url, sizeof url, "http://127.0.0.1:%u", ntohs(address.sin_port));
    struct tally_http_client_config config = {.base_url = url, .bearer_token = "s3cret"};
    caller_start_with(&c, &config);
    TALLY_ASSERT_STATUS(caller_get(&c, "/v1/jobs", 0), TALLY_UNAVAILABLE, &c.err);
    CU_ASSERT_PTR_NOT_NULL(strstr(c.err.message, url));
    CU_ASSERT_PTR_NULL(strstr(c.err.message, "s3cret"));
    TALLY_ASSERT_TEXT(c.err.field, "coordinator");
    CU_ASSERT_EQUAL(c.exchange.status, 0);
    caller_stop(&c);
    close(fd);
}

static void assert_script_fails(const char *answer, enum tally_status expected)
{
    const struct client_line script[] = {{answer, true}, {NULL, false}};
    struct client_peer peer;
    struct caller c;
    client_peer_start(&peer, script);
    struct tally_http_client_config config = {.base_url = peer.url, .bearer_token = "s3cret"};
    caller_start_with(&c, &config);
    TALLY_ASSERT_STATUS(caller_get(&c, "/x", 0), expected, &c.err);
    TALLY_ASSERT_TEXT(c.err.field, TALLY_HTTP_UNANSWERED);
    CU_ASSERT_PTR_NULL(strstr(c.err.message, "s3cret"));
    CU_ASSERT_EQUAL(c.out.size, 0);
    caller_stop(&c);
    client_peer_stop(&peer);
}

static void test_api_http_client__broken_answers_are_unavailable(void)
{
    assert_script_fails("", TALLY_UNAVAILABLE);
    assert_script_fails("HTTP/1.1 200 OK\r\nContent-Le", TALLY_UNAVAILABLE);
    assert_script_fails("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", TALLY_UNAVAILABLE);
    assert_script_fails("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
                        TALLY_UNAVAILABLE);
    assert_script_fails("SSH-2.0-OpenSSH_9.2\r\n", TALLY_UNAVAILABLE);
}

static void test_api_http_client__deadline(void)
{
    struct client_host host;
    struct caller c;
    client_host_start(&host, 0);
    caller_start(&c, host.url);
    CU_ASSERT_EQUAL(caller_get(&c, "/x", 0), TALLY_OK); /* opens a connection */
    long start = client_now_ms();
    TALLY_ASSERT_STATUS(caller_hang(&c, 150), TALLY_DEADLINE, &c.err);
    long took = client_now_ms() - start;
    CU_ASSERT_TRUE(took >= 140 && took < CLIENT_HANG_MS);
    /* The client still works. */
    CU_ASSERT_EQUAL(caller_get(&c, "/x", 0), TALLY_OK);
    CU_ASSERT_EQUAL(caller_hang(&c, 50), TALLY_DEADLINE);
    CU_ASSERT_EQUAL(caller_get(&c, "/x", 0), TALLY_OK);
    CU_ASSERT_EQUAL(tally_connect_call(c.client, "hang", NULL, 0, 1000, &c.out, NULL),
                    TALLY_DEADLINE);
    caller_stop(&c);
    client_host_stop(&host);
}

/* ---- One of several servers ---- */

static void test_api_http_client__silence_ends_an_exchange(void)
{
    struct client_host host;
    struct caller c;
    client_host_start(&host, 0);
    caller_start(&c, host.url);
    tally_http_client_set_silence(c.client, 300);
    long start = client_now_ms();
    TALLY_ASSERT_STATUS(caller_get(&c, "/hang", 10 * CLIENT_HANG_MS), TALLY_DEADLINE, &c.err);
    CU_ASSERT_TRUE(client_now_ms() - start >= 300);
    CU_ASSERT_TRUE(client_now_ms() - start < CLIENT_HANG_MS);
    CU_ASSERT_EQUAL(caller_get(&c, "/x", 0), TALLY_OK);
    caller_stop(&c);
    client_host_stop(&host);
}

/* Whether a response that takes longer than silence_ms was received. False if the peer itself was
 * silent for that long because it was not scheduled. */
static bool receives_slow_answer(long silence_ms, bool has_others)
{
    static const char ANSWER[] = "HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n"
                                 "0123456789012345678901234567890123456789";
    static const struct client_line script[] = {{ANSWER, true}, {NULL, false}};
    struct client_peer peer;
    struct caller c;
    client_peer_start_slow(&peer, script, (int)(silence_ms / 30)); /* more than 30 pieces */
    caller_start(&c, peer.url);
    tally_http_client_set_silence(c.client, has_others ? silence_ms : 0);
    long start = client_now_ms();
    const enum tally_status status =
        caller_get(&c, "/", has_others ? 10 * CLIENT_HANG_MS : silence_ms);
    const long took = client_now_ms() - start;
    caller_stop(&c);
    client_peer_stop(&peer); /* it has sent everything */
    if (status == TALLY_DEADLINE && peer.longest_ms >= silence_ms) {
        return false;
    }
    TALLY_ASSERT_STATUS(status, TALLY_OK, &c.err);
    CU_ASSERT_TRUE(took > silence_ms);
    return true;
}

/* The whole response takes longer than the silence limit, but no pause in it does. */
static void test_api_http_client__slow_answer_is_not_silence(void)
{
    for (int has_others = 0; has_others < 2; has_others++) {
        long silence_ms = 1000;
        while (!receives_slow_answer(silence_ms, has_others == 1) && silence_ms < CLIENT_HANG_MS) {
            silence_ms *= 2;
        }
        CU_ASSERT_TRUE(silence_ms < CLIENT_HANG_MS);
    }
}

/* Returns the status of a second request: 500 on the same connection, 200 on a new one. */
static int status_after_busy(const char *busy, long silence_ms)
{
    const struct client_line script[] = {{busy, false},
                                         {"HTTP/1.1 500 Same\r\nContent-Length: 0\r\n\r\n", true},
                                         {"HTTP/1.1 200 Other\r\nContent-Length: 0\r\n\r\n", true},
                                         {NULL, false}};
    struct client_peer peer;
    struct caller c;
    client_peer_start(&peer, script);
    caller_start(&c, peer.url);
    tally_http_client_set_silence(c.client, silence_ms);
    CU_ASSERT_EQUAL(caller_get(&c, "/1", 0), TALLY_OK);
    CU_ASSERT_EQUAL(caller_get(&c, "/2", 0), TALLY_OK);
    const int status = c.exchange.status;
    if (status == 500) { /* finish the script */
        CU_ASSERT_EQUAL(caller_get(&c, "/3", 0), TALLY_OK);
    }
    caller_stop(&c);
    client_peer_stop(&peer);
    return status;
}

static void test_api_http_client__unavailable_leads_to_another_server(void)
{
    static const char BUSY[] = "HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy";
    CU_ASSERT_EQUAL(status_after_busy(BUSY, 60000), 200);
    CU_ASSERT_EQUAL(status_after_busy(BUSY, 0), 500); /* only one server: the connection is kept */
    CU_ASSERT_EQUAL(status_after_busy(ANSWER_OK, 60000), 500);
}

static volatile sig_atomic_t cancelled;

static void on_alarm(int signal_number)
{
    (void)signal_number;
    cancelled = 1;
}

static void test_api_http_client__cancel_interrupts_a_long_poll(void)
{
    struct client_host host;
    struct caller c;
    struct sigaction action = {.sa_handler = on_alarm}, before;
    client_host_start(&host, 0);
    struct tally_http_client_config config = {.base_url = host.url, .cancel = &cancelled};
    caller_start_with(&c, &config);
    cancelled = 0;
    (void)sigaction(SIGALRM, &action, &before);
    const struct itimerval in_100_ms = {.it_value.tv_usec = 100000};
    long start = client_now_ms();
    setitimer(ITIMER_REAL, &in_100_ms, NULL);
    TALLY_ASSERT_STATUS(caller_get(&c, "/hang", 10 * CLIENT_HANG_MS), TALLY_CANCELLED, &c.err);
    long took = client_now_ms() - start;
    CU_ASSERT_TRUE(took >= 90 && took < CLIENT_HANG_MS); /* the call's own limit is far away */
    /* While the flag is set, no exchange begins. */
    CU_ASSERT_EQUAL(caller_get(&c, "/x", 0), TALLY_CANCELLED);
    cancelled = 0;
    CU_ASSERT_EQUAL(caller_get(&c, "/x", 0), TALLY_OK);
    (void)sigaction(SIGALRM, &before, NULL);
    caller_stop(&c);
    client_host_stop(&host);
    CU_ASSERT_EQUAL(host.n_abandoned, 1); /* the server has noticed the hang-up */
}

static void *set_cancelled_soon(void *context)
{
    (void)context;
    usleep(350 * 1000); /* past the timers that libcurl sets while connecting */
    __atomic_store_n(&cancelled, 1, __ATOMIC_RELAXED);
    return NULL;
}

/* The signal may reach another thread, in which case nothing interrupts this one. */
static void test_api_http_client__cancel_by_another_thread(void)
{
    struct client_host host;
    struct caller c;
    pthread_t setter;
    client_host_start(&host, 0);
    struct tally_http_client_config config = {.base_url = host.url, .cancel = &cancelled};
    caller_start_with(&c, &config);
    cancelled = 0;
    long start = client_now_ms();
    client_start_thread(&setter, set_cancelled_soon, NULL);
    TALLY_ASSERT_STATUS(caller_get(&c, "/hang", 10 * CLIENT_HANG_MS), TALLY_CANCELLED, &c.err);
    long took = client_now_ms() - start;
    CU_ASSERT_TRUE(took >= 340 && took < CLIENT_HANG_MS);
    pthread_join(setter, NULL);
    cancelled = 0;
    caller_stop(&c);
    client_host_stop(&host);
}

static void test_api_http_client__sigpipe_state_is_restored(void)
{
    struct client_host host;
    struct caller c;
    sigset_t mask;
    client_host_start(&host, 0);
    caller_start(&c, host.url);
    CU_ASSERT_EQUAL(caller_get(&c, "/x", 0), TALLY_OK);
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    CU_ASSERT_EQUAL(sigismember(&mask, SIGPIPE), 0);
    caller_stop(&c);
    client_host_stop(&host);
}

static void test_api_http_client__loopback_needs_no_proxy(void)
{
    struct client_host host;
    struct caller c;
    setenv("http_proxy", "http://127.0.0.1:1", 1);
    client_host_start(&host, 0);
    caller_start(&c, host.url);
    TALLY_ASSERT_STATUS(caller_get(&c, "/x", 0), TALLY_OK, &c.err);
    caller_stop(&c);
    /* Any other host goes through the proxy, which refuses the connection; 192.0.2.1 is reserved.
     */
    caller_start(&c, "http://192.0.2.1:9");
    TALLY_ASSERT_STATUS(caller_get(&c, "/x", 2000), TALLY_UNAVAILABLE, &c.err);
    CU_ASSERT_PTR_NOT_NULL(strstr(c.err.message, "127.0.0.1"));
    caller_stop(&c);
    unsetenv("http_proxy");
    client_host_stop(&host);
}

static void test_api_http_client__http_may_be_left_out(void)
{
    static const char *const urls[] = {"127.0.0.1:8080", "localhost:8080/", "[::1]:8080"};
    for (size_t i = 0; i < sizeof urls / sizeof urls[0]; i++) {
        struct tally_http_client_config config = {.base_url = urls[i]};
        struct tally_http_client *client = NULL;
        TALLY_ASSERT_STATUS(tally_http_client_new(&config, &client, NULL), TALLY_OK, NULL);
        tally_http_client_free(client);
    }
}

static void test_api_http_client__bad_configurations_are_refused(void)
{
    static const char *const urls[] = {"",
                                       "user:s3cret@127.0.0.1:8080",
                                       "ftp://127.0.0.1",
                                       "file:///etc/passwd",
                                       "http://",
                                       "http://user:s3cret@127.0.0.1",
                                       "http://127.0.0.1?x=1",
                                       "http://127.0.0.1#f",
                                       "http://127.0.0.1:99999",
                                       NULL};
    for (size_t i = 0; i < sizeof urls / sizeof urls[0]; i++) {
        struct tally_http_client_config config = {.base_url = urls[i]};
        struct tally_http_client *client = NULL;
        struct tally_error err = TALLY_ERROR_INIT;
        TALLY_ASSERT_STATUS(tally_http_client_new(&config, &client, &err), TALLY_INVALID_ARGUMENT,
                            &err);
        TALLY_ASSERT_TEXT(err.field, "coordinator");
        CU_ASSERT_PTR_NULL(strstr(err.message, "s3cret"));
        CU_ASSERT_PTR_NULL(client);
    }
    struct tally_http_client_config config = {.base_url = "http://127.0.0.1",
                                              .bearer_token = "s3cret\r\nX: y"};
    struct tally_http_client *client = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_http_client_new(&config, &client, &err), TALLY_INVALID_ARGUMENT,
                        &err);
    CU_ASSERT_PTR_NULL(strstr(err.message, "s3cret"));
    tally_http_client_free(NULL);
}

/* ---- Connect ---- */

static void test_api_http_client__connect_call(void)
{
    struct client_host host;
    struct caller c;
    client_host_start(&host, 0);
    caller_start(&c, host.url);
    TALLY_ASSERT_STATUS(
        tally_connect_call(c.client, "Headers", (const uint8_t *)"pb", 2, 1234, &c.out, &c.err),
        TALLY_OK, &c.err);
    client_assert_text(&c.out,
                       "POST User-Agent=tally;Content-Type=application/proto;"
                       "Content-Length=2;Connect-Protocol-Version=1;Connect-Timeout-Ms=1234;");
    TALLY_ASSERT_STATUS(tally_connect_call(c.client, "Echo", NULL, 0, 0, &c.out, &c.err), TALLY_OK,
                        &c.err);
    CU_ASSERT_EQUAL(c.out.size, 0);
    const struct tally_http_client_config terse = {.base_url = host.url, .is_terse = true};
    struct tally_http_client *client = NULL;
    CU_ASSERT_EQUAL_FATAL(tally_http_client_new(&terse, &client, NULL), TALLY_OK);
    TALLY_ASSERT_STATUS(
        tally_connect_call(client, "Headers", (const uint8_t *)"pb", 2, 1234, &c.out, &c.err),
        TALLY_OK, &c.err);
    client_assert_text(&c.out, "POST User-Agent=tally;Content-Type=application/proto;"
                               "Content-Length=2;");
    tally_http_client_free(client);
    caller_stop(&c);
    client_host_stop(&host);
}

static void test_api_http_client__connect_errors(void)
{
    struct client_host host;
    struct caller c;
    client_host_start(&host, 0);
    caller_start(&c, host.url);
    (void)tally_buffer_append(&c.out, "kept", 4);
    TALLY_ASSERT_STATUS(tally_connect_call(c.client, "Fail", NULL, 0, 0, &c.out, &c.err),
                        TALLY_NOT_FOUND, &c.err);
    TALLY_ASSERT_TEXT(c.err.message, "id: no such thing");
    tally_error_clear(&c.err);
    TALLY_ASSERT_STATUS(tally_connect_call(c.client, "Proxy", NULL, 0, 0, &c.out, &c.err),
                        TALLY_UNAVAILABLE, &c.err);
    char foreign[128];
    snprintf(foreign, sizeof foreign, "HTTP 502 from %s: <h1>Bad gateway</h1> ", host.url);
    TALLY_ASSERT_TEXT(c.err.message, foreign);
    TALLY_ASSERT_TEXT(c.err.field, TALLY_HTTP_FOREIGN);
    tally_error_clear(&c.err);
    TALLY_ASSERT_STATUS(tally_connect_call(c.client, "Page", NULL, 0, 0, &c.out, &c.err),
                        TALLY_INTERNAL, &c.err);
    CU_ASSERT_PTR_NOT_NULL(strstr(c.err.message, "text/html"));
    TALLY_ASSERT_TEXT(c.err.field, TALLY_HTTP_FOREIGN);
    client_assert_text(&c.out, "kept");
    caller_stop(&c);
    client_host_stop(&host);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_api_http_client__get_and_post),
    TALLY_TEST(test_api_http_client__request_headers),
    TALLY_TEST(test_api_http_client__any_status_is_an_answer),
    TALLY_TEST(test_api_http_client__answer_appends_and_has_a_limit),
    TALLY_TEST(test_api_http_client__both_ends_count_the_same),
    TALLY_TEST(test_api_http_client__broken_exchanges_are_not_counted),
    TALLY_TEST(test_api_http_client__resent_request_counts_once),
    TALLY_TEST(test_api_http_client__connection_that_idled_out_is_replaced),
    TALLY_TEST(test_api_http_client__refused_connection_is_unavailable),
    TALLY_TEST(test_api_http_client__broken_answers_are_unavailable),
    TALLY_TEST(test_api_http_client__deadline),
    TALLY_TEST(test_api_http_client__silence_ends_an_exchange),
    TALLY_TEST(test_api_http_client__slow_answer_is_not_silence),
    TALLY_TEST(test_api_http_client__unavailable_leads_to_another_server),
    TALLY_TEST(test_api_http_client__cancel_interrupts_a_long_poll),
    TALLY_TEST(test_api_http_client__cancel_by_another_thread),
    TALLY_TEST(test_api_http_client__sigpipe_state_is_restored),
    TALLY_TEST(test_api_http_client__loopback_needs_no_proxy),
    TALLY_TEST(test_api_http_client__http_may_be_left_out),
    TALLY_TEST(test_api_http_client__bad_configurations_are_refused),
    TALLY_TEST(test_api_http_client__connect_call),
    TALLY_TEST(test_api_http_client__connect_errors),
};
TALLY_SUITE(api_http_client, TESTS);
