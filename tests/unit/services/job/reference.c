#include "tests/unit/services/job/reference.h"

#include <math.h>
#include <string.h>

#include "services/algorithms/compression.h"
#include "services/algorithms/server_optimizer.h"
#include "services/base/labels.h"
#include "services/job/job_reasons.h"
#include "services/job/job_spec.h"

/* The README of a module next to services/job. */
#define README "README.md"

static const char GENERATED[] =
    "<!-- Generated: TALLY_WRITE_REFERENCE=1 build/release/bin/tally-test-job "
    "document_reference -->\n\n";

void reference_write_reasons(struct tally_buffer *out)
{
    tally_buffer_printf(
        out,
        "# Why a job ended\n\n%s"
        "`reason_code` in the job detail is one of the codes below. A failed job also has a "
        "`reason`, "
        "a text for people; in the texts\nbelow, %%s, %%u and %%lld stand for values. `tally show "
        "ID` prints both members, which are null while a job is live. The store\nkeeps "
        "\"code: text\" in one column, and the logs in one field.\nThe table is generated from "
        "`job_reasons.c`. For a "
        "job "
        "that is live but stands still, paused or not, see [Why a job waits]"
        "(README.md#why-a-job-waits).\n\n"
        "| `reason_code` | `status` | meaning | what helps | `reason` | set in |\n"
        "|---|---|---|---|---|---|\n",
        GENERATED);
    for (int i = 0; i < TALLY_N_REASONS; i++) {
        const struct tally_reason_info *info = &TALLY_REASON_INFO[i];
        tally_buffer_printf(out, "| `%s` | `%s` | %s | %s | %s%s%s | `%s` |\n", info->code,
                            tally_job_status_name(info->status), info->meaning, info->remedy,
                            info->format[0] != '\0' ? "`" : "",
                            info->format[0] != '\0' ? info->format : "null",
                            info->format[0] != '\0' ? "`" : "", info->file);
    }
}

/* ---- The job document ---- */

/* Writes text into a table cell. */
static void write_cell(struct tally_buffer *out, const char *text)
{
    for (; *text != '\0'; text++) {
        tally_buffer_printf(out, "%s%c", *text == '|' ? "\\" : "", *text);
    }
}

static void write_type(struct tally_buffer *out, const struct tally_field *field)
{
    static const char *const NAMES[] = {[TALLY_FIELD_BOOL] = "boolean",
                                        [TALLY_FIELD_INTEGER] = "integer",
                                        [TALLY_FIELD_REAL] = "number",
                                        [TALLY_FIELD_TEXT] = "text",
                                        [TALLY_FIELD_CHOICE] = "text"};
    tally_buffer_printf(out, "%s%s%s", NAMES[field->kind],
                        field->auto_allowed ? " or `\"auto\"`" : "",
                        field->names_capacity > 0 ? " or array of texts" : "");
}

static void write_limits(struct tally_buffer *out, const struct tally_field *field)
{
    const bool is_open_above = field->max == 1 - 0x1p-53; /* the largest double below 1 */
    switch (field->kind) {
    case TALLY_FIELD_BOOL:
        return;
    case TALLY_FIELD_INTEGER:
    case TALLY_FIELD_REAL:
        tally_buffer_printf(out, "%c%.16g, %.16g%c", field->min_exclusive ? '(' : '[', field->min,
                            is_open_above ? 1 : field->max, is_open_above ? ')' : ']');
        return;
    case TALLY_FIELD_TEXT:
        tally_buffer_printf(out, "at most %zu bytes", field->capacity - 1);
        return;
    case TALLY_FIELD_CHOICE:
        for (size_t i = 0; field->choices[i] != NULL; i++) {
            tally_buffer_printf(out, "%s`%s`", i > 0 ? ", " : "", field->choices[i]);
        }
    }
}

/* Writes the value that applies if the document omits the member, from the struct of defaults. If
 * there is no struct, the value depends on other members. */
