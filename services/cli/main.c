/* tally: the command line of the coordinator. Finds the sub-command, reads its options, runs it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "services/base/options/nearest_name.h"
#include "services/base/signals.h"
#include "services/base/text/text.h"
#include "services/cli/commands/commands.h"

static const struct tally_command COMMANDS[] = {
    {"submit", "FILE|- [OPTION]...", "submit a job document",
     "Submits the job document in FILE, or standard input for -, and prints the job's id.",
     TALLY_CLI_SUBMIT_OPTIONS, 1, 1, true, tally_cli_submit},
    {"list", "[OPTION]...", "list jobs", "Lists jobs, one line each.", TALLY_CLI_LIST_OPTIONS, 0, 0,
     true, tally_cli_list},
    {"show", "ID [OPTION]...", "show where a job stands, and its bits",
     "Shows where a job stands: time step, round, regret, checksum of the iterate, and how many "
     "bits it has cost.",
     TALLY_CLI_SHOW_OPTIONS, 1, 1, true, tally_cli_show},
    {"watch", "ID [OPTION]...", "follow a job until it ends",
     "Follows a job until it ends, then prints its result table. On a terminal there is one "
     "progress line; otherwise standard output gets the job's detail as one line of JSON whenever "
     "the job has moved, and the table goes to standard error. While the coordinator is away the "
     "watch waits for it.\n\n"
     "Exit codes: 0 the job completed, 1 it failed or was cancelled, 2 usage, 3 timeout.",
     TALLY_CLI_WATCH_OPTIONS, 1, 1, true, tally_cli_watch},
    {"cancel", "ID [OPTION]...", "end a job for good",
     "Cancels a job. Its records and its model stay.", TALLY_CLI_ACTION_OPTIONS, 1, 1, true,
     tally_cli_cancel},
    {"pause", "ID [OPTION]...", "let a job rest",
     "Pauses a job: no new round begins until it is resumed.", TALLY_CLI_ACTION_OPTIONS, 1, 1, true,
     tally_cli_pause},
    {"resume", "ID [OPTION]...", "let a paused job go on", "Resumes a paused job.",
     TALLY_CLI_ACTION_OPTIONS, 1, 1, true, tally_cli_resume},
    {"export", "ID [OPTION]...", "save round records or the model to a file",
     "Saves what a job has left to a file, which appears whole or not at all.",
     TALLY_CLI_EXPORT_OPTIONS, 1, 1, true, tally_cli_export},
    {"health", "[OPTION]...", "ask whether the coordinator is ready",
     "Asks the coordinator whether it is ready to serve, which needs no token: its store works and "
     "it is not shutting down.\n\n"
     "Exit codes: 0 it is, 1 it is not or is away, 2 usage, 3 no answer in time.",
     TALLY_CLI_HEALTH_OPTIONS, 0, 0, true, tally_cli_health},
    {"doctor", "[OPTION]...", "explain what is wrong with a set-up",
     "Looks at the coordinator, its workers and jobs, and with --store at its database, and says "
     "what is wrong and what to do about it.\n\n"
     "Exit codes: 0 nothing failed, 1 something did, 2 usage.",
     TALLY_CLI_DOCTOR_OPTIONS, 0, 0, true, tally_cli_doctor},
    {"backup", "FILE [OPTION]...", "copy the coordinator's database, also while it works",
     "Copies the database of a coordinator on this machine, as it is at one instant, to FILE. The "
     "coordinator may work on. FILE appears whole, verified and on the medium, or not at all.",
     TALLY_CLI_STORE_OPTIONS, 1, 1, false, tally_cli_backup},
    {"restore", "FILE [OPTION]...", "put a backup in the place of the database",
     "Verifies the backup in FILE and puts it in the place of the coordinator's database. The "
     "coordinator must be stopped. Jobs go on from where the backup was made.",
     TALLY_CLI_STORE_OPTIONS, 1, 1, false, tally_cli_restore},
    {"migrate", "sqlite:PATH postgres:CONNINFO [OPTION]...",
     "move a SQLite store into a PostgreSQL database",
     "Copies all jobs of a SQLite store, with their documents, states, updates of open rounds, "
     "rounds and idempotency keys, into a PostgreSQL database that has none, and reads them back: "
     "prints how many rows each table has on both sides, and their checksums. The coordinator of "
     "the store must be stopped; nothing in it is changed. Jobs go on from there when "
     "coordinators are started with --store postgres:CONNINFO, and not before all is copied and "
     "verified. Stopped or killed, it goes on where it was when it is run again; run once more "
     "after that, it writes nothing.\n\n"
     "CONNINFO is what libpq takes, \"host=... dbname=...\"; a password belongs into PGPASSFILE or "
     "PGPASSWORD.\n\n"
     "Exit codes: 0 both sides are equal, 1 they are not or the copy could not be made, 2 usage.",
     TALLY_CLI_MIGRATE_OPTIONS, 2, 2, false, tally_cli_migrate},
    {"simulate", "FILE|- [OPTION]...", "run a job document here, without coordinator and workers",
     "Runs the job document in FILE in this process, on the engine of the service: the same "
     "document and seed give the same iterate, regret and bit counters, bit for bit. There is no "
     "network, so the wire counters stay 0.",
     TALLY_CLI_SIMULATE_OPTIONS, 1, 1, false, tally_cli_simulate},
    {"reproduce", "synthetic|mnist [OPTION]...", "run the experiments of the paper, and its table",
     "Runs CEAL, Minibatch-SGD, FedAvg, FedPAQ and FedCOM in this process, on the engine of the "
     "service, at the paper's step sizes and at each one's own best of a grid, and prints regret "
     "and bits beside the paper's figures. Every baseline's grid is searched on the same seeds "
     "that it is then reported on (on MNIST, on the first two of them).",
     TALLY_CLI_REPRODUCE_OPTIONS, 1, 1, false, tally_cli_reproduce},
    {"encode", "FILE|- [OPTION]...", "encode a .npy file as a message's payload",
     "Encodes FILE, a one-dimensional .npy array: levels (int8, int32) as they are, a vector "
     "(float32, float64) rounded to the grid first. Writes the payload, nothing before or after "
     "it, "
     "and prints as JSON what a receiver knows from elsewhere: encoding, dim, grid and "
     "payload_bits, "
     "the options of decode; and the costs.",
     TALLY_CLI_ENCODE_OPTIONS, 1, 1, false, tally_cli_encode},
    {"decode", "FILE|- [OPTION]...", "decode a message's payload to a .npy file",
     "Decodes the payload in FILE to a .npy array of int32 levels, or of float64 values. What "
     "codec/FORMAT.md tells a decoder to refuse is refused.",
     TALLY_CLI_DECODE_OPTIONS, 1, 1, false, tally_cli_decode},
    {"bench", "codec|coordinator [OPTION]...", "measure codec or coordinator on this machine",
     "codec: how fast the codec quantizes and encodes, and decodes and adds up, with every "
     "instruction set that this machine has, and how many bits it takes; beside memcpy, a plain "
     "loop and zstd in the same run. One core, and 25 bytes of memory per coordinate or more.\n\n"
     "coordinator: starts a coordinator of its own for each kind of store, with an empty database "
     "below TMPDIR, and plays whole jobs on it over loopback, a connection and a session for every "
     "client; between the runs the same updates go to libmicrohttpd alone. Where there are two "
     "processors the servers have one and the clients the other.",
     TALLY_CLI_BENCH_OPTIONS, 1, 1, false, tally_cli_bench},
};
enum { N_COMMANDS = sizeof COMMANDS / sizeof COMMANDS[0] };

static const char EXIT_CODES[] =
    "Exit codes:\n"
    "  0  done; a watched job completed\n"
    "  1  the coordinator refused or is away; a watched job failed or was cancelled\n"
    "  2  usage\n"
    "  3  timeout\n";

/* Every key that a config file shared by all sub-commands may hold. */
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
                       "or after the command.",
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

/* argv without the word at `index`. */
static int run_without_word(const struct tally_command *command, int argc, char *const *argv,
                            int index)
{
    char **rest = calloc((size_t)argc, sizeof *rest);
    if (rest == NULL) {
        fprintf(stderr, "tally: out of memory\n");
        return TALLY_EXIT_FAILED;
    }
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
