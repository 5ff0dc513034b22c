#include "services/coordinator/metrics.h"
#include "services/base/alloc.h"

#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "services/base/time.h"
#include "services/base/whole_file.h"
#include "services/coordinator/calls.h"
#include "services/coordinator/coordinator.h"
#include "services/coordinator/jobs_live.h"
#include "services/coordinator/loop_transaction.h"
#include "services/coordinator/replicas.h"
#include "services/coordinator/replicas_forwarding.h"
#include "services/coordinator/rest_events.h"
#include "services/coordinator/workers.h"

/* Parts of the response, in their order. */
static void metrics_write_jobs(struct tally_coordinator *coordinator,
                               struct exposition *exposition);

static void metrics_write_process(const struct metrics *metrics, struct exposition *exposition);

static void metrics_write_replicas(struct tally_coordinator *coordinator,
                                   struct exposition *exposition);

static const char *const UPDATE_RESULTS[] = {
#define UPDATE_RESULT_NAME(symbol, name) name,
    UPDATE_RESULT_TABLE(UPDATE_RESULT_NAME)
#undef UPDATE_RESULT_NAME
};
static const char *const FORWARD_RESULTS[] = {
#define FORWARD_RESULT_NAME(symbol, name) name,
    FORWARD_RESULT_TABLE(FORWARD_RESULT_NAME)
#undef FORWARD_RESULT_NAME
};
static const char *const WEBHOOK_RESULTS[] = {
#define WEBHOOK_RESULT_NAME(symbol, name) name,
    WEBHOOK_RESULT_TABLE(WEBHOOK_RESULT_NAME)
#undef WEBHOOK_RESULT_NAME
};
static const char *const POLL_OUTCOMES[] = {"idle", "task", "released"};
static const char *const STORE_OPERATIONS[] = {"begin", "write", "commit", "read"};

/* Start and end. */

static enum tally_status remember_ended(void *context, const struct tally_store_job *row,
                                        struct tally_error *err)
{
    (void)err;
    struct tally_coordinator *coordinator = context;
    struct metrics *metrics = coordinator->metrics;
    if (tally_job_status_is_terminal(row->status) &&
        row->finished_ms > metrics->started_ms - coordinator->config.metrics_keep_ms) {
        /* The walk goes from new to old, so this job comes before the others. */
        metrics->first_ended = (metrics->first_ended + METRICS_MAX_ENDED - 1) % METRICS_MAX_ENDED;
        metrics->ended[metrics->first_ended] = (struct ended_row){.is_loaded = true, .row = *row};
        metrics->n_ended++;
    }
    return TALLY_OK;
}

enum tally_status metrics_new(struct tally_coordinator *coordinator, struct tally_error *err)
{
    struct metrics *metrics = tally_xcalloc(1, sizeof *metrics);
    metrics->ended = tally_xcalloc(METRICS_MAX_ENDED, sizeof *metrics->ended);
    metrics->started_ms = tally_realtime_ms();
    coordinator->metrics = metrics;
    struct tally_store *store = coordinator->store;
    if (store->leases != NULL) {
        return TALLY_OK; /* another replica shows them */
    }
    /* Only among the newest jobs, because a walk over all jobs would delay the start. */
    return store->ops->job_list(store, -1, INT64_MAX, METRICS_MAX_ENDED, remember_ended,
                                coordinator, err);
}

void metrics_free(struct metrics *metrics)
{
    if (metrics != NULL) {
        free(metrics->ended);
        free(metrics);
    }
}

void metrics_end_job(struct metrics *metrics, const struct tally_store_job *row)
{
    metrics->jobs_ended[row->status]++;
    if (metrics->n_ended == METRICS_MAX_ENDED) {
        metrics->first_ended = (metrics->first_ended + 1) % METRICS_MAX_ENDED;
        metrics->n_ended--;
    }
    const int at = (metrics->first_ended + metrics->n_ended++) % METRICS_MAX_ENDED;
    metrics->ended[at] = (struct ended_row){.row = *row}; /* its counters may not be stored yet */
}

void metrics_forget_job(struct metrics *metrics, int64_t key)
{
    for (int i = 0; i < metrics->n_ended; i++) {
        struct ended_row *ended = &metrics->ended[(metrics->first_ended + i) % METRICS_MAX_ENDED];
        if (ended->row.key == key) {
            ended->row.finished_ms = 0; /* its time is over */
        }
    }
}

