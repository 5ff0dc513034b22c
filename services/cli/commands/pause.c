/* tally pause ID */
#include "services/cli/commands/commands.h"
#include "services/cli/commands/job_action.h"

int tally_cli_pause(struct tally_cli *cli)
{
    return tally_job_action(cli, "pause");
}
