#include "services/cli/reproduce_files.h"

#include <limits.h>
#include <stdio.h>

#include "services/cli/out_folder.h"
#include "services/experiment/campaign_report.h"
#include "services/experiment/frontier_report.h"
#include "services/experiment/logistic_report.h"
#include "services/experiment/plot.h"
#include "services/job/document.h"

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

static enum tally_status render_result(const struct tally_campaign *campaign,
                                       struct tally_buffer *out)
{
    return render_json(tally_report_json(campaign), out);
}

static const struct {
    const char *name;
    enum tally_status (*render)(const struct tally_campaign *campaign, struct tally_buffer *out);
} FILES[] = {
    {"rows.csv", tally_report_rows_csv},          {"grids.csv", tally_report_grids_csv},
    {"curves.csv", tally_plot_curves_csv},        {"result.json", render_result},
    {"regret.gnuplot", tally_plot_regret_script}, {"bits.gnuplot", tally_plot_bits_script},
};
enum { N_FILES = sizeof FILES / sizeof FILES[0] };

static const char *const SCRIPTS[] = {"regret.gnuplot", "bits.gnuplot"};
enum { N_SCRIPTS = sizeof SCRIPTS / sizeof SCRIPTS[0] };

static enum tally_status write_job(const struct tally_job_spec *spec, const char *folder,
                                   struct tally_error *err)
{
    char name[256];
    struct tally_buffer text = {0};
    snprintf(name, sizeof name, "%s.json", spec->name);
    const enum tally_status made = render_json(tally_document_of(spec), &text);
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

static enum tally_status write_jobs(const struct tally_campaign *campaign, const char *folder,
                                    struct tally_error *err)
{
    char jobs[PATH_MAX];
    enum tally_status status = make_jobs_folder(folder, jobs, err);
    for (size_t i = 0; status == TALLY_OK && i < campaign->n_rows; i++) {
        const struct tally_campaign_row *row = &campaign->rows[i];
        const struct tally_job_spec spec = (row->tuned ? tally_preset_tuned_job : tally_preset_job)(
            row->preset, &campaign->config.problem, row->step_size,
            campaign->config.runner.first_seed);
        status = write_job(&spec, jobs, err);
    }
    return status;
}

enum tally_status tally_reproduce_files_write(const struct tally_campaign *campaign,
                                              const char *folder, struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    for (size_t i = 0; status == TALLY_OK && i < N_FILES; i++) {
        struct tally_buffer text = {0};
        const enum tally_status made = FILES[i].render(campaign, &text);
        status = tally_out_folder_write(folder, FILES[i].name, made, &text, err);
        tally_buffer_fini(&text);
    }
    if (status == TALLY_OK) {
        status = write_jobs(campaign, folder, err);
    }
    return status == TALLY_OK ? tally_out_folder_draw(folder, SCRIPTS, N_SCRIPTS, err) : status;
}

enum tally_status tally_reproduce_files_write_frontier(const struct tally_frontier *frontier,
                                                       const char *folder, struct tally_error *err)
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

enum tally_status tally_reproduce_files_write_logistic(const struct tally_logistic *logistic,
                                                       const char *folder, struct tally_error *err)
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
        struct tally_job_spec spec;
        status = tally_logistic_job(logistic, i, logistic->rows[i].best->step_size, &spec, err);
        status = status == TALLY_OK ? write_job(&spec, jobs, err) : status;
    }
    return status == TALLY_OK ? tally_out_folder_draw(folder, scripts, 1, err) : status;
}
