#include "services/document/detail.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "services/job/reasons.h"

void tally_detail_checksum(uint64_t checksum, char ret_text[17])
{
    snprintf(ret_text, 17, "%016" PRIx64, checksum);
}

static bool set_time(struct tally_json *object, const char *key, int64_t ms)
{
    return ms == 0 ? tally_json_set_null(object, key) : tally_json_set_integer(object, key, ms);
}

static struct tally_json *bits_of(const struct tally_bits *bits)
{
    struct tally_json *object = tally_json_object();
    bool ok = object != NULL && tally_json_set_unsigned(object, "formula", bits->formula_bits) &&
              tally_json_set_unsigned(object, "payload", bits->payload_bits) &&
              tally_json_set_unsigned(object, "messages", bits->messages) &&
              tally_json_set_unsigned(object, "clipped", bits->clipped);
    if (!ok) {
        tally_json_free(object);
        return NULL;
    }
    return object;
}

/* A number of a CSV line with its comma; nothing where the JSON has null. */
static enum tally_status csv_real(double value, struct tally_buffer *out)
{
    return isfinite(value) ? tally_buffer_printf(out, ",%.17g", value)
                           : tally_buffer_append_text(out, ",");
}

/* uplink, downlink, control and telemetry: what rounds and jobs both have. */
static struct tally_json *ledger_of(const struct tally_ledger *ledger)
{
    struct tally_json *object = tally_json_object();
    struct tally_json *uplink = bits_of(&ledger->uplink);
    struct tally_json *downlink = bits_of(&ledger->downlink);
    bool ok = downlink != NULL && tally_json_set_unsigned(downlink, "delivered_payload",
                                                          ledger->delivered_payload_bits);
    if (object == NULL || !ok) {
        tally_json_free(object);
        tally_json_free(uplink);
        tally_json_free(downlink);
        return NULL;
    }
    ok = tally_json_set(object, "uplink", uplink);
    ok = tally_json_set(object, "downlink", downlink) && ok;
    ok = tally_json_set_unsigned(object, "control", ledger->control_bits) && ok;
    ok = tally_json_set_unsigned(object, "telemetry", ledger->telemetry_bits) && ok;
    if (!ok) {
        tally_json_free(object);
        return NULL;
    }
    return object;
}

static bool add_job_bits(struct tally_json *object, const struct tally_job_facts *facts,
                         const struct tally_ledger *ledger)
{
    struct tally_json *bits = ledger_of(ledger);
    struct tally_json *each = tally_json_object();
    struct tally_json *wire = tally_json_object();
    const double clients = (double)facts->clients;
    bool ok = bits != NULL && each != NULL && wire != NULL;
    ok = ok && tally_json_set_real(each, "formula", (double)ledger->uplink.formula_bits / clients);
    ok = ok && tally_json_set_real(each, "payload", (double)ledger->uplink.payload_bits / clients);
    ok = ok && tally_json_set_unsigned(wire, "in", facts->wire_in_bytes);
    ok = ok && tally_json_set_unsigned(wire, "out", facts->wire_out_bytes);
    if (!ok) {
        tally_json_free(bits);
        tally_json_free(each);
        tally_json_free(wire);
        return false;
    }
    ok = tally_json_set(bits, "uplink_per_client", each);
    ok = tally_json_set_unsigned(bits, "recovery", facts->recovery_bits) && ok;
    ok = tally_json_set(bits, "wire_bytes", wire) && ok;
    return tally_json_set(object, "bits", bits) && ok;
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
    bool ok = list != NULL;
    for (int i = 0; ok && i < waiting->n_workers; i++) {
        ok = tally_json_append(list, tally_json_text(waiting->workers[i]));
    }
    if (!ok) {
        tally_json_free(list);
        return NULL;
    }
    return list;
}

