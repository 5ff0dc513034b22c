/* TLS in one thread: the test runs the server, and the client is GnuTLS on a non-blocking socket.
 * The test makes the certificates. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <gnutls/gnutls.h>
#include <gnutls/x509.h>

#include "api/http/http_server.h"
#include "api/http/tls_identity.h"
#include "tests/harness.h"
#include "tests/unit/api/raw_socket.h"

enum { PATIENCE_MS = 120000, DAY_S = 24 * 60 * 60 };

struct files {
    char folder[64], cert[80], key[80], other_cert[80], other_key[80];
};

struct fixture {
    struct files files;
    struct tally_http_server *server;
    struct tally_http_request *waiting;
    unsigned n_requests, n_abandoned;
    unsigned refused[TALLY_N_HTTP_REFUSALS];
};

static long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- Files ---- */

static void write_file(const char *path, const gnutls_datum_t *text)
{
    FILE *file = fopen(path, "we");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    CU_ASSERT_EQUAL(fwrite(text->data, 1, text->size, file), text->size);
    fclose(file);
    CU_ASSERT_EQUAL(chmod(path, 0600), 0);
}

/* Makes a self-signed certificate, valid from now + from_s to now + until_s. */
static void make_identity(const char *cert_path, const char *key_path, const char *name,
                          long from_s, long until_s)
{
    gnutls_x509_privkey_t key;
    gnutls_x509_crt_t cert;
    gnutls_datum_t text;
    const time_t now = time(NULL);
    CU_ASSERT_EQUAL_FATAL(gnutls_x509_privkey_init(&key), 0);
    CU_ASSERT_EQUAL_FATAL(
        gnutls_x509_privkey_generate(key, GNUTLS_PK_ECDSA,
                                     GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0),
        0);
    CU_ASSERT_EQUAL_FATAL(gnutls_x509_crt_init(&cert), 0);
    gnutls_x509_crt_set_version(cert, 3);
    gnutls_x509_crt_set_serial(cert, "\1", 1);
    gnutls_x509_crt_set_dn_by_oid(cert, GNUTLS_OID_X520_COMMON_NAME, 0, name,
                                  (unsigned)strlen(name));
    gnutls_x509_crt_set_activation_time(cert, now + from_s);
    gnutls_x509_crt_set_expiration_time(cert, now + until_s);
    gnutls_x509_crt_set_key(cert, key);
    CU_ASSERT_EQUAL_FATAL(gnutls_x509_crt_sign2(cert, cert, key, GNUTLS_DIG_SHA256, 0), 0);
    CU_ASSERT_EQUAL_FATAL(gnutls_x509_crt_export2(cert, GNUTLS_X509_FMT_PEM, &text), 0);
    write_file(cert_path, &text);
    gnutls_free(text.data);
    CU_ASSERT_EQUAL_FATAL(gnutls_x509_privkey_export2(key, GNUTLS_X509_FMT_PEM, &text), 0);
    write_file(key_path, &text);
    gnutls_free(text.data);
    gnutls_x509_crt_deinit(cert);
    gnutls_x509_privkey_deinit(key);
}

static void files_open(struct files *files)
{
    snprintf(files->folder, sizeof files->folder, "/tmp/tally-tls-XXXXXX");
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(files->folder));
    snprintf(files->cert, sizeof files->cert, "%s/cert", files->folder);
    snprintf(files->key, sizeof files->key, "%s/key", files->folder);
    snprintf(files->other_cert, sizeof files->other_cert, "%s/cert2", files->folder);
    snprintf(files->other_key, sizeof files->other_key, "%s/key2", files->folder);
    make_identity(files->cert, files->key, "first", -DAY_S, DAY_S);
    make_identity(files->other_cert, files->other_key, "second", -DAY_S, 2 * DAY_S);
}

static void files_close(struct files *files)
{
    unlink(files->cert);
    unlink(files->key);
    unlink(files->other_cert);
    unlink(files->other_key);
    CU_ASSERT_EQUAL(rmdir(files->folder), 0);
}

/* ---- The server ---- */

