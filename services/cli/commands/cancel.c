/* tally cancel ID */
#include "services/cli/commands/commands.h"
#include "services/cli/commands/job_action.h"

int tally_cli_cancel(struct tally_cli *cli)
{
    return tally_job_action(cli, "cancel");
}