/* The response. */

static void write_requests(const struct calls *calls, struct exposition *exposition)
{
    const struct call_counts *counts = &calls->counts;
    static const char NAME[] = "tally_http_requests_total";
    exposition_family(
        exposition, NAME, EXPOSITION_COUNTER,
        "Requests answered, by route and HTTP status; 499: the client had disconnected.");
    for (int i = 0; i <= counts->n_routes; i++) {
        const bool matched = i < counts->n_routes;
        for (int status = MIN_HTTP_STATUS; status <= MAX_HTTP_STATUS; status++) {
            const uint64_t n = counts->routes[i].by_status[status - MIN_HTTP_STATUS];
            if (n == 0) {
                continue;
            }
            char code[12];
            snprintf(code, sizeof code, "%d", status);
            exposition_unsigned(
                exposition, NAME,
                EXPOSITION_LABELS({"method", matched ? calls->routes[i].method : "other"},
                                  {"route", matched ? calls->routes[i].path : "unmatched"},
                                  {"code", code}),
                n);
        }
    }
}

static void write_refusals(const struct calls *calls, struct exposition *exposition)
{
    static const char *const REASONS[] = {
#define REFUSAL_LABEL(symbol, label) label,
        TALLY_HTTP_REFUSAL_TABLE(REFUSAL_LABEL)
#undef REFUSAL_LABEL
    };
    exposition_each(exposition, "tally_http_refused_total", EXPOSITION_COUNTER,
                    "Requests and connections refused or dropped before they were routed.",
                    "reason", REASONS, calls->counts.refused, TALLY_N_HTTP_REFUSALS);
}

static void write_latency(const struct calls *calls, const struct worker_counts *workers,
                          struct exposition *exposition)
{
    const struct call_counts *counts = &calls->counts;
    static const char NAME[] = "tally_http_request_duration_seconds";
    exposition_family(exposition, NAME, EXPOSITION_HISTOGRAM,
                      "Time from the complete request to its response. Waiting long polls are in "
                      "tally_worker_poll_duration_seconds; an event stream counts until it opens.");
    for (int i = 0; i <= counts->n_routes; i++) {
        const bool matched = i < counts->n_routes;
        if (histogram_total(&counts->routes[i].seconds) > 0) {
            exposition_histogram(
                exposition, NAME,
                EXPOSITION_LABELS({"method", matched ? calls->routes[i].method : "other"},
                                  {"route", matched ? calls->routes[i].path : "unmatched"}),
                &counts->routes[i].seconds);
        }
    }
    static const char POLLS[] = "tally_worker_poll_duration_seconds";
    exposition_family(exposition, POLLS, EXPOSITION_HISTOGRAM,
                      "Time from a worker's poll to its response, waiting included, by outcome.");
    for (int i = 0; i < N_POLL_KINDS; i++) {
        exposition_histogram(exposition, POLLS, EXPOSITION_LABELS({"outcome", POLL_OUTCOMES[i]}),
                             &workers->polls[i]);
    }
}

static void write_updates(const struct transaction_counts *committed,
                          const struct call_counts *calls, struct exposition *exposition)
{
    exposition_one(exposition, "tally_rounds_total", EXPOSITION_COUNTER,
                   "Rounds closed by this process, over all jobs.", committed->rounds.closed);
    exposition_one(
        exposition, "tally_dropped_answers_total", EXPOSITION_COUNTER,
        "Updates missing when their round closed, over all jobs: one per missing client.",
        committed->rounds.dropped_answers);
    exposition_each(exposition, "tally_updates_total", EXPOSITION_COUNTER,
                    "Updates posted by workers, by result.", "result", UPDATE_RESULTS,
                    calls->updates, N_UPDATE_RESULTS);
}

