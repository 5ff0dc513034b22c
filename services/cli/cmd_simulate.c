/* tally simulate FILE: runs a job document in this process, on the same engine as the service. */
#include <stdio.h>
#include <stdlib.h>

#include "services/base/environment.h"
#include "services/base/progress_bar.h"
#include "services/base/signals.h"
#include "services/base/time.h"
#include "services/cli/cmd_simulate.h"
#include "services/cli/commands.h"
#include "services/cli/document_text.h"
#include "services/cli/result_table.h"
#include "services/job/document.h"
#include "services/job/job_advice.h"
#include "services/job/job_detail.h"
#include "services/job/job_local.h"
#include "services/objectives/blas_version.h"
#include "services/plugins/plugin_set.h"

enum { MAX_RUNS = 1000000 };

const struct tally_option TALLY_CLI_SIMULATE_OPTIONS[] = {
    {"data-dir", "DIR", "data", "folder of the data files that job documents name", NULL},
    {"plugin", "FILE...", NULL,
     "shared object with a plug-in, for plugin objectives of its name; may be given several times, "
     "or as FILE:FILE in the environment and in config files",
     NULL},
    TALLY_DOCUMENT_SET_OPTION,
    {"runs", "R", "1", "replications with independent randomness, data included", NULL},
    {"json", NULL, NULL, "print the job's detail as JSON; an array of them for more than one run",
     NULL},
    {0},
};

/* All runs together, for the progress line. */
struct simulation {
    struct tally_job_spec spec;
    const char *data_dir;
    struct tally_plugin_set plugins;
    int64_t runs;
    int64_t started_ms;
    struct tally_progress_painter painter;
    uint64_t data_digest; /* of the last run's data; 0 = they are not points of files */
};

static bool on_round(void *context, const struct tally_job *job,
                     const struct tally_round_record *record)
{
    struct simulation *simulation = context;
    char text[96];
    snprintf(text, sizeof text, "run %lld/%lld  time step %lld/%lld  round %lld",
             (long long)simulation->spec.run + 1, (long long)simulation->runs,
             (long long)record->time_step, (long long)simulation->spec.horizon,
             (long long)record->round);
    const double done = (double)record->time_step / (double)simulation->spec.horizon;
    tally_progress_show(&simulation->painter, simulation->started_ms,
                        ((double)simulation->spec.run + done) / (double)simulation->runs, text);
    (void)job;
    return *tally_signals_stop() == 0;
}

/* As that of the service, with this program as the coordinator and as the worker. */
static bool set_provenance(struct tally_json *detail, const struct tally_json *document,
                           const struct simulation *simulation)
{
    char digest[17];
    struct tally_user_code code;
    struct tally_buffer text = {0};
    const uint64_t data = simulation->data_digest;
    struct tally_json *coordinators = tally_json_array(), *workers = tally_json_array();
    struct tally_json *self = tally_environment_json(tally_blas_version());
    tally_plugin_set_code(&simulation->plugins, &simulation->spec.objective, &code);
    struct tally_json *worker = tally_origin_json(tally_json_copy(self), data, &code);
    tally_detail_checksum(data, digest);
    bool ok = tally_json_set_integer(self, "from_round", 1) &&
              tally_json_set_text_or_null(self, "data", data != 0 ? digest : NULL);
    ok = tally_json_set_integer(worker, "from_round", 1) && ok;
    ok = tally_json_append(coordinators, self) && ok;
    ok = tally_json_append(workers, worker) && ok;
    ok = tally_json_dump(document, 0, &text) == TALLY_OK && ok;
    struct tally_json *provenance =
        tally_provenance_json(text.data, text.size, coordinators, workers);
    tally_buffer_fini(&text);
    return tally_json_set(detail, "provenance", tally_json_if_complete(provenance, ok));
}

/* The detail that the service would show, without id and wire traffic. */
static struct tally_json *detail_of(const struct simulation *simulation,
                                    const struct tally_job *job,
                                    const struct tally_local_preparation *preparation)
{
    const struct tally_job_spec *spec = tally_job_get_spec(job);
    const struct tally_advice advice = tally_advise(spec, &preparation->curvature);
    struct tally_planned planned;
    const bool is_planned = tally_planned_read(spec, preparation->schedule, &planned);
    size_t dim;
    tally_job_point(job, &dim);
    const struct tally_job_facts facts = {.id = "",
                                          .status = tally_job_status(job),
                                          .reason = tally_job_reason(job),
                                          .clients = spec->clients,
                                          .dim = (int64_t)dim,
                                          .curvature = preparation->curvature,
                                          .advice = &advice,
                                          .planned = is_planned ? &planned : NULL};
    struct tally_json *detail = tally_document_of(spec), *document = tally_document_of(spec);
    bool ok = detail != NULL && document != NULL &&
              tally_detail_add(detail, &facts, tally_job_progress(job)) &&
              tally_json_set_integer(detail, "run", spec->run) &&
              set_provenance(detail, document, simulation);
    tally_json_free(document);
    return tally_json_if_complete(detail, ok);
}

/* Shows the progress line while the job's files are read. */
static bool on_load(void *context, const struct tally_load_progress *progress)
{
    struct simulation *simulation = context;
    char text[TALLY_DATA_NAME_CAPACITY + 64];
    snprintf(text, sizeof text, "reading %s  %llu points", progress->file,
             (unsigned long long)progress->points);
    tally_progress_show(&simulation->painter, simulation->started_ms,
                        (double)progress->read_bytes / (double)progress->total_bytes, text);
    return *tally_signals_stop() == 0;
}

