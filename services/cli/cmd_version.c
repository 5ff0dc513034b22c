/* tally version: as --version, or as JSON. */
#include "services/base/environment.h"
#include "services/cli/commands.h"
#include "services/objectives/blas_version.h"

const struct tally_option TALLY_CLI_VERSION_OPTIONS[] = {
    {"json", NULL, NULL, "print version, commit, compiler, libraries and machine", NULL},
    {0},
};

int tally_cli_version(struct tally_cli *cli)
{
    struct tally_buffer text = {0};
    if (!tally_options_bool(cli->options, "json")) {
        return tally_cli_print(tally_buffer_append_text(&text, "tally " TALLY_VERSION "\n"), &text);
    }
    return tally_cli_take_json(tally_environment_json(tally_blas_version()));
}