static void write_store(const struct tally_coordinator *coordinator, struct exposition *exposition)
{
    const struct transaction_counts *counts = &coordinator->transaction->counts;
    static const char SECONDS_NAME[] = "tally_store_commit_duration_seconds";
    exposition_family(exposition, SECONDS_NAME, EXPOSITION_HISTOGRAM,
                      "Time that a commit of the store took.");
    exposition_histogram(exposition, SECONDS_NAME, NULL, &counts->commit_seconds);
    static const char REQUESTS_NAME[] = "tally_store_commit_requests";
    exposition_family(exposition, REQUESTS_NAME, EXPOSITION_HISTOGRAM,
                      "Requests whose responses waited for the same commit (group commit).");
    exposition_histogram(exposition, REQUESTS_NAME, NULL, &counts->commit_requests);
    uint64_t errors[N_STORE_OPERATIONS];
    memcpy(errors, counts->store_errors, sizeof errors);
    errors[STORE_READ] +=
        coordinator->calls->counts.failed_reads + coordinator->metrics->failed_reads;
    exposition_each(exposition, "tally_store_errors_total", EXPOSITION_COUNTER,
                    "Operations of the store that failed.", "operation", STORE_OPERATIONS, errors,
                    N_STORE_OPERATIONS);
}

static void write_workers(const struct tally_coordinator *coordinator,
                          struct exposition *exposition)
{
    static const char *const STATES[] = {"waiting", "working"};
    static const char *const USES[] = {"free", "assigned"};
    const struct session_table *sessions = &coordinator->workers->sessions;
    const struct worker_counts *counts = &coordinator->workers->counts;
    const uint64_t waiting = (uint64_t)sessions->n_waiting, slots = (uint64_t)sessions->n_slots;
    const uint64_t n = (uint64_t)sessions->n_sessions, n_free = (uint64_t)sessions->n_free;
    exposition_each(exposition, "tally_workers", EXPOSITION_GAUGE,
                    "Workers with a session: waiting in a long poll, or working.", "state", STATES,
                    (uint64_t[]){waiting, n - waiting}, 2);
    exposition_each(exposition, "tally_worker_slots", EXPOSITION_GAUGE,
                    "Client slots of all workers: free, or assigned to a client.", "state", USES,
                    (uint64_t[]){n_free, slots - n_free}, 2);
    exposition_one(exposition, "tally_workers_joined_total", EXPOSITION_COUNTER,
                   "Sessions begun by workers.", counts->joined);
    exposition_one(exposition, "tally_workers_lost_total", EXPOSITION_COUNTER,
                   "Sessions ended because the worker was silent.", counts->lost);
}

static void write_memory(const struct tally_coordinator *coordinator, struct exposition *exposition)
{
    const struct jobs_memory_use use = jobs_memory_use(coordinator);
    exposition_one(exposition, "tally_job_memory_bytes", EXPOSITION_GAUGE,
                   "Estimated memory of started jobs and of solving f(x*).", (uint64_t)use.held);
    exposition_one(exposition, "tally_job_memory_limit_bytes", EXPOSITION_GAUGE,
                   "Limit of tally_job_memory_bytes, from --max-job-bytes.", (uint64_t)use.limit);
}

static void write_webhooks(const struct webhooks *webhooks, struct exposition *exposition)
{
    if (webhooks == NULL) {
        return;
    }
    exposition_each(exposition, "tally_webhooks_total", EXPOSITION_COUNTER,
                    "Attempts to post a change of a job's status to its webhook, by result; given "
                    "up: changes that are lost.",
                    "result", WEBHOOK_RESULTS, webhooks_counts(webhooks), N_WEBHOOK_RESULTS);
    exposition_one(exposition, "tally_webhook_jobs_waiting", EXPOSITION_GAUGE,
                   "Jobs with changes that have not been delivered.",
                   (uint64_t)webhooks_n_waiting(webhooks));
}

