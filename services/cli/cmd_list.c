/* tally list: jobs in the coordinator's order, from as many pages as needed. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "codec/record.h"
#include "services/base/labels.h"
#include "services/base/rest_client.h"
#include "services/base/text.h"
#include "services/base/text_table.h"
#include "services/base/time.h"
#include "services/cli/commands.h"
#include "services/cli/result_table.h"

const struct tally_option TALLY_CLI_LIST_OPTIONS[] = {
    {"status", "STATUS", NULL,
     "only jobs of this status: queued, running, paused, completed, failed, cancelled", NULL},
    {"name", "NAME", NULL, "only jobs with exactly this name", NULL},
    {"label", "KEY[=VALUE]...", NULL,
     "only jobs with this label, or with any label of this key; may be given several times", NULL},
    {"sort", "COLUMN", "-created",
     "the order: created, id, name, algorithm, status, time_step, progress, round, regret, loss, "
     "uplink_bits, uplink_bits_per_client, downlink_bits or metric:NAME; with - in front "
     "descending",
     NULL},
    {"limit", "N", "100", "at most N jobs", NULL},
    {"json", NULL, NULL, "print {\"jobs\":[...]} with the jobs' details", NULL},
    {0},
};

/* A page of details has about 100 kB. */
enum { PAGE_JOBS = 100, MAX_JOBS = 1000000 };

/* Query parameters that select jobs: "&status=failed&name=trial&label=team%3Da". */
enum { FILTER_CAPACITY = (3 + TALLY_LABELS_MOST) * TALLY_QUERY_VALUE_CAPACITY };

/* Appends "&label=..." for each label. */
static enum tally_status add_labels(const struct tally_options *options,
                                    char filter[FILTER_CAPACITY], struct tally_error *err)
{
    char encoded[TALLY_QUERY_VALUE_CAPACITY];
    const char *item;
    for (size_t i = 0; (item = tally_options_item(options, "label", i)) != NULL; i++) {
        struct tally_label_filter ignored;
        struct tally_error why = TALLY_ERROR_INIT;
        if (i == TALLY_LABELS_MOST) {
            return tally_options_refuse(options, "label", err, "more than %d labels",
                                        TALLY_LABELS_MOST);
        }
        if (tally_label_filter_parse(item, &ignored, &why) != TALLY_OK) {
            return tally_options_refuse(options, "label", err, "%s", why.message);
        }
        tally_query_value(item, encoded); /* at most 127 bytes: they fit */
        const size_t n = strlen(filter);
        snprintf(filter + n, FILTER_CAPACITY - n, "&label=%s", encoded);
    }
    return TALLY_OK;
}

static enum tally_status read_filter(const struct tally_options *options,
                                     char ret_filter[FILTER_CAPACITY], struct tally_error *err)
{
    enum tally_job_status ignored;
    const char *status = tally_options_text(options, "status");
    const char *name = tally_options_text(options, "name");
    char encoded[TALLY_QUERY_VALUE_CAPACITY] = "";
    if (status != NULL && !tally_job_status_of_name(status, &ignored)) {
        return tally_options_refuse(options, "status", err, "\"%.40s\" is not a status of a job",
                                    status);
    }
    if (name != NULL && !tally_query_value(name, encoded)) {
        return tally_options_refuse(options, "name", err, "is too long");
    }
    snprintf(ret_filter, FILTER_CAPACITY, "%s%s%s%s", status != NULL ? "&status=" : "",
             status != NULL ? status : "", name != NULL ? "&name=" : "", encoded);
    if (tally_options_is_given(options, "sort")) {
        if (!tally_query_value(tally_options_text(options, "sort"), encoded)) {
            return tally_options_refuse(options, "sort", err, "is too long");
        }
        const size_t n = strlen(ret_filter);
        snprintf(ret_filter + n, FILTER_CAPACITY - n, "&sort=%s", encoded);
    }
    return add_labels(options, ret_filter, err);
}

static enum tally_status read_options(const struct tally_options *options,
                                      char ret_filter[FILTER_CAPACITY], int64_t *ret_limit,
                                      struct tally_error *err)
{
    enum tally_status status = read_filter(options, ret_filter, err);
    return status == TALLY_OK ? tally_options_integer(options, "limit", 1, MAX_JOBS, ret_limit, err)
                              : status;
}

/* Appends the jobs of one page to `jobs`; *ret_cursor is the next one, "" at the end. */
static enum tally_status add_page(struct tally_cli *cli, const char *path, struct tally_json *jobs,
                                  int64_t limit, char ret_cursor[TALLY_QUERY_VALUE_CAPACITY],
                                  struct tally_error *err)
{
    struct tally_json *page = NULL;
    enum tally_status status = tally_rest_get_json(&cli->rest, path, &page, err);
    if (status != TALLY_OK) {
        return status;
    }
    const struct tally_json *more = tally_json_get(page, "jobs");
    if (!tally_json_is_array(more)) {
        status = tally_fail(err, TALLY_MALFORMED, NULL, "answer to GET /v1/jobs has no jobs");
    }
    for (size_t i = 0;
         status == TALLY_OK && i < tally_json_size(more) && (int64_t)tally_json_size(jobs) < limit;
         i++) {
        if (!tally_json_append(jobs, tally_json_copy(tally_json_at(more, i)))) {
            status = tally_fail(err, TALLY_NO_MEMORY, NULL, "out of memory");
        }
    }
    const char *cursor = tally_json_get_text(page, "next_cursor");
    /* A page filtered by name or label may be empty although others follow; any other empty page is
     * the last. */
    const bool may_go_on = tally_json_size(more) > 0 || strstr(path, "&name=") != NULL ||
                           strstr(path, "&label=") != NULL;
    ret_cursor[0] = '\0';
    if (status == TALLY_OK && cursor != NULL && may_go_on &&
        !tally_query_value(cursor, ret_cursor)) {
        status = tally_fail(err, TALLY_MALFORMED, NULL, "next_cursor is too long");
    }
    tally_json_free(page);
    return status;
}

