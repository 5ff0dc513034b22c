#include "tests/simulation/programs/sim_coordinator.h"

#include <string.h>

#include "services/coordinator/coordinator.h"
#include "storage/sqlite/sqlite.h"
#include "tests/simulation/checks/invariants.h"
#include "tests/simulation/storage/sim_disk.h"
#include "tests/simulation/world/sim.h"
#include "tests/simulation/world/sim_clock.h"
#include "tests/simulation/world/sim_http.h"
#include "tests/simulation/world/sim_random.h"

static const char PATH[] = "/simulated/tally.db";

enum {
    DRAIN_TURNS = 4,
    MIN_TURN_US = 20 /* a turn takes time, so a loop that asks to be turned at once moves on */
};

static bool is_up(const struct sim_host *host);
static void receive(struct sim_host *host, struct tally_http_request *request);
static void lose(struct sim_host *host, struct tally_http_request *request);
static bool may_answer(struct sim_host *host);

static struct {
    struct sim_host host;
    struct sim_coordinator_config config;
    struct tally_coordinator *it; /* NULL = down */
    struct tally_store *store;    /* the coordinator's */
    int64_t turn_at_us;           /* of the turn that is planned */
    int64_t n_lives;
    int64_t kill_at_answer; /* 0 = not planned */
    bool power_fails;       /* the kill in progress also cuts the power */
} process;

static void start(void *context, int64_t argument);
static void turn(void *context, int64_t life);

static bool is_up(const struct sim_host *host)
{
    (void)host;
    return process.it != NULL;
}

struct sim_host *sim_coordinator_host(struct sim_peer *peer)
{
    (void)peer;
    return &process.host;
}

struct tally_store *sim_coordinator_store(void)
{
    return process.it != NULL ? process.store : NULL;
}

static void plan_turn(int64_t delay_us)
{
    const int64_t at_us = sim_now_us() + delay_us;
    if (process.turn_at_us <= sim_now_us() || at_us < process.turn_at_us) {
        process.turn_at_us = at_us;
        sim_after(delay_us, turn, NULL, process.n_lives);
    }
}

/* The process is gone, and its memory with it; nothing that it still does counts. */
static void bury(void)
{
    struct tally_coordinator *it = process.it;
    process.it = NULL;
    process.store = NULL;
    process.kill_at_answer = 0;
    sim_http_drop_all(&process.host);
    tally_coordinator_free(it);
    process.n_lives++;
    sim_after(sim_around(process.config.restart_us), start, NULL, 0);
}

static void bury_if_killed(void)
{
    if (process.it == NULL || !sim_disk_is_killed()) {
        return;
    }
    sim_note("coordinator", "killed%s", process.power_fails ? ", power cut" : "");
    bury();
    if (process.power_fails) {
        process.power_fails = false;
        sim_disk_cut_power();
        invariants_see_power_cut(process.config.power_loss_safe);
    }
}

static void start(void *context, int64_t argument)
{
    (void)context, (void)argument;
    struct tally_error err = TALLY_ERROR_INIT;
    const struct tally_store_options options = {.power_loss_safe = process.config.power_loss_safe};
    struct tally_store *store = NULL;
    sim_disk_revive();
    enum tally_status status = TALLY_SQLITE_BACKEND.open(PATH, &options, &store, &err);
    if (status == TALLY_OK) {
        const struct tally_coordinator_config config = {
            .store = store,
            .environment = "{\"version\": \"simulated\"}",
            .session_timeout_ms = process.config.session_timeout_ms,
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
        };
        status = tally_coordinator_new(&config, &process.it, &err);
        if (status != TALLY_OK) {
            process.it = NULL;
            store->ops->close(store);
        }
    }
    if (status != TALLY_OK) {
        sim_note("coordinator", "cannot start: %s", err.message);
        if (status != TALLY_STORE) {
            sim_violation("the coordinator does not start again: %s", err.message);
        }
        sim_after(sim_around(process.config.restart_us) + 1000, start, NULL, 0);
        return;
    }
    process.store = store;
    sim_note("coordinator", "started");
    invariants_see_restart();
    process.turn_at_us = 0;
    plan_turn(0);
}

static void turn(void *context, int64_t life)
{
    (void)context;
    if (process.it == NULL || life != process.n_lives || process.turn_at_us != sim_now_us()) {
        return; /* of an earlier life, or an earlier turn was planned meanwhile */
    }
    const int64_t wait_us = (int64_t)tally_coordinator_turn(process.it) * 1000;
    bury_if_killed();
    if (process.it != NULL) {
        invariants_check();
        plan_turn(wait_us > MIN_TURN_US ? wait_us : MIN_TURN_US);
    }
}

void sim_coordinator_begin(const struct sim_coordinator_config *config)
{
    memset(&process, 0, sizeof process);
    process.config = *config;
    process.host = (struct sim_host){
        .is_up = is_up, .receive = receive, .lose = lose, .may_answer = may_answer};
    start(NULL, 0);
}

void sim_coordinator_end(void)
{
    if (process.it != NULL) {
        sim_disk_kill();
        sim_http_drop_all(&process.host);
        tally_coordinator_free(process.it);
        process.it = NULL;
    }
}

/* SIGTERM: as main.c does it. */
static void drain(void)
{
    tally_coordinator_drain(process.it);
    for (int i = 0; i < DRAIN_TURNS && !sim_disk_is_killed(); i++) {
        tally_coordinator_turn(process.it);
    }
    if (sim_disk_is_killed()) {
        bury_if_killed();
        return;
    }
    invariants_check();
    sim_note("coordinator", "stopped in good order");
    bury();
}

void sim_coordinator_stop(enum sim_stop how)
{
    if (process.it == NULL) {
        return;
    }
    if (how == SIM_STOP_DRAIN) {
        drain();
        return;
    }
    process.power_fails = how == SIM_STOP_POWER;
    sim_disk_kill();
    bury_if_killed();
}

void sim_coordinator_kill_at_disk(int64_t n)
{
    if (process.it != NULL) {
        sim_disk_kill_after(n);
    }
}

void sim_coordinator_kill_at_answer(int64_t n)
{
    process.kill_at_answer = n;
}

static bool may_answer(struct sim_host *host)
{
    (void)host;
    if (sim_disk_is_killed()) {
        return false;
    }
    if (process.kill_at_answer > 0 && --process.kill_at_answer == 0) {
        sim_note("coordinator", "the process is killed at this answer");
        sim_disk_kill();
        return sim_chance(500);
    }
    return true;
}

static void receive(struct sim_host *host, struct tally_http_request *request)
{
    (void)host;
    tally_coordinator_on_request(process.it, request);
    bury_if_killed();
    if (process.it != NULL) {
        plan_turn(sim_between(0, process.config.batch_us));
    }
}

static void lose(struct sim_host *host, struct tally_http_request *request)
{
    (void)host;
    tally_coordinator_on_abandoned(process.it, request);
    sim_http_close(request);
}
