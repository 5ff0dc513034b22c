/* tally reproduce: the experiments of [1], and one experiment of the papers about compressed
 * gradients. */
#include "services/cli/cmd_reproduce.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "services/base/progress_bar.h"
#include "services/base/signals.h"
#include "services/base/text.h"
#include "services/base/text_table.h"
#include "services/base/time.h"
#include "services/cli/commands.h"
#include "services/cli/out_folder.h"
#include "services/experiment/frontier.h"
#include "services/experiment/logistic.h"
#include "services/experiment/plot.h"

/* Writes into a folder that exists. Draws if gnuplot is installed; otherwise prints a note on
 * stderr. Errors: INVALID_ARGUMENT (the folder, a script that gnuplot rejects), UNAVAILABLE,
 * NO_MEMORY. */
static enum tally_status tally_reproduce_files_write(const struct tally_reproduction *table,
                                                     const char *folder, struct tally_error *err);

static enum tally_status tally_reproduce_files_write_frontier(const struct tally_frontier *frontier,
                                                              const char *folder,
                                                              struct tally_error *err);

static enum tally_status tally_reproduce_files_write_logistic(const struct tally_logistic *logistic,
                                                              const char *folder,
                                                              struct tally_error *err);

enum { MAX_THREADS = 1024 };

const struct tally_option TALLY_CLI_REPRODUCE_OPTIONS[] = {
    {"runs", "R", "10", "Monte Carlo runs", NULL},
    {"seeds", "A-B", NULL, "seeds of the runs; 1 to R unless given", NULL},
    {"no-grid", NULL, NULL, "only the presets' own step sizes, no search for the best ones", NULL},
    {"preset", "NAME,...", NULL,
     "only these rows: paper, compressed, paper_bits, low_regret, auto, tuned, half_bits, "
     "scheduled and scheduled_compressed (synthetic only), paper_regret (mnist only)",
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
    struct tally_reproduction_config config;
    struct tally_sweep_config runs;
    const char *fetch; /* the program that gets the data files; NULL = there are none */
    int64_t started_ms;
    struct tally_progress_painter painter;
};

static bool watch(void *context, double fraction, const char *what)
{
    struct reproduction *reproduction = context;
    tally_progress_show(&reproduction->painter, reproduction->started_ms, fraction, what);
    return *tally_signals_stop() == 0;
}

static void read_problem(const struct tally_options *options, struct reproduction *reproduction,
                         struct tally_error *err)
{
    static const char *const readings[] = {"loud", "quiet", NULL};
    struct tally_reproduction_config *config = &reproduction->config;
    const char *experiment = tally_options_positional(options, 0);
    int reading = 0;
    tally_options_choice(options, "reading", readings, &reading, err);
    config->radius = NAN;
    if (strcmp(experiment, "mnist") == 0) {
        reproduction->fetch = "deploy/fetch-mnist";
        config->document = "mnist";
        return;
    }
    if (strcmp(experiment, "synthetic") != 0) {
        tally_fail(err, TALLY_INVALID_ARGUMENT, NULL,
                   "unknown experiment \"%.60s\"; choose synthetic, mnist or logistic", experiment);
    }
    config->document = reading == 1 ? "synthetic-quiet" : "synthetic";
    if (tally_options_has(options, "radius")) {
        tally_options_real(options, "radius", 0, 1e6, &config->radius, err);
    }
}

/* Reads --seeds, or seeds 1 to --runs; both may be given only if they agree. */
static void read_seeds(const struct tally_options *options,
                       struct tally_reproduction_config *config, struct tally_error *err)
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

/* Tells who gets the data files if they are missing. */
static enum tally_status make_objective(void *context, const struct tally_job_spec *spec,
                                        struct tally_objective **ret, struct tally_error *err)
{
    const struct reproduction *reproduction = context;
    struct tally_error why = TALLY_ERROR_INIT;
    const enum tally_status status = tally_objective_new(&spec->objective, (uint32_t)spec->clients,
                                                         tally_job_spec_setting(spec).key,
                                                         reproduction->runs.data_dir, ret, &why);
    if (status == TALLY_INVALID_ARGUMENT && reproduction->fetch != NULL) {
        return tally_fail(err, status, "data-dir",
                          "%.250s; %s obtains the files, --data-dir names the folder", why.message,
                          reproduction->fetch);
    }
    return status == TALLY_OK ? status : tally_fail(err, status, why.field, "%s", why.message);
}

/* What the runs of all experiments have in common. */
static struct tally_sweep_config read_runs(const struct tally_options *options,
                                           struct reproduction *reproduction,
                                           struct tally_error *err)
{
    return (struct tally_sweep_config){.threads = read_threads(options, err),
                                       .data_dir = tally_options_text(options, "data-dir"),
                                       .make_objective = make_objective,
                                       .watch = watch,
                                       .context = reproduction};
}

static enum tally_status read_config(const struct tally_options *options,
                                     struct reproduction *reproduction, struct tally_error *err)
{
    read_problem(options, reproduction, err);
    read_seeds(options, &reproduction->config, err);
    if (reproduction->fetch != NULL && tally_options_bool(options, "frontier")) {
        tally_options_refuse(options, "frontier", err, "only synthetic has a frontier");
    }
    if (tally_options_has(options, "set")) {
        tally_options_refuse(options, "set", err, "only logistic has sets");
    }
    reproduction->runs = read_runs(options, reproduction, err);
    reproduction->runs.curve_points = SIZE_MAX;
    reproduction->runs.with_entropy = true;
    reproduction->config.with_grid = !tally_options_bool(options, "no-grid");
    reproduction->config.only = tally_options_text(options, "preset");
    return err->status;
}

/* The grids go to stdout, above the table; with --json to stderr. */
static int print_table(const struct tally_reproduction *table, bool as_json)
{
    struct tally_buffer text = {0};
    enum tally_status status = tally_reproduce_grids_render(table->sweep, &text);
    if (as_json) {
        if (status == TALLY_OK && text.size > 0) {
            fprintf(stderr, "%.*s", (int)text.size, (const char *)text.data);
        }
        tally_buffer_fini(&text);
        return tally_cli_take_json(tally_reproduction_json(table));
    }
    if (status == TALLY_OK && text.size > 0) {
        status = tally_buffer_append_text(&text, "\n");
    }
    if (status == TALLY_OK) {
        status = tally_reproduce_table_render(table, &text);
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

/* Prints the results and writes the files. */
static int finish(const struct tally_sweep *sweep, const struct tally_options *options)
{
    const char *folder = tally_options_text(options, "out");
    struct tally_reproduction table = {.rows = NULL};
    struct tally_error err = TALLY_ERROR_INIT;
    if (tally_reproduction_make(sweep, &table, &err) != TALLY_OK) {
        return report(&err);
    }
    int exit_code = print_table(&table, tally_options_bool(options, "json"));
    if (folder != NULL && tally_reproduce_files_write(&table, folder, &err) != TALLY_OK) {
        exit_code = report(&err);
    }
    tally_reproduction_fini(&table);
    return exit_code;
}

static int run_experiment(struct reproduction *reproduction, const struct tally_options *options)
{
    struct tally_sweep sweep = {.n_rows = 0};
    struct tally_error err = TALLY_ERROR_INIT;
    enum tally_status status = tally_reproduction_read(&reproduction->config, &sweep, &err);
    if (status == TALLY_OK) {
        status = tally_sweep_run(&sweep, &reproduction->runs, &err);
    }
    tally_progress_clear(&reproduction->painter);
    const int exit_code = status == TALLY_OK ? finish(&sweep, options) : report(&err);
    tally_sweep_fini(&sweep);
    return exit_code;
}

static int run_frontier(struct reproduction *reproduction, const struct tally_options *options)
{
    const char *folder = tally_options_text(options, "out");
    struct tally_frontier frontier;
    struct tally_error err = TALLY_ERROR_INIT;
    enum tally_status status =
        tally_frontier_run(reproduction->config.first_seed, reproduction->config.n_seeds,
                           &reproduction->runs, &frontier, &err);
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
                                       struct reproduction *reproduction,
                                       struct tally_logistic *ret_logistic, struct tally_error *err)
{
    static const char *const others[] = {"runs",    "no-grid", "preset",
                                         "reading", "radius",  "frontier"};
    struct tally_reproduction_config seeds;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (tally_options_is_given(options, others[i])) {
            tally_options_refuse(options, others[i], err, "not an option of logistic");
        }
    }
    read_seeds(options, &seeds, err);
    if (tally_options_has(options, "seeds") && seeds.n_seeds > 1) {
        tally_options_refuse(options, "seeds", err, "logistic takes a single seed, such as 7-7");
    }
    reproduction->fetch = "deploy/fetch-logistic";
    reproduction->runs = read_runs(options, reproduction, err);
    reproduction->runs.curve_points = 2;
    reproduction->runs.with_gaps = true;
    return err->status == TALLY_OK ? tally_logistic_read(tally_options_text(options, "set"),
                                                         seeds.first_seed, ret_logistic, err)
                                   : err->status;
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
    struct tally_logistic logistic = {.n_rows = 0};
    struct tally_error err = TALLY_ERROR_INIT;
    if (read_logistic(options, reproduction, &logistic, &err) != TALLY_OK ||
        (folder != NULL && tally_out_folder_make(folder, &err) != TALLY_OK)) {
        tally_logistic_fini(&logistic);
        return tally_cli_report_usage(&err);
    }
    tally_progress_painter_init(&reproduction->painter, STDERR_FILENO);
    const enum tally_status status = tally_logistic_run(&logistic, &reproduction->runs, &err);
    tally_progress_clear(&reproduction->painter);
    int exit_code = status == TALLY_OK
                        ? print_logistic(&logistic, tally_options_bool(options, "json"))
                        : report(&err);
    if (status == TALLY_OK && folder != NULL &&
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
    struct tally_error err = TALLY_ERROR_INIT;
    if (read_config(cli->options, &reproduction, &err) != TALLY_OK) {
        return tally_cli_report_usage(&err);
    }
    const char *folder = tally_options_text(cli->options, "out");
    if (folder != NULL && tally_out_folder_make(folder, &err) != TALLY_OK) {
        return tally_cli_report_usage(&err); /* fails now, not after an hour */
    }
    tally_progress_painter_init(&reproduction.painter, STDERR_FILENO);
    return tally_options_bool(cli->options, "frontier")
               ? run_frontier(&reproduction, cli->options)
               : run_experiment(&reproduction, cli->options);
}

/* Writes a JSON value and a newline. Takes ownership of `value`, which is NULL if out of memory. */
static enum tally_status render_json(struct tally_json *value, struct tally_buffer *out)
{
    enum tally_status status = TALLY_NO_MEMORY;
    if (value != NULL) {
        status = tally_json_dump(value, 2, out);
        tally_json_free(value);
    }
    return status == TALLY_OK ? tally_buffer_append_text(out, "\n") : status;
}

static enum tally_status render_result(const struct tally_reproduction *table,
                                       struct tally_buffer *out)
{
    return render_json(tally_reproduction_json(table), out);
}

static const struct {
    const char *name;
    enum tally_status (*render)(const struct tally_reproduction *table, struct tally_buffer *out);
} FILES[] = {
    {"rows.csv", tally_reproduction_rows_csv},    {"grids.csv", tally_reproduction_grids_csv},
    {"curves.csv", tally_plot_curves_csv},        {"result.json", render_result},
    {"regret.gnuplot", tally_plot_regret_script}, {"bits.gnuplot", tally_plot_bits_script},
};
enum { N_FILES = sizeof FILES / sizeof FILES[0] };

static const char *const SCRIPTS[] = {"regret.gnuplot", "bits.gnuplot"};
enum { N_SCRIPTS = sizeof SCRIPTS / sizeof SCRIPTS[0] };

/* Writes a complete job document as NAME.json. */
static enum tally_status write_job(const struct tally_sweep_trial *trial, const char *folder,
                                   struct tally_error *err)
{
    char name[256];
    struct tally_buffer text = {0};
    struct tally_json *document = tally_sweep_trial_complete(trial);
    if (document == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a job document");
    }
    snprintf(name, sizeof name, "%s.json", tally_json_get_text(document, "name"));
    const enum tally_status made = render_json(document, &text);
    enum tally_status status = tally_out_folder_write(folder, name, made, &text, err);
    tally_buffer_fini(&text);
    return status;
}

/* Creates the subfolder for the job documents. */
static enum tally_status make_jobs_folder(const char *folder, char ret_path[PATH_MAX],
                                          struct tally_error *err)
{
    snprintf(ret_path, PATH_MAX, "%s/jobs", folder);
    return tally_out_folder_make(ret_path, err);
}

static enum tally_status write_jobs(const struct tally_reproduction *table, const char *folder,
                                    struct tally_error *err)
{
    char jobs[PATH_MAX];
    enum tally_status status = make_jobs_folder(folder, jobs, err);
    for (size_t i = 0; status == TALLY_OK && i < table->sweep->n_rows; i++) {
        status = write_job(table->rows[i].trial, jobs, err);
    }
    return status;
}

static enum tally_status tally_reproduce_files_write(const struct tally_reproduction *table,
                                                     const char *folder, struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    for (size_t i = 0; status == TALLY_OK && i < N_FILES; i++) {
        struct tally_buffer text = {0};
        const enum tally_status made = FILES[i].render(table, &text);
        status = tally_out_folder_write(folder, FILES[i].name, made, &text, err);
        tally_buffer_fini(&text);
    }
    if (status == TALLY_OK) {
        status = write_jobs(table, folder, err);
    }
    return status == TALLY_OK ? tally_out_folder_draw(folder, SCRIPTS, N_SCRIPTS, err) : status;
}

static enum tally_status tally_reproduce_files_write_frontier(const struct tally_frontier *frontier,
                                                              const char *folder,
                                                              struct tally_error *err)
{
    struct tally_buffer csv = {0}, json = {0};
    enum tally_status made = tally_frontier_csv(frontier, &csv);
    enum tally_status status = tally_out_folder_write(folder, "frontier.csv", made, &csv, err);
    if (status == TALLY_OK) {
        made = render_json(tally_frontier_json(frontier), &json);
        status = tally_out_folder_write(folder, "frontier.json", made, &json, err);
    }
    tally_buffer_fini(&csv);
    tally_buffer_fini(&json);
    return status;
}

static enum tally_status render_logistic(const struct tally_logistic *logistic,
                                         struct tally_buffer *out)
{
    return render_json(tally_logistic_json(logistic), out);
}

static enum tally_status tally_reproduce_files_write_logistic(const struct tally_logistic *logistic,
                                                              const char *folder,
                                                              struct tally_error *err)
{
    static const struct {
        const char *name;
        enum tally_status (*render)(const struct tally_logistic *logistic,
                                    struct tally_buffer *out);
    } files[] = {{"logistic.json", render_logistic},
                 {"logistic-curves.csv", tally_logistic_curves_csv},
                 {"logistic.gnuplot", tally_logistic_script}};
    static const char *const scripts[] = {"logistic.gnuplot"};
    char jobs[PATH_MAX];
    enum tally_status status = make_jobs_folder(folder, jobs, err);
    for (size_t i = 0; status == TALLY_OK && i < sizeof files / sizeof files[0]; i++) {
        struct tally_buffer text = {0};
        const enum tally_status made = files[i].render(logistic, &text);
        status = tally_out_folder_write(folder, files[i].name, made, &text, err);
        tally_buffer_fini(&text);
    }
    for (size_t i = 0; status == TALLY_OK && i < logistic->n_rows; i++) {
        status = write_job(logistic->rows[i].best, jobs, err);
    }
    return status == TALLY_OK ? tally_out_folder_draw(folder, scripts, 1, err) : status;
}

/* Large numbers of bits are rounded to whole bits. */
static void add_bits(struct tally_text_table *table, double bits)
{
    tally_text_table_printf(table, bits < 10000 && bits != floor(bits) ? "%.1f" : "%.0f", bits);
}

static void add_pair(struct tally_text_table *table, double up, double down)
{
    add_bits(table, up);
    add_bits(table, down);
}

static void add_name(struct tally_text_table *table, const struct tally_reproduction_row *row)
{
    tally_text_table_add(table, row->algorithm->name);
    tally_text_table_add(table, row->preset);
}

static void add_result(struct tally_text_table *table, const struct tally_reproduction_row *row)
{
    const struct tally_bit_pair *counted = &row->counted, *paper = &row->paper;
    add_name(table, row);
    tally_text_table_printf(table, "%.4g", row->step_size);
    tally_text_table_printf(table, isfinite(row->regret.mean) ? "%.1f\t%.1f" : "diverged\t-",
                            row->regret.mean, row->regret.std);
    tally_text_table_printf(table, isfinite(row->planned_regret) ? "%.1f" : "-",
                            row->planned_regret);
    add_pair(table, counted->uplink, counted->downlink);
    add_pair(table, paper->uplink, paper->downlink);
    tally_text_table_printf(table, "%.3f\t%.3f", counted->uplink / paper->uplink,
                            counted->downlink / paper->downlink);
}

static void add_coded(struct tally_text_table *table, const struct tally_reproduction_row *row)
{
    const struct tally_run_bits *uplink = &row->bits.uplink, *downlink = &row->bits.downlink;
    add_name(table, row);
    add_pair(table, uplink->payload, downlink->payload);
    add_pair(table, uplink->control, downlink->control);
    add_pair(table, uplink->entropy_payload, downlink->entropy_payload);
}

/* Two tables, because one with all columns would be wider than most terminals. */
static const struct part {
    const char *alignment; /* one letter per column */
    const char *headings;  /* two lines of them, cells separated by commas */
    void (*add_row)(struct tally_text_table *table, const struct tally_reproduction_row *row);
} PARTS[] = {
    {"llrrrrrrrrrr",
     ",,,regret,,,bits,,paper,,ratio,,"
     "algorithm,preset,step size,mean,+- std,planned,up,down,up,down,up,down",
     add_result},
    {"llrrrrrr",
     ",,payload bits,,control bits,,entropy (est.),,"
     "algorithm,preset,up,down,up,down,up,down",
     add_coded},
};
enum { N_PARTS = sizeof PARTS / sizeof PARTS[0] };

static enum tally_status render_part(const struct part *part,
                                     const struct tally_reproduction *table,
                                     struct tally_buffer *out)
{
    struct tally_text_table lines;
    tally_text_table_init(&lines, part->alignment, part->headings);
    for (size_t i = 0; i < table->sweep->n_rows; i++) {
        part->add_row(&lines, &table->rows[i]);
    }
    const enum tally_status status = tally_text_table_end(&lines, out);
    return status == TALLY_OK ? tally_buffer_append_text(out, "\n") : status;
}

enum tally_status tally_reproduce_table_render(const struct tally_reproduction *table,
                                               struct tally_buffer *out)
{
    struct tally_text text = {out, TALLY_OK};
    char title[256];
    tally_reproduction_title(table->sweep, "-", title, sizeof title);
    tally_text_printf(&text, "%s\n\n", title);
    for (size_t i = 0; text.status == TALLY_OK && i < N_PARTS; i++) {
        text.status = render_part(&PARTS[i], table, out);
    }
    tally_text_put(&text, "Bits are per client up and per broadcast down, over a whole job; means "
                          "over the runs.\n"
                          "bits: formula bits, as the paper counts; of calm and compressed "
                          "presets those sent, payload and control.\n"
                          "ratio: bits to the paper's, of ceal where the paper has no such "
                          "algorithm.\n"
                          "planned: the regret that calm's recursion expects before the job "
                          "starts.\n"
                          "entropy (est.): zero-order entropy of each message's levels, an "
                          "estimate of the best coder.\n");
    return text.status;
}

enum { TRIALS_PER_LINE = 5 }; /* 22 characters each at most */

static const char *edge_note(const struct tally_sweep_row *row)
{
    if (row->at_edge) {
        return "    (still at the edge of the grid)\n";
    }
    const int first =
        (int)tally_json_get_integer(tally_json_get(row->tune, "algorithm.step_size"), "first", 0);
    return !row->widened ? ""
           : row->trials[0].exponent < first
               ? "    (grid extended downwards: the best was at its edge)\n"
               : "    (grid extended upwards: the best was at its edge)\n";
}

static void put_grid(const struct tally_sweep *sweep, const struct tally_sweep_row *row,
                     struct tally_text *text)
{
    tally_text_printf(text, "  %s\n   ", row->trials[0].algorithm->name);
    for (size_t k = 0; k < row->n_trials; k++) {
        const double step_size = tally_reproduction_step_size(&row->trials[k]);
        const struct tally_summary regret = tally_reproduction_trial_regret(sweep, &row->trials[k]);
        const char *mark = k == row->best ? "*" : "";
        if (isfinite(regret.mean)) {
            tally_text_printf(text, " %s%.3g: %.4g%s", mark, step_size, regret.mean, mark);
        } else {
            tally_text_printf(text, " %.3g: diverged", step_size);
        }
        if (k + 1 < row->n_trials) {
            tally_text_put(text, k % TRIALS_PER_LINE == TRIALS_PER_LINE - 1 ? ",\n   " : ",");
        }
    }
    tally_text_printf(text, "\n%s", edge_note(row));
}

enum tally_status tally_reproduce_grids_render(const struct tally_sweep *sweep,
                                               struct tally_buffer *out)
{
    const long long first = sweep->first_seed;
    const long long last = first + (long long)tally_reproduction_search_seeds(sweep) - 1;
    struct tally_text text = {out, TALLY_OK};
    for (size_t i = 0; i < sweep->n_rows; i++) {
        if (sweep->rows[i].tune != NULL && out->size == 0) {
            tally_text_printf(&text,
                              "Grid of step sizes, mean regret over seeds %lld-%lld, best "
                              "between asterisks:\n",
                              first, last);
        }
        if (sweep->rows[i].tune != NULL) {
            put_grid(sweep, &sweep->rows[i], &text);
        }
    }
    return text.status;
}