static void on_request(void *context, struct tally_http_request *request)
{
    struct fixture *f = context;
    f->n_requests++;
    if (strcmp(tally_http_path(request), "/wait") == 0) {
        f->waiting = request;
        return;
    }
    const struct tally_http_response response = {
        .status = 200, .static_body = "hello", .n_static_body = 5};
    (void)tally_http_respond(request, &response);
}

static void on_abandoned(void *context, struct tally_http_request *request)
{
    struct fixture *f = context;
    (void)request;
    f->n_abandoned++;
}

static void on_refused(void *context, const struct tally_http_refusal *refusal,
                       char ret_request_id[TALLY_HTTP_REQUEST_ID_CAPACITY])
{
    struct fixture *f = context;
    f->refused[refusal->reason]++;
    ret_request_id[0] = '\0';
}

static void fixture_open(struct fixture *f, unsigned request_timeout_s)
{
    *f = (struct fixture){.n_requests = 0};
    files_open(&f->files);
    const struct tally_http_server_config config = {.listen = "127.0.0.1:0",
                                                    .max_body_bytes = 1000,
                                                    .request_timeout_s = request_timeout_s,
                                                    .tls_cert = f->files.cert,
                                                    .tls_key = f->files.key,
                                                    .on_request = on_request,
                                                    .on_abandoned = on_abandoned,
                                                    .on_refused = on_refused,
                                                    .context = f};
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_http_server_new(&config, &f->server, &err), TALLY_OK, &err);
    CU_ASSERT_PTR_NOT_NULL_FATAL(f->server);
}

static void fixture_close(struct fixture *f)
{
    tally_http_server_free(f->server);
    files_close(&f->files);
}

static void step(struct fixture *f, int timeout_ms)
{
    struct tally_error err = TALLY_ERROR_INIT;
    TALLY_ASSERT_STATUS(tally_http_server_step(f->server, timeout_ms, -1, &err), TALLY_OK, &err);
}

/* ---- A client ---- */

struct client {
    int fd;
    gnutls_session_t session;
    gnutls_certificate_credentials_t credentials;
};

static void client_open(const struct fixture *f, struct client *client)
{
    client->fd = tally_raw_connect(tally_http_server_port(f->server));
    CU_ASSERT_TRUE_FATAL(client->fd >= 0);
    CU_ASSERT_EQUAL_FATAL(gnutls_certificate_allocate_credentials(&client->credentials), 0);
    CU_ASSERT_EQUAL_FATAL(
        gnutls_init(&client->session, GNUTLS_CLIENT | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL), 0);
    gnutls_set_default_priority(client->session);
    gnutls_credentials_set(client->session, GNUTLS_CRD_CERTIFICATE, client->credentials);
    gnutls_transport_set_int(client->session, client->fd);
}

static void client_close(struct client *client)
{
    gnutls_deinit(client->session);
    gnutls_certificate_free_credentials(client->credentials);
    close(client->fd);
}

static bool client_shake(struct fixture *f, struct client *client)
{
    int code = GNUTLS_E_AGAIN;
    for (long end = now_ms() + PATIENCE_MS; code == GNUTLS_E_AGAIN && now_ms() < end;) {
        code = gnutls_handshake(client->session);
        step(f, 1);
    }
    return code == 0;
}

/* The common name of the server's certificate. */
static void client_read_name(const struct client *client, char ret_name[64])
{
    unsigned n = 0;
    const gnutls_datum_t *chain = gnutls_certificate_get_peers(client->session, &n);
    gnutls_x509_crt_t cert;
    size_t size = 64;
    CU_ASSERT_FATAL(chain != NULL && n > 0);
    CU_ASSERT_EQUAL_FATAL(gnutls_x509_crt_init(&cert), 0);
    CU_ASSERT_EQUAL(gnutls_x509_crt_import(cert, &chain[0], GNUTLS_X509_FMT_DER), 0);
    CU_ASSERT_EQUAL(
        gnutls_x509_crt_get_dn_by_oid(cert, GNUTLS_OID_X520_COMMON_NAME, 0, 0, ret_name, &size), 0);
    gnutls_x509_crt_deinit(cert);
}

