/* tally version: as --version, or as JSON. */
#include "services/cli/commands.h"

const struct tally_option TALLY_CLI_VERSION_OPTIONS[] = {
    {"json", NULL, NULL, "print {\"version\": ...}", NULL},
    {0},
};

int tally_cli_version(struct tally_cli *cli)
{
    struct tally_buffer text = {0};
    if (!tally_options_bool(cli->options, "json")) {
        return tally_cli_print(tally_buffer_append_text(&text, "tally " TALLY_VERSION "\n"), &text);
    }
    struct tally_json *answer = tally_json_object();
    const bool ok = tally_json_set_text(answer, "version", TALLY_VERSION);
    return tally_cli_take_json(tally_json_if_complete(answer, ok));
}
