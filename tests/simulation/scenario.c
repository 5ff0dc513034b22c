#include "tests/simulation/scenario.h"

#include <stdio.h>
#include <string.h>

#include "tests/simulation/invariants.h"
#include "tests/simulation/sim.h"
#include "tests/simulation/sim_admin.h"
#include "tests/simulation/sim_clock.h"
#include "tests/simulation/sim_coordinator.h"
#include "tests/simulation/sim_disk.h"
#include "tests/simulation/sim_fiber.h"
#include "tests/simulation/sim_job.h"
#include "tests/simulation/sim_network.h"
#include "tests/simulation/sim_prepare.h"
#include "tests/simulation/sim_random.h"
#include "tests/simulation/sim_vfs.h"
#include "tests/simulation/sim_worker.h"

/* What a seed has drawn. Not every seed draws every kind of misfortune, so that each also meets the
 * others alone. */
static struct {
    struct sim_job jobs[SIM_MAX_JOBS];
    int n_jobs;
    struct sim_network_faults network;
    struct sim_coordinator_config coordinator;
    struct sim_workers_config workers;
    struct sim_admin_config admin;
    int64_t estimate_us; /* about what the jobs would take if nothing failed */
    int64_t calm_at_us;  /* nothing fails from then on */
    int64_t interval_us; /* mean time between two misfortunes */
    bool is_calm;
    unsigned kinds; /* bits of enum misfortune that this seed knows */
} plan;

enum misfortune {
    KILL,
    KILL_AT_DISK,
    KILL_AT_ANSWER,
    POWER_CUT,
    DRAIN,
    DISK_FAULTS,
    CLOCK_JUMP,
    WORKER_KILL,
    WORKER_TERMINATE,
    WORKER_PAUSE,
    WORKER_PARTITION,
    WORKER_SLOW,
    WORKER_DOUBLE,
    N_MISFORTUNES
};

static int64_t draw_of(const int64_t *values, int n)
{
    return values[sim_between(0, n - 1)];
}

#define DRAW_OF(...)                                                                               \
    draw_of((const int64_t[]){__VA_ARGS__},                                                        \
            (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)))

/* Draws. */

static void draw_jobs(void)
{
    int64_t n_rounds = 0;
    plan.n_jobs = sim_chance(330) ? 2 : 1;
    for (int i = 0; i < plan.n_jobs; i++) {
        sim_job_draw(&plan.jobs[i], i, DRAW_OF(1, 3, 6));
        n_rounds += plan.jobs[i].n_rounds;
    }
    plan.network.delay_us = DRAW_OF(50, 1000, 20000);
    plan.workers.think_us = DRAW_OF(0, 500, 10000);
    plan.estimate_us = n_rounds * (5 * plan.network.delay_us + 3 * plan.workers.think_us + 1000);
}

static void draw_network(void)
{
    struct sim_network_faults *faults = &plan.network;
    faults->lost_requests = (int)DRAW_OF(0, 0, 5, 50, 200);
    faults->lost_answers = (int)DRAW_OF(0, 0, 5, 50, 200);
    faults->silent = (int)DRAW_OF(0, 20, 200);
    faults->doubled = (int)DRAW_OF(0, 0, 20, 200);
    faults->late = (int)DRAW_OF(0, 0, 10, 50);
}

static void draw_coordinator(void)
{
    plan.coordinator = (struct sim_coordinator_config){
        .power_loss_safe = sim_chance(500),
        .session_timeout_ms = DRAW_OF(300, 3000, 10000),
        .batch_us = DRAW_OF(0, 200, 3000),
        .restart_us = DRAW_OF(5000, 300000, 3000000),
    };
}