static void write_value(struct tally_buffer *out, const struct tally_field *field,
                        const void *defaults)
{
    if (defaults == NULL) {
        tally_buffer_append_text(out, "see meaning");
        return;
    }
    const void *member = (const char *)defaults + field->offset;
    const bool is_none =
        (field->omits_nan && isnan(*(const double *)member)) ||
        (field->omits_zero && field->kind == TALLY_FIELD_INTEGER && *(const int64_t *)member == 0);
    if (is_none) {
        tally_buffer_append_text(out, "none");
        return;
    }
    switch (field->kind) {
    case TALLY_FIELD_BOOL:
        tally_buffer_append_text(out, *(const bool *)member ? "true" : "false");
        return;
    case TALLY_FIELD_INTEGER: {
        const double value = (double)*(const int64_t *)member;
        if (value >= field->min) {
            tally_buffer_printf(out, "%.16g", value);
        } else { /* not permitted: the default depends on other members */
            tally_buffer_append_text(out, "see meaning");
        }
        return;
    }
    case TALLY_FIELD_REAL: {
        const double value = *(const double *)member;
        tally_buffer_printf(out, isnan(value) ? "`\"auto\"`" : "%.16g", value);
        return;
    }
    case TALLY_FIELD_TEXT:
        tally_buffer_printf(out, "`\"%s\"`", (const char *)member);
        return;
    case TALLY_FIELD_CHOICE:
        tally_buffer_printf(out, "`%s`", field->choices[*(const int *)member]);
    }
}

static void write_head(struct tally_buffer *out)
{
    tally_buffer_append_text(out, "| member | type | unit | limits | default | meaning |\n"
                                  "|---|---|---|---|---|---|\n");
}

/* Writes a row. `beside`: the defaults if a member is "auto"; NULL = the same defaults. */
static void write_row(struct tally_buffer *out, const struct tally_field *field,
                      const void *defaults, const void *beside)
{
    struct tally_buffer value = {0}, other = {0};
    write_value(&value, field, defaults);
    write_value(&other, field, beside != NULL ? beside : defaults);
    tally_buffer_append(&value, "", 1);
    tally_buffer_append(&other, "", 1);
    tally_buffer_printf(out, "| `%s` | ", field->name);
    write_type(out, field);
    tally_buffer_printf(out, " | %s | ", field->unit != NULL ? field->unit : "");
    write_limits(out, field);
    if (field->found) {
        tally_buffer_append_text(out, " | found | ");
    } else if (field->required) {
        tally_buffer_append_text(out, " | required | ");
    } else if (strcmp((const char *)value.data, (const char *)other.data) == 0) {
        tally_buffer_printf(out, " | %s | ", value.data);
    } else {
        tally_buffer_printf(out, " | %s; with `\"auto\"` %s | ", value.data, other.data);
    }
    write_cell(out, field->doc);
    tally_buffer_append_text(out, " |\n");
    tally_buffer_fini(&value);
    tally_buffer_fini(&other);
}

static void write_rows(struct tally_buffer *out, const struct tally_field *fields, size_t n,
                       const void *defaults, const void *beside)
{
    for (size_t i = 0; i < n; i++) {
        write_row(out, &fields[i], defaults, beside);
    }
    tally_buffer_append_text(out, "\n");
}

/* Writes the table for one type of an object. */
static void write_table(struct tally_buffer *out, const char *title, const char *name,
                        const struct tally_field *fields, size_t n, const void *defaults)
{
    tally_buffer_printf(out, "### %s `%s`\n\n", title, name);
    if (n == 0) {
        tally_buffer_append_text(out, "No members but `type`.\n\n");
        return;
    }
    write_head(out);
    write_rows(out, fields, n, defaults, NULL);
}

static void write_object_row(struct tally_buffer *out, const char *name, const char *value,
                             const char *doc)
{
    tally_buffer_printf(out, "| [`%s`](#%s) | object | | | %s | %s |\n", name, name, value, doc);
}

static void write_top(struct tally_buffer *out)
{
    const struct tally_job_spec spec = tally_job_spec_default();
    tally_buffer_append_text(out, "## Top level\n\n");
    write_head(out);
    write_object_row(out, "algorithm", "required", "the algorithm and its parameters");
    write_object_row(out, "objective", "required", "the function to minimise, and its data");
    write_object_row(out, "labels", "none", "text that lists of jobs can be filtered by");
    write_object_row(out, "initial_point", "type `zeros`", "the point that the job starts from");
    write_object_row(out, "domain", "type `whole`", "the set that the iterates stay in");
    write_object_row(out, "reference", "type `solve`; `none` for a plug-in",
                     "source of the optimum against which the regret is measured");
    write_object_row(out, "budget", "no limits", "the most bits that a job of `calm` may send");
    write_object_row(out, "stop", "none", "rules that end the job before its horizon");
    write_object_row(out, "keep", "none", "which models are kept, besides the last");
    write_rows(out, TALLY_JOB_FIELDS, TALLY_N_JOB_FIELDS, &spec, NULL);
}

