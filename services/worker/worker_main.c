/* tally-worker: reads the options and runs the worker. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/worker/worker_messages.h"
#include "services/base/log.h"
#include "services/base/options.h"
#include "services/base/process_guard.h"
#include "services/base/rest_client.h"
#include "services/base/signals.h"
#include "services/base/token_file.h"
#include "services/plugins/plugin_host.h"
#include "services/worker/worker.h"
#include "services/worker/worker_name.h"

static const struct tally_option OPTIONS[] = {
    {"coordinator", "URL", "http://127.0.0.1:8080", "where the coordinator listens", NULL},
    {"name", "N", NULL,
     "name of this worker, unique at the coordinator; a restart under the same name takes its "
     "clients back at once (default: HOST-PID, with the boot id as --name-salt)",
     NULL},
    {"name-salt", "TEXT", NULL,
     "add a digest of this text, for example the boot id, to the name, so that the names on copies "
     "of a machine differ",
     NULL},
    {"clients", "N", "1", "clients that this process serves at once", NULL},
    {"job", "ID", NULL, "serve this job only, and exit when it has ended", NULL},
    {"data-dir", "DIR", "data", "folder of the data files that job documents name", NULL},
    {"token-file", "FILE", NULL, "file with the workers' bearer token; or set TALLY_TOKEN", NULL},
    {"tls-ca", "FILE", NULL,
     "PEM file of the only certificates to trust for an https:// coordinator (default: those of "
     "the "
     "system)",
     NULL},
    {"wait-ms", "N", "10000", "how long a poll for work may wait", NULL},
    {"exit-when-idle", NULL, NULL,
     "exit when no job is left; a worker that has seen no job yet waits --wait-ms for the first",
     NULL},
    {"give-up-after", "SECONDS", "0",
     "exit with status 3 after this time without a coordinator or without work; 0 = never", NULL},
    {"health", NULL, NULL,
     "ask whether the coordinator is ready, and exit with status 0 if it is; starts nothing", NULL},
    {0},
};

#define PLUGINS "Plug-ins"
static const struct tally_option PLUGIN_OPTIONS[] = {
    {"plugin", "FILE...", NULL,
     "shared object with a plug-in, for plugin objectives of its name; may be given several times, "
     "or as FILE:FILE in the environment and in config files",
     PLUGINS},
    {"plugin-isolated", NULL, NULL,
     "run each plug-in in a child process for every job: if it crashes or hangs there, the client "
     "that it computes for fails, and this worker does not",
     PLUGINS},
    {"plugin-timeout-ms", "N", "600000",
     "time that an isolated plug-in has for each call before it is killed", PLUGINS},
    {"plugin-memory-mib", "N", "0", "address space that an isolated plug-in may have; 0 = no limit",
     PLUGINS},
    {0},
};

static const struct tally_options_spec SPEC = {
    .program = "tally-worker",
    .synopsis = "[OPTION]...",
    .description =
        "Serves clients of federated optimisation jobs: polls the coordinator for tasks, "
        "computes gradients on their shards of the data and posts quantized messages.",
    .tables = {OPTIONS, PLUGIN_OPTIONS, TALLY_LOG_OPTIONS},
    .epilogue = "Exit codes:\n"
                "  0  asked to stop, --job has ended, or --exit-when-idle and no job is left\n"
                "  1  fatal error\n"
                "  2  usage\n"
                "  3  --give-up-after has elapsed\n",
};

enum { EXIT_GAVE_UP = 3 }; /* the exit code of `tally` after a timeout */

struct settings {
    struct worker_config config;
    char name[TALLY_WORKER_NAME_CAPACITY];
    struct tally_client_token token;
    bool isolates;
    struct tally_plugin_limits limits;
    struct tally_plugin_set plugins;
};

static void read_limits(const struct tally_options *options, struct settings *settings,
                        struct tally_error *err)
{
    static const char *const names[] = {"plugin-timeout-ms", "plugin-memory-mib"};
    int64_t mib = 0;
    settings->isolates = tally_options_bool(options, "plugin-isolated");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (tally_options_is_given(options, names[i]) && !settings->isolates) {
            tally_options_refuse(options, names[i], err,
                                 "limits apply to isolated plug-ins only; add --plugin-isolated");
        }
    }
    tally_options_integer(options, names[0], 1, 86400000, &settings->limits.timeout_ms, err);
    tally_options_integer(options, names[1], 0, 1 << 24, &mib, err);
    settings->limits.memory_bytes = mib << 20;
}

static void read_name(const struct tally_options *options, struct settings *settings,
                      struct tally_error *err)
{
    const char *name = tally_options_text(options, "name");
    const char *salt = tally_options_text(options, "name-salt");
    if (name == NULL) {
        char pid[24];
        snprintf(pid, sizeof pid, "%ld", (long)getpid());
        worker_name_write_default(pid, salt, settings->name);
    } else if (name[0] == '\0' || (strlen(name) >= sizeof settings->name && salt == NULL)) {
        tally_options_refuse(options, "name", err, "length %zu outside [1, %zu]", strlen(name),
                             sizeof settings->name - 1);
    } else {
        worker_name_write(name, salt, settings->name);
    }
    settings->config.name = settings->name;
}

