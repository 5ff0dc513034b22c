/* services/worker inside a host process: its own stop and log; the process's signals are left
 * alone. */
#include "services/worker/worker.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "api/client/http_client.h"
#include "api/worker/worker_messages.h"
#include "codec/utf8.h"
#include "services/base/log.h"
#include "services/base/time.h"
#include "services/base/token_file.h"
#include "services/libtally/libtally_internal.h"
#include "services/worker/worker_name.h"

struct tally_worker {
    struct worker_config config;
    struct tally_plugin_set plugins;
    volatile sig_atomic_t stop;
    int wake_fd; /* readable once it is to stop */
    char name[TALLY_WORKER_NAME_CAPACITY];
    char token[TALLY_TOKEN_CAPACITY];
    void (*log)(void *context, int level, const char *line);
    void *log_context;
};

/* The struct of the first version ended here. */
static const size_t FIRST_SIZE = offsetof(struct tally_worker_config, log_context) + sizeof(void *);

void tally_worker_config_init(struct tally_worker_config *ret_config, size_t size)
{
    const struct tally_worker_config defaults = {.size = size,
                                                 .coordinator = "http://127.0.0.1:8080",
                                                 .data_dir = "data",
                                                 .clients = 1,
                                                 .wait_ms = 10000};
    memset(ret_config, 0, size);
    memcpy(ret_config, &defaults, size < sizeof defaults ? size : sizeof defaults);
}

/* The caller's struct as this version knows it: what an older one lacks is 0; what a newer one has
 * besides must be 0. */
static enum tally_status read_config(const struct tally_worker_config *given,
                                     struct tally_worker_config *ret_config,
                                     struct tally_error *err)
{
    const size_t size = given->size;
    if (size < FIRST_SIZE) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "size",
                          "size %zu is not a struct tally_worker_config: "
                          "tally_worker_config_init() was not called",
                          size);
    }
    for (size_t i = sizeof *ret_config; i < size; i++) {
        if (((const unsigned char *)given)[i] != 0) {
            return tally_fail(err, TALLY_INVALID_ARGUMENT, "size",
                              "byte %zu of the configuration means something to a newer libtally "
                              "than %s",
                              i, tally_version());
        }
    }
    memset(ret_config, 0, sizeof *ret_config);
    memcpy(ret_config, given, size < sizeof *ret_config ? size : sizeof *ret_config);
    return TALLY_OK;
}

static enum tally_status check_number(const char *field, uint32_t value, uint32_t most,
                                      struct tally_error *err)
{
    return value >= 1 && value <= most ? TALLY_OK
                                       : tally_fail(err, TALLY_OUT_OF_RANGE, field,
                                                    "%s %u outside [1, %u]", field, value, most);
}

static enum tally_status set_name(struct tally_worker *worker, const char *name,
                                  struct tally_error *err)
{
    static atomic_uint n_workers;
    if (name == NULL) {
        char suffix[40];
        snprintf(suffix, sizeof suffix, "%ld-%u", (long)getpid(),
                 atomic_fetch_add(&n_workers, 1) + 1);
        worker_name_write_default(suffix, NULL, worker->name);
        return TALLY_OK;
    }
    if (name[0] == '\0' || strlen(name) >= sizeof worker->name) {
        return tally_fail(err, TALLY_OUT_OF_RANGE, "name",
                          "length %zu of the name outside [1, %zu]", strlen(name),
                          sizeof worker->name - 1);
    }
    memcpy(worker->name, name, strlen(name) + 1);
    return TALLY_OK;
}

static enum tally_status set_token(struct tally_worker *worker,
                                   const struct tally_worker_config *config,
                                   struct tally_error *err)
{
    bool is_exposed;
    if (config->token != NULL && config->token_file != NULL) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "token_file",
                          "token holds a token as well: give one of them");
    }
    if (config->token_file != NULL) {
        return tally_token_file_first(config->token_file, tally_realtime_ms(), worker->token,
                                      &is_exposed, err);
    }
    if (config->token != NULL) {
        if (config->token[0] == '\0' || strlen(config->token) >= sizeof worker->token) {
            return tally_fail(err, TALLY_OUT_OF_RANGE, "token",
                              "length of the token outside [1, %zu]", sizeof worker->token - 1);
        }
        memcpy(worker->token, config->token, strlen(config->token) + 1);
    }
    return TALLY_OK;
}

