#include "tests/bench/coordinator_bench.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "services/base/rest_client.h"
#include "services/base/signals.h"
#include "services/base/time.h"
#include "tests/bench/bench_server.h"
#include "tests/bench/players.h"

enum {
    QUIET_MS = 50,
    END_MS = 30000, /* for a job to end after its last update; far more than needed */
    RESERVED_DESCRIPTORS = 64,
};

/* The number of rounds of a run is derived from a warm-up that takes this share of its time. */
static const double WARM_UP_SHARE = 0.1;
enum { WARM_UP_GROWTH = 4, MAX_ROUNDS = 100000000 };

/* A `ceal` job that stays in its stage. G = 3, B_j + tau_j and the accuracies below are chosen so
 * that messages have one step's standard deviation both ways, their mean, of norm 8 tau, passes the
 * test of 4 tau in every round, and samples have one query. Steps are so short that x hardly moves.
 * The objective is a plug-in that no worker has, so no data limits its dim. */
static const char JOB[] =
    "{\"name\": \"bench\", \"clients\": %u, \"horizon\": %u, \"seed\": 1, \"encoding\": \"%s\", "
    "\"algorithm\": "
    "{\"type\": "
    "\"ceal\", \"step_size\": 1e-9, \"sigma\": 0.75, \"delta\": 0.1, \"gamma0\": 1, \"phi0\": 8, "
    "\"sample_scale\": 1e-6, \"log_factor\": false, \"first_stage\": 4, \"gradient_bound\": 1}, "
    "\"objective\": {\"type\": \"plugin\", \"name\": \"bench\", \"dim\": %zu}, "
    "\"initial_point\": {\"type\": \"zeros\"}, \"reference\": {\"type\": \"none\"}}";

/* A coordinator, its players, and its measurements. */
struct contender {
    const char *store;
    uint32_t n_idle;
    struct tally_bench_server server;
    struct tally_rest_client rest;
    struct tally_players *players;
    uint64_t empty_bytes; /* memory before any worker joined */
    uint32_t n_rounds;    /* of the job of a run */
    double rates[TALLY_BENCH_MAX_RUNS];
    struct tally_play total;
    double cpu_s, commit_s;
    double accumulate_s; /* of one message, summed over the runs */
    uint64_t n_commits, messages;
};

struct echo {
    struct tally_bench_server server;
    struct tally_load *load;
    const char *path;
    struct tally_load_body body;
    bool is_over;         /* do not send another request after a response */
    uint64_t n, n_posted; /* of the run */
    uint64_t n_all;       /* responses of all runs */
    double cpu_s;
    struct tally_latencies latencies;
    double rates[TALLY_BENCH_MAX_RUNS];
};

/* ---- REST ---- */

static enum tally_status submit(struct contender *self, uint32_t clients, uint32_t rounds,
                                size_t dim, const char *encoding,
                                char ret_id[TALLY_MESSAGE_JOB_ID_CAPACITY], struct tally_error *err)
{
    char document[sizeof JOB + 128]; /* enough for the numbers and the encoding's name */
    const int n = snprintf(document, sizeof document, JOB, clients, rounds, encoding, dim);
    struct tally_http_exchange exchange = {.method = "POST",
                                           .path = "/v1/jobs",
                                           .content_type = "application/json",
                                           .body = (const uint8_t *)document,
                                           .n_body = (size_t)n};
    struct tally_json *detail = NULL;
    enum tally_status status = tally_rest_call_json(&self->rest, &exchange, &detail, err);
    if (status == TALLY_OK) {
        const char *id = tally_json_get_text(detail, "id");
        snprintf(ret_id, TALLY_MESSAGE_JOB_ID_CAPACITY, "%s", id != NULL ? id : "");
    }
    tally_json_free(detail);
    return status;
}

/* Waits until a job, whose updates are all acknowledged, is completed, and adds the messages that
 * it counted to the total. */
