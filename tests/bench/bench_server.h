/* bench_server: a server that `tests/bench/run coordinator` measures, as a child process: the
 * coordinator that is installed beside this program, or the echo server. It has a processor of its
 * own, if there are two, and is killed when this process ends in any way. */
#ifndef TALLY_TESTS_BENCH_BENCH_SERVER_H
#define TALLY_TESTS_BENCH_BENCH_SERVER_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "codec/error.h"

/* Pins this process to one processor and the servers started later to another. Does nothing if
 * there is only one. Errors: UNAVAILABLE. */
enum tally_status tally_bench_pin(struct tally_error *err);

struct tally_bench_server {
    pid_t pid; /* 0 = none */
    uint16_t port;
    char folder[PATH_MAX]; /* the server's own folder, with log and database; "" = none */
};

/* Starts a coordinator with an empty store, "sqlite" or "memory", and waits until it listens.
 * Errors: UNAVAILABLE (failed to start; the message quotes its log), CANCELLED. */
enum tally_status tally_bench_start_coordinator(const char *store, struct tally_bench_server *ret,
                                                struct tally_error *err);
/* Starts an echo server whose responses have n_answer bytes. Errors: UNAVAILABLE. */
enum tally_status tally_bench_start_echo(size_t n_answer, unsigned n_connections,
                                         struct tally_bench_server *ret, struct tally_error *err);
/* Ends the server and removes its folder. A zeroed struct is allowed. */
void tally_bench_stop(struct tally_bench_server *server);

/* Processor time that the server has used, in seconds; NaN if it has ended. */
double tally_bench_cpu_s(const struct tally_bench_server *server);
/* The server's memory in bytes, now and at its peak; 0 if it has ended. */
struct tally_bench_memory {
    uint64_t now, peak;
} tally_bench_memory(const struct tally_bench_server *server);

#endif
