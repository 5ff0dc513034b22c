/* metrics_jobs: the part of /metrics that is about jobs. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "services/base/time.h"
#include "services/coordinator/jobs_live.h"
#include "services/coordinator/metrics.h"
#include "services/coordinator/rooms.h"
#include "services/coordinator/workers_waiting.h"

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
static void look_for_deleted(struct tally_coordinator *coordinator)
{
    struct metrics *metrics = coordinator->metrics;
    if (coordinator->view.is_shared && metrics->n_ended > 0) {
        metrics->next_look = (metrics->next_look + 1) % metrics->n_ended;
        load_ended(coordinator, ended_at(metrics, metrics->next_look));
    }
}

/* Shows ended jobs whose time in /metrics is not over. Their last row is read once. */
static void select_ended(struct tally_coordinator *coordinator, struct shown *shown)
{
    struct metrics *metrics = coordinator->metrics;
    const int64_t since_ms = tally_realtime_ms() - coordinator->config.metrics_keep_ms;
    int n_kept = 0;
    look_for_deleted(coordinator);
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
        if (shown->live[i] != NULL && job_waiting(coordinator, shown->live[i], now_ms, &waiting)) {
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

void metrics_write_jobs(struct tally_coordinator *coordinator, struct exposition *exposition)
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