enum tally_status rest_get_metrics(struct tally_coordinator *coordinator, struct call *call,
                                   struct tally_error *err)
{
    const struct calls *calls = coordinator->calls;
    const struct tally_tokens *tokens = coordinator->config.tokens;
    struct exposition exposition = {.out = &call->body};
    metrics_write_jobs(coordinator, &exposition);
    write_updates(&coordinator->transaction->counts, &calls->counts, &exposition);
    write_workers(coordinator, &exposition);
    exposition_one(&exposition, "tally_event_streams", EXPOSITION_GAUGE,
                   "Open streams of job events.", (uint64_t)coordinator->events->n_streams);
    exposition_one(&exposition, "tally_shared_tokens", EXPOSITION_GAUGE,
                   "Tokens that are in two token files and grant both roles.",
                   tokens != NULL ? (uint64_t)tokens->n_shared : 0);
    write_memory(coordinator, &exposition);
    write_requests(calls, &exposition);
    write_refusals(calls, &exposition);
    if (coordinator->forwarding != NULL) {
        exposition_each(&exposition, "tally_forwarded_requests_total", EXPOSITION_COUNTER,
                        "Requests sent on to the coordinator that had to answer them, by result.",
                        "result", FORWARD_RESULTS, forwarding_counts(coordinator->forwarding),
                        N_FORWARD_RESULTS);
    }
    write_latency(calls, &coordinator->workers->counts, &exposition);
    write_store(coordinator, &exposition);
    metrics_write_replicas(coordinator, &exposition);
    write_webhooks(coordinator->webhooks, &exposition);
    metrics_write_process(coordinator->metrics, &exposition);
    return call_answer_bytes(call, exposition.status, "text/plain; version=0.0.4; charset=utf-8",
                             err);
}

/* ---- The part of /metrics that is about jobs. */

/* What is shown: rows of the live list and of the ring of ended jobs, borrowed for the response. */
struct shown {
    const struct tally_store_job *rows[METRICS_MAX_JOBS];
    const struct hosted_job *live[METRICS_MAX_JOBS]; /* NULL for ended jobs */
    int n;
    uint64_t n_left_out;
    uint64_t by_status[TALLY_N_JOB_STATUS]; /* including the jobs left out */
};

static void show(struct shown *shown, const struct tally_store_job *row,
                 const struct hosted_job *live)
{
    shown->live[shown->n] = live;
    shown->rows[shown->n++] = row;
}

/* Selects the queued live jobs, or the others; if there is not room for all, the newest. */
static void select_live(const struct tally_coordinator *coordinator, bool queued,
                        struct shown *shown)
{
    int64_t n_more = 0;
    for (const struct hosted_job *job = coordinator->jobs->first; job != NULL; job = job->next) {
        n_more += !job->needs_reload && (job->row.status == TALLY_JOB_QUEUED) == queued;
    }
    for (const struct hosted_job *job = coordinator->jobs->first; job != NULL; job = job->next) {
        if ((job->row.status == TALLY_JOB_QUEUED) != queued) {
            continue;
        }
        shown->by_status[job->row.status]++;
        /* A row that is ahead of the store is not shown. */
        if (job->needs_reload || n_more-- > METRICS_MAX_JOBS - shown->n) {
            shown->n_left_out++;
        } else {
            show(shown, &job->row, job);
        }
    }
}

static struct ended_row *ended_at(struct metrics *metrics, int i)
{
    return &metrics->ended[(metrics->first_ended + i) % METRICS_MAX_ENDED];
}

/* Reads the last row of an ended job, which is committed by now. */
static void load_ended(struct tally_coordinator *coordinator, struct ended_row *ended)
{
    struct tally_store_job row;
    const enum tally_status status =
        coordinator->store->ops->job_get(coordinator->store, ended->row.id, &row, NULL);
    if (status == TALLY_OK) {
        ended->row = row;
        ended->is_loaded = true;
    } else if (status == TALLY_NOT_FOUND) { /* it is deleted */
        ended->row.finished_ms = 0;
    } else {
        coordinator->metrics->failed_reads++;
    }
}

/* Another replica may have deleted a job that ended here: each response looks up one of them. */
static void find_deleted(struct tally_coordinator *coordinator)
{
    struct metrics *metrics = coordinator->metrics;
    if (coordinator->view.is_shared && metrics->n_ended > 0) {
        metrics->next_checked = (metrics->next_checked + 1) % metrics->n_ended;
        load_ended(coordinator, ended_at(metrics, metrics->next_checked));
    }
}

