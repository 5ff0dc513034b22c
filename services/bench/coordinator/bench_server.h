/* bench_server: a server that `tally bench coordinator` measures, as a child process: the
 * coordinator that is installed beside this program, or the echo server. It has one processor to
 * itself, if there are two, and is killed when this process ends, however that happens. */
#ifndef TALLY_SERVICES_BENCH_COORDINATOR_BENCH_SERVER_H
#define TALLY_SERVICES_BENCH_COORDINATOR_BENCH_SERVER_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "codec/base/error.h"

/* Puts this process on one processor and lets the servers to come have another; with a single one
 * does nothing. Errors: UNAVAILABLE. */
enum tally_status tally_bench_pin(struct tally_error *err);

struct tally_bench_server {
    pid_t pid; /* 0 = none */
    uint16_t port;
    char folder[PATH_MAX]; /* of its own, with log and database; "" = none */
};

/* Starts a coordinator with an empty store, "sqlite" or "memory", and waits until it listens.
 * Errors: UNAVAILABLE (it does not start; the message quotes its log), CANCELLED. */
enum tally_status tally_bench_start_coordinator(const char *store, struct tally_bench_server *ret,
                                                struct tally_error *err);
/* Starts an echo server whose responses have n_answer bytes. Errors: UNAVAILABLE. */
enum tally_status tally_bench_start_echo(size_t n_answer, unsigned n_connections,
                                         struct tally_bench_server *ret, struct tally_error *err);
/* Ends it and removes its folder. A zeroed struct is allowed. */
void tally_bench_stop(struct tally_bench_server *server);

/* Seconds of processor time that it has used; NaN if it is gone. */
double tally_bench_cpu_s(const struct tally_bench_server *server);
/* Bytes of memory that it has now, and had at most; 0 if it is gone. */
struct tally_bench_memory {
    uint64_t now, peak;
} tally_bench_memory(const struct tally_bench_server *server);

#endif
