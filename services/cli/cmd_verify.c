/* tally verify FILE|ID: runs a job again in this process, and compares the results. */
#include <stdio.h>
#include <string.h>

#include "codec/numeric/checksum.h"
#include "services/base/bundle.h"
#include "services/base/text_table.h"
#include "services/cli/cmd_simulate.h"
#include "services/cli/commands.h"
#include "services/cli/job_source.h"
#include "services/job/job_detail.h"

const struct tally_option TALLY_CLI_VERIFY_OPTIONS[] = {
    {"data-dir", "DIR", "data", "folder of the data files that job documents name", NULL},
    {"plugin", "FILE...", NULL,
     "shared object with a plug-in, for plugin objectives of its name; may be given several times, "
     "or as FILE:FILE in the environment and in config files",
     NULL},
    {0},
};

/* Fails if no run here can give the results of the job: a run depends on nothing but its document
 * and data, unless time or the order of arrivals has decided. */
static enum tally_status check(const struct tally_json *detail, const struct tally_job_spec *spec,
                               struct tally_error *err)
{
    const char *status = tally_json_get_text(detail, "status");
    const struct tally_json *stopped = tally_json_get(detail, "stopped_by");
    const char *rule = tally_json_get_text(stopped, "rule");
    if (status == NULL) {
        return tally_fail(err, TALLY_FAILED_PRECONDITION, NULL,
                          "this is only a document, without results; tally simulate runs it");
    }
    if (strcmp(status, "completed") != 0) {
        return tally_fail(err, TALLY_FAILED_PRECONDITION, NULL,
                          "the job is %.20s: only a completed job can be verified", status);
    }
    if (spec->objective.type == TALLY_TRAINING) {
        return tally_fail(err, TALLY_FAILED_PRECONDITION, NULL,
                          "its clients train by loops of their own, which only the workers have");
    }
    if (spec->initial_point.type == TALLY_INITIAL_JOB) {
        return tally_fail(err, TALLY_FAILED_PRECONDITION, NULL,
                          "it starts from the model of another job, which is not here");
    }
    if (rule != NULL && strcmp(rule, "seconds") == 0) {
        return tally_fail(err, TALLY_FAILED_PRECONDITION, NULL,
                          "the rule stop.seconds has ended it, so its result depends on time");
    }
    return TALLY_OK;
}

/* Fails if the model in a bundle is not the one that its detail is about. */
static enum tally_status check_model(const char *path, const struct tally_json *detail,
                                     struct tally_error *err)
{
    enum { MOST_BYTES = TALLY_NPY_HEADER_BYTES + TALLY_MAX_DIM * (int)sizeof(double) };
    struct tally_buffer model = {.limit = MOST_BYTES};
    const char *expected = tally_json_get_text(detail, "x_checksum");
    char checksum[17] = "";
    enum tally_status status = tally_bundle_read(path, "model.npy", &model, err);
    if (status == TALLY_OK && model.size > TALLY_NPY_HEADER_BYTES) {
        tally_detail_checksum(tally_checksum64(model.data + TALLY_NPY_HEADER_BYTES,
                                               model.size - TALLY_NPY_HEADER_BYTES),
                              checksum);
    }
    tally_buffer_fini(&model);
    return status != TALLY_OK || (expected != NULL && strcmp(expected, checksum) == 0)
               ? status
               : tally_fail(err, TALLY_DATA_LOSS, NULL,
                            "the bundle is damaged: the checksum of model.npy is %s, not %.16s",
                            checksum, expected != NULL ? expected : "known");
}

static void add_row(void *context, const char *path, const struct tally_json *a,
                    const struct tally_json *b)
{
    char cells[2][TALLY_DIFFERENCE_CAPACITY];
    struct tally_text_table *table = context;
    tally_difference_cell(a, cells[0]);
    tally_difference_cell(b, cells[1]);
    tally_text_table_add(table, path);
    tally_text_table_add(table, cells[0]);
    tally_text_table_add(table, cells[1]);
}

static void add_text_row(struct tally_text_table *table, const char *first, const char *second)
{
    tally_text_table_add(table, first);
    tally_text_table_add(table, second);
    tally_text_table_end_row(table);
}

/* What may be why, besides the programs and machines. */
static void add_causes(struct tally_text_table *table, const struct tally_json *job,
                       const struct tally_json *again, const struct tally_job_spec *spec)
{
    const char *data[] = {tally_detail_data(job), tally_detail_data(again)};
    if (data[0] != NULL && data[1] != NULL) {
        add_text_row(table, "data", strcmp(data[0], data[1]) == 0 ? "the same" : "other data");
    } else if (data[1] != NULL) {
        add_text_row(table, "data", "not known of the job");
    }
    if (spec->policy != TALLY_POLICY_WAIT) {
        add_text_row(table, "policy", "lets rounds do without clients, so that arrivals count");
    }
}

static int print_report(const struct tally_json *job, const struct tally_json *again,
                        const struct tally_job_spec *spec)
{
    struct tally_text_table table;
    struct tally_buffer text = {0};
    const char *checksum = tally_json_get_text(again, "x_checksum");
    tally_text_table_init(&table, "lll", ",JOB,HERE");
    const int n_results = tally_result_differences(job, again, add_row, &table);
    const int n_programs = tally_program_differences(job, again, add_row, &table);
    add_causes(&table, job, again, spec);
    enum tally_status status = TALLY_OK;
    if (n_results == 0) {
        status = tally_buffer_printf(&text, "verified: x_checksum %s, %lld rounds\n",
                                     checksum != NULL ? checksum : "-",
                                     (long long)tally_json_get_integer(again, "round", 0));
    } else {
        status = tally_buffer_append_text(&text, "NOT the same result\n");
    }
    if (status == TALLY_OK && (n_results > 0 || n_programs > 0)) {
        status = tally_text_table_end(&table, &text);
    } else {
        struct tally_buffer unused = {0};
        tally_text_table_end(&table, &unused);
        tally_buffer_fini(&unused);
    }
    const int exit_code = tally_cli_print(status, &text);
    return exit_code == TALLY_EXIT_OK && n_results > 0 ? TALLY_EXIT_FAILED : exit_code;
}

int tally_cli_verify(struct tally_cli *cli)
{
    struct tally_job_source job;
    struct tally_job_spec spec;
    struct tally_json *again = NULL;
    struct tally_error why = TALLY_ERROR_INIT, err = TALLY_ERROR_INIT;
    const char *word = tally_options_positional(cli->options, 0);
    enum tally_status status = tally_job_source_read(cli, word, &job, &err);
    if (status == TALLY_OK) {
        status = tally_job_source_spec(&job, &spec, &why);
        status = status == TALLY_OK ? check(job.detail, &spec, &why) : status;
        if (status == TALLY_OK && tally_job_source_is_file(word) && tally_bundle_is_one(word)) {
            status = check_model(word, job.detail, &why);
        }
        status = status == TALLY_OK ? tally_cli_simulate_spec(cli->options, &spec, &again, &why)
                                    : status;
        if (status != TALLY_OK) {
            tally_fail(&err, status, NULL, "cannot verify: %s", why.message);
        }
    }
    const int exit_code =
        status == TALLY_OK ? print_report(job.detail, again, &spec) : tally_cli_report(&err);
    tally_json_free(again);
    tally_job_source_fini(&job);
    return exit_code;
}
