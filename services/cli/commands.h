/* commands: the sub-commands of `tally`. Each is in the file cmd_NAME.c, with
 * its options; cli_main.c has the table of commands. */
#ifndef TALLY_SERVICES_CLI_COMMANDS_H
#define TALLY_SERVICES_CLI_COMMANDS_H

#include "services/cli/cli.h"

struct tally_command {
    const char *name;
    const char *synopsis;    /* its arguments: "ID [OPTION]..." */
    const char *summary;     /* one clause, for `tally --help` */
    const char *description; /* paragraphs, for `tally COMMAND --help` */
    const struct tally_option *options;
    int min_arguments, max_arguments;
    bool needs_coordinator;            /* has --coordinator and --token-file, and cli->rest */
    int (*run)(struct tally_cli *cli); /* returns the exit code; reports its errors itself */
};

int tally_cli_backup(struct tally_cli *cli);
int tally_cli_cancel(struct tally_cli *cli);
int tally_cli_compare(struct tally_cli *cli);
int tally_cli_decode(struct tally_cli *cli);
int tally_cli_delete(struct tally_cli *cli); /* cmd_job_action.c */
int tally_cli_doctor(struct tally_cli *cli);
int tally_cli_encode(struct tally_cli *cli);
int tally_cli_export(struct tally_cli *cli);
int tally_cli_import(struct tally_cli *cli);
int tally_cli_list(struct tally_cli *cli);
int tally_cli_migrate(struct tally_cli *cli);
int tally_cli_pause(struct tally_cli *cli);
int tally_cli_plan(struct tally_cli *cli);
int tally_cli_predict(struct tally_cli *cli);
int tally_cli_reproduce(struct tally_cli *cli);
int tally_cli_restore(struct tally_cli *cli); /* cmd_backup.c */
int tally_cli_resume(struct tally_cli *cli);
int tally_cli_show(struct tally_cli *cli);
int tally_cli_simulate(struct tally_cli *cli);
int tally_cli_submit(struct tally_cli *cli);
int tally_cli_sweep(struct tally_cli *cli);
int tally_cli_verify(struct tally_cli *cli);
int tally_cli_version(struct tally_cli *cli);
int tally_cli_watch(struct tally_cli *cli);
int tally_cli_workers(struct tally_cli *cli);

extern const struct tally_option TALLY_CLI_ACTION_OPTIONS[]; /* cancel, pause, resume */
extern const struct tally_option TALLY_CLI_COMPARE_OPTIONS[];
extern const struct tally_option TALLY_CLI_DECODE_OPTIONS[];
extern const struct tally_option TALLY_CLI_DELETE_OPTIONS[];
extern const struct tally_option TALLY_CLI_DOCTOR_OPTIONS[];
extern const struct tally_option TALLY_CLI_ENCODE_OPTIONS[];
extern const struct tally_option TALLY_CLI_EXPORT_OPTIONS[];
extern const struct tally_option TALLY_CLI_IMPORT_OPTIONS[];
extern const struct tally_option TALLY_CLI_LIST_OPTIONS[];
extern const struct tally_option TALLY_CLI_MIGRATE_OPTIONS[];
extern const struct tally_option TALLY_CLI_PLAN_OPTIONS[];
extern const struct tally_option TALLY_CLI_PREDICT_OPTIONS[];
extern const struct tally_option TALLY_CLI_REPRODUCE_OPTIONS[];
extern const struct tally_option TALLY_CLI_SHOW_OPTIONS[];
extern const struct tally_option TALLY_CLI_SIMULATE_OPTIONS[];
extern const struct tally_option TALLY_CLI_STORE_OPTIONS[]; /* backup, restore */
extern const struct tally_option TALLY_CLI_SUBMIT_OPTIONS[];
extern const struct tally_option TALLY_CLI_SWEEP_OPTIONS[];
extern const struct tally_option TALLY_CLI_VERIFY_OPTIONS[];
extern const struct tally_option TALLY_CLI_VERSION_OPTIONS[];
extern const struct tally_option TALLY_CLI_WATCH_OPTIONS[];
extern const struct tally_option TALLY_CLI_WORKERS_OPTIONS[];

#endif
