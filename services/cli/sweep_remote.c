#include "services/cli/sweep_remote.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "codec/numeric/checksum.h"
#include "services/base/outage.h"
#include "services/base/time.h"
#include "services/cli/job_watch.h"

enum { POLL_TIMEOUT_MS = 30000, SLICE_MS = 100, LABEL_CAPACITY = 48 };

/* A job of the batch. */
struct order {
    const struct tally_sweep_job *job;
    char id[TALLY_JOB_WORD_CAPACITY]; /* "" = not submitted by this process */
    bool has_ended;
};

static bool keeps_on(struct tally_sweep_remote *remote)
{
    char text[64];
    snprintf(text, sizeof text, "job %zu/%zu", remote->n_done, remote->n_planned);
    const double fraction =
        remote->n_planned > 0 ? (double)remote->n_done / (double)remote->n_planned : 0;
    return remote->watch(remote->context, fraction, text);
}

/* Sleeps in slices, so that a signal ends it soon and the progress line stays alive. */
static enum tally_status pause_for(struct tally_sweep_remote *remote, int64_t ms,
                                   struct tally_error *err)
{
    const int64_t until_ms = tally_monotonic_ms() + ms;
    for (int64_t left_ms = ms; left_ms > 0; left_ms = until_ms - tally_monotonic_ms()) {
        const struct timespec slice = {0,
                                       1000000 * (long)(left_ms < SLICE_MS ? left_ms : SLICE_MS)};
        if (!keeps_on(remote)) {
            return tally_fail(err, TALLY_CANCELLED, NULL, "stopped");
        }
        nanosleep(&slice, NULL);
    }
    return keeps_on(remote) ? TALLY_OK : tally_fail(err, TALLY_CANCELLED, NULL, "stopped");
}

/* Makes a call until it is answered, however long the coordinator is away. */
static enum tally_status call(struct tally_sweep_remote *remote,
                              const struct tally_http_exchange *request,
                              struct tally_json **ret_value, struct tally_error *err)
{
    int64_t backoff_ms = 0;
    struct tally_outage outage = {0};
    for (;;) {
        struct tally_http_exchange exchange = *request;
        struct tally_error why = TALLY_ERROR_INIT;
        exchange.timeout_ms = POLL_TIMEOUT_MS;
        const enum tally_status status =
            ret_value != NULL ? tally_rest_call_json(&remote->cli->rest, &exchange, ret_value, &why)
                              : tally_rest_call(&remote->cli->rest, &exchange, &why);
        if (status == TALLY_OK || !tally_status_info(status)->retryable) {
            return status == TALLY_OK ? status
                                      : tally_fail(err, status, why.field, "%s", why.message);
        }
        if (tally_outage_is_news(&outage, &why, tally_monotonic_ms())) {
            remote->note(remote->context, why.message);
        }
        backoff_ms = tally_job_watch_backoff_ms(backoff_ms);
        if (pause_for(remote, backoff_ms, err) != TALLY_OK) {
            return TALLY_CANCELLED;
        }
    }
}

static void make_label(const struct tally_sweep_remote *remote, char ret_value[LABEL_CAPACITY])
{
    snprintf(ret_value, LABEL_CAPACITY, "%016" PRIx64, remote->digest);
}

/* The bytes that are submitted: the document and the label. */
static enum tally_status make_body(const struct tally_sweep_remote *remote,
                                   const struct tally_json *document, struct tally_buffer *out)
{
    char digest[LABEL_CAPACITY];
    make_label(remote, digest);
    struct tally_json *copy = tally_json_copy(document);
    const struct tally_json *own = tally_json_get(document, "labels");
    struct tally_json *labels = own != NULL ? tally_json_copy(own) : tally_json_object();
    bool ok = labels != NULL && tally_json_set_text(labels, "sweep", digest);
    labels = tally_json_if_complete(labels, ok);
    ok = copy != NULL && labels != NULL && tally_json_set(copy, "labels", labels);
    const enum tally_status status = ok ? tally_json_dump(copy, 0, out) : TALLY_NO_MEMORY;
    tally_json_free(copy);
    return status;
}

