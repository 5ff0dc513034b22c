/* tally watch ID: follows a job until it ends. */
#include "services/cli/commands.h"
#include "services/cli/job_watch.h"

const struct tally_option TALLY_CLI_WATCH_OPTIONS[] = {
    {"json", NULL, NULL,
     "print the job's detail, one line of JSON, whenever the job has progressed", NULL},
    {"timeout", "SECONDS", "0", "give up after this long with exit code 3; 0 = never", NULL},
    {"interval-ms", "MS", "500", "pause between two polls", NULL},
    {0},
};

int tally_cli_watch(struct tally_cli *cli)
{
    struct tally_job_watch watch = {.job_id = cli->job};
    struct tally_error err = TALLY_ERROR_INIT;
    if (tally_job_watch_read_options(cli->options, &watch, &err) != TALLY_OK) {
        return tally_cli_report_usage(&err);
    }
    return tally_job_watch_run(cli, &watch);
}
