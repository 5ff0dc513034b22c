#include "services/cli/commands/job_action.h"

#include <stdio.h>

#include "services/cli/commands/commands.h"
#include "services/cli/job_path.h"
#include "services/cli/view/result_table.h"

const struct tally_option TALLY_CLI_ACTION_OPTIONS[] = {
    {"json", NULL, NULL, "print the job's detail as JSON", NULL},
    {0},
};

static int print_status(const char *id, const struct tally_json *detail)
{
    char status[TALLY_RESULT_CELL_CAPACITY];
    struct tally_buffer text = {0};
    tally_result_cell(detail, "status", status);
    int exit_code = tally_cli_print(tally_buffer_printf(&text, "%s %s\n", id, status), &text);
    tally_buffer_fini(&text);
    return exit_code;
}

int tally_job_action(struct tally_cli *cli, const char *action)
{
    const char *id = tally_options_positional(cli->options, 0);
    char rest[32], path[TALLY_JOB_PATH_CAPACITY];
    snprintf(rest, sizeof rest, "/%s", action);
    tally_job_path(id, rest, path);
    struct tally_http_exchange exchange = {
        .method = "POST", .path = path, .accept = "application/json"};
    struct tally_json *detail = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    if (tally_cli_call_json(cli, &exchange, &detail, &err) != TALLY_OK) {
        return tally_cli_report(&err);
    }
    int exit_code = tally_options_bool(cli->options, "json") ? tally_cli_print_json(detail, 2)
                                                             : print_status(id, detail);
    tally_json_free(detail);
    return exit_code;
}
