/* tally predict JOB FILE: what the model of a job says about the points of a CSV file.
 *
 *   class,probability      of objectives with classes: the likeliest class, and its probability
 *   value                  of the others
 *
 * A line for each point, in the order of the file. The features are those of the training file: its
 * header gives their order, and its points the means and deviations of `standardize` and `missing`.
 * So the training file must be in --data-dir; without these members, the columns of FILE are taken
 * in their own order if it is not. The means and deviations of a job that began with a survey come
 * from the coordinator, if it has the job. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "services/base/alloc.h"
#include "services/base/bundle.h"
#include "services/base/whole_file.h"
#include "services/cli/commands.h"
#include "services/cli/job_source.h"
#include "services/job/job_detail.h"
#include "services/objectives/data/load_data.h"
#include "services/objectives/data/scaling.h"
#include "services/objectives/losses/predict.h"

const struct tally_option TALLY_CLI_PREDICT_OPTIONS[] = {
    {"model", "FILE", NULL,
     "the model, as tally export --format npy saves it; by default the last one of the job, from "
     "the coordinator or the bundle",
     NULL},
    {"data-dir", "DIR", "data", "folder of the file that the job was trained on", NULL},
    {"out", "FILE", "-", "output file; - is standard output", NULL},
    {0},
};

enum {
    MODEL_BYTES_MOST = TALLY_NPY_HEADER_BYTES + TALLY_MAX_DIM * (int)sizeof(double),
    PATH_MOST = 4096
};

/* A model and what it was trained on. */
struct predictor {
    struct tally_job_spec spec;
    double *x; /* double[dim] */
    struct tally_columns columns;
    struct tally_scaling scaling;
};

static enum tally_status read_spec(const struct tally_job_source *source,
                                   struct tally_job_spec *ret_spec, struct tally_error *err)
{
    const enum tally_status status = tally_job_source_spec(source, ret_spec, err);
    const struct tally_objective_spec *objective = &ret_spec->objective;
    if (status == TALLY_OK && !tally_predicts(objective)) {
        return tally_fail(err, TALLY_FAILED_PRECONDITION, NULL, "models of %s predict nothing",
                          TALLY_OBJECTIVE_NAMES[objective->type]);
    }
    if (status == TALLY_OK && objective->data.type != TALLY_DATA_CSV) {
        return tally_fail(err, TALLY_FAILED_PRECONDITION, NULL,
                          "only jobs with CSV files predict; the data of this one are %s",
                          TALLY_DATA_NAMES[objective->data.type]);
    }
    return status;
}

/* Appends the bytes of the .npy file of the model. */
static enum tally_status fetch_model(struct tally_cli *cli, const char *job,
                                     struct tally_buffer *bytes, struct tally_error *err)
{
    const char *path = tally_options_text(cli->options, "model");
    if (path != NULL) {
        return tally_file_read(path, bytes, err);
    }
    if (!tally_job_source_is_file(job)) {
        char name[TALLY_JOB_WORD_CAPACITY];
        struct tally_http_exchange exchange = {.method = "GET", .accept = "application/x-npy"};
        snprintf(name, sizeof name, "%s", job);
        const enum tally_status status = tally_job_call(&cli->rest, name, "/model", &exchange, err);
        return status == TALLY_OK
                   ? tally_buffer_append(bytes, cli->rest.body.data, cli->rest.body.size)
                   : status;
    }
    return tally_bundle_is_one(job)
               ? tally_bundle_read(job, "model.npy", bytes, err)
               : tally_fail(err, TALLY_INVALID_ARGUMENT, NULL,
                            "%.200s has no model: name its file with --model", job);
}