/* ---- Results. */

static double number_at(const struct tally_json *object, const char *key, const char *inner)
{
    return tally_json_get_real(tally_json_get(object, key), inner, 0);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct tally_metric_summary *)a)->name,
                  ((const struct tally_metric_summary *)b)->name);
}

/* The metrics of a detail as text (record.h). NULL = none, or out of memory. */
static char *metrics_of(const struct tally_json *metrics)
{
    struct tally_metric_summary summaries[TALLY_JOB_METRICS_MOST];
    char *text = calloc(1, TALLY_METRICS_CAPACITY);
    const char *name;
    size_t n = 0;
    while (n < TALLY_JOB_METRICS_MOST && (name = tally_json_key(metrics, n)) != NULL) {
        const struct tally_json *value = tally_json_get(metrics, name);
        summaries[n] =
            (struct tally_metric_summary){.mean = tally_json_get_real(value, "mean", NAN),
                                          .min = tally_json_get_real(value, "min", NAN),
                                          .max = tally_json_get_real(value, "max", NAN)};
        snprintf(summaries[n].name, sizeof summaries[n].name, "%s", name);
        n++;
    }
    qsort(summaries, n, sizeof *summaries, compare_names);
    for (size_t i = 0; text != NULL && i < n; i++) {
        tally_metrics_append(text, &summaries[i]);
    }
    return text;
}

static enum tally_status take_result(const struct tally_json *detail, bool diverged,
                                     struct tally_run *place, struct tally_error *err)
{
    const struct tally_json *bits = tally_json_get(detail, "bits");
    const double clients = tally_json_get_real(detail, "clients", 1);
    const struct tally_json *metrics = tally_json_get(detail, "metrics");
    struct tally_run run = {.diverged = diverged, .n_points = 1};
    run.uplink.entropy_payload = run.downlink.entropy_payload = NAN;
    run.uplink.control = run.downlink.control = NAN;
    run.planned_regret =
        tally_json_get_real(tally_json_get(detail, "planned"), "regret", (double)NAN);
    run.regret = diverged ? INFINITY : tally_json_get_real(detail, "cumulative_regret", NAN);
    run.loss = diverged ? INFINITY : tally_json_get_real(detail, "loss", NAN);
    run.rounds = tally_json_get_real(detail, "round", 0);
    run.uplink.formula = number_at(bits, "uplink", "formula") / clients;
    run.uplink.payload = number_at(bits, "uplink", "payload") / clients;
    run.downlink.formula = number_at(bits, "downlink", "formula");
    run.downlink.payload = number_at(bits, "downlink", "payload");
    run.control_bits = tally_json_get_real(bits, "control", 0);
    run.curve = calloc(1, sizeof *run.curve); /* the rounds stay with the coordinator */
    run.metrics = metrics != NULL ? metrics_of(metrics) : NULL;
    if (run.curve == NULL || (metrics != NULL && run.metrics == NULL)) {
        tally_run_fini(&run);
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a result");
    }
    tally_run_fini(place);
    *place = run;
    return TALLY_OK;
}

static bool is_text(const struct tally_json *detail, const char *key, const char *wanted)
{
    const char *text = tally_json_get_text(detail, key);
    return text != NULL && strcmp(text, wanted) == 0;
}

