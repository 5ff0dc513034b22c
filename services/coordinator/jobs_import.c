#include "services/coordinator/jobs_import.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/http/sha256.h"
#include "codec/numeric/checksum.h"
#include "codec/utf8.h"
#include "services/base/alloc.h"
#include "services/base/bundle.h"
#include "services/base/log.h"
#include "services/base/time.h"
#include "services/coordinator/hosted_job.h"
#include "services/coordinator/jobs_lifecycle.h"
#include "services/coordinator/loop_transaction.h"
#include "services/coordinator/provenance.h"
#include "services/coordinator/traffic.h"
#include "services/job/detail_reading.h"
#include "services/job/document.h"

static const struct tally_json_limits DETAIL_LIMITS = {
    .bytes = 4 << 20, .values = 20000, .depth = 32};
static const struct tally_json_limits MODELS_LIMITS = {
    .bytes = 1 << 20, .values = 20000, .depth = 8};
static const struct tally_json_limits LINE_LIMITS = {.bytes = 64 << 10, .values = 500, .depth = 8};

/* The end of the year 9999, Unix time: sums of times cannot overflow. */
#define LAST_MS INT64_C(253402300799999)
/* Far above any stage. */
#define MOST_STAGE (INT64_C(1) << 53)

/* A round record without its metrics, which follow it as a text with NUL. */
enum { RECORD_HEAD = offsetof(struct tally_round_record, metrics) };
_Static_assert(sizeof(struct tally_round_record) == RECORD_HEAD + TALLY_METRICS_CAPACITY,
               "the metrics are last");

struct imported_model {
    struct tally_store_model model;
    const uint8_t *x; /* in the bundle; not aligned */
};

struct imported_job {
    const atomic_bool *stop; /* the reader's */
    struct tally_bundle_member *members;
    size_t n_members;
    struct tally_store_job row;
    struct tally_job_spec spec;
    struct tally_buffer document; /* a copy of document.json */
    struct tally_json *detail;    /* job.json */
    struct tally_buffer rounds;   /* heads, each with its metrics */
    struct tally_buffer *metrics; /* blocks, each at the place of its first client */
    size_t n_metrics;
    uint32_t metrics_round, last_metric_client;
    size_t n_metric_clients;
    struct client_traffic *traffic; /* [row.clients] */
    struct imported_model *models;  /* kept ones */
    size_t n_models;
    struct tally_buffer state; /* empty = it has not started */
    struct provenance_rows provenance;
};

void imported_job_free(struct imported_job *job)
{
    if (job == NULL) {
        return;
    }
    for (size_t i = 0; i < job->n_metrics; i++) {
        tally_buffer_fini(&job->metrics[i]);
    }
    free(job->metrics);
    free(job->members);
    free(job->traffic);
    free(job->models);
    tally_json_free(job->detail);
    tally_buffer_fini(&job->document);
    tally_buffer_fini(&job->rounds);
    tally_buffer_fini(&job->state);
    provenance_rows_fini(&job->provenance);
    free(job);
}

/* ---- Members. */

static const struct tally_bundle_member *find_member(const struct imported_job *job,
                                                     const char *name)
{
    for (size_t i = 0; i < job->n_members; i++) {
        if (strcmp(job->members[i].name, name) == 0) {
            return &job->members[i];
        }
    }
    return NULL;
}

static enum tally_status get_member(const struct imported_job *job, const char *name,
                                    const struct tally_bundle_member **ret_member,
                                    struct tally_error *err)
{
    *ret_member = find_member(job, name);
    return *ret_member != NULL
               ? TALLY_OK
               : tally_fail(err, TALLY_INVALID_ARGUMENT, name, "the bundle has no %s", name);
}

/* Errors that name no field are about the member. */
static enum tally_status parse(const char *text, size_t n, const struct tally_json_limits *limits,
                               const char *name, struct tally_json **ret_value,
                               struct tally_error *err)
{
    struct tally_error why = TALLY_ERROR_INIT;
    enum tally_status status = tally_json_check_limits(text, n, limits, &why);
    status = status == TALLY_OK ? tally_json_parse(text, n, ret_value, &why) : status;
    if (status == TALLY_OK && !tally_json_is_object(*ret_value)) {
        tally_json_free(*ret_value);
        *ret_value = NULL;
        status = tally_fail(&why, TALLY_INVALID_ARGUMENT, NULL, "not an object");
    }
    return status == TALLY_OK ? status : tally_fail(err, status, name, "%s: %s", name, why.message);
}

static enum tally_status read_json(const struct imported_job *job, const char *name,
                                   const struct tally_json_limits *limits,
                                   struct tally_json **ret_value, struct tally_error *err)
{
    const struct tally_bundle_member *member;
    const enum tally_status status = get_member(job, name, &member, err);
    return status == TALLY_OK
               ? parse((const char *)member->bytes, member->n, limits, name, ret_value, err)
               : status;
}

typedef enum tally_status line_fn(struct imported_job *job, const struct tally_json *value,
                                  const char *line, size_t n, struct tally_error *err);

/* Calls `each` for every line of a member, which ends with a line feed. */
static enum tally_status read_lines(struct imported_job *job, const char *name, line_fn *each,
                                    struct tally_error *err)
{
    const struct tally_bundle_member *member;
    enum tally_status status = get_member(job, name, &member, err);
    size_t at = 0;
    for (int64_t number = 1; status == TALLY_OK && at < member->n; number++) {
        const char *line = (const char *)member->bytes + at;
        const char *end = memchr(line, '\n', member->n - at);
        struct tally_json *value = NULL;
        if (end == NULL) {
            return tally_fail(err, TALLY_INVALID_ARGUMENT, name, "%s ends within line %" PRId64,
                              name, number);
        }
        if (atomic_load(job->stop)) {
            return tally_fail(err, TALLY_CANCELLED, NULL, "nobody waits for the import any more");
        }
        const size_t n = (size_t)(end - line);
        status = parse(line, n, &LINE_LIMITS, name, &value, err);
        status = status == TALLY_OK ? each(job, value, line, n, err) : status;
        tally_json_free(value);
        if (status != TALLY_OK) {
            tally_error_wrap(err, "line %" PRId64, number);
        }
        at += n + 1;
    }
    return status;
}

