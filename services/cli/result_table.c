#include "services/cli/result_table.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "services/base/labels.h"
#include "services/base/text_table.h"
#include "services/base/time.h"

void tally_result_cell(const struct tally_json *object, const char *key,
                       char ret_text[TALLY_RESULT_CELL_CAPACITY])
{
    const char *text = tally_json_get_text(object, key);
    struct tally_buffer number = {0};
    const struct tally_json *value = tally_json_get(object, key);
    if (text == NULL && value != NULL && tally_json_dump(value, 0, &number) == TALLY_OK &&
        tally_buffer_append(&number, "", 1) == TALLY_OK &&
        strcmp((const char *)number.data, "null") != 0) {
        text = (const char *)number.data;
    }
    snprintf(ret_text, TALLY_RESULT_CELL_CAPACITY, "%s", text != NULL ? text : "-");
    tally_buffer_fini(&number);
}

static void add_fact(struct tally_text_table *table, const char *label, const char *text)
{
    tally_text_table_add(table, label);
    tally_text_table_add(table, text);
}

static void add_member(struct tally_text_table *table, const char *label,
                       const struct tally_json *object, const char *key)
{
    char cell[TALLY_RESULT_CELL_CAPACITY];
    tally_result_cell(object, key, cell);
    add_fact(table, label, cell);
}

/* Adds "A<separator>B", the values of two members. */
static void add_two(struct tally_text_table *table, const char *label,
                    const struct tally_json *object, const char *key_a, const char *separator,
                    const char *key_b)
{
    char a[TALLY_RESULT_CELL_CAPACITY], b[TALLY_RESULT_CELL_CAPACITY];
    char text[2 * TALLY_RESULT_CELL_CAPACITY + 8];
    tally_result_cell(object, key_a, a);
    tally_result_cell(object, key_b, b);
    snprintf(text, sizeof text, "%s%s%s", a, separator, b);
    add_fact(table, label, text);
}

/* Adds one row for all labels, "example.org/run=7  team=vision"; none if there are no labels. */
static void add_labels(struct tally_text_table *table, const struct tally_json *labels)
{
    char text[TALLY_LABELS_CAPACITY + TALLY_LABELS_MOST] = "";
    const char *key;
    size_t length = 0;
    for (size_t i = 0; i < TALLY_LABELS_MOST && (key = tally_json_key(labels, i)) != NULL; i++) {
        const char *value = tally_json_get_text(labels, key);
        length += (size_t)snprintf(text + length, sizeof text - length, "%s%.*s=%.*s",
                                   i > 0 ? "  " : "", TALLY_LABEL_KEY_CAPACITY - 1, key,
                                   TALLY_LABEL_VALUE_CAPACITY - 1, value != NULL ? value : "");
    }
    if (length > 0) {
        add_fact(table, "labels", text);
    }
}

static void add_algorithm(struct tally_text_table *table, const struct tally_json *detail)
{
    char type[TALLY_RESULT_CELL_CAPACITY], encoding[TALLY_RESULT_CELL_CAPACITY];
    char clients[TALLY_RESULT_CELL_CAPACITY], cohort[TALLY_RESULT_CELL_CAPACITY] = "";
    char text[4 * TALLY_RESULT_CELL_CAPACITY + 48];
    const double drawn = tally_json_get_real(detail, "cohort", 0);
    const double more = tally_json_get_real(detail, "over_selection", 0);
    tally_result_cell(tally_json_get(detail, "algorithm"), "type", type);
    tally_result_cell(detail, "encoding", encoding);
    tally_result_cell(detail, "clients", clients);
    if (drawn > 0) {
        snprintf(cohort, sizeof cohort, more > 0 ? ", cohort %g, over-selection %g" : ", cohort %g",
                 drawn, more);
    }
    snprintf(text, sizeof text, "%s, encoding %s, %s client%s%s", type, encoding, clients,
             strcmp(clients, "1") == 0 ? "" : "s", cohort);
    add_fact(table, "algorithm", text);
}