static enum tally_status await_end(struct contender *self, const char *id, struct tally_error *err)
{
    const int64_t until_ms = tally_monotonic_ms() + END_MS;
    char path[TALLY_JOB_PATH_CAPACITY];
    tally_job_path(id, "", path);
    for (;;) {
        struct tally_json *detail = NULL;
        enum tally_status status = tally_rest_get_json(&self->rest, path, &detail, err);
        const char *text = tally_json_get_text(detail, "status");
        const bool is_completed = text != NULL && strcmp(text, "completed") == 0;
        if (is_completed) {
            const struct tally_json *bits = tally_json_get(detail, "bits");
            self->messages +=
                (uint64_t)tally_json_get_integer(tally_json_get(bits, "uplink"), "messages", 0);
        }
        tally_json_free(detail);
        if (status != TALLY_OK || is_completed) {
            return status;
        }
        if (tally_monotonic_ms() > until_ms) {
            return tally_fail(err, TALLY_DEADLINE, NULL, "job %s does not end", id);
        }
        if (tally_signals_wait(QUIET_MS)) {
            return tally_fail(err, TALLY_CANCELLED, NULL, "interrupted");
        }
    }
}

/* The value of a line of /metrics that begins with the name. */
static double metric(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    return at != NULL ? strtod(at + strlen(name), NULL) : 0;
}

static enum tally_status read_commits(struct contender *self, double *ret_seconds, uint64_t *ret_n,
                                      struct tally_error *err)
{
    struct tally_http_exchange exchange = {.method = "GET", .path = "/metrics"};
    enum tally_status status = tally_rest_call(&self->rest, &exchange, err);
    if (status == TALLY_OK && tally_buffer_append(&self->rest.body, "", 1) != TALLY_OK) {
        status = tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for metrics");
    }
    if (status == TALLY_OK) {
        const char *text = (const char *)self->rest.body.data;
        *ret_seconds = metric(text, "\ntally_store_commit_duration_seconds_sum ");
        *ret_n = (uint64_t)metric(text, "\ntally_store_commit_duration_seconds_count ");
    }
    return status;
}

/* ---- Contenders ---- */

/* Runs one job. */
static enum tally_status play(struct contender *self, const struct tally_coordinator_bench *bench,
                              uint32_t n_rounds, struct tally_play *ret_play,
                              struct tally_error *err)
{
    char id[TALLY_MESSAGE_JOB_ID_CAPACITY];
    /* Players whose polls returned empty poll again before the measurement starts. */
    enum tally_status status = tally_players_settle(self->players, QUIET_MS, err);
    if (status == TALLY_OK) {
        status = submit(self, bench->clients, n_rounds, bench->dim, bench->encoding, id, err);
    }
    if (status == TALLY_OK) {
        status = tally_players_play(self->players, n_rounds, ret_play, err);
    }
    if (status != TALLY_OK) {
        return status;
    }
    const uint64_t before = self->messages;
    status = await_end(self, id, err);
    if (status == TALLY_OK && self->messages - before != ret_play->updates) {
        status = tally_fail(err, TALLY_DATA_LOSS, NULL,
                            "%llu updates are acknowledged, job %s counts %llu",
                            (unsigned long long)ret_play->updates, id,
                            (unsigned long long)(self->messages - before));
    }
    return status;
}

/* Runs longer and longer jobs, until one takes long enough to determine how many rounds a run
 * needs. */
static enum tally_status warm_up(struct contender *self,
                                 const struct tally_coordinator_bench *bench,
                                 struct tally_play *ret_play, struct tally_error *err)
{
    uint32_t n = bench->rounds > 0 ? bench->rounds : 1;
    enum tally_status status = play(self, bench, n, ret_play, err);
    while (status == TALLY_OK && bench->rounds == 0 &&
           ret_play->seconds < WARM_UP_SHARE * bench->seconds && n < MAX_ROUNDS / WARM_UP_GROWTH) {
        n *= WARM_UP_GROWTH;
        status = play(self, bench, n, ret_play, err);
    }
    self->messages = 0;
    self->n_rounds = n;
    if (status == TALLY_OK && bench->rounds == 0) {
        const double rounds = bench->seconds * (double)n / ret_play->seconds;
        self->n_rounds = rounds < 1 ? 1 : rounds < MAX_ROUNDS ? (uint32_t)rounds : MAX_ROUNDS;
    }
    return status;
}