/* The line as it is written again. */
static enum tally_status check_line(struct tally_json *again, const char *line, size_t n,
                                    const char *name, struct tally_error *err)
{
    struct tally_buffer text = {0};
    enum tally_status status = again != NULL ? tally_json_dump(again, 0, &text) : TALLY_NO_MEMORY;
    if (status != TALLY_OK) {
        tally_fail(err, status, NULL, "no memory for %s", name);
    } else if (text.size != n || memcmp(text.data, line, n) != 0) {
        size_t i = 0;
        while (i < n && i < text.size && text.data[i] == (uint8_t)line[i]) {
            i++;
        }
        const size_t rest = text.size - i; /* it does not end with NUL */
        status = tally_fail(err, TALLY_INVALID_ARGUMENT, name,
                            "%s: this coordinator would show \"%.*s\" from byte %zu of the line on",
                            name, rest < 40 ? (int)rest : 40,
                            rest > 0 ? (const char *)text.data + i : "", i);
    }
    tally_json_free(again);
    tally_buffer_fini(&text);
    return status;
}

static enum tally_status fail_memory(const char *what, struct tally_error *err)
{
    return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the %s of an imported job", what);
}

/* ---- Head and document. */

static enum tally_status read_head(const struct imported_job *job,
                                   char version[TALLY_DETAIL_KEY_CAPACITY], struct tally_error *err)
{
    struct tally_json *head = NULL;
    enum tally_status status = read_json(job, "bundle.json", &LINE_LIMITS, &head, err);
    const int64_t format = tally_json_get_integer(head, "format", 0);
    const char *text = tally_json_get_text(head, "version");
    if (status == TALLY_OK && format != TALLY_BUNDLE_FORMAT) {
        status = tally_fail(err, TALLY_INVALID_ARGUMENT, "bundle.json",
                            "the bundle has format %" PRId64
                            ", not %d: export the job again with the release of this coordinator",
                            format, (int)TALLY_BUNDLE_FORMAT);
    }
    if (status == TALLY_OK && (text == NULL || strlen(text) >= TALLY_DETAIL_KEY_CAPACITY ||
                               text[tally_utf8_find_control(text)] != '\0')) {
        status =
            tally_fail(err, TALLY_INVALID_ARGUMENT, "bundle.json",
                       "version is no text of less than %d bytes", (int)TALLY_DETAIL_KEY_CAPACITY);
    }
    snprintf(version, TALLY_DETAIL_KEY_CAPACITY, "%s", text != NULL ? text : "");
    tally_json_free(head);
    return status;
}

static enum tally_status read_document(struct imported_job *job, struct tally_error *err)
{
    const struct tally_bundle_member *member;
    enum tally_status status = get_member(job, "document.json", &member, err);
    if (status == TALLY_OK) {
        status = tally_document_parse((const char *)member->bytes, member->n, &job->spec, err);
    }
    if (status == TALLY_OK &&
        tally_buffer_append(&job->document, member->bytes, member->n) != TALLY_OK) {
        status = fail_memory("document", err);
    }
    return status;
}

/* ---- The detail. */

/* Texts that are shown as one line. */
static enum tally_status check_texts(const struct tally_store_job *row, struct tally_error *err)
{
    const struct {
        const char *field, *text;
    } texts[] = {{"name", row->name},
                 {"reason", row->reason},
                 {"setback", row->progress.setback},
                 {"stopped_by", row->progress.stopped.rule}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const size_t control = tally_utf8_find_control(texts[i].text);
        if (texts[i].text[control] != '\0') {
            return tally_fail(err, TALLY_INVALID_ARGUMENT, texts[i].field,
                              "%s has a control character at byte %zu", texts[i].field, control);
        }
    }
    return TALLY_OK;
}

static enum tally_status check_row(const struct tally_store_job *row, struct tally_error *err)
{
    const struct tally_progress *progress = &row->progress;
    if (!jobs_may_be_id(row->id)) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "id",
                          "id \"%.32s\" is not 12 hexadecimal digits", row->id);
    }
    if (!tally_job_status_is_terminal(row->status)) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "status",
                          "the job is %s, or its status is none: only a job that has ended can be "
                          "imported",
                          tally_job_status_name(row->status));
    }
    const bool is_ordered = row->created_ms > 0 &&
                            (row->started_ms == 0 || row->started_ms >= row->created_ms) &&
                            row->finished_ms >= row->created_ms &&
                            row->finished_ms >= row->started_ms && row->finished_ms <= LAST_MS;
    if (!is_ordered) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "finished_ms",
                          "created_ms %" PRId64 ", started_ms %" PRId64 " and finished_ms %" PRId64
                          " are not in this order, or after the year 9999",
                          row->created_ms, row->started_ms, row->finished_ms);
    }
    const bool has_started = row->started_ms > 0;
    if (progress->round < 0 || progress->round > row->horizon || progress->iterate < 1 ||
        progress->iterate > progress->round + 1 || progress->stage < 0 ||
        progress->stage > MOST_STAGE || (!has_started && progress->round > 0)) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "round",
                          "round %" PRId64 ", iterate %" PRId64 " and stage %" PRId64
                          " are not those of a job with the horizon %" PRId64,
                          progress->round, progress->iterate, progress->stage, row->horizon);
    }
    if (!has_started && row->status == TALLY_JOB_COMPLETED) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "started_ms",
                          "the job has completed and has never started");
    }
    return check_texts(row, err);
}

