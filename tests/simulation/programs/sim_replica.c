#include "tests/simulation/programs/sim_replica.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/coordinator/coordinator.h"
#include "tests/simulation/checks/invariants.h"
#include "tests/simulation/storage/sim_database.h"
#include "tests/simulation/storage/sim_store.h"
#include "tests/simulation/world/sim.h"
#include "tests/simulation/world/sim_fiber.h"
#include "tests/simulation/world/sim_http.h"
#include "tests/simulation/world/sim_random.h"

enum {
    DRAIN_TURNS = 4,
    QUIET_US = 10000, /* of the last turns */
    MIN_TURN_US = 20, /* a turn takes time, so a loop that asks to be turned at once moves on */
    MAX_INBOX = 256
};

struct sim_replica {
    struct sim_host host; /* the first member: network and HTTP know the replica by it */
    char id[16], address[32];
    struct sim_clocks clocks;
    struct sim_fiber *fiber; /* NULL = down */
    struct tally_coordinator *it;
    int64_t life;
    bool is_killed; /* nothing that it still does has an effect */
    bool is_draining, is_told_to_stop;
    bool is_idle;            /* waits for requests or its next turn */
    int64_t n_waits;         /* number of the current wait, to recognise late wake-ups */
    int64_t boundaries_left; /* until its fate; 0 = it has none */
    int64_t commits_left;    /* the same, in commits */
    enum sim_fate fate;
    int64_t fate_us;
    struct tally_http_request *inbox[MAX_INBOX];
    int n_inbox;
};

static struct {
    struct sim_replicas_config config;
    struct sim_replica replicas[SIM_MAX_REPLICAS];
    bool has_ended;
} all;

static struct sim_replica *self;

static void start(void *context, int64_t argument);

/* ---- What the surroundings ask ---- */

struct sim_replica *sim_replica_self(void)
{
    return self;
}

int sim_replica_index(const struct sim_replica *replica)
{
    return replica->host.peer.place;
}

int64_t sim_replica_life(const struct sim_replica *replica)
{
    return replica->life;
}

const char *sim_replica_name(const struct sim_replica *replica)
{
    return replica->host.peer.name;
}

struct sim_peer *sim_replica_peer(struct sim_replica *replica)
{
    return &replica->host.peer;
}

bool sim_replica_is_killed(const struct sim_replica *replica)
{
    return replica->is_killed;
}

struct sim_host *sim_replica_at(const char *url)
{
    for (int i = 0; i < all.config.n; i++) {
        if (strcmp(all.replicas[i].address, url) == 0) {
            return &all.replicas[i].host;
        }
    }
    return NULL;
}

/* A connection stays where it was made until it breaks; some are made anew. */
struct sim_host *sim_replicas_balance(struct sim_peer *peer)
{
    struct sim_replica *to = NULL;
    if (peer->connected_to > 0 && !sim_chance(all.config.moves)) {
        to = &all.replicas[peer->connected_to - 1];
    }
    for (int i = 0; i < 2 && (to == NULL || to->it == NULL);
         i++) { /* the balancer knows some that are down */
        to = &all.replicas[sim_between(0, all.config.n - 1)];
    }
    peer->connected_to = sim_replica_index(to) + 1;
    return &to->host;
}

/* ---- Waiting ---- */

static void wake(struct sim_replica *replica)
{
    SIM_REQUIRE(self == NULL, "a coordinator woke another one");
    replica->n_waits++;
    self = replica;
    sim_clock_look_at(&replica->clocks);
    sim_fiber_wake(replica->fiber);
    sim_clock_look_at(NULL);
    self = NULL;
}

static void wake_at(void *context, int64_t n_waits)
{
    struct sim_replica *replica = context;
    if (replica->fiber == NULL || replica->n_waits != n_waits) {
        return;
    }
    const int64_t left_us = replica->host.peer.paused_until_us - sim_now_us();
    if (left_us > 0) {
        sim_after(left_us, wake_at, replica, n_waits);
        return;
    }
    wake(replica);
}

