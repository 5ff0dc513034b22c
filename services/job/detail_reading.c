#include "services/job/detail_reading.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/utf8.h"
#include "services/job/job_detail.h"

/* A text that is too long is cut between two characters: the cut one can be shown, and differs. */
static void cut(char *text)
{
    text[tally_utf8_valid_prefix(text, strlen(text))] = '\0';
}

static void read_text(const struct tally_json *object, const char *key, char *ret_text,
                      size_t capacity)
{
    const char *text = tally_json_get_text(object, key);
    snprintf(ret_text, capacity, "%s", text != NULL ? text : "");
    cut(ret_text);
}

static uint64_t read_unsigned(const struct tally_json *object, const char *key)
{
    const int64_t value = tally_json_get_integer(object, key, 0);
    return value > 0 ? (uint64_t)value : 0;
}

static double read_real(const struct tally_json *object, const char *key)
{
    return tally_json_get_real(object, key, (double)NAN);
}

/* Numbers of which 0 means unknown. */
static double read_known(const struct tally_json *object, const char *key)
{
    return tally_json_get_real(object, key, 0);
}

static void read_bits(const struct tally_json *object, struct tally_bits *ret_bits)
{
    *ret_bits = (struct tally_bits){.formula_bits = read_unsigned(object, "formula"),
                                    .payload_bits = read_unsigned(object, "payload"),
                                    .messages = read_unsigned(object, "messages"),
                                    .clipped = read_unsigned(object, "clipped")};
}

static void read_ledger(const struct tally_json *object, struct tally_ledger *ret_ledger)
{
    const struct tally_json *downlink = tally_json_get(object, "downlink");
    read_bits(tally_json_get(object, "uplink"), &ret_ledger->uplink);
    read_bits(downlink, &ret_ledger->downlink);
    ret_ledger->delivered_payload_bits = read_unsigned(downlink, "delivered_payload");
    ret_ledger->control_bits = read_unsigned(object, "control");
    ret_ledger->telemetry_bits = read_unsigned(object, "telemetry");
}

/* Reads at most as many summaries as fit. Names must ascend, as they do where they were written. */
static void read_metrics(const struct tally_json *object, char ret_text[TALLY_METRICS_CAPACITY])
{
    const struct tally_json *metrics = tally_json_get(object, "metrics");
    const char *key, *last = "";
    memset(ret_text, 0, TALLY_METRICS_CAPACITY);
    for (size_t i = 0; i < TALLY_JOB_METRICS_MOST && (key = tally_json_key(metrics, i)) != NULL;
         i++) {
        const struct tally_json *summary = tally_json_get(metrics, key);
        struct tally_metric_summary read = {.mean = read_real(summary, "mean"),
                                            .min = read_real(summary, "min"),
                                            .max = read_real(summary, "max")};
        if (!tally_metric_is_name(key) || strcmp(last, key) >= 0) {
            return;
        }
        snprintf(read.name, sizeof read.name, "%s", key);
        tally_metrics_append(ret_text, &read);
        last = key;
    }
}

uint64_t tally_detail_read_checksum(const char *text)
{
    return text != NULL && strlen(text) == 16 && strspn(text, "0123456789abcdef") == 16
               ? strtoull(text, NULL, 16)
               : 0;
}

/* The stored form of a reason (job_reasons.h). */
static void read_reason(const struct tally_json *detail, enum tally_job_status status,
                        char ret_reason[TALLY_REASON_CAPACITY])
{
    const char *text = tally_json_get_text(detail, "reason");
    const char *code = tally_json_get_text(detail, "reason_code");
    const char *own;
    memset(ret_reason, 0, TALLY_REASON_CAPACITY);
    if (text == NULL) {
        return;
    }
    snprintf(ret_reason, TALLY_REASON_CAPACITY, "%s", text);
    const char *implied = tally_reason_read(status, ret_reason, &own);
    if (code != NULL && (implied == NULL || strcmp(implied, code) != 0)) {
        (void)snprintf(ret_reason, TALLY_REASON_CAPACITY, "%s: %s", code, text);
    }
    cut(ret_reason);
}

static void read_stopped(const struct tally_json *detail, struct tally_stopped *ret_stopped)
{
    const struct tally_json *stopped = tally_json_get(detail, "stopped_by");
    read_text(stopped, "rule", ret_stopped->rule, sizeof ret_stopped->rule);
    if (ret_stopped->rule[0] != '\0') {
        ret_stopped->value = read_real(stopped, "value");
        ret_stopped->round = tally_json_get_integer(stopped, "round", 0);
    }
}

static void read_progress(const struct tally_json *detail, struct tally_progress *ret_progress)
{
    const struct tally_json *estimates = tally_json_get(detail, "estimates");
    const double f_star = read_real(detail, "f_star");
    *ret_progress = (struct tally_progress){
        .round = tally_json_get_integer(detail, "round", 0),
        .time_step = tally_json_get_integer(detail, "time_step", 0),
        .iterate = tally_json_get_integer(detail, "iterate", 0),
        .stage = tally_json_get_integer(detail, "stage", 0),
        .cumulative_regret = read_real(detail, "cumulative_regret"),
        .f_star = f_star,
        .has_f_star = !isnan(f_star),
        .loss = read_real(detail, "loss"),
        .x_checksum = tally_detail_read_checksum(tally_json_get_text(detail, "x_checksum")),
        .estimates = {.sigma = read_known(estimates, "sigma"),
                      .gradient_bound = read_known(estimates, "gradient_bound"),
                      .step_size = read_known(estimates, "step_size"),
                      .step_size_error = read_known(estimates, "step_size_error"),
                      .noise_growth = read_known(estimates, "noise_growth")}};
    read_ledger(tally_json_get(detail, "bits"), &ret_progress->bits);
    read_metrics(detail, ret_progress->metrics);
    read_stopped(detail, &ret_progress->stopped);
    read_text(detail, "setback", ret_progress->setback, sizeof ret_progress->setback);
}