/* The detail without what is computed when it is shown. */
static const char *const NOT_COMPARED[] = {"provenance", "imported", "warnings", "planned", NULL};

static enum tally_status compare_detail(const struct imported_job *job, struct tally_error *err)
{
    char key[TALLY_DETAIL_KEY_CAPACITY] = "";
    struct tally_json *again = hosted_job_detail(&job->row, &job->document, &job->spec, NULL);
    if (again == NULL) {
        return fail_memory("detail", err);
    }
    const bool is_planned = tally_json_is_object(tally_json_get(job->detail, "planned"));
    enum tally_status status = TALLY_OK;
    if (!tally_detail_matches(job->detail, again, NOT_COMPARED, key)) {
        status = tally_fail(err, TALLY_INVALID_ARGUMENT, key,
                            "job.json: this coordinator would show another %s, or none: the bundle "
                            "is of another release, or not of this document",
                            key);
    } else if (is_planned != tally_json_is_object(tally_json_get(again, "planned"))) {
        status = tally_fail(err, TALLY_INVALID_ARGUMENT, "planned",
                            "job.json: the plan is not one of this document");
    }
    tally_json_free(again);
    return status;
}

static enum tally_status read_detail(struct imported_job *job, struct tally_error *err)
{
    const struct tally_job_spec *spec = &job->spec;
    struct tally_store_job *row = &job->row;
    struct tally_detail_facts facts;
    enum tally_status status = read_json(job, "job.json", &DETAIL_LIMITS, &job->detail, err);
    if (status != TALLY_OK) {
        return status;
    }
    tally_detail_read(job->detail, &facts, &row->progress);
    row->status = facts.status;
    row->created_ms = facts.created_ms;
    row->started_ms = facts.started_ms;
    row->finished_ms = facts.finished_ms;
    row->recovery_bits = facts.recovery_bits;
    row->wire_in_bytes = facts.wire_in_bytes;
    row->wire_out_bytes = facts.wire_out_bytes;
    row->curvature = facts.curvature;
    row->clients = spec->clients;
    row->dim = (int64_t)tally_objective_spec_dim(&spec->objective);
    row->horizon = spec->horizon;
    memcpy(row->schedule, facts.schedule, sizeof row->schedule);
    memcpy(row->labels, spec->labels, sizeof row->labels);
    snprintf(row->id, sizeof row->id, "%s", facts.id);
    snprintf(row->reason, sizeof row->reason, "%s", facts.reason);
    snprintf(row->name, sizeof row->name, "%s", spec->name);
    snprintf(row->algorithm, sizeof row->algorithm, "%s", tally_job_spec_algorithm(spec)->name);
    status = check_row(row, err);
    return status == TALLY_OK ? compare_detail(job, err) : status;
}

/* ---- Rounds. */

struct rounds_sum {
    struct tally_round_record last;
    struct tally_ledger bits;
};

static enum tally_status add_round(struct imported_job *job, const struct tally_json *value,
                                   const char *line, size_t n, struct tally_error *err)
{
    struct tally_round_record record;
    tally_detail_read_round(value, &record);
    enum tally_status status =
        check_line(tally_detail_round(&record), line, n, "rounds.jsonl", err);
    if (status == TALLY_OK && (record.stage < 0 || record.stage > MOST_STAGE ||
                               record.samples < 0 || record.samples > job->row.horizon ||
                               record.received < 0 || record.received > job->row.clients ||
                               record.closed_ms < 0 || record.closed_ms > LAST_MS)) {
        status = tally_fail(err, TALLY_INVALID_ARGUMENT, "rounds.jsonl",
                            "stage %" PRId64 ", samples %" PRId64 ", received %" PRId64
                            " or closed_ms %" PRId64 " is not of this job",
                            record.stage, record.samples, record.received, record.closed_ms);
    }
    if (status == TALLY_OK && strspn(record.missing, "0123456789-. ") != strlen(record.missing)) {
        status = tally_fail(err, TALLY_INVALID_ARGUMENT, "rounds.jsonl",
                            "missing \"%.64s\" is no list of clients", record.missing);
    }
    if (status == TALLY_OK &&
        (tally_buffer_append(&job->rounds, &record, RECORD_HEAD) != TALLY_OK ||
         tally_buffer_append(&job->rounds, record.metrics, strlen(record.metrics) + 1) !=
             TALLY_OK)) {
        status = fail_memory("rounds", err);
    }
    return status;
}

/* Reads the record at *at and advances; false at the end. */
static bool next_round(const struct imported_job *job, size_t *at,
                       struct tally_round_record *ret_record)
{
    if (*at == job->rounds.size) {
        return false;
    }
    const uint8_t *from = job->rounds.data + *at;
    const size_t n_metrics = strlen((const char *)from + RECORD_HEAD) + 1;
    memset(ret_record, 0, sizeof *ret_record);
    memcpy(ret_record, from, RECORD_HEAD);
    memcpy(ret_record->metrics, from + RECORD_HEAD, n_metrics);
    *at += RECORD_HEAD + n_metrics;
    return true;
}

static bool is_same_real(double a, double b)
{
    uint64_t bits[2]; /* 0 and -0 are shown differently */
    memcpy(&bits[0], &a, sizeof a);
    memcpy(&bits[1], &b, sizeof b);
    return bits[0] == bits[1] || (isnan(a) && isnan(b));
}

