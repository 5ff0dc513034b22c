/* tally export ID: the results of a job, as a file.
 *
 *   csv   the round records, one line each
 *   npy   the model, for numpy.load()
 *   json  {"job": detail, "rounds": [all records], "model": the model or null}
 *
 * With --bundle all of it, page by page and model by model (bundle.h). With --to, below a folder
 * that may hold other jobs, for TensorBoard (board_run.h) or MLflow (mlflow_run.h). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "services/base/bundle.h"
#include "services/base/whole_file.h"
#include "services/cli/board_run.h"
#include "services/cli/commands.h"
#include "services/cli/mlflow_run.h"
#include "services/cli/out_folder.h"

const struct tally_option TALLY_CLI_EXPORT_OPTIONS[] = {
    {"format", "FORMAT", NULL,
     "csv (round records), npy (the model) or json (job, round records and model); default csv, "
     "with --model npy",
     NULL},
    {"model", "WHICH", NULL,
     "best, last, or a round after which a model was kept; default last. GET /v1/jobs/ID/models "
     "lists what a job keeps",
     NULL},
    {"to", "FORMAT", NULL,
     "write to the folder DIR: tensorboard (an event file), mlflow (a run of its file store), csv "
     "or "
     "json (DIR/ID.csv, DIR/ID.json)",
     NULL},
    {"bundle", "FILE", NULL,
     "write document, detail, rounds and models of a job that has ended to this tar archive", NULL},
    {"out", "FILE", NULL, "output file; - is standard output; default ID.FORMAT", NULL},
    {0},
};

enum format { FORMAT_CSV, FORMAT_JSON, FORMAT_NPY };
static const char *const FORMAT_NAMES[] = {"csv", "json", "npy", NULL};

static const char LAST_MODEL[] = "/model";
static const char WHICH_CHARACTERS[] = "abcdefghijklmnopqrstuvwxyz0123456789";

/* GETs the bytes below the job's path into cli->rest.body. */
static enum tally_status get_bytes(struct tally_cli *cli, const char *rest, const char *accept,
                                   struct tally_error *err)
{
    struct tally_http_exchange exchange = {.method = "GET", .accept = accept};
    return tally_job_call(&cli->rest, cli->job, rest, &exchange, err);
}

static enum tally_status get_json(struct tally_cli *cli, const char *rest,
                                  struct tally_json **ret_value, struct tally_error *err)
{
    return tally_job_get_json(&cli->rest, cli->job, rest, ret_value, err);
}

static enum tally_status append_record(void *rounds, const struct tally_json *record)
{
    return tally_json_append(rounds, tally_json_copy(record)) ? TALLY_OK : TALLY_NO_MEMORY;
}

/* *ret_model is NULL if the job has not begun and so has no model. */
static enum tally_status get_model(struct tally_cli *cli, const char *rest,
                                   struct tally_json **ret_model, struct tally_error *err)
{
    struct tally_error problem = TALLY_ERROR_INIT;
    const bool is_chosen = strcmp(rest, LAST_MODEL) != 0;
    enum tally_status status = get_json(cli, rest, ret_model, &problem);
    if ((status == TALLY_NOT_FOUND && !is_chosen) || status == TALLY_FAILED_PRECONDITION) {
        fprintf(stderr, "tally: no model yet: %s\n", problem.message);
        return TALLY_OK;
    }
    return status == TALLY_OK ? status
                              : tally_fail(err, status, problem.field, "%s", problem.message);
}

/* Replaces cli->rest.body by the whole document. */
static enum tally_status gather_json(struct tally_cli *cli, const char *model_rest,
                                     struct tally_error *err)
{
    struct tally_json *answer = tally_json_object(), *rounds = tally_json_array();
    struct tally_json *detail = NULL, *model = NULL;
    enum tally_status status = get_json(cli, "", &detail, err);
    if (status == TALLY_OK) {
        status = tally_job_rounds_read(cli, 0, append_record, rounds, err);
    }
    if (status == TALLY_OK) {
        status = get_model(cli, model_rest, &model, err);
    }
    bool ok = tally_json_set(answer, "job", detail);
    ok = tally_json_set(answer, "rounds", rounds) && ok;
    ok = (model != NULL ? tally_json_set(answer, "model", model)
                        : tally_json_set_null(answer, "model")) &&
         ok;
    cli->rest.body.size = 0;
    if (status == TALLY_OK && (!ok || tally_json_dump(answer, 2, &cli->rest.body) != TALLY_OK ||
                               tally_buffer_append_text(&cli->rest.body, "\n") != TALLY_OK)) {
        status = tally_fail(err, TALLY_NO_MEMORY, NULL, "out of memory");
    }
    tally_json_free(answer);
    return status;
}