/* Shows ended jobs whose time in /metrics is not over. Their last row is read once. */
static void select_ended(struct tally_coordinator *coordinator, struct shown *shown)
{
    struct metrics *metrics = coordinator->metrics;
    const int64_t since_ms = tally_realtime_ms() - coordinator->config.metrics_keep_ms;
    int n_kept = 0;
    find_deleted(coordinator);
    for (int i = 0; i < metrics->n_ended; i++) {
        n_kept += ended_at(metrics, i)->row.finished_ms > since_ms;
    }
    for (int i = 0; i < metrics->n_ended; i++) {
        struct ended_row *ended = ended_at(metrics, i);
        if (ended->row.finished_ms <= since_ms) {
            continue;
        }
        shown->by_status[ended->row.status]++;
        bool room = n_kept-- <= METRICS_MAX_JOBS - shown->n;
        if (room && !ended->is_loaded) {
            load_ended(coordinator, ended);
        }
        if (room && ended->is_loaded) {
            show(shown, &ended->row, NULL);
        } else {
            shown->n_left_out++;
        }
    }
    while (metrics->n_ended > 0 && ended_at(metrics, 0)->row.finished_ms <= since_ms) {
        metrics->first_ended = (metrics->first_ended + 1) % METRICS_MAX_ENDED;
        metrics->n_ended--;
    }
}

/* Families: each writes its samples of one job. */

typedef void write_job_fn(struct exposition *exposition, const char *name,
                          const struct tally_store_job *row);

static void write_info(struct exposition *exposition, const char *name,
                       const struct tally_store_job *row)
{
    exposition_unsigned(
        exposition, name,
        EXPOSITION_LABELS({"job", row->id}, {"name", row->name}, {"algorithm", row->algorithm}), 1);
}

static void write_status(struct exposition *exposition, const char *name,
                         const struct tally_store_job *row)
{
    exposition_unsigned(
        exposition, name,
        EXPOSITION_LABELS({"job", row->id}, {"status", tally_job_status_name(row->status)}), 1);
}

static void write_count(struct exposition *exposition, const char *name,
                        const struct tally_store_job *row, int64_t value)
{
    exposition_unsigned(exposition, name, EXPOSITION_LABELS({"job", row->id}), (uint64_t)value);
}

static void write_regret(struct exposition *exposition, const char *name,
                         const struct tally_store_job *row)
{
    if (!isnan(row->progress.cumulative_regret)) { /* the job has none if it is NaN */
        exposition_real(exposition, name, EXPOSITION_LABELS({"job", row->id}),
                        row->progress.cumulative_regret);
    }
}

static void write_loss(struct exposition *exposition, const char *name,
                       const struct tally_store_job *row)
{
    const double loss = tally_progress_loss(&row->progress);
    if (!isnan(loss)) {
        exposition_real(exposition, name, EXPOSITION_LABELS({"job", row->id}), loss);
    }
}

static void write_metrics(struct exposition *exposition, const char *name,
                          const struct tally_store_job *row)
{
    const char *at = row->progress.metrics;
    struct tally_metric_summary summary;
    while (tally_metrics_next(&at, &summary)) {
        exposition_real(exposition, name,
                        EXPOSITION_LABELS({"job", row->id}, {"name", summary.name}), summary.mean);
    }
}

static void write_bits(struct exposition *exposition, const char *name,
                       const struct tally_store_job *row)
{
    const struct tally_ledger *bits = &row->progress.bits;
    const struct {
        const char *direction, *kind;
        uint64_t value;
    } samples[] = {
        {"uplink", "formula", bits->uplink.formula_bits},
        {"uplink", "payload", bits->uplink.payload_bits},
        {"uplink", "telemetry", bits->telemetry_bits},
        {"downlink", "formula", bits->downlink.formula_bits},
        {"downlink", "payload", bits->downlink.payload_bits},
        {"downlink", "delivered_payload", bits->delivered_payload_bits},
        {"downlink", "control", bits->control_bits},
        {"downlink", "recovery", row->recovery_bits},
    };
    for (size_t i = 0; i < sizeof samples / sizeof samples[0]; i++) {
        exposition_unsigned(exposition, name,
                            EXPOSITION_LABELS({"job", row->id}, {"direction", samples[i].direction},
                                              {"kind", samples[i].kind}),
                            samples[i].value);
    }
}

/* A family has a function, or the offset of its counter in the row; one that also counts the
 * downlink has two offsets. */
