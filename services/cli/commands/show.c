/* tally show ID: the result table, or the detail as JSON. */
#include <unistd.h>

#include "services/base/text/columns.h"
#include "services/cli/commands/commands.h"
#include "services/cli/view/result_table.h"

const struct tally_option TALLY_CLI_SHOW_OPTIONS[] = {
    {"json", NULL, NULL, "print the job's detail as JSON", NULL},
    {0},
};

static int print_table(const struct tally_json *detail)
{
    struct tally_buffer text = {0};
    return tally_cli_print(
        tally_result_table_fit(detail, tally_terminal_columns(STDOUT_FILENO), &text), &text);
}

int tally_cli_show(struct tally_cli *cli)
{
    struct tally_json *detail = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    if (tally_job_get_json(&cli->rest, cli->job, "", &detail, &err) != TALLY_OK) {
        return tally_cli_report(&err);
    }
    int exit_code = tally_options_bool(cli->options, "json") ? tally_cli_print_json(detail, 2)
                                                             : print_table(detail);
    tally_json_free(detail);
    return exit_code;
}
