/* tally-coordinator: options, store, socket, loop. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "api/http/http_server.h"
#include "services/base/environment.h"
#include "services/base/log.h"
#include "services/base/options.h"
#include "services/base/process_guard.h"
#include "services/base/rest_client.h"
#include "services/base/signals.h"
#include "services/base/time.h"
#include "services/base/token_file.h"
#include "services/coordinator/access.h"
#include "services/coordinator/check_store.h"
#include "services/coordinator/coordinator.h"
#include "services/objectives/blas_version.h"
#include "services/objectives/objective.h"
#include "storage/backends.h"
#include "storage/leases.h"
#include "storage/store.h"

/* After a stop signal, requests are served for at most DRAIN_MS. Draining ends earlier if all
 * responses were sent and QUIET_MS pass without a request. */
enum { DRAIN_MS = 2000, QUIET_MS = 100 };

/* Limit of requests with several updates: ten of float32 with 10^6 coordinates. A round whose
 * updates all come in one request stores none of them. */
enum { MAX_BATCH_BYTES = 48 << 20 };

static const struct tally_option OPTIONS[] = {
    {"listen", "ADDR:PORT", "127.0.0.1:8080",
     "where to serve HTTP: a numeric address, IPv6 in brackets, or localhost; port 0 takes a free "
     "one",
     NULL},
    {"store", "URI", "sqlite:tally.db", "sqlite:PATH, postgres:CONNINFO or memory:", NULL},
    {"data-dir", "DIR", "data",
     "where the files of job documents are: those of initial points, and of data to solve f(x*) of",
     NULL},
    {"power-loss-safe", NULL, NULL,
     "acknowledge an update only when it has reached the medium; without it, it survives kill -9 "
     "but not a power cut",
     NULL},
    {"check", NULL, NULL,
     "check options, token files and the whole store, print the findings and exit, with 0 if all "
     "is sound; starts nothing, and works beside a running coordinator",
     NULL},
    {"health", NULL, NULL,
     "ask the coordinator that runs with the same --listen and --tls-cert whether it is ready, and "
     "exit with status 0 if it is; starts nothing",
     NULL},
    {"admin-token-file", "FILE", NULL,
     "bearer tokens of the REST interface, lines `TOKEN [name=NAME] [until=TIME]`; or one token in "
     "TALLY_ADMIN_TOKEN",
     "Access"},
    {"worker-token-file", "FILE", NULL,
     "bearer tokens of the workers, as in --admin-token-file; or one in TALLY_WORKER_TOKEN",
     "Access"},
    {"metrics-token-file", "FILE", NULL,
     "bearer tokens for /metrics only; those of the REST interface open it too; or one in "
     "TALLY_METRICS_TOKEN",
     "Access"},
    {"insecure", NULL, NULL,
     "without tokens, allow an address that others can reach, and accept any Host", "Access"},
    {"allowed-host", "NAME...", NULL,
     "accept this Host in requests that need no token; IP addresses and localhost are always "
     "accepted",
     "Access"},
    {"tls-cert", "FILE", NULL,
     "certificate chain in PEM form, the server's certificate first; --listen then serves HTTPS "
     "only",
     "TLS"},
    {"tls-key", "FILE", NULL, "its private key", "TLS"},
    {"peer-tls-ca", "FILE", NULL,
     "the only certificates (PEM) to trust for other coordinators at https:// addresses (default: "
     "the system's)",
     "TLS"},
    {"webhook-allow", "URL...", NULL,
     "let job documents name a webhook below this URL, such as https://hooks.example.com/tally/; "
     "changes of a job's status are posted there (default: none)",
     "Webhooks"},
    {"webhook-secret-file", "FILE", NULL,
     "file with the key that signs webhooks: a line of 16 or more visible characters; required "
     "with --webhook-allow",
     "Webhooks"},
    {"replica-address", "URL", NULL,
     "where the other coordinators on a postgres: store reach this one (default: that of --listen)",
     "Replicas"},
    {"replica-id", "TEXT", NULL,
     "name of this coordinator among them, the same after a restart (default: its address)",
     "Replicas"},
    {"lease-ms", "N", "3000",
     "silence after which the others take over a coordinator's jobs; set it alike on all",
     "Replicas"},
    {"max-body-bytes", "N", "67108864", "largest request body", "Limits"},
    {"max-header-bytes", "N", "8192", "longest request line and headers", "Limits"},
    {"max-connections", "N", "20000", "connections at once", "Limits"},
    {"max-connections-per-address", "N", "10000",
     "connections from one address; behind NAT and a container bridge all workers share one, and "
     "each has a connection of its own",
     "Limits"},
    {"max-held-bytes", "N", NULL,
     "bytes of unfinished request bodies and unread responses; beyond it the oldest is dropped "
     "(default: 512 MiB, or a quarter of the memory of the machine or cgroup if that is less)",
     "Limits"},
    {"request-timeout-s", "N", "60",
     "seconds within which the headers of a request, or a TLS handshake, must be complete; in any "
     "such period a body or a response must move at 64 bytes a second on average",
     "Limits"},
    {"max-jobs", "N", "2000", "jobs queued, running or paused at once", "Limits"},
    {"max-clients", "N", "100000", "clients of one job", "Limits"},
    {"max-dim", "N", "10000000", "dimension of a job; at most 10000000", "Limits"},
    {"max-job-bytes", "N", NULL,
     "estimated memory of started jobs, about 52 bytes per coordinate, and of solving f(x*); "
     "further "
     "jobs wait (default: half the memory of the machine or cgroup)",
     "Limits"},
    {"max-sessions", "N", NULL, "workers at once; at most, and by default, --max-connections",
     "Limits"},
    {"max-sessions-per-token", "N", "10000",
     "workers at once with one token, or with tokens of one name; no limit without tokens",
     "Limits"},
    {"max-streams", "N", "1000", "event streams open at once", "Limits"},
    {"idle-timeout-s", "N", "60", "seconds after which a silent connection is closed", "Limits"},
    {"session-timeout-ms", "N", "15000",
     "silence after which a worker's clients are given to others; moving bytes end the silence",
     "Limits"},
    {"heartbeat-ms", "N", "15000", "silence after which an event stream is sent a comment",
     "Limits"},
    {"metrics-keep-s", "N", "600", "seconds for which an ended job stays in /metrics", "Limits"},
    {"keep-ended-s", "N", "0",
     "seconds after which a job that ended is deleted; 0 = never; a clock that jumps forward "
     "deletes no job early",
     "Limits"},
    {"keep-ended-jobs", "N", "0", "ended jobs to keep, the most recently submitted; 0 = all",
     "Limits"},
    {0},
};

