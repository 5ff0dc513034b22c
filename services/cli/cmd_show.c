/* tally show ID: the result table, or the detail or the document as JSON; with --clients the
 * metrics of each client, with --traffic what each has sent and received, from as many pages as
 * needed. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "codec/record.h"
#include "services/base/text.h"
#include "services/base/text_table.h"
#include "services/cli/commands.h"
#include "services/cli/job_source.h"
#include "services/cli/result_table.h"

const struct tally_option TALLY_CLI_SHOW_OPTIONS[] = {
    {"json", NULL, NULL, "print the job's detail as JSON", NULL},
    {"document", NULL, NULL,
     "print the job's document alone, with every default: submitted again, it gives the same job",
     NULL},
    {"clients", NULL, NULL,
     "show what each client reported in the last round that has metrics, instead", NULL},
    {"traffic", NULL, NULL,
     "show each client's traffic instead: accepted updates, payload bits, bytes that the "
     "coordinator received from it and sent to it",
     NULL},
    {0},
};

static int print_table(const struct tally_json *detail)
{
    struct tally_buffer text = {0};
    return tally_cli_print(
        tally_result_table_fit(detail, tally_terminal_columns(STDOUT_FILENO), &text), &text);
}

/* Metrics and traffic of single clients. */

enum { PAGE_CLIENTS = 1000, MOST_STARTS = 20 };

static enum tally_status append_page(const struct tally_json *page, struct tally_json *all,
                                     struct tally_error *err)
{
    const struct tally_json *clients = tally_json_get(page, "clients");
    for (size_t i = 0; i < tally_json_size(clients); i++) {
        if (!tally_json_append(all, tally_json_copy(tally_json_at(clients, i)))) {
            return tally_fail(err, TALLY_NO_MEMORY, NULL, "out of memory");
        }
    }
    return TALLY_OK;
}

/* Returns the last page, with the clients of all pages. All metrics are of one round: if another
 * round closes meanwhile, the pages are read again. The caller frees *ret_answer in any case. */
static enum tally_status collect_clients(struct tally_cli *cli, const char *what,
                                         struct tally_json **ret_answer, struct tally_error *err)
{
    struct tally_json *page = NULL, *all = NULL;
    enum tally_status status = TALLY_OK;
    int64_t round = 0;
    int n_starts = 0;
    for (int64_t first = 0; status == TALLY_OK && first >= 0;) {
        char rest[64];
        tally_json_free(page);
        page = NULL;
        snprintf(rest, sizeof rest, "/%s?first=%" PRId64 "&limit=%d", what, first, PAGE_CLIENTS);
        status = tally_job_get_json(&cli->rest, cli->job, rest, &page, err);
        const int64_t page_round = tally_json_get_integer(page, "round", 0);
        if (first == 0) {
            tally_json_free(all);
            all = tally_json_array();
            round = page_round;
            n_starts++;
        } else if (page_round != round) {
            first = 0;
            if (status == TALLY_OK && n_starts == MOST_STARTS) {
                status = tally_fail(err, TALLY_UNAVAILABLE, NULL,
                                    "rounds close faster than their clients can be read");
            }
            continue;
        }
        status = status == TALLY_OK ? append_page(page, all, err) : status;
        const int64_t next = tally_json_get_integer(page, "next_client", -1);
        first = next > first ? next : -1;
    }
    if (status != TALLY_OK) {
        tally_json_free(all);
    } else if (!tally_json_set(page, "clients", all) || !tally_json_set_null(page, "next_client")) {
        status = tally_fail(err, TALLY_NO_MEMORY, NULL, "out of memory");
    }
    *ret_answer = page;
    return status;
}

struct metric_names {
    const char *names[TALLY_METRICS_MOST]; /* ascending; of the JSON */
    size_t n;
};

static void add_name(struct metric_names *names, const char *name)
{
    size_t at = 0;
    while (at < names->n && strcmp(names->names[at], name) < 0) {
        at++;
    }
    if (names->n == TALLY_METRICS_MOST || (at < names->n && strcmp(names->names[at], name) == 0)) {
        return;
    }
    memmove(&names->names[at + 1], &names->names[at], (names->n - at) * sizeof names->names[0]);
    names->names[at] = name;
    names->n++;
}

static struct metric_names names_of(const struct tally_json *clients)
{
    struct metric_names names = {.n = 0};
    for (size_t i = 0; i < tally_json_size(clients); i++) {
        const struct tally_json *metrics = tally_json_get(tally_json_at(clients, i), "metrics");
        const char *name;
        for (size_t k = 0; (name = tally_json_key(metrics, k)) != NULL; k++) {
            add_name(&names, name);
        }
    }
    return names;
}