/* The records must lead to the progress. */
static enum tally_status check_rounds(const struct imported_job *job, struct tally_error *err)
{
    const struct tally_progress *progress = &job->row.progress;
    struct rounds_sum sum = {.bits = {.control_bits = 0}};
    struct tally_round_record record;
    size_t at = 0;
    while (next_round(job, &at, &record)) {
        if (record.round != sum.last.round + 1 || record.round > progress->round ||
            record.time_step < sum.last.time_step || record.iterate < sum.last.iterate ||
            record.iterate > progress->iterate) {
            return tally_fail(err, TALLY_INVALID_ARGUMENT, "rounds.jsonl",
                              "the record of round %" PRId64 ", time step %" PRId64
                              " and iterate %" PRId64 " follows that of round %" PRId64
                              ", time step %" PRId64 " and iterate %" PRId64 ", of %" PRId64,
                              record.round, record.time_step, record.iterate, sum.last.round,
                              sum.last.time_step, sum.last.iterate, progress->round);
        }
        tally_ledger_add(&sum.bits, &record.bits);
        sum.last = record;
    }
    if (sum.last.round != progress->round) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "rounds.jsonl",
                          "%" PRId64 " round records, not %" PRId64, sum.last.round,
                          progress->round);
    }
    if (memcmp(&sum.bits, &progress->bits, sizeof sum.bits) != 0) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "bits",
                          "the bits of the rounds do not add up to those of the job");
    }
    return progress->round == 0 ||
                   (sum.last.time_step == progress->time_step &&
                    is_same_real(sum.last.cumulative_regret, progress->cumulative_regret))
               ? TALLY_OK
               : tally_fail(err, TALLY_INVALID_ARGUMENT, "rounds.jsonl",
                            "the last round leads to another time step or regret than the job's");
}

/* ---- Clients. */

static enum tally_status fail_client(const char *name, int64_t client, struct tally_error *err)
{
    return tally_fail(err, TALLY_INVALID_ARGUMENT, name,
                      "%s: client %" PRId64 " is not above those before it, or has more than an "
                      "export writes",
                      name, client);
}

static enum tally_status add_traffic(struct imported_job *job, const struct tally_json *value,
                                     const char *line, size_t n, struct tally_error *err)
{
    const int64_t client = tally_json_get_integer(value, "client", -1);
    const struct tally_json *bytes = tally_json_get(value, "wire_bytes");
    const int64_t numbers[] = {tally_json_get_integer(value, "updates", 0),
                               tally_json_get_integer(value, "payload_bits", 0),
                               tally_json_get_integer(bytes, "in", 0),
                               tally_json_get_integer(bytes, "out", 0)};
    struct tally_json *again = tally_json_object(), *again_bytes = tally_json_object();
    bool ok = tally_json_set_integer(again_bytes, "in", numbers[2]) &&
              tally_json_set_integer(again_bytes, "out", numbers[3]) &&
              tally_json_set_integer(again, "client", client) &&
              tally_json_set_integer(again, "updates", numbers[0]) &&
              tally_json_set_integer(again, "payload_bits", numbers[1]);
    ok = tally_json_set(again, "wire_bytes", again_bytes) && ok;
    enum tally_status status =
        check_line(tally_json_if_complete(again, ok), line, n, "traffic.jsonl", err);
    bool is_next = client >= 0 && client < job->row.clients;
    for (int i = 0; i < 4; i++) {
        is_next = is_next && numbers[i] >= 0;
    }
    if (status == TALLY_OK && is_next) {
        static const struct client_traffic NONE = {0};
        is_next = memcmp(&job->traffic[client], &NONE, sizeof NONE) == 0;
        job->traffic[client] =
            (struct client_traffic){(uint64_t)numbers[0],
                                    (uint64_t)numbers[1],
                                    {(uint64_t)numbers[2], (uint64_t)numbers[3]}};
    }
    return status != TALLY_OK || is_next ? status : fail_client("traffic.jsonl", client, err);
}

static enum tally_status read_traffic(struct imported_job *job, struct tally_error *err)
{
    job->traffic = calloc((size_t)job->row.clients, sizeof *job->traffic);
    return job->traffic != NULL ? read_lines(job, "traffic.jsonl", add_traffic, err)
                                : fail_memory("traffic", err);
}

/* The update with the metrics of a client. */
static enum tally_status read_update(const struct imported_job *job, const struct tally_json *value,
                                     struct tally_update *ret_update, struct tally_error *err)
{
    const struct tally_json *metrics = tally_json_get(value, "metrics");
    const int64_t round = tally_json_get_integer(value, "round", 0);
    const int64_t client = tally_json_get_integer(value, "client", -1);
    const char *key, *last = "";
    size_t n = 0;
    *ret_update = (struct tally_update){.n_metrics = 0};
    if (round < 1 || round > job->row.progress.round || client < 0 || client >= job->row.clients) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "metrics.jsonl",
                          "metrics.jsonl: client %" PRId64 " in round %" PRId64
                          " is not of this job",
                          client, round);
    }
    for (; (key = tally_json_key(metrics, n)) != NULL; n++) {
        const double number = tally_json_get_real(metrics, key, (double)NAN);
        if (n == TALLY_METRICS_MOST || !tally_metric_is_name(key) || strcmp(last, key) >= 0 ||
            !isfinite(number)) {
            return fail_client("metrics.jsonl", client, err);
        }
        snprintf(ret_update->metrics[n].name, sizeof ret_update->metrics[n].name, "%s", key);
        ret_update->metrics[n].value = number;
        last = key;
    }
    ret_update->round = (uint32_t)round;
    ret_update->client = (uint32_t)client;
    ret_update->n_metrics = n;
    return n > 0 ? TALLY_OK : fail_client("metrics.jsonl", client, err);
}

static struct tally_json *update_json(const struct tally_update *update)
{
    struct tally_json *object = tally_json_object(), *metrics = tally_json_object();
    bool ok = tally_json_set_integer(object, "round", update->round) &&
              tally_json_set_integer(object, "client", update->client);
    for (size_t i = 0; i < update->n_metrics; i++) {
        ok = tally_json_set_real(metrics, update->metrics[i].name, update->metrics[i].value) && ok;
    }
    ok = tally_json_set(object, "metrics", metrics) && ok;
    return tally_json_if_complete(object, ok);
}

