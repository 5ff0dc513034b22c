/* tally compare A B: what differs between two jobs: in their documents, in the programs and
 * machines that ran them, in their data, and in their results. */
#include <stdio.h>
#include <string.h>

#include "services/base/text_table.h"
#include "services/cli/commands.h"
#include "services/cli/job_source.h"

const struct tally_option TALLY_CLI_COMPARE_OPTIONS[] = {
    {"json", NULL, NULL,
     "print {\"document\": [...], \"environment\": [...], \"result\": [...]}, each a list of "
     "{\"path\", \"a\", \"b\"}",
     NULL},
    {0},
};

/* The differences of one section, to be shown. */
struct section {
    struct tally_json *list;
    bool ok; /* memory has sufficed */
};

static void add(void *context, const char *path, const struct tally_json *a,
                const struct tally_json *b)
{
    struct section *section = context;
    struct tally_json *entry = tally_json_object();
    bool ok = tally_json_set_text(entry, "path", path);
    ok = (a != NULL ? tally_json_set(entry, "a", tally_json_copy(a))
                    : tally_json_set_null(entry, "a")) &&
         ok;
    ok = (b != NULL ? tally_json_set(entry, "b", tally_json_copy(b))
                    : tally_json_set_null(entry, "b")) &&
         ok;
    section->ok =
        tally_json_append(section->list, tally_json_if_complete(entry, ok)) && section->ok;
}

/* The digests of the data, if both are known. */
static int compare_data(const struct tally_json *a, const struct tally_json *b,
                        struct section *section)
{
    const char *digests[] = {tally_detail_data(a), tally_detail_data(b)};
    if (digests[0] == NULL || digests[1] == NULL || strcmp(digests[0], digests[1]) == 0) {
        return 0;
    }
    struct tally_json *values[] = {tally_json_text(digests[0]), tally_json_text(digests[1])};
    add(section, "data", values[0], values[1]);
    tally_json_free(values[0]);
    tally_json_free(values[1]);
    return 1;
}

enum { DOCUMENT, ENVIRONMENT, RESULT, N_SECTIONS };
static const char *const NAMES[] = {"document", "environment", "result"};

static int print_sections(const struct section sections[N_SECTIONS])
{
    char a[TALLY_DIFFERENCE_CAPACITY], b[TALLY_DIFFERENCE_CAPACITY];
    struct tally_buffer text = {0};
    struct tally_text_table table;
    tally_text_table_init(&table, "llll", "");
    for (int s = 0; s < N_SECTIONS; s++) {
        const size_t n = tally_json_size(sections[s].list);
        if (n == 0) {
            tally_text_table_printf(&table, "%s\tthe same", NAMES[s]);
            tally_text_table_end_row(&table);
        }
        for (size_t i = 0; i < n; i++) {
            const struct tally_json *each = tally_json_at(sections[s].list, i);
            tally_difference_cell(tally_json_get(each, "a"), a);
            tally_difference_cell(tally_json_get(each, "b"), b);
            tally_text_table_add(&table, i == 0 ? NAMES[s] : "");
            tally_text_table_add(&table, tally_json_get_text(each, "path"));
            tally_text_table_add(&table, a);
            tally_text_table_add(&table, b);
        }
    }
    return tally_cli_print(tally_text_table_end(&table, &text), &text);
}

static int print_json(struct section sections[N_SECTIONS])
{
    struct tally_json *answer = tally_json_object();
    bool ok = true;
    for (int s = 0; s < N_SECTIONS; s++) {
        ok = tally_json_set(answer, NAMES[s], tally_json_copy(sections[s].list)) && ok;
    }
    return tally_cli_take_json(tally_json_if_complete(answer, ok));
}

static int compare(struct tally_cli *cli, const struct tally_job_source jobs[2])
{
    struct section sections[N_SECTIONS];
    int n = 0;
    bool ok = true;
    for (int s = 0; s < N_SECTIONS; s++) {
        sections[s] = (struct section){tally_json_array(), true};
    }
    const struct tally_json *a = jobs[0].detail, *b = jobs[1].detail;
    n += tally_differences(jobs[0].document, jobs[1].document, add, &sections[DOCUMENT]);
    n += tally_program_differences(a, b, add, &sections[ENVIRONMENT]);
    n += compare_data(a, b, &sections[ENVIRONMENT]);
    n += tally_result_differences(a, b, add, &sections[RESULT]);
    for (int s = 0; s < N_SECTIONS; s++) {
        ok = ok && sections[s].ok && sections[s].list != NULL;
    }
    struct tally_buffer none = {0};
    int exit_code = !ok ? tally_cli_print(TALLY_NO_MEMORY, &none)
                    : tally_options_bool(cli->options, "json") ? print_json(sections)
                                                               : print_sections(sections);
    for (int s = 0; s < N_SECTIONS; s++) {
        tally_json_free(sections[s].list);
    }
    return exit_code == TALLY_EXIT_OK && n > 0 ? TALLY_EXIT_FAILED : exit_code;
}

int tally_cli_compare(struct tally_cli *cli)
{
    struct tally_job_source jobs[2] = {{NULL, NULL}, {NULL, NULL}};
    struct tally_error err = TALLY_ERROR_INIT;
    enum tally_status status = TALLY_OK;
    for (int i = 0; status == TALLY_OK && i < 2; i++) {
        status =
            tally_job_source_read(cli, tally_options_positional(cli->options, i), &jobs[i], &err);
    }
    const int exit_code = status == TALLY_OK ? compare(cli, jobs) : tally_cli_report(&err);
    tally_job_source_fini(&jobs[0]);
    tally_job_source_fini(&jobs[1]);
    return exit_code;
}
