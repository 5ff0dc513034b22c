#include "services/cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "codec/utf8.h"
#include "services/base/signals.h"
#include "services/base/time.h"
#include "services/base/token_file.h"
#include "services/cli/document_text.h"
#include "services/job/document.h"
#include "services/job/document_complete.h"
#include "services/job/document_faults.h"

enum { MAX_DOCUMENT_BYTES = 64 << 20 };

const struct tally_option TALLY_CLI_COORDINATOR_OPTIONS[] = {
    {"coordinator", "URL", "http://127.0.0.1:8080", "where the coordinator listens", "Coordinator"},
    {"token-file", "FILE", NULL, "file with the admin token; or set TALLY_TOKEN", "Coordinator"},
    {"tls-ca", "FILE", NULL,
     "PEM file of the only certificates to trust for https:// URLs (default: those of the system)",
     "Coordinator"},
    {0},
};

/* A request of that many bytes shows how far it has got. */
enum { LONG_REQUEST_BYTES = 1 << 20 };

static void show_sending(void *context, const struct tally_http_progress *progress)
{
    struct tally_cli *cli = context;
    char text[96];
    if (progress->to_send_bytes < LONG_REQUEST_BYTES) {
        return;
    }
    const double done = (double)progress->sent_bytes, all = (double)progress->to_send_bytes;
    if (done < all) {
        snprintf(text, sizeof text, "sent %.1f of %.1f MB", done / 1e6, all / 1e6);
    } else {
        snprintf(text, sizeof text, "sent  the coordinator checks it");
    }
    tally_progress_show(&cli->sending, tally_monotonic_ms() - progress->elapsed_ms, done / all,
                        text);
}

enum tally_status tally_cli_init(struct tally_cli *cli, const struct tally_options *options,
                                 bool needs_coordinator, struct tally_error *err)
{
    *cli = (struct tally_cli){.options = options};
    if (!needs_coordinator) {
        return TALLY_OK;
    }
    const char *job = tally_options_positional(options, 0);
    snprintf(cli->job, sizeof cli->job, "%s", job != NULL ? job : "");
    struct tally_client_token token;
    enum tally_status status = tally_client_token_read(options, &token, err);
    if (status != TALLY_OK) {
        return status;
    }
    const struct tally_http_client_config config = {
        .base_url = tally_options_text(options, "coordinator"),
        .bearer_token = token.text[0] != '\0' ? token.text : NULL,
        .user_agent = "tally/" TALLY_VERSION,
        .tls_ca = tally_options_text(options, "tls-ca"),
        .cancel = tally_signals_stop(),
        .on_progress = show_sending,
        .context = cli,
    };
    tally_progress_painter_init(&cli->sending, STDERR_FILENO);
    struct tally_error problem = TALLY_ERROR_INIT;
    status = tally_rest_client_init(&cli->rest, &config, &problem);
    explicit_bzero(&token, sizeof token);
    if (status != TALLY_OK) {
        const bool is_ca = strcmp(problem.field, "tls-ca") == 0;
        return tally_options_refuse(options, is_ca ? "tls-ca" : "coordinator", err, "%s",
                                    problem.message);
    }
    return TALLY_OK;
}

void tally_cli_fini(struct tally_cli *cli)
{
    tally_rest_client_fini(&cli->rest);
}

void tally_cli_report_fault(void *context, const char *fault)
{
    char line[1024];
    (void)context;
    snprintf(line, sizeof line, "  %s", fault);
    tally_utf8_sanitize_line(line);
    fprintf(stderr, "%s\n", line);
}

enum tally_status tally_cli_complete(const char *data_dir, struct tally_buffer *text,
                                     struct tally_error *err)
{
    const struct tally_data_source files = {.dir = data_dir, .on_fault = tally_cli_report_fault};
    char found[TALLY_FOUND_CAPACITY];
    const enum tally_status status = tally_document_complete(text, &files, found, err);
    if (status == TALLY_OK && found[0] != '\0') {
        fprintf(stderr, "%s\n", found);
    }
    return status;
}

enum tally_status tally_cli_read_document(const struct tally_cli *cli,
                                          struct tally_job_spec *ret_spec,
                                          struct tally_json **ret_faults, struct tally_error *err)
{
    struct tally_buffer text = {.limit = MAX_DOCUMENT_BYTES};
    enum tally_status status = tally_document_text_read(cli->options, &text, err);
    if (status == TALLY_OK) {
        status = tally_cli_complete(tally_options_text(cli->options, "data-dir"), &text, err);
    }
    if (status == TALLY_OK) {
        status = tally_document_parse((const char *)text.data, text.size, ret_spec, err);
        *ret_faults =
            status != TALLY_OK ? tally_document_faults((const char *)text.data, text.size) : NULL;
    }
    tally_buffer_fini(&text);
    return status;
}

void tally_cli_report_faults(const struct tally_json *faults)
{
    struct tally_buffer text = {0};
    if (tally_document_text_faults(faults, &text) == TALLY_OK && text.size > 0 &&
        tally_buffer_append(&text, "", 1) == TALLY_OK) {
        fputs((const char *)text.data, stderr);
    }
    tally_buffer_fini(&text);
}

/* Sanitizes the message: it may quote documents and data files, which may be untrusted. */
static void print_line(const char *begin, const char *message)
{
    char line[sizeof(struct tally_error)];
    snprintf(line, sizeof line, "%s: %s", begin, message);
    tally_utf8_sanitize_line(line);
    fprintf(stderr, "%s\n", line);
}

int tally_cli_report(const struct tally_error *err)
{
    int stop = *tally_signals_stop();
    if (err->status == TALLY_CANCELLED && stop != 0) {
        return 128 + stop;
    }
    print_line(err->field[0] != '\0' ? err->field : "tally", err->message);
    return err->status == TALLY_DEADLINE ? TALLY_EXIT_TIMEOUT : TALLY_EXIT_FAILED;
}

int tally_cli_report_usage(const struct tally_error *err)
{
    print_line("tally", err->message);
    return TALLY_EXIT_USAGE;
}

int tally_cli_refuse_document(struct tally_json *faults, const struct tally_error *err)
{
    const int exit_code = tally_cli_report_usage(err);
    tally_cli_report_faults(faults);
    tally_json_free(faults);
    return exit_code;
}

int tally_cli_print(enum tally_status made, struct tally_buffer *text)
{
    int exit_code = TALLY_EXIT_OK;
    errno = 0;
    if (made != TALLY_OK) {
        struct tally_error err = TALLY_ERROR_INIT;
        tally_fail(&err, made, NULL, "%s", tally_status_info(made)->title);
        exit_code = tally_cli_report(&err);
    } else if (fwrite(text->data, 1, text->size, stdout) != text->size || fflush(stdout) != 0) {
        if (errno != EPIPE) {
            fprintf(stderr, "tally: standard output: %s\n", strerror(errno));
        }
        exit_code = TALLY_EXIT_FAILED;
    }
    tally_buffer_fini(text);
    return exit_code;
}

int tally_cli_print_json(const struct tally_json *value, int indent)
{
    struct tally_buffer text = {0};
    enum tally_status status =
        value != NULL ? tally_json_dump(value, indent, &text) : TALLY_NO_MEMORY;
    if (status == TALLY_OK) {
        status = tally_buffer_append_text(&text, "\n");
    }
    return tally_cli_print(status, &text);
}

int tally_cli_take_json(struct tally_json *value)
{
    const int exit_code = tally_cli_print_json(value, 2);
    tally_json_free(value);
    return exit_code;
}