static void wait(struct sim_replica *replica, int64_t us)
{
    if (!replica->is_killed) {
        sim_after(us, wake_at, replica, replica->n_waits);
        sim_fiber_wait();
    }
}

void sim_replica_wake_up(struct sim_replica *replica)
{
    if (replica->is_idle) {
        sim_after(sim_between(0, all.config.batch_us), wake_at, replica, replica->n_waits);
    }
}

static void meet(struct sim_replica *replica, enum sim_fate fate, int64_t us)
{
    switch (fate) {
    case SIM_FATE_KILL:
        sim_note(sim_replica_name(replica), "killed");
        replica->is_killed = true;
        break;
    case SIM_FATE_PAUSE:
        sim_note(sim_replica_name(replica), "stopped for %.3f s", (double)us / 1e6);
        replica->host.peer.paused_until_us = sim_now_us() + us;
        break;
    case SIM_FATE_CUT:
        sim_note(sim_replica_name(replica), "cut off from all for %.3f s", (double)us / 1e6);
        replica->host.peer.partitioned_until_us = sim_now_us() + us;
        sim_network_cut(replica->host.peer.place, SIM_DATABASE_PLACE, sim_now_us() + us);
        sim_network_cut(SIM_DATABASE_PLACE, replica->host.peer.place, sim_now_us() + us);
        break;
    case SIM_FATE_DRAIN:
        sim_note(sim_replica_name(replica), "told to stop");
        replica->is_told_to_stop = true;
        break;
    }
}

void sim_replica_note_commit(struct sim_replica *replica)
{
    if (replica->commits_left > 0 && --replica->commits_left == 0) {
        replica->boundaries_left = 1;
    }
}

bool sim_replica_pass(struct sim_replica *replica, int64_t us)
{
    if (replica->is_killed) {
        return false;
    }
    if (replica->boundaries_left > 0 && --replica->boundaries_left == 0) {
        meet(replica, replica->fate, replica->fate_us);
    }
    const int64_t paused_us = replica->host.peer.paused_until_us - sim_now_us();
    us = paused_us > us ? paused_us : us;
    if (us > 0) {
        wait(replica, us);
    }
    return !replica->is_killed;
}

/* ---- Network ---- */

static struct sim_replica *replica_of(struct sim_host *host)
{
    return (struct sim_replica *)host;
}

static bool is_up(const struct sim_host *host)
{
    const struct sim_replica *replica = (const struct sim_replica *)host;
    return replica->it != NULL && !replica->is_draining && replica->n_inbox < MAX_INBOX;
}

static void receive(struct sim_host *host, struct tally_http_request *request)
{
    struct sim_replica *replica = replica_of(host);
    replica->inbox[replica->n_inbox++] = request;
    sim_replica_wake_up(replica);
}

static void lose(struct sim_host *host, struct tally_http_request *request)
{
    sim_http_note_lost(request);
    sim_replica_wake_up(replica_of(host));
}

static bool may_answer(struct sim_host *host)
{
    return sim_replica_pass(replica_of(host), 0);
}

/* Serves requests that arrived while the loop was elsewhere. */
static void serve_requests(struct sim_replica *replica)
{
    struct tally_http_request *request;
    for (int i = 0; i < replica->n_inbox; i++) {
        request = replica->inbox[i];
        if (sim_http_is_lost(request)) {
            sim_http_close(request); /* before it was read */
        } else {
            tally_coordinator_on_request(replica->it, request);
        }
    }
    replica->n_inbox = 0;
    while ((request = sim_http_find_lost(&replica->host)) != NULL) {
        tally_coordinator_on_abandoned(replica->it, request);
        sim_http_close(request);
    }
}

/* ---- A life ---- */

