/* tally cancel ID, tally pause ID, tally resume ID: one POST without a body; tally delete ID. */
#include "services/base/rest_client.h"
#include "services/cli/commands.h"
#include "services/cli/result_table.h"

const struct tally_option TALLY_CLI_ACTION_OPTIONS[] = {
    {"json", NULL, NULL, "print the job's detail as JSON", NULL},
    {0},
};

static int print_status(const char *id, const struct tally_json *detail)
{
    char status[TALLY_RESULT_CELL_CAPACITY];
    struct tally_buffer text = {0};
    tally_result_cell(detail, "status", status);
    return tally_cli_print(tally_buffer_printf(&text, "%s %s\n", id, status), &text);
}

/* POST /v1/jobs/{id}/ACTION; prints "ID STATUS", or the detail with --json. */
static int run(struct tally_cli *cli, const char *action)
{
    struct tally_http_exchange exchange = {.method = "POST", .accept = "application/json"};
    struct tally_json *detail = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    if (tally_job_call_json(&cli->rest, cli->job, action, &exchange, &detail, &err) != TALLY_OK) {
        return tally_cli_report(&err);
    }
    int exit_code = tally_options_bool(cli->options, "json") ? tally_cli_print_json(detail, 2)
                                                             : print_status(cli->job, detail);
    tally_json_free(detail);
    return exit_code;
}

int tally_cli_cancel(struct tally_cli *cli)
{
    return run(cli, "/cancel");
}

int tally_cli_pause(struct tally_cli *cli)
{
    return run(cli, "/pause");
}

int tally_cli_resume(struct tally_cli *cli)
{
    return run(cli, "/resume");
}

const struct tally_option TALLY_CLI_DELETE_OPTIONS[] = {
    {"force", NULL, NULL, "also delete a job that has not ended; it is cancelled first", NULL},
    {0},
};

int tally_cli_delete(struct tally_cli *cli)
{
    const char *query = tally_options_bool(cli->options, "force") ? "?force=1" : "";
    struct tally_http_exchange exchange = {.method = "DELETE"};
    struct tally_buffer text = {0};
    struct tally_error err = TALLY_ERROR_INIT;
    if (tally_job_call(&cli->rest, cli->job, query, &exchange, &err) != TALLY_OK) {
        return tally_cli_report(&err);
    }
    return tally_cli_print(tally_buffer_printf(&text, "%s deleted\n", cli->job), &text);
}
