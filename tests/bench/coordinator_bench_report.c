#include "tests/bench/coordinator_bench_report.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/json/json.h"
#include "api/worker/worker_messages.h"
#include "codec/encoding.h"
#include "services/base/progress_bar.h"
#include "services/base/text_table.h"
#include "services/base/time.h"
#include "services/objectives/objective.h"
#include "tests/bench/bench_server.h"
#include "tests/bench/coordinator_bench.h"

enum {
    MAX_CLIENTS = 20000, /* connections of one process, at both ends */
    MAX_IDLE = 50000,
};

static const char DEFAULT_DIMS[] = "30,7840";
static const double DEFAULT_SECONDS = 2;

static const char *const STORES[] = {"sqlite", "memory", NULL};

struct results {
    struct result {
        uint32_t clients;
        size_t dim;
        const char *encoding;
        struct tally_bench_row row;
    } * list; /* heap */
    size_t n;
};

/* ---- Options ---- */

/* Copies the first word of a list and returns the rest of the list, or NULL at the end. */
static const char *next_word(const char *list, char *ret_word, size_t capacity)
{
    const size_t n = strcspn(list, ",");
    snprintf(ret_word, capacity, "%.*s", (int)n, list);
    return list[n] == ',' ? list + n + 1 : NULL;
}

static enum tally_status read_numbers(const struct tally_options *options, const char *name,
                                      const char *list, int64_t min, int64_t max,
                                      int64_t ret_values[TALLY_SWEEP_MAX_LIST], size_t *ret_n,
                                      struct tally_error *err)
{
    *ret_n = 0;
    while (list != NULL) {
        char word[32], *end;
        list = next_word(list, word, sizeof word);
        const long long value = strtoll(word, &end, 10);
        if (end == word || *end != '\0') {
            return tally_options_refuse(options, name, err, "\"%s\" is not a number", word);
        }
        if (value < min || value > max) {
            return tally_options_refuse(options, name, err, "%lld outside [%lld, %lld]", value,
                                        (long long)min, (long long)max);
        }
        if (*ret_n == TALLY_SWEEP_MAX_LIST) {
            return tally_options_refuse(options, name, err, "more than %d numbers",
                                        TALLY_SWEEP_MAX_LIST);
        }
        ret_values[(*ret_n)++] = value;
    }
    return TALLY_OK;
}

/* Only the scheme of a URI is used: the benchmark has its own database, whatever TALLY_STORE is. */
static enum tally_status read_stores(const struct tally_options *options,
                                     struct tally_coordinator_bench *bench, struct tally_error *err)
{
    const char *list = tally_options_has(options, "store") ? tally_options_text(options, "store")
                                                           : "sqlite,memory";
    while (list != NULL) {
        char word[256];
        list = next_word(list, word, sizeof word);
        word[strcspn(word, ":")] = '\0';
        size_t i = 0;
        while (STORES[i] != NULL && strcmp(STORES[i], word) != 0) {
            i++;
        }
        if (STORES[i] == NULL) {
            return tally_options_refuse(options, "store", err,
                                        "\"%.40s\" is not one of sqlite, memory", word);
        }
        if (bench->n_stores == TALLY_BENCH_MAX_STORES) {
            return tally_options_refuse(options, "store", err, "more than %d stores",
                                        TALLY_BENCH_MAX_STORES);
        }
        bench->stores[bench->n_stores++] = STORES[i];
    }
    return TALLY_OK;
}

static void check_divisor(const struct tally_options *options,
                          const struct tally_coordinator_sweep *sweep, int64_t per_worker,
                          struct tally_error *err)
{
    for (size_t c = 0; c < sweep->n_clients; c++) {
        if (sweep->clients[c] % per_worker != 0) {
            tally_options_refuse(options, "clients-per-worker", err,
                                 "%lld clients cannot be shared among workers with %lld each",
                                 (long long)sweep->clients[c], (long long)per_worker);
        }
    }
}