static bool set_waiting(struct tally_json *object, const struct tally_waiting *waiting)
{
    if (waiting == NULL) {
        return tally_json_set_null(object, "waiting");
    }
    struct tally_json *value = tally_json_object();
    bool ok = value != NULL && tally_json_set_text(value, "for", WAITING_FOR[waiting->what]) &&
              tally_json_set_integer(value, "since_ms", waiting->since_ms) &&
              tally_json_set_text(value, "clients", waiting->clients) &&
              tally_json_set(value, "workers", workers_of(waiting)) &&
              tally_json_set_text(value, "text", waiting->text);
    if (!ok) {
        tally_json_free(value);
        return false;
    }
    return tally_json_set(object, "waiting", value);
}

static bool set_estimate(struct tally_json *object, const char *key, double value)
{
    return value > 0 ? tally_json_set_real(object, key, value) : tally_json_set_null(object, key);
}

static bool set_estimates(struct tally_json *object, const struct tally_estimates *estimates)
{
    if (!(estimates->sigma > 0) && !(estimates->gradient_bound > 0)) {
        return tally_json_set_null(object, "estimates");
    }
    struct tally_json *value = tally_json_object();
    bool ok = value != NULL && set_estimate(value, "sigma", estimates->sigma) &&
              set_estimate(value, "gradient_bound", estimates->gradient_bound);
    if (!ok) {
        tally_json_free(value);
        return false;
    }
    return tally_json_set(object, "estimates", value);
}

/* Zero is what a spec without data gets: as unknown as NaN. */
static bool set_curvature(struct tally_json *object, const struct tally_curvature *curvature)
{
    const bool is_known = curvature->smoothness > 0;
    return (is_known ? tally_json_set_real(object, "smoothness", curvature->smoothness)
                     : tally_json_set_null(object, "smoothness")) &&
           (is_known ? tally_json_set_real(object, "strong_convexity", curvature->strong_convexity)
                     : tally_json_set_null(object, "strong_convexity"));
}

static bool set_warnings(struct tally_json *object, const struct tally_advice *advice)
{
    struct tally_json *list = tally_json_array();
    bool ok = list != NULL;
    for (int i = 0; ok && advice != NULL && i < advice->n; i++) {
        ok = tally_json_append(list, tally_json_text(advice->texts[i]));
    }
    if (!ok) {
        tally_json_free(list);
        return false;
    }
    return tally_json_set(object, "warnings", list);
}

static bool set_text_or_null(struct tally_json *object, const char *key, const char *text)
{
    return text != NULL && text[0] != '\0' ? tally_json_set_text(object, key, text)
                                           : tally_json_set_null(object, key);
}

static bool set_reason(struct tally_json *object, const struct tally_job_facts *facts)
{
    const char *text;
    const char *code = tally_reason_read(facts->status, facts->reason, &text);
    return set_text_or_null(object, "reason", text) &&
           set_text_or_null(object, "reason_code", code);
}

bool tally_detail_add(struct tally_json *object, const struct tally_job_facts *facts,
                      const struct tally_progress *progress)
{
    char checksum[17];
    tally_detail_checksum(progress->x_checksum, checksum);
    bool ok = tally_json_set_text(object, "id", facts->id);
    ok = ok && tally_json_set_text(object, "status", tally_job_status_name(facts->status));
    ok = ok && set_reason(object, facts);
    ok = ok && set_time(object, "created_ms", facts->created_ms);
    ok = ok && set_time(object, "started_ms", facts->started_ms);
    ok = ok && set_time(object, "finished_ms", facts->finished_ms);
    ok = ok && tally_json_set_integer(object, "dim", facts->dim);
    ok = ok && tally_json_set_integer(object, "time_step", progress->time_step);
    ok = ok && tally_json_set_integer(object, "round", progress->round);
    ok = ok && tally_json_set_integer(object, "iterate", progress->iterate);
    ok = ok && tally_json_set_integer(object, "stage", progress->stage);
    ok = ok && tally_json_set_real(object, "cumulative_regret", progress->cumulative_regret);
    ok = ok && (progress->has_f_star ? tally_json_set_real(object, "f_star", progress->f_star)
                                     : tally_json_set_null(object, "f_star"));
    ok = ok && tally_json_set_text(object, "x_checksum", checksum);
    ok = ok && set_estimates(object, &progress->estimates);
    ok = ok && set_curvature(object, &facts->curvature);
    ok = ok && set_warnings(object, facts->advice);
    ok = ok && set_waiting(object, facts->waiting);
    return ok && add_job_bits(object, facts, &progress->bits);
}

