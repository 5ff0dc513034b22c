#include "services/bench/coordinator_bench_report.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/encoding.h"
#include "services/base/time.h"
#include "services/bench/bench_server.h"
#include "services/bench/coordinator_bench.h"
#include "services/cli/cli.h"
#include "services/cli/view/text_table.h"
#include "services/objectives/objective.h"
#include "services/progress/progress_bar.h"

/* A point is a number of clients and a dimension. */
enum {
    MAX_LIST = 16,
    MAX_CLIENTS = 20000, /* connections of one process, on both sides */
    MAX_IDLE = 50000,
};

static const char DEFAULT_DIMS[] = "30,7840";
static const double DEFAULT_SECONDS = 2;

static const char *const STORES[] = {"sqlite", "memory", NULL};

struct plan {
    struct tally_coordinator_bench bench; /* of the point at hand */
    int64_t clients[MAX_LIST], dims[MAX_LIST];
    size_t n_clients, n_dims;
    /* progress */
    size_t n_points, point;
    int64_t begin_ms;
    struct tally_progress_painter painter;
};

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

/* The next word of a list, and what comes after it; NULL at the end. */
static const char *next_word(const char *list, char *ret_word, size_t capacity)
{
    const size_t n = strcspn(list, ",");
    snprintf(ret_word, capacity, "%.*s", (int)n, list);
    return list[n] == ',' ? list + n + 1 : NULL;
}

static enum tally_status read_numbers(const struct tally_options *options, const char *name,
                                      const char *list, int64_t min, int64_t max,
                                      int64_t ret_values[MAX_LIST], size_t *ret_n,
                                      struct tally_error *err)
{
    *ret_n = 0;
    while (list != NULL) {
        char word[32], *end;
        list = next_word(list, word, sizeof word);
        const long long value = strtoll(word, &end, 10);
        if (end == word || *end != '\0') {
            return tally_options_refuse(options, name, err, "\"%s\" is no number", word);
        }
        if (value < min || value > max) {
            return tally_options_refuse(options, name, err, "%lld outside [%lld, %lld]", value,
                                        (long long)min, (long long)max);
        }
        if (*ret_n == MAX_LIST) {
            return tally_options_refuse(options, name, err, "more than %d numbers", MAX_LIST);
        }
        ret_values[(*ret_n)++] = value;
    }
    return TALLY_OK;
}

/* A URI counts as its kind: the benchmark has a database of its own, wherever TALLY_STORE points.
 */
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
                                        "\"%.40s\" is none of sqlite, memory", word);
        }
        if (bench->n_stores == TALLY_BENCH_MAX_STORES) {
            return tally_options_refuse(options, "store", err, "more than %d stores",
                                        TALLY_BENCH_MAX_STORES);
        }
        bench->stores[bench->n_stores++] = STORES[i];
    }
    return TALLY_OK;
}

static enum tally_status read_plan(const struct tally_options *options, struct plan *plan,
                                   struct tally_error *err)
{
    int64_t runs = 0, rounds = 0, idle = 0;
    int encoding = 0;
    const char *dims =
        tally_options_has(options, "dim") ? tally_options_text(options, "dim") : DEFAULT_DIMS;
    enum tally_status status =
        read_numbers(options, "clients", tally_options_text(options, "clients"), 1, MAX_CLIENTS,
                     plan->clients, &plan->n_clients, err);
    if (status == TALLY_OK) {
        status = read_numbers(options, "dim", dims, TALLY_BENCH_MIN_DIM, TALLY_MAX_DIM, plan->dims,
                              &plan->n_dims, err);
    }
    if (status == TALLY_OK) {
        status = read_stores(options, &plan->bench, err);
    }
    if (status == TALLY_OK) {
        status = tally_options_integer(options, "runs", 1, TALLY_BENCH_MAX_RUNS, &runs, err);
    }
    if (status == TALLY_OK) {
        status = tally_options_integer(options, "rounds", 0, 100000000, &rounds, err);
    }
    if (status == TALLY_OK) {
        status = tally_options_integer(options, "idle", 0, MAX_IDLE, &idle, err);
    }
    if (status == TALLY_OK) {
        status = tally_options_choice(options, "encoding", TALLY_ENCODING_NAMES, &encoding, err);
    }
    plan->bench.encoding = TALLY_ENCODING_NAMES[encoding];
    plan->bench.seconds = DEFAULT_SECONDS;
    if (status == TALLY_OK && tally_options_has(options, "seconds")) {
        status = tally_options_real(options, "seconds", 0.01, 3600, &plan->bench.seconds, err);
    }
    plan->bench.n_runs = (int)runs;
    plan->bench.rounds = (uint32_t)rounds;
    plan->bench.idle = (uint32_t)idle;
    plan->n_points = plan->n_clients * plan->n_dims;
    return status;
}