enum tally_status tally_coordinator_sweep_read(const struct tally_options *options,
                                               struct tally_coordinator_sweep *sweep,
                                               struct tally_error *err)
{
    int64_t runs = 0, rounds = 0, idle = 0, per_worker = 1;
    int encoding = 0;
    const char *dims =
        tally_options_has(options, "dim") ? tally_options_text(options, "dim") : DEFAULT_DIMS;
    read_numbers(options, "clients", tally_options_text(options, "clients"), 1, MAX_CLIENTS,
                 sweep->clients, &sweep->n_clients, err);
    read_numbers(options, "dim", dims, TALLY_BENCH_MIN_DIM, TALLY_MAX_DIM, sweep->dims,
                 &sweep->n_dims, err);
    read_stores(options, &sweep->bench, err);
    tally_options_integer(options, "runs", 1, TALLY_BENCH_MAX_RUNS, &runs, err);
    tally_options_integer(options, "rounds", 0, 100000000, &rounds, err);
    tally_options_integer(options, "idle", 0, MAX_IDLE, &idle, err);
    tally_options_integer(options, "clients-per-worker", 1, TALLY_MAX_SLOTS, &per_worker, err);
    check_divisor(options, sweep, per_worker, err);
    tally_options_choice(options, "encoding", TALLY_ENCODING_NAMES, &encoding, err);
    sweep->bench.seconds = DEFAULT_SECONDS;
    if (tally_options_has(options, "seconds")) {
        tally_options_real(options, "seconds", 0.01, 3600, &sweep->bench.seconds, err);
    }
    sweep->bench.encoding = TALLY_ENCODING_NAMES[encoding];
    sweep->bench.n_runs = (int)runs;
    sweep->bench.rounds = (uint32_t)rounds;
    sweep->bench.idle = (uint32_t)idle;
    sweep->bench.clients_per_worker = (uint32_t)per_worker;
    sweep->n_points = sweep->n_clients * sweep->n_dims;
    return err->status;
}

/* ---- Measuring ---- */

static void on_run(void *context, const struct tally_coordinator_bench *bench, int run)
{
    struct tally_coordinator_sweep *sweep = context;
    char text[96];
    snprintf(text, sizeof text, "%u clients, dim %zu: run %d of %d", bench->clients, bench->dim,
             run < bench->n_runs ? run + 1 : run, bench->n_runs);
    const double done = (double)sweep->point + (double)run / (double)bench->n_runs;
    tally_progress_show(&sweep->painter, sweep->begin_ms, done / (double)sweep->n_points, text);
}

static enum tally_status measure_point(struct tally_coordinator_sweep *sweep,
                                       struct results *results, struct tally_error *err)
{
    struct tally_bench_row rows[TALLY_BENCH_MAX_ROWS];
    size_t n = 0;
    enum tally_status status = tally_coordinator_bench_run(&sweep->bench, rows, &n, err);
    for (size_t i = 0; status == TALLY_OK && i < n; i++) {
        results->list[results->n++] = (struct result){.clients = sweep->bench.clients,
                                                      .dim = sweep->bench.dim,
                                                      .encoding = sweep->bench.encoding,
                                                      .row = rows[i]};
    }
    return status;
}

static enum tally_status measure(struct tally_coordinator_sweep *sweep, struct results *results,
                                 struct tally_error *err)
{
    assert(sweep->n_points > 0);
    results->list = calloc(sweep->n_points * TALLY_BENCH_MAX_ROWS, sizeof *results->list);
    if (results->list == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for results");
    }
    sweep->begin_ms = tally_monotonic_ms();
    sweep->bench.on_run = on_run;
    sweep->bench.context = sweep;
    tally_progress_painter_init(&sweep->painter, STDERR_FILENO);
    enum tally_status status = tally_bench_pin(err);
    for (size_t c = 0; c < sweep->n_clients; c++) {
        for (size_t d = 0; status == TALLY_OK && d < sweep->n_dims; d++) {
            sweep->bench.clients = (uint32_t)sweep->clients[c];
            sweep->bench.dim = (size_t)sweep->dims[d];
            status = measure_point(sweep, results, err);
            sweep->point++;
        }
    }
    tally_progress_clear(&sweep->painter);
    return status;
}

