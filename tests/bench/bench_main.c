/* bench_main: the benchmarks of the codec and of the coordinator. Each also measures reference
 * programs or loops in the same run, so that the ratios are valid even on a busy machine. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/base/options.h"
#include "services/base/signals.h"
#include "tests/bench/codec_bench.h"
#include "tests/bench/coordinator_bench_report.h"

/* Each benchmark has its own defaults of dim and seconds. */
static const struct tally_option OPTIONS[] = {
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

static const struct tally_options_spec SPEC = {
    .program = "tally-bench",
    .synopsis = "codec|coordinator [OPTION]...",
    .description =
        "codec: measures how fast the codec quantizes and encodes, and decodes and accumulates, "
        "with "
        "every instruction set of this machine, and how many bits it needs. The same run measures "
        "memcpy, a plain loop and zstd. Uses one core and at least 25 bytes of memory per "
        "coordinate.\n\n"
        "coordinator: starts a coordinator for each kind of store, with an empty database below "
        "TMPDIR, and runs whole jobs on it over loopback, with one connection and one session per "
        "client. Between the runs, the same updates go to libmicrohttpd alone. With two "
        "processors, "
        "one runs the servers and the other the clients.",
    .tables = {OPTIONS},
    .min_positionals = 1,
    .max_positionals = 1,
};

enum { MIN_DIM = 64, MAX_DIM = 1 << 28, DEFAULT_DIM = 10000000 };
static const double DEFAULT_SECONDS = 5;

/* Prints the result of a benchmark, or its error. Returns the exit code. */
static int print(enum tally_status status, struct tally_buffer *text, const struct tally_error *err)
{
    int exit_code = EXIT_SUCCESS;
    const int stop = *tally_signals_stop();
    if (stop != 0) {
        exit_code = 128 + stop;
    } else if (status != TALLY_OK) {
        fprintf(stderr, "%s: %s\n", SPEC.program, err->message);
        exit_code = EXIT_FAILURE;
    } else if (fwrite(text->data, 1, text->size, stdout) < text->size || fflush(stdout) != 0) {
        perror(SPEC.program);
        exit_code = EXIT_FAILURE;
    }
    tally_buffer_fini(text);
    return exit_code;
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
        return tally_options_usage_error(&SPEC, &err);
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
        return tally_options_usage_error(&SPEC, &err);
    }
    struct tally_buffer text = {0};
    enum tally_status status =
        tally_coordinator_sweep_run(&sweep, tally_options_bool(options, "json"), &text, &err);
    return print(status, &text, &err);
}

int main(int argc, char **argv)
{
    struct tally_options *options;
    int exit_code;
    if (!tally_options_start(&SPEC, argc, argv, &options, &exit_code)) {
        return exit_code;
    }
    struct tally_error err = TALLY_ERROR_INIT;
    if (tally_signals_install(&err) != TALLY_OK) {
        fprintf(stderr, "%s: %s\n", SPEC.program, err.message);
        tally_options_free(options);
        return EXIT_FAILURE;
    }
    const char *subject = tally_options_positional(options, 0);
    if (strcmp(subject, "codec") == 0) {
        exit_code = bench_codec(options);
    } else if (strcmp(subject, "coordinator") == 0) {
        exit_code = bench_coordinator(options);
    } else {
        tally_fail(&err, TALLY_INVALID_ARGUMENT, NULL,
                   "unknown benchmark \"%.60s\"; choose codec or coordinator", subject);
        exit_code = tally_options_usage_error(&SPEC, &err);
    }
    tally_options_free(options);
    return exit_code;
}
