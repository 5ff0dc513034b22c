/* tally: the command line of the coordinator. Finds the sub-command, reads its options, runs it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "services/base/alloc.h"
#include "services/base/nearest_name.h"
#include "services/base/signals.h"
#include "services/base/text.h"
#include "services/cli/commands.h"
#include "services/cli/completion.h"

static int complete(struct tally_cli *cli);
static const struct tally_option COMPLETION_OPTIONS[] = {{0}};

static const struct tally_command COMMANDS[] = {
    {"submit", "FILE|- [OPTION]...", "submit a job document",
     "Submits the job document in FILE, or standard input for -, and prints the job's id; "
     "only the id if standard output is not a terminal.",
     TALLY_CLI_SUBMIT_OPTIONS, 1, 1, true, tally_cli_submit},
    {"list", "[OPTION]...", "list jobs", "Lists jobs, one line each.", TALLY_CLI_LIST_OPTIONS, 0, 0,
     true, tally_cli_list},
    {"show", "ID|FILE [OPTION]...", "show where a job stands, and its bits",
     "Shows where a job stands: time step, round, regret, checksum of the iterate, and how many "
     "bits it has cost; with --clients or --traffic, the metrics or the traffic of single "
     "clients instead. FILE is a bundle of tally export --bundle, or a detail that tally show "
     "--json or tally simulate --json has printed.",
     TALLY_CLI_SHOW_OPTIONS, 1, 1, true, tally_cli_show},
    {"watch", "ID [OPTION]...", "follow a job until it ends",
     "Follows a job until it ends, then prints its result table. On a terminal there is one "
     "progress line; otherwise standard output gets one line whenever the job has progressed. With "
     "--json each line is the job's detail, and the table goes to standard error. While the "
     "coordinator is away the watch waits for it.\n\n"
     "With --tensorboard DIR the rounds are also written to an event file of TensorBoard, each "
     "once "
     "the next one has closed, because the metrics of a model are known only then. The file may be "
     "continued by another watch, or by tally export --to tensorboard.\n\n"
     "Exit codes: 0 the job completed, 1 it failed or was cancelled, 2 usage, 3 timeout.",
     TALLY_CLI_WATCH_OPTIONS, 1, 1, true, tally_cli_watch},
    {"cancel", "ID [OPTION]...", "end a job before it completes",
     "Cancels a job. Its round records and its model are kept.", TALLY_CLI_ACTION_OPTIONS, 1, 1,
     true, tally_cli_cancel},
    {"pause", "ID [OPTION]...", "pause a job",
     "Pauses a job: no new round begins until it is resumed.", TALLY_CLI_ACTION_OPTIONS, 1, 1, true,
     tally_cli_pause},
    {"resume", "ID [OPTION]...", "resume a paused job", "Resumes a paused job.",
     TALLY_CLI_ACTION_OPTIONS, 1, 1, true, tally_cli_resume},
    {"delete", "ID [OPTION]...", "delete a job that has ended",
     "Deletes a job with its round records and its model. Deletion cannot be undone; "
     "export what you need first.",
     TALLY_CLI_DELETE_OPTIONS, 1, 1, true, tally_cli_delete},
    {"export", "ID [DIR] [OPTION]...", "save round records or the model to a file",
     "Saves the results of a job to a file, which appears whole or not at all. \"tally export ID "
     "--model best\" saves the best model that the job keeps. \"tally export ID --bundle FILE\" "
     "saves all of a job that has ended, to be handed on: a tar archive with its document, its "
     "detail with the provenance, its rounds and its models. tally show, verify and compare read "
     "it.\n\n"
     "\"tally export ID --to tensorboard DIR\" writes loss, regret, bits and metrics of all rounds "
     "to an event file in DIR/NAME-ID; said again, it adds the rounds that have closed since. "
     "\"--to mlflow DIR\" writes them, with the document and the models, as a run of MLflow's file "
     "store in DIR; \"--to csv DIR\" and \"--to json DIR\" write the rounds to DIR/ID.csv and "
     "DIR/ID.json.",
     TALLY_CLI_EXPORT_OPTIONS, 1, 2, true, tally_cli_export},
    {"import", "FILE [OPTION]...", "keep a job of another coordinator, from its bundle",
     "Sends FILE, a bundle of tally export --bundle, to the coordinator, which checks all of it "
     "and "
     "keeps the job under its own id, as one that has ended: with its rounds, metrics, models and "
     "provenance, in lists, charts and groups. Its detail has a member \"imported\". On a terminal "
     "prints the id and the name, otherwise the id alone. Importing the bundle again changes "
     "nothing and gives the same id; if another job has the id, the command fails. The bundle may "
     "have as many bytes as the coordinator's --max-body-bytes.\n\n"
     "Exit codes: 0 the job is there, 1 the coordinator refused the bundle or is unreachable, 2 "
     "usage, or FILE is not a bundle.",
     TALLY_CLI_IMPORT_OPTIONS, 1, 1, true, tally_cli_import},
    {"compare", "FILE|ID FILE|ID [OPTION]...", "show what differs between two jobs",
     "Compares two jobs: their documents, the programs and machines that ran them with the digests "
     "of the data, and their results. A job is one of the coordinator, or a file: a bundle of "
     "tally "
     "export --bundle, or a detail that tally show --json or tally simulate --json has printed.\n\n"
     "Exit codes: 0 nothing differs, 1 something does or a job cannot be read, 2 usage.",
     TALLY_CLI_COMPARE_OPTIONS, 2, 2, true, tally_cli_compare},
    {"verify", "FILE|ID [OPTION]...", "run a job again and compare the results",
     "Runs a completed job again in this process and compares iterate, regret and bits. A job is "
     "one of the coordinator, or a file: a bundle of tally export --bundle, or a detail that tally "
     "show --json or tally simulate --json has printed. If the results differ, prints what else "
     "does: version, commit, compiler, libraries, machine or data.\n\n"
     "Exit codes: 0 the results are the same, 1 they differ or the job cannot be run here, 2 "
     "usage.",
     TALLY_CLI_VERIFY_OPTIONS, 1, 1, true, tally_cli_verify},
    {"predict", "FILE|ID FILE [OPTION]...", "apply a job's model to the points of a CSV file",
     "Prints as CSV, for each point of the CSV file that the second argument names, the class that "
     "the job's model predicts and its probability or, of an objective without classes, the value. "
     "A job is one of the coordinator, or a file: a bundle of tally export --bundle, or, with "
     "--model, a detail that tally show --json or tally simulate --json has printed. The CSV file "
     "must have the columns of the training file, in any order; the column of the labels may be "
     "absent. A missing value is an error unless the job has \"missing\": \"mean\". "
     "The training file in --data-dir gives the order of the features, and the means and "
     "deviations that the job has standardized them with.",
     TALLY_CLI_PREDICT_OPTIONS, 2, 2, true, tally_cli_predict},
    {"workers", "[OPTION]...", "list the connected workers",
     "Lists the connected workers, newest first: how many clients each serves at once, how many of "
     "these slots are free, and how many jobs it has refused.",
     TALLY_CLI_WORKERS_OPTIONS, 0, 0, true, tally_cli_workers},
    {"doctor", "[OPTION]...", "check an installation",
     "Checks the coordinator, its workers and jobs, and with --store its database. Reports each "
     "problem with a hint. With --ready it only asks whether the coordinator is ready: its store "
     "works and it is not shutting down.\n\n"
     "Exit codes: 0 no check failed, 1 a check failed, 2 usage.",
     TALLY_CLI_DOCTOR_OPTIONS, 0, 0, true, tally_cli_doctor},
    {"backup", "FILE [OPTION]...", "copy the coordinator's database, also while it runs",
     "Copies a consistent snapshot of a coordinator's database on this machine to FILE. The "
     "coordinator may be running. FILE appears complete, verified and synced, or not at all.",
     TALLY_CLI_STORE_OPTIONS, 1, 1, false, tally_cli_backup},
    {"restore", "FILE [OPTION]...", "replace the database with a backup",
     "Verifies the backup in FILE and replaces the coordinator's database with it. The coordinator "
     "must be stopped. Jobs continue from the time of the backup.",
     TALLY_CLI_STORE_OPTIONS, 1, 1, false, tally_cli_restore},
    {"migrate", "sqlite:PATH postgres:CONNINFO [OPTION]...",
     "move a SQLite store into a PostgreSQL database",
     "Copies all jobs of a SQLite store, with their documents, states, updates of open rounds, "
     "rounds and idempotency keys, into a PostgreSQL database that has none, and reads them back: "
     "prints how many rows each table has on both sides, and their checksums. The coordinator of "
     "the store must be stopped; nothing in it is changed. All of it is one transaction, committed "
     "once the copy is verified: stopped or killed, the command leaves the database empty. "
     "Afterwards the jobs continue when coordinators are started with --store "
     "postgres:CONNINFO.\n\n"
     "CONNINFO is what libpq takes, \"host=... dbname=...\"; a password belongs in PGPASSFILE or "
     "PGPASSWORD.\n\n"
     "Exit codes: 0 both sides are equal, 1 they are not or the copy could not be made, 2 usage.",
     TALLY_CLI_MIGRATE_OPTIONS, 2, 2, false, tally_cli_migrate},
    {"plan", "FILE|- [OPTION]...",
     "predict the regret of a calm job for its bits, or suggest a step size",
     "Plans the job document in FILE without running it.\n\n"
     "For a job that is not of type calm, suggests a step size, if the objective is built in, not "
     "too large, and its data are in --data-dir; prints the bits of the job; and warns of a "
     "step_size above four times the suggestion. The suggestion has the least expected regret for "
     "a quadratic like f around the initial point, which takes a second at most, besides reading "
     "the data. With --json, "
     "prints what a dry run of the coordinator responds.\n\n"
     "A job of type calm must have numbers "
     "for noise and initial_variance; a client_spread of auto counts as 0. Prints the regret to be "
     "expected for each budget of bits, the queries between two messages, and what regret could be "
     "at best, with every query shared at no cost and with messages coded at the rates of "
     "information theory. For a single budget it prints the epochs too. A direction without a "
     "budget takes bits as long as one per cent more of them buys half a per cent of regret. A job "
     "without any budget does not follow that plan: its epochs have 6, 18, 54, 162 and 486 "
     "queries.",
     TALLY_CLI_PLAN_OPTIONS, 1, 1, false, tally_cli_plan},
    {"simulate", "FILE|- [OPTION]...", "run a job document in this process",
     "Runs the job document in FILE in this process, on the engine of the service: the same "
     "document and seed give the same iterate, regret and bit counters, bit for bit. There is no "
     "network, so the wire counters stay 0.",
     TALLY_CLI_SIMULATE_OPTIONS, 1, 1, false, tally_cli_simulate},
    {"sweep", "FILE|- [OPTION]...", "run many variants of a job document",
     "Runs the sweep whose document is in FILE: a job document, the members that vary (a grid, a "
     "random search, single rows) and the seeds, "
     "{\"base\": \"job.json\", \"grid\": {\"algorithm.step_size\": [0.01, 0.03, 0.1]}, "
     "\"seeds\": \"101-110\"}. Says first how many runs there are and how long they take, and at "
     "the end prints a table with the mean of each row and its spread over the seeds, and the best "
     "job document, which can be submitted: tally sweep FILE --best | tally submit -. Each run is "
     "the one of tally simulate with the same document. --members lists the members of the "
     "document.\n\n"
     "Runs in this process, unless --coordinator is given: then every run is a job there, with "
     "the label sweep=DIGEST. The same command finds these jobs again, whatever was stopped or "
     "killed in between, and --cancel cancels them.",
     TALLY_CLI_SWEEP_OPTIONS, 0, 1, true, tally_cli_sweep},
    {"reproduce", "synthetic|mnist|logistic [OPTION]...", "run the experiments of the paper",
     "Runs CEAL, Minibatch-SGD, FedAvg, FedPAQ and FedCOM in this process, on the engine of the "
     "service. Uses the paper's step sizes, and the best step size of a grid for each algorithm. "
     "Prints regret and bits beside the paper's figures. The grid is searched on the seeds that "
     "the result is reported on (on MNIST, on the first two of them). `logistic` is not of the "
     "paper: it runs Minibatch-SGD, FedAvg, DIANA, EF21, CEAL, CALM and FedAvg with compression on "
     "logistic regressions of four small real data sets, with exact and with stochastic gradients, "
     "and prints the bits sent until the gap f(x) - f(x*) is small.",
     TALLY_CLI_REPRODUCE_OPTIONS, 1, 1, false, tally_cli_reproduce},
    {"encode", "FILE|- [OPTION]...", "encode a .npy file as a message's payload",
     "Encodes FILE, a one-dimensional .npy array. Levels (int8, int32) are encoded as they are; a "
     "vector (float32, float64) is rounded to the grid first. Writes only the payload. Prints as "
     "JSON what a receiver must know to decode it (encoding, dim, grid and payload_bits, which are "
     "options of decode), and the costs.",
     TALLY_CLI_ENCODE_OPTIONS, 1, 1, false, tally_cli_encode},
    {"decode", "FILE|- [OPTION]...", "decode a message's payload to a .npy file",
     "Decodes the payload in FILE to a .npy array of int32 levels, or of float64 values. Rejects "
     "what codec/FORMAT.md requires a decoder to reject.",
     TALLY_CLI_DECODE_OPTIONS, 1, 1, false, tally_cli_decode},
    {"completion", "bash|zsh [OPTION]...", "print the completion script for a shell",
     "Prints the script that completes the command lines of tally in bash or zsh. It is installed "
     "as "
     "share/bash-completion/completions/tally and share/zsh/site-functions/_tally. Without an "
     "installation: source <(tally completion bash).",
     COMPLETION_OPTIONS, 1, 1, false, complete},
    {"version", "[OPTION]...", "print the version", "Prints the version.",
     TALLY_CLI_VERSION_OPTIONS, 0, 0, false, tally_cli_version},
};
enum { N_COMMANDS = sizeof COMMANDS / sizeof COMMANDS[0] };

static int complete(struct tally_cli *cli)
{
    const struct tally_completion completion = {COMMANDS, N_COMMANDS};
    const char *shell = tally_options_positional(cli->options, 0);
    struct tally_buffer text = {0};
    if (strcmp(shell, "bash") == 0) {
        return tally_cli_print(tally_completion_bash(&completion, &text), &text);
    }
    if (strcmp(shell, "zsh") == 0) {
        return tally_cli_print(tally_completion_zsh(&completion, &text), &text);
    }
    struct tally_error err = TALLY_ERROR_INIT;
    tally_fail(&err, TALLY_INVALID_ARGUMENT, NULL, "\"%.40s\" is not one of bash, zsh", shell);
    return tally_cli_report_usage(&err);
}

static const char EXIT_CODES[] =
    "Exit codes:\n"
    "  0  done; a watched job completed\n"
    "  1  the coordinator refused or is not reachable; a watched job failed or was cancelled\n"
    "  2  usage\n"
    "  3  timeout\n";

/* All keys that are allowed in a config file that sub-commands share. */
static const struct tally_option *all_tables[N_COMMANDS + 2];

