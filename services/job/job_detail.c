#include "services/job/job_detail.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "services/job/job_reasons.h"

void tally_detail_checksum(uint64_t checksum, char ret_text[17])
{
    snprintf(ret_text, 17, "%016" PRIx64, checksum);
}

/* The setters accept a NULL object, which means out of memory, and then fail. */
static bool set_time(struct tally_json *object, const char *key, int64_t ms)
{
    return ms == 0 ? tally_json_set_null(object, key) : tally_json_set_integer(object, key, ms);
}

/* `delivered_bits` is for downlink only; NULL = none. */
static struct tally_json *bits_of(const struct tally_bits *bits, const uint64_t *delivered_bits)
{
    struct tally_json *object = tally_json_object();
    return tally_json_if_complete(
        object, tally_json_set_unsigned(object, "formula", bits->formula_bits) &&
                    tally_json_set_unsigned(object, "payload", bits->payload_bits) &&
                    tally_json_set_unsigned(object, "messages", bits->messages) &&
                    tally_json_set_unsigned(object, "clipped", bits->clipped) &&
                    (delivered_bits == NULL ||
                     tally_json_set_unsigned(object, "delivered_payload", *delivered_bits)));
}

/* uplink, downlink, control and telemetry: what rounds and jobs both have. */
static struct tally_json *ledger_of(const struct tally_ledger *ledger)
{
    struct tally_json *object = tally_json_object();
    return tally_json_if_complete(
        object, tally_json_set(object, "uplink", bits_of(&ledger->uplink, NULL)) &&
                    tally_json_set(object, "downlink",
                                   bits_of(&ledger->downlink, &ledger->delivered_payload_bits)) &&
                    tally_json_set_unsigned(object, "control", ledger->control_bits) &&
                    tally_json_set_unsigned(object, "telemetry", ledger->telemetry_bits));
}

static struct tally_json *per_client(const struct tally_bits *bits, double clients)
{
    struct tally_json *object = tally_json_object();
    return tally_json_if_complete(
        object, tally_json_set_real(object, "formula", (double)bits->formula_bits / clients) &&
                    tally_json_set_real(object, "payload", (double)bits->payload_bits / clients));
}

static struct tally_json *wire_of(const struct tally_job_facts *facts)
{
    struct tally_json *object = tally_json_object();
    return tally_json_if_complete(
        object, tally_json_set_unsigned(object, "in", facts->wire_in_bytes) &&
                    tally_json_set_unsigned(object, "out", facts->wire_out_bytes));
}

static struct tally_json *job_bits_of(const struct tally_job_facts *facts,
                                      const struct tally_ledger *ledger)
{
    struct tally_json *bits = ledger_of(ledger);
    return tally_json_if_complete(
        bits, tally_json_set(bits, "uplink_per_client",
                             per_client(&ledger->uplink, (double)facts->clients)) &&
                  tally_json_set_unsigned(bits, "recovery", facts->recovery_bits) &&
                  tally_json_set(bits, "wire_bytes", wire_of(facts)));
}

static const char *const WAITING_FOR[] = {"reference", "workers", "clients",
                                          "resume",    "store",   "memory"};

bool tally_waiting_equals(const struct tally_waiting *a, const struct tally_waiting *b)
{
    bool same = a->what == b->what && a->since_ms == b->since_ms && a->n_workers == b->n_workers &&
                strcmp(a->clients, b->clients) == 0 && strcmp(a->text, b->text) == 0;
    for (int i = 0; same && i < a->n_workers; i++) {
        same = strcmp(a->workers[i], b->workers[i]) == 0;
    }
    return same;
}

static struct tally_json *workers_of(const struct tally_waiting *waiting)
{
    struct tally_json *list = tally_json_array();
    bool ok = true;
    for (int i = 0; ok && i < waiting->n_workers; i++) {
        ok = tally_json_append(list, tally_json_text(waiting->workers[i]));
    }
    return tally_json_if_complete(list, ok);
}