static const struct tally_options_spec SPEC = {
    .program = "tally-coordinator",
    .synopsis = "[OPTION]...",
    .description = "Coordinates federated optimisation jobs: takes job documents over HTTP, hands "
                   "rounds to workers, keeps cumulative regret and exact bit counters. State is in "
                   "the store; the process may be killed at any time.",
    .tables = {OPTIONS, TALLY_LOG_OPTIONS},
};

struct settings {
    char listen[LISTEN_CAPACITY];
    char replica_address[TALLY_REPLICA_ADDRESS_CAPACITY]; /* "" = cannot be derived from --listen */
    char replica_id[TALLY_REPLICA_ID_CAPACITY];
    struct tally_http_server_config server;
    struct tally_coordinator_config coordinator;
    struct tally_store_options store;
    struct tally_tokens tokens;
    char webhook_secret[TALLY_TOKEN_CAPACITY]; /* "" = none */
};

/* At least one body must fit. */
static int64_t default_held_bytes(int64_t body)
{
    const int64_t quarter = tally_machine_memory() / 4, most = INT64_C(512) << 20;
    const int64_t held = quarter < most ? quarter : most;
    return held > body ? held : body;
}

/* `err` keeps the first error. */
static void read_limits(const struct tally_options *options, struct settings *settings,
                        struct tally_error *err)
{
    int64_t body = 0, header = 0, held = 0, connections = 0, per_address = 0;
    int64_t idle_s = 0, request_s = 0, keep_s = 0, keep_ended_s = 0;
    struct tally_coordinator_config *config = &settings->coordinator;
    const struct {
        const char *name;
        int64_t min, max;
        int64_t *value;
    } limits[] = {
        {"max-body-bytes", 1024, INT64_C(1) << 32, &body},
        {"max-header-bytes", 1024, 1 << 20, &header},
        {"max-connections", 1, 1000000, &connections},
        {"max-connections-per-address", 1, 1000000, &per_address},
        {"request-timeout-s", 1, 86400, &request_s},
        {"max-jobs", 1, 1000000, &config->max_jobs},
        {"max-clients", 1, 100000, &config->max_clients},
        {"max-dim", 1, TALLY_MAX_DIM, &config->max_dim},
        {"max-sessions-per-token", 1, 1000000, &config->max_sessions_per_token},
        {"max-streams", 0, 1000000, &config->max_streams},
        {"idle-timeout-s", 1, 86400, &idle_s},
        {"session-timeout-ms", 100, 86400000, &config->session_timeout_ms},
        {"heartbeat-ms", 100, 86400000, &config->heartbeat_ms},
        {"metrics-keep-s", 0, 31536000, &keep_s},
        {"keep-ended-s", 0, 3153600000, &keep_ended_s},
        {"keep-ended-jobs", 0, 1000000000, &config->keep_ended_jobs},
    };
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        tally_options_integer(options, limits[i].name, limits[i].min, limits[i].max,
                              limits[i].value, err);
    }
    held = default_held_bytes(body);
    if (tally_options_has(options, "max-held-bytes")) {
        tally_options_integer(options, "max-held-bytes", body, INT64_C(1) << 40, &held, err);
    }
    config->max_job_bytes = tally_machine_memory() / 2;
    if (tally_options_has(options, "max-job-bytes")) {
        tally_options_integer(options, "max-job-bytes", 1 << 20, INT64_C(1) << 50,
                              &config->max_job_bytes, err);
    }
    config->max_sessions = connections; /* a worker needs one */
    if (tally_options_has(options, "max-sessions")) {
        tally_options_integer(options, "max-sessions", 1, 1000000, &config->max_sessions, err);
        config->max_sessions =
            config->max_sessions < connections ? config->max_sessions : connections;
    }
    settings->server.max_body_bytes = config->max_body_bytes = (size_t)body;
    config->max_batch_bytes = body < MAX_BATCH_BYTES ? (uint32_t)body : MAX_BATCH_BYTES;
    settings->server.max_connections = (unsigned)connections;
    settings->server.max_header_bytes = (size_t)header;
    settings->server.max_held_bytes = config->max_held_bytes = (size_t)held;
    settings->server.max_connections_per_address = (unsigned)per_address;
    settings->server.idle_timeout_s = (unsigned)idle_s;
    settings->server.request_timeout_s = (unsigned)request_s;
    config->metrics_keep_ms = keep_s * 1000;
    config->keep_ended_ms = keep_ended_s * 1000;
}

