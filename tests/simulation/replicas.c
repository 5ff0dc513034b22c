#include <stdio.h>
#include <string.h>

#include "tests/simulation/checks/invariants.h"
#include "tests/simulation/checks/lease_invariants.h"
#include "tests/simulation/draws.h"
#include "tests/simulation/programs/sim_admin.h"
#include "tests/simulation/programs/sim_replica.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/storage/sim_database.h"
#include "tests/simulation/storage/sim_store.h"
#include "tests/simulation/world/sim.h"
#include "tests/simulation/world/sim_clock.h"
#include "tests/simulation/world/sim_random.h"

/* Several coordinators on one database.
 *
 * What a seed has drawn. As with one coordinator, not every seed knows every misfortune. */
static struct {
    struct draws draws;
    struct sim_replicas_config replicas;
    struct sim_store_faults store;
    struct sim_clocks database_clocks;
    struct sim_admin_config admin;
    int64_t estimate_us; /* including the database's delays */
    int64_t calm_at_us;  /* nothing fails from then on */
    int64_t interval_us; /* mean time between two misfortunes */
    bool is_calm;
    unsigned kinds; /* bits of enum misfortune that this seed knows */
} plan;

enum misfortune {
    KILL,
    KILL_WITHIN,
    PAUSE,
    PAUSE_WITHIN,
    CUT_OFF,
    CUT_OFF_WITHIN,
    DRAIN,
    DRAIN_WITHIN,
    ROLLING_RESTART,
    CUT_DATABASE,
    CUT_APART,
    CUT_WORKER,
    DATABASE_CRASH,
    DATABASE_CLOCK_JUMP,
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

static struct sim_clocks draw_clocks(void)
{
    return (struct sim_clocks){.realtime_ms = sim_between(-2, 2) * SIM_DRAW_OF(10, 1000, 3600000),
                               .drift_ppm = sim_between(-2, 2) * SIM_DRAW_OF(10, 1000, 50000)};
}

static void draw_replicas(void)
{
    plan.replicas = (struct sim_replicas_config){
        .n = (int)SIM_DRAW_OF(2, 2, 3, 3, 4, 5),
        .lease_ms = SIM_DRAW_OF(500, 500, 1000, 3000),
        .session_timeout_ms = SIM_DRAW_OF(300, 3000, 10000),
        .batch_us = SIM_DRAW_OF(0, 200, 3000),
        .restart_us = SIM_DRAW_OF(5000, 300000, 3000000),
        .moves = (int)SIM_DRAW_OF(0, 30, 500),
    };
    const bool has_skew = sim_chance(500);
    for (int i = 0; has_skew && i < plan.replicas.n; i++) {
        plan.replicas.clocks[i] = draw_clocks();
    }
    if (has_skew) {
        plan.database_clocks = draw_clocks();
    }
    plan.store = (struct sim_store_faults){
        .delay_us = SIM_DRAW_OF(0, 100, 1000, 10000),
        .lost_requests = (int)SIM_DRAW_OF(0, 0, 2, 20),
        .lost_answers = (int)SIM_DRAW_OF(0, 0, 2, 20),
    };
}

static void draw_faults(void)
{
    enum { N_ROUND_TRIPS = 12 }; /* per round, approximately */
    const unsigned all = (1U << N_MISFORTUNES) - 1;
    plan.estimate_us = plan.draws.estimate_us;
    for (int i = 0; i < plan.draws.n_jobs; i++) {
        plan.estimate_us += plan.draws.jobs[i].n_rounds * N_ROUND_TRIPS * plan.store.delay_us;
    }
    plan.kinds = (unsigned)sim_random() & all;
    plan.kinds &= (unsigned)sim_random(); /* a quarter of them */
    if (sim_chance(600)) {
        plan.kinds |= 1U << sim_between(0, N_MISFORTUNES - 1);
    }
    plan.calm_at_us = plan.estimate_us * sim_between(1, 4) + 3000 * plan.replicas.lease_ms;
    plan.interval_us = (plan.calm_at_us / 2) / SIM_DRAW_OF(2, 5, 15) + 1;
    plan.admin = (struct sim_admin_config){.submit_after_us = sim_between(0, 200000),
                                           .look_us = plan.calm_at_us / 16 + 1000,
                                           .pauses = (int)SIM_DRAW_OF(0, 0, 100),
                                           .cancels = (int)SIM_DRAW_OF(0, 0, 0, 20)};
}

/* Misfortunes. */

/* Short, beyond the lease, or beyond the session's time-out. */
static int64_t draw_outage_us(void)
{
    return sim_around(SIM_DRAW_OF(plan.estimate_us / 5 + 1000, 1500 * plan.replicas.lease_ms,
                                  3000 * plan.replicas.lease_ms,
                                  1500 * plan.replicas.session_timeout_ms));
}

/* Strikes in the middle of an operation. */
static void strike_within(enum sim_fate fate, int64_t us)
{
    const bool at_commit = sim_chance(500);
    const int64_t n = sim_between(1, at_commit ? SIM_DRAW_OF(3, 20) : SIM_DRAW_OF(5, 50, 300));
    sim_replica_strike(fate, at_commit ? SIM_AT_COMMIT : SIM_AT_BOUNDARY, n, us);
}

static int64_t draw_jump_ms(void)
{
    return (sim_chance(500) ? 1 : -1) * SIM_DRAW_OF(100, 1000, 3600000);
}

static void strike(enum misfortune kind)
{
    switch (kind) {
    case KILL:
        sim_replica_strike(SIM_FATE_KILL, SIM_NOW, 0, 0);
        break;
    case KILL_WITHIN:
        strike_within(SIM_FATE_KILL, 0);
        break;
    case PAUSE:
        sim_replica_strike(SIM_FATE_PAUSE, SIM_NOW, 0, draw_outage_us());
        break;
    case PAUSE_WITHIN:
        strike_within(SIM_FATE_PAUSE, draw_outage_us());
        break;
    case CUT_OFF:
        sim_replica_strike(SIM_FATE_CUT, SIM_NOW, 0, draw_outage_us());
        break;
    case CUT_OFF_WITHIN:
        strike_within(SIM_FATE_CUT, draw_outage_us());
        break;
    case DRAIN:
        sim_replica_strike(SIM_FATE_DRAIN, SIM_NOW, 0, 0);
        break;
    case DRAIN_WITHIN:
        strike_within(SIM_FATE_DRAIN, 0);
        break;
    case ROLLING_RESTART:
        sim_replicas_roll(sim_around(plan.replicas.restart_us));
        break;
    case CUT_DATABASE:
        sim_replica_cut_database(draw_outage_us());
        break;
    case CUT_APART:
        sim_replica_cut_apart(draw_outage_us());
        break;
    case CUT_WORKER:
        sim_replica_cut_client(SIM_FIRST_WORKER_PLACE +
                                   (int)sim_between(0, plan.draws.workers.n_workers - 1),
                               draw_outage_us());
        break;
    case DATABASE_CRASH:
        sim_database_crash(draw_outage_us());
        break;
    case DATABASE_CLOCK_JUMP:
        sim_database_jump_clock(draw_jump_ms());
        break;
    case CLOCK_JUMP:
        sim_replica_jump_clock(draw_jump_ms());
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
    const struct sim_store_faults store_none = {.delay_us = plan.store.delay_us};
    sim_network_set_faults(&none);
    sim_store_set_faults(&store_none);
    sim_network_mend();
    sim_replicas_calm();
    sim_workers_calm();
    sim_admins_calm();
}

/* The run. */

/* As with one coordinator, plus time for leases to expire. */
static int64_t end_us(void)
{
    return plan.calm_at_us + 30000 * plan.replicas.session_timeout_ms +
           60000 * plan.replicas.lease_ms + 10 * plan.draws.workers.restart_us +
           10 * plan.replicas.restart_us + 40 * plan.estimate_us + INT64_C(200000000);
}

static void begin(void)
{
    memset(&plan, 0, sizeof plan);
    sim_network_begin(sim_replicas_balance);
    draw_jobs(&plan.draws);
    draw_network(&plan.draws);
    draw_replicas();
    draw_workers(&plan.draws);
    draw_faults();
    const struct invariants_source source = {
        .store = sim_database_observe, .n_changes = sim_database_n_changes, .is_shared = true};
    sim_note("scenario", "%d coordinators, lease %lld ms", plan.replicas.n,
             (long long)plan.replicas.lease_ms);
    sim_database_begin(&plan.database_clocks);
    invariants_begin(plan.draws.jobs, plan.draws.n_jobs, &source);
    lease_invariants_begin(plan.replicas.lease_ms);
    sim_network_set_faults(&plan.draws.network);
    sim_store_set_faults(&plan.store);
    sim_replicas_begin(&plan.replicas);
    sim_workers_begin(&plan.draws.workers);
    sim_admins_begin(plan.draws.jobs, plan.draws.n_jobs, &plan.admin);
    sim_after(sim_around(plan.interval_us), misfortune, NULL, 0);
    sim_after(plan.calm_at_us, calm_down, NULL, 0);
}

static void end(void)
{
    sim_workers_end();
    sim_admins_end();
    sim_replicas_end();
    sim_network_end();
    invariants_end();
    sim_database_end();
    sim_clock_end();
    for (int i = 0; i < plan.draws.n_jobs; i++) {
        sim_job_fini(&plan.draws.jobs[i]);
    }
}

const struct scenario_kind SCENARIO_REPLICAS = {.begin = begin, .end = end, .end_us = end_us};
