/* tally plan FILE: the regret that a CALM job can expect for its bits, computed without running it;
 * for a job of another algorithm, a step size to begin with, and its bits. */
#include "services/cli/cmd_plan.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/algorithms/calm.h"
#include "services/algorithms/calm/calm_plan.h"
#include "services/base/text.h"
#include "services/base/text_table.h"
#include "services/cli/commands.h"
#include "services/cli/document_text.h"
#include "services/cli/out_folder.h"
#include "services/job/document.h"
#include "services/job/job_spec.h"

/* Writes plan.json into a folder that exists, and plan.gnuplot, which draws plan.svg and plan.png:
 * regret against the bits of both directions, as planned, at ideal rates, and with every query
 * shared. Errors: as tally_out_folder_write() and tally_out_folder_draw(). */
static enum tally_status tally_plan_report_write(const struct tally_json *report,
                                                 const char *folder, struct tally_error *err);

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
    {"data-dir", "DIR", "data", "folder of the data files that job documents name", NULL},
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

/* ---- Jobs of other algorithms. */

static enum tally_status refuse_budgets(const struct tally_cli *cli,
                                        const struct tally_job_spec *spec, struct tally_error *err)
{
    static const char *const OPTIONS[] = {"uplink-bits", "downlink-bits", "out"};
    for (size_t i = 0; i < sizeof OPTIONS / sizeof OPTIONS[0]; i++) {
        if (tally_options_text(cli->options, OPTIONS[i]) != NULL) {
            return tally_options_refuse(cli->options, OPTIONS[i], err,
                                        "only calm jobs have budgets; this one is %s",
                                        tally_job_spec_algorithm(spec)->name);
        }
    }
    return TALLY_OK;
}

/* "step size  0.1, suggested 0.0131" */
static void add_steps(const struct tally_job_spec *spec, const struct tally_suggestion *suggestion,
                      struct tally_text_table *table)
{
    if (isnan(suggestion->step_size)) {
        tally_text_table_printf(table, "step size\t%.6g, none suggested: %s",
                                tally_suggestion_step_of(spec), suggestion->reason);
    } else {
        tally_text_table_printf(table, "step size\t%.6g, suggested %.4g",
                                tally_suggestion_step_of(spec), suggestion->step_size);
    }
    tally_text_table_end_row(table);
}

static void add_bits(const struct tally_json *bits, const char *key, const char *title,
                     struct tally_text_table *table)
{
    const bool is_exact = tally_json_is_true(tally_json_get(bits, "is_exact"));
    tally_text_table_printf(table, "%s\t%s%" PRId64, title, is_exact ? "" : "at most ",
                            tally_json_get_integer(bits, key, 0));
    tally_text_table_end_row(table);
}

static enum tally_status render_preview(const struct tally_job_spec *spec,
                                        const struct tally_suggestion *suggestion,
                                        const struct tally_json *preview, struct tally_buffer *out)
{
    const struct tally_json *bits = tally_json_get(preview, "expected_bits");
    const struct tally_json *warnings = tally_json_get(preview, "warnings");
    struct tally_text_table table;
    tally_text_table_init(&table, "ll", "");
    add_steps(spec, suggestion, &table);
    if (tally_json_is_object(bits)) {
        add_bits(bits, "uplink_per_client", "bits up per client", &table);
        add_bits(bits, "downlink", "bits down", &table);
    }
    for (size_t i = 0; i < tally_json_size(warnings); i++) {
        tally_text_table_printf(&table, "warning\t%s",
                                tally_json_as_text(tally_json_at(warnings, i)));
        tally_text_table_end_row(&table);
    }
    return tally_text_table_end(&table, out);
}

