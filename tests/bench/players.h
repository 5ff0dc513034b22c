/* players: load clients: many workers in one thread, which keep a coordinator fully loaded.
 *
 * Idea. A real worker computes gradients between two messages; on one machine with the coordinator,
 * that would dominate the measurement. A player speaks the same protocol, byte for byte, and
 * computes nothing: its messages are drawn once, when the first task states the grid and the
 * encoding, and sent again and again. The coordinator cannot tell the difference.
 *
 *     Join --> PollTask --> task --> PostUpdate + poll --> next task --> ... --> idle
 *                  ^                                                              |
 *                  +------------------------- long poll --------------------------+
 *
 * Messages. Up to 64 different messages take turns, because the branch predictor would learn a
 * single one. All of them round one vector of Gaussians of standard deviation 1 step, so that they
 * are as similar as clients' gradients. The payload of a single update is drawn once and not
 * copied; the rest of the request is written around it.
 *
 * A player with nothing to do waits in a long poll, as an idle worker does. The bits that the
 * coordinator counts are checked for every update. */
#ifndef TALLY_TESTS_BENCH_PLAYERS_H
#define TALLY_TESTS_BENCH_PLAYERS_H

#include <stdint.h>

#include "api/worker/worker_messages.h"
#include "tests/bench/latencies.h"
#include "tests/bench/load.h"

struct tally_players;

/* Totals of one job, from its first task to the response to its last update. */
struct tally_play {
    uint64_t updates; /* acknowledged */
    double seconds;
    uint64_t wire_bytes;          /* of all exchanges during the job */
    uint64_t body_bytes;          /* of these: protobuf and payloads */
    uint64_t payload_bytes;       /* of these: messages of clients, and broadcasts */
    uint64_t answer_bytes;        /* bodies of the responses to updates */
    struct tally_latencies posts; /* from an update to its response, which contains the next task */
    struct tally_latencies rounds;
};

struct tally_players_config {
    uint16_t port;
    uint32_t n;
    uint32_t clients;            /* of a job, n * clients_per_worker at most */
    uint32_t clients_per_worker; /* at least 1; with more, a worker's updates come in one request */
    size_t dim;
};

/* Connects and joins. On return, all players have sent their polls. Errors: UNAVAILABLE, NO_MEMORY,
 * CANCELLED, DEADLINE, and those of the coordinator's responses. */
enum tally_status tally_players_new(const struct tally_players_config *config,
                                    struct tally_players **ret_players, struct tally_error *err);
/* Closes the connections but does not end the sessions. NULL is allowed. */
void tally_players_free(struct tally_players *players);

/* Takes part in a job of n_rounds rounds until its last update is acknowledged. Errors: those of
 * tally_players_new(), and DATA_LOSS (the coordinator counts different bits). */
enum tally_status tally_players_play(struct tally_players *players, uint32_t n_rounds,
                                     struct tally_play *ret_play, struct tally_error *err);
/* Repeats polls that returned empty, until no response has arrived for quiet_ms. Errors: as
 * tally_players_new(). */
enum tally_status tally_players_settle(struct tally_players *players, int quiet_ms,
                                       struct tally_error *err);

/* An update as the players post it, and its path, for the echo server. The borrowed memory stays
 * valid until the next job or until the players are freed. Precondition: the players have run a
 * job. Errors: NO_MEMORY. */
enum tally_status tally_players_sample(struct tally_players *players, const char **ret_path,
                                       struct tally_load_body *ret_body, struct tally_error *err);
/* Measures the processor time, in seconds, to decode and accumulate one message: the mean over
 * several passes through all messages. Precondition: the players have run a job. Errors:
 * NO_MEMORY. */
enum tally_status tally_players_accumulate_s(const struct tally_players *players, double *ret_s,
                                             struct tally_error *err);

#endif