static bool set_waiting(struct tally_json *object, const struct tally_waiting *waiting)
{
    if (waiting == NULL) {
        return tally_json_set_null(object, "waiting");
    }
    struct tally_json *value = tally_json_object();
    return tally_json_set(
        object, "waiting",
        tally_json_if_complete(value,
                               tally_json_set_text(value, "for", WAITING_FOR[waiting->what]) &&
                                   tally_json_set_integer(value, "since_ms", waiting->since_ms) &&
                                   tally_json_set_text(value, "clients", waiting->clients) &&
                                   tally_json_set(value, "workers", workers_of(waiting)) &&
                                   tally_json_set_text(value, "text", waiting->text)));
}

/* null if the value is 0 or NaN, which means unknown. */
static bool set_positive(struct tally_json *object, const char *key, double value)
{
    return tally_json_set_real(object, key, value > 0 ? value : NAN);
}

static bool set_estimates(struct tally_json *object, const struct tally_estimates *estimates)
{
    if (!(estimates->sigma > 0) && !(estimates->gradient_bound > 0) &&
        !(estimates->step_size > 0)) {
        return tally_json_set_null(object, "estimates");
    }
    struct tally_json *value = tally_json_object();
    return tally_json_set(
        object, "estimates",
        tally_json_if_complete(
            value, set_positive(value, "sigma", estimates->sigma) &&
                       set_positive(value, "gradient_bound", estimates->gradient_bound) &&
                       set_positive(value, "step_size", estimates->step_size) &&
                       set_positive(value, "step_size_error", estimates->step_size_error) &&
                       set_positive(value, "noise_growth", estimates->noise_growth)));
}

/* A spec without data has a smoothness of 0, which is as unknown as NaN. */
static bool set_curvature(struct tally_json *object, const struct tally_curvature *curvature)
{
    const bool is_known = curvature->smoothness > 0;
    return set_positive(object, "smoothness", curvature->smoothness) &&
           tally_json_set_real(object, "strong_convexity",
                               is_known ? curvature->strong_convexity : NAN);
}

static bool set_warnings(struct tally_json *object, const struct tally_advice *advice)
{
    struct tally_json *list = tally_json_array();
    bool ok = true;
    for (int i = 0; ok && advice != NULL && i < advice->n; i++) {
        ok = tally_json_append(list, tally_json_text(advice->texts[i]));
    }
    return tally_json_set(object, "warnings", tally_json_if_complete(list, ok));
}

static bool set_reason(struct tally_json *object, const struct tally_job_facts *facts)
{
    const char *text;
    const char *code = tally_reason_read(facts->status, facts->reason, &text);
    return tally_json_set_text_or_null(object, "reason", text) &&
           tally_json_set_text_or_null(object, "reason_code", code);
}

/* A job that has stopped may still be evaluating its last model. */
static bool set_stopped(struct tally_json *object, enum tally_job_status status,
                        const struct tally_stopped *stopped)
{
    if (stopped->rule[0] == '\0' || status != TALLY_JOB_COMPLETED) {
        return tally_json_set_null(object, "stopped_by");
    }
    struct tally_json *value = tally_json_object();
    return tally_json_set(
        object, "stopped_by",
        tally_json_if_complete(value, tally_json_set_text(value, "rule", stopped->rule) &&
                                          tally_json_set_real(value, "value", stopped->value) &&
                                          tally_json_set_integer(value, "round", stopped->round)));
}

static struct tally_json *summary_of(const struct tally_metric_summary *summary)
{
    struct tally_json *object = tally_json_object();
    return tally_json_if_complete(object, tally_json_set_real(object, "mean", summary->mean) &&
                                              tally_json_set_real(object, "min", summary->min) &&
                                              tally_json_set_real(object, "max", summary->max));
}