/* "ID.csv" in the current directory; special characters of the id become '_'. */
static void default_path(const char *id, const char *format, char *ret_path, size_t capacity)
{
    char name[TALLY_JOB_WORD_CAPACITY];
    snprintf(name, sizeof name, "%s", id);
    for (char *c = name; *c != '\0'; c++) {
        bool plain = (*c >= '0' && *c <= '9') || (*c >= 'a' && *c <= 'z') ||
                     (*c >= 'A' && *c <= 'Z') || *c == '-' || *c == '_';
        *c = plain ? *c : '_';
    }
    snprintf(ret_path, capacity, "%s.%s", name, format);
}

/* Writes the request for the model that --model names. */
static enum tally_status write_model_rest(const struct tally_cli *cli, enum format format,
                                          char *ret_rest, size_t capacity, struct tally_error *err)
{
    const char *which = tally_options_text(cli->options, "model");
    snprintf(ret_rest, capacity, "%s", LAST_MODEL);
    if (which == NULL) {
        return TALLY_OK;
    }
    if (format == FORMAT_CSV) {
        return tally_options_refuse(cli->options, "model", err,
                                    "a csv file has no model: add --format npy or json");
    }
    const size_t n = strlen(which);
    if (n == 0 || n > 18 || strspn(which, WHICH_CHARACTERS) != n) {
        return tally_options_refuse(cli->options, "model", err,
                                    "\"%.32s\" is not best, last or a round", which);
    }
    snprintf(ret_rest, capacity, "%s?which=%s", LAST_MODEL, which);
    return TALLY_OK;
}

static enum tally_status gather(struct tally_cli *cli, enum format format, const char *model_rest,
                                struct tally_error *err)
{
    switch (format) {
    case FORMAT_CSV:
        return get_bytes(cli, "/rounds.csv", "text/csv", err);
    case FORMAT_NPY:
        return get_bytes(cli, model_rest, "application/x-npy", err);
    case FORMAT_JSON:
        break;
    }
    return gather_json(cli, model_rest, err);
}

/* ---- Bundles. */

/* Writes a record as a line. */
static enum tally_status write_line(void *writer, const struct tally_json *record)
{
    struct tally_buffer line = {0};
    enum tally_status status = tally_json_dump(record, 0, &line);
    status = status == TALLY_OK ? tally_buffer_append_text(&line, "\n") : status;
    if (status == TALLY_OK) {
        tally_bundle_write(writer, line.data, line.size);
    }
    tally_buffer_fini(&line);
    return status;
}

static enum tally_status add_json(struct tally_bundle_writer *writer, const char *name,
                                  const struct tally_json *value, struct tally_error *err)
{
    struct tally_buffer text = {0};
    enum tally_status status = tally_json_dump(value, 2, &text);
    status = status == TALLY_OK ? tally_buffer_append_text(&text, "\n") : status;
    if (status == TALLY_OK) {
        tally_bundle_add(writer, name, text.data, text.size);
    } else {
        tally_fail(err, status, NULL, "out of memory");
    }
    tally_buffer_fini(&text);
    return status;
}

static enum tally_status add_head(struct tally_bundle_writer *writer, struct tally_error *err)
{
    struct tally_json *head = tally_json_object();
    const bool ok = tally_json_set_integer(head, "format", TALLY_BUNDLE_FORMAT) &&
                    tally_json_set_text(head, "version", TALLY_VERSION);
    const enum tally_status status = ok ? add_json(writer, "bundle.json", head, err)
                                        : tally_fail(err, TALLY_NO_MEMORY, NULL, "out of memory");
    tally_json_free(head);
    return status;
}

/* A file of a job's results: a member of a bundle, an artifact of MLflow. */
typedef enum tally_status file_fn(void *context, const char *name, const void *bytes, size_t n,
                                  struct tally_error *err);