static const struct {
    const char *name;
    enum exposition_type type;
    const char *help;
    write_job_fn *write;
    size_t offset, downlink_offset; /* in struct tally_store_job; 0 = none */
} FAMILIES[] = {
#define AT(member)       .offset = offsetof(struct tally_store_job, member)
#define AND_DOWN(member) .downlink_offset = offsetof(struct tally_store_job, member)
    {"tally_job_info", EXPOSITION_GAUGE, "Always 1; the labels describe the job.",
     .write = write_info},
    {"tally_job_status", EXPOSITION_GAUGE, "Always 1; the label is the current status.",
     .write = write_status},
    {"tally_job_clients", EXPOSITION_GAUGE, "Clients of the job, M.", AT(clients)},
    {"tally_job_horizon", EXPOSITION_GAUGE, "Time steps of the whole job, T.", AT(horizon)},
    {"tally_job_time_step", EXPOSITION_GAUGE, "Gradient queries per client so far, t.",
     AT(progress.time_step)},
    {"tally_job_iterate", EXPOSITION_GAUGE, "Number of the point that is queried, k.",
     AT(progress.iterate)},
    {"tally_job_regret", EXPOSITION_GAUGE, "Cumulative regret so far.", .write = write_regret},
    {"tally_job_loss", EXPOSITION_GAUGE, "Mean loss of the last closed round.",
     .write = write_loss},
    {"tally_job_metric", EXPOSITION_GAUGE,
     "Mean of a metric that workers report, over the clients of the last closed round in which one "
     "reported it.",
     .write = write_metrics},
    {"tally_job_rounds_total", EXPOSITION_COUNTER, "Rounds closed.", AT(progress.round)},
    {"tally_job_bits_total", EXPOSITION_COUNTER,
     "Bits. Uplink is summed over clients, downlink counts a broadcast once and delivered_payload "
     "one copy per client. The kinds are views of the same messages: do not add them up.",
     .write = write_bits},
    {"tally_job_messages_total", EXPOSITION_COUNTER, "Quantized messages.",
     AT(progress.bits.uplink.messages), AND_DOWN(progress.bits.downlink.messages)},
    {"tally_job_clipped_total", EXPOSITION_COUNTER, "Coordinates outside the quantizer's range.",
     AT(progress.bits.uplink.clipped), AND_DOWN(progress.bits.downlink.clipped)},
    {"tally_job_wire_bytes_total", EXPOSITION_COUNTER,
     "Bytes of the HTTP exchanges that carried the job's tasks and updates, headers included.",
     AT(wire_in_bytes), AND_DOWN(wire_out_bytes)},
#undef AT
#undef AND_DOWN
};

static void write_family(struct exposition *exposition, size_t family,
                         const struct tally_store_job *row)
{
    const char *name = FAMILIES[family].name;
    uint64_t value, downlink; /* the row may have an int64_t instead, which is never negative */
    if (FAMILIES[family].write != NULL) {
        FAMILIES[family].write(exposition, name, row);
        return;
    }
    memcpy(&value, (const char *)row + FAMILIES[family].offset, sizeof value);
    if (FAMILIES[family].downlink_offset == 0) {
        write_count(exposition, name, row, (int64_t)value);
        return;
    }
    memcpy(&downlink, (const char *)row + FAMILIES[family].downlink_offset, sizeof downlink);
    exposition_unsigned(exposition, name,
                        EXPOSITION_LABELS({"job", row->id}, {"direction", "uplink"}), value);
    exposition_unsigned(exposition, name,
                        EXPOSITION_LABELS({"job", row->id}, {"direction", "downlink"}), downlink);
}

static void write_totals(const struct tally_coordinator *coordinator, const struct shown *shown,
                         struct exposition *exposition)
{
    static const char JOBS[] = "tally_jobs";
    exposition_family(exposition, JOBS, EXPOSITION_GAUGE,
                      "Jobs by status; ended ones for as long as their series are kept.");
    for (unsigned i = 0; i < TALLY_N_JOB_STATUS; i++) {
        exposition_unsigned(exposition, JOBS,
                            EXPOSITION_LABELS({"status", tally_job_status_name(i)}),
                            shown->by_status[i]);
    }
    exposition_one(exposition, "tally_jobs_left_out", EXPOSITION_GAUGE,
                   "Jobs counted in tally_jobs without series of their own: there are too many, "
                   "or the store cannot be read.",
                   shown->n_left_out);
    static const char ENDED[] = "tally_jobs_ended_total";
    exposition_family(exposition, ENDED, EXPOSITION_COUNTER, "Jobs that ended in this process.");
    for (unsigned i = 0; i < TALLY_N_JOB_STATUS; i++) {
        if (tally_job_status_is_terminal(i)) {
            exposition_unsigned(exposition, ENDED,
                                EXPOSITION_LABELS({"status", tally_job_status_name(i)}),
                                coordinator->metrics->jobs_ended[i]);
        }
    }
}