/* Takes the result of a job that has ended. */
static enum tally_status take_detail(struct tally_sweep_remote *remote, struct order *order,
                                     const struct tally_json *detail, struct tally_error *err)
{
    const bool diverged = is_text(detail, "reason_code", "diverged") ||
                          is_text(detail, "reason_code", "client_failed");
    const bool completed = is_text(detail, "status", "completed");
    if (!completed && !(is_text(detail, "status", "failed") && diverged)) {
        const bool failed = is_text(detail, "status", "failed");
        const char *reason = tally_json_get_text(detail, "reason");
        if (!failed && !is_text(detail, "status", "cancelled")) {
            return TALLY_OK; /* it is live */
        }
        return tally_fail(err, TALLY_FAILED_PRECONDITION, NULL,
                          "row %zu, seed %lld: job %s %s%s%.200s", order->job->row + 1,
                          (long long)order->job->seed, order->id,
                          failed ? "failed" : "was cancelled", reason != NULL ? ": " : "",
                          reason != NULL ? reason : "");
    }
    const enum tally_status status = take_result(detail, !completed, order->job->place, err);
    order->has_ended = status == TALLY_OK;
    remote->n_done += order->has_ended;
    return status;
}

/* ---- Jobs. */

static enum tally_status post(struct tally_sweep_remote *remote, const struct tally_buffer *body,
                              struct tally_json **ret_detail, struct tally_error *err)
{
    char header[64];
    snprintf(header, sizeof header, "Idempotency-Key: sweep-%016" PRIx64,
             tally_checksum64(body->data, body->size));
    const struct tally_http_exchange exchange = {
        .method = "POST",
        .path = "/v1/jobs",
        .content_type = "application/json",
        .accept = "application/json",
        .extra_header = header,
        .body = body->data,
        .n_body = body->size,
    };
    return call(remote, &exchange, ret_detail, err);
}

static enum tally_status delete_job(struct tally_sweep_remote *remote, const char *id,
                                    struct tally_error *err)
{
    char path[TALLY_JOB_PATH_CAPACITY];
    tally_job_path(id, "", path);
    const struct tally_http_exchange exchange = {.method = "DELETE", .path = path};
    return call(remote, &exchange, NULL, err);
}

/* Submits a job, or finds it again. One that was cancelled earlier begins again. */
static enum tally_status submit(struct tally_sweep_remote *remote, struct order *order,
                                struct tally_error *err)
{
    struct tally_buffer body = {0};
    struct tally_json *detail = NULL;
    enum tally_status status = make_body(remote, order->job->document, &body);
    if (status != TALLY_OK) {
        tally_buffer_fini(&body);
        return tally_fail(err, status, NULL, "no memory for a job");
    }
    status = post(remote, &body, &detail, err);
    if (status == TALLY_OK && is_text(detail, "status", "cancelled")) {
        status = delete_job(remote, tally_json_get_text(detail, "id"), err);
        tally_json_free(detail);
        detail = NULL;
        if (status == TALLY_OK) {
            status = post(remote, &body, &detail, err);
        }
    }
    if (status == TALLY_OK) {
        const char *id = tally_json_get_text(detail, "id");
        snprintf(order->id, sizeof order->id, "%s", id != NULL ? id : "");
        status = take_detail(remote, order, detail, err);
    } else {
        tally_error_wrap(err, "row %zu, seed %lld", order->job->row + 1,
                         (long long)order->job->seed);
    }
    tally_json_free(detail);
    tally_buffer_fini(&body);
    return status;
}

static enum tally_status poll(struct tally_sweep_remote *remote, struct order *order,
                              struct tally_error *err)
{
    char path[TALLY_JOB_PATH_CAPACITY];
    struct tally_json *detail = NULL;
    tally_job_path(order->id, "", path);
    const struct tally_http_exchange exchange = {
        .method = "GET", .path = path, .accept = "application/json"};
    enum tally_status status = call(remote, &exchange, &detail, err);
    if (status == TALLY_OK) {
        status = take_detail(remote, order, detail, err);
    }
    tally_json_free(detail);
    return status;
}

/* One pass over the orders: polls those that are live, and submits others while fewer than
 * `parallel` are. *ret_live is the number of jobs that have not ended. */