static void collect_tables(void)
{
    for (int i = 0; i < N_COMMANDS; i++) {
        all_tables[i] = COMMANDS[i].options;
    }
    all_tables[N_COMMANDS] = TALLY_CLI_COORDINATOR_OPTIONS;
}

static const struct tally_command *find_command(const char *name)
{
    for (int i = 0; i < N_COMMANDS; i++) {
        if (strcmp(COMMANDS[i].name, name) == 0) {
            return &COMMANDS[i];
        }
    }
    return NULL;
}

static int refuse_command(const char *name)
{
    struct tally_nearest_name nearest = {.typed = name};
    for (int i = 0; i < N_COMMANDS; i++) {
        tally_nearest_name_offer(&nearest, COMMANDS[i].name);
    }
    fprintf(stderr, "tally: unknown command \"%.60s\"", name);
    if (nearest.name != NULL) {
        fprintf(stderr, "; did you mean %s?", nearest.name);
    }
    fprintf(stderr, "\nTry 'tally --help'.\n");
    return TALLY_EXIT_USAGE;
}

/* `program` is "tally submit" and must live as long as the spec. */
static struct tally_options_spec spec_of(const struct tally_command *command, char *program,
                                         size_t capacity)
{
    snprintf(program, capacity, "tally %s", command->name);
    return (struct tally_options_spec){
        .program = program,
        .synopsis = command->synopsis,
        .description = command->description,
        .tables = {command->options,
                   command->needs_coordinator ? TALLY_CLI_COORDINATOR_OPTIONS : NULL},
        .other_tables = all_tables,
        .min_positionals = command->min_arguments,
        .max_positionals = command->max_arguments,
    };
}

