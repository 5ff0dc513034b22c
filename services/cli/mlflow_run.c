#include "services/cli/mlflow_run.h"
#include "services/base/alloc.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "codec/record.h"
#include "codec/utf8.h"
#include "services/base/text.h"
#include "services/base/whole_file.h"
#include "services/cli/job_rounds.h"
#include "services/cli/out_folder.h"

#define EXPERIMENT "tally"
/* Of the experiment, where none has its name yet. MLflow takes any number that is not in use; its
 * own numbers have 18 digits. */
#define EXPERIMENT_ID "82559"

enum {
    MOST_PARAM_BYTES = 6000, /* MLflow's limit; the artifact document.json has the longer ones */
    MOST_KEY_BYTES = 250,    /* it becomes the name of a file */
    MOST_HELD_BYTES = 1 << 20,
    MOST_META_BYTES = 1 << 16
};
/* Numbers of RunStatus in MLflow's protocol. */
enum run_status { SCHEDULED = 2, RUNNING = 1, FINISHED = 3, FAILED = 4, KILLED = 5 };
enum { SOURCE_LOCAL = 4 };

struct series {
    char name[TALLY_ROUND_NAME_CAPACITY];
    struct tally_buffer lines; /* not written yet */
};

struct tally_mlflow_run {
    char root[PATH_MAX];           /* the store, absolute */
    char experiment[NAME_MAX + 1]; /* its number: a folder of the store */
    char id[TALLY_RUN_NAME_CAPACITY];
    char scratch[PATH_MAX];   /* where the run is until it is complete; "" = nowhere */
    struct tally_buffer meta; /* the text of meta.yaml */
    struct tally_round_sums sums;
    struct series *series;
    size_t n_series, n_held;  /* n_held: bytes of all lines */
    int64_t round, closed_ms; /* of the record that is being added */
};

/* Joins folder and name; fails if the path is too long. */
static enum tally_status join(const char *folder, const char *name, char ret_path[PATH_MAX],
                              struct tally_error *err)
{
    const int n = snprintf(ret_path, PATH_MAX, "%s/%s", folder, name);
    return n >= 0 && n < PATH_MAX
               ? TALLY_OK
               : tally_fail(err, TALLY_INVALID_ARGUMENT, NULL, "%.200s: path too long", folder);
}

static enum tally_status make_folder_in(const char *folder, const char *name,
                                        struct tally_error *err)
{
    char path[PATH_MAX];
    const enum tally_status status = join(folder, name, path, err);
    return status == TALLY_OK ? tally_folder_make(path, NULL, err) : status;
}

static enum tally_status write_in(const char *folder, const char *name, enum tally_status made,
                                  const void *bytes, size_t n, struct tally_error *err)
{
    char path[PATH_MAX];
    if (made != TALLY_OK) {
        return tally_fail(err, made, NULL, "no memory for %.100s", name);
    }
    const enum tally_status status = join(folder, name, path, err);
    return status == TALLY_OK ? tally_whole_file_write(path, bytes, n, err) : status;
}

/* ---- YAML: a text in double quotes, in ASCII. */

static void put_quoted(struct tally_text *out, const char *text)
{
    uint32_t point;
    tally_text_put(out, "\"");
    for (size_t n; (n = tally_utf8_next(text, &point)) > 0; text += n) {
        if (point == '"' || point == '\\') {
            tally_text_put(out, "\\");
            tally_text_put_bytes(out, text, n);
        } else if (point < ' ' || point > '~') {
            tally_text_printf(out, point > 0xFFFF ? "\\U%08" PRIX32 : "\\u%04" PRIX32, point);
        } else {
            tally_text_put_bytes(out, text, n);
        }
    }
    tally_text_put(out, "\"\n");
}

/* The URI of a file of the store. */
static void put_uri(struct tally_text *out, const char *root, const char *rest)
{
    tally_text_put(out, "\"file://");
    for (const char *c = root; *c != '\0'; c++) {
        const bool is_plain = (*c >= '0' && *c <= '9') || (*c >= 'A' && *c <= 'Z') ||
                              (*c >= 'a' && *c <= 'z') || strchr("/-_.~", *c) != NULL;
        tally_text_printf(out, is_plain ? "%c" : "%%%02X", (unsigned char)*c);
    }
    tally_text_printf(out, "/%s\"\n", rest);
}