/* Number of workers of one coordinator that take part. */
static uint32_t n_workers(const struct tally_coordinator_bench *bench)
{
    return bench->clients / bench->clients_per_worker;
}

static enum tally_status start(struct contender *self, const struct tally_coordinator_bench *bench,
                               struct tally_error *err)
{
    char url[64];
    const struct tally_http_client_config client = {.base_url = url,
                                                    .cancel = tally_signals_stop()};
    enum tally_status status = tally_bench_start_coordinator(self->store, &self->server, err);
    if (status == TALLY_OK) {
        snprintf(url, sizeof url, "http://127.0.0.1:%u", (unsigned)self->server.port);
        status = tally_rest_client_init(&self->rest, &client, err);
    }
    const struct tally_players_config players = {.port = self->server.port,
                                                 .n = n_workers(bench) + self->n_idle,
                                                 .clients = bench->clients,
                                                 .clients_per_worker = bench->clients_per_worker,
                                                 .dim = bench->dim};
    self->empty_bytes = tally_bench_memory(&self->server).now;
    if (status == TALLY_OK) {
        status = tally_players_new(&players, &self->players, err);
    }
    if (status != TALLY_OK) {
        tally_error_wrap(err, "coordinator with %s", self->store);
    }
    return status;
}

static void stop(struct contender *self)
{
    tally_players_free(self->players);
    tally_rest_client_fini(&self->rest);
    tally_bench_stop(&self->server);
}

static void add_play(struct tally_play *total, const struct tally_play *play)
{
    total->updates += play->updates;
    total->seconds += play->seconds;
    total->wire_bytes += play->wire_bytes;
    total->body_bytes += play->body_bytes;
    total->payload_bytes += play->payload_bytes;
    tally_latencies_merge(&total->posts, &play->posts);
    tally_latencies_merge(&total->rounds, &play->rounds);
}

static enum tally_status run_contender(struct contender *self,
                                       const struct tally_coordinator_bench *bench, int run,
                                       struct tally_play *scratch, struct tally_error *err)
{
    double commit_s[2] = {0};
    uint64_t n_commits[2] = {0};
    double accumulate_s = 0;
    const double cpu_s = tally_bench_cpu_s(&self->server);
    enum tally_status status = read_commits(self, &commit_s[0], &n_commits[0], err);
    if (status == TALLY_OK) {
        status = play(self, bench, self->n_rounds, scratch, err);
    }
    if (status == TALLY_OK) {
        status = read_commits(self, &commit_s[1], &n_commits[1], err);
    }
    if (status == TALLY_OK) {
        self->cpu_s += tally_bench_cpu_s(&self->server) - cpu_s;
        self->commit_s += commit_s[1] - commit_s[0];
        self->n_commits += n_commits[1] - n_commits[0];
        self->rates[run] = (double)scratch->updates / scratch->seconds;
        add_play(&self->total, scratch);
        status = tally_players_accumulate_s(self->players, &accumulate_s, err);
        self->accumulate_s += accumulate_s;
    }
    if (status != TALLY_OK) {
        tally_error_wrap(err, "coordinator with %s", self->store);
    }
    return status;
}

/* ---- Echo ---- */

static enum tally_status post_echo(struct echo *echo, uint32_t connection, struct tally_error *err)
{
    echo->n_posted++;
    return tally_load_post(echo->load, connection, echo->path, &echo->body, err);
}

static enum tally_status on_echo(void *context, uint32_t connection,
                                 const struct tally_load_answer *answer, struct tally_error *err)
{
    struct echo *echo = context;
    tally_latencies_add(&echo->latencies, answer->ns);
    echo->n++;
    return echo->is_over ? TALLY_OK : post_echo(echo, connection, err);
}

/* Serves until every request has its response. */
static enum tally_status finish_echoes(struct echo *echo, struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    echo->is_over = true;
    while (status == TALLY_OK && echo->n < echo->n_posted) {
        uint32_t n;
        status = tally_load_step(echo->load, QUIET_MS, &n, err);
    }
    return status;
}

