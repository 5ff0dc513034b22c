/* tally cancel ID */
#include "services/cli/commands.h"
#include "services/cli/job_action.h"

int tally_cli_cancel(struct tally_cli *cli)
{
    return tally_job_action(cli, "cancel");
}
