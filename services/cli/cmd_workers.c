/* tally workers: the connected workers, newest first, from as many pages as needed. */
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "codec/utf8.h"
#include "services/base/rest_client.h"
#include "services/base/text.h"
#include "services/base/text_table.h"
#include "services/cli/commands.h"
#include "services/cli/result_table.h"

const struct tally_option TALLY_CLI_WORKERS_OPTIONS[] = {
    {"json", NULL, NULL, "print {\"workers\":[...], ...} as the coordinator gives them", NULL},
    {0},
};

/* The first page, with the workers of all pages. Errors: those of tally_rest_get_json(). */
static enum tally_status collect(struct tally_cli *cli, struct tally_json **ret_workers,
                                 struct tally_error *err)
{
    enum tally_status status = tally_rest_get_json(&cli->rest, "/v1/workers", ret_workers, err);
    char cursor[TALLY_QUERY_VALUE_CAPACITY];
    const struct tally_json *page = *ret_workers;
    struct tally_json *next = NULL, *all = tally_json_array();
    while (status == TALLY_OK) {
        const struct tally_json *workers = tally_json_get(page, "workers");
        for (size_t i = 0; i < tally_json_size(workers); i++) {
            if (!tally_json_append(all, tally_json_copy(tally_json_at(workers, i)))) {
                status = tally_fail(err, TALLY_NO_MEMORY, NULL, "out of memory");
            }
        }
        const char *text = tally_json_get_text(page, "next_cursor");
        if (status != TALLY_OK || text == NULL || tally_json_size(workers) == 0 ||
            !tally_query_value(text, cursor)) {
            break;
        }
        char path[TALLY_QUERY_VALUE_CAPACITY + 32];
        snprintf(path, sizeof path, "/v1/workers?cursor=%s", cursor);
        tally_json_free(next);
        next = NULL;
        status = tally_rest_get_json(&cli->rest, path, &next, err);
        page = next;
    }
    tally_json_free(next);
    if (!tally_json_set(*ret_workers, "workers", all) ||
        !tally_json_set_null(*ret_workers, "next_cursor")) {
        status = tally_fail(err, TALLY_NO_MEMORY, NULL, "out of memory");
    }
    return status;
}

static void add_cell(struct tally_text_table *table, const struct tally_json *worker,
                     const char *key)
{
    char cell[TALLY_RESULT_CELL_CAPACITY];
    tally_result_cell(worker, key, cell);
    tally_text_table_add(table, cell);
}

static void add_row(struct tally_text_table *table, const struct tally_json *worker)
{
    const struct tally_json *refuses = tally_json_get(worker, "refuses");
    add_cell(table, worker, "name");
    add_cell(table, worker, "state");
    add_cell(table, worker, "slots");
    add_cell(table, worker, "free_slots");
    tally_text_table_printf(table, "%zu", tally_json_size(refuses));
    tally_text_table_printf(table, "%.1f s",
                            tally_json_get_real(worker, "last_contact_age_ms", 0) / 1000);
    add_cell(table, worker, "pinned_job");
}

/* Names a worker that another of the same name replaces again and again. */
static void warn_of_rival(const struct tally_json *worker)
{
    const struct tally_json *rival = tally_json_get(worker, "rival");
    const char *other = tally_json_get_text(rival, "address");
    const char *name = tally_json_get_text(worker, "name");
    const char *address = tally_json_get_text(worker, "address");
    char line[512];
    if (other != NULL && name != NULL && address != NULL) {
        snprintf(line, sizeof line,
                 "two workers have the name %s, at %s and at %s, and replace "
                 "each other: give each a --name of its own",
                 name, address, other);
        tally_utf8_sanitize_line(line);
        fprintf(stderr, "%s\n", line);
    }
}

static int print_table(const struct tally_json *answer)
{
    struct tally_text_table table;
    struct tally_buffer text = {0};
    const struct tally_json *workers = tally_json_get(answer, "workers");
    tally_text_table_init(&table, "llrrrrl", "NAME,STATE,SLOTS,FREE,REFUSED,LAST CONTACT,ONLY JOB");
    /* REFUSED, ONLY JOB, LAST CONTACT, STATE; name and slots stay. */
    tally_text_table_fit(&table, tally_terminal_columns(STDOUT_FILENO), "egfb");
    for (size_t i = 0; i < tally_json_size(workers); i++) {
        add_row(&table, tally_json_at(workers, i));
    }
    const int exit_code = tally_cli_print(tally_text_table_end(&table, &text), &text);
    for (size_t i = 0; i < tally_json_size(workers); i++) {
        warn_of_rival(tally_json_at(workers, i));
    }
    if (tally_json_size(workers) == 0) {
        fprintf(stderr, "no worker is connected; start one with tally-worker\n");
    }
    return exit_code;
}

int tally_cli_workers(struct tally_cli *cli)
{
    struct tally_json *answer = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    int exit_code;
    if (collect(cli, &answer, &err) != TALLY_OK) {
        exit_code = tally_cli_report(&err);
    } else {
        exit_code = tally_options_bool(cli->options, "json") ? tally_cli_print_json(answer, 2)
                                                             : print_table(answer);
    }
    tally_json_free(answer);
    return exit_code;
}