/* Adds the client to the last block, or to a new one if that is full. */
static enum tally_status add_metrics(struct imported_job *job, const struct tally_json *value,
                                     const char *line, size_t n, struct tally_error *err)
{
    struct tally_update update;
    enum tally_status status = read_update(job, value, &update, err);
    status = status == TALLY_OK ? check_line(update_json(&update), line, n, "metrics.jsonl", err)
                                : status;
    if (status == TALLY_OK && update.round != job->metrics_round && job->n_metric_clients > 0) {
        status = tally_fail(err, TALLY_INVALID_ARGUMENT, "metrics.jsonl",
                            "metrics.jsonl: rounds %u and %u", job->metrics_round, update.round);
    }
    if (status == TALLY_OK && job->n_metric_clients > 0 &&
        update.client <= job->last_metric_client) {
        status = fail_client("metrics.jsonl", update.client, err);
    }
    if (status != TALLY_OK) {
        return status;
    }
    if (job->n_metric_clients % CLIENT_METRICS_BLOCK == 0) {
        job->metrics = tally_xrealloc(job->metrics, job->n_metrics + 1, sizeof *job->metrics);
        job->metrics[job->n_metrics++] = (struct tally_buffer){0};
    }
    job->metrics_round = update.round;
    job->last_metric_client = update.client;
    job->n_metric_clients++;
    return tally_update_request_add(&update, &job->metrics[job->n_metrics - 1]) == TALLY_OK
               ? TALLY_OK
               : fail_memory("metrics", err);
}

static enum tally_status read_metrics(struct imported_job *job, struct tally_error *err)
{
    enum tally_status status = read_lines(job, "metrics.jsonl", add_metrics, err);
    struct tally_update_request end = {.round = job->metrics_round};
    memcpy(end.job_id, job->row.id, sizeof job->row.id);
    for (size_t i = 0; status == TALLY_OK && i < job->n_metrics; i++) {
        status = tally_update_request_end(&end, &job->metrics[i]) == TALLY_OK
                     ? TALLY_OK
                     : fail_memory("metrics", err);
    }
    return status;
}

/* ---- Models. */

/* The numbers of a model; the checksum must be that of models.json. */
static enum tally_status read_point(const struct imported_job *job, const char *which,
                                    uint64_t checksum, const uint8_t **ret_x,
                                    struct tally_error *err)
{
    char name[TALLY_BUNDLE_NAME_CAPACITY], expected[17], found[17];
    const bool is_last = strcmp(which, "last") == 0;
    const size_t n_bytes = (size_t)job->row.dim * sizeof(double);
    const struct tally_bundle_member *member;
    struct tally_buffer head = {0};
    snprintf(name, sizeof name, is_last ? "model.npy" : "model-%.32s.npy", which);
    enum tally_status status = get_member(job, name, &member, err);
    if (status != TALLY_OK) {
        return status;
    }
    if (tally_detail_npy_header((size_t)job->row.dim, &head) != TALLY_OK) {
        return fail_memory("models", err);
    }
    if (member->n != head.size + n_bytes || memcmp(member->bytes, head.data, head.size) != 0) {
        status = tally_fail(err, TALLY_INVALID_ARGUMENT, name,
                            "%s has %zu bytes, or not the header of %" PRId64
                            " float64, with which it has %zu",
                            name, member->n, job->row.dim, head.size + n_bytes);
    } else {
        const uint64_t sum = tally_checksum64(member->bytes + head.size, n_bytes);
        tally_detail_checksum(checksum, expected);
        tally_detail_checksum(sum, found);
        *ret_x = member->bytes + head.size;
        if (sum != checksum) {
            status = tally_fail(err, TALLY_INVALID_ARGUMENT, name,
                                "the checksum of %s is %s, not %s as models.json says", name, found,
                                expected);
        }
    }
    tally_buffer_fini(&head);
    return status;
}

/* Whether the model has the place in the list that a coordinator gives it. */
static bool is_expected(const struct imported_job *job, const struct tally_store_model *model,
                        bool is_last)
{
    const struct tally_progress *progress = &job->row.progress;
    const int64_t every = job->spec.keep.every;
    const int64_t slot_before =
        job->n_models > 0 ? job->models[job->n_models - 1].model.slot : INT64_C(-1);
    if (model->round < 0 || model->round > progress->round || model->iterate < 0 ||
        model->iterate > progress->iterate ||
        model->n_bytes != job->row.dim * (int64_t)sizeof(double)) {
        return false;
    }
    if (is_last) {
        return model->round == progress->round && model->iterate == progress->iterate &&
               model->x_checksum == progress->x_checksum;
    }
    if (model->slot <= slot_before) {
        return false;
    }
    return model->slot == TALLY_STORE_BEST_MODEL
               ? job->spec.keep.best[0] != '\0' && !isnan(model->value)
               : every > 0 && model->slot % every == 0 && model->slot == model->round;
}

/* Reads entry i of models.json. */
static enum tally_status read_model(struct imported_job *job, const struct tally_json *entry,
                                    bool is_last, const uint8_t **ret_x, struct tally_error *err)
{
    const char *which = tally_json_get_text(entry, "which");
    char round[24];
    struct tally_store_model model = {
        .round = tally_json_get_integer(entry, "round", -1),
        .iterate = tally_json_get_integer(entry, "iterate", -1),
        .value = tally_json_get_real(entry, "value", (double)NAN),
        .x_checksum = tally_detail_read_checksum(tally_json_get_text(entry, "x_checksum")),
        .n_bytes = tally_json_get_integer(entry, "bytes", -1)};
    const bool is_best = which != NULL && strcmp(which, "best") == 0;
    model.slot = is_best ? TALLY_STORE_BEST_MODEL : model.round;
    snprintf(round, sizeof round, "%" PRId64, model.round);
    const char *expected = is_last ? "last" : is_best ? "best" : round;
    if (which == NULL || strcmp(which, expected) != 0 || !is_expected(job, &model, is_last)) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "models.json",
                          "models.json: model \"%.32s\" of round %" PRId64
                          " is not one that the job keeps, or not in its place",
                          which != NULL ? which : "", model.round);
    }
    const uint8_t *x = NULL;
    const enum tally_status status = read_point(job, which, model.x_checksum, &x, err);
    if (status == TALLY_OK && is_last) {
        *ret_x = x;
    } else if (status == TALLY_OK) {
        job->models = tally_xrealloc(job->models, job->n_models + 1, sizeof *job->models);
        job->models[job->n_models++] = (struct imported_model){model, x};
        if (is_best) {
            job->row.progress.best = (struct tally_best){
                .value = model.value, .round = model.round, .iterate = model.iterate};
        }
    }
    return status;
}