/* Waits for a response and returns its status; 0 if the connection ended. */
static int client_receive(struct fixture *f, struct client *client)
{
    struct tally_buffer in = {.size = 0};
    char block[4096];
    int status = 0;
    for (long end = now_ms() + PATIENCE_MS; now_ms() < end;) {
        step(f, 1);
        const ssize_t n = gnutls_record_recv(client->session, block, sizeof block);
        if (n > 0) {
            (void)tally_buffer_append(&in, block, (size_t)n);
        } else if (n != GNUTLS_E_AGAIN && n != GNUTLS_E_INTERRUPTED) {
            break;
        }
        if (in.size > 0 && tally_raw_response_bytes((char *)in.data, in.size, true) > 0) {
            break;
        }
    }
    if (in.size > 0 && tally_buffer_append(&in, "", 1) == TALLY_OK) {
        (void)sscanf((char *)in.data, "HTTP/1.1 %d", &status);
    }
    tally_buffer_fini(&in);
    return status;
}

static int client_ask(struct fixture *f, struct client *client, const char *request)
{
    CU_ASSERT_EQUAL(gnutls_record_send(client->session, request, strlen(request)),
                    (ssize_t)strlen(request));
    return client_receive(f, client);
}

static const char REQUEST[] = "GET /now HTTP/1.1\r\nHost: h\r\n\r\n";

/* ---- Tests ---- */

static void test_api_http_tls__requests_are_answered(void)
{
    struct fixture f;
    struct client client;
    fixture_open(&f, 0);
    client_open(&f, &client);
    CU_ASSERT_TRUE(client_shake(&f, &client));
    for (int i = 0; i < 20; i++) {
        CU_ASSERT_EQUAL(client_ask(&f, &client, REQUEST), 200);
    }
    CU_ASSERT_EQUAL(f.n_requests, 20);
    client_close(&client);
    fixture_close(&f);
}

static void test_api_http_tls__a_waiting_request_is_answered_or_abandoned(void)
{
    static const char request[] = "GET /wait HTTP/1.1\r\nHost: h\r\n\r\n";
    for (int leaves = 0; leaves < 2; leaves++) {
        struct fixture f;
        struct client client;
        fixture_open(&f, 0);
        client_open(&f, &client);
        CU_ASSERT_TRUE(client_shake(&f, &client));
        CU_ASSERT_TRUE(gnutls_record_send(client.session, request, strlen(request)) > 0);
        for (long end = now_ms() + PATIENCE_MS; f.waiting == NULL && now_ms() < end;) {
            step(&f, 1);
        }
        CU_ASSERT_PTR_NOT_NULL_FATAL(f.waiting);
        for (int i = 0; i < 20; i++) {
            step(&f, 1);
        }
        CU_ASSERT_EQUAL(f.n_abandoned, 0);
        if (leaves) {
            client_close(&client);
            for (long end = now_ms() + PATIENCE_MS; f.n_abandoned == 0 && now_ms() < end;) {
                step(&f, 1);
            }
            CU_ASSERT_EQUAL(f.n_abandoned, 1);
        } else {
            const struct tally_http_response response = {
                .status = 200, .static_body = "late", .n_static_body = 4};
            (void)tally_http_respond(f.waiting, &response);
            CU_ASSERT_EQUAL(client_receive(&f, &client), 200);
            CU_ASSERT_EQUAL(client_ask(&f, &client, REQUEST), 200);
            client_close(&client);
        }
        fixture_close(&f);
    }
}