static enum tally_status post_echoes(struct echo *echo, uint32_t n, struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    echo->n = echo->n_posted = 0;
    for (uint32_t i = 0; status == TALLY_OK && i < n; i++) {
        status = post_echo(echo, i, err);
    }
    return status;
}

static enum tally_status start_echo(struct echo *echo, const struct tally_coordinator_bench *bench,
                                    struct tally_players *players, size_t n_answer,
                                    struct tally_error *err)
{
    enum tally_status status = tally_players_sample(players, &echo->path, &echo->body, err);
    if (status == TALLY_OK) {
        status = tally_bench_start_echo(n_answer, bench->clients + RESERVED_DESCRIPTORS,
                                        &echo->server, err);
    }
    if (status == TALLY_OK) {
        status = tally_load_new(echo->server.port, bench->clients, on_echo, echo, &echo->load, err);
    }
    if (status == TALLY_OK) { /* all connections are accepted before the measurement */
        status = post_echoes(echo, bench->clients, err);
    }
    if (status == TALLY_OK) {
        status = finish_echoes(echo, err);
        echo->latencies = (struct tally_latencies){0};
    }
    return status;
}

static enum tally_status run_echo(struct echo *echo, const struct tally_coordinator_bench *bench,
                                  int run, struct tally_error *err)
{
    const double cpu_s = tally_bench_cpu_s(&echo->server);
    const int64_t begin_ns = tally_monotonic_ns();
    double seconds = 0;
    echo->is_over = false;
    enum tally_status status = post_echoes(echo, bench->clients, err);
    /* On a busy machine, a short time may pass without a single response. */
    while (status == TALLY_OK && (seconds < bench->seconds || echo->n == 0)) {
        uint32_t n;
        status = tally_load_step(echo->load, QUIET_MS, &n, err);
        seconds = 1e-9 * (double)(tally_monotonic_ns() - begin_ns);
    }
    echo->rates[run] = (double)echo->n / seconds;
    if (status == TALLY_OK) {
        status = finish_echoes(echo, err);
    }
    echo->cpu_s += tally_bench_cpu_s(&echo->server) - cpu_s;
    echo->n_all += echo->n;
    if (status != TALLY_OK) {
        tally_error_wrap(err, "echo server");
    }
    return status;
}

static void stop_echo(struct echo *echo)
{
    tally_load_free(echo->load);
    tally_bench_stop(&echo->server);
}

/* ---- A point ---- */

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static struct tally_bench_spread spread_of(const double *values, int n)
{
    double sorted[TALLY_BENCH_MAX_RUNS];
    memcpy(sorted, values, (size_t)n * sizeof *values);
    qsort(sorted, (size_t)n, sizeof *sorted, compare);
    return (struct tally_bench_spread){
        .least = sorted[0],
        .median = (sorted[(n - 1) / 2] + sorted[n / 2]) / 2,
        .most = sorted[n - 1],
    };
}

