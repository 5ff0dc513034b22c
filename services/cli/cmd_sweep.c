/* tally sweep FILE: many variants of a job document, in this process or on a coordinator. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "codec/utf8.h"
#include "services/base/progress_bar.h"
#include "services/base/signals.h"
#include "services/base/time.h"
#include "services/base/whole_file.h"
#include "services/cli/commands.h"
#include "services/cli/out_folder.h"
#include "services/cli/sweep_remote.h"
#include "services/experiment/sweep.h"
#include "services/plugins/plugin_set.h"

enum { MAX_THREADS = 1024, MAX_BYTES = 64 << 20 };

const struct tally_option TALLY_CLI_SWEEP_OPTIONS[] = {
    {"dry-run", NULL, NULL, "only check the document, and print what would run and how long", NULL},
    {"seeds", "A-B", NULL, "seeds of the runs, in place of those of the document", NULL},
    {"parallel", "N", "4", "with --coordinator: jobs that are live at once", NULL},
    {"cancel", NULL, NULL, "with --coordinator: cancel the sweep's jobs there, and run nothing",
     NULL},
    {"interval-ms", "MS", "500", "with --coordinator: pause between two polls", NULL},
    {"threads", "N", NULL, "threads; as many as there are processors unless given", NULL},
    {"data-dir", "DIR", "data", "folder of the data files that job documents name", NULL},
    {"plugin", "FILE...", NULL,
     "shared object with a plug-in, for plugin objectives of its name; may be given several times, "
     "or as FILE:FILE in the environment and in config files",
     NULL},
    {"out", "DIR", NULL,
     "folder for CSV, JSON, the best job document, a page with charts, and a picture by gnuplot",
     NULL},
    {"best", NULL, NULL,
     "print only the best job document on standard output, and the table on standard error", NULL},
    {"json", NULL, NULL, "print only JSON on standard output", NULL},
    {"members", NULL, NULL, "print what the document of a sweep may have, instead", NULL},
    {0},
};

struct running {
    const char *data_dir;
    struct tally_plugin_set plugins;
    int64_t started_ms;
    struct tally_progress_painter painter;
};

static bool watch(void *context, double fraction, const char *what)
{
    struct running *running = context;
    tally_progress_show(&running->painter, running->started_ms, fraction, what);
    return *tally_signals_stop() == 0;
}

/* Data are read without a progress line, because several threads read at once; a stop signal ends
 * it. */
static bool on_load(void *context, const struct tally_load_progress *progress)
{
    (void)context;
    (void)progress;
    return *tally_signals_stop() == 0;
}

static enum tally_status make_objective(void *context, const struct tally_job_spec *spec,
                                        struct tally_objective **ret, struct tally_error *err)
{
    struct running *running = context;
    const struct tally_data_source files = {
        .dir = running->data_dir, .on_progress = on_load, .context = running};
    return tally_plugin_set_objective(&running->plugins, spec, "", &files, ret, err);
}

static enum tally_status read_threads(const struct tally_options *options, unsigned *ret_threads,
                                      struct tally_error *err)
{
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    int64_t threads = online < 1 ? 1 : online < MAX_THREADS ? online : MAX_THREADS;
    if (tally_options_has(options, "threads")) {
        tally_options_integer(options, "threads", 1, MAX_THREADS, &threads, err);
    }
    *ret_threads = (unsigned)threads;
    return err->status;
}