/* Enough slots for every job; sometimes more. */
static void draw_workers(void)
{
    int64_t need = 0, have = 0;
    for (int i = 0; i < plan.n_jobs; i++) {
        need = plan.jobs[i].spec.clients > need ? plan.jobs[i].spec.clients : need;
    }
    need += sim_chance(400) ? sim_between(1, 3) : 0;
    struct sim_workers_config *workers = &plan.workers;
    const int64_t most = DRAW_OF(1, 2, 6);
    while (have < need && workers->n_workers < SIM_MAX_WORKERS) {
        const int64_t slots = sim_between(1, most);
        workers->slots[workers->n_workers++] = (uint32_t)slots;
        have += slots;
    }
    workers->wait_ms = (uint32_t)DRAW_OF(200, 2000, 20000);
    workers->restart_us = DRAW_OF(2000, 100000, 2000000);
    workers->renamed = (int)DRAW_OF(0, 300, 1000);
}

static void draw_faults(void)
{
    const unsigned all = (1U << N_MISFORTUNES) - 1;
    plan.kinds = (unsigned)sim_random() & all;
    plan.kinds &= (unsigned)sim_random(); /* a quarter of them */
    if (sim_chance(400)) {
        plan.kinds |= 1U << sim_between(0, N_MISFORTUNES - 1);
    }
    if (!plan.coordinator.power_loss_safe && sim_chance(700)) {
        plan.kinds &= ~(1U << POWER_CUT); /* the weaker promise takes fewer seeds */
    }
    plan.calm_at_us = plan.estimate_us * sim_between(1, 4) + sim_between(10000, 500000);
    plan.interval_us = plan.estimate_us / DRAW_OF(2, 5, 15) + 1;
    plan.admin = (struct sim_admin_config){.submit_after_us = sim_between(0, 50000),
                                           .look_us = plan.estimate_us / 8 + 1000,
                                           .pauses = (int)DRAW_OF(0, 0, 100),
                                           .cancels = (int)DRAW_OF(0, 0, 0, 20)};
}

/* Misfortunes. */

/* Short or beyond the session's time-out. */
static int64_t draw_outage_us(void)
{
    return sim_around(sim_chance(700) ? plan.estimate_us / 5 + 1000
                                      : 1500 * plan.coordinator.session_timeout_ms);
}

static void mend_disk(void *context, int64_t argument)
{
    (void)context, (void)argument;
    sim_note("disk", "works again");
    sim_disk_set_faults(0, 0, 0, false);
}

static void break_disk(void)
{
    const int writes = (int)DRAW_OF(0, 20, 300), syncs = (int)DRAW_OF(0, 200),
              reads = (int)DRAW_OF(0, 0, 5);
    const bool is_full = sim_chance(500);
    sim_note("disk", "of 1000 writes %d fail, of syncs %d, of reads %d%s", writes, syncs, reads,
             is_full ? "; it is full" : "");
    sim_disk_set_faults(writes, syncs, reads, is_full);
    sim_after(draw_outage_us(), mend_disk, NULL, 0);
}

static void jump_clock(void)
{
    const int64_t ms = (sim_chance(500) ? 1 : -1) * DRAW_OF(1000, 3600000, 86400000);
    sim_note("clock", "jumps by %lld ms", (long long)ms);
    sim_jump_realtime(ms);
}

static void strike(enum misfortune kind)
{
    switch (kind) {
    case KILL:
        sim_coordinator_stop(SIM_STOP_KILL);
        break;
    case KILL_AT_DISK:
        sim_coordinator_kill_at_disk(sim_between(1, 12));
        break;
    case KILL_AT_ANSWER:
        sim_coordinator_kill_at_answer(sim_between(1, 6));
        break;
    case POWER_CUT:
        sim_coordinator_stop(SIM_STOP_POWER);
        break;
    case DRAIN:
        sim_coordinator_stop(SIM_STOP_DRAIN);
        break;
    case DISK_FAULTS:
        break_disk();
        break;
    case CLOCK_JUMP:
        jump_clock();
        break;
    case WORKER_KILL:
        sim_worker_kill();
        break;
    case WORKER_TERMINATE:
        sim_worker_terminate();
        break;
    case WORKER_PAUSE:
        sim_worker_pause(draw_outage_us());
        break;
    case WORKER_PARTITION:
        sim_worker_partition(draw_outage_us());
        break;
    case WORKER_SLOW:
        sim_worker_slow_down(draw_outage_us() / 4);
        break;
    case WORKER_DOUBLE:
        sim_worker_start_double();
        break;
    case N_MISFORTUNES:
        break;
    }
}

