/* tally reproduce: the experiments of [1], and one experiment of the papers about compressed
 * gradients. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "services/base/progress_bar.h"
#include "services/base/signals.h"
#include "services/base/time.h"
#include "services/cli/commands.h"
#include "services/cli/out_folder.h"
#include "services/cli/reproduce_files.h"
#include "services/cli/reproduce_table.h"
#include "services/experiment/campaign_report.h"
#include "services/experiment/frontier_report.h"
#include "services/experiment/logistic_report.h"
#include "services/experiment/run_seeds.h"

enum { MAX_THREADS = 1024 };

const struct tally_option TALLY_CLI_REPRODUCE_OPTIONS[] = {
    {"runs", "R", "10", "Monte Carlo runs", NULL},
    {"seeds", "A-B", NULL, "seeds of the runs; 1 to R unless given", NULL},
    {"no-grid", NULL, NULL, "only the presets' own step sizes, no search for the best ones", NULL},
    {"preset", "NAME,...", NULL,
     "only these rows: paper, paper_bits, low_regret, auto, tuned, half_bits and scheduled "
     "(synthetic only), paper_regret (mnist only)",
     NULL},
    {"reading", "loud|quiet", "loud", "how the synthetic data are scaled", NULL},
    {"radius", "R", NULL, "norm of the synthetic start; 2 for loud and 1 for quiet unless given",
     NULL},
    {"set", "NAME,...", NULL, "only these sets of logistic: wine, heart_scale, digits, fashion",
     NULL},
    {"data-dir", "DIR", "data", "where the files of MNIST and logistic are", NULL},
    {"threads", "N", NULL, "threads; as many as there are processors unless given", NULL},
    {"json", NULL, NULL, "print only JSON on standard output", NULL},
    {"frontier", NULL, NULL,
     "map regret against bits instead, as CSV: both readings, radius 1 to 3, CALM over its "
     "budgets, CEAL over its constants, baselines over local steps, schedules and constants, also "
     "FedProx, FedAvgM, FedAdam, FedYogi, SCAFFOLD, DIANA and EF21; tests/bench/frontier.py draws "
     "it",
     NULL},
    {"out", "DIR", NULL, "folder for CSV, job documents, and pictures by gnuplot", NULL},
    {0},
};

struct reproduction {
    struct tally_campaign_config config;
    int64_t started_ms;
    struct tally_progress_painter painter;
};

static bool watch(void *context, double fraction, const char *what)
{
    struct reproduction *reproduction = context;
    tally_progress_show(&reproduction->painter, reproduction->started_ms, fraction, what);
    return *tally_signals_stop() == 0;
}

static void read_problem(const struct tally_options *options, struct tally_problem *ret_problem,
                         struct tally_error *err)
{
    static const char *const readings[] = {"loud", "quiet", NULL};
    const char *experiment = tally_options_positional(options, 0);
    int reading = 0;
    tally_options_choice(options, "reading", readings, &reading, err);
    if (strcmp(experiment, "mnist") == 0) {
        *ret_problem = (struct tally_problem){TALLY_PROBLEM_MNIST, 0};
        return;
    }
    if (strcmp(experiment, "synthetic") != 0) {
        tally_fail(err, TALLY_INVALID_ARGUMENT, NULL,
                   "unknown experiment \"%.60s\"; choose synthetic, mnist or logistic", experiment);
    }
    const enum tally_problem_kind kind = reading == 1 ? TALLY_PROBLEM_QUIET : TALLY_PROBLEM_LOUD;
    *ret_problem = (struct tally_problem){kind, tally_problem_usual_radius(kind)};
    if (tally_options_has(options, "radius")) {
        tally_options_real(options, "radius", 0, 1e6, &ret_problem->radius, err);
    }
}

/* Reads --seeds, or seeds 1 to --runs; both may be given only if they agree. */
static void read_seeds(const struct tally_options *options, struct tally_runner_config *config,
                       struct tally_error *err)
{
    int64_t runs = 1;
    struct tally_error why = TALLY_ERROR_INIT;
    tally_options_integer(options, "runs", 1, TALLY_MAX_SEEDS, &runs, err);
    config->first_seed = 1;
    config->n_seeds = (size_t)runs;
    if (!tally_options_has(options, "seeds")) {
        return;
    }
    if (tally_seeds_parse(tally_options_text(options, "seeds"), &config->first_seed,
                          &config->n_seeds, &why) != TALLY_OK) {
        tally_options_refuse(options, "seeds", err, "%s", why.message);
    } else if (tally_options_is_given(options, "runs") && (size_t)runs != config->n_seeds) {
        tally_options_refuse(options, "seeds", err, "these are %zu seeds for %lld runs",
                             config->n_seeds, (long long)runs);
    }
}