/* ---- The experiment. */

/* Whether the folder is that of our experiment. */
static bool is_experiment(const char *root, const char *name)
{
    static const char *const LINES[] = {"\nname: " EXPERIMENT "\n", "\nname: \"" EXPERIMENT "\"\n",
                                        "\nname: '" EXPERIMENT "'\n"};
    char path[PATH_MAX];
    struct tally_buffer text = {.limit = MOST_META_BYTES};
    const int n = snprintf(path, sizeof path, "%s/%s/meta.yaml", root, name);
    bool is_one = false;
    if (n < 0 || (size_t)n >= sizeof path || tally_buffer_append_text(&text, "\n") != TALLY_OK) {
        return false;
    }
    if (tally_file_read(path, &text, NULL) == TALLY_OK &&
        tally_buffer_append(&text, "\n", 2) == TALLY_OK) { /* and a NUL */
        for (size_t i = 0; i < sizeof LINES / sizeof *LINES; i++) {
            is_one |= strstr((const char *)text.data, LINES[i]) != NULL;
        }
    }
    tally_buffer_fini(&text);
    return is_one;
}

static bool find_experiment(struct tally_mlflow_run *run)
{
    bool found = false;
    DIR *folder = opendir(run->root);
    for (struct dirent *entry; !found && folder != NULL && (entry = readdir(folder)) != NULL;) {
        found = entry->d_name[0] != '.' && is_experiment(run->root, entry->d_name);
        if (found) {
            snprintf(run->experiment, sizeof run->experiment, "%s", entry->d_name);
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return found;
}

static enum tally_status make_experiment(struct tally_mlflow_run *run, int64_t time_ms,
                                         struct tally_error *err)
{
    struct tally_buffer meta = {0};
    struct tally_text text = {&meta, TALLY_OK};
    snprintf(run->experiment, sizeof run->experiment, "%s", EXPERIMENT_ID);
    tally_text_put(&text, "artifact_location: ");
    put_uri(&text, run->root, EXPERIMENT_ID);
    tally_text_printf(&text,
                      "creation_time: %" PRId64 "\nexperiment_id: '" EXPERIMENT_ID
                      "'\nlast_update_time: %" PRId64 "\nlifecycle_stage: active\nname: " EXPERIMENT
                      "\n",
                      time_ms, time_ms);
    enum tally_status status = make_folder_in(run->root, EXPERIMENT_ID, err);
    if (status == TALLY_OK) {
        status =
            write_in(run->root, EXPERIMENT_ID "/meta.yaml", text.status, meta.data, meta.size, err);
    }
    tally_buffer_fini(&meta);
    return status;
}

/* ---- The run. */

static enum run_status run_status_of(const struct tally_json *detail)
{
    static const struct {
        enum tally_job_status of_job;
        enum run_status of_run;
    } STATUSES[] = {{TALLY_JOB_QUEUED, SCHEDULED},
                    {TALLY_JOB_COMPLETED, FINISHED},
                    {TALLY_JOB_FAILED, FAILED},
                    {TALLY_JOB_CANCELLED, KILLED}};
    const char *name = tally_json_get_text(detail, "status");
    for (size_t i = 0; name != NULL && i < sizeof STATUSES / sizeof *STATUSES; i++) {
        if (strcmp(name, tally_job_status_name(STATUSES[i].of_job)) == 0) {
            return STATUSES[i].of_run;
        }
    }
    return RUNNING; /* or paused */
}

static enum tally_status make_meta(struct tally_mlflow_run *run, const struct tally_json *detail,
                                   const char *name, struct tally_error *err)
{
    char artifacts[NAME_MAX + TALLY_RUN_NAME_CAPACITY + 16];
    struct tally_text text = {&run->meta, TALLY_OK};
    const int64_t finished_ms = tally_json_get_integer(detail, "finished_ms", 0);
    const int64_t started_ms = tally_json_get_integer(
        detail, "started_ms", tally_json_get_integer(detail, "created_ms", 0));
    snprintf(artifacts, sizeof artifacts, "%s/%s/artifacts", run->experiment, run->id);
    tally_text_put(&text, "artifact_uri: ");
    put_uri(&text, run->root, artifacts);
    if (finished_ms > 0) {
        tally_text_printf(&text, "end_time: %" PRId64 "\n", finished_ms);
    } else {
        tally_text_put(&text, "end_time: null\n");
    }
    tally_text_put(&text, "entry_point_name: ''\nexperiment_id: ");
    put_quoted(&text, run->experiment);
    tally_text_put(&text, "lifecycle_stage: active\nrun_id: ");
    put_quoted(&text, run->id);
    tally_text_put(&text, "run_name: ");
    put_quoted(&text, name);
    tally_text_put(&text, "run_uuid: ");
    put_quoted(&text, run->id);
    tally_text_printf(&text,
                      "source_name: ''\nsource_type: %d\nsource_version: ''\nstart_time: %" PRId64
                      "\nstatus: %d\ntags: []\nuser_id: tally\n",
                      SOURCE_LOCAL, started_ms, (int)run_status_of(detail));
    return text.status == TALLY_OK ? TALLY_OK
                                   : tally_fail(err, text.status, NULL, "no memory for a run");
}

static enum tally_status write_tag(const struct tally_mlflow_run *run, const char *key,
                                   const char *value, struct tally_error *err)
{
    char name[MOST_KEY_BYTES + 8];
    snprintf(name, sizeof name, "tags/%.*s", MOST_KEY_BYTES, key);
    return value == NULL ? TALLY_OK
                         : write_in(run->scratch, name, TALLY_OK, value, strlen(value), err);
}

/* A key of a label may have '/', which would be a folder: a blank stands for it. No label has
 * blanks, and all versions of MLflow allow them. */
static enum tally_status write_label(const struct tally_mlflow_run *run, const char *key,
                                     const char *value, struct tally_error *err)
{
    char tag[MOST_KEY_BYTES];
    snprintf(tag, sizeof tag, "label.%.200s", key);
    for (char *c = tag; *c != '\0'; c++) {
        *c = *c == '/' ? ' ' : *c;
    }
    return write_tag(run, tag, value, err);
}

static enum tally_status write_tags(const struct tally_mlflow_run *run,
                                    const struct tally_json *detail, const char *name,
                                    struct tally_error *err)
{
    static const char *const MEMBERS[] = {"status", "reason", "reason_code", "x_checksum"};
    const struct tally_json *labels = tally_json_get(detail, "labels");
    const struct tally_json *programs =
        tally_json_get(tally_json_get(detail, "provenance"), "coordinators");
    const size_t n_programs = tally_json_size(programs);
    const struct tally_json *program =
        n_programs > 0 ? tally_json_at(programs, n_programs - 1) : NULL;
    char tag[64];
    const char *key;
    enum tally_status status = write_tag(run, "mlflow.runName", name, err);
    status = status == TALLY_OK ? write_tag(run, "mlflow.source.name", "tally", err) : status;
    status = status == TALLY_OK ? write_tag(run, "mlflow.source.type", "JOB", err) : status;
    if (status == TALLY_OK) {
        status = write_tag(run, "tally.version", tally_json_get_text(program, "version"), err);
    }
    for (size_t i = 0; status == TALLY_OK && i < sizeof MEMBERS / sizeof *MEMBERS; i++) {
        snprintf(tag, sizeof tag, "tally.%s", MEMBERS[i]);
        status = write_tag(run, tag, tally_json_get_text(detail, MEMBERS[i]), err);
    }
    for (size_t i = 0; status == TALLY_OK && (key = tally_json_key(labels, i)) != NULL; i++) {
        status = write_label(run, key, tally_json_get_text(labels, key), err);
    }
    return status;
}

static enum tally_status write_param(const struct tally_mlflow_run *run, const char *key,
                                     const struct tally_json *value, struct tally_error *err)
{
    char name[MOST_KEY_BYTES + 8];
    struct tally_buffer text = {0};
    const char *plain = tally_json_as_text(value);
    enum tally_status status =
        plain != NULL ? tally_buffer_append_text(&text, plain) : tally_json_dump(value, 0, &text);
    snprintf(name, sizeof name, "params/%.*s", MOST_KEY_BYTES, key);
    if (status != TALLY_OK || text.size <= MOST_PARAM_BYTES) {
        status = write_in(run->scratch, name, status, text.data, text.size, err);
    }
    tally_buffer_fini(&text);
    return status;
}

/* Whether a key can be the name of a file and of a param. */
static bool is_plain_key(const char *key)
{
    static const char PLAIN[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    return key[0] != '\0' && strspn(key, PLAIN) == strlen(key);
}

/* NOLINTBEGIN(misc-no-recursion): as deep as the document, whose keys must fit together. */

/* Writes the members of the object, with those of its objects; `prefix` ends in '.' or is "". */
static enum tally_status write_params(const struct tally_mlflow_run *run,
                                      const struct tally_json *object, const char *prefix,
                                      struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    const char *member;
    for (size_t i = 0; status == TALLY_OK && (member = tally_json_key(object, i)) != NULL; i++) {
        const struct tally_json *value = tally_json_get(object, member);
        const bool is_object = tally_json_is_object(value);
        char key[MOST_KEY_BYTES];
        const int n = snprintf(key, sizeof key, "%s%s%s", prefix, member, is_object ? "." : "");
        const bool is_tag = prefix[0] == '\0' && strcmp(member, "labels") == 0;
        if (!is_plain_key(member) || n < 0 || (size_t)n >= sizeof key || is_tag) {
            continue;
        }
        status = is_object ? write_params(run, value, key, err) : write_param(run, key, value, err);
    }
    return status;
}

/* NOLINTEND(misc-no-recursion) */

static enum tally_status write_json(struct tally_mlflow_run *run, const char *name,
                                    const struct tally_json *value, struct tally_error *err)
{
    struct tally_buffer text = {0};
    enum tally_status status = tally_json_dump(value, 2, &text);
    status = status == TALLY_OK ? tally_buffer_append_text(&text, "\n") : status;
    status = status == TALLY_OK
                 ? tally_mlflow_run_add_artifact(run, name, text.data, text.size, err)
                 : tally_fail(err, status, NULL, "no memory for %s", name);
    tally_buffer_fini(&text);
    return status;
}

static enum tally_status fill(struct tally_mlflow_run *run, const struct tally_json *detail,
                              const struct tally_json *document, struct tally_error *err)
{
    static const char *const FOLDERS[] = {"metrics",   "metrics/bits",        "metrics/metrics",
                                          "params",    "metrics/metrics_min", "tags",
                                          "artifacts", "metrics/metrics_max"};
    char name[TALLY_RUN_NAME_CAPACITY];
    const char *of_job = tally_json_get_text(detail, "name");
    enum tally_status status = TALLY_OK;
    tally_run_name(detail, name);
    for (size_t i = 0; status == TALLY_OK && i < sizeof FOLDERS / sizeof *FOLDERS; i++) {
        status = make_folder_in(run->scratch, FOLDERS[i], err);
    }
    const char *shown = of_job != NULL && of_job[0] != '\0' ? of_job : name;
    status = status == TALLY_OK ? make_meta(run, detail, shown, err) : status;
    status = status == TALLY_OK ? write_tags(run, detail, shown, err) : status;
    status = status == TALLY_OK ? write_params(run, document, "", err) : status;
    status = status == TALLY_OK ? write_json(run, "document.json", document, err) : status;
    return status == TALLY_OK ? write_json(run, "job.json", detail, err) : status;
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *place)
{
    (void)info;
    (void)type;
    (void)place;
    return remove(path);
}

static void free_run(struct tally_mlflow_run *run)
{
    if (run->scratch[0] != '\0') {
        nftw(run->scratch, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    }
    for (size_t i = 0; i < run->n_series; i++) {
        tally_buffer_fini(&run->series[i].lines);
    }
    free(run->series);
    tally_buffer_fini(&run->meta);
    free(run);
}

static enum tally_status run_path(const struct tally_mlflow_run *run, char ret_path[PATH_MAX],
                                  struct tally_error *err)
{
    char name[NAME_MAX + TALLY_RUN_NAME_CAPACITY + 4];
    snprintf(name, sizeof name, "%s/%s", run->experiment, run->id);
    return join(run->root, name, ret_path, err);
}

static enum tally_status fail_if_there(const struct tally_mlflow_run *run, struct tally_error *err)
{
    char path[PATH_MAX];
    const enum tally_status status = run_path(run, path, err);
    return status == TALLY_OK && access(path, F_OK) == 0
               ? tally_fail(
                     err, TALLY_ALREADY_EXISTS, NULL,
                     "%.400s exists, and is left as it is: remove it to export the job again", path)
               : status;
}

static enum tally_status make_scratch(struct tally_mlflow_run *run, struct tally_error *err)
{
    char path[PATH_MAX], name[NAME_MAX + 16];
    snprintf(name, sizeof name, "%s/.tally-XXXXXX", run->experiment);
    enum tally_status status = join(run->root, name, path, err);
    if (status != TALLY_OK) {
        return status;
    }
    if (mkdtemp(path) == NULL) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL, "%.200s: %s", run->root,
                          strerror(errno));
    }
    const mode_t mask = umask(0); /* mkdtemp() makes folders for their owner only */
    umask(mask);
    chmod(path, 0777 & ~mask);
    memcpy(run->scratch, path, sizeof path);
    return TALLY_OK;
}

enum tally_status tally_mlflow_run_create(const char *folder, const struct tally_json *detail,
                                          const struct tally_json *document,
                                          struct tally_mlflow_run **ret_run,
                                          struct tally_error *err)
{
    const char *id = tally_json_get_text(detail, "id");
    struct tally_mlflow_run *run = tally_xcalloc(1, sizeof *run);
    snprintf(run->id, sizeof run->id, "%.100s", id != NULL ? id : "");
    enum tally_status status = tally_folder_make(folder, NULL, err);
    if (status == TALLY_OK && realpath(folder, run->root) == NULL) {
        status =
            tally_fail(err, TALLY_INVALID_ARGUMENT, NULL, "%.200s: %s", folder, strerror(errno));
    }
    if (status == TALLY_OK && !is_plain_key(run->id)) {
        status = tally_fail(err, TALLY_MALFORMED, NULL, "the job has the id \"%s\"", run->id);
    }
    if (status == TALLY_OK && !find_experiment(run)) {
        status = make_experiment(run, tally_json_get_integer(detail, "created_ms", 0), err);
    }
    status = status == TALLY_OK ? fail_if_there(run, err) : status;
    status = status == TALLY_OK ? make_scratch(run, err) : status;
    status = status == TALLY_OK ? fill(run, detail, document, err) : status;
    if (status != TALLY_OK) {
        free_run(run);
        return status;
    }
    *ret_run = run;
    return TALLY_OK;
}

enum tally_status tally_mlflow_run_add_artifact(void *context, const char *name, const void *bytes,
                                                size_t n, struct tally_error *err)
{
    const struct tally_mlflow_run *run = context;
    char path[128];
    snprintf(path, sizeof path, "artifacts/%.100s", name);
    return write_in(run->scratch, path, TALLY_OK, bytes, n, err);
}

/* ---- Metrics. */

/* The file is opened only to be written to: there may be more series than file descriptors. */
static enum tally_status write_lines(const struct tally_mlflow_run *run, struct series *series)
{
    char path[PATH_MAX], name[TALLY_ROUND_NAME_CAPACITY + 16];
    snprintf(name, sizeof name, "metrics/%s", series->name);
    if (join(run->scratch, name, path, NULL) != TALLY_OK) {
        return TALLY_INTERNAL;
    }
    FILE *file = fopen(path, "abe");
    if (file == NULL) {
        return TALLY_INTERNAL;
    }
    const size_t n = fwrite(series->lines.data, 1, series->lines.size, file);
    const bool ok = n == series->lines.size && fflush(file) == 0 && fsync(fileno(file)) == 0;
    fclose(file);
    series->lines.size = 0;
    return ok ? TALLY_OK : TALLY_INTERNAL;
}

static enum tally_status write_metrics(struct tally_mlflow_run *run)
{
    enum tally_status status = TALLY_OK;
    for (size_t i = 0; status == TALLY_OK && i < run->n_series; i++) {
        status = run->series[i].lines.size > 0 ? write_lines(run, &run->series[i]) : TALLY_OK;
    }
    run->n_held = 0;
    return status;
}

static struct series *series_of(struct tally_mlflow_run *run, const char *name)
{
    for (size_t i = 0; i < run->n_series; i++) {
        if (strcmp(run->series[i].name, name) == 0) {
            return &run->series[i];
        }
    }
    run->series = tally_xrealloc(run->series, run->n_series + 1, sizeof *run->series);
    struct series *series = &run->series[run->n_series++];
    memset(series, 0, sizeof *series);
    snprintf(series->name, sizeof series->name, "%s", name);
    return series;
}

static enum tally_status add_value(void *context, const char *name, double value)
{
    struct tally_mlflow_run *run = context;
    struct series *series = series_of(run, name);
    const size_t before = series->lines.size;
    const enum tally_status status = tally_buffer_printf(
        &series->lines, "%" PRId64 " %.17g %" PRId64 "\n", run->closed_ms, value, run->round);
    run->n_held += series->lines.size - before;
    return status;
}

enum tally_status tally_mlflow_run_add_round(void *context, const struct tally_json *record)
{
    struct tally_mlflow_run *run = context;
    run->round = tally_json_get_integer(record, "round", 0);
    run->closed_ms = tally_json_get_integer(record, "closed_ms", 0);
    const enum tally_status status = tally_round_values(record, &run->sums, add_value, run);
    return status == TALLY_OK && run->n_held > MOST_HELD_BYTES ? write_metrics(run) : status;
}

/* ---- The end. */

/* MLflow takes a folder without files for damaged; rmdir() removes only empty ones. */
static void remove_empty_folders(const struct tally_mlflow_run *run)
{
    static const char *const FOLDERS[] = {"metrics/bits", "metrics/metrics", "metrics/metrics_min",
                                          "metrics/metrics_max"};
    char path[PATH_MAX];
    for (size_t i = 0; i < sizeof FOLDERS / sizeof *FOLDERS; i++) {
        if (join(run->scratch, FOLDERS[i], path, NULL) == TALLY_OK) {
            (void)rmdir(path);
        }
    }
}

/* Moves the run to its place; rename() never replaces a folder with something in it. For MLflow it
 * is a run as soon as it has meta.yaml, so that comes last: a run under another name than its id
 * would make MLflow's lists fail. */
static enum tally_status put_in_place(struct tally_mlflow_run *run, char ret_path[PATH_MAX],
                                      struct tally_error *err)
{
    enum tally_status status = run_path(run, ret_path, err);
    if (status == TALLY_OK && rename(run->scratch, ret_path) != 0) {
        const int failure = errno;
        status = failure == ENOTEMPTY || failure == EEXIST
                     ? fail_if_there(run, err)
                     : tally_fail(err, TALLY_INVALID_ARGUMENT, NULL, "%.200s: %s", ret_path,
                                  strerror(failure));
    } else if (status == TALLY_OK) {
        memcpy(run->scratch, ret_path, sizeof run->scratch); /* removed if the rest fails */
        status = write_in(ret_path, "meta.yaml", TALLY_OK, run->meta.data, run->meta.size, err);
    }
    if (status == TALLY_OK) {
        run->scratch[0] = '\0';
    }
    return status;
}

enum tally_status tally_mlflow_run_commit(struct tally_mlflow_run *run, enum tally_status made,
                                          char ret_path[TALLY_MLFLOW_PATH_CAPACITY],
                                          struct tally_error *err)
{
    enum tally_status status = made;
    if (status == TALLY_OK && write_metrics(run) != TALLY_OK) {
        status = tally_fail(err, TALLY_INTERNAL, NULL, "%.200s: metrics could not be written: %s",
                            run->root, strerror(errno));
    }
    if (status == TALLY_OK) {
        remove_empty_folders(run);
        status = put_in_place(run, ret_path, err);
    }
    free_run(run);
    return status;
}