static enum tally_status read_tls(const struct tally_options *options,
                                  struct tally_http_server_config *server, struct tally_error *err)
{
    server->tls_cert = tally_options_text(options, "tls-cert");
    server->tls_key = tally_options_text(options, "tls-key");
    if ((server->tls_cert == NULL) != (server->tls_key == NULL)) {
        const bool has_key = server->tls_key != NULL;
        return tally_options_refuse(options, has_key ? "tls-key" : "tls-cert", err,
                                    "%s must be given as well",
                                    has_key ? "--tls-cert" : "--tls-key");
    }
    return TALLY_OK;
}

/* The address and the id of this coordinator among replicas. Only a shared store needs them; run()
 * checks this. */
static enum tally_status read_replica(const struct tally_options *options,
                                      struct settings *settings, struct tally_error *err)
{
    const char *address = tally_options_text(options, "replica-address");
    const char *id = tally_options_text(options, "replica-id");
    const char *listen = settings->server.listen;
    char *own_address = settings->replica_address;
    char *own_id = settings->replica_id;
    if (address != NULL && strncmp(address, "http://", 7) != 0 &&
        strncmp(address, "https://", 8) != 0) {
        return tally_options_refuse(options, "replica-address", err,
                                    "\"%s\" does not begin with http:// or https://", address);
    }
    int n = 0;
    if (address != NULL) {
        n = snprintf(own_address, sizeof settings->replica_address, "%s", address);
    } else if (listen_is_one_address(listen)) {
        n = snprintf(own_address, sizeof settings->replica_address, "%s://%s",
                     settings->server.tls_cert != NULL ? "https" : "http", listen);
    }
    if (n >= (int)sizeof settings->replica_address) {
        return tally_options_refuse(options, "replica-address", err, "longer than %d bytes",
                                    TALLY_REPLICA_ADDRESS_CAPACITY - 1);
    }
    n = snprintf(own_id, sizeof settings->replica_id, "%s", id != NULL ? id : own_address);
    if (n >= (int)sizeof settings->replica_id) {
        return tally_options_refuse(options, "replica-id", err, "longer than %d bytes",
                                    TALLY_REPLICA_ID_CAPACITY - 1);
    }
    settings->coordinator.replica_address = own_address;
    settings->coordinator.replica_id = own_id;
    return tally_options_integer(options, "lease-ms", 500, 600000, &settings->coordinator.lease_ms,
                                 err);
}