/* Whether an argument must name a job but is empty: `tally show "$ID"` without an ID. */
static bool lacks_job(const struct tally_command *command, const struct tally_options *options)
{
    const bool names_jobs =
        strncmp(command->synopsis, "ID", 2) == 0 || strncmp(command->synopsis, "FILE|ID", 7) == 0;
    bool lacks = false;
    for (int i = 0; names_jobs && !lacks && i < command->min_arguments; i++) {
        const char *word = tally_options_positional(options, i);
        lacks = word[strspn(word, " \t\r\n")] == '\0';
    }
    return lacks;
}

static int run_command(const struct tally_command *command, int argc, char *const *argv)
{
    char program[64];
    struct tally_options_spec spec = spec_of(command, program, sizeof program);
    struct tally_options *options = NULL;
    int exit_code = TALLY_EXIT_OK;
    if (!tally_options_start(&spec, argc, argv, &options, &exit_code)) {
        return exit_code;
    }
    struct tally_cli cli = {0};
    struct tally_error err = TALLY_ERROR_INIT;
    if (tally_signals_install(&err) != TALLY_OK) {
        exit_code = tally_cli_report(&err);
    } else if (tally_cli_init(&cli, options, command->needs_coordinator, &err) != TALLY_OK) {
        exit_code = tally_options_usage_error(&spec, &err);
    } else if (lacks_job(command, options)) {
        tally_fail(&err, TALLY_INVALID_ARGUMENT, NULL,
                   "the job's id is empty; tally list shows the ids");
        exit_code = tally_options_usage_error(&spec, &err);
    } else {
        exit_code = command->run(&cli);
    }
    tally_cli_fini(&cli);
    tally_options_free(options);
    return exit_code;
}