/* Existing connections keep their certificate; new connections receive the new one. */
static void test_api_http_tls__reload_loses_no_connection(void)
{
    struct fixture f;
    struct client old, under_way, new;
    char name[64];
    int64_t expires_s, before_s;
    bool is_exposed;
    struct tally_error err = TALLY_ERROR_INIT;
    fixture_open(&f, 0);
    CU_ASSERT_TRUE(tally_http_server_tls(f.server, &before_s, &is_exposed));
    CU_ASSERT_FALSE(is_exposed);
    client_open(&f, &old);
    CU_ASSERT_TRUE(client_shake(&f, &old));
    client_read_name(&old, name);
    TALLY_ASSERT_TEXT(name, "first");
    client_open(&f, &under_way);
    (void)gnutls_handshake(under_way.session); /* has sent its hello */
    for (int i = 0; i < 5; i++) {
        step(&f, 1);
    }
    TALLY_ASSERT_STATUS(
        tally_http_server_reload_tls(f.server, f.files.other_cert, f.files.other_key, &err),
        TALLY_OK, &err);
    CU_ASSERT_TRUE(tally_http_server_tls(f.server, &expires_s, &is_exposed));
    CU_ASSERT_TRUE(expires_s > before_s);
    CU_ASSERT_TRUE(client_shake(&f, &under_way));
    client_open(&f, &new);
    CU_ASSERT_TRUE(client_shake(&f, &new));
    client_read_name(&new, name);
    TALLY_ASSERT_TEXT(name, "second");
    CU_ASSERT_EQUAL(client_ask(&f, &old, REQUEST), 200);
    CU_ASSERT_EQUAL(client_ask(&f, &under_way, REQUEST), 200);
    CU_ASSERT_EQUAL(client_ask(&f, &new, REQUEST), 200);
    client_close(&old);
    client_close(&under_way);
    client_close(&new);
    fixture_close(&f);
}

static void test_api_http_tls__a_bad_reload_changes_nothing(void)
{
    struct fixture f;
    struct client client;
    char name[64];
    fixture_open(&f, 0);
    char pipe[sizeof f.files.cert];
    snprintf(pipe, sizeof pipe, "%s/pipe", f.files.folder);
    CU_ASSERT_EQUAL_FATAL(mkfifo(pipe, 0600), 0); /* never has a writer */
    const char *const pairs[][2] = {
        {f.files.other_cert, f.files.key},       /* do not match */
        {"/nonexistent", f.files.key},           /* missing */
        {f.files.other_cert, "/nonexistent"},    /* missing */
        {pipe, f.files.key},                     /* opening it would block */
        {f.files.other_cert, pipe},              /* opening it would block, too */
        {f.files.other_key, f.files.other_key},  /* no certificate */
        {f.files.other_cert, f.files.other_cert} /* no key */
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        struct tally_error err = TALLY_ERROR_INIT;
        CU_ASSERT_EQUAL(tally_http_server_reload_tls(f.server, pairs[i][0], pairs[i][1], &err),
                        TALLY_INVALID_ARGUMENT);
        CU_ASSERT_TRUE(strlen(err.message) > 0);
    }
    client_open(&f, &client);
    CU_ASSERT_TRUE(client_shake(&f, &client));
    client_read_name(&client, name);
    TALLY_ASSERT_TEXT(name, "first");
    client_close(&client);
    unlink(pipe);
    fixture_close(&f);
}

static void test_api_http_tls__dates_are_checked(void)
{
    static const struct {
        long from_s, until_s;
        const char *why; /* NULL = good */
    } cases[] = {{-2 * DAY_S, -DAY_S, "has expired on"},
                 {DAY_S, 2 * DAY_S, "is not valid before"},
                 {-DAY_S, DAY_S, NULL}};
    struct files files;
    files_open(&files);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tls_identity *identity = NULL;
        struct tally_error err = TALLY_ERROR_INIT;
        make_identity(files.cert, files.key, "dated", cases[i].from_s, cases[i].until_s);
        enum tally_status status =
            tls_identity_load(files.cert, files.key, false, (int64_t)time(NULL), &identity, &err);
        CU_ASSERT_EQUAL(status, cases[i].why == NULL ? TALLY_OK : TALLY_INVALID_ARGUMENT);
        if (cases[i].why != NULL) {
            CU_ASSERT_PTR_NOT_NULL(strstr(err.message, cases[i].why));
            TALLY_ASSERT_TEXT(err.field, "tls-cert");
        }
        tls_identity_release(identity);
    }
    files_close(&files);
}

static void test_api_http_tls__a_key_that_others_can_read_is_noticed(void)
{
    struct files files;
    files_open(&files);
    static const mode_t modes[] = {0600, 0400, 0640, 0604};
    for (size_t i = 0; i < 4; i++) {
        struct tls_identity *identity = NULL;
        CU_ASSERT_EQUAL(chmod(files.key, modes[i]), 0);
        CU_ASSERT_EQUAL_FATAL(
            tls_identity_load(files.cert, files.key, false, (int64_t)time(NULL), &identity, NULL),
            TALLY_OK);
        CU_ASSERT_EQUAL(identity->key_is_exposed, i >= 2);
        tls_identity_release(identity);
    }
    files_close(&files);
}

