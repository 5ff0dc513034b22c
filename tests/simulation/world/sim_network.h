/* sim_network: requests in transit to a coordinator and responses in transit back. Each may be
 * late, overtaken, lost or doubled; a loss is noticed at once (the connection breaks) or only by
 * its time-out. */
#ifndef TALLY_TESTS_SIMULATION_WORLD_SIM_NETWORK_H
#define TALLY_TESTS_SIMULATION_WORLD_SIM_NETWORK_H

#include <stdbool.h>
#include <stdint.h>

#include "codec/buffer.h"

/* Places: coordinators, from 0; the database (sim_database.h); and these. */
enum { SIM_FIRST_WORKER_PLACE = 6, SIM_FIRST_ADMIN_PLACE = 24, SIM_MAX_PLACES = 32 };

/* A process in the network: a worker's, an administrator's, a coordinator's. Times are those of
 * sim_now_us(). */
struct sim_peer {
    char name[65];
    int place;                    /* in [0, SIM_MAX_PLACES), for sim_network_cut() */
    int connected_to;             /* coordinator of its last request, counted from 1; 0 = none */
    int64_t partitioned_until_us; /* until then nothing passes between it and the others */
    int64_t paused_until_us;      /* until then stopped, as by SIGSTOP */
};

struct tally_http_request;

/* A coordinator's process, as network and HTTP see it. */
struct sim_host {
    struct sim_peer peer;
    bool (*is_up)(const struct sim_host *host);
    /* A request has arrived. */
    void (*receive)(struct sim_host *host, struct tally_http_request *request);
    /* The client has stopped waiting. The host calls sim_http_close() once it knows. */
    void (*lose)(struct sim_host *host, struct tally_http_request *request);
    /* Called before a response leaves: false if the process is dead. */
    bool (*may_answer)(struct sim_host *host);
};

/* A request; all texts are copied. */
struct sim_message {
    const char *method, *path, *content_type;
    const char *idempotency_key; /* NULL = none */
    const char *forwarded;       /* number of the coordinator that forwarded it; NULL = none */
    const uint8_t *body;
    size_t n_body;
};

struct sim_answer {
    enum tally_status status; /* OK: a response came; else UNAVAILABLE, DEADLINE */
    int http_status;
    char content_type[64];
    struct tally_buffer body; /* the receiver frees it */
};

struct sim_exchange;
/* The receiver owns the answer. */
typedef void sim_answer_fn(void *context, struct sim_exchange *exchange, struct sim_answer *answer);

struct sim_network_faults {
    int lost_requests, lost_answers; /* of 1000 */
    int silent;                      /* of 1000 losses: not noticed before the time-out */
    int doubled;                     /* of 1000 requests: arrives a second time, later */
    int late;                        /* of 1000 messages: a hundred times the delay */
    int64_t delay_us;                /* of a message, mean */
};

/* Chooses the host of a peer's next request, as a load balancer does. Never NULL. */
typedef struct sim_host *sim_balancer_fn(struct sim_peer *peer);

void sim_network_begin(sim_balancer_fn *balancer);
void sim_network_end(void); /* after the coordinators' end */
void sim_network_set_faults(const struct sim_network_faults *faults);

/* Lets nothing pass from one place to another, in this direction, before until_us. */
void sim_network_cut(int from, int to, int64_t until_us);
/* How long the cut still lasts; <= 0 = there is none. */
int64_t sim_network_cut_left_us(int from, int to);
void sim_network_mend(void);

/* Sends a request. Calls `done` once, from the event loop, unless abandoned before. */
struct sim_exchange *sim_network_send(struct sim_peer *peer, const struct sim_message *message,
                                      int64_t timeout_ms, sim_answer_fn *done, void *context);
/* The same, to a host that the sender chooses. */
struct sim_exchange *sim_network_send_to(struct sim_host *host, struct sim_peer *peer,
                                         const struct sim_message *message, int64_t timeout_ms,
                                         sim_answer_fn *done, void *context);
/* The client's process is gone. Unless `unseen`, the coordinator sees its connection close. */
void sim_network_abandon(struct sim_exchange *exchange, bool unseen);

/* For sim_http.c: what the coordinator asks and does. */

const struct sim_message *sim_exchange_message(const struct sim_exchange *exchange);
const struct sim_peer *sim_exchange_peer(const struct sim_exchange *exchange);
struct sim_host *sim_exchange_host(const struct sim_exchange *exchange);
/* No client waits for a response. Ends the coordinator's hold on the exchange. */
void sim_exchange_drop(struct sim_exchange *exchange);
/* Sends the coordinator's response; takes over the body. Ends the coordinator's hold on the
 * exchange. */
void sim_exchange_answer(struct sim_exchange *exchange, int status, const char *content_type,
                         struct tally_buffer *body);
/* Breaks the connection at the coordinator's end. Ends the coordinator's hold on the exchange. */
void sim_exchange_break(struct sim_exchange *exchange);

#endif