static enum tally_status take_turn(struct tally_sweep_remote *remote, struct order *orders,
                                   size_t n, size_t *ret_live, struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    int64_t live = 0;
    for (size_t i = 0; status == TALLY_OK && i < n; i++) {
        if (!orders[i].has_ended && orders[i].id[0] != '\0') {
            status = poll(remote, &orders[i], err);
            live += !orders[i].has_ended;
        }
    }
    for (size_t i = 0; status == TALLY_OK && i < n && live < remote->parallel; i++) {
        if (orders[i].id[0] == '\0') {
            status = submit(remote, &orders[i], err);
            live += !orders[i].has_ended;
        }
        if (status == TALLY_OK && !keeps_on(remote)) {
            status = tally_fail(err, TALLY_CANCELLED, NULL, "stopped");
        }
    }
    *ret_live = (size_t)live;
    return status;
}

enum tally_status tally_sweep_remote_run(struct tally_sweep_remote *remote,
                                         const struct tally_sweep_job *jobs, size_t n,
                                         struct tally_error *err)
{
    struct order *orders = calloc(n + 1, sizeof *orders);
    enum tally_status status =
        orders != NULL ? TALLY_OK
                       : tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the jobs");
    size_t live = 1;
    for (size_t i = 0; orders != NULL && i < n; i++) {
        orders[i].job = &jobs[i];
    }
    while (status == TALLY_OK && live > 0) {
        status = take_turn(remote, orders, n, &live, err);
        if (status == TALLY_OK && live > 0) {
            status = pause_for(remote, remote->interval_ms, err);
        }
    }
    free(orders);
    return status;
}

/* Cancels the live jobs of one page. */
static enum tally_status cancel_page(struct tally_sweep_remote *remote,
                                     const struct tally_json *page, size_t *n,
                                     struct tally_error *err)
{
    const struct tally_json *jobs = tally_json_get(page, "jobs");
    enum tally_status status = TALLY_OK;
    for (size_t i = 0; status == TALLY_OK && jobs != NULL && i < tally_json_size(jobs); i++) {
        const struct tally_json *job = tally_json_at(jobs, i);
        const char *id = tally_json_get_text(job, "id");
        char path[TALLY_JOB_PATH_CAPACITY];
        if (id == NULL || is_text(job, "status", "completed") || is_text(job, "status", "failed") ||
            is_text(job, "status", "cancelled")) {
            continue;
        }
        tally_job_path(id, "/cancel", path);
        const struct tally_http_exchange exchange = {
            .method = "POST", .path = path, .accept = "application/json"};
        struct tally_error why = TALLY_ERROR_INIT;
        status = call(remote, &exchange, NULL, &why);
        *n += status == TALLY_OK;
        /* It may have ended in the meantime. */
        status =
            status == TALLY_OK || status == TALLY_FAILED_PRECONDITION || status == TALLY_NOT_FOUND
                ? TALLY_OK
                : tally_fail(err, status, why.field, "%s", why.message);
    }
    return status;
}

enum tally_status tally_sweep_remote_cancel(struct tally_sweep_remote *remote, size_t *ret_n,
                                            struct tally_error *err)
{
    char digest[LABEL_CAPACITY], cursor[TALLY_QUERY_VALUE_CAPACITY] = "";
    enum tally_status status = TALLY_OK;
    make_label(remote, digest);
    *ret_n = 0;
    for (bool is_last = false; status == TALLY_OK && !is_last;) {
        char path[TALLY_QUERY_VALUE_CAPACITY + 128];
        struct tally_json *page = NULL;
        snprintf(path, sizeof path, "/v1/jobs?limit=100&label=sweep%%3D%s%s%s", digest,
                 cursor[0] != '\0' ? "&cursor=" : "", cursor);
        const struct tally_http_exchange exchange = {
            .method = "GET", .path = path, .accept = "application/json"};
        status = call(remote, &exchange, &page, err);
        if (status == TALLY_OK) {
            const char *next = tally_json_get_text(page, "next_cursor");
            is_last = next == NULL || !tally_query_value(next, cursor);
            status = cancel_page(remote, page, ret_n, err);
        }
        tally_json_free(page);
    }
    return status;
}