static void write_server_optimizers(struct tally_buffer *out)
{
    const struct tally_server_optimizer defaults = tally_server_optimizer_defaults();
    tally_buffer_append_text(
        out, "## algorithm.server_optimizer\n\n`type` is required. [What the optimizers do]("
             "../algorithms/" README "#server-optimizers). `beta1` and `beta2` apply\nper "
             "round, not per local step.\n\n");
    for (int i = 0; TALLY_SERVER_OPTIMIZER_NAMES[i] != NULL; i++) {
        write_table(out, "algorithm.server_optimizer", TALLY_SERVER_OPTIMIZER_NAMES[i],
                    TALLY_SERVER_OPTIMIZER_KINDS[i].fields,
                    TALLY_SERVER_OPTIMIZER_KINDS[i].n_fields, &defaults);
    }
}

static void write_compression(struct tally_buffer *out)
{
    const struct tally_compression defaults = {0};
    tally_buffer_append_text(
        out, "## algorithm.compression\n\n`\"auto\"` chooses both steps by the number of clients, "
             "coordinates and rounds; [how, and what it costs](../algorithms/COMPRESSION.md).\n"
             "An object states them:\n\n");
    write_head(out);
    write_rows(out, TALLY_COMPRESSION_FIELDS, TALLY_N_COMPRESSION_FIELDS, &defaults, NULL);
}

static void write_algorithms(struct tally_buffer *out)
{
    tally_buffer_append_text(
        out,
        "## algorithm\n\n`type` is required. [What the algorithms do](../algorithms/" README "). "
        "With `\"auto\"` for a parameter,\nother defaults apply. With an objective of type "
        "`training`, `fedavg`, `fedprox`, `fedpaq` and `fedcom` have no\n`step_size`, "
        "`local_steps`, `step_decay` and `local_steps_growth`; the training loop gets `mu`.\n\n");
    for (size_t i = 0; TALLY_ALGORITHMS[i] != NULL; i++) {
        const struct tally_algorithm *algorithm = TALLY_ALGORITHMS[i];
        const union tally_algorithm_params defaults = algorithm->defaults();
        union tally_algorithm_params beside = defaults;
        if (algorithm->defaults_beside != NULL) {
            beside.ceal.sigma = NAN;
            beside = algorithm->defaults_beside(&beside);
        }
        tally_buffer_printf(out, "### algorithm `%s`\n\n", algorithm->name);
        write_head(out);
        if (algorithm->takes_server_optimizer) {
            tally_buffer_append_text(
                out, "| [`server_optimizer`](#algorithmserver_optimizer) | object | | | none | how "
                     "the server moves the point; by default it adds the clients' mean difference "
                     "|\n");
        }
        if (algorithm->takes_compression) {
            tally_buffer_append_text(
                out, "| [`compression`](#algorithmcompression) | `none`, `auto` or object | | | "
                     "`none` | how both messages are compressed; by default they are float32 |\n");
        }
        write_rows(out, algorithm->fields, algorithm->n_fields, &defaults, &beside);
    }
    write_server_optimizers(out);
    write_compression(out);
}

static void write_objectives(struct tally_buffer *out)
{
    tally_buffer_append_text(
        out,
        "## objective\n\n`type` is required, and `data` too unless the "
        "type is `plugin` or `training`.\n[What the losses are](../objectives/" README ").\n\n");
    for (int i = 0; TALLY_OBJECTIVE_NAMES[i] != NULL; i++) {
        const struct tally_objective_kind *kind = TALLY_OBJECTIVE_KINDS[i];
        struct tally_objective_spec defaults = tally_objective_spec_default();
        tally_objective_spec_choose(&defaults, i);
        write_table(out, "objective", kind->name, kind->fields, kind->n_fields, &defaults);
        const char *before = "Types of `data`: ";
        for (int data = 0; data < TALLY_N_DATA_TYPES; data++) {
            if ((kind->data & 1U << data) != 0) {
                tally_buffer_printf(out, "%s`%s`", before, TALLY_DATA_NAMES[data]);
                before = ", ";
            }
        }
        tally_buffer_append_text(out, kind->data != 0 ? ".\n\n" : "");
    }
    tally_buffer_append_text(out,
                             "## objective.data\n\n`type` is required. Files are below the data "
                             "folder (`--data-dir`) of every worker, and of the coordinator if it "
                             "solves for f(x*).\n\n");
    const struct tally_objective_spec defaults = tally_objective_spec_default();
    for (int i = 0; i < TALLY_N_DATA_TYPES; i++) {
        const struct tally_data_kind *kind = &TALLY_DATA_KINDS[i];
        write_table(out, "objective.data", kind->name, kind->fields, kind->n_fields,
                    &defaults.data);
    }
}