static void on_fault(void *context, const char *fault)
{
    struct simulation *simulation = context;
    tally_progress_clear(&simulation->painter);
    tally_cli_report_fault(NULL, fault);
}

/* Runs the job on its objective, which may be a plug-in's. */
static enum tally_status run_job(struct simulation *simulation,
                                 struct tally_local_preparation *ret_preparation,
                                 struct tally_job **ret_job, struct tally_error *err)
{
    struct tally_job_spec *spec = &simulation->spec;
    double *initial = NULL;
    const struct tally_local_observer observer = {.context = simulation, .on_round = on_round};
    struct tally_objective *objective = NULL;
    const struct tally_data_source files = {.dir = simulation->data_dir,
                                            .on_progress = on_load,
                                            .on_fault = on_fault,
                                            .context = simulation};
    enum tally_status status =
        tally_plugin_set_objective(&simulation->plugins, spec, "", &files, &objective, err);
    if (status == TALLY_OK) {
        simulation->data_digest = objective->data_digest;
        status = tally_local_prepare(spec, objective, NULL, ret_preparation, err);
    }
    if (status == TALLY_OK) {
        status = tally_local_initial(spec, objective, &files, &initial, err);
    }
    if (status == TALLY_OK) {
        ret_preparation->initial = initial;
        status =
            tally_local_run_prepared(spec, objective, ret_preparation, &observer, ret_job, err);
        ret_preparation->initial = NULL;
    }
    free(initial);
    tally_objective_free(objective);
    return status;
}

static enum tally_status run_once(struct simulation *simulation, struct tally_json **ret_detail,
                                  bool *completed, struct tally_error *err)
{
    struct tally_job *job = NULL;
    struct tally_local_preparation preparation;
    enum tally_status status = run_job(simulation, &preparation, &job, err);
    if (status != TALLY_OK) {
        return status;
    }
    *ret_detail = detail_of(simulation, job, &preparation);
    *completed = *completed && tally_job_status(job) == TALLY_JOB_COMPLETED;
    tally_job_free(job);
    return *ret_detail != NULL ? TALLY_OK
                               : tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the result");
}

enum tally_status tally_cli_simulate_spec(const struct tally_options *options,
                                          const struct tally_job_spec *spec,
                                          struct tally_json **ret_detail, struct tally_error *err)
{
    struct simulation simulation = {.spec = *spec,
                                    .data_dir = tally_options_text(options, "data-dir"),
                                    .runs = 1,
                                    .started_ms = tally_monotonic_ms()};
    bool completed = true;
    enum tally_status status = tally_plugin_set_load_list(
        &simulation.plugins, tally_options_text(options, "plugin"), NULL, err);
    tally_progress_painter_init(&simulation.painter, 2);
    if (status == TALLY_OK) {
        status = run_once(&simulation, ret_detail, &completed, err);
    }
    tally_progress_clear(&simulation.painter);
    tally_plugin_set_fini(&simulation.plugins);
    return status;
}

static int print_details(const struct tally_cli *cli, const struct tally_json *details)
{
    const size_t n = tally_json_size(details);
    if (tally_options_bool(cli->options, "json")) {
        return tally_cli_print_json(n == 1 ? tally_json_at(details, 0) : details, 2);
    }
    struct tally_buffer text = {0};
    enum tally_status status = TALLY_OK;
    for (size_t i = 0; status == TALLY_OK && i < n; i++) {
        status = i > 0 ? tally_buffer_append_text(&text, "\n") : TALLY_OK;
        if (status == TALLY_OK) {
            status = tally_result_table_render(tally_json_at(details, i), &text);
        }
    }
    return tally_cli_print(status, &text);
}

int tally_cli_simulate(struct tally_cli *cli)
{
    struct simulation simulation = {.data_dir = tally_options_text(cli->options, "data-dir"),
                                    .started_ms = tally_monotonic_ms()};
    struct tally_json *faults = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    enum tally_status status =
        tally_options_integer(cli->options, "runs", 1, MAX_RUNS, &simulation.runs, &err);
    if (status == TALLY_OK) {
        status = tally_cli_read_document(cli, &simulation.spec, &faults, &err);
    }
    if (status == TALLY_OK) {
        status = tally_plugin_set_load_list(&simulation.plugins,
                                            tally_options_text(cli->options, "plugin"), NULL, &err);
    }
    if (status != TALLY_OK) {
        tally_plugin_set_fini(&simulation.plugins);
        return tally_cli_refuse_document(faults, &err);
    }
    bool completed = true;
    struct tally_json *details = tally_json_array();
    tally_progress_painter_init(&simulation.painter, 2);
    for (int64_t run = 0; status == TALLY_OK && run < simulation.runs; run++) {
        simulation.spec.run = run;
        struct tally_json *detail = NULL;
        status = run_once(&simulation, &detail, &completed, &err);
        if (status == TALLY_OK && !tally_json_append(details, detail)) {
            status = tally_fail(&err, TALLY_NO_MEMORY, NULL, "no memory for the result");
        }
    }
    tally_progress_clear(&simulation.painter);
    int exit_code = status == TALLY_OK ? print_details(cli, details) : tally_cli_report(&err);
    tally_json_free(details);
    tally_plugin_set_fini(&simulation.plugins);
    return exit_code == TALLY_EXIT_OK && !completed ? TALLY_EXIT_FAILED : exit_code;
}