/* Logs when the certificate expires, and warns if others can read its key. */
static void log_tls(const struct tally_http_server *server, const char *key_path)
{
    int64_t expires_s;
    bool key_is_exposed;
    if (!tally_http_server_tls(server, &expires_s, &key_is_exposed)) {
        return;
    }
    tally_log(TALLY_LOG_INFO, tally_log_event("certificate in use"),
              tally_log_integer("expires_in_days",
                                (expires_s - tally_realtime_ms() / 1000) / (24 * 60 * 60)));
    if (key_is_exposed) {
        tally_log(TALLY_LOG_WARN, tally_log_event("the private key can be read by others"),
                  tally_log_text("file", key_path), tally_log_text("advice", "chmod 600"));
    }
}

static enum tally_status read_listen(const struct tally_options *options, struct settings *settings,
                                     struct tally_error *err)
{
    struct tally_error why = TALLY_ERROR_INIT;
    return listen_read(tally_options_text(options, "listen"), settings->listen, &why) == TALLY_OK
               ? TALLY_OK
               : tally_options_refuse(options, "listen", err, "%s", why.message);
}

/* An address that others can reach requires tokens, or --insecure. */
static enum tally_status check_access(const struct tally_options *options,
                                      const struct settings *settings, struct tally_error *err)
{
    const char *listen = settings->server.listen;
    const bool has_tokens =
        settings->tokens.roles[TOKEN_ADMIN].n > 0 && settings->tokens.roles[TOKEN_WORKER].n > 0;
    if (listen_is_loopback(listen)) {
        return TALLY_OK;
    }
    if (!has_tokens && !tally_options_bool(options, "insecure")) {
        return tally_options_refuse(options, "listen", err,
                                    "%s can be reached by others: give --admin-token-file and "
                                    "--worker-token-file, or --insecure",
                                    listen);
    }
    if (!has_tokens) {
        tally_log(TALLY_LOG_WARN, tally_log_event("no tokens: others can use this address"),
                  tally_log_text("address", listen));
    }
    if (settings->server.tls_cert == NULL) {
        tally_log(TALLY_LOG_WARN, tally_log_event("no TLS: tokens and data are sent unencrypted"),
                  tally_log_text("address", listen));
    }
    return TALLY_OK;
}