static bool wait_for_stop(void *context, int timeout_ms)
{
    const struct tally_worker *worker = context;
    const int64_t until = tally_monotonic_ms() + timeout_ms;
    int64_t left = timeout_ms;
    while (__atomic_load_n(&worker->stop, __ATOMIC_RELAXED) == 0 && left > 0) {
        struct pollfd wake = {.fd = worker->wake_fd, .events = POLLIN};
        if (poll(&wake, 1, (int)left) > 0) {
            return true;
        }
        left = until - tally_monotonic_ms();
    }
    return __atomic_load_n(&worker->stop, __ATOMIC_RELAXED) != 0;
}

/* Has the HTTP client check URL, token and authorities. */
static enum tally_status check_connection(const struct worker_config *config,
                                          struct tally_error *err)
{
    const struct tally_http_client_config wanted = {.base_url = config->coordinator_url,
                                                    .bearer_token = config->token,
                                                    .tls_ca = config->tls_ca};
    struct tally_http_client *client;
    const enum tally_status status = tally_http_client_new(&wanted, &client, err);
    if (status == TALLY_OK) {
        tally_http_client_free(client);
    }
    return status;
}

/* Longer texts are cut. */
static void copy_text(const char *text, char *ret_text, size_t capacity)
{
    snprintf(ret_text, capacity, "%s", text != NULL ? text : "");
    ret_text[tally_utf8_valid_prefix(ret_text, strlen(ret_text))] = '\0';
}

static enum tally_status set_up(struct tally_worker *worker,
                                const struct tally_worker_config *given, struct tally_error *err)
{
    struct tally_worker_config config;
    enum tally_status status = read_config(given, &config, err);
    if (status == TALLY_OK) {
        status = check_number("clients", config.clients, TALLY_MAX_SLOTS, err);
    }
    if (status == TALLY_OK) {
        status = check_number("wait_ms", config.wait_ms, 30000, err);
    }
    if (status == TALLY_OK) {
        status = set_name(worker, config.name, err);
    }
    if (status == TALLY_OK) {
        status = set_token(worker, &config, err);
    }
    if (status == TALLY_OK && config.job != NULL &&
        strlen(config.job) >= TALLY_MESSAGE_JOB_ID_CAPACITY) {
        status = tally_fail(err, TALLY_OUT_OF_RANGE, "job", "this is not a job id");
    }
    if (status == TALLY_OK && config.plugin != NULL) {
        status = tally_plugin_set_add(&worker->plugins, config.plugin, config.override != 0,
                                      config.dim, err);
        if (status == TALLY_OK) {
            struct tally_user_code *code = &worker->plugins.first->code;
            copy_text(config.code_name, code->name, sizeof code->name);
            copy_text(config.code_sha256, code->sha256, sizeof code->sha256);
        }
    }
    if (status != TALLY_OK) {
        return status;
    }
    worker->log = config.log;
    worker->log_context = config.log_context;
    worker->config = (struct worker_config){
        .coordinator_url = config.coordinator,
        .token = worker->token[0] != '\0' ? worker->token : NULL,
        .token_file = config.token_file,
        .tls_ca = config.tls_ca,
        .name = worker->name,
        .slots = config.clients,
        .job_id = config.job,
        .data_dir = config.data_dir != NULL ? config.data_dir : "data",
        .plugins = &worker->plugins,
        .wait_ms = config.wait_ms,
        .exit_when_idle = config.exit_when_idle != 0,
        .stop = {.flag = &worker->stop, .wait = wait_for_stop, .context = worker},
    };
    return check_connection(&worker->config, err);
}