/* Writes 0 for a job that makes progress, so that alert rules need not handle missing series. */
static void write_waiting(const struct tally_coordinator *coordinator, const struct shown *shown,
                          struct exposition *exposition)
{
    const int64_t now_ms = tally_monotonic_ms(), unix_ms = tally_realtime_ms();
    int64_t waiting_ms[METRICS_MAX_JOBS] = {0}, n_missing[METRICS_MAX_JOBS] = {0};
    for (int i = 0; i < shown->n; i++) {
        struct tally_waiting waiting;
        if (shown->live[i] != NULL &&
            workers_job_waiting(coordinator, shown->live[i], now_ms, &waiting)) {
            waiting_ms[i] = unix_ms > waiting.since_ms ? unix_ms - waiting.since_ms : 0;
            n_missing[i] = waiting.n_clients;
        }
    }
    static const char SECONDS[] = "tally_job_waiting_seconds";
    exposition_family(exposition, SECONDS, EXPOSITION_GAUGE,
                      "Time for which the job has been stalled; `waiting` in its detail says why. "
                      "0 while it progresses.");
    for (int i = 0; i < shown->n; i++) {
        if (shown->live[i] != NULL) {
            exposition_real(exposition, SECONDS, EXPOSITION_LABELS({"job", shown->rows[i]->id}),
                            (double)waiting_ms[i] / 1000);
        }
    }
    static const char MISSING[] = "tally_job_missing_clients";
    exposition_family(exposition, MISSING, EXPOSITION_GAUGE,
                      "Clients that the job waits for; 0 while it progresses.");
    for (int i = 0; i < shown->n; i++) {
        if (shown->live[i] != NULL) {
            write_count(exposition, MISSING, shown->rows[i], n_missing[i]);
        }
    }
}

static void metrics_write_jobs(struct tally_coordinator *coordinator, struct exposition *exposition)
{
    struct shown shown = {0};
    select_live(coordinator, false, &shown);
    select_ended(coordinator, &shown);
    select_live(coordinator, true, &shown);
    write_totals(coordinator, &shown, exposition);
    for (size_t f = 0; f < sizeof FAMILIES / sizeof FAMILIES[0]; f++) {
        exposition_family(exposition, FAMILIES[f].name, FAMILIES[f].type, FAMILIES[f].help);
        for (int i = 0; i < shown.n; i++) {
            write_family(exposition, f, shown.rows[i]);
        }
    }
    write_waiting(coordinator, &shown, exposition);
    static const char VACANT[] = "tally_job_vacant_clients";
    exposition_family(exposition, VACANT, EXPOSITION_GAUGE, "Clients that no worker has.");
    for (int i = 0; i < shown.n; i++) {
        if (shown.live[i] != NULL) {
            write_count(exposition, VACANT, shown.rows[i], shown.live[i]->n_vacant);
        }
    }
}

/* ---- What every exporter reports about its process, under Prometheus' conventional
 * names, read from Linux. What cannot be read is left out. */

static void write_gauge(struct exposition *exposition, const char *name, const char *help,
                        double value)
{
    exposition_family(exposition, name, EXPOSITION_GAUGE, help);
    exposition_real(exposition, name, NULL, value);
}

static void write_process_memory(struct exposition *exposition)
{
    char line[128];
    tally_file_peek("/proc/self/statm", line, sizeof line);
    uint64_t virtual_pages, resident_pages;
    /* NOLINTNEXTLINE(cert-err34-c): the kernel's own numbers */
    if (sscanf(line, "%" SCNu64 " %" SCNu64, &virtual_pages, &resident_pages) == 2) {
        const double page_bytes = (double)sysconf(_SC_PAGESIZE);
        write_gauge(exposition, "process_virtual_memory_bytes", "Virtual memory.",
                    (double)virtual_pages * page_bytes);
        write_gauge(exposition, "process_resident_memory_bytes", "Memory in use.",
                    (double)resident_pages * page_bytes);
    }
}