/* Checks a list of host names without ports, separated by ':'. */
static enum tally_status read_hosts(const struct tally_options *options,
                                    struct tally_coordinator_config *config,
                                    struct tally_error *err)
{
    char name[256];
    config->any_host = tally_options_bool(options, "insecure");
    config->allowed_hosts = tally_options_text(options, "allowed-host");
    const char *at = config->allowed_hosts;
    while (at != NULL) {
        const size_t n = strcspn(at, ":");
        snprintf(name, sizeof name, "%.*s", (int)n, at);
        if (n >= sizeof name || !access_is_host_name(name)) {
            return tally_options_refuse(options, "allowed-host", err,
                                        "\"%s\" is not a host name; give it without a port", name);
        }
        at = at[n] == ':' ? at + n + 1 : NULL;
    }
    return TALLY_OK;
}

/* The URLs that webhooks may have, and the key that signs them. */
static enum tally_status read_webhooks(const struct tally_options *options,
                                       struct settings *settings, struct tally_error *err)
{
    struct webhook_rules *rules = &settings->coordinator.webhooks;
    const char *path = tally_options_text(options, "webhook-secret-file"), *prefix;
    size_t n = 0;
    for (; (prefix = tally_options_item(options, "webhook-allow", n)) != NULL; n++) {
        struct tally_error why = TALLY_ERROR_INIT;
        if (n == WEBHOOK_MOST_PREFIXES) {
            return tally_options_refuse(options, "webhook-allow", err, "more than %d URLs",
                                        WEBHOOK_MOST_PREFIXES);
        }
        if (webhook_prefix_check(prefix, &why) != TALLY_OK) {
            return tally_options_refuse(options, "webhook-allow", err, "%s", why.message);
        }
        rules->prefixes[n] = prefix;
    }
    if ((n > 0) != (path != NULL)) {
        return tally_options_refuse(options, n > 0 ? "webhook-allow" : "webhook-secret-file", err,
                                    "%s must be given as well",
                                    n > 0 ? "--webhook-secret-file" : "--webhook-allow");
    }
    if (path == NULL) {
        return TALLY_OK;
    }
    bool is_exposed = false;
    const enum tally_status status = tally_token_file_first(
        path, tally_realtime_ms(), settings->webhook_secret, &is_exposed, err);
    if (status == TALLY_OK && strlen(settings->webhook_secret) < WEBHOOK_SECRET_LEAST) {
        return tally_options_refuse(options, "webhook-secret-file", err,
                                    "the key has fewer than %d characters", WEBHOOK_SECRET_LEAST);
    }
    if (status == TALLY_OK && is_exposed) {
        tally_log(TALLY_LOG_WARN, tally_log_event("the webhook key can be read by others"),
                  tally_log_text("file", path), tally_log_text("advice", "chmod 600"));
    }
    rules->secret = settings->webhook_secret;
    return status;
}

static enum tally_status read_settings(const struct tally_options *options,
                                       struct settings *settings, struct tally_error *err)
{
    tally_log_configure(options, err);
    read_limits(options, settings, err);
    if (err->status != TALLY_OK || tokens_load(options, &settings->tokens, err) != TALLY_OK ||
        read_tls(options, &settings->server, err) != TALLY_OK ||
        read_hosts(options, &settings->coordinator, err) != TALLY_OK) {
        return err->status;
    }
    settings->coordinator.peer_tls_ca = tally_options_text(options, "peer-tls-ca");
    settings->coordinator.data_dir = tally_options_text(options, "data-dir");
    settings->server.listen = settings->listen;
    settings->store.power_loss_safe = tally_options_bool(options, "power-loss-safe");
    settings->coordinator.tokens = &settings->tokens;
    enum tally_status status = read_listen(options, settings, err);
    if (status == TALLY_OK) {
        status = read_replica(options, settings, err);
    }
    if (status == TALLY_OK) {
        status = read_webhooks(options, settings, err);
    }
    return status == TALLY_OK ? check_access(options, settings, err) : status;
}