/* Gets each model that `models`, the answer to GET models, lists, one at a time. */
static enum tally_status get_models(struct tally_cli *cli, const struct tally_json *models,
                                    file_fn *each, void *context, struct tally_error *err)
{
    char rest[64], name[64];
    enum tally_status status = TALLY_OK;
    models = tally_json_get(models, "models");
    for (size_t i = 0; status == TALLY_OK && i < tally_json_size(models); i++) {
        const struct tally_json *model = tally_json_at(models, i);
        const char *word = tally_json_get_text(model, "which");
        char which[24];
        if (word != NULL) {
            snprintf(which, sizeof which, "%s", word);
        } else {
            snprintf(which, sizeof which, "%" PRId64, tally_json_get_integer(model, "which", 0));
        }
        if (strspn(which, WHICH_CHARACTERS) != strlen(which)) {
            status = tally_fail(err, TALLY_MALFORMED, NULL, "the job has a model \"%s\"", which);
            break;
        }
        snprintf(rest, sizeof rest, "%s?which=%s", LAST_MODEL, which);
        snprintf(name, sizeof name, "model-%s.npy", which);
        status = get_bytes(cli, rest, "application/x-npy", err);
        if (status == TALLY_OK) {
            status = each(context, strcmp(which, "last") == 0 ? "model.npy" : name,
                          cli->rest.body.data, cli->rest.body.size, err);
        }
    }
    return status;
}

static enum tally_status add_file(void *writer, const char *name, const void *bytes, size_t n,
                                  struct tally_error *err)
{
    (void)err; /* the bundle reports it at its end */
    tally_bundle_add(writer, name, bytes, n);
    return TALLY_OK;
}

static enum tally_status add_models(struct tally_cli *cli, struct tally_bundle_writer *writer,
                                    struct tally_error *err)
{
    struct tally_json *models = NULL;
    enum tally_status status = get_json(cli, "/models", &models, err);
    status = status == TALLY_OK ? add_json(writer, "models.json", models, err) : status;
    status = status == TALLY_OK ? get_models(cli, models, add_file, writer, err) : status;
    tally_json_free(models);
    return status;
}

/* Writes the clients of a page as lines, each beginning with the round if the page has one. */
static enum tally_status write_clients(struct tally_bundle_writer *writer,
                                       const struct tally_json *page)
{
    const struct tally_json *clients = tally_json_get(page, "clients");
    const int64_t round = tally_json_get_integer(page, "round", 0);
    enum tally_status status = TALLY_OK;
    for (size_t i = 0; status == TALLY_OK && i < tally_json_size(clients); i++) {
        const struct tally_json *client = tally_json_at(clients, i);
        struct tally_json *line = tally_json_object();
        const char *key;
        bool ok = round == 0 || tally_json_set_integer(line, "round", round);
        for (size_t k = 0; ok && (key = tally_json_key(client, k)) != NULL; k++) {
            ok = tally_json_set(line, key, tally_json_copy(tally_json_get(client, key)));
        }
        status = ok ? write_line(writer, line) : TALLY_NO_MEMORY;
        tally_json_free(line);
    }
    return status;
}

/* Adds the member NAME.jsonl: all clients that GET NAME lists. */
static enum tally_status add_clients(struct tally_cli *cli, struct tally_bundle_writer *writer,
                                     const char *name, struct tally_error *err)
{
    char rest[64];
    int64_t first = 0;
    enum tally_status status = TALLY_OK;
    snprintf(rest, sizeof rest, "%s.jsonl", name);
    tally_bundle_begin(writer, rest);
    while (status == TALLY_OK && first >= 0) {
        struct tally_json *page = NULL;
        snprintf(rest, sizeof rest, "/%s?limit=10000&first=%" PRId64, name, first);
        status = get_json(cli, rest, &page, err);
        if (status == TALLY_OK) {
            const int64_t next = tally_json_get_integer(page, "next_client", -1);
            first = next > first ? next : -1;
            status = write_clients(writer, page);
            status = status == TALLY_OK ? status : tally_fail(err, status, NULL, "out of memory");
        }
        tally_json_free(page);
    }
    return status;
}

static enum tally_status fill_bundle(struct tally_cli *cli, struct tally_bundle_writer *writer,
                                     const struct tally_json *detail, struct tally_error *err)
{
    enum tally_status status = add_head(writer, err);
    status = status == TALLY_OK ? get_bytes(cli, "/document", "application/json", err) : status;
    if (status == TALLY_OK) {
        tally_bundle_add(writer, "document.json", cli->rest.body.data, cli->rest.body.size);
        status = add_json(writer, "job.json", detail, err);
    }
    if (status == TALLY_OK) {
        tally_bundle_begin(writer, "rounds.jsonl");
        status = tally_job_rounds_read(cli, 0, write_line, writer, err);
    }
    status = status == TALLY_OK ? add_clients(cli, writer, "metrics", err) : status;
    status = status == TALLY_OK ? add_clients(cli, writer, "traffic", err) : status;
    const bool has_model = tally_json_get_integer(detail, "started_ms", 0) > 0;
    return status == TALLY_OK && has_model ? add_models(cli, writer, err) : status;
}

