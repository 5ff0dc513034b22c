/* coordinator_bench: measures a coordinator's speed, next to bare libmicrohttpd in the same run.
 *
 * One point is a number of clients and a dimension. A coordinator is started for each kind of store
 * (bench_server.h), players (players.h) run whole `ceal` jobs on it, and between these runs an echo
 * server gets the same updates over as many connections and responds with as many bytes as the
 * coordinator. Other load slows both, so the ratios are valid on a busy machine too. */
#ifndef TALLY_TESTS_BENCH_COORDINATOR_BENCH_H
#define TALLY_TESTS_BENCH_COORDINATOR_BENCH_H

#include <stddef.h>
#include <stdint.h>

#include "codec/error.h"

enum {
    TALLY_BENCH_MAX_RUNS = 100,
    TALLY_BENCH_MAX_STORES = 4,
    /* The mean of the messages must pass the norm test in every round, so that all rounds are in
     * one stage. With fewer coordinates it could fail by chance. */
    TALLY_BENCH_MIN_DIM = 10,
};

struct tally_coordinator_bench {
    uint32_t clients;
    uint32_t clients_per_worker; /* a divisor of `clients`; the echo server has `clients`
                                  * connections in any case */
    size_t dim;
    const char *stores[TALLY_BENCH_MAX_STORES]; /* "sqlite", "memory"; measured in this order */
    size_t n_stores;
    const char *encoding; /* of the messages */
    uint32_t idle;        /* extra workers that poll but get no task; if > 0, each store is also
                           * measured with them */
    uint32_t rounds;      /* per job; 0 = as many as take `seconds` */
    double seconds;
    int n_runs; /* 1 .. TALLY_BENCH_MAX_RUNS */
    /* Called before each run with its number, from 0, and at the end with n_runs. */
    void (*on_run)(void *context, const struct tally_coordinator_bench *bench, int run);
    void *context;
};

struct tally_bench_spread {
    double least, median, most; /* over the runs */
};

/* The results for one store. Bytes are means over all exchanges of the clients, both ways: wire =
 * payload + protobuf + HTTP. */
struct tally_bench_row {
    const char *store;
    uint32_t idle, clients_per_worker;
    struct tally_bench_spread updates_per_s, echo_requests_per_s, over_echo;
    double rounds_per_s;                            /* median */
    double round_ms_p50, round_ms_p99, post_ms_p99; /* of all runs */
    double echo_cpu_us;                             /* of the echo server, per request */
    double echo_ms_p50;                             /* with as many connections */
    double commit_ms;                               /* mean */
    double cpu_us_per_update, accumulate_us;        /* of the coordinator; of the codec alone */
    uint64_t rss_bytes;                             /* peak */
    double idle_bytes;                              /* memory per idle worker, at the end */
    double wire_bytes, payload_bytes, protobuf_bytes, http_bytes; /* per update */
    uint64_t updates;                                             /* acknowledged */
    uint64_t messages; /* the same, as counted in the details of the jobs */
};

enum { TALLY_BENCH_MAX_ROWS = 2 * TALLY_BENCH_MAX_STORES };

/* Writes a row for each store and, with idle workers, a second one for each. Errors: UNAVAILABLE,
 * NO_MEMORY, CANCELLED (a signal), DEADLINE (responses stopped), DATA_LOSS (players and coordinator
 * counted different messages), and those of the coordinator's responses. */
enum tally_status tally_coordinator_bench_run(const struct tally_coordinator_bench *bench,
                                              struct tally_bench_row ret_rows[], size_t *ret_n_rows,
                                              struct tally_error *err);

#endif