/* ---- JSON ---- */

static bool set_spread(struct tally_json *object, const char *key,
                       const struct tally_bench_spread *spread)
{
    struct tally_json *array = tally_json_array();
    bool ok =
        tally_json_append_real(array, spread->least) && tally_json_append_real(array, spread->most);
    return tally_json_set(object, key, array) && ok;
}

static bool set_idle(struct tally_json *object, const struct tally_bench_row *row)
{
    return tally_json_set_unsigned(object, "idle", row->idle) &&
           (row->idle > 0 ? tally_json_set_real(object, "idle_bytes_each", row->idle_bytes)
                          : tally_json_set_null(object, "idle_bytes_each"));
}

static struct tally_json *object_of(const struct result *result)
{
    const struct tally_bench_row *row = &result->row;
    struct tally_json *object = tally_json_object();
    const struct {
        const char *key;
        double value;
    } reals[] = {
        {"updates_per_s", row->updates_per_s.median},
        {"echo_requests_per_s", row->echo_requests_per_s.median},
        {"updates_over_echo", row->over_echo.median},
        {"round_ms_p50", row->round_ms_p50},
        {"round_ms_p99", row->round_ms_p99},
        {"rss_mb", 1e-6 * (double)row->rss_bytes},
        {"wire_bytes_per_update", row->wire_bytes},
        {"payload_bytes_per_update", row->payload_bytes},
        {"protobuf_bytes_per_update", row->protobuf_bytes},
        {"http_bytes_per_update", row->http_bytes},
        {"rounds_per_s", row->rounds_per_s},
        {"post_ms_p99", row->post_ms_p99},
        {"echo_ms_p50", row->echo_ms_p50},
        {"commit_ms", row->commit_ms},
        {"cpu_us_per_update", row->cpu_us_per_update},
        {"echo_cpu_us_per_request", row->echo_cpu_us},
        {"accumulate_us_per_update", row->accumulate_us},
    };
    bool ok = tally_json_set_unsigned(object, "clients", result->clients) &&
              tally_json_set_unsigned(object, "clients_per_worker", row->clients_per_worker) &&
              tally_json_set_unsigned(object, "dim", result->dim) &&
              tally_json_set_text(object, "store", row->store);
    for (size_t i = 0; ok && i < sizeof reals / sizeof reals[0]; i++) {
        ok = tally_json_set_real(object, reals[i].key, reals[i].value);
    }
    ok = ok && tally_json_set_text(object, "encoding", result->encoding) &&
         tally_json_set_unsigned(object, "updates", row->updates) &&
         tally_json_set_unsigned(object, "messages", row->messages) && set_idle(object, row) &&
         set_spread(object, "updates_per_s_range", &row->updates_per_s) &&
         set_spread(object, "echo_requests_per_s_range", &row->echo_requests_per_s) &&
         set_spread(object, "updates_over_echo_range", &row->over_echo);
    return tally_json_if_complete(object, ok);
}

static enum tally_status render_json(const struct results *results, struct tally_buffer *out)
{
    struct tally_json *array = tally_json_array();
    bool ok = true;
    for (size_t i = 0; ok && i < results->n; i++) {
        ok = tally_json_append(array, object_of(&results->list[i]));
    }
    enum tally_status status = ok ? tally_json_dump(array, 2, out) : TALLY_NO_MEMORY;
    tally_json_free(array);
    return status == TALLY_OK ? tally_buffer_append_text(out, "\n") : status;
}

/* ---- Tables ---- */