/* ---- Measuring ---- */

static void on_run(void *context, const struct tally_coordinator_bench *bench, int run)
{
    struct plan *plan = context;
    char text[96];
    snprintf(text, sizeof text, "%u clients, dim %zu: run %d of %d", bench->clients, bench->dim,
             run < bench->n_runs ? run + 1 : run, bench->n_runs);
    const int64_t now_ms = tally_monotonic_ms();
    const struct tally_progress_bar bar = {
        .fraction =
            ((double)plan->point + (double)run / (double)bench->n_runs) / (double)plan->n_points,
        .elapsed_ms = now_ms - plan->begin_ms,
        .text = text};
    tally_progress_paint(&plan->painter, &bar, now_ms);
}

static enum tally_status measure_point(struct plan *plan, struct results *results,
                                       struct tally_error *err)
{
    struct tally_bench_row rows[TALLY_BENCH_MAX_ROWS];
    size_t n = 0;
    enum tally_status status = tally_coordinator_bench_run(&plan->bench, rows, &n, err);
    for (size_t i = 0; status == TALLY_OK && i < n; i++) {
        results->list[results->n++] = (struct result){.clients = plan->bench.clients,
                                                      .dim = plan->bench.dim,
                                                      .encoding = plan->bench.encoding,
                                                      .row = rows[i]};
    }
    return status;
}

static enum tally_status measure(struct plan *plan, struct results *results,
                                 struct tally_error *err)
{
    assert(plan->n_points > 0);
    results->list = calloc(plan->n_points * TALLY_BENCH_MAX_ROWS, sizeof *results->list);
    if (results->list == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for results");
    }
    plan->begin_ms = tally_monotonic_ms();
    plan->bench.on_run = on_run;
    plan->bench.context = plan;
    tally_progress_painter_init(&plan->painter, STDERR_FILENO);
    enum tally_status status = tally_bench_pin(err);
    for (size_t c = 0; c < plan->n_clients; c++) {
        for (size_t d = 0; status == TALLY_OK && d < plan->n_dims; d++) {
            plan->bench.clients = (uint32_t)plan->clients[c];
            plan->bench.dim = (size_t)plan->dims[d];
            status = measure_point(plan, results, err);
            plan->point++;
        }
    }
    tally_progress_clear(&plan->painter);
    return status;
}

/* ---- JSON ---- */

static bool set_spread(struct tally_json *object, const char *key,
                       const struct tally_bench_spread *spread)
{
    struct tally_json *array = tally_json_array();
    bool ok = array != NULL && tally_json_append_real(array, spread->least) &&
              tally_json_append_real(array, spread->most);
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
    bool ok = object != NULL && tally_json_set_unsigned(object, "clients", result->clients) &&
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
    if (!ok) {
        tally_json_free(object);
        return NULL;
    }
    return object;
}

static int print_json(const struct results *results)
{
    struct tally_json *array = tally_json_array();
    bool ok = array != NULL;
    for (size_t i = 0; ok && i < results->n; i++) {
        ok = tally_json_append(array, object_of(&results->list[i]));
    }
    struct tally_error err = TALLY_ERROR_INIT;
    if (!ok) {
        tally_fail(&err, TALLY_NO_MEMORY, NULL, "out of memory");
    }
    const int exit_code = ok ? tally_cli_print_json(array, 2) : tally_cli_report(&err);
    tally_json_free(array);
    return exit_code;
}

/* ---- Tables ---- */

static void add_number(struct tally_text_table *table, double value, int digits)
{
    char text[48];
    snprintf(text, sizeof text, "%.*f", digits, value);
    tally_text_table_add(table, text);
}

static void add_point(struct tally_text_table *table, const struct result *result)
{
    char store[48];
    snprintf(store, sizeof store, result->row.idle > 0 ? "%s, %u idle" : "%s", result->row.store,
             result->row.idle);
    add_number(table, result->clients, 0);
    add_number(table, (double)result->dim, 0);
    tally_text_table_add(table, store);
}

