/* tally submit FILE: posts a job document; the coordinator checks it. */
#include "services/cli/cmd_submit.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "api/worker/worker_messages.h"
#include "codec/record.h"
#include "services/cli/commands.h"
#include "services/cli/document_text.h"
#include "services/cli/job_watch.h"
#include "services/cli/result_table.h"
#include "services/job/job_spec.h"

/* Asks the coordinator for its slots. If all workers together have fewer than the job needs, prints
 * a hint on stderr, with a command that adds the rest:
 *
 *   no worker is connected, and the job needs 4 clients; start a worker:
 *     tally-worker --clients 4 --plugin FILE
 *
 * Prints nothing if the job has ended or the coordinator does not report its slots. */
static void tally_worker_hint(struct tally_cli *cli, const struct tally_json *detail);

const struct tally_option TALLY_CLI_SUBMIT_OPTIONS[] = {
    {"idempotency-key", "KEY", NULL, "submitting again with the same key returns the same job",
     NULL},
    TALLY_DOCUMENT_SET_OPTION,
    {"dry-run", NULL, NULL,
     "create nothing: print the complete document, warnings, expected bits and memory as JSON",
     NULL},
    {"json", NULL, NULL, "print the job's detail as JSON", NULL},
    {"watch", NULL, NULL, "watch the job once it is submitted", NULL},
    {"timeout", "SECONDS", "0", "with --watch: give up after this long with exit code 3; 0 = never",
     NULL},
    {"interval-ms", "MS", "500", "with --watch: pause between two polls", NULL},
    {0},
};

/* A job document has a few hundred bytes; the limit rejects data sets given by mistake. */
enum { MAX_DOCUMENT_BYTES = 16 << 20 };
/* The coordinator's limit. */
enum { MAX_KEY_BYTES = 128 };

static enum tally_status make_key_header(const struct tally_options *options, char *ret_header,
                                         size_t capacity, struct tally_error *err)
{
    const char *key = tally_options_text(options, "idempotency-key");
    size_t n = strlen(key);
    bool visible = n > 0 && n <= MAX_KEY_BYTES;
    for (size_t i = 0; i < n && visible; i++) {
        visible = key[i] > ' ' && key[i] <= '~';
    }
    if (!visible) {
        return tally_options_refuse(options, "idempotency-key", err,
                                    "must be 1 to %d visible ASCII characters", MAX_KEY_BYTES);
    }
    snprintf(ret_header, capacity, "Idempotency-Key: %s", key);
    return TALLY_OK;
}

/* Prints `submitted ID "name"`; the ID alone for a script, which reads it with $(...). The hint
 * goes to stderr. With --watch both kinds of reader get the lines for people. */
static int print_submitted(const struct tally_json *detail, bool watches)
{
    const bool is_for_script = !watches && isatty(STDOUT_FILENO) != 1;
    char id[TALLY_RESULT_CELL_CAPACITY], name[TALLY_RESULT_CELL_CAPACITY];
    struct tally_buffer text = {0};
    tally_result_cell(detail, "id", id);
    tally_result_cell(detail, "name", name);
    int exit_code = tally_cli_print(
        is_for_script ? tally_buffer_printf(&text, "%s\n", id)
                      : tally_buffer_printf(&text, "submitted %s \"%s\"\n", id, name),
        &text);
    if (exit_code == TALLY_EXIT_OK && !watches) {
        fprintf(stderr, "hint: follow it with tally watch %s\n", id);
    }
    return exit_code;
}

/* Prints all faults that the coordinator found; its response is a problem document. */
static int report_refusal(const struct tally_cli *cli, const struct tally_error *err)
{
    struct tally_json *problem = NULL;
    const int exit_code = tally_cli_report(err);
    if (tally_json_parse((const char *)cli->rest.body.data, cli->rest.body.size, &problem, NULL) ==
        TALLY_OK) {
        tally_cli_report_faults(tally_json_get(problem, "errors"));
    }
    tally_json_free(problem);
    return exit_code;
}

static int post(struct tally_cli *cli, const struct tally_buffer *document, const char *key_header,
                struct tally_job_watch *watch)
{
    const bool is_dry = tally_options_bool(cli->options, "dry-run");
    struct tally_http_exchange exchange = {
        .method = "POST",
        .path = is_dry ? "/v1/jobs?dry_run=1" : "/v1/jobs",
        .content_type = "application/json",
        .accept = "application/json",
        .extra_header = key_header[0] != '\0' ? key_header : NULL,
        .body = document->data,
        .n_body = document->size,
    };
    struct tally_json *detail = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    if (tally_rest_call_json(&cli->rest, &exchange, &detail, &err) != TALLY_OK) {
        return report_refusal(cli, &err);
    }
    if (is_dry) {
        return tally_cli_take_json(detail);
    }
    bool watches = tally_options_bool(cli->options, "watch");
    int exit_code = tally_options_bool(cli->options, "json")
                        ? tally_cli_print_json(detail, watches ? 0 : 2)
                        : print_submitted(detail, watches);
    if (exit_code == TALLY_EXIT_OK) {
        tally_worker_hint(cli, detail);
    }
    watch->job_id = tally_json_get_text(detail, "id");
    if (watches && exit_code == TALLY_EXIT_OK && watch->job_id != NULL) {
        exit_code = tally_job_watch_run(cli, watch);
    }
    tally_json_free(detail);
    return exit_code;
}

