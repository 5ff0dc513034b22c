#include "tests/simulation/scenario.h"

#include <stdio.h>
#include <string.h>

#include "tests/simulation/checks/invariants.h"
#include "tests/simulation/checks/sim_job.h"
#include "tests/simulation/draws.h"
#include "tests/simulation/programs/sim_admin.h"
#include "tests/simulation/programs/sim_coordinator.h"
#include "tests/simulation/programs/sim_worker.h"
#include "tests/simulation/storage/sim_disk.h"
#include "tests/simulation/storage/sim_vfs.h"
#include "tests/simulation/world/sim.h"
#include "tests/simulation/world/sim_clock.h"
#include "tests/simulation/world/sim_fiber.h"
#include "tests/simulation/world/sim_network.h"
#include "tests/simulation/world/sim_random.h"

/* One coordinator on SQLite over a disk that fails.
 *
 * What a seed has drawn. Not every seed draws every kind of misfortune, so that each kind also
 * occurs without the others. */
static struct {
    struct draws draws;
    struct sim_coordinator_config coordinator;
    struct sim_admin_config admin;
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

/* Draws. */

static void draw_coordinator(void)
{
    plan.coordinator = (struct sim_coordinator_config){
        .power_loss_safe = sim_chance(500),
        .session_timeout_ms = SIM_DRAW_OF(300, 3000, 10000),
        .batch_us = SIM_DRAW_OF(0, 200, 3000),
        .restart_us = SIM_DRAW_OF(5000, 300000, 3000000),
    };
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
        plan.kinds &= ~(1U << POWER_CUT); /* fewer seeds test the weaker guarantee */
    }
    plan.calm_at_us = plan.draws.estimate_us * sim_between(1, 4) + sim_between(10000, 500000);
    plan.interval_us = plan.draws.estimate_us / SIM_DRAW_OF(2, 5, 15) + 1;
    plan.admin = (struct sim_admin_config){.submit_after_us = sim_between(0, 50000),
                                           .look_us = plan.draws.estimate_us / 8 + 1000,
                                           .pauses = (int)SIM_DRAW_OF(0, 0, 100),
                                           .cancels = (int)SIM_DRAW_OF(0, 0, 0, 20)};
}

/* Misfortunes. */

/* Short or beyond the session's time-out. */
static int64_t draw_outage_us(void)
{
    return sim_around(sim_chance(700) ? plan.draws.estimate_us / 5 + 1000
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
    const int writes = (int)SIM_DRAW_OF(0, 20, 300), syncs = (int)SIM_DRAW_OF(0, 200),
              reads = (int)SIM_DRAW_OF(0, 0, 5);
    const bool is_full = sim_chance(500);
    sim_note("disk", "of 1000 writes %d fail, of syncs %d, of reads %d%s", writes, syncs, reads,
             is_full ? "; it is full" : "");
    sim_disk_set_faults(writes, syncs, reads, is_full);
    sim_after(draw_outage_us(), mend_disk, NULL, 0);
}

static void jump_clock(void)
{
    const int64_t ms = (sim_chance(500) ? 1 : -1) * SIM_DRAW_OF(1000, 3600000, 86400000);
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

/* Strikes once, and schedules the next misfortune. */
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
    const struct sim_network_faults none = {.delay_us = plan.draws.network.delay_us};
    sim_network_set_faults(&none);
    sim_disk_set_faults(0, 0, 0, false);
    sim_workers_calm();
    sim_admins_calm();
}

/* The run. */

/* Leaves time, after the calm, for outages that began before it, calls that time out (30 s) one
 * after the other, pauses between retries, and the jobs themselves. A job that has not ended by
 * then hangs. */
static int64_t end_us(void)
{
    return plan.calm_at_us + 30000 * plan.coordinator.session_timeout_ms +
           10 * plan.draws.workers.restart_us + 10 * plan.coordinator.restart_us +
           40 * plan.draws.estimate_us + INT64_C(200000000);
}

static void begin(void)
{
    memset(&plan, 0, sizeof plan);
    sim_vfs_begin();
    sim_disk_begin();
    sim_network_begin(sim_coordinator_host);
    draw_jobs(&plan.draws);
    draw_network(&plan.draws);
    draw_coordinator();
    draw_workers(&plan.draws);
    draw_faults();
    const struct invariants_source source = {.store = sim_coordinator_store,
                                             .n_changes = sim_disk_n_changes,
                                             .hold_faults = sim_disk_hold_faults};
    invariants_begin(plan.draws.jobs, plan.draws.n_jobs, &source);
    sim_network_set_faults(&plan.draws.network);
    sim_coordinator_begin(&plan.coordinator);
    sim_workers_begin(&plan.draws.workers);
    sim_admins_begin(plan.draws.jobs, plan.draws.n_jobs, &plan.admin);
    sim_after(sim_around(plan.interval_us), misfortune, NULL, 0);
    sim_after(plan.calm_at_us, calm_down, NULL, 0);
}

static void end(void)
{
    sim_workers_end();
    sim_admins_end();
    sim_coordinator_end();
    sim_network_end();
    invariants_end();
    sim_clock_end();
    sim_disk_end();
    for (int i = 0; i < plan.draws.n_jobs; i++) {
        sim_job_fini(&plan.draws.jobs[i]);
    }
}

const struct scenario_kind SCENARIO_ONE_COORDINATOR = {
    .begin = begin, .end = end, .end_us = end_us};