static int preview_other(const struct tally_cli *cli, const struct tally_job_spec *spec)
{
    struct tally_suggestion suggestion;
    struct tally_buffer text = {0};
    struct tally_error err = TALLY_ERROR_INIT;
    enum tally_status status = refuse_budgets(cli, spec, &err);
    if (status != TALLY_OK) {
        return tally_cli_report_usage(&err);
    }
    status = tally_suggest_from(spec, tally_options_text(cli->options, "data-dir"), NULL,
                                &suggestion, &err);
    if (status != TALLY_OK) {
        return tally_cli_report(&err);
    }
    struct tally_json *preview = tally_document_preview(spec, NULL, &suggestion);
    if (preview == NULL || tally_options_bool(cli->options, "json")) {
        const int exit_code = tally_cli_print_json(preview, 2);
        tally_json_free(preview);
        return exit_code;
    }
    status = render_preview(spec, &suggestion, preview, &text);
    tally_json_free(preview);
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
    if (status == TALLY_OK && tally_job_spec_algorithm(&spec) != &TALLY_CALM) {
        return preview_other(cli, &spec);
    }
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

static double bits_of(int64_t budget)
{
    return budget > 0 ? (double)budget : INFINITY;
}

static struct tally_json *budget_json(const struct tally_budget *budget)
{
    struct tally_json *object = tally_json_object();
    return tally_json_if_complete(
        object, tally_json_set_real(object, "uplink_bits", bits_of(budget->uplink_bits)) &&
                    tally_json_set_real(object, "downlink_bits", bits_of(budget->downlink_bits)));
}

/* NaN, written as null, if a direction has no budget. */
static double ideal_regret(const struct tally_setting *setting)
{
    const struct tally_calm_constants constants = calm_known_constants(setting);
    const struct tally_calm_budget budget = {.uplink_bits = bits_of(setting->budget.uplink_bits),
                                             .downlink_bits =
                                                 bits_of(setting->budget.downlink_bits)};
    const bool is_limited = isfinite(budget.uplink_bits) && isfinite(budget.downlink_bits);
    return is_limited ? tally_calm_ideal_regret(&constants, &budget) : NAN;
}

static struct tally_json *plan_json(const struct tally_setting *setting)
{
    struct tally_calm_schedule schedule;
    struct tally_planned planned;
    calm_make_schedule(setting, &schedule);
    tally_planned_make(setting, &schedule, &planned);
    struct tally_json *object = tally_json_object();
    return tally_json_if_complete(
        object, tally_json_set(object, "budget", budget_json(&setting->budget)) &&
                    tally_json_set_real(object, "ideal_regret", ideal_regret(setting)) &&
                    tally_planned_add(object, &planned));
}

static double alone_regret(const struct tally_calm_constants *constants)
{
    const struct tally_calm_schedule none = {0};
    const struct tally_calm_state start = tally_calm_start(constants);
    struct tally_calm_forecast forecast;
    tally_calm_forecast(constants, &start, &none, &forecast);
    return forecast.regret;
}

struct tally_json *tally_plan_report_make(const struct tally_setting *setting,
                                          const struct tally_budget *budgets, int n)
{
    const struct tally_calm_constants constants = calm_known_constants(setting);
    struct tally_setting own = *setting;
    struct tally_json *plans = tally_json_array();
    bool ok = plans != NULL;
    for (int i = 0; ok && i < n; i++) {
        own.budget = budgets[i];
        ok = tally_json_append(plans, plan_json(&own));
    }
    struct tally_json *report = tally_json_object();
    ok = tally_json_set_integer(report, "clients", constants.clients) && ok;
    ok = tally_json_set_integer(report, "dim", (int64_t)constants.dim) && ok;
    ok = tally_json_set_integer(report, "horizon", constants.horizon) && ok;
    ok = tally_json_set_real(report, "alone_regret", alone_regret(&constants)) && ok;
    ok = tally_json_set_real(report, "shared_regret", tally_calm_shared_regret(&constants)) && ok;
    ok = tally_json_set(report, "plans", plans) && ok;
    return tally_json_if_complete(report, ok);
}

enum { CELL_CAPACITY = 32 };

/* Formats four digits, or all digits of a larger integer part; "-" for null. */
static const char *number(const struct tally_json *object, const char *key,
                          char ret_text[CELL_CAPACITY])
{
    const double value = tally_json_get_real(object, key, NAN);
    const int decimals = value >= 1000 || value == 0 ? 0 : value < 10 ? 2 : 1;
    if (isnan(value)) {
        return "-";
    }
    snprintf(ret_text, CELL_CAPACITY, value < 1e15 ? "%.*f" : "%.*e", decimals, value);
    return ret_text;
}

/* "15 37 111 346 | 1491": the queries of each epoch, and of the last one, which sends nothing. */
static enum tally_status add_samples(struct tally_text_table *table,
                                     const struct tally_json *epochs)
{
    struct tally_buffer text = {0};
    enum tally_status status = TALLY_OK;
    const size_t n = tally_json_size(epochs);
    for (size_t k = 0; status == TALLY_OK && k < n; k++) {
        const char *gap = k == 0 ? "" : k + 1 == n ? " | " : " ";
        status =
            tally_buffer_printf(&text, "%s%" PRId64, gap,
                                tally_json_get_integer(tally_json_at(epochs, k), "samples", 0));
    }
    if (status == TALLY_OK) {
        status = tally_buffer_append(&text, "", 1);
    }
    if (status == TALLY_OK) {
        tally_text_table_add(table, (const char *)text.data);
    }
    tally_buffer_fini(&text);
    return status;
}

static enum tally_status render_plans(const struct tally_json *report, struct tally_buffer *out)
{
    struct tally_text_table table;
    const struct tally_json *plans = tally_json_get(report, "plans");
    const double shared = tally_json_get_real(report, "shared_regret", NAN);
    enum tally_status status = TALLY_OK;
    tally_text_table_init(&table, "rrrrrl",
                          "bits up,bits down,regret,/ shared,ideal rates,queries between messages");
    for (size_t i = 0; status == TALLY_OK && i < tally_json_size(plans); i++) {
        const struct tally_json *plan = tally_json_at(plans, i);
        char up[CELL_CAPACITY], down[CELL_CAPACITY], regret[CELL_CAPACITY], ideal[CELL_CAPACITY];
        tally_text_table_printf(&table, "%s\t%s\t%s\t%.2f\t%s", number(plan, "uplink_bits", up),
                                number(plan, "downlink_bits", down), number(plan, "regret", regret),
                                tally_json_get_real(plan, "regret", NAN) / shared,
                                number(plan, "ideal_regret", ideal));
        status = add_samples(&table, tally_json_get(plan, "epochs"));
        tally_text_table_end_row(&table);
    }
    const enum tally_status ended = tally_text_table_end(&table, out);
    return status == TALLY_OK ? ended : status;
}

static enum tally_status render_epochs(const struct tally_json *plan, struct tally_buffer *out)
{
    static const char *const COLUMNS[] = {
        "uplink_bits",         "downlink_bits", "uplink_resolution",
        "downlink_resolution", "regret",        "variance"};
    struct tally_text_table table;
    const struct tally_json *epochs = tally_json_get(plan, "epochs");
    tally_text_table_init(&table, "rrrrrrrr",
                          "epoch,queries,bits up,bits down,step up,step down,regret,variance");
    for (size_t k = 0; k < tally_json_size(epochs); k++) {
        const struct tally_json *epoch = tally_json_at(epochs, k);
        tally_text_table_printf(&table, "%zu\t%" PRId64, k + 1,
                                tally_json_get_integer(epoch, "samples", 0));
        for (size_t i = 0; i < sizeof COLUMNS / sizeof COLUMNS[0]; i++) {
            char text[CELL_CAPACITY];
            if (i + 1 < sizeof COLUMNS / sizeof COLUMNS[0]) {
                tally_text_table_add(&table, number(epoch, COLUMNS[i], text));
            } else {
                tally_text_table_printf(&table, "%.3g",
                                        tally_json_get_real(epoch, COLUMNS[i], NAN));
            }
        }
        tally_text_table_end_row(&table);
    }
    return tally_text_table_end(&table, out);
}

static enum tally_status render_limits(const struct tally_json *report, struct tally_buffer *out)
{
    char alone[CELL_CAPACITY], shared[CELL_CAPACITY];
    struct tally_text_table table;
    tally_text_table_init(&table, "lrl", "");
    tally_text_table_printf(&table, "regret alone\t%s\tno message at all",
                            number(report, "alone_regret", alone));
    tally_text_table_end_row(&table);
    tally_text_table_printf(&table, "regret shared\t%s\tevery query shared at no cost",
                            number(report, "shared_regret", shared));
    tally_text_table_end_row(&table);
    return tally_text_table_end(&table, out);
}

enum tally_status tally_plan_report_render(const struct tally_json *report,
                                           struct tally_buffer *out)
{
    const struct tally_json *plans = tally_json_get(report, "plans");
    enum tally_status status = render_limits(report, out);
    if (status == TALLY_OK) {
        status = tally_buffer_append_text(out, "\n");
    }
    if (status == TALLY_OK) {
        status = render_plans(report, out);
    }
    if (status == TALLY_OK && tally_json_size(plans) == 1) {
        status = tally_buffer_append_text(out, "\n");
        if (status == TALLY_OK) {
            status = render_epochs(tally_json_at(plans, 0), out);
        }
    }
    return status;
}

static double member(const struct tally_json *object, const char *key)
{
    return tally_json_get_real(object, key, NAN);
}

/* The script contains its data: bits, regret, ideal regret, which gnuplot does not draw if it is
 * NaN. */
static enum tally_status render_script(const struct tally_json *report, struct tally_buffer *out)
{
    static const char *const terminals[] = {"svg", "pngcairo"}, *const files[] = {"svg", "png"};
    const struct tally_json *plans = tally_json_get(report, "plans");
    struct tally_text text = {out, TALLY_OK};
    tally_text_put(&text, "set encoding utf8\n$plan << EOD\n");
    for (size_t i = 0; i < tally_json_size(plans); i++) {
        const struct tally_json *plan = tally_json_at(plans, i);
        tally_text_printf(&text, "%.9g %.9g %.9g\n",
                          member(plan, "uplink_bits") + member(plan, "downlink_bits"),
                          member(plan, "regret"), member(plan, "ideal_regret"));
    }
    tally_text_printf(&text,
                      "EOD\nset border 3 lw 1 lc rgb \"#444444\"\n"
                      "set tics nomirror out textcolor rgb \"#222222\"\n"
                      "set grid lc rgb \"#dddddd\" lw 1\nset logscale x\n"
                      "set xtics format \"%%.0s%%c\"\nset yrange [0:*]\nset offsets graph 0.1, "
                      "graph 0.1, 0, 0\nset xlabel \"bits up per client, and down\"\n"
                      "set ylabel \"cumulative regret at the horizon\"\nshared = %.9g\n",
                      member(report, "shared_regret"));
    for (size_t t = 0; t < 2; t++) {
        tally_text_printf(
            &text,
            "set terminal %s size 760,460 font \"sans,13\" background \"white\" "
            "noenhanced\nset output \"plan.%s\"\n"
            "plot $plan using 1:2 with linespoints lw 3 pt 7 lc rgb \"#117733\" title "
            "\"planned\", \\\n     $plan using 1:3 with linespoints lw 2 dt 2 pt 6 lc "
            "rgb \"#0072b2\" title \"ideal rates\", \\\n     shared with lines lw 2 dt 3 "
            "lc rgb \"#444444\" title \"every query shared\"\n",
            terminals[t], files[t]);
    }
    tally_text_put(&text, "unset output\n");
    return text.status;
}

static enum tally_status tally_plan_report_write(const struct tally_json *report,
                                                 const char *folder, struct tally_error *err)
{
    static const char *const scripts[] = {"plan.gnuplot"};
    struct tally_buffer json = {0}, script = {0};
    enum tally_status made = tally_json_dump(report, 2, &json);
    made = made == TALLY_OK ? tally_buffer_append_text(&json, "\n") : made;
    enum tally_status status = tally_out_folder_write(folder, "plan.json", made, &json, err);
    if (status == TALLY_OK) {
        made = render_script(report, &script);
        status = tally_out_folder_write(folder, scripts[0], made, &script, err);
    }
    tally_buffer_fini(&json);
    tally_buffer_fini(&script);
    return status == TALLY_OK ? tally_out_folder_draw(folder, scripts, 1, err) : status;
}