static enum tally_status write_bundle(struct tally_cli *cli, const char *path,
                                      uint64_t *ret_n_bytes, struct tally_error *err)
{
    struct tally_json *detail = NULL;
    struct tally_bundle_writer *writer;
    enum tally_status status = get_json(cli, "", &detail, err);
    const int64_t finished_ms = tally_json_get_integer(detail, "finished_ms", 0);
    if (status == TALLY_OK && finished_ms == 0) {
        status = tally_fail(err, TALLY_FAILED_PRECONDITION, NULL,
                            "job %s is %s: a bundle is of a job that has ended", cli->job,
                            tally_json_get_text(detail, "status"));
    }
    if (status == TALLY_OK) {
        status = tally_bundle_create(path, finished_ms / 1000, &writer, err);
    }
    if (status == TALLY_OK) {
        status = fill_bundle(cli, writer, detail, err);
        status = tally_bundle_commit(writer, status, ret_n_bytes, err);
    }
    tally_json_free(detail);
    return status;
}

static int export_bundle(struct tally_cli *cli, const char *path)
{
    static const char *const OTHERS[] = {"format", "model", "out"};
    struct tally_error err = TALLY_ERROR_INIT;
    uint64_t n_bytes = 0;
    for (size_t i = 0; i < sizeof OTHERS / sizeof *OTHERS; i++) {
        if (tally_options_text(cli->options, OTHERS[i]) != NULL) {
            tally_fail(&err, TALLY_INVALID_ARGUMENT, NULL, "--bundle and --%s: choose one",
                       OTHERS[i]);
            return tally_cli_report_usage(&err);
        }
    }
    if (write_bundle(cli, path, &n_bytes, &err) != TALLY_OK) {
        return tally_cli_report(&err);
    }
    fprintf(stderr, "wrote %s, %" PRIu64 " bytes\n", path, n_bytes);
    return TALLY_EXIT_OK;
}

/* ---- Folders of other programs. */

enum destination { TO_CSV, TO_JSON, TO_MLFLOW, TO_TENSORBOARD };
static const char *const DESTINATIONS[] = {"csv", "json", "mlflow", "tensorboard", NULL};

static bool has_ended(const struct tally_json *detail)
{
    return tally_json_get_integer(detail, "finished_ms", 0) > 0;
}

static int export_to_board(struct tally_cli *cli, const char *folder)
{
    struct tally_error err = TALLY_ERROR_INIT;
    struct tally_json *detail = NULL;
    struct tally_board_run *run = NULL;
    enum tally_status status = get_json(cli, "", &detail, &err);
    if (status == TALLY_OK) {
        status = tally_board_run_open(cli, folder, detail, &run, &err);
    }
    if (status == TALLY_OK) {
        status = tally_board_run_follow(run, has_ended(detail), &err);
    }
    if (status == TALLY_OK) {
        fprintf(stderr, "wrote %s, up to round %" PRId64 "\n", tally_board_run_path(run),
                tally_board_run_last_round(run));
    }
    tally_board_run_close(run);
    tally_json_free(detail);
    return status == TALLY_OK ? TALLY_EXIT_OK : tally_cli_report(&err);
}

static enum tally_status fill_mlflow_run(struct tally_cli *cli, struct tally_mlflow_run *run,
                                         const struct tally_json *detail, struct tally_error *err)
{
    struct tally_json *models = NULL;
    enum tally_status status = tally_job_rounds_read(cli, 0, tally_mlflow_run_add_round, run, err);
    if (status == TALLY_OK && tally_json_get_integer(detail, "started_ms", 0) > 0) {
        status = get_json(cli, "/models", &models, err);
        status = status == TALLY_OK
                     ? get_models(cli, models, tally_mlflow_run_add_artifact, run, err)
                     : status;
    }
    tally_json_free(models);
    return status;
}

static int export_to_mlflow(struct tally_cli *cli, const char *folder)
{
    struct tally_error err = TALLY_ERROR_INIT;
    struct tally_json *detail = NULL, *document = NULL;
    struct tally_mlflow_run *run = NULL;
    char path[TALLY_MLFLOW_PATH_CAPACITY];
    enum tally_status status = get_json(cli, "", &detail, &err);
    status = status == TALLY_OK ? get_json(cli, "/document", &document, &err) : status;
    if (status == TALLY_OK) {
        status = tally_mlflow_run_create(folder, detail, document, &run, &err);
    }
    if (status == TALLY_OK) {
        status = fill_mlflow_run(cli, run, detail, &err);
        status = tally_mlflow_run_commit(run, status, path, &err);
    }
    if (status == TALLY_OK) {
        fprintf(stderr, "wrote %s\n", path);
    }
    tally_json_free(detail);
    tally_json_free(document);
    return status == TALLY_OK ? TALLY_EXIT_OK : tally_cli_report(&err);
}