/* Without our own handling, MHD's loop would spin until such a handshake ends. */
static void test_api_http_tls__unfinished_handshakes_cost_no_turns(void)
{
    struct fixture f;
    struct client client;
    fixture_open(&f, 1);
    int silent = tally_raw_connect(tally_http_server_port(f.server));
    int begun = tally_raw_connect(tally_http_server_port(f.server));
    CU_ASSERT_EQUAL(tally_raw_send(begun, "\x16\x03\x01\x02", 4), 4);
    client_open(&f, &client);
    (void)gnutls_handshake(client.session); /* sends its hello, and nothing after */
    struct tally_buffer in = {.size = 0};
    bool is_open = true;
    int n_turns = 0;
    for (long end = now_ms() + PATIENCE_MS; is_open && now_ms() < end; n_turns++) {
        step(&f, 250);
        is_open = tally_raw_receive(silent, &in);
    }
    CU_ASSERT_FALSE(is_open);
    CU_ASSERT_TRUE(n_turns < 60); /* in a second or so */
    for (int i = 0; i < 20; i++) {
        step(&f, 5);
    }
    CU_ASSERT_EQUAL(f.refused[TALLY_HTTP_REFUSED_REQUEST_TIMEOUT], 3);
    CU_ASSERT_EQUAL(in.size, 0);
    unsigned n_open;
    size_t held_bytes;
    tally_http_server_load(f.server, &n_open, &held_bytes);
    CU_ASSERT_EQUAL(n_open, 0);
    close(silent);
    close(begun);
    client_close(&client);
    tally_buffer_fini(&in);
    fixture_close(&f);
}

static void test_api_http_tls__free_with_handshakes_under_way(void)
{
    struct fixture f;
    struct client client;
    fixture_open(&f, 0);
    int silent = tally_raw_connect(tally_http_server_port(f.server));
    client_open(&f, &client);
    (void)gnutls_handshake(client.session);
    for (int i = 0; i < 5; i++) {
        step(&f, 1);
    }
    fixture_close(&f);
    close(silent);
    client_close(&client);
}

static void test_api_http_tls__plain_http_is_told(void)
{
    struct fixture f;
    struct tally_buffer in = {.size = 0};
    fixture_open(&f, 0);
    int fd = tally_raw_connect(tally_http_server_port(f.server));
    CU_ASSERT_EQUAL(tally_raw_send(fd, REQUEST, strlen(REQUEST)), (long)strlen(REQUEST));
    bool is_open = true;
    for (long end = now_ms() + PATIENCE_MS; is_open && now_ms() < end;) {
        step(&f, 5);
        is_open = tally_raw_receive(fd, &in);
    }
    CU_ASSERT_FALSE(is_open);
    CU_ASSERT_PTR_NOT_NULL(strstr((char *)in.data, "HTTP/1.1 400 Bad Request\r\n"));
    CU_ASSERT_PTR_NOT_NULL(strstr((char *)in.data, "this port speaks HTTPS"));
    CU_ASSERT_EQUAL(f.n_requests, 0);
    close(fd);
    tally_buffer_fini(&in);
    fixture_close(&f);
}

static const struct tally_test TESTS[] = {
    TALLY_TEST(test_api_http_tls__requests_are_answered),
    TALLY_TEST(test_api_http_tls__a_waiting_request_is_answered_or_abandoned),
    TALLY_TEST(test_api_http_tls__reload_loses_no_connection),
    TALLY_TEST(test_api_http_tls__a_bad_reload_changes_nothing),
    TALLY_TEST(test_api_http_tls__dates_are_checked),
    TALLY_TEST(test_api_http_tls__a_key_that_others_can_read_is_noticed),
    TALLY_TEST(test_api_http_tls__unfinished_handshakes_cost_no_turns),
    TALLY_TEST(test_api_http_tls__free_with_handshakes_under_way),
    TALLY_TEST(test_api_http_tls__plain_http_is_told),
};

TALLY_SUITE(api_http_tls, TESTS);