/* The initial point of a job with more coordinates has no checksum before the job starts, and is
 * not made here (job.c). */
enum { SUMMED_DIM = 100000 };

/* Makes the state, and restores an engine from it, as the coordinator will. */
static enum tally_status make_state(struct imported_job *job, const uint8_t *x,
                                    struct tally_error *err)
{
    const size_t n_bytes = (size_t)job->row.dim * sizeof(double);
    struct tally_error why = TALLY_ERROR_INIT;
    struct tally_job *engine = NULL;
    double *point = NULL;
    enum tally_status status = TALLY_OK;
    if (x == NULL && job->row.dim > SUMMED_DIM) {
        return job->row.progress.x_checksum == 0
                   ? TALLY_OK
                   : tally_fail(err, TALLY_INVALID_ARGUMENT, "x_checksum",
                                "a job that has not started has no checksum");
    }
    if (x != NULL) {
        point = malloc(n_bytes);
        if (point == NULL) {
            return fail_memory("model", err);
        }
        memcpy(point, x, n_bytes);
        status = tally_job_make_state(&job->spec, &job->row.progress, job->row.schedule, point,
                                      &job->state, &why);
    }
    free(point);
    if (status == TALLY_OK) {
        status = tally_job_restore(&job->spec, job->row.status, &job->row.progress, job->state.data,
                                   job->state.size, &engine, &why);
    }
    if (status == TALLY_OK && x == NULL && job->row.progress.x_checksum != 0 &&
        tally_job_progress(engine)->x_checksum != job->row.progress.x_checksum) {
        status =
            tally_fail(&why, TALLY_DATA_LOSS, NULL, "x_checksum is not that of the initial point");
    }
    tally_job_free(engine);
    if (status == TALLY_OK || status == TALLY_NO_MEMORY) {
        return status == TALLY_OK ? status : fail_memory("state", err);
    }
    return tally_fail(err, TALLY_INVALID_ARGUMENT, "job.json", "job.json: %s", why.message);
}

/* A job that has not started has no models. */
static enum tally_status read_models(struct imported_job *job, struct tally_error *err)
{
    struct tally_json *list = NULL;
    const uint8_t *x = NULL;
    enum tally_status status = TALLY_OK;
    if (job->row.started_ms > 0) {
        status = read_json(job, "models.json", &MODELS_LIMITS, &list, err);
        const struct tally_json *models = tally_json_get(list, "models");
        const size_t n = tally_json_size(models);
        if (status == TALLY_OK && n == 0) {
            status = tally_fail(err, TALLY_INVALID_ARGUMENT, "models.json",
                                "models.json lists no model");
        }
        for (size_t i = 0; status == TALLY_OK && i < n; i++) {
            status = read_model(job, tally_json_at(models, i), i + 1 == n, &x, err);
        }
    }
    tally_json_free(list);
    return status == TALLY_OK ? make_state(job, x, err) : status;
}

/* ---- All of it. */

/* The bundle must have nothing else. */
static enum tally_status check_members(const struct imported_job *job, struct tally_error *err)
{
    const bool has_started = job->row.started_ms > 0;
    const size_t n = 7 + (has_started ? 2 + job->n_models : 0); /* all of them have been found */
    return job->n_members == n
               ? TALLY_OK
               : tally_fail(err, TALLY_INVALID_ARGUMENT, "bundle",
                            "%zu members, not the %zu of this job", job->n_members, n);
}

/* The member `imported` of the detail from now on. */
static struct tally_json *imported_json(const struct imported_job *job, const char *version,
                                        const uint8_t *bytes, size_t n, int64_t now_ms)
{
    uint8_t digest[TALLY_SHA256_BYTES];
    char text[TALLY_SHA256_TEXT_CAPACITY];
    const struct tally_json *before = tally_json_get(job->detail, "imported");
    struct tally_json *imported = tally_json_object();
    tally_sha256(bytes, n, digest);
    tally_sha256_text(digest, text);
    const bool ok = tally_json_set_integer(imported, "imported_ms", now_ms) &&
                    tally_json_set_text(imported, "exported_by", version) &&
                    tally_json_set_text(imported, "bundle_sha256", text) &&
                    (before == NULL ? tally_json_set_null(imported, "before")
                                    : tally_json_set(imported, "before", tally_json_copy(before)));
    return tally_json_if_complete(imported, ok);
}

/* Whether it is a member `imported`, with others below `before`. */
static bool is_imported(const struct tally_json *imported)
{
    while (tally_json_is_object(imported)) {
        const char *by = tally_json_get_text(imported, "exported_by");
        const char *digest = tally_json_get_text(imported, "bundle_sha256");
        if (tally_json_get_integer(imported, "imported_ms", 0) < 1 || by == NULL ||
            by[tally_utf8_find_control(by)] != '\0' || digest == NULL ||
            strlen(digest) != TALLY_SHA256_TEXT_CAPACITY - 1 ||
            strspn(digest, "0123456789abcdef") != strlen(digest) ||
            tally_json_key(imported, 4) != NULL) {
            return false;
        }
        imported = tally_json_get(imported, "before");
    }
    return tally_json_is_null(imported);
}