/* The next one, and when the one after it comes. */
static void misfortune(void *context, int64_t argument)
{
    (void)context, (void)argument;
    if (plan.is_calm || plan.kinds == 0) {
        return;
    }
    enum misfortune kind;
    do {
        kind = (enum misfortune)sim_between(0, N_MISFORTUNES - 1);
    } while ((plan.kinds >> kind & 1) == 0);
    strike(kind);
    sim_after(sim_around(plan.interval_us), misfortune, NULL, 0);
}

static void calm_down(void *context, int64_t argument)
{
    (void)context, (void)argument;
    sim_note("scenario", "calm from here on");
    plan.is_calm = true;
    const struct sim_network_faults none = {.delay_us = plan.network.delay_us};
    sim_network_set_faults(&none);
    sim_disk_set_faults(0, 0, 0, false);
    sim_workers_calm();
    sim_admins_calm();
}

/* The run. */

/* After the calm: outages that began before it, calls that time out (30 s) one after the other,
 * pauses between tries, the jobs themselves. A job that has not ended by then hangs. */
static int64_t end_us(void)
{
    return plan.calm_at_us + 30000 * plan.coordinator.session_timeout_ms +
           10 * plan.workers.restart_us + 10 * plan.coordinator.restart_us + 40 * plan.estimate_us +
           INT64_C(200000000);
}

static void begin(uint64_t seed, bool verbose)
{
    memset(&plan, 0, sizeof plan);
    sim_random_begin(seed);
    sim_clock_begin();
    sim_log_begin(verbose);
    sim_vfs_begin();
    sim_disk_begin();
    sim_network_begin(sim_coordinator_host);
    draw_jobs();
    draw_network();
    draw_coordinator();
    draw_workers();
    draw_faults();
    invariants_begin(plan.jobs, plan.n_jobs);
    sim_network_set_faults(&plan.network);
    sim_coordinator_begin(&plan.coordinator);
    sim_workers_begin(&plan.workers);
    sim_admins_begin(plan.jobs, plan.n_jobs, &plan.admin);
    sim_after(sim_around(plan.interval_us), misfortune, NULL, 0);
    sim_after(plan.calm_at_us, calm_down, NULL, 0);
}

static void end(void)
{
    sim_workers_end();
    sim_admins_end();
    sim_coordinator_end();
    sim_prepare_end();
    sim_network_end();
    invariants_end();
    sim_clock_end();
    sim_disk_end();
    for (int i = 0; i < plan.n_jobs; i++) {
        sim_job_fini(&plan.jobs[i]);
    }
}

void scenario_run(uint64_t seed, bool verbose, struct scenario_result *ret_result)
{
    begin(seed, verbose);
    uint64_t n_events = 0;
    while (sim_violated() == NULL && !invariants_all_ended() && sim_now_us() < end_us() &&
           sim_step()) {
        n_events++;
    }
    if (sim_violated() == NULL) {
        invariants_check_end();
    }
    sim_note("scenario", "%s", sim_violated() != NULL ? sim_violated() : "all jobs have ended");
    const char *violation = sim_violated();
    *ret_result = (struct scenario_result){
        .ok = violation == NULL, .digest = sim_log_digest(), .n_events = n_events};
    snprintf(ret_result->violation, sizeof ret_result->violation, "%s",
             violation != NULL ? violation : "");
    end();
}