enum tally_code tally_worker_new(const struct tally_worker_config *config,
                                 struct tally_worker **ret_worker, struct tally_failure *failure)
{
    struct tally_error err = TALLY_ERROR_INIT;
    struct tally_worker *worker = calloc(1, sizeof *worker);
    if (worker == NULL) {
        return tally_failure_of(TALLY_NO_MEMORY, &err, failure);
    }
    enum tally_status status = TALLY_OK;
    worker->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (worker->wake_fd < 0) {
        status = tally_fail(&err, TALLY_UNAVAILABLE, NULL, "eventfd: %s", strerror(errno));
    } else {
        status = set_up(worker, config, &err);
    }
    if (status != TALLY_OK) {
        tally_worker_free(worker);
        return tally_failure_of(status, &err, failure);
    }
    *ret_worker = worker;
    return TALLY_CODE_OK;
}

void tally_worker_free(struct tally_worker *worker)
{
    if (worker != NULL) {
        tally_plugin_set_fini(&worker->plugins);
        if (worker->wake_fd >= 0) {
            close(worker->wake_fd);
        }
        explicit_bzero(worker->token, sizeof worker->token);
        free(worker);
    }
}

/* The line without "TIME level=LEVEL " and newline. */
static void say(void *context, enum tally_log_level level, const struct tally_log_pair *pairs,
                size_t n_pairs)
{
    const struct tally_worker *worker = context;
    char line[TALLY_LOG_LINE_CAPACITY];
    if (worker->log == NULL) {
        return;
    }
    const size_t n =
        tally_log_render(TALLY_LOG_TEXT, tally_realtime_ms(), level, pairs, n_pairs, line);
    line[n - 1] = '\0';
    const char *text = strstr(line, " level=");
    text = text != NULL ? strchr(text + 1, ' ') : NULL;
    worker->log(worker->log_context, (int)level, text != NULL ? text + 1 : line);
}

/* What SIGPIPE would say, a failing write says too; but TLS libraries write without MSG_NOSIGNAL,
 * and the default action ends the process. */
struct held_pipe_signal {
    sigset_t before;
    bool was_pending;
};

static void hold_pipe_signal(struct held_pipe_signal *held)
{
    sigset_t pipe_alone, pending;
    sigemptyset(&pipe_alone);
    sigaddset(&pipe_alone, SIGPIPE);
    held->was_pending = sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_alone, &held->before);
}

static void release_pipe_signal(const struct held_pipe_signal *held)
{
    sigset_t pipe_alone;
    const struct timespec at_once = {0};
    sigemptyset(&pipe_alone);
    sigaddset(&pipe_alone, SIGPIPE);
    while (!held->was_pending && sigtimedwait(&pipe_alone, NULL, &at_once) == SIGPIPE) {
    }
    pthread_sigmask(SIG_SETMASK, &held->before, NULL);
}

enum tally_code tally_worker_run(struct tally_worker *worker,
                                 struct tally_worker_totals *ret_totals,
                                 struct tally_failure *failure)
{
    const struct tally_log_sink sink = {.write = say, .context = worker};
    struct tally_error err = TALLY_ERROR_INIT;
    struct worker_totals totals = {0};
    struct held_pipe_signal held;
    hold_pipe_signal(&held);
    tally_log_divert(&sink);
    const enum tally_status status = worker_run(&worker->config, &totals, &err);
    tally_log_divert(NULL);
    release_pipe_signal(&held);
    if (ret_totals != NULL) {
        *ret_totals = (struct tally_worker_totals){.rounds = totals.rounds,
                                                   .messages = totals.uplink.messages,
                                                   .formula_bits = totals.uplink.formula_bits,
                                                   .payload_bits = totals.uplink.payload_bits,
                                                   .clipped = totals.uplink.clipped,
                                                   .wire_out_bytes = totals.wire_out_bytes,
                                                   .wire_in_bytes = totals.wire_in_bytes};
    }
    return tally_failure_of(status, &err, failure);
}

void tally_worker_stop(struct tally_worker *worker)
{
    const int saved_errno = errno;
    const uint64_t one = 1;
    __atomic_store_n(&worker->stop, 1, __ATOMIC_RELAXED);
    const ssize_t ignored = write(worker->wake_fd, &one, sizeof one);
    (void)ignored;
    errno = saved_errno;
}