static enum tally_status read_settings(const struct tally_options *options,
                                       struct settings *settings, struct tally_error *err)
{
    struct worker_config *config = &settings->config;
    int64_t clients = 0, wait_ms = 0, give_up_after_s = 0;
    tally_log_configure(options, err);
    read_name(options, settings, err);
    tally_options_integer(options, "clients", 1, TALLY_MAX_SLOTS, &clients, err);
    tally_options_integer(options, "wait-ms", 1, 30000, &wait_ms, err);
    tally_options_integer(options, "give-up-after", 0, 10000000, &give_up_after_s, err);
    tally_client_token_read(options, &settings->token, err);
    read_limits(options, settings, err);
    config->token_file = tally_options_text(options, "token-file");
    config->token = settings->token.text[0] != '\0' ? settings->token.text : NULL;
    config->data_dir = tally_options_text(options, "data-dir");
    config->coordinator_url = tally_options_text(options, "coordinator");
    config->tls_ca = tally_options_text(options, "tls-ca");
    config->job_id = tally_options_text(options, "job");
    if (config->job_id != NULL && strlen(config->job_id) >= TALLY_MESSAGE_JOB_ID_CAPACITY) {
        tally_options_refuse(options, "job", err, "this is not a job id");
    }
    config->slots = (uint32_t)clients;
    config->wait_ms = (uint32_t)wait_ms;
    config->give_up_after_ms = give_up_after_s * 1000;
    config->exit_when_idle = tally_options_bool(options, "exit-when-idle");
    return err->status;
}

/* To be called once signals are caught, so that a plug-in that takes long to load can be
 * interrupted. */
static enum tally_status load_plugins(const struct tally_options *options,
                                      struct settings *settings, struct tally_error *err)
{
    /* If the parent ignored SIGCHLD, the end of a plug-in would not be reported. */
    signal(SIGCHLD, SIG_DFL);
    settings->limits.cancel_fd = tally_signals_fd();
    settings->config.plugins = &settings->plugins;
    enum tally_status status =
        tally_plugin_set_load_list(&settings->plugins, tally_options_text(options, "plugin"),
                                   settings->isolates ? &settings->limits : NULL, err);
    if (status != TALLY_OK) {
        tally_error_wrap(err, "--plugin");
    }
    for (const struct tally_plugin_source *s = settings->plugins.first; s != NULL; s = s->next) {
        tally_log(TALLY_LOG_INFO, tally_log_event("plug-in loaded"),
                  tally_log_text("name", s->name),
                  tally_log_text("isolated", settings->isolates ? "yes" : "no"));
    }
    return status;
}

static bool wait_for_signal(void *context, int timeout_ms)
{
    (void)context;
    return tally_signals_wait(timeout_ms);
}

int main(int argc, char **argv)
{
    static struct settings settings;
    struct tally_options *options;
    struct tally_error err = TALLY_ERROR_INIT;
    int exit_code = EXIT_SUCCESS;
    if (tally_plugin_host(argc, argv, &exit_code)) {
        return exit_code;
    }
    if (!tally_options_start(&SPEC, argc, argv, &options, &exit_code)) {
        return exit_code;
    }
    if (tally_options_bool(options, "health")) {
        const struct tally_http_client_config coordinator = {
            .base_url = tally_options_text(options, "coordinator"),
            .tls_ca = tally_options_text(options, "tls-ca")};
        exit_code = tally_health_print(&coordinator, SPEC.program);
        tally_options_free(options);
        return exit_code;
    }
    if (read_settings(options, &settings, &err) != TALLY_OK) {
        exit_code = tally_options_usage_error(&SPEC, &err);
        tally_options_free(options);
        return exit_code;
    }
    tally_process_guard(settings.config.token != NULL);
    if (settings.token.is_exposed) {
        tally_log(TALLY_LOG_WARN, tally_log_event("token file can be read by others"),
                  tally_log_text("remedy", "chmod 600"));
    }
    struct worker_totals totals = {0};
    enum tally_status status = tally_signals_install(&err);
    if (status == TALLY_OK) {
        settings.config.stop =
            (struct worker_stop){.flag = tally_signals_stop(), .wait = wait_for_signal};
        status = load_plugins(options, &settings, &err);
    }
    if (status == TALLY_OK) {
        status = worker_run(&settings.config, &totals, &err);
    }
    if (status != TALLY_OK) {
        tally_log(TALLY_LOG_ERROR, tally_log_event("fatal error"), tally_log_problem(&err));
    }
    tally_log(TALLY_LOG_INFO, tally_log_event("worker stopped"),
              tally_log_text("worker", settings.name), tally_log_unsigned("rounds", totals.rounds),
              tally_log_unsigned("uplink_messages", totals.uplink.messages),
              tally_log_unsigned("uplink_formula_bits", totals.uplink.formula_bits),
              tally_log_unsigned("uplink_payload_bits", totals.uplink.payload_bits),
              tally_log_unsigned("uplink_clipped", totals.uplink.clipped),
              tally_log_unsigned("wire_out_bytes", totals.wire_out_bytes),
              tally_log_unsigned("wire_in_bytes", totals.wire_in_bytes));
    tally_plugin_set_fini(&settings.plugins);
    tally_options_free(options);
    return status == TALLY_OK         ? EXIT_SUCCESS
           : status == TALLY_DEADLINE ? EXIT_GAVE_UP
                                      : EXIT_FAILURE;
}