/* The help of all commands: "Commands:" and one line each, after the options. */
static int run_without_command(int argc, char *const *argv)
{
    struct tally_buffer epilogue = {0};
    struct tally_text text = {&epilogue, TALLY_OK};
    tally_text_put(&text, "Commands:\n");
    for (int i = 0; i < N_COMMANDS; i++) {
        tally_text_printf(&text, "  %-14s%s\n", COMMANDS[i].name, COMMANDS[i].summary);
    }
    tally_text_printf(&text, "  %-14sshow the options of a command\n\n%s", "help COMMAND",
                      EXIT_CODES);
    tally_text_put_bytes(&text, "", 1);
    int exit_code = TALLY_EXIT_FAILED;
    const struct tally_options_spec spec = {
        .program = "tally",
        .synopsis = "COMMAND [ARGUMENT]... [OPTION]...",
        .description = "Submits and follows jobs of a Tally coordinator. Options may stand before "
                       "or after the command. ID is a job's id, a beginning of the id that no "
                       "other job has, or latest, which is the newest job.",
        .tables = {TALLY_CLI_COORDINATOR_OPTIONS},
        .other_tables = all_tables,
        .epilogue = (const char *)epilogue.data,
    };
    struct tally_options *options = NULL;
    if (text.status == TALLY_OK && tally_options_start(&spec, argc, argv, &options, &exit_code)) {
        fprintf(stderr, "tally: no command\nTry 'tally --help'.\n");
        exit_code = TALLY_EXIT_USAGE;
    }
    tally_options_free(options);
    tally_buffer_fini(&epilogue);
    return exit_code;
}