/* Reads double[n] from the bytes of a .npy file as Tally writes it. Errors call it `what`. */
static enum tally_status read_numbers(const struct tally_buffer *bytes, const char *what, size_t n,
                                      double *ret_numbers, struct tally_error *err)
{
    struct tally_buffer expected = {0};
    enum tally_status status = tally_detail_npy(ret_numbers, n, &expected);
    if (status != TALLY_OK) {
        status = tally_fail(err, status, NULL, "no memory for the %s", what);
    } else if (bytes->size != expected.size ||
               memcmp(bytes->data, expected.data, TALLY_NPY_HEADER_BYTES) != 0) {
        status = tally_fail(err, TALLY_INVALID_ARGUMENT, NULL,
                            "the %s is not a .npy file of %zu float64 numbers, as the job's is",
                            what, n);
    } else {
        memcpy(ret_numbers, bytes->data + TALLY_NPY_HEADER_BYTES, n * sizeof *ret_numbers);
    }
    for (size_t i = 0; status == TALLY_OK && i < n; i++) {
        if (!isfinite(ret_numbers[i])) {
            status = tally_fail(err, TALLY_INVALID_ARGUMENT, NULL,
                                "coordinate %zu of the %s is not finite", i, what);
        }
    }
    tally_buffer_fini(&expected);
    return status;
}

/* Asks the coordinator for the scaling that the job's survey gave. Without one, as of a bundle or
 * an imported job, it is computed from the files of all clients. */
static enum tally_status fetch_scaling(struct tally_cli *cli, const char *job,
                                       struct predictor *predictor, struct tally_error *err)
{
    const size_t features = (size_t)tally_data_spec_features(&predictor->spec.objective.data);
    struct tally_http_exchange exchange = {.method = "GET", .accept = "application/x-npy"};
    struct tally_error why = TALLY_ERROR_INIT;
    char name[TALLY_JOB_WORD_CAPACITY];
    if (!tally_job_spec_is_surveyed(&predictor->spec) || tally_job_source_is_file(job)) {
        return TALLY_OK;
    }
    snprintf(name, sizeof name, "%s", job);
    enum tally_status status = tally_job_call(&cli->rest, name, "/scaling", &exchange, &why);
    if (status != TALLY_OK) {
        return status == TALLY_NOT_FOUND ? TALLY_OK
                                         : tally_fail(err, status, why.field, "%s", why.message);
    }
    double *numbers = calloc(3 * features, sizeof *numbers);
    if (numbers == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the scaling");
    }
    status = read_numbers(&cli->rest.body, "scaling", 3 * features, numbers, err);
    if (status == TALLY_OK) {
        status = tally_scaling_set(&predictor->scaling, numbers, features, err);
    }
    free(numbers);
    return status;
}

/* Reads double[dim] from a .npy file as Tally writes it. */
static enum tally_status read_model(struct tally_cli *cli, const char *job,
                                    struct predictor *predictor, struct tally_error *err)
{
    const size_t dim = tally_objective_spec_dim(&predictor->spec.objective);
    struct tally_buffer bytes = {.limit = MODEL_BYTES_MOST};
    enum tally_status status = fetch_model(cli, job, &bytes, err);
    predictor->x = calloc(dim, sizeof *predictor->x);
    if (status == TALLY_OK && predictor->x == NULL) {
        status = TALLY_NO_MEMORY;
    }
    if (status == TALLY_OK) {
        status = read_numbers(&bytes, "model", dim, predictor->x, err);
    }
    tally_buffer_fini(&bytes);
    return status == TALLY_OK ? status : tally_fail(err, status, NULL, "no memory for the model");
}

/* Whether the provenance of a detail names other data than these, and not these. */
static bool has_other_data(const struct tally_json *detail, uint64_t data_digest)
{
    static const char *const LISTS[] = {"coordinators", "workers"};
    char digest[17];
    bool is_known = false;
    tally_detail_checksum(data_digest, digest);
    for (size_t k = 0; k < sizeof LISTS / sizeof *LISTS; k++) {
        const struct tally_json *list =
            tally_json_get(tally_json_get(detail, "provenance"), LISTS[k]);
        for (size_t i = 0; i < tally_json_size(list); i++) {
            const char *data = tally_json_get_text(tally_json_at(list, i), "data");
            if (data != NULL && strcmp(data, digest) == 0) {
                return false;
            }
            is_known = is_known || data != NULL;
        }
    }
    return is_known;
}