bool tally_detail_set_metrics(struct tally_json *object, const char *metrics)
{
    struct tally_metric_summary summary;
    if (metrics[0] == '\0') {
        return true;
    }
    struct tally_json *value = tally_json_object();
    bool ok = true;
    while (ok && tally_metrics_next(&metrics, &summary)) {
        ok = tally_json_set(value, summary.name, summary_of(&summary));
    }
    return tally_json_set(object, "metrics", tally_json_if_complete(value, ok));
}

bool tally_detail_add(struct tally_json *object, const struct tally_job_facts *facts,
                      const struct tally_progress *progress)
{
    char checksum[17];
    tally_detail_checksum(progress->x_checksum, checksum);
    return tally_json_set_text(object, "id", facts->id) &&
           tally_json_set_text(object, "status", tally_job_status_name(facts->status)) &&
           set_reason(object, facts) && set_stopped(object, facts->status, &progress->stopped) &&
           set_time(object, "created_ms", facts->created_ms) &&
           set_time(object, "started_ms", facts->started_ms) &&
           set_time(object, "finished_ms", facts->finished_ms) &&
           tally_json_set_integer(object, "dim", facts->dim) &&
           tally_json_set_integer(object, "time_step", progress->time_step) &&
           tally_json_set_integer(object, "round", progress->round) &&
           tally_json_set_integer(object, "iterate", progress->iterate) &&
           tally_json_set_integer(object, "stage", progress->stage) &&
           tally_json_set_real(object, "cumulative_regret", progress->cumulative_regret) &&
           tally_json_set_real(object, "loss", tally_progress_loss(progress)) &&
           tally_detail_set_metrics(object, progress->metrics) &&
           (progress->setback[0] == '\0' ||
            tally_json_set_text(object, "setback", progress->setback)) &&
           tally_json_set_real(object, "f_star", progress->has_f_star ? progress->f_star : NAN) &&
           tally_json_set_text_or_null(object, "x_checksum",
                                       progress->x_checksum != 0 ? checksum : NULL) &&
           set_estimates(object, &progress->estimates) &&
           set_curvature(object, &facts->curvature) && set_warnings(object, facts->advice) &&
           tally_planned_set(object, facts->planned) && set_waiting(object, facts->waiting) &&
           tally_json_set(object, "bits", job_bits_of(facts, &progress->bits));
}

struct tally_json *tally_detail_round(const struct tally_round_record *record)
{
    struct tally_json *object = tally_json_object();
    return tally_json_if_complete(
        object, tally_json_set_integer(object, "round", record->round) &&
                    tally_json_set_integer(object, "t", record->time_step) &&
                    tally_json_set_integer(object, "k", record->iterate) &&
                    tally_json_set_integer(object, "j", record->stage) &&
                    tally_json_set_integer(object, "samples", record->samples) &&
                    tally_json_set_integer(object, "received", record->received) &&
                    tally_json_set_real(object, "norm", record->norm) &&
                    tally_json_set_bool(object, "passed", record->passed) &&
                    tally_json_set_bool(object, "cut", record->cut) &&
                    tally_json_set_real(object, "loss", record->loss) &&
                    tally_json_set_real(object, "regret", record->cumulative_regret) &&
                    tally_json_set_text(object, "missing", record->missing) &&
                    tally_json_set_integer(object, "closed_ms", record->closed_ms) &&
                    tally_detail_set_metrics(object, record->metrics) &&
                    tally_json_set(object, "bits", ledger_of(&record->bits)));
}