struct tally_json *tally_detail_round(const struct tally_round_record *record)
{
    struct tally_json *object = tally_json_object();
    bool ok = object != NULL;
    ok = ok && tally_json_set_integer(object, "round", record->round);
    ok = ok && tally_json_set_integer(object, "t", record->time_step);
    ok = ok && tally_json_set_integer(object, "k", record->iterate);
    ok = ok && tally_json_set_integer(object, "j", record->stage);
    ok = ok && tally_json_set_integer(object, "samples", record->samples);
    ok = ok && tally_json_set_integer(object, "received", record->received);
    ok = ok && tally_json_set_real(object, "norm", record->norm);
    ok = ok && tally_json_set_bool(object, "passed", record->passed);
    ok = ok && tally_json_set_bool(object, "cut", record->cut);
    ok = ok && tally_json_set_real(object, "loss", record->loss);
    ok = ok && tally_json_set_real(object, "regret", record->cumulative_regret);
    ok = ok && tally_json_set_text(object, "missing", record->missing);
    ok = ok && tally_json_set(object, "bits", ledger_of(&record->bits));
    if (!ok) {
        tally_json_free(object);
        return NULL;
    }
    return object;
}

enum tally_status tally_detail_round_csv_header(struct tally_buffer *out)
{
    return tally_buffer_append_text(
        out, "round,t,k,j,samples,received,norm,passed,cut,loss,regret,"
             "uplink_formula_bits,uplink_payload_bits,uplink_messages,uplink_clipped,"
             "downlink_formula_bits,downlink_payload_bits,downlink_messages,downlink_clipped,"
             "delivered_payload_bits,control_bits,telemetry_bits,missing\n");
}

static enum tally_status bits_csv(const struct tally_bits *bits, struct tally_buffer *out)
{
    return tally_buffer_printf(out, ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64,
                               bits->formula_bits, bits->payload_bits, bits->messages,
                               bits->clipped);
}

enum tally_status tally_detail_round_csv(const struct tally_round_record *record,
                                         struct tally_buffer *out)
{
    const struct tally_ledger *bits = &record->bits;
    enum tally_status status = tally_buffer_printf(
        out, "%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%.17g,%d,%d",
        record->round, record->time_step, record->iterate, record->stage, record->samples,
        record->received, record->norm, record->passed, record->cut);
    if (status == TALLY_OK) {
        status = csv_real(record->loss, out);
    }
    if (status == TALLY_OK) {
        status = csv_real(record->cumulative_regret, out);
    }
    if (status == TALLY_OK) {
        status = bits_csv(&bits->uplink, out);
    }
    if (status == TALLY_OK) {
        status = bits_csv(&bits->downlink, out);
    }
    if (status == TALLY_OK) {
        status = tally_buffer_printf(out, ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%s\n",
                                     bits->delivered_payload_bits, bits->control_bits,
                                     bits->telemetry_bits, record->missing);
    }
    return status;
}

enum tally_status tally_detail_npy(const double *values, size_t n, struct tally_buffer *out)
{
    /* Magic, version 1.0, header length; the header is padded so that the data start at a multiple
     * of 64 (NEP 1). */
    char header[128];
    memset(header, ' ', sizeof header);
    memcpy(header, "\x93NUMPY\x01\x00\x76\x00", 10);
    int length = snprintf(header + 10, sizeof header - 10,
                          "{'descr': '<f8', 'fortran_order': False, 'shape': (%zu,), }", n);
    header[10 + length] = ' ';
    header[sizeof header - 1] = '\n';
    enum tally_status status = tally_buffer_append(out, header, sizeof header);
    return status == TALLY_OK ? tally_buffer_append(out, values, n * sizeof *values) : status;
}
