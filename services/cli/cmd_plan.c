/* tally plan FILE: the regret that a CALM job can expect for its bits, computed without running
 * it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "services/algorithms/calm.h"
#include "services/cli/commands.h"
#include "services/cli/document_text.h"
#include "services/cli/out_folder.h"
#include "services/cli/plan_report.h"
#include "services/job/job_spec.h"

enum { MAX_BUDGETS = 32 };
#define MAX_BITS 1e15

const struct tally_option TALLY_CLI_PLAN_OPTIONS[] = {
    {"uplink-bits", "A,B,...", NULL,
     "budgets of each client to plan for; that of the document unless given", NULL},
    {"downlink-bits", "A,B,...", NULL,
     "budgets of the broadcasts, one for each of --uplink-bits or one for all; that of the "
     "document "
     "unless given",
     NULL},
    TALLY_DOCUMENT_SET_OPTION,
    {"json", NULL, NULL, "print JSON", NULL},
    {"out", "DIR", NULL, "folder for the plan as JSON, and its picture by gnuplot", NULL},
    {0},
};

/* The values that one option lists. */
struct budgets {
    int64_t bits[MAX_BUDGETS];
    int n;
};

/* Reads the numbers of the option, or uses `otherwise` without the option; 0 = no budget. */
static enum tally_status read_bits(const struct tally_options *options, const char *name,
                                   int64_t otherwise, struct budgets *ret, struct tally_error *err)
{
    ret->n = 1;
    ret->bits[0] = otherwise;
    const char *at = tally_options_text(options, name);
    for (ret->n = at == NULL; at != NULL; ret->n++) {
        char *end;
        const double bits = strtod(at, &end);
        /* Excludes hexadecimal numbers, which strtod() accepts. */
        const bool is_decimal = strspn(at, "+.0123456789eE") >= (size_t)(end - at);
        if (end == at || !is_decimal || (*end != ',' && *end != '\0') ||
            !(bits >= 1 && bits <= MAX_BITS)) {
            return tally_options_refuse(options, name, err,
                                        "\"%.60s\" is not a list of numbers of bits in [1, %g]", at,
                                        MAX_BITS);
        }
        if (ret->n == MAX_BUDGETS) {
            return tally_options_refuse(options, name, err, "more than %d budgets", MAX_BUDGETS);
        }
        ret->bits[ret->n] = (int64_t)bits;
        at = *end == ',' ? end + 1 : NULL;
    }
    return TALLY_OK;
}

/* Pairs the two lists. A list of one number is paired with every number of the other. */
static enum tally_status read_budgets(const struct tally_options *options,
                                      const struct tally_budget *own,
                                      struct tally_budget budgets[MAX_BUDGETS], int *ret_n,
                                      struct tally_error *err)
{
    struct budgets up, down;
    enum tally_status status = read_bits(options, "uplink-bits", own->uplink_bits, &up, err);
    if (status == TALLY_OK) {
        status = read_bits(options, "downlink-bits", own->downlink_bits, &down, err);
    }
    if (status != TALLY_OK) {
        return status;
    }
    if (up.n != down.n && up.n != 1 && down.n != 1) {
        return tally_options_refuse(options, "downlink-bits", err,
                                    "%d budgets for %d of --uplink-bits", down.n, up.n);
    }
    *ret_n = up.n > down.n ? up.n : down.n;
    for (int i = 0; i < *ret_n; i++) {
        budgets[i] = (struct tally_budget){.uplink_bits = up.bits[up.n > 1 ? i : 0],
                                           .downlink_bits = down.bits[down.n > 1 ? i : 0]};
    }
    return TALLY_OK;
}

static enum tally_status refuse_auto(const char *name, struct tally_error *err)
{
    return tally_fail(err, TALLY_INVALID_ARGUMENT, name,
                      "a plan needs a number for %s; `auto` is estimated while the job runs", name);
}

static enum tally_status check_constants(const struct tally_job_spec *spec, struct tally_error *err)
{
    const struct tally_calm_params *params = &spec->params.calm;
    if (tally_job_spec_algorithm(spec) != &TALLY_CALM) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "algorithm.type",
                          "only calm jobs can be planned; this one is %s",
                          tally_job_spec_algorithm(spec)->name);
    }
    if (isnan(params->noise)) {
        return refuse_auto("algorithm.noise", err);
    }
    return isnan(params->initial_variance) ? refuse_auto("algorithm.initial_variance", err)
                                           : TALLY_OK;
}

static int print_report(const struct tally_cli *cli, const struct tally_json *report)
{
    if (report == NULL || tally_options_bool(cli->options, "json")) {
        return tally_cli_print_json(report, 2);
    }
    struct tally_buffer text = {0};
    const enum tally_status status = tally_plan_report_render(report, &text);
    return tally_cli_print(status, &text);
}

int tally_cli_plan(struct tally_cli *cli)
{
    struct tally_job_spec spec;
    struct tally_budget budgets[MAX_BUDGETS];
    int n = 0;
    struct tally_json *faults = NULL;
    struct tally_error err = TALLY_ERROR_INIT;
    enum tally_status status = tally_cli_read_document(cli, &spec, &faults, &err);
    if (status == TALLY_OK) {
        status = check_constants(&spec, &err);
    }
    if (status == TALLY_OK) {
        status = read_budgets(cli->options, &spec.budget, budgets, &n, &err);
    }
    if (status != TALLY_OK) {
        return tally_cli_refuse_document(faults, &err);
    }
    const char *folder = tally_options_text(cli->options, "out");
    if (folder != NULL && tally_out_folder_make(folder, &err) != TALLY_OK) {
        return tally_cli_report_usage(&err);
    }
    const struct tally_setting setting = tally_job_spec_setting(&spec);
    struct tally_json *report = tally_plan_report_make(&setting, budgets, n);
    int exit_code = print_report(cli, report);
    if (report != NULL && folder != NULL &&
        tally_plan_report_write(report, folder, &err) != TALLY_OK) {
        exit_code = tally_cli_report(&err);
    }
    tally_json_free(report);
    return exit_code;
}