static enum tally_status read_provenance(struct imported_job *job, const char *version,
                                         const uint8_t *bytes, size_t n, int64_t now_ms,
                                         struct tally_error *err)
{
    struct tally_json *imported = imported_json(job, version, bytes, n, now_ms);
    const struct tally_json *before = tally_json_get(job->detail, "imported");
    enum tally_status status = TALLY_OK;
    if (imported == NULL) {
        status = fail_memory("provenance", err);
    } else if (before != NULL && (tally_json_is_null(before) || !is_imported(before))) {
        status = tally_fail(err, TALLY_INVALID_ARGUMENT, "imported",
                            "imported does not have the members that a coordinator gives it");
    } else {
        status =
            provenance_rows_read(tally_json_get(job->detail, "provenance"), imported,
                                 job->document.data, job->document.size, &job->provenance, err);
    }
    tally_json_free(imported);
    return status;
}

bool imported_job_peek(const uint8_t *bytes, size_t n, struct tally_job_spec *ret_spec)
{
    struct tally_bundle_member document;
    return tally_bundle_find(bytes, n, "document.json", &document) &&
           tally_document_parse((const char *)document.bytes, document.n, ret_spec, NULL) ==
               TALLY_OK;
}

enum tally_status imported_job_read(const uint8_t *bytes, size_t n, int64_t now_ms,
                                    const atomic_bool *stop, struct imported_job **ret_job,
                                    struct tally_error *err)
{
    struct imported_job *job = tally_xcalloc(1, sizeof *job);
    job->stop = stop;
    char version[TALLY_DETAIL_KEY_CAPACITY] = "";
    enum tally_status status = tally_bundle_list(bytes, n, &job->members, &job->n_members, err);
    status = status == TALLY_OK ? read_head(job, version, err) : status;
    status = status == TALLY_OK ? read_document(job, err) : status;
    status = status == TALLY_OK ? read_detail(job, err) : status;
    status = status == TALLY_OK ? read_provenance(job, version, bytes, n, now_ms, err) : status;
    status = status == TALLY_OK ? read_lines(job, "rounds.jsonl", add_round, err) : status;
    status = status == TALLY_OK ? check_rounds(job, err) : status;
    status = status == TALLY_OK ? read_metrics(job, err) : status;
    status = status == TALLY_OK ? read_traffic(job, err) : status;
    status = status == TALLY_OK ? read_models(job, err) : status;
    status = status == TALLY_OK ? check_members(job, err) : status;
    if (status != TALLY_OK) {
        imported_job_free(job);
        return status;
    }
    *ret_job = job;
    return TALLY_OK;
}

/* ---- Storing. */

static enum tally_status put_clients(struct tally_store *store, const struct imported_job *job,
                                     struct tally_error *err)
{
    enum tally_status status = traffic_put(store, &job->row, job->traffic, err);
    for (size_t i = 0; status == TALLY_OK && i < job->n_metrics; i++) {
        const struct tally_store_update block = {.round = TALLY_STORE_METRICS_ROUND,
                                                 .client = (uint32_t)i * CLIENT_METRICS_BLOCK,
                                                 .body = job->metrics[i].data,
                                                 .n_body = job->metrics[i].size};
        status = store->ops->update_insert(store, job->row.key, &block, err);
    }
    return status;
}

static enum tally_status put_rounds(struct tally_store *store, const struct imported_job *job,
                                    struct tally_error *err)
{
    struct tally_round_record record;
    enum tally_status status = TALLY_OK;
    size_t at = 0;
    while (status == TALLY_OK && next_round(job, &at, &record)) {
        status = store->ops->round_insert(store, job->row.key, &record, err);
    }
    return status;
}

/* Everything but the row and the document. */
static enum tally_status put_parts(struct tally_store *store, const struct imported_job *job,
                                   struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    if (job->state.size > 0) {
        status = store->ops->state_put(store, job->row.key, job->state.data, job->state.size, err);
    }
    for (size_t i = 0; status == TALLY_OK && i < job->n_models; i++) {
        status = store->ops->model_put(store, job->row.key, &job->models[i].model, job->models[i].x,
                                       err);
    }
    status = status == TALLY_OK ? put_rounds(store, job, err) : status;
    status = status == TALLY_OK ? put_clients(store, job, err) : status;
    return status == TALLY_OK ? provenance_rows_put(store, job->row.key, &job->provenance, err)
                              : status;
}

/* ---- The same job again. */

/* A walk over what is stored, which must be what was imported. */
struct comparing {
    const struct imported_job *job;
    size_t at; /* in its rounds, or number of models */
    bool differs;
};

static bool is_same_record(const struct tally_round_record *a, const struct tally_round_record *b)
{
    return a->round == b->round && a->time_step == b->time_step && a->iterate == b->iterate &&
           a->stage == b->stage && a->samples == b->samples && a->received == b->received &&
           a->passed == b->passed && a->cut == b->cut && a->closed_ms == b->closed_ms &&
           is_same_real(a->norm, b->norm) && is_same_real(a->loss, b->loss) &&
           is_same_real(a->cumulative_regret, b->cumulative_regret) &&
           memcmp(&a->bits, &b->bits, sizeof a->bits) == 0 && strcmp(a->missing, b->missing) == 0 &&
           strcmp(a->metrics, b->metrics) == 0;
}

static enum tally_status compare_round(void *context, const struct tally_round_record *record,
                                       struct tally_error *err)
{
    struct comparing *comparing = context;
    struct tally_round_record imported;
    (void)err;
    comparing->differs |= !next_round(comparing->job, &comparing->at, &imported) ||
                          !is_same_record(record, &imported);
    return TALLY_OK;
}

