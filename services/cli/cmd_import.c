/* tally import FILE: hands a bundle of tally export --bundle to the coordinator, which checks it
 * and keeps the job as one of its own. */
#include <stdio.h>
#include <unistd.h>

#include "services/base/bundle.h"
#include "services/base/whole_file.h"
#include "services/cli/commands.h"
#include "services/cli/result_table.h"

const struct tally_option TALLY_CLI_IMPORT_OPTIONS[] = {
    {"json", NULL, NULL, "print the job's detail as JSON", NULL},
    {0},
};

/* The most that a coordinator's --max-body-bytes can be. */
#define MOST_BYTES ((size_t)1 << 32)
/* A coordinator that checks a large bundle sends nothing for that long. */
enum { ANSWER_MS = 600000 };

/* Prints `imported ID "name"`; the ID alone for a script. */
static int print_imported(const struct tally_json *detail, bool is_new)
{
    char id[TALLY_RESULT_CELL_CAPACITY], name[TALLY_RESULT_CELL_CAPACITY];
    struct tally_buffer text = {0};
    tally_result_cell(detail, "id", id);
    tally_result_cell(detail, "name", name);
    return tally_cli_print(isatty(STDOUT_FILENO) != 1
                               ? tally_buffer_printf(&text, "%s\n", id)
                               : tally_buffer_printf(&text, "%s %s \"%s\"\n",
                                                     is_new ? "imported" : "was there already:", id,
                                                     name),
                           &text);
}

static int post(struct tally_cli *cli, const struct tally_buffer *bundle)
{
    struct tally_http_exchange exchange = {.method = "POST",
                                           .path = "/v1/jobs/import",
                                           .content_type = "application/x-tar",
                                           .accept = "application/json",
                                           .body = bundle->data,
                                           .n_body = bundle->size,
                                           .timeout_ms = ANSWER_MS};
    struct tally_json *detail = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    const enum tally_status status = tally_rest_call_json(&cli->rest, &exchange, &detail, &err);
    tally_progress_clear(&cli->sending);
    if (status != TALLY_OK) {
        return tally_cli_report(&err);
    }
    const bool is_new = exchange.status == 201;
    const int exit_code = tally_options_bool(cli->options, "json") ? tally_cli_print_json(detail, 2)
                                                                   : print_imported(detail, is_new);
    if (!is_new && exit_code == TALLY_EXIT_OK) {
        fprintf(stderr, "the coordinator has this job already; nothing has changed\n");
    }
    tally_json_free(detail);
    return exit_code;
}

int tally_cli_import(struct tally_cli *cli)
{
    const char *path = tally_options_positional(cli->options, 0);
    struct tally_error err = TALLY_ERROR_INIT;
    struct tally_buffer bundle = {.limit = MOST_BYTES};
    int exit_code;
    if (!tally_bundle_is_one(path)) {
        /* Opening it may be what fails. */
        enum tally_status status = tally_file_read(path, &bundle, &err);
        if (status == TALLY_OK || status == TALLY_TOO_LARGE) {
            tally_error_clear(&err);
            tally_fail(&err, TALLY_INVALID_ARGUMENT, NULL,
                       "%.200s is not a bundle of tally export --bundle", path);
        }
        exit_code = tally_cli_report_usage(&err);
    } else if (tally_file_read(path, &bundle, &err) != TALLY_OK) {
        exit_code = tally_cli_report_usage(&err);
    } else {
        exit_code = post(cli, &bundle);
    }
    tally_buffer_fini(&bundle);
    return exit_code;
}