static void note_columns(const char *file, const char *folder, const char *why)
{
    fprintf(stderr,
            "tally: the training file %s is not in %s%s%s: the columns of the given file are taken "
            "in their own order\n",
            file, folder, why[0] != '\0' ? ", or cannot be read: " : "", why);
}

static void warn_of_other_data(const struct tally_data_spec *data)
{
    fprintf(
        stderr,
        data->sharding == TALLY_SHARDING_LOCAL
            ? "tally: no process of the job is known to have had all files %s as they are here; "
              "predictions may be wrong\n"
            : "tally: %s has other data than those that the job was trained on; predictions may "
              "be wrong\n",
        data->table.file);
}

/* Reads the columns and the scaling of the training file of the job with this detail. */
static enum tally_status read_training(struct tally_cli *cli, const struct tally_json *detail,
                                       struct predictor *predictor, struct tally_error *err)
{
    const struct tally_job_spec *spec = &predictor->spec;
    const struct tally_data_spec *data = &spec->objective.data;
    const struct tally_table_data *table = &data->table;
    uint64_t digest = 0;
    const struct tally_data_source files = {.dir = tally_options_text(cli->options, "data-dir"),
                                            .on_fault = tally_cli_report_fault,
                                            .columns = &predictor->columns,
                                            .scaling = &predictor->scaling,
                                            .ret_digest = &digest};
    const bool needs_points = (table->standardize || table->missing == TALLY_MISSING_MEAN) &&
                              predictor->scaling.features == 0;
    const bool is_surveyed = predictor->scaling.features > 0; /* some clients' files may be here */
    if (!needs_points && !is_surveyed && !tally_data_file_exists(&files, table->file)) {
        note_columns(table->file, files.dir, "");
        return TALLY_OK;
    }
    struct tally_dataset *dataset = NULL;
    struct tally_error why = TALLY_ERROR_INIT;
    const enum tally_status status = tally_dataset_load(
        data, TALLY_OBJECTIVE_KINDS[spec->objective.type]->labels, (uint32_t)spec->clients,
        tally_job_spec_setting(spec).key, &files, &dataset, &why);
    if (is_surveyed && status == TALLY_INVALID_ARGUMENT && predictor->columns.n == 0) {
        note_columns(table->file, files.dir, why.message); /* no file is here, as a rule */
        return TALLY_OK;
    }
    const bool matters = data->sharding != TALLY_SHARDING_LOCAL || needs_points;
    if (status == TALLY_OK && matters && has_other_data(detail, digest)) {
        warn_of_other_data(data);
    }
    tally_dataset_free(dataset);
    return status == TALLY_OK
               ? status
               : tally_fail(err, status, why.field, "training data: %s", why.message);
}

/* Appends a field of RFC 4180. */
static enum tally_status put_text(struct tally_buffer *out, const char *text)
{
    if (strpbrk(text, ",\"") == NULL) {
        return tally_buffer_append_text(out, text);
    }
    enum tally_status status = tally_buffer_append_text(out, "\"");
    for (; status == TALLY_OK && *text != '\0'; text++) {
        status = tally_buffer_printf(out, *text == '"' ? "\"\"" : "%c", *text);
    }
    return status == TALLY_OK ? tally_buffer_append_text(out, "\"") : status;
}

/* A class as the training file has it: its name, its number, or -1 and 1. */
static enum tally_status put_class(struct tally_buffer *out,
                                   const struct tally_objective_spec *spec, int64_t class)
{
    const char *name = tally_data_spec_class_name(&spec->data, class);
    if (name != NULL) {
        return put_text(out, name);
    }
    const bool is_sign = tally_data_spec_classes(&spec->data) == 0;
    return tally_buffer_printf(out, "%lld", (long long)(is_sign ? 2 * class - 1 : class));
}