static int write_file(struct tally_cli *cli, enum format format, const char *model_rest,
                      const char *folder)
{
    struct tally_error err = TALLY_ERROR_INIT;
    char own_path[TALLY_MLFLOW_PATH_CAPACITY], name[128];
    const char *path = tally_options_text(cli->options, "out");
    if (gather(cli, format, model_rest, &err) != TALLY_OK) {
        return tally_cli_report(&err);
    }
    if (folder != NULL && tally_folder_make(folder, NULL, &err) != TALLY_OK) {
        return tally_cli_report(&err);
    }
    if (path == NULL) {
        default_path(cli->job, FORMAT_NAMES[format], name, sizeof name);
        const int n = snprintf(own_path, sizeof own_path, "%s%s%s", folder != NULL ? folder : "",
                               folder != NULL ? "/" : "", name);
        if (n < 0 || (size_t)n >= sizeof own_path) {
            tally_fail(&err, TALLY_INVALID_ARGUMENT, NULL, "%.200s: path too long", folder);
            return tally_cli_report(&err);
        }
        path = own_path;
    }
    if (tally_whole_file_write(path, cli->rest.body.data, cli->rest.body.size, &err) != TALLY_OK) {
        return tally_cli_report(&err);
    }
    if (strcmp(path, "-") != 0) {
        fprintf(stderr, "wrote %s, %zu bytes\n", path, cli->rest.body.size);
    }
    return TALLY_EXIT_OK;
}

static int export_to(struct tally_cli *cli, const char *folder)
{
    static const char *const OTHERS[] = {"format", "model", "out"};
    struct tally_error err = TALLY_ERROR_INIT;
    int destination = TO_CSV;
    for (size_t i = 0; i < sizeof OTHERS / sizeof *OTHERS; i++) {
        if (tally_options_text(cli->options, OTHERS[i]) != NULL) {
            tally_fail(&err, TALLY_INVALID_ARGUMENT, NULL, "--to and --%s: choose one", OTHERS[i]);
            return tally_cli_report_usage(&err);
        }
    }
    if (tally_options_choice(cli->options, "to", DESTINATIONS, &destination, &err) != TALLY_OK) {
        return tally_cli_report_usage(&err);
    }
    if (folder == NULL || folder[0] == '\0') {
        tally_fail(&err, TALLY_INVALID_ARGUMENT, NULL,
                   "--to %s needs a folder: tally export ID --to %s DIR", DESTINATIONS[destination],
                   DESTINATIONS[destination]);
        return tally_cli_report_usage(&err);
    }
    switch ((enum destination)destination) {
    case TO_TENSORBOARD:
        return export_to_board(cli, folder);
    case TO_MLFLOW:
        return export_to_mlflow(cli, folder);
    case TO_CSV:
        return write_file(cli, FORMAT_CSV, LAST_MODEL, folder);
    case TO_JSON:
        break;
    }
    return write_file(cli, FORMAT_JSON, LAST_MODEL, folder);
}

int tally_cli_export(struct tally_cli *cli)
{
    struct tally_error err = TALLY_ERROR_INIT;
    const bool has_model = tally_options_text(cli->options, "model") != NULL;
    const char *bundle = tally_options_text(cli->options, "bundle");
    const char *folder = tally_options_positional(cli->options, 1);
    const bool is_to = tally_options_text(cli->options, "to") != NULL;
    int format = has_model ? FORMAT_NPY : FORMAT_CSV;
    char model_rest[64];
    if (bundle != NULL && is_to) {
        tally_fail(&err, TALLY_INVALID_ARGUMENT, NULL, "--bundle and --to: choose one");
        return tally_cli_report_usage(&err);
    }
    if (is_to) {
        return export_to(cli, folder);
    }
    if (folder != NULL) {
        tally_fail(&err, TALLY_INVALID_ARGUMENT, NULL,
                   "%.200s: only --to writes to a folder; --out FILE names a file", folder);
        return tally_cli_report_usage(&err);
    }
    if (bundle != NULL) {
        return export_bundle(cli, bundle);
    }
    if (tally_options_text(cli->options, "format") != NULL &&
        tally_options_choice(cli->options, "format", FORMAT_NAMES, &format, &err) != TALLY_OK) {
        return tally_cli_report_usage(&err);
    }
    if (write_model_rest(cli, (enum format)format, model_rest, sizeof model_rest, &err) !=
        TALLY_OK) {
        return tally_cli_report_usage(&err);
    }
    return write_file(cli, (enum format)format, model_rest, NULL);
}