static enum tally_status begin(struct sim_replica *replica, struct tally_error *err)
{
    const struct tally_coordinator_config config = {
        .environment = replica->id[strlen(replica->id) - 1] % 2 == 0 ? "{\"version\": \"even\"}"
                                                                     : "{\"version\": \"odd\"}",
        .session_timeout_ms = all.config.session_timeout_ms,
        .max_jobs = 100,
        .max_streams = 10,
        .max_clients = 100,
        .max_dim = 1000,
        .max_body_bytes = 1 << 20,
        .max_batch_bytes = sim_http_most_batch_bytes(),
        .max_job_bytes = INT64_C(1) << 30,
        .max_sessions = 1000,
        .heartbeat_ms = 15000,
        .metrics_keep_ms = 60000,
        .replica_id = replica->id,
        .replica_address = replica->address,
        .lease_ms = all.config.lease_ms,
        .max_held_bytes = 1 << 30,
    };
    struct tally_coordinator_config with_store = config;
    enum tally_status status = sim_store_open(replica, &with_store.store, err);
    if (status == TALLY_OK) {
        status = tally_coordinator_new(&with_store, &replica->it, err);
        if (status != TALLY_OK) {
            replica->it = NULL;
            with_store.store->ops->close(with_store.store);
        }
    }
    return status;
}

static void turn(struct sim_replica *replica, int64_t max_wait_us)
{
    const int64_t wait_us = (int64_t)tally_coordinator_turn(replica->it) * 1000;
    if (!replica->is_killed) {
        invariants_check();
    }
    const int64_t us = wait_us < max_wait_us ? wait_us : max_wait_us;
    replica->is_idle = true;
    wait(replica, replica->n_inbox > 0 || us < MIN_TURN_US ? MIN_TURN_US : us);
    replica->is_idle = false;
    if (!replica->is_killed) {
        serve_requests(replica);
    }
}

/* SIGTERM: as main.c does it. */
static void drain(struct sim_replica *replica)
{
    replica->is_draining = true; /* accepts no new requests */
    tally_coordinator_drain(replica->it);
    for (int i = 0; i < DRAIN_TURNS && !replica->is_killed; i++) {
        turn(replica, QUIET_US);
    }
    sim_note(sim_replica_name(replica), "stops in good order");
}

static void live(void *context)
{
    struct sim_replica *replica = context;
    struct tally_error err = TALLY_ERROR_INIT;
    replica->fiber = sim_fiber_self();
    if (begin(replica, &err) != TALLY_OK) {
        if (!replica->is_killed) {
            sim_note(sim_replica_name(replica), "cannot start: %s", err.message);
        }
        return;
    }
    sim_note(sim_replica_name(replica), "started");
    invariants_see_restart();
    while (!replica->is_killed && !replica->is_told_to_stop) {
        turn(replica, INT64_MAX);
    }
    if (!replica->is_killed) {
        drain(replica);
    }
}

/* The process is gone, and its memory with it. */
static void on_end(void *context)
{
    struct sim_replica *replica = context;
    struct tally_coordinator *it = replica->it;
    replica->is_killed = true; /* a stopped process says nothing any more, either */
    replica->fiber = NULL;
    replica->it = NULL;
    replica->n_waits++;
    replica->n_inbox = 0;
    sim_http_drop_all(&replica->host);
    tally_coordinator_free(it);
    if (!all.has_ended) {
        sim_after(sim_around(all.config.restart_us), start, replica, 0);
    }
}

static void start(void *context, int64_t argument)
{
    struct sim_replica *replica = context;
    (void)argument;
    if (replica->fiber != NULL || all.has_ended) {
        return;
    }
    replica->life++;
    replica->is_killed = replica->is_draining = replica->is_told_to_stop = false;
    replica->host.peer.paused_until_us = 0;
    self = replica;
    sim_clock_look_at(&replica->clocks);
    sim_fiber_start(live, on_end, replica);
    sim_clock_look_at(NULL);
    self = NULL;
}