/* Runs the command with argv without the word at `index`. */
static int run_without_word(const struct tally_command *command, int argc, char *const *argv,
                            int index)
{
    char **rest = tally_xcalloc((size_t)argc, sizeof *rest);
    int n = 0;
    for (int i = 0; i < argc; i++) {
        if (i != index) {
            rest[n++] = argv[i];
        }
    }
    int exit_code = run_command(command, n, rest);
    free(rest);
    return exit_code;
}

static int help_on(const char *name)
{
    char program[] = "tally", help[] = "--help";
    char *const argv[] = {program, help, NULL};
    const struct tally_command *command = name != NULL ? find_command(name) : NULL;
    if (name != NULL && command == NULL) {
        return refuse_command(name);
    }
    return command != NULL ? run_command(command, 2, argv) : run_without_command(2, argv);
}

int main(int argc, char **argv)
{
    collect_tables();
    const struct tally_options_spec global = {.program = "tally",
                                              .tables = {TALLY_CLI_COORDINATOR_OPTIONS}};
    int index = tally_options_first_positional(&global, argc, argv);
    if (index == argc) {
        return run_without_command(argc, argv);
    }
    if (strcmp(argv[index], "help") == 0) {
        return help_on(argv[index + 1]);
    }
    const struct tally_command *command = find_command(argv[index]);
    return command != NULL ? run_without_word(command, argc, argv, index)
                           : refuse_command(argv[index]);
}