/* Adds a row if the classes of the data have names: as many of them as fit. */
static void add_classes(struct tally_text_table *table, const struct tally_json *detail)
{
    const struct tally_json *data = tally_json_get(tally_json_get(detail, "objective"), "data");
    const struct tally_json *classes = tally_json_get(data, "classes");
    char text[TALLY_RESULT_CELL_CAPACITY] = "";
    size_t length = 0;
    for (size_t i = 0; tally_json_is_array(classes) && i < tally_json_size(classes); i++) {
        const char *name = tally_json_as_text(tally_json_at(classes, i));
        const size_t n = name != NULL ? strlen(name) : 0;
        if (length + n + sizeof ", , ..." > sizeof text) {
            snprintf(text + length, sizeof text - length, "%s...", i > 0 ? ", " : "");
            break;
        }
        length += (size_t)snprintf(text + length, sizeof text - length, "%s%s", i > 0 ? ", " : "",
                                   name != NULL ? name : "-");
    }
    if (text[0] != '\0') {
        add_fact(table, "classes", text);
    }
}

/* Adds two rows for a job that waits, none for others. */
static void add_waiting(struct tally_text_table *table, const struct tally_json *waiting)
{
    const char *text = tally_json_get_text(waiting, "text");
    if (text == NULL) {
        return;
    }
    char since[TALLY_TIMESTAMP_CAPACITY];
    tally_timestamp_format(tally_json_get_integer(waiting, "since_ms", 0), since);
    add_fact(table, "waiting", text);
    add_fact(table, "  since", since);
}

/* Adds a row for each metric: "accuracy 0.91  min 0.88  max 0.95". */
static void add_metrics(struct tally_text_table *table, const struct tally_json *metrics)
{
    const char *name;
    for (size_t i = 0; (name = tally_json_key(metrics, i)) != NULL; i++) {
        const struct tally_json *metric = tally_json_get(metrics, name);
        char text[TALLY_RESULT_CELL_CAPACITY];
        snprintf(text, sizeof text, "%.40s %.6g  min %.6g  max %.6g", name,
                 tally_json_get_real(metric, "mean", NAN), tally_json_get_real(metric, "min", NAN),
                 tally_json_get_real(metric, "max", NAN));
        add_fact(table, i == 0 ? "metrics" : "", text);
    }
}