static void write_descriptors(struct exposition *exposition)
{
    DIR *folder = opendir("/proc/self/fd");
    if (folder != NULL) {
        int n = -3; /* ".", ".." and the folder itself */
        while (readdir(folder) != NULL) {
            n++;
        }
        closedir(folder);
        write_gauge(exposition, "process_open_fds", "Open file descriptors.", n);
    }
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        write_gauge(exposition, "process_max_fds", "Maximum number of open file descriptors.",
                    (double)files.rlim_cur);
    }
}

static void metrics_write_process(const struct metrics *metrics, struct exposition *exposition)
{
    static const char BUILD[] = "tally_build_info";
    exposition_family(exposition, BUILD, EXPOSITION_GAUGE, "Always 1; the label is the version.");
    exposition_unsigned(exposition, BUILD, EXPOSITION_LABELS({"version", TALLY_VERSION}), 1);
    struct rusage usage;
    static const char CPU[] = "process_cpu_seconds_total";
    if (getrusage(RUSAGE_SELF, &usage) == 0) {
        exposition_family(exposition, CPU, EXPOSITION_COUNTER, "User and system processor time.");
        exposition_real(exposition, CPU, NULL,
                        (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                            (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6);
    }
    write_gauge(exposition, "process_start_time_seconds", "Unix time at which the process started.",
                (double)metrics->started_ms / 1000);
    write_process_memory(exposition);
    write_descriptors(exposition);
}

/* ---- The part of /metrics that is about other coordinators on the same store, and
 * the counters of such a store. */

static void write_leases(const struct tally_coordinator *coordinator, struct exposition *exposition)
{
    const struct tally_store *store = coordinator->store;
    if (store->ops->counters == NULL) {
        return;
    }
    const struct tally_store_counters counters = store->ops->counters(store);
    exposition_one(exposition, "tally_store_retried_conflicts_total", EXPOSITION_COUNTER,
                   "Transactions retried after a conflict with another coordinator.",
                   counters.retried_conflicts);
    exposition_one(exposition, "tally_store_reconnects_total", EXPOSITION_COUNTER,
                   "Times that the connection to the store was made again.", counters.reconnects);
    exposition_one(exposition, "tally_store_fenced_writes_total", EXPOSITION_COUNTER,
                   "Writes refused because another coordinator leads the job.",
                   counters.fenced_writes);
}

static void metrics_write_replicas(struct tally_coordinator *coordinator,
                                   struct exposition *exposition)
{
    write_leases(coordinator, exposition);
    if (!coordinator->view.is_shared) {
        return;
    }
    const struct replica_counts *metrics = replicas_counts(coordinator);
    int64_t n_alive, n_dead;
    replicas_count(coordinator, &n_alive, &n_dead);
    exposition_each(exposition, "tally_replicas", EXPOSITION_GAUGE,
                    "Coordinators on this store, this one among them, as it saw them last: alive, "
                    "or silent without having left.",
                    "state", (const char *const[]){"alive", "dead"},
                    (uint64_t[]){(uint64_t)n_alive, (uint64_t)n_dead}, 2);
    exposition_one(exposition, "tally_replica_serves", EXPOSITION_GAUGE,
                   "1 while this coordinator holds its leases; 0: it has stepped down.",
                   may_serve(&coordinator->view, tally_monotonic_ms()));
    exposition_one(exposition, "tally_replica_failed_heartbeats_total", EXPOSITION_COUNTER,
                   "Heartbeats that the store did not accept.", metrics->failed_heartbeats);
    exposition_one(exposition, "tally_replica_step_downs_total", EXPOSITION_COUNTER,
                   "Times that no heartbeat succeeded for a whole lease.", metrics->step_downs);
    exposition_one(exposition, "tally_replica_jobs_taken_total", EXPOSITION_COUNTER,
                   "Jobs taken over from coordinators that died or left, or given by others.",
                   metrics->jobs_taken);
    exposition_one(exposition, "tally_replica_jobs_lost_total", EXPOSITION_COUNTER,
                   "Jobs that others took over from this coordinator.", metrics->jobs_lost);
    exposition_one(exposition, "tally_replica_jobs_given_total", EXPOSITION_COUNTER,
                   "Queued jobs given to a coordinator with free slots.", metrics->jobs_given);
    exposition_one(exposition, "tally_replica_workers_given_total", EXPOSITION_COUNTER,
                   "Idle workers sent to a coordinator that lacks slots.", metrics->workers_given);
}