static void write_others(struct tally_buffer *out)
{
    const struct tally_job_spec spec = tally_job_spec_default();
    tally_buffer_printf(
        out,
        "## labels\n\n"
        "At most %d members, which you name: `{\"team\": \"vision\", \"example.org/run\": "
        "\"7\"}`. They do not change what\nthe job computes. `GET /v1/jobs?label=team=vision` and "
        "`tally list --label team=vision` list the jobs with a label.\n\n",
        TALLY_LABELS_MOST);
    write_head(out);
    tally_buffer_printf(
        out,
        "| `KEY` | text |  | at most %d bytes of UTF-8 | none | the value of the "
        "label; any text without control characters. A key has " TALLY_LABEL_KEY_RULE " |\n\n",
        TALLY_LABEL_VALUE_CAPACITY - 1);
    tally_buffer_append_text(
        out, "## initial_point\n\n`type` is required. With `npy`, `job` and `first` the point is "
             "stored when the job starts, and every worker gets it as a\nsnapshot, which counts as "
             "`recovery`. `zeros` takes a radius too, and ignores it.\n\n");
    for (int i = 1; TALLY_INITIAL_POINT_NAMES[i] != NULL; i++) { /* not zeros */
        write_table(out, "initial_point", TALLY_INITIAL_POINT_NAMES[i],
                    TALLY_INITIAL_POINT_KINDS[i].fields, TALLY_INITIAL_POINT_KINDS[i].n_fields,
                    &spec.initial_point);
    }
    tally_buffer_append_text(out, "## domain\n\nServer and clients project onto it after every "
                                  "step. `type` is required.\n\n");
    for (int i = 0; TALLY_DOMAIN_NAMES[i] != NULL; i++) {
        write_table(out, "domain", TALLY_DOMAIN_NAMES[i], TALLY_DOMAIN_KINDS[i].fields,
                    TALLY_DOMAIN_KINDS[i].n_fields, &spec.domain);
    }
    tally_buffer_append_text(out, "## reference\n\n");
    write_head(out);
    write_rows(out, TALLY_REFERENCE_FIELDS, TALLY_N_REFERENCE_FIELDS, NULL, NULL);
    tally_buffer_append_text(out,
                             "## budget\n\nOnly for `calm`. Limits the coded bits, payload and "
                             "control: a message that would exceed a limit is not sent.\n\n");
    write_head(out);
    write_rows(out, TALLY_BUDGET_FIELDS, TALLY_N_BUDGET_FIELDS, &spec.budget, NULL);
    tally_buffer_append_text(out, "## stop\n\nThe first rule that is met ends the job: [Stopping "
                                  "and keeping](README.md#stopping-and-keeping).\n\n");
    write_head(out);
    write_rows(out, TALLY_STOP_FIELDS, TALLY_N_STOP_FIELDS, &spec.stop, NULL);
    tally_buffer_append_text(out, "## keep\n\n");
    write_head(out);
    write_rows(out, TALLY_KEEP_FIELDS, TALLY_N_KEEP_FIELDS, &spec.keep, NULL);
}

void reference_write_document(struct tally_buffer *out)
{
    tally_buffer_printf(
        out,
        "# The job document\n\n%s"
        "`POST /v1/jobs`, `tally submit` and `tally simulate` take JSON of at most 1 MiB, 1,000 "
        "members and 16 levels.\nAn unknown member is an error. The stored document, and the "
        "job detail, have every default written out, so a job\nkeeps its meaning when a later "
        "release changes a default. A parenthesis marks an exclusive limit.\n\n"
        "The shortest document that runs:\n\n"
        "```json\n%s```\n\n"
        "Rules between members: `quorum` is at most `clients`; a `policy` other than `wait` needs "
        "a "
        "`round_deadline_ms` above 0;\nevery client needs a data point; `upper` is above `lower`; "
        "f(x*) cannot be solved for with a plug-in, or with files\nthat differ between "
        "workers; no stage that the horizon allows may need more levels than a message can "
        "have.\n\n",
        GENERATED, REFERENCE_EXAMPLE);
    write_top(out);
    write_algorithms(out);
    write_objectives(out);
    write_others(out);
}