static enum tally_status put_predictions(const struct predictor *predictor,
                                         const struct tally_dataset *dataset,
                                         struct tally_buffer *out)
{
    const struct tally_objective_spec *spec = &predictor->spec.objective;
    const bool has_classes = tally_predicts_classes(spec);
    const int64_t classes = tally_data_spec_classes(&spec->data);
    double *room = calloc((size_t)(classes > 0 ? classes : 1), sizeof *room);
    enum tally_status status =
        room != NULL
            ? tally_buffer_append_text(out, has_classes ? "class,probability\n" : "value\n")
            : TALLY_NO_MEMORY;
    for (uint32_t i = 0; status == TALLY_OK && i < dataset->points; i++) {
        const struct tally_prediction prediction =
            tally_predict(spec, dataset, i, predictor->x, room);
        if (has_classes) {
            status = put_class(out, spec, prediction.class);
            status = status == TALLY_OK
                         ? tally_buffer_printf(out, ",%.6f\n", prediction.probability)
                         : status;
        } else {
            status = tally_buffer_printf(out, "%.17g\n", prediction.value);
        }
    }
    free(room);
    return status;
}

/* Reads the file of points, below its own folder. */
static enum tally_status read_points(const char *path, struct predictor *predictor,
                                     struct tally_dataset **ret_dataset, struct tally_error *err)
{
    char folder[PATH_MOST];
    const char *slash = strrchr(path, '/');
    const size_t n = slash != NULL ? (size_t)(slash - path) + 1 : 0;
    if (n >= sizeof folder) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL, "a path of more than %d bytes",
                          PATH_MOST);
    }
    struct stat info;
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode)) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL,
                          "%.200s is not a file that can be read; pipes cannot be", path);
    }
    snprintf(folder, sizeof folder, "%.*s", n > 0 ? (int)n : 1, n > 0 ? path : ".");
    const struct tally_data_source files = {.dir = folder,
                                            .on_fault = tally_cli_report_fault,
                                            .columns = &predictor->columns,
                                            .scaling = &predictor->scaling};
    const enum tally_status status = tally_dataset_load_unlabelled(
        &predictor->spec.objective.data, path + n, &files, ret_dataset, err);
    if (status != TALLY_OK && err != NULL) {
        err->field[0] = '\0'; /* no member of the document is wrong */
    }
    return status;
}

static enum tally_status predict(struct tally_cli *cli, struct predictor *predictor,
                                 struct tally_buffer *out, struct tally_error *err)
{
    const char *job = tally_options_positional(cli->options, 0);
    const char *path = tally_options_positional(cli->options, 1);
    struct tally_job_source source;
    struct tally_dataset *dataset = NULL;
    enum tally_status status = tally_job_source_read(cli, job, &source, err);
    if (status == TALLY_OK) {
        status = read_spec(&source, &predictor->spec, err);
    }
    if (status == TALLY_OK) {
        status = read_model(cli, job, predictor, err);
    }
    if (status == TALLY_OK) {
        status = fetch_scaling(cli, job, predictor, err);
    }
    if (status == TALLY_OK) {
        status = read_training(cli, source.detail, predictor, err);
    }
    tally_job_source_fini(&source);
    if (status == TALLY_OK) {
        status = read_points(path, predictor, &dataset, err);
    }
    if (status == TALLY_OK) {
        status = put_predictions(predictor, dataset, out);
    }
    tally_dataset_free(dataset);
    return status == TALLY_OK ? status
                              : tally_fail(err, status, NULL, "no memory for the predictions");
}

int tally_cli_predict(struct tally_cli *cli)
{
    struct predictor *predictor = tally_xcalloc(1, sizeof *predictor); /* the spec is large */
    struct tally_buffer out = {0};
    struct tally_error err = TALLY_ERROR_INIT;
    enum tally_status status = predict(cli, predictor, &out, &err);
    if (status == TALLY_OK) {
        status = tally_whole_file_write(tally_options_text(cli->options, "out"), out.data, out.size,
                                        &err);
    }
    free(predictor->x);
    tally_columns_fini(&predictor->columns);
    tally_scaling_fini(&predictor->scaling);
    free(predictor);
    tally_buffer_fini(&out);
    return status == TALLY_OK ? TALLY_EXIT_OK : tally_cli_report(&err);
}