enum tally_status tally_detail_round_csv_header(const char *metrics, struct tally_buffer *out)
{
    struct tally_metric_summary summary;
    enum tally_status status = tally_buffer_append_text(
        out, "round,t,k,j,samples,received,norm,passed,cut,loss,regret,"
             "uplink_formula_bits,uplink_payload_bits,uplink_messages,uplink_clipped,"
             "downlink_formula_bits,downlink_payload_bits,downlink_messages,downlink_clipped,"
             "delivered_payload_bits,control_bits,telemetry_bits,missing,closed_ms");
    while (status == TALLY_OK && tally_metrics_next(&metrics, &summary)) {
        status = tally_buffer_printf(out, ",%s_mean,%s_min,%s_max", summary.name, summary.name,
                                     summary.name);
    }
    return status == TALLY_OK ? tally_buffer_append_text(out, "\n") : status;
}

/* Empty where the JSON has null. */
static const char *csv_real(double value, char text[32])
{
    if (isfinite(value)) {
        snprintf(text, 32, "%.17g", value);
    }
    return isfinite(value) ? text : "";
}

#define BITS_FORMAT "%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ","
#define BITS(bits)  (bits).formula_bits, (bits).payload_bits, (bits).messages, (bits).clipped

/* The summary with this name in a text; NaN if there is none. */
static struct tally_metric_summary find_summary(const char *metrics, const char *name)
{
    struct tally_metric_summary summary;
    while (tally_metrics_next(&metrics, &summary)) {
        if (strcmp(summary.name, name) == 0) {
            return summary;
        }
    }
    return (struct tally_metric_summary){.mean = NAN, .min = NAN, .max = NAN};
}

static enum tally_status append_metrics(const struct tally_round_record *record,
                                        const char *metrics, struct tally_buffer *out)
{
    struct tally_metric_summary column;
    enum tally_status status = TALLY_OK;
    while (status == TALLY_OK && tally_metrics_next(&metrics, &column)) {
        const struct tally_metric_summary found = find_summary(record->metrics, column.name);
        char mean[32], min[32], max[32];
        status = tally_buffer_printf(out, ",%s,%s,%s", csv_real(found.mean, mean),
                                     csv_real(found.min, min), csv_real(found.max, max));
    }
    return status == TALLY_OK ? tally_buffer_append_text(out, "\n") : status;
}

enum tally_status tally_detail_round_csv(const struct tally_round_record *record,
                                         const char *metrics, struct tally_buffer *out)
{
    const struct tally_ledger *bits = &record->bits;
    char loss[32], regret[32];
    enum tally_status status = tally_buffer_printf(
        out,
        "%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64
        ",%.17g,%d,%d,%s,%s," BITS_FORMAT BITS_FORMAT "%" PRIu64 ",%" PRIu64 ",%" PRIu64
        ",%s,%" PRId64,
        record->round, record->time_step, record->iterate, record->stage, record->samples,
        record->received, record->norm, record->passed, record->cut, csv_real(record->loss, loss),
        csv_real(record->cumulative_regret, regret), BITS(bits->uplink), BITS(bits->downlink),
        bits->delivered_payload_bits, bits->control_bits, bits->telemetry_bits, record->missing,
        record->closed_ms);
    return status == TALLY_OK ? append_metrics(record, metrics, out) : status;
}

enum tally_status tally_detail_npy_header(size_t n, struct tally_buffer *out)
{
    /* Magic, version 1.0, header length; the header is padded so that the data start at a multiple
     * of 64 (NEP 1). */
    char header[TALLY_NPY_HEADER_BYTES];
    memset(header, ' ', sizeof header);
    memcpy(header, "\x93NUMPY\x01\x00\x76\x00", 10);
    int length = snprintf(header + 10, sizeof header - 10,
                          "{'descr': '<f8', 'fortran_order': False, 'shape': (%zu,), }", n);
    header[10 + length] = ' ';
    header[sizeof header - 1] = '\n';
    return tally_buffer_append(out, header, sizeof header);
}

enum tally_status tally_detail_npy(const double *values, size_t n, struct tally_buffer *out)
{
    const enum tally_status status = tally_detail_npy_header(n, out);
    return status == TALLY_OK ? tally_buffer_append(out, values, n * sizeof *values) : status;
}