/* Adds a row for each parameter that the job estimated. */
static void add_estimates(struct tally_text_table *table, const struct tally_json *estimates)
{
    static const char *const rows[][2] = {{"sigma", "  sigma"},
                                          {"gradient_bound", "  bound"},
                                          {"step_size", "  step size"},
                                          {"step_size_error", "  its error"},
                                          {"noise_growth", "  noise growth"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (tally_json_get_real(estimates, rows[i][0], 0) > 0) {
            add_member(table, rows[i][1], estimates, rows[i][0]);
        }
    }
}

/* Adds the curvature, if known, next to the step size that must fit it; and the warnings. */
static void add_curvature(struct tally_text_table *table, const struct tally_json *detail)
{
    if (tally_json_get_real(detail, "smoothness", 0) > 0) {
        add_member(table, "step size", tally_json_get(detail, "algorithm"), "step_size");
        add_member(table, "smoothness", detail, "smoothness");
        add_member(table, "convexity", detail, "strong_convexity");
    }
    const struct tally_json *warnings = tally_json_get(detail, "warnings");
    for (size_t i = 0; warnings != NULL && i < tally_json_size(warnings); i++) {
        const char *text = tally_json_as_text(tally_json_at(warnings, i));
        add_fact(table, "warning", text != NULL ? text : "-");
    }
}

/* Adds what a planned job expects: "522.4 at 254.8 bits up, 254.3 down", and the queries between
 * messages: "15 37 111 346 | 1491". No message follows the last ones. */
static void add_planned(struct tally_text_table *table, const struct tally_json *planned)
{
    const struct tally_json *epochs = tally_json_get(planned, "epochs");
    const size_t n = tally_json_size(epochs);
    char text[32 * TALLY_RESULT_CELL_CAPACITY] = "";
    if (n == 0) {
        return;
    }
    snprintf(text, sizeof text, "%.1f at %.1f bits up, %.1f down",
             tally_json_get_real(planned, "regret", NAN),
             tally_json_get_real(planned, "uplink_bits", NAN),
             tally_json_get_real(planned, "downlink_bits", NAN));
    add_fact(table, "planned", text);
    size_t length = 0;
    for (size_t k = 0; k < n && length < sizeof text; k++) {
        const char *gap = k == 0 ? "" : k + 1 == n ? " | " : " ";
        length += (size_t)snprintf(
            text + length, sizeof text - length, "%s%lld", gap,
            (long long)tally_json_get_integer(tally_json_at(epochs, k), "samples", 0));
    }
    add_fact(table, "  queries", text);
}

static void add_facts(struct tally_text_table *table, const struct tally_json *detail)
{
    const char *id = tally_json_get_text(detail, "id");
    if (id == NULL || id[0] == '\0') {
        add_member(table, "job", detail, "name"); /* a simulation */
    } else {
        add_two(table, "job", detail, "id", "  ", "name");
    }
    add_labels(table, tally_json_get(detail, "labels"));
    add_member(table, "status", detail, "status");
    const char *reason = tally_json_get_text(detail, "reason");
    if (reason != NULL && reason[0] != '\0') {
        add_fact(table, "reason", reason);
        add_member(table, "  code", detail, "reason_code");
    }
    add_waiting(table, tally_json_get(detail, "waiting"));
    add_algorithm(table, detail);
    add_classes(table, detail);
    add_estimates(table, tally_json_get(detail, "estimates"));
    add_curvature(table, detail);
    add_two(table, "time step", detail, "time_step", " / ", "horizon");
    add_member(table, "round", detail, "round");
    add_member(table, "iterate", detail, "iterate");
    add_member(table, "stage", detail, "stage");
    add_member(table, "regret", detail, "cumulative_regret");
    add_member(table, "loss", detail, "loss");
    add_metrics(table, tally_json_get(detail, "metrics"));
    add_planned(table, tally_json_get(detail, "planned"));
    add_member(table, "f_star", detail, "f_star");
    add_member(table, "x_checksum", detail, "x_checksum");
}

static const char *const COLUMNS[] = {"formula", "payload", "messages", "clipped"};
enum { N_COLUMNS = sizeof COLUMNS / sizeof COLUMNS[0] };

static void add_bits_row(struct tally_text_table *table, const char *label,
                         const struct tally_json *bits, int n_columns)
{
    tally_text_table_add(table, label);
    for (int i = 0; i < n_columns; i++) {
        char cell[TALLY_RESULT_CELL_CAPACITY];
        tally_result_cell(bits, COLUMNS[i], cell);
        tally_text_table_add(table, cell);
    }
    tally_text_table_end_row(table);
}

/* Adds a count that has no formula bits, in the payload column. */
static void add_payload_row(struct tally_text_table *table, const char *label,
                            const struct tally_json *object, const char *key)
{
    char cell[TALLY_RESULT_CELL_CAPACITY];
    tally_result_cell(object, key, cell);
    tally_text_table_printf(table, "%s\t\t%s", label, cell);
    tally_text_table_end_row(table);
}

static void add_bits(struct tally_text_table *table, const struct tally_json *bits)
{
    const struct tally_json *downlink = tally_json_get(bits, "downlink");
    add_bits_row(table, "uplink", tally_json_get(bits, "uplink"), N_COLUMNS);
    add_bits_row(table, "  per client", tally_json_get(bits, "uplink_per_client"), 2);
    add_bits_row(table, "downlink", downlink, N_COLUMNS);
    add_payload_row(table, "  delivered", downlink, "delivered_payload");
    add_payload_row(table, "recovery", bits, "recovery");
    add_payload_row(table, "control", bits, "control");
    add_payload_row(table, "telemetry", bits, "telemetry");
}

static enum tally_status render_wire(const struct tally_json *wire, struct tally_buffer *out)
{
    char in[TALLY_RESULT_CELL_CAPACITY], sent[TALLY_RESULT_CELL_CAPACITY];
    tally_result_cell(wire, "in", in);
    tally_result_cell(wire, "out", sent);
    return tally_buffer_printf(out, "\nwire bytes  in %s  out %s\n", in, sent);
}

enum tally_status tally_result_table_render(const struct tally_json *detail,
                                            struct tally_buffer *out)
{
    return tally_result_table_fit(detail, 0, out);
}

enum tally_status tally_result_table_fit(const struct tally_json *detail, int columns,
                                         struct tally_buffer *out)
{
    struct tally_text_table facts, table;
    const struct tally_json *bits = tally_json_get(detail, "bits");
    tally_text_table_init(&facts, "lw", "");
    tally_text_table_init(&table, "lrrrr", "bits,formula,payload,messages,clipped");
    tally_text_table_fit(&facts, columns, "");
    tally_text_table_fit(&table, columns, "ed");
    add_facts(&facts, detail);
    add_bits(&table, bits);
    enum tally_status status = tally_text_table_end(&facts, out);
    enum tally_status gap = tally_buffer_append_text(out, "\n");
    enum tally_status bits_status = tally_text_table_end(&table, out);
    status = status == TALLY_OK ? gap : status;
    status = status == TALLY_OK ? bits_status : status;
    return status == TALLY_OK ? render_wire(tally_json_get(bits, "wire_bytes"), out) : status;
}