static bool has_secrets(const struct settings *settings)
{
    int n = 0;
    for (int role = 0; role < N_TOKEN_ROLES; role++) {
        n += settings->tokens.roles[role].n;
    }
    return n > 0 || settings->server.tls_key != NULL || settings->webhook_secret[0] != '\0';
}

static void reload_tokens(const struct tally_options *options, struct settings *settings,
                          struct tally_coordinator *coordinator)
{
    struct tally_error err = TALLY_ERROR_INIT;
    if (tokens_reload(options, &settings->tokens, &err) != TALLY_OK) {
        tally_log(TALLY_LOG_ERROR,
                  tally_log_event("tokens not reloaded; the old ones remain valid"),
                  tally_log_problem(&err));
        return;
    }
    tally_coordinator_tokens_changed(coordinator);
    tally_log(TALLY_LOG_INFO, tally_log_event("tokens reloaded"),
              tally_log_integer("admin", settings->tokens.roles[TOKEN_ADMIN].n),
              tally_log_integer("worker", settings->tokens.roles[TOKEN_WORKER].n),
              tally_log_integer("metrics", settings->tokens.roles[TOKEN_METRICS].n));
}

static void reload_certificate(const struct settings *settings, struct tally_http_server *server)
{
    struct tally_error err = TALLY_ERROR_INIT;
    const char *cert = settings->server.tls_cert, *key = settings->server.tls_key;
    if (cert == NULL) {
        return;
    }
    if (tally_http_server_reload_tls(server, cert, key, &err) != TALLY_OK) {
        tally_log(TALLY_LOG_ERROR,
                  tally_log_event("certificate not reloaded; the old one remains in use"),
                  tally_log_problem(&err));
        return;
    }
    log_tls(server, key);
}

/* One descriptor for the loop: readable after a signal, when a thread has a result, and when
 * forwarded requests can be sent or received. */
static int join_wakers(const struct tally_coordinator *coordinator)
{
    const int wakers[] = {tally_signals_fd(), tally_coordinator_wake_fd(coordinator),
                          tally_coordinator_forward_fd(coordinator),
                          tally_coordinator_webhook_fd(coordinator)};
    int fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};
    for (size_t i = 0; fd >= 0 && i < sizeof wakers / sizeof wakers[0]; i++) {
        if (wakers[i] >= 0 && epoll_ctl(fd, EPOLL_CTL_ADD, wakers[i], &event) != 0) {
            close(fd);
            fd = -1;
        }
    }
    return fd;
}

static enum tally_status run_loop(const struct tally_options *options, struct settings *settings,
                                  struct tally_http_server *server,
                                  struct tally_coordinator *coordinator, int wake_fd,
                                  struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    int wait_ms = tally_coordinator_turn(coordinator);
    while (status == TALLY_OK && *tally_signals_stop() == 0) {
        status = tally_http_server_step(server, wait_ms, wake_fd, err);
        wait_ms = tally_coordinator_turn(coordinator);
        if (tally_signals_take_reload()) {
            /* An invalid file changes nothing. Between two steps, every admitted request has opened
             * its poll or stream, so revoking its token can end them. */
            reload_tokens(options, settings, coordinator);
            reload_certificate(settings, server);
            wait_ms = 0;
        }
    }
    tally_log(TALLY_LOG_INFO, tally_log_event("stopping"));
    tally_http_server_quiesce(server);
    tally_coordinator_drain(coordinator);
    tally_signals_drain_fd();
    const int64_t end_ms = tally_monotonic_ms() + DRAIN_MS;
    bool quiet = false;
    while (status == TALLY_OK && !quiet && tally_monotonic_ms() < end_ms) {
        const uint64_t before = tally_coordinator_n_requests(coordinator);
        wait_ms = tally_coordinator_turn(coordinator);
        const int64_t until_ms = tally_monotonic_ms() + QUIET_MS;
        while (status == TALLY_OK && tally_monotonic_ms() < until_ms) {
            status = tally_http_server_step(server, wait_ms < QUIET_MS ? wait_ms : QUIET_MS,
                                            wake_fd, err);
            wait_ms = tally_coordinator_turn(coordinator);
        }
        quiet = tally_coordinator_n_requests(coordinator) == before &&
                tally_http_server_n_requests(server) == 0;
    }
    return status;
}