static enum tally_status collect(struct tally_cli *cli, const char *filter, int64_t limit,
                                 struct tally_json *jobs, struct tally_error *err)
{
    char cursor[TALLY_QUERY_VALUE_CAPACITY] = "";
    enum tally_status status = TALLY_OK;
    char previous[TALLY_QUERY_VALUE_CAPACITY] = "";
    bool more = true;
    while (more && status == TALLY_OK) {
        memcpy(previous, cursor, sizeof previous);
        int64_t left = limit - (int64_t)tally_json_size(jobs);
        char path[FILTER_CAPACITY + TALLY_QUERY_VALUE_CAPACITY + 64];
        snprintf(path, sizeof path, "/v1/jobs?limit=%" PRId64 "%s%s%s",
                 left < PAGE_JOBS ? left : (int64_t)PAGE_JOBS, filter,
                 cursor[0] != '\0' ? "&cursor=" : "", cursor);
        status = add_page(cli, path, jobs, limit, cursor, err);
        more = cursor[0] != '\0' && strcmp(cursor, previous) != 0 &&
               (int64_t)tally_json_size(jobs) < limit;
    }
    return status;
}

static void add_cell(struct tally_text_table *table, const struct tally_json *object,
                     const char *key)
{
    char cell[TALLY_RESULT_CELL_CAPACITY];
    tally_result_cell(object, key, cell);
    tally_text_table_add(table, cell);
}

static void add_row(struct tally_text_table *table, const struct tally_json *job)
{
    char time_step[TALLY_RESULT_CELL_CAPACITY], horizon[TALLY_RESULT_CELL_CAPACITY];
    char created[TALLY_TIMESTAMP_CAPACITY];
    add_cell(table, job, "id");
    add_cell(table, job, "name");
    add_cell(table, tally_json_get(job, "algorithm"), "type");
    add_cell(table, job, "status");
    tally_result_cell(job, "time_step", time_step);
    tally_result_cell(job, "horizon", horizon);
    tally_text_table_printf(table, "%s/%s", time_step, horizon);
    add_cell(table, job, "round");
    const double regret = tally_json_get_real(job, "cumulative_regret", NAN);
    tally_text_table_printf(table, isnan(regret) ? "unknown" : "%.6g", regret);
    const double loss = tally_json_get_real(job, "loss", NAN);
    tally_text_table_printf(table, isnan(loss) ? "-" : "%.6g", loss);
    add_cell(table, tally_json_get(tally_json_get(job, "bits"), "uplink"), "payload");
    tally_timestamp_format(tally_json_get_integer(job, "created_ms", 0), created);
    tally_text_table_add(table, created);
}

static int print_table(const struct tally_json *jobs)
{
    struct tally_text_table table;
    struct tally_buffer text = {0};
    tally_text_table_init(
        &table, "llllrrrrrl",
        "ID,NAME,ALGORITHM,STATUS,TIME STEP,ROUND,REGRET,LOSS,UPLINK BITS,CREATED");
    /* CREATED, ALGORITHM, UPLINK BITS, ROUND, TIME STEP, NAME; id, status, regret and loss stay. */
    tally_text_table_fit(&table, tally_terminal_columns(fileno(stdout)), "jcifeb");
    for (size_t i = 0; i < tally_json_size(jobs); i++) {
        add_row(&table, tally_json_at(jobs, i));
    }
    return tally_cli_print(tally_text_table_end(&table, &text), &text);
}

/* {"jobs":[...]}; takes `jobs`. */
static int print_json(struct tally_json *jobs)
{
    struct tally_json *answer = tally_json_object();
    const bool ok = tally_json_set(answer, "jobs", jobs);
    return tally_cli_take_json(tally_json_if_complete(answer, ok));
}

int tally_cli_list(struct tally_cli *cli)
{
    char filter[FILTER_CAPACITY];
    int64_t limit = 0;
    struct tally_error err = TALLY_ERROR_INIT;
    if (read_options(cli->options, filter, &limit, &err) != TALLY_OK) {
        return tally_cli_report_usage(&err);
    }
    struct tally_json *jobs = tally_json_array();
    int exit_code;
    if (collect(cli, filter, limit, jobs, &err) != TALLY_OK) {
        exit_code = tally_cli_report(&err);
    } else if (tally_options_bool(cli->options, "json")) {
        return print_json(jobs);
    } else {
        exit_code = print_table(jobs);
    }
    tally_json_free(jobs);
    return exit_code;
}