int tally_cli_submit(struct tally_cli *cli)
{
    struct tally_error err = TALLY_ERROR_INIT;
    struct tally_job_watch watch = {0};
    struct tally_buffer document = {.limit = MAX_DOCUMENT_BYTES};
    char key_header[MAX_KEY_BYTES + 32] = "";
    enum tally_status status = tally_job_watch_read_options(cli->options, &watch, &err);
    if (status == TALLY_OK && tally_options_has(cli->options, "idempotency-key")) {
        status = make_key_header(cli->options, key_header, sizeof key_header, &err);
    }
    if (status == TALLY_OK) {
        status = tally_document_text_read(cli->options, &document, &err);
    }
    int exit_code = status == TALLY_OK ? post(cli, &document, key_header, &watch)
                                       : tally_cli_report_usage(&err);
    tally_buffer_fini(&document);
    return exit_code;
}

static bool is_live(const struct tally_json *detail)
{
    const char *name = tally_json_get_text(detail, "status");
    enum tally_job_status status;
    return name != NULL && tally_job_status_of_name(name, &status) &&
           !tally_job_status_is_terminal(status);
}

static bool needs_plugin(const struct tally_json *detail)
{
    const char *type = tally_json_get_text(tally_json_get(detail, "objective"), "type");
    return type != NULL && strcmp(type, "plugin") == 0;
}

/* Prints an option of the worker if this command was given the same option, from any source. */
static void print_option(const struct tally_options *options, const char *name)
{
    if (tally_options_is_given(options, name)) {
        fprintf(stderr, " --%s %s", name, tally_options_text(options, name));
    }
}

static void print_command(const struct tally_cli *cli, const struct tally_json *detail,
                          int64_t n_clients)
{
    fprintf(stderr, "  tally-worker");
    print_option(cli->options, "coordinator");
    print_option(cli->options, "tls-ca");
    fprintf(stderr, " --clients %" PRId64,
            n_clients < TALLY_MAX_SLOTS ? n_clients : (int64_t)TALLY_MAX_SLOTS);
    fprintf(stderr, "%s%s\n", needs_plugin(detail) ? " --plugin FILE" : "",
            cli->rest.has_token ? " --token-file FILE" : "");
}

int64_t tally_slots_needed(const struct tally_json *detail)
{
    const struct tally_json *data = tally_json_get(tally_json_get(detail, "objective"), "data");
    const char *sharding = tally_json_get_text(data, "sharding");
    const bool is_local =
        sharding != NULL && strcmp(sharding, TALLY_SHARDING_NAMES[TALLY_SHARDING_LOCAL]) == 0;
    const struct tally_job_spec spec = {
        .objective.data.sharding = is_local ? TALLY_SHARDING_LOCAL : TALLY_SHARDING_IID,
        .clients = tally_json_get_integer(detail, "clients", 0),
        .cohort = tally_json_get_real(detail, "cohort", 0),
        .over_selection = fmax(tally_json_get_real(detail, "over_selection", 0), 0)};
    return spec.clients < 1 || spec.clients > UINT32_MAX ? spec.clients
                                                         : tally_job_spec_slots(&spec);
}

static void tally_worker_hint(struct tally_cli *cli, const struct tally_json *detail)
{
    struct tally_json *workers = NULL;
    const int64_t n_clients = tally_slots_needed(detail);
    if (!is_live(detail) ||
        tally_rest_get_json(&cli->rest, "/v1/workers?limit=1", &workers, NULL) != TALLY_OK) {
        return;
    }
    const int64_t n_workers = tally_json_get_integer(workers, "workers_total", -1);
    const int64_t n_slots = tally_json_get_integer(workers, "slots_total", n_clients);
    if (n_workers == 0) {
        fprintf(stderr,
                "no worker is connected, and the job needs %" PRId64 " client%s; start a worker:\n",
                n_clients, n_clients == 1 ? "" : "s");
        print_command(cli, detail, n_clients);
    } else if (n_workers > 0 && n_slots < n_clients) {
        fprintf(stderr,
                "the workers here have %" PRId64 " slot%s, and the job needs %" PRId64
                " clients; start another worker:\n",
                n_slots, n_slots == 1 ? "" : "s", n_clients);
        print_command(cli, detail, n_clients - n_slots);
    }
    tally_json_free(workers);
}