/* The store's URI for the log, without password and connection options. */
static const char *label_of(const char *uri, struct tally_buffer *label)
{
    return tally_store_label(uri, label) == TALLY_OK ? (const char *)label->data : "";
}

static enum tally_status run(const struct tally_options *options, struct settings *settings,
                             struct tally_error *err)
{
    struct tally_coordinator *coordinator = NULL;
    struct tally_http_server *server = NULL;
    struct tally_store *store = NULL;
    int wake_fd = -1;
    const char *uri = tally_options_text(options, "store");
    struct tally_buffer label = {0};
    enum tally_status status = tally_signals_install(err);
    tally_signals_install_reload();
    if (status == TALLY_OK) {
        status = tally_store_open(uri, &settings->store, &store, err);
    }
    if (status == TALLY_OK && store->leases != NULL && settings->replica_address[0] == '\0') {
        status =
            tally_options_refuse(options, "replica-address", err,
                                 "must be given: others cannot reach %s", settings->server.listen);
    }
    if (status == TALLY_OK) {
        settings->coordinator.store = store;
        status = tally_coordinator_new(&settings->coordinator, &coordinator, err);
    }
    if (status == TALLY_OK) {
        store = NULL;
        settings->server.wants_body = tally_coordinator_wants_body;
        settings->server.on_part = tally_coordinator_on_part;
        settings->server.on_request = tally_coordinator_on_request;
        settings->server.on_abandoned = tally_coordinator_on_abandoned;
        settings->server.on_refused = tally_coordinator_on_refused;
        settings->server.context = coordinator;
        status = tally_http_server_new(&settings->server, &server, err);
    }
    if (status == TALLY_OK) {
        wake_fd = join_wakers(coordinator);
        if (wake_fd < 0) {
            status = tally_fail(err, TALLY_UNAVAILABLE, NULL, "no file descriptor for the loop");
        }
    }
    if (status == TALLY_OK) {
        tally_log(TALLY_LOG_INFO, tally_log_event("listening"),
                  tally_log_text("address", settings->server.listen),
                  tally_log_integer("port", tally_http_server_port(server)),
                  tally_log_text("store", label_of(uri, &label)),
                  tally_log_text("version", TALLY_VERSION),
                  tally_log_integer("max_job_bytes", settings->coordinator.max_job_bytes),
                  tally_log_text("scheme", settings->server.tls_cert != NULL ? "https" : "http"));
        log_tls(server, settings->server.tls_key);
        status = run_loop(options, settings, server, coordinator, wake_fd, err);
    }
    tally_buffer_fini(&label);
    tally_http_server_free(server);
    tally_coordinator_free(coordinator);
    if (store != NULL) {
        store->ops->close(store);
    }
    if (wake_fd >= 0) {
        close(wake_fd);
    }
    return status;
}

/* Prints the line of --check about the certificate; returns an exit code. */
static int check_certificate(const struct tally_http_server_config *server)
{
    struct tally_error err = TALLY_ERROR_INIT;
    if (server->tls_cert == NULL) {
        return EXIT_SUCCESS;
    }
    if (tally_http_server_check_tls(server->tls_cert, server->tls_key, &err) != TALLY_OK) {
        printf("FAIL  %s\n", err.message);
        return EXIT_FAILURE;
    }
    printf("ok    certificate and its key\n");
    return EXIT_SUCCESS;
}