static void add_speed(struct tally_text_table *table, const struct result *result)
{
    const struct tally_bench_row *row = &result->row;
    char ratio[64];
    snprintf(ratio, sizeof ratio, "%.3f (%.3f-%.3f)", row->over_echo.median, row->over_echo.least,
             row->over_echo.most);
    add_point(table, result);
    add_number(table, row->updates_per_s.median, 0);
    add_number(table, row->echo_requests_per_s.median, 0);
    tally_text_table_add(table, ratio);
    add_number(table, row->rounds_per_s, 1);
    add_number(table, row->round_ms_p50, 3);
    add_number(table, row->round_ms_p99, 3);
    add_number(table, row->commit_ms, 3);
}

static void add_costs(struct tally_text_table *table, const struct result *result)
{
    const struct tally_bench_row *row = &result->row;
    add_point(table, result);
    add_number(table, row->cpu_us_per_update, 1);
    add_number(table, row->echo_cpu_us, 1);
    add_number(table, row->accumulate_us, 1);
    add_number(table, 1e-6 * (double)row->rss_bytes, 1);
    add_number(table, row->wire_bytes, 0);
    add_number(table, row->payload_bytes, 0);
    add_number(table, row->protobuf_bytes, 0);
    add_number(table, row->http_bytes, 0);
    if (row->idle > 0) {
        add_number(table, row->idle_bytes, 0);
    }
    tally_text_table_end_row(table);
}

static enum tally_status render(const struct results *results, const char *alignment,
                                const char *const *heads,
                                void (*add)(struct tally_text_table *, const struct result *),
                                struct tally_buffer *text)
{
    struct tally_text_table table;
    tally_text_table_init(&table, alignment);
    for (size_t i = 0; heads[i] != NULL; i++) {
        tally_text_table_add(&table, heads[i]);
    }
    for (size_t i = 0; i < results->n; i++) {
        add(&table, &results->list[i]);
    }
    enum tally_status status = tally_text_table_render(&table, text);
    tally_text_table_fini(&table);
    return status;
}

static int print_text(const struct plan *plan, const struct results *results)
{
    static const char *const SPEED[] = {"CLIENTS", "DIM",       "STORE",    "UPDATES/S",
                                        "ECHO/S",  "RATIO",     "ROUNDS/S", "P50 MS",
                                        "P99 MS",  "COMMIT MS", NULL};
    static const char *const COSTS[] = {"CLIENTS",  "DIM",    "STORE",  "CPU US",  "ECHO US",
                                        "CODEC US", "RSS MB", "WIRE B", "PAYLOAD", "PROTOBUF",
                                        "HTTP",     "IDLE B", NULL};
    struct tally_buffer text = {0};
    enum tally_status status = tally_buffer_printf(
        &text,
        "Whole jobs, messages encoded as %s, %d runs of each; medians, and the range of the ratio. "
        "ECHO is libmicrohttpd "
        "alone,\nposted the same updates over as many connections, between the runs. Milliseconds "
        "are of rounds\nand commits.\n\n",
        plan->bench.encoding, plan->bench.n_runs);
    status = status == TALLY_OK ? render(results, "rrlrrlrrrr", SPEED, add_speed, &text) : status;
    status = status == TALLY_OK
                 ? tally_buffer_append_text(
                       &text, "\nPer update: processor time of the coordinator, of the echo server "
                              "and of the\ncodec alone, and bytes both ways.\n\n")
                 : status;
    status = status == TALLY_OK ? render(results, "rrlrrrrrrrrr", COSTS, add_costs, &text) : status;
    const int exit_code = tally_cli_print(status, &text);
    tally_buffer_fini(&text);
    return exit_code;
}

int tally_coordinator_bench_report(const struct tally_options *options)
{
    struct plan plan = {.n_points = 0};
    struct results results = {0};
    struct tally_error err = TALLY_ERROR_INIT;
    if (read_plan(options, &plan, &err) != TALLY_OK) {
        return tally_cli_report_usage(&err);
    }
    int exit_code;
    if (measure(&plan, &results, &err) != TALLY_OK) {
        exit_code = tally_cli_report(&err);
    } else {
        exit_code = tally_options_bool(options, "json") ? print_json(&results)
                                                        : print_text(&plan, &results);
    }
    free(results.list);
    return exit_code;
}