static void make_row(const struct contender *self, const struct echo *echo,
                     const struct tally_coordinator_bench *bench, struct tally_bench_row *row)
{
    const struct tally_play *total = &self->total;
    const struct tally_bench_memory memory = tally_bench_memory(&self->server);
    const double n = (double)total->updates;
    double ratios[TALLY_BENCH_MAX_RUNS];
    for (int i = 0; i < bench->n_runs; i++) {
        ratios[i] = self->rates[i] / echo->rates[i];
    }
    *row = (struct tally_bench_row){
        .store = self->store,
        .idle = self->n_idle,
        .updates_per_s = spread_of(self->rates, bench->n_runs),
        .clients_per_worker = bench->clients_per_worker,
        .echo_requests_per_s = spread_of(echo->rates, bench->n_runs),
        .over_echo = spread_of(ratios, bench->n_runs),
        .round_ms_p50 = tally_latencies_quantile_ms(&total->rounds, 0.5),
        .round_ms_p99 = tally_latencies_quantile_ms(&total->rounds, 0.99),
        .post_ms_p99 = tally_latencies_quantile_ms(&total->posts, 0.99),
        .echo_cpu_us = 1e6 * echo->cpu_s / (double)echo->n_all,
        .echo_ms_p50 = tally_latencies_quantile_ms(&echo->latencies, 0.5),
        .commit_ms = self->n_commits > 0 ? 1e3 * self->commit_s / (double)self->n_commits : 0,
        .cpu_us_per_update = 1e6 * self->cpu_s / n,
        .accumulate_us = 1e6 * self->accumulate_s / bench->n_runs,
        .rss_bytes = memory.peak,
        .idle_bytes = ((double)memory.now - (double)self->empty_bytes) /
                      ((double)n_workers(bench) + (double)self->n_idle),
        .wire_bytes = (double)total->wire_bytes / n,
        .payload_bytes = (double)total->payload_bytes / n,
        .protobuf_bytes = (double)(total->body_bytes - total->payload_bytes) / n,
        .http_bytes = (double)(total->wire_bytes - total->body_bytes) / n,
        .updates = total->updates,
        .messages = self->messages,
    };
    row->rounds_per_s = row->updates_per_s.median / bench->clients;
}

/* Allows as many open connections as the system permits. */
static void raise_descriptors(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static enum tally_status start_all(const struct tally_coordinator_bench *bench,
                                   struct contender *contenders, size_t n, struct echo *echo,
                                   struct tally_play *play, struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    for (size_t i = 0; status == TALLY_OK && i < n; i++) {
        status = start(&contenders[i], bench, err);
    }
    for (size_t i = 0; status == TALLY_OK && i < n; i++) {
        status = warm_up(&contenders[i], bench, play, err);
    }
    if (status == TALLY_OK && play->updates > 0) {
        const size_t n_answer = (size_t)(play->answer_bytes / play->updates);
        status = start_echo(echo, bench, contenders[0].players, n_answer, err);
    }
    return status;
}

static enum tally_status run_all(const struct tally_coordinator_bench *bench,
                                 struct contender *contenders, size_t n, struct echo *echo,
                                 struct tally_play *play, struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    for (int run = 0; status == TALLY_OK && run < bench->n_runs; run++) {
        bench->on_run(bench->context, bench, run);
        status = run_echo(echo, bench, run, err);
        for (size_t i = 0; status == TALLY_OK && i < n; i++) {
            status = run_contender(&contenders[i], bench, run, play, err);
        }
    }
    bench->on_run(bench->context, bench, bench->n_runs);
    return status;
}

enum tally_status tally_coordinator_bench_run(const struct tally_coordinator_bench *bench,
                                              struct tally_bench_row ret_rows[], size_t *ret_n_rows,
                                              struct tally_error *err)
{
    struct contender *contenders = calloc(TALLY_BENCH_MAX_ROWS, sizeof *contenders);
    struct echo *echo = calloc(1, sizeof *echo);
    struct tally_play *play = calloc(1, sizeof *play);
    enum tally_status status = TALLY_OK;
    size_t n = 0;
    if (contenders == NULL || echo == NULL || play == NULL) {
        status = tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a benchmark");
        goto out;
    }
    for (size_t i = 0; i < bench->n_stores; i++) {
        contenders[n++].store = bench->stores[i];
        if (bench->idle > 0) {
            contenders[n].n_idle = bench->idle;
            contenders[n++].store = bench->stores[i];
        }
    }
    raise_descriptors();
    status = start_all(bench, contenders, n, echo, play, err);
    if (status == TALLY_OK) {
        status = run_all(bench, contenders, n, echo, play, err);
    }
    for (size_t i = 0; status == TALLY_OK && i < n; i++) {
        make_row(&contenders[i], echo, bench, &ret_rows[i]);
    }
    *ret_n_rows = n;
    stop_echo(echo);
    for (size_t i = 0; i < n; i++) {
        stop(&contenders[i]);
    }
out:
    free(contenders);
    free(echo);
    free(play);
    return status;
}