/* Keeps the memory of request bodies, broadcasts and states, many MB in each round, for the next
 * round. By default the C library returns it to the system and faults it in again page by page;
 * blocks above 32 MiB, as long as a batch of updates, always. Code that frees much for good calls
 * tally_http_trim() (jobs_remove(), http_server.c). */
static void keep_freed_memory(void)
{
    enum { KEPT_BYTES = 64 << 20 };
    mallopt(M_MMAP_MAX, 0);
    mallopt(M_TRIM_THRESHOLD, KEPT_BYTES);
}

/* Returns an exit code. The response must come with the certificate of --tls-cert, whose names need
 * not include the address of --listen. */
static int print_health(const struct tally_options *options)
{
    char listen[LISTEN_CAPACITY], url[LISTEN_URL_CAPACITY];
    const char *cert = tally_options_text(options, "tls-cert");
    struct tally_error why = TALLY_ERROR_INIT, err = TALLY_ERROR_INIT;
    enum tally_status status = listen_read(tally_options_text(options, "listen"), listen, &why);
    if (status == TALLY_OK && !listen_own_url(listen, cert != NULL, url)) {
        status = tally_fail(&why, TALLY_INVALID_ARGUMENT, "listen",
                            "port 0 is chosen by the system and cannot be asked");
    }
    if (status != TALLY_OK) {
        tally_options_refuse(options, "listen", &err, "%s", why.message);
        return tally_options_usage_error(&SPEC, &err);
    }
    return tally_health_print(
        &(struct tally_http_client_config){.base_url = url, .tls_ca = cert, .any_host = true},
        SPEC.program);
}

/* Returns the text, or NULL if memory runs out. */
static const char *describe_environment(struct tally_buffer *text)
{
    struct tally_json *environment = tally_environment_json(tally_blas_version());
    const bool ok = environment != NULL && tally_json_dump(environment, 0, text) == TALLY_OK &&
                    tally_buffer_append(text, "", 1) == TALLY_OK;
    tally_json_free(environment);
    return ok ? (const char *)text->data : NULL;
}

int main(int argc, char **argv)
{
    static struct settings settings;
    struct tally_buffer environment = {0};
    struct tally_options *options;
    struct tally_error err = TALLY_ERROR_INIT;
    int exit_code = EXIT_SUCCESS;
    if (!tally_options_start(&SPEC, argc, argv, &options, &exit_code)) {
        return exit_code;
    }
    if (tally_options_bool(options, "health")) {
        exit_code = print_health(options);
        tally_options_free(options);
        return exit_code;
    }
    if (read_settings(options, &settings, &err) != TALLY_OK) {
        exit_code = tally_options_usage_error(&SPEC, &err);
        tally_options_free(options);
        return exit_code;
    }
    settings.coordinator.environment = describe_environment(&environment);
    tally_process_guard(has_secrets(&settings));
    keep_freed_memory();
    if (tally_options_bool(options, "check")) {
        const int certificate = check_certificate(&settings.server);
        tokens_print_shared(options, &settings.tokens);
        exit_code = coordinator_check(tally_options_text(options, "store"));
        exit_code = certificate != EXIT_SUCCESS ? certificate : exit_code;
    } else if (run(options, &settings, &err) != TALLY_OK) {
        tally_log(TALLY_LOG_ERROR, tally_log_event("fatal error"), tally_log_problem(&err));
        if (err.status == TALLY_DATA_LOSS) {
            tally_log(TALLY_LOG_ERROR, tally_log_event("hint"),
                      tally_log_text("advice", "restore a backup with \"tally restore\"; "
                                               "\"tally-coordinator --check\" shows the damage"));
        }
        exit_code = EXIT_FAILURE;
    }
    tally_buffer_fini(&environment);
    tally_options_free(options);
    return exit_code;
}