/* CLIENT and a column for each metric; a narrow terminal omits the last ones. */
static int print_clients(const struct tally_json *answer)
{
    static const char ALIGNMENT[] = "rrrrrrrrrrrrrrrrr", LEAVES[] = "qponmlkjihgfedc";
    _Static_assert(sizeof ALIGNMENT == 2 + TALLY_METRICS_MOST, "a letter for every column");
    const struct tally_json *clients = tally_json_get(answer, "clients");
    const struct metric_names names = names_of(clients);
    struct tally_text_table table;
    struct tally_buffer text = {0};
    char cell[TALLY_RESULT_CELL_CAPACITY];
    tally_text_table_init(&table, ALIGNMENT + TALLY_METRICS_MOST - names.n, "CLIENT");
    tally_text_table_fit(&table, tally_terminal_columns(STDOUT_FILENO),
                         names.n < 2 ? "" : LEAVES + TALLY_METRICS_MOST - names.n);
    for (size_t k = 0; k < names.n; k++) {
        tally_text_table_add(&table, names.names[k]);
    }
    for (size_t i = 0; i < tally_json_size(clients); i++) {
        const struct tally_json *client = tally_json_at(clients, i);
        tally_result_cell(client, "client", cell);
        tally_text_table_add(&table, cell);
        for (size_t k = 0; k < names.n; k++) {
            tally_result_cell(tally_json_get(client, "metrics"), names.names[k], cell);
            tally_text_table_add(&table, cell);
        }
    }
    const int exit_code = tally_cli_print(tally_text_table_end(&table, &text), &text);
    if (tally_json_size(clients) == 0) {
        fprintf(stderr, "no client has reported a metric\n");
    }
    return exit_code;
}

static void add_bytes(struct tally_text_table *table, const struct tally_json *bytes)
{
    char cell[TALLY_RESULT_CELL_CAPACITY];
    tally_result_cell(bytes, "in", cell);
    tally_text_table_add(table, cell);
    tally_result_cell(bytes, "out", cell);
    tally_text_table_add(table, cell);
}

/* A line for each client, and one for the traffic that belongs to no client, if any. */
static int print_traffic(const struct tally_json *answer)
{
    static const char *const KEYS[] = {"client", "updates", "payload_bits"};
    const struct tally_json *clients = tally_json_get(answer, "clients");
    const struct tally_json *others = tally_json_get(answer, "other_wire_bytes");
    struct tally_text_table table;
    struct tally_buffer text = {0};
    char cell[TALLY_RESULT_CELL_CAPACITY];
    tally_text_table_init(&table, "rrrrr", "CLIENT,UPDATES,PAYLOAD BITS,BYTES IN,BYTES OUT");
    for (size_t i = 0; i < tally_json_size(clients); i++) {
        const struct tally_json *client = tally_json_at(clients, i);
        for (size_t k = 0; k < sizeof KEYS / sizeof *KEYS; k++) {
            tally_result_cell(client, KEYS[k], cell);
            tally_text_table_add(&table, cell);
        }
        add_bytes(&table, tally_json_get(client, "wire_bytes"));
    }
    if (tally_json_get_integer(others, "in", 0) + tally_json_get_integer(others, "out", 0) > 0) {
        tally_text_table_add(&table, "other");
        tally_text_table_add(&table, "-");
        tally_text_table_add(&table, "-");
        add_bytes(&table, others);
    }
    return tally_cli_print(tally_text_table_end(&table, &text), &text);
}

static int show_clients(struct tally_cli *cli, bool is_traffic)
{
    struct tally_json *answer = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    int exit_code;
    if (collect_clients(cli, is_traffic ? "traffic" : "metrics", &answer, &err) != TALLY_OK) {
        exit_code = tally_cli_report(&err);
    } else if (tally_options_bool(cli->options, "json")) {
        exit_code = tally_cli_print_json(answer, 2);
    } else {
        exit_code = is_traffic ? print_traffic(answer) : print_clients(answer);
    }
    tally_json_free(answer);
    return exit_code;
}

static int show_job(const struct tally_cli *cli, const struct tally_json *job, bool is_document)
{
    return is_document || tally_options_bool(cli->options, "json") ? tally_cli_print_json(job, 2)
                                                                   : print_table(job);
}

static int show_file(struct tally_cli *cli, const char *part, bool is_document)
{
    struct tally_job_source job = {NULL, NULL};
    struct tally_error err = TALLY_ERROR_INIT;
    if (part != NULL && !is_document) {
        tally_fail(&err, TALLY_INVALID_ARGUMENT, NULL, "--%s: a file does not have it", part);
        return tally_cli_report_usage(&err);
    }
    const enum tally_status status =
        tally_job_source_read(cli, tally_options_positional(cli->options, 0), &job, &err);
    const int exit_code = status == TALLY_OK
                              ? show_job(cli, is_document ? job.document : job.detail, is_document)
                              : tally_cli_report(&err);
    tally_job_source_fini(&job);
    return exit_code;
}

int tally_cli_show(struct tally_cli *cli)
{
    static const char *const PARTS[] = {"document", "clients", "traffic"};
    struct tally_json *answer = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    const char *part = NULL;
    for (size_t i = 0; i < sizeof PARTS / sizeof *PARTS; i++) {
        if (!tally_options_bool(cli->options, PARTS[i])) {
            continue;
        }
        if (part != NULL) {
            tally_fail(&err, TALLY_INVALID_ARGUMENT, NULL, "--%s and --%s: choose one", part,
                       PARTS[i]);
            return tally_cli_report_usage(&err);
        }
        part = PARTS[i];
    }
    const bool is_document = part == PARTS[0];
    if (tally_job_source_is_file(tally_options_positional(cli->options, 0))) {
        return show_file(cli, part, is_document);
    }
    if (part != NULL && !is_document) {
        return show_clients(cli, part == PARTS[2]);
    }
    if (tally_job_get_json(&cli->rest, cli->job, is_document ? "/document" : "", &answer, &err) !=
        TALLY_OK) {
        return tally_cli_report(&err);
    }
    const int exit_code = show_job(cli, answer, is_document);
    tally_json_free(answer);
    return exit_code;
}
