/* tally export ID: the results of a job, as a file.
 *
 *   csv   the round records, one line each
 *   npy   the model, for numpy.load()
 *   json  {"job": detail, "rounds": [all records], "model": the model or null} */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "services/base/whole_file.h"
#include "services/cli/commands.h"

const struct tally_option TALLY_CLI_EXPORT_OPTIONS[] = {
    {"format", "FORMAT", NULL,
     "csv (round records), npy (the model) or json (job, round records and model); default csv, "
     "with --model npy",
     NULL},
    {"model", "WHICH", NULL,
     "best, last, or a round after which a model was kept; default last. GET /v1/jobs/ID/models "
     "lists what a job keeps",
     NULL},
    {"out", "FILE", NULL, "output file; - is standard output; default ID.FORMAT", NULL},
    {0},
};

enum format { FORMAT_CSV, FORMAT_JSON, FORMAT_NPY };
static const char *const FORMAT_NAMES[] = {"csv", "json", "npy", NULL};

enum { PAGE_ROUNDS = 1000 };
static const char LAST_MODEL[] = "/model";

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

/* Appends one page of round records; *after advances, or becomes -1 at the end. */
static enum tally_status add_page(struct tally_cli *cli, struct tally_json *rounds, int64_t *after,
                                  struct tally_error *err)
{
    char rest[64];
    snprintf(rest, sizeof rest, "/rounds?after=%" PRId64 "&limit=%d", *after, PAGE_ROUNDS);
    struct tally_json *page = NULL;
    enum tally_status status = get_json(cli, rest, &page, err);
    if (status != TALLY_OK) {
        return status;
    }
    const struct tally_json *more = tally_json_get(page, "rounds");
    if (!tally_json_is_array(more)) {
        status = tally_fail(err, TALLY_MALFORMED, NULL, "answer to GET rounds has no rounds");
    }
    for (size_t i = 0; status == TALLY_OK && i < tally_json_size(more); i++) {
        if (!tally_json_append(rounds, tally_json_copy(tally_json_at(more, i)))) {
            status = tally_fail(err, TALLY_NO_MEMORY, NULL, "out of memory");
        }
    }
    int64_t next = tally_json_get_integer(page, "next_after", -1);
    if (status == TALLY_OK && next >= 0 && next <= *after) {
        status = tally_fail(err, TALLY_MALFORMED, NULL,
                            "next_after %" PRId64 " is not above %" PRId64, next, *after);
    }
    *after = next;
    tally_json_free(page);
    return status;
}

static enum tally_status add_rounds(struct tally_cli *cli, struct tally_json *rounds,
                                    struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    for (int64_t after = 0; after >= 0 && status == TALLY_OK;) {
        status = add_page(cli, rounds, &after, err);
    }
    return status;
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
        status = add_rounds(cli, rounds, err);
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
    static const char CHARACTERS[] = "abcdefghijklmnopqrstuvwxyz0123456789";
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
    if (n == 0 || n > 18 || strspn(which, CHARACTERS) != n) {
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

int tally_cli_export(struct tally_cli *cli)
{
    struct tally_error err = TALLY_ERROR_INIT;
    const bool has_model = tally_options_text(cli->options, "model") != NULL;
    int format = has_model ? FORMAT_NPY : FORMAT_CSV;
    char model_rest[64];
    if (tally_options_text(cli->options, "format") != NULL &&
        tally_options_choice(cli->options, "format", FORMAT_NAMES, &format, &err) != TALLY_OK) {
        return tally_cli_report_usage(&err);
    }
    if (write_model_rest(cli, (enum format)format, model_rest, sizeof model_rest, &err) !=
        TALLY_OK) {
        return tally_cli_report_usage(&err);
    }
    if (gather(cli, (enum format)format, model_rest, &err) != TALLY_OK) {
        return tally_cli_report(&err);
    }
    char own_path[128];
    const char *path = tally_options_text(cli->options, "out");
    if (path == NULL) {
        default_path(cli->job, FORMAT_NAMES[format], own_path, sizeof own_path);
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