void sim_replicas_begin(const struct sim_replicas_config *config)
{
    memset(&all, 0, sizeof all);
    all.config = *config;
    for (int i = 0; i < config->n; i++) {
        struct sim_replica *replica = &all.replicas[i];
        replica->host = (struct sim_host){
            .is_up = is_up, .receive = receive, .lose = lose, .may_answer = may_answer};
        replica->host.peer.place = i;
        replica->clocks = config->clocks[i];
        snprintf(replica->host.peer.name, sizeof replica->host.peer.name, "replica-%d", i);
        snprintf(replica->id, sizeof replica->id, "replica-%d", i);
        snprintf(replica->address, sizeof replica->address, "http://replica-%d", i);
        sim_after(sim_around(20000), start, replica, 0);
    }
}

static void kill_now(struct sim_replica *replica)
{
    if (replica->fiber != NULL) {
        replica->is_killed = true;
        wake(replica); /* its code returns from wherever it is, without effect */
    }
}

void sim_replicas_end(void)
{
    all.has_ended = true;
    for (int i = 0; i < all.config.n; i++) {
        kill_now(&all.replicas[i]);
    }
}

/* ---- Misfortunes ---- */

static struct sim_replica *draw_replica(void)
{
    return &all.replicas[sim_between(0, all.config.n - 1)];
}

static void strike(struct sim_replica *replica, enum sim_fate fate, int64_t us)
{
    meet(replica, fate, us);
    if (fate == SIM_FATE_KILL) {
        kill_now(replica);
    }
}

void sim_replica_strike(enum sim_fate fate, enum sim_when when, int64_t n, int64_t us)
{
    struct sim_replica *replica = draw_replica();
    if (replica->fiber == NULL) {
        return;
    }
    if (when == SIM_NOW) {
        strike(replica, fate, us);
        return;
    }
    replica->boundaries_left = when == SIM_AT_BOUNDARY ? n : 0;
    replica->commits_left = when == SIM_AT_COMMIT ? n : 0;
    replica->fate = fate;
    replica->fate_us = us;
}

/* Cuts two places off from each other, in both directions or in one. */
static void cut(int a, int b, int64_t us)
{
    const int64_t way = sim_between(0, 2);
    sim_note("network", "cut for %.3f s: %d %s %d", (double)us / 1e6, a,
             way == 0   ? "-x-"
             : way == 1 ? "-x>"
                        : "<x-",
             b);
    if (way != 2) {
        sim_network_cut(a, b, sim_now_us() + us);
    }
    if (way != 1) {
        sim_network_cut(b, a, sim_now_us() + us);
    }
}

void sim_replica_cut_database(int64_t us)
{
    cut(sim_replica_index(draw_replica()), SIM_DATABASE_PLACE, us);
}

void sim_replica_cut_apart(int64_t us)
{
    const int a = sim_replica_index(draw_replica()), b = sim_replica_index(draw_replica());
    if (a != b) {
        cut(a, b, us);
    }
}

void sim_replica_cut_client(int place, int64_t us)
{
    cut(place, sim_replica_index(draw_replica()), us);
}

static void stop_one(void *context, int64_t argument)
{
    (void)argument;
    struct sim_replica *replica = context;
    if (replica->it != NULL) {
        strike(replica, SIM_FATE_DRAIN, 0);
    }
}

void sim_replicas_roll(int64_t pause_us)
{
    sim_note("scenario", "rolling restart");
    for (int i = 0; i < all.config.n; i++) {
        sim_after(i * pause_us, stop_one, &all.replicas[i], 0);
    }
}

void sim_replicas_calm(void)
{
    for (int i = 0; i < all.config.n; i++) {
        all.replicas[i].boundaries_left = all.replicas[i].commits_left = 0;
        all.replicas[i].host.peer.partitioned_until_us = 0;
        /* A pause ends at the time that was set. */
    }
}

void sim_replica_jump_clock(int64_t ms)
{
    struct sim_replica *replica = draw_replica();
    sim_note(sim_replica_name(replica), "its clock jumps by %lld ms", (long long)ms);
    replica->clocks.realtime_ms += ms;
}
