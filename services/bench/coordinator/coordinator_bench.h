/* coordinator_bench: how fast a coordinator is, next to bare libmicrohttpd in the same run.
 *
 * One point is a number of clients and a dimension. A coordinator is started for each kind of store
 * (bench_server.h), players (players.h) play whole jobs of `ceal` on it, and between their runs the
 * same connections are made to an echo server, which gets the same updates and responds with as
 * many bytes as the coordinator. So what hurts one hurts the other, and ratios hold on machines
 * that are busy. */
#ifndef TALLY_SERVICES_BENCH_COORDINATOR_COORDINATOR_BENCH_H
#define TALLY_SERVICES_BENCH_COORDINATOR_COORDINATOR_BENCH_H

#include <stddef.h>
#include <stdint.h>

#include "codec/base/error.h"

enum {
    TALLY_BENCH_MAX_RUNS = 100,
    TALLY_BENCH_MAX_STORES = 4,
    /* The mean of the messages must pass the norm test in every round, so that all rounds are of
     * one stage: with fewer coordinates it could fail by chance. */
    TALLY_BENCH_MIN_DIM = 10,
};

struct tally_coordinator_bench {
    uint32_t clients;
    uint32_t clients_per_worker; /* a divisor of `clients`; the echo server has `clients`
                                  * connections all the same */
    size_t dim;
    const char *stores[TALLY_BENCH_MAX_STORES]; /* "sqlite", "memory"; in their order */
    size_t n_stores;
    const char *encoding; /* of the messages */
    uint32_t idle;        /* extra workers that poll but get no task; if > 0, each store is also
                           * measured with them */
    uint32_t rounds;      /* of a job; 0 = as many as take `seconds` */
    double seconds;
    int n_runs; /* 1 .. TALLY_BENCH_MAX_RUNS */
    /* Told before every run, from 0; the last time with n_runs. */
    void (*on_run)(void *context, const struct tally_coordinator_bench *bench, int run);
    void *context;
};

struct tally_bench_spread {
    double least, median, most; /* over the runs */
};

/* What was measured with one store. Bytes are means over all exchanges of the clients, both ways:
 * wire = payload + protobuf + HTTP. */
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
    uint64_t rss_bytes;                             /* at most */
    double idle_bytes;                              /* of memory for each worker, at the end */
    double wire_bytes, payload_bytes, protobuf_bytes, http_bytes; /* per update */
    uint64_t updates;                                             /* acknowledged */
    uint64_t messages; /* the same, as the jobs' details count them */
};

enum { TALLY_BENCH_MAX_ROWS = 2 * TALLY_BENCH_MAX_STORES };

/* Writes a row for each store and, with idle workers, a second one for each. Errors: UNAVAILABLE,
 * NO_MEMORY, CANCELLED (a signal), DEADLINE (no more responses), DATA_LOSS (players and coordinator
 * do not agree on what was sent), and those of the coordinator's responses. */
enum tally_status tally_coordinator_bench_run(const struct tally_coordinator_bench *bench,
                                              struct tally_bench_row ret_rows[], size_t *ret_n_rows,
                                              struct tally_error *err);

#endif