/* The folder of a file, which the names of others are relative to. */
static void folder_of(const char *path, char ret_folder[PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    const int n = slash == path ? 1 : slash != NULL ? (int)(slash - path) : 0;
    snprintf(ret_folder, PATH_MAX, "%.*s", n, path);
}

static enum tally_status read_sweep(const struct tally_options *options, struct tally_sweep *sweep,
                                    struct tally_json **ret_faults, struct tally_error *err)
{
    const char *path = tally_options_positional(options, 0);
    struct tally_buffer text = {.limit = MAX_BYTES};
    char folder[PATH_MAX];
    folder_of(path, folder);
    enum tally_status status = tally_whole_file_read(path, &text, err);
    if (status == TALLY_OK) {
        status = tally_sweep_read((const char *)text.data, text.size, folder,
                                  tally_options_text(options, "data-dir"),
                                  tally_options_text(options, "seeds"), sweep, ret_faults, err);
        if (status != TALLY_OK && err->field[0] != '\0') {
            tally_error_wrap(err, "%s", err->field);
        }
    }
    tally_buffer_fini(&text);
    return status;
}

/* ---- On a coordinator. */

enum { MAX_PARALLEL = 1000, MAX_INTERVAL_MS = 3600000 };

static enum tally_status execute(void *context, const struct tally_sweep_job *jobs, size_t n,
                                 struct tally_error *err)
{
    return tally_sweep_remote_run(context, jobs, n, err);
}

static void note(void *context, const char *message)
{
    struct running *running = context;
    char line[sizeof((struct tally_error *)0)->message];
    snprintf(line, sizeof line, "%s", message);
    tally_utf8_sanitize_line(line);
    tally_progress_clear(&running->painter);
    fprintf(stderr, "tally: the coordinator does not answer, retrying: %s\n", line);
}

static int cancel_all(struct tally_sweep_remote *remote)
{
    struct tally_error err = TALLY_ERROR_INIT;
    size_t n = 0;
    if (tally_sweep_remote_cancel(remote, &n, &err) != TALLY_OK) {
        return tally_cli_report(&err);
    }
    printf("%zu job%s cancelled\n", n, n == 1 ? "" : "s");
    return fflush(stdout) == 0 ? TALLY_EXIT_OK : TALLY_EXIT_FAILED;
}

static int report_stopped(const struct tally_error *err)
{
    if (err->status == TALLY_CANCELLED) {
        fprintf(stderr, "tally: the jobs that were submitted go on; the same command finds them "
                        "again, and with --cancel it ends them\n");
    }
    return tally_cli_report(err);
}

/* ---- What is said before the runs. */

static void format_duration(double seconds, char *ret_text, size_t capacity)
{
    if (seconds < 1) {
        snprintf(ret_text, capacity, "less than a second");
    } else if (seconds < 90) {
        snprintf(ret_text, capacity, "about %.0f s", seconds);
    } else if (seconds < 5400) {
        snprintf(ret_text, capacity, "about %.0f min", seconds / 60);
    } else {
        snprintf(ret_text, capacity, "about %.1f h", seconds / 3600);
    }
}

/* "18 rows, 10 seeds: 180 runs, about 4 s on 2 threads" */
static void put_forecast(const struct tally_sweep *sweep, const char *where, FILE *stream)
{
    const size_t runs = tally_sweep_count(sweep);
    size_t trials = 0;
    for (size_t i = 0; i < sweep->n_rows; i++) {
        trials += sweep->rows[i].n_trials;
    }
    fprintf(stream, "%zu row%s", sweep->n_rows, sweep->n_rows == 1 ? "" : "s");
    if (trials > sweep->n_rows) {
        fprintf(stream, " from %zu job documents", trials);
    }
    fprintf(stream, ", %zu seed%s: %zu run%s, %s\n", sweep->n_seeds, sweep->n_seeds == 1 ? "" : "s",
            runs, runs == 1 ? "" : "s", where);
}

static int print_plan(const struct tally_sweep *sweep, const char *where)
{
    put_forecast(sweep, where, stdout);
    for (int64_t stage = 1; stage <= sweep->halving.stages; stage++) {
        const size_t rows = tally_sweep_stage_rows(sweep, stage);
        const size_t seeds = tally_sweep_stage_seeds(sweep, stage);
        printf("stage %lld: %zu row%s, %zu seed%s, horizon %lld\n", (long long)stage, rows,
               rows == 1 ? "" : "s", seeds, seeds == 1 ? "" : "s",
               (long long)tally_sweep_stage_horizon(sweep, 0, stage));
    }
    for (size_t i = 0; i < sweep->n_rows; i++) {
        const struct tally_sweep_row *row = &sweep->rows[i];
        char text[512];
        tally_sweep_describe(sweep, i, text, sizeof text);
        printf("row %zu%s%s%s%s", i + 1, row->name[0] != '\0' ? " " : "", row->name,
               text[0] != '\0' ? ": " : "", text);
        if (row->n_trials > 1) {
            printf(" and %zu more to choose from", row->n_trials - 1);
        }
        printf("\n");
    }
    return fflush(stdout) == 0 ? TALLY_EXIT_OK : TALLY_EXIT_FAILED;
}

/* ---- Results. */

static struct tally_json *best_of(const struct tally_sweep *sweep)
{
    return tally_sweep_job(sweep, sweep->best);
}

/* Writes a JSON value and a newline. Takes the value; NULL is out of memory. */
static enum tally_status render_json(struct tally_json *value, struct tally_buffer *out)
{
    enum tally_status status = value != NULL ? tally_json_dump(value, 2, out) : TALLY_NO_MEMORY;
    tally_json_free(value);
    return status == TALLY_OK ? tally_buffer_append_text(out, "\n") : status;
}

static enum tally_status render_result(const struct tally_sweep *sweep, struct tally_buffer *out)
{
    return render_json(tally_sweep_json(sweep), out);
}

static enum tally_status render_best(const struct tally_sweep *sweep, struct tally_buffer *out)
{
    return render_json(best_of(sweep), out);
}

static enum tally_status write_files(const struct tally_sweep *sweep, const char *folder,
                                     struct tally_error *err)
{
    static const struct {
        const char *name;
        enum tally_status (*render)(const struct tally_sweep *sweep, struct tally_buffer *out);
    } files[] = {{"rows.csv", tally_sweep_rows_csv},    {"runs.csv", tally_sweep_runs_csv},
                 {"result.json", render_result},        {"best.json", render_best},
                 {"sweep.gnuplot", tally_sweep_script}, {"index.html", tally_sweep_page}};
    static const char *const scripts[] = {"sweep.gnuplot"};
    enum tally_status status = TALLY_OK;
    for (size_t i = 0; status == TALLY_OK && i < sizeof files / sizeof files[0]; i++) {
        struct tally_buffer text = {0};
        const enum tally_status made = files[i].render(sweep, &text);
        status = tally_out_folder_write(folder, files[i].name, made, &text, err);
        tally_buffer_fini(&text);
    }
    return status == TALLY_OK ? tally_out_folder_draw(folder, scripts, 1, err) : status;
}

static int print_result(const struct tally_sweep *sweep, const struct tally_options *options)
{
    struct tally_buffer text = {0};
    if (tally_options_bool(options, "json")) {
        return tally_cli_take_json(tally_sweep_json(sweep));
    }
    enum tally_status status = tally_sweep_table(sweep, &text);
    if (tally_options_bool(options, "best")) {
        if (status == TALLY_OK) {
            fprintf(stderr, "%.*s", (int)text.size, (const char *)text.data);
        }
        tally_buffer_fini(&text);
        return tally_cli_take_json(best_of(sweep));
    }
    if (status == TALLY_OK) {
        status = tally_buffer_append_text(&text, "\nThe best job document:\n");
    }
    if (status == TALLY_OK) {
        status = render_best(sweep, &text);
    }
    return tally_cli_print(status, &text);
}

/* Prints the result and writes the files. */
static int finish(const struct tally_sweep *sweep, const struct tally_options *options)
{
    const char *folder = tally_options_text(options, "out");
    struct tally_error err = TALLY_ERROR_INIT;
    const int exit_code = print_result(sweep, options);
    return folder != NULL && write_files(sweep, folder, &err) != TALLY_OK ? tally_cli_report(&err)
                                                                          : exit_code;
}

static int run_here(struct tally_sweep *sweep, struct running *running, unsigned threads,
                    const struct tally_options *options)
{
    const struct tally_sweep_config config = {.threads = threads,
                                              .data_dir = running->data_dir,
                                              .make_objective = make_objective,
                                              .watch = watch,
                                              .context = running};
    struct tally_error err = TALLY_ERROR_INIT;
    double seconds = 0;
    const bool is_dry = tally_options_bool(options, "dry-run");
    enum tally_status status = tally_sweep_forecast(sweep, &config, &seconds, &err);
    if (status != TALLY_OK && !(is_dry && status == TALLY_INVALID_ARGUMENT)) {
        return status == TALLY_INVALID_ARGUMENT ? tally_cli_report_usage(&err)
                                                : tally_cli_report(&err);
    }
    char duration[64], where[128];
    const size_t runs = tally_sweep_count(sweep);
    format_duration(seconds / (double)(runs < threads ? runs : threads), duration, sizeof duration);
    snprintf(where, sizeof where, "%s on %u thread%s",
             status == TALLY_OK ? duration : "for an unknown time", threads,
             threads == 1 ? "" : "s");
    if (is_dry) {
        if (status != TALLY_OK) { /* the document is right; its data may be elsewhere */
            tally_cli_report_usage(&err);
        }
        return print_plan(sweep, where);
    }
    put_forecast(sweep, where, stderr);
    tally_progress_painter_init(&running->painter, STDERR_FILENO);
    running->started_ms = tally_monotonic_ms();
    status = tally_sweep_run(sweep, &config, &err);
    tally_progress_clear(&running->painter);
    return status == TALLY_OK ? finish(sweep, options) : tally_cli_report(&err);
}

static int run_remotely(struct tally_cli *cli, struct tally_sweep *sweep, struct running *running)
{
    const struct tally_options *options = cli->options;
    struct tally_sweep_remote remote = {.cli = cli,
                                        .digest = tally_sweep_digest(sweep),
                                        .n_planned = tally_sweep_count(sweep),
                                        .watch = watch,
                                        .note = note,
                                        .context = running};
    const struct tally_sweep_config config = {.execute = execute, .context = &remote};
    struct tally_error err = TALLY_ERROR_INIT;
    char where[300];
    tally_options_integer(options, "parallel", 1, MAX_PARALLEL, &remote.parallel, &err);
    tally_options_integer(options, "interval-ms", 10, MAX_INTERVAL_MS, &remote.interval_ms, &err);
    if (err.status != TALLY_OK) {
        return tally_cli_report_usage(&err);
    }
    running->started_ms = tally_monotonic_ms();
    if (tally_options_bool(options, "cancel")) {
        return cancel_all(&remote);
    }
    snprintf(where, sizeof where, "%lld at once on %.200s, with the label sweep=%016llx",
             (long long)remote.parallel, cli->rest.url, (unsigned long long)remote.digest);
    if (tally_options_bool(options, "dry-run")) {
        return print_plan(sweep, where);
    }
    put_forecast(sweep, where, stderr);
    tally_progress_painter_init(&running->painter, STDERR_FILENO);
    running->started_ms = tally_monotonic_ms();
    const enum tally_status status = tally_sweep_run(sweep, &config, &err);
    tally_progress_clear(&running->painter);
    return status == TALLY_OK ? finish(sweep, options) : report_stopped(&err);
}

static int run(struct tally_cli *cli, struct tally_sweep *sweep, struct running *running,
               unsigned threads)
{
    const struct tally_options *options = cli->options;
    const char *folder = tally_options_text(options, "out");
    const bool is_remote = tally_options_is_given(options, "coordinator");
    struct tally_error err = TALLY_ERROR_INIT;
    if (tally_options_bool(options, "cancel") && !is_remote) {
        tally_options_refuse(options, "cancel", &err, "only with --coordinator");
        return tally_cli_report_usage(&err);
    }
    if (folder != NULL && !tally_options_bool(options, "dry-run") &&
        tally_out_folder_make(folder, &err) != TALLY_OK) {
        return tally_cli_report_usage(&err); /* fails now, not after an hour */
    }
    return is_remote ? run_remotely(cli, sweep, running)
                     : run_here(sweep, running, threads, options);
}

int tally_cli_sweep(struct tally_cli *cli)
{
    const struct tally_options *options = cli->options;
    struct running running = {.data_dir = tally_options_text(options, "data-dir")};
    struct tally_sweep sweep = {.n_rows = 0};
    struct tally_json *faults = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    unsigned threads = 1;
    if (tally_options_bool(options, "members")) {
        struct tally_buffer text = {0};
        const enum tally_status made = tally_sweep_members(&text);
        return tally_cli_print(made, &text);
    }
    if (tally_options_positional(options, 0) == NULL) {
        tally_fail(&err, TALLY_INVALID_ARGUMENT, NULL, "missing argument FILE");
        return tally_cli_report_usage(&err);
    }
    enum tally_status status = read_threads(options, &threads, &err);
    if (status == TALLY_OK) {
        status = read_sweep(options, &sweep, &faults, &err);
    }
    if (status == TALLY_OK) {
        status = tally_plugin_set_load_list(&running.plugins, tally_options_text(options, "plugin"),
                                            NULL, &err);
    }
    const int exit_code = status == TALLY_OK ? run(cli, &sweep, &running, threads)
                                             : tally_cli_refuse_document(faults, &err);
    tally_sweep_fini(&sweep);
    tally_plugin_set_fini(&running.plugins);
    return exit_code;
}
