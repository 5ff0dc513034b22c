/* tally health: is the coordinator ready? For the health checks of containers, and scripts. */
#include "services/cli/commands.h"

const struct tally_option TALLY_CLI_HEALTH_OPTIONS[] = {
    {"timeout-ms", "N", "3000", "how long to wait for the response", NULL},
    {0},
};

int tally_cli_health(struct tally_cli *cli)
{
    int64_t timeout_ms;
    struct tally_error err = TALLY_ERROR_INIT;
    if (tally_options_integer(cli->options, "timeout-ms", 1, 3600000, &timeout_ms, &err) !=
        TALLY_OK) {
        return tally_cli_report_usage(&err);
    }
    struct tally_http_exchange exchange = {
        .method = "GET", .path = "/readyz", .timeout_ms = (long)timeout_ms};
    if (tally_rest_call(&cli->rest, &exchange, &err) != TALLY_OK) {
        return tally_cli_report(&err);
    }
    struct tally_buffer text = {0};
    return tally_cli_print(tally_buffer_append_text(&text, "ready\n"), &text);
}