static enum tally_status compare_model(void *context, const struct tally_store_model *model,
                                       struct tally_error *err)
{
    struct comparing *comparing = context;
    (void)err;
    if (comparing->at == comparing->job->n_models) {
        comparing->differs = true;
        return TALLY_OK;
    }
    const struct tally_store_model *imported = &comparing->job->models[comparing->at++].model;
    comparing->differs |=
        model->slot != imported->slot || model->round != imported->round ||
        model->iterate != imported->iterate || model->x_checksum != imported->x_checksum ||
        model->n_bytes != imported->n_bytes || !is_same_real(model->value, imported->value);
    return TALLY_OK;
}

/* *ret_part: what differs in document and detail; NULL = nothing. */
static enum tally_status compare_shown(struct tally_store *store, const struct imported_job *job,
                                       const struct tally_store_job *row,
                                       char ret_part[TALLY_DETAIL_KEY_CAPACITY],
                                       struct tally_error *err)
{
    static const char *const OTHERS[] = {"imported", "warnings", "planned", NULL};
    struct tally_buffer document = {0};
    struct tally_json *detail = NULL;
    enum tally_status status = store->ops->document_get(store, row->key, &document, err);
    if (status == TALLY_OK && (document.size != job->document.size ||
                               memcmp(document.data, job->document.data, document.size) != 0)) {
        snprintf(ret_part, TALLY_DETAIL_KEY_CAPACITY, "document");
    } else if (status == TALLY_OK) {
        detail = hosted_job_detail(row, &document, NULL, NULL);
        status = detail != NULL ? provenance_add(store, row, &document, detail, err)
                                : fail_memory("detail", err);
        if (status == TALLY_OK) {
            (void)tally_detail_matches(job->detail, detail, OTHERS, ret_part);
        }
    }
    tally_json_free(detail);
    tally_buffer_fini(&document);
    return status;
}

/* OK if the stored job is the imported one. */
static enum tally_status compare_stored(struct tally_store *store, const struct imported_job *job,
                                        const struct tally_store_job *row, struct tally_error *err)
{
    char part[TALLY_DETAIL_KEY_CAPACITY] = "";
    struct comparing rounds = {.job = job}, models = {.job = job};
    enum tally_status status = compare_shown(store, job, row, part, err);
    if (status == TALLY_OK && part[0] == '\0') {
        status = store->ops->round_list(store, row->key, 0, INT64_MAX, compare_round, &rounds, err);
        rounds.differs |= rounds.at != job->rounds.size;
    }
    if (status == TALLY_OK && part[0] == '\0' && !rounds.differs) {
        status = store->ops->model_list(store, row->key, compare_model, &models, err);
        models.differs |= models.at != job->n_models;
    }
    if (status == TALLY_OK && part[0] == '\0' && (rounds.differs || models.differs)) {
        snprintf(part, sizeof part, "%s", rounds.differs ? "rounds" : "models");
    }
    return status != TALLY_OK || part[0] == '\0'
               ? status
               : tally_fail(err, TALLY_ALREADY_EXISTS, "id",
                            "job %s is here already, and is not the one in the bundle: it has "
                            "another %s",
                            row->id, part);
}

/* A job that retention would delete in the next second must not seem to be imported. */
static enum tally_status check_retention(const struct tally_coordinator *coordinator,
                                         const struct tally_store_job *row, int64_t now_ms,
                                         struct tally_error *err)
{
    const int64_t keep_ms = coordinator->config.keep_ended_ms;
    return keep_ms <= 0 || row->finished_ms + keep_ms > now_ms
               ? TALLY_OK
               : tally_fail(err, TALLY_FAILED_PRECONDITION, "finished_ms",
                            "the job ended %" PRId64
                            " s ago, and this coordinator deletes jobs %" PRId64
                            " s after their end (--keep-ended-s)",
                            (now_ms - row->finished_ms) / 1000, keep_ms / 1000);
}

static enum tally_status store_job(struct tally_coordinator *coordinator, struct imported_job *job,
                                   struct tally_error *err)
{
    struct tally_store *store = coordinator->store;
    struct tally_store_job *row = &job->row;
    enum tally_status status = transaction_begin_write(coordinator->transaction, err);
    if (status != TALLY_OK) {
        return status;
    }
    status = store->ops->job_insert(store, row, (const char *)job->document.data,
                                    job->document.size, NULL, 0, &row->key, err);
    if (status == TALLY_ALREADY_EXISTS) { /* another replica was faster; nothing has changed */
        return status;
    }
    status = status == TALLY_OK ? put_parts(store, job, err) : status;
    if (transaction_check(coordinator->transaction, status, err) == TALLY_OK) {
        tally_log(TALLY_LOG_INFO, tally_log_event("job imported"), tally_log_text("job", row->id),
                  tally_log_text("status", tally_job_status_name(row->status)),
                  tally_log_integer("round", row->progress.round));
    }
    return status;
}

enum tally_status jobs_import(struct tally_coordinator *coordinator, struct imported_job *job,
                              struct tally_store_job *ret_row, bool *ret_is_new,
                              struct tally_error *err)
{
    struct tally_store *store = coordinator->store;
    *ret_is_new = false;
    struct tally_error why = TALLY_ERROR_INIT;
    enum tally_status status = store->ops->job_get(store, job->row.id, ret_row, &why);
    if (status == TALLY_NOT_FOUND) {
        tally_error_clear(&why);
        status = check_retention(coordinator, &job->row, tally_realtime_ms(), &why);
        status = status == TALLY_OK ? store_job(coordinator, job, &why) : status;
        *ret_is_new = status == TALLY_OK;
        *ret_row = job->row;
        if (status == TALLY_ALREADY_EXISTS) {
            tally_error_clear(&why);
            status = store->ops->job_get(store, job->row.id, ret_row, &why);
        }
    }
    if (status == TALLY_OK && !*ret_is_new) {
        status = compare_stored(store, job, ret_row, &why);
    }
    return status == TALLY_OK ? status : tally_fail(err, status, why.field, "%s", why.message);
}
