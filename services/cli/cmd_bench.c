/* tally bench codec|coordinator: measures one of the two; services/bench does the work. */
#include <string.h>

#include "services/bench/codec/codec_bench.h"
#include "services/bench/coordinator/coordinator_bench_report.h"
#include "services/cli/commands.h"

/* Each benchmark has its own defaults of dim and seconds. */
const struct tally_option TALLY_CLI_BENCH_OPTIONS[] = {
    {"dim", "N", NULL,
     "codec: coordinates of the vector whose speed is measured (default 10000000); coordinator: "
     "dimensions, a list N,N (default 30,7840)",
     NULL},
    {"seconds", "S", NULL,
     "codec: how long to measure, in seconds of CPU time (default 5); coordinator: how long each "
     "run is (default 2)",
     NULL},
    {"json", NULL, NULL, "print what was measured as JSON", NULL},
    {"clients", "LIST", "64", "numbers of clients, N,N", "Of coordinator"},
    {"clients-per-worker", "N", "1",
     "clients per worker; their updates come in one request, but the echo server gets one request "
     "per client",
     "Of coordinator"},
    {"store", "LIST", NULL, "sqlite, memory or both (default sqlite,memory)", "Of coordinator"},
    {"encoding", "NAME", "unary", "of the messages: unary or entropy", "Of coordinator"},
    {"runs", "R", "5", "repetitions, echo server and coordinators in turn", "Of coordinator"},
    {"rounds", "N", "0", "rounds of a run's job; 0 = as many as take --seconds", "Of coordinator"},
    {"idle", "N", "0", "measure also with N more workers that poll and get no task",
     "Of coordinator"},
    {0},
};

enum { MIN_DIM = 64, MAX_DIM = 1 << 28, DEFAULT_DIM = 10000000 };
static const double DEFAULT_SECONDS = 5;

/* Prints the result of a benchmark, or its error. */
static int print(enum tally_status status, struct tally_buffer *text, const struct tally_error *err)
{
    if (status == TALLY_OK) {
        return tally_cli_print(TALLY_OK, text);
    }
    tally_buffer_fini(text);
    return tally_cli_report(err);
}

static int bench_codec(const struct tally_options *options)
{
    struct tally_error err = TALLY_ERROR_INIT;
    int64_t dim = DEFAULT_DIM;
    double seconds = DEFAULT_SECONDS;
    if (tally_options_has(options, "dim")) {
        tally_options_integer(options, "dim", MIN_DIM, MAX_DIM, &dim, &err);
    }
    if (tally_options_has(options, "seconds")) {
        tally_options_real(options, "seconds", 0, 3600, &seconds, &err);
    }
    if (err.status != TALLY_OK) {
        return tally_cli_report_usage(&err);
    }
    struct tally_buffer text = {0};
    enum tally_status status = tally_codec_bench_report(
        (size_t)dim, seconds, tally_options_bool(options, "json"), &text, &err);
    return print(status, &text, &err);
}

static int bench_coordinator(const struct tally_options *options)
{
    struct tally_error err = TALLY_ERROR_INIT;
    struct tally_coordinator_sweep sweep = {.n_points = 0};
    if (tally_coordinator_sweep_read(options, &sweep, &err) != TALLY_OK) {
        return tally_cli_report_usage(&err);
    }
    struct tally_buffer text = {0};
    enum tally_status status =
        tally_coordinator_sweep_run(&sweep, tally_options_bool(options, "json"), &text, &err);
    return print(status, &text, &err);
}

int tally_cli_bench(struct tally_cli *cli)
{
    const char *subject = tally_options_positional(cli->options, 0);
    if (strcmp(subject, "codec") == 0) {
        return bench_codec(cli->options);
    }
    if (strcmp(subject, "coordinator") == 0) {
        return bench_coordinator(cli->options);
    }
    struct tally_error err = TALLY_ERROR_INIT;
    tally_fail(&err, TALLY_INVALID_ARGUMENT, NULL,
               "unknown benchmark \"%.60s\"; choose codec or coordinator", subject);
    return tally_cli_report_usage(&err);
}
