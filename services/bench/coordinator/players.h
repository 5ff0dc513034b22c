/* players: load clients: many workers in one thread, which keep a coordinator as busy as it can be.
 *
 * Idea. A real worker computes gradients between two messages, and a machine that runs both
 * computes instead of measuring. A player speaks the same protocol, byte for byte, and computes
 * nothing: what it sends is drawn once, as soon as the first task states the grid and the encoding,
 * and sent again and again. The coordinator cannot tell the difference.
 *
 *     Join --> PollTask --> task --> PostUpdate + poll --> next task --> ... --> idle
 *                  ^                                                              |
 *                  +------------------------- long poll --------------------------+
 *
 * Messages. Up to 64 different ones take turns, because the branch predictor would learn a single
 * one. All of them round one vector of Gaussians of standard deviation 1 step, so that they agree
 * as the gradients of clients do. Each is framed once, as protobuf field 5; a request is this
 * message between its own head (session, job, round, client) and its tail (the next poll):
 *
 *     | session job round client | tag length | payload ... | bits clipped | poll |
 *     '------- per request ------''--------- drawn once, not copied ------''- per request
 *
 * A player with nothing to do waits in a long poll, as an idle worker does. Whether the coordinator
 * counts the same bits is checked for every update. */
#ifndef TALLY_SERVICES_BENCH_COORDINATOR_PLAYERS_H
#define TALLY_SERVICES_BENCH_COORDINATOR_PLAYERS_H

#include <stdint.h>

#include "api/worker/worker_messages.h"
#include "services/bench/coordinator/latencies.h"
#include "services/bench/coordinator/load.h"

struct tally_players;

/* What they do in one job, from its first task to the response to its last update. */
struct tally_play {
    uint64_t updates; /* acknowledged */
    double seconds;
    uint64_t wire_bytes;          /* of all exchanges in that time */
    uint64_t body_bytes;          /* of them: protobuf and payloads */
    uint64_t payload_bytes;       /* of them: messages of clients, and broadcasts */
    uint64_t answer_bytes;        /* bodies of the responses to updates */
    struct tally_latencies posts; /* from an update to its response, which brings the next task */
    struct tally_latencies rounds;
};

struct tally_players_config {
    uint16_t port;
    uint32_t n;
    uint32_t clients;            /* of a job, n * clients_per_worker at most */
    uint32_t clients_per_worker; /* at least 1; with more, a worker's updates come in one request */
    size_t dim;
};

/* Connects and joins; they have sent their polls then. Errors: UNAVAILABLE, NO_MEMORY, CANCELLED,
 * DEADLINE, and those of the coordinator's responses. */
enum tally_status tally_players_new(const struct tally_players_config *config,
                                    struct tally_players **ret_players, struct tally_error *err);
/* Closes the connections; sessions are left to themselves. NULL is allowed. */
void tally_players_free(struct tally_players *players);

/* Plays a job of n_rounds rounds until its last update is acknowledged. Errors: those of
 * tally_players_new(), and DATA_LOSS (the coordinator counts different bits). */
enum tally_status tally_players_play(struct tally_players *players, uint32_t n_rounds,
                                     struct tally_play *ret_play, struct tally_error *err);
/* Polls again where a poll has come back empty, until nothing has come for quiet_ms. Errors: as
 * tally_players_new(). */
enum tally_status tally_players_settle(struct tally_players *players, int quiet_ms,
                                       struct tally_error *err);

/* An update as they post it, and its path, for a server that looks at neither. What is borrowed
 * stays valid until the players play again or are freed. Precondition: they have played. Errors:
 * NO_MEMORY. */
enum tally_status tally_players_sample(struct tally_players *players, const char **ret_path,
                                       struct tally_load_body *ret_body, struct tally_error *err);
/* Seconds of processor time that decoding one of their messages and adding it up takes here and
 * now: the mean over several passes through all messages. Precondition: they have played. Errors:
 * NO_MEMORY. */
enum tally_status tally_players_accumulate_s(const struct tally_players *players, double *ret_s,
                                             struct tally_error *err);

#endif