/* The text of the schedule that a plan follows (algorithm.h): the last epoch of a plan has no
 * message and is not in it. */
static void read_schedule(const struct tally_json *detail, char ret_text[TALLY_SCHEDULE_CAPACITY])
{
    const struct tally_json *planned = tally_json_get(detail, "planned");
    const struct tally_json *epochs = tally_json_get(planned, "epochs");
    char texts[TALLY_SCHEDULE_CAPACITY] = "";
    size_t at = 0, n = 0;
    for (; n < tally_json_size(epochs); n++) {
        const struct tally_json *epoch = tally_json_at(epochs, n);
        const double up = read_real(epoch, "uplink_resolution");
        const double down = read_real(epoch, "downlink_resolution");
        if (isnan(up) || isnan(down)) {
            break;
        }
        const int length = snprintf(texts + at, sizeof texts - at, " %" PRId64 " %a %a",
                                    tally_json_get_integer(epoch, "samples", 0), up, down);
        if (length < 0 || (size_t)length >= sizeof texts - at) {
            return;
        }
        at += (size_t)length;
    }
    if (tally_json_is_object(planned) && at < sizeof texts - 8) {
        snprintf(ret_text, TALLY_SCHEDULE_CAPACITY, "%zu%.*s", n, (int)sizeof texts - 8, texts);
    }
}

void tally_detail_read(const struct tally_json *detail, struct tally_detail_facts *ret_facts,
                       struct tally_progress *ret_progress)
{
    const struct tally_json *bits = tally_json_get(detail, "bits");
    const struct tally_json *wire = tally_json_get(bits, "wire_bytes");
    const char *status = tally_json_get_text(detail, "status");
    const double strong = read_real(detail, "strong_convexity");
    *ret_facts = (struct tally_detail_facts){
        .status = TALLY_JOB_QUEUED,
        .created_ms = tally_json_get_integer(detail, "created_ms", 0),
        .started_ms = tally_json_get_integer(detail, "started_ms", 0),
        .finished_ms = tally_json_get_integer(detail, "finished_ms", 0),
        .recovery_bits = read_unsigned(bits, "recovery"),
        .wire_in_bytes = read_unsigned(wire, "in"),
        .wire_out_bytes = read_unsigned(wire, "out"),
        .curvature = {.smoothness = read_real(detail, "smoothness"), .strong_convexity = strong}};
    if (status != NULL) {
        (void)tally_job_status_of_name(status, &ret_facts->status);
    }
    read_text(detail, "id", ret_facts->id, sizeof ret_facts->id);
    read_reason(detail, ret_facts->status, ret_facts->reason);
    read_schedule(detail, ret_facts->schedule);
    read_progress(detail, ret_progress);
}

void tally_detail_read_round(const struct tally_json *object, struct tally_round_record *ret_record)
{
    *ret_record =
        (struct tally_round_record){.round = tally_json_get_integer(object, "round", 0),
                                    .time_step = tally_json_get_integer(object, "t", 0),
                                    .iterate = tally_json_get_integer(object, "k", 0),
                                    .stage = tally_json_get_integer(object, "j", 0),
                                    .samples = tally_json_get_integer(object, "samples", 0),
                                    .received = tally_json_get_integer(object, "received", 0),
                                    .norm = read_real(object, "norm"),
                                    .passed = tally_json_is_true(tally_json_get(object, "passed")),
                                    .cut = tally_json_is_true(tally_json_get(object, "cut")),
                                    .loss = read_real(object, "loss"),
                                    .cumulative_regret = read_real(object, "regret"),
                                    .closed_ms = tally_json_get_integer(object, "closed_ms", 0)};
    read_text(object, "missing", ret_record->missing, sizeof ret_record->missing);
    read_ledger(tally_json_get(object, "bits"), &ret_record->bits);
    read_metrics(object, ret_record->metrics);
}

static bool is_among(const char *key, const char *const *keys)
{
    for (; *keys != NULL; keys++) {
        if (strcmp(*keys, key) == 0) {
            return true;
        }
    }
    return false;
}

bool tally_detail_matches(const struct tally_json *a, const struct tally_json *b,
                          const char *const *others, char ret_key[TALLY_DETAIL_KEY_CAPACITY])
{
    const struct tally_json *const sides[] = {a, b};
    const char *key;
    for (int side = 0; side < 2; side++) {
        for (size_t i = 0; (key = tally_json_key(sides[side], i)) != NULL; i++) {
            if (!is_among(key, others) &&
                !tally_json_is_same(tally_json_get(a, key), tally_json_get(b, key))) {
                snprintf(ret_key, TALLY_DETAIL_KEY_CAPACITY, "%.60s", key);
                return false;
            }
        }
    }
    return true;
}
