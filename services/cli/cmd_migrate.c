/* tally migrate: copies a SQLite store into a PostgreSQL database. */
#include <inttypes.h>
#include <stdio.h>

#include "services/base/progress_bar.h"
#include "services/base/text_table.h"
#include "services/cli/commands.h"
#include "storage/migrate.h"

const struct tally_option TALLY_CLI_MIGRATE_OPTIONS[] = {
    {"json", NULL, NULL, "print counts and checksums as JSON", NULL},
    {0},
};

enum { COUNT_CAPACITY = 24, CHECKSUM_CAPACITY = 17 };

static const char *outcome_of(const struct tally_migrate_report *report)
{
    return report->was_there ? "already there" : "migrated";
}

static void format(const struct tally_table_digest *digest, bool is_known,
                   char ret_rows[COUNT_CAPACITY], char ret_checksum[CHECKSUM_CAPACITY])
{
    snprintf(ret_rows, COUNT_CAPACITY, "%" PRId64, digest->n_rows);
    snprintf(ret_checksum, CHECKSUM_CAPACITY, "%016" PRIx64, digest->checksum);
    if (!is_known) {
        ret_rows[0] = ret_checksum[0] = '-';
        ret_rows[1] = ret_checksum[1] = '\0';
    }
}

static void add_side(struct tally_text_table *table, const struct tally_table_digest *digest,
                     bool is_known)
{
    char rows[COUNT_CAPACITY];
    char checksum[CHECKSUM_CAPACITY];
    format(digest, is_known, rows, checksum);
    tally_text_table_add(table, rows);
    tally_text_table_add(table, checksum);
}

static int print_table(const struct tally_migrate_report *report)
{
    struct tally_text_table table;
    struct tally_buffer text = {0};
    tally_text_table_init(&table, "lrlrl", "TABLE,ROWS,CHECKSUM,IN TARGET,CHECKSUM");
    for (int i = 0; i < TALLY_N_TABLES; i++) {
        tally_text_table_add(&table, TALLY_TABLE_NAMES[i]);
        add_side(&table, &report->source[i], report->has_source);
        add_side(&table, &report->target[i], report->has_target);
    }
    return tally_cli_print(tally_text_table_end(&table, &text), &text);
}

static struct tally_json *side_json(const struct tally_table_digest *digest, bool is_known)
{
    char rows[COUNT_CAPACITY];
    char checksum[CHECKSUM_CAPACITY];
    struct tally_json *side = tally_json_object();
    format(digest, is_known, rows, checksum);
    if (is_known) {
        tally_json_set_integer(side, "rows", digest->n_rows);
        tally_json_set_text(side, "checksum", checksum);
    } else {
        tally_json_set_null(side, "rows");
        tally_json_set_null(side, "checksum");
    }
    return side;
}

static int print_json(const struct tally_migrate_report *report, enum tally_status status)
{
    struct tally_json *answer = tally_json_object();
    struct tally_json *tables = tally_json_array();
    bool ok = true;
    for (int i = 0; i < TALLY_N_TABLES; i++) {
        struct tally_json *table = tally_json_object();
        ok = tally_json_set_text(table, "table", TALLY_TABLE_NAMES[i]) && ok;
        ok = tally_json_set(table, "source", side_json(&report->source[i], report->has_source)) &&
             ok;
        ok = tally_json_set(table, "target", side_json(&report->target[i], report->has_target)) &&
             ok;
        ok = tally_json_append(tables, table) && ok;
    }
    const char *outcome = status == TALLY_OK ? outcome_of(report) : NULL;
    ok = tally_json_set_text_or_null(answer, "outcome", outcome) && ok;
    ok = tally_json_set_integer(answer, "copied_rows", report->n_copied_rows) && ok;
    ok = tally_json_set(answer, "tables", tables) && ok;
    return tally_cli_take_json(tally_json_if_complete(answer, ok));
}

/* Prints the tables, even if the verification failed. */
static int print(const struct tally_cli *cli, const struct tally_migrate_report *report,
                 enum tally_status status)
{
    if (tally_options_bool(cli->options, "json")) {
        return print_json(report, status);
    }
    const int exit_code = print_table(report);
    if (exit_code == TALLY_EXIT_OK && status == TALLY_OK) {
        fprintf(stderr,
                "%s: %" PRId64 " rows copied; all rows of the target are as in the source\n",
                outcome_of(report), report->n_copied_rows);
    }
    return exit_code;
}

int tally_cli_migrate(struct tally_cli *cli)
{
    const char *from = tally_options_positional(cli->options, 0);
    const char *to = tally_options_positional(cli->options, 1);
    struct tally_store_bar bar;
    struct tally_migrate_report report;
    struct tally_error err = TALLY_ERROR_INIT;
    tally_store_bar_init(&bar);
    enum tally_status status = tally_store_migrate(from, to, &bar.base, &report, &err);
    tally_store_bar_end(&bar);
    if (status == TALLY_INVALID_ARGUMENT) {
        return tally_cli_report_usage(&err);
    }
    int exit_code = TALLY_EXIT_OK;
    if (status == TALLY_OK || report.has_target) {
        exit_code = print(cli, &report, status);
    }
    return status == TALLY_OK ? exit_code : tally_cli_report(&err);
}
