/* echo_server: libmicrohttpd and nothing else, the yardstick of `tests/bench/run coordinator`.
 *
 * One thread with epoll reads all bodies, keeps none, and responds to every request with the same
 * bytes. Any further cost of a server built on the library is its own. */
#ifndef TALLY_TESTS_BENCH_ECHO_SERVER_H
#define TALLY_TESTS_BENCH_ECHO_SERVER_H

#include <stddef.h>
#include <stdint.h>

#include "codec/error.h"

struct tally_echo_server;

/* Listens on a free port of 127.0.0.1, for at most n_connections at once; responses have a body of
 * n_answer bytes. Errors: NO_MEMORY, UNAVAILABLE. */
enum tally_status tally_echo_server_new(size_t n_answer, unsigned n_connections,
                                        struct tally_echo_server **ret_server,
                                        struct tally_error *err);
/* NULL is allowed. */
void tally_echo_server_free(struct tally_echo_server *server);
/* Waits for the network and serves what is ready. The caller runs the loop: libmicrohttpd's own
 * thread (0.9.75) leaves requests waiting if exactly 128 events arrive at once. If all clients are
 * among these, they wait forever. */
void tally_echo_server_step(struct tally_echo_server *server);
uint16_t tally_echo_server_port(const struct tally_echo_server *server);

#endif