static void add_point(struct tally_text_table *table, const struct result *result)
{
    const struct tally_bench_row *row = &result->row;
    tally_text_table_printf(table, row->idle > 0 ? "%u\t%zu\t%s, %u idle" : "%u\t%zu\t%s",
                            result->clients, result->dim, row->store, row->idle);
}

static void add_speed(struct tally_text_table *table, const struct result *result)
{
    const struct tally_bench_row *row = &result->row;
    const struct tally_bench_spread *ratio = &row->over_echo;
    add_point(table, result);
    tally_text_table_printf(table, "%.0f\t%.0f\t%.3f (%.3f-%.3f)\t%.1f\t%.3f\t%.3f\t%.3f",
                            row->updates_per_s.median, row->echo_requests_per_s.median,
                            ratio->median, ratio->least, ratio->most, row->rounds_per_s,
                            row->round_ms_p50, row->round_ms_p99, row->commit_ms);
}

static void add_costs(struct tally_text_table *table, const struct result *result)
{
    const struct tally_bench_row *row = &result->row;
    add_point(table, result);
    tally_text_table_printf(table, "%.1f\t%.1f\t%.1f\t%.1f\t%.0f\t%.0f\t%.0f\t%.0f",
                            row->cpu_us_per_update, row->echo_cpu_us, row->accumulate_us,
                            1e-6 * (double)row->rss_bytes, row->wire_bytes, row->payload_bytes,
                            row->protobuf_bytes, row->http_bytes);
    if (row->idle > 0) {
        tally_text_table_printf(table, "%.0f", row->idle_bytes);
    }
    tally_text_table_end_row(table);
}

static enum tally_status render_table(const struct results *results, const char *alignment,
                                      const char *heads,
                                      void (*add)(struct tally_text_table *, const struct result *),
                                      struct tally_buffer *out)
{
    struct tally_text_table table;
    tally_text_table_init(&table, alignment, heads);
    for (size_t i = 0; i < results->n; i++) {
        add(&table, &results->list[i]);
    }
    return tally_text_table_end(&table, out);
}

static enum tally_status render_text(const struct tally_coordinator_sweep *sweep,
                                     const struct results *results, struct tally_buffer *out)
{
    enum tally_status status = tally_buffer_printf(
        out,
        "Whole jobs, messages encoded as %s, %d runs of each; medians, and the range of the ratio. "
        "ECHO is libmicrohttpd\nalone, posted the same updates over as many connections, between "
        "the runs. Milliseconds are of rounds\nand commits.\n\n",
        sweep->bench.encoding, sweep->bench.n_runs);
    if (status == TALLY_OK) {
        status = render_table(results, "rrlrrlrrrr",
                              "CLIENTS,DIM,STORE,UPDATES/S,ECHO/S,RATIO,ROUNDS/S,P50 MS,P99 MS,"
                              "COMMIT MS",
                              add_speed, out);
    }
    if (status == TALLY_OK) {
        status = tally_buffer_append_text(
            out, "\nPer update: processor time of the coordinator, of the echo server and of the\n"
                 "codec alone, and bytes both ways.\n\n");
    }
    return status != TALLY_OK ? status
                              : render_table(results, "rrlrrrrrrrrr",
                                             "CLIENTS,DIM,STORE,CPU US,ECHO US,CODEC US,RSS MB,"
                                             "WIRE B,PAYLOAD,PROTOBUF,HTTP,IDLE B",
                                             add_costs, out);
}

enum tally_status tally_coordinator_sweep_run(struct tally_coordinator_sweep *sweep, bool as_json,
                                              struct tally_buffer *out, struct tally_error *err)
{
    struct results results = {0};
    enum tally_status status = measure(sweep, &results, err);
    if (status == TALLY_OK) {
        status = as_json ? render_json(&results, out) : render_text(sweep, &results, out);
        if (status != TALLY_OK) {
            tally_fail(err, status, NULL, "no memory for the result");
        }
    }
    free(results.list);
    return status;
}