/* Reads --threads; the default is the number of processors. */
static unsigned read_threads(const struct tally_options *options, struct tally_error *err)
{
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    int64_t threads = online < 1 ? 1 : online < MAX_THREADS ? online : MAX_THREADS;
    if (tally_options_has(options, "threads")) {
        tally_options_integer(options, "threads", 1, MAX_THREADS, &threads, err);
    }
    return (unsigned)threads;
}

static enum tally_status read_config(const struct tally_options *options,
                                     struct tally_campaign_config *config, struct tally_error *err)
{
    read_problem(options, &config->problem, err);
    read_seeds(options, &config->runner, err);
    if (config->problem.kind == TALLY_PROBLEM_MNIST && tally_options_bool(options, "frontier")) {
        tally_options_refuse(options, "frontier", err, "only synthetic has a frontier");
    }
    if (tally_options_has(options, "set")) {
        tally_options_refuse(options, "set", err, "only logistic has sets");
    }
    config->runner.threads = read_threads(options, err);
    config->runner.kind = config->problem.kind;
    config->runner.data_dir = tally_options_text(options, "data-dir");
    config->with_grid = !tally_options_bool(options, "no-grid");
    config->only = tally_options_text(options, "preset");
    return err->status;
}

/* The grids go to stdout, above the table; with --json to stderr. */
static int print_campaign(const struct tally_campaign *campaign, bool as_json)
{
    struct tally_buffer text = {0};
    enum tally_status status = tally_reproduce_grids_render(campaign, &text);
    if (as_json) {
        if (status == TALLY_OK && text.size > 0) {
            fprintf(stderr, "%.*s", (int)text.size, (const char *)text.data);
        }
        tally_buffer_fini(&text);
        return tally_cli_take_json(tally_report_json(campaign));
    }
    if (status == TALLY_OK && text.size > 0) {
        status = tally_buffer_append_text(&text, "\n");
    }
    if (status == TALLY_OK) {
        status = tally_reproduce_table_render(campaign, &text);
    }
    return tally_cli_print(status, &text);
}

static int print_frontier(const struct tally_frontier *frontier, bool as_json)
{
    if (as_json) {
        return tally_cli_take_json(tally_frontier_json(frontier));
    }
    struct tally_buffer text = {0};
    return tally_cli_print(tally_frontier_csv(frontier, &text), &text);
}

/* Some usage errors are only found during the run: a preset, a data folder. */
static int report(const struct tally_error *err)
{
    return err->status == TALLY_INVALID_ARGUMENT ? tally_cli_report_usage(err)
                                                 : tally_cli_report(err);
}

static int run_campaign(struct reproduction *reproduction, const struct tally_options *options)
{
    const char *folder = tally_options_text(options, "out");
    struct tally_campaign campaign;
    struct tally_error err = TALLY_ERROR_INIT;
    enum tally_status status = tally_campaign_run(&reproduction->config, &campaign, &err);
    tally_progress_clear(&reproduction->painter);
    if (status != TALLY_OK) {
        return report(&err);
    }
    int exit_code = print_campaign(&campaign, tally_options_bool(options, "json"));
    if (folder != NULL && tally_reproduce_files_write(&campaign, folder, &err) != TALLY_OK) {
        exit_code = report(&err);
    }
    tally_campaign_fini(&campaign);
    return exit_code;
}

static int run_frontier(struct reproduction *reproduction, const struct tally_options *options)
{
    const char *folder = tally_options_text(options, "out");
    struct tally_frontier frontier;
    struct tally_error err = TALLY_ERROR_INIT;
    enum tally_status status = tally_frontier_run(&reproduction->config.runner, &frontier, &err);
    tally_progress_clear(&reproduction->painter);
    if (status != TALLY_OK) {
        return report(&err);
    }
    int exit_code = print_frontier(&frontier, tally_options_bool(options, "json"));
    if (folder != NULL &&
        tally_reproduce_files_write_frontier(&frontier, folder, &err) != TALLY_OK) {
        exit_code = report(&err);
    }
    tally_frontier_fini(&frontier);
    return exit_code;
}

static enum tally_status read_logistic(const struct tally_options *options,
                                       struct tally_logistic_config *config,
                                       struct tally_error *err)
{
    static const char *const others[] = {"runs",    "no-grid", "preset",
                                         "reading", "radius",  "frontier"};
    struct tally_runner_config seeds;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (tally_options_is_given(options, others[i])) {
            tally_options_refuse(options, others[i], err, "not an option of logistic");
        }
    }
    read_seeds(options, &seeds, err);
    if (tally_options_has(options, "seeds") && seeds.n_seeds > 1) {
        tally_options_refuse(options, "seeds", err, "logistic takes a single seed, such as 7-7");
    }
    config->seed = seeds.first_seed;
    config->threads = read_threads(options, err);
    config->data_dir = tally_options_text(options, "data-dir");
    config->only = tally_options_text(options, "set");
    return err->status;
}

static int print_logistic(const struct tally_logistic *logistic, bool as_json)
{
    if (as_json) {
        return tally_cli_take_json(tally_logistic_json(logistic));
    }
    struct tally_buffer text = {0};
    return tally_cli_print(tally_logistic_table(logistic, &text), &text);
}

static int run_logistic(struct reproduction *reproduction, const struct tally_options *options)
{
    const char *folder = tally_options_text(options, "out");
    struct tally_logistic_config config = {.watch = watch, .context = reproduction};
    struct tally_logistic logistic;
    struct tally_error err = TALLY_ERROR_INIT;
    if (read_logistic(options, &config, &err) != TALLY_OK ||
        (folder != NULL && tally_out_folder_make(folder, &err) != TALLY_OK)) {
        return tally_cli_report_usage(&err);
    }
    tally_progress_painter_init(&reproduction->painter, STDERR_FILENO);
    const enum tally_status status = tally_logistic_run(&config, &logistic, &err);
    tally_progress_clear(&reproduction->painter);
    if (status != TALLY_OK) {
        return report(&err);
    }
    int exit_code = print_logistic(&logistic, tally_options_bool(options, "json"));
    if (folder != NULL &&
        tally_reproduce_files_write_logistic(&logistic, folder, &err) != TALLY_OK) {
        exit_code = report(&err);
    }
    tally_logistic_fini(&logistic);
    return exit_code;
}

int tally_cli_reproduce(struct tally_cli *cli)
{
    struct reproduction reproduction = {.started_ms = tally_monotonic_ms()};
    if (strcmp(tally_options_positional(cli->options, 0), "logistic") == 0) {
        return run_logistic(&reproduction, cli->options);
    }
    struct tally_campaign_config *config = &reproduction.config;
    struct tally_error err = TALLY_ERROR_INIT;
    if (read_config(cli->options, config, &err) != TALLY_OK) {
        return tally_cli_report_usage(&err);
    }
    const char *folder = tally_options_text(cli->options, "out");
    if (folder != NULL && tally_out_folder_make(folder, &err) != TALLY_OK) {
        return tally_cli_report_usage(&err); /* fails now, not after an hour */
    }
    config->runner.watch = watch;
    config->runner.context = &reproduction;
    tally_progress_painter_init(&reproduction.painter, STDERR_FILENO);
    return tally_options_bool(cli->options, "frontier") ? run_frontier(&reproduction, cli->options)
                                                        : run_campaign(&reproduction, cli->options);
}
