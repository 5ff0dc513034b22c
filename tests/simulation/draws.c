#include "tests/simulation/draws.h"

#include "tests/simulation/world/sim_random.h"

void draw_jobs(struct draws *draws)
{
    int64_t n_rounds = 0;
    draws->n_jobs = sim_chance(330) ? 2 : 1;
    for (int i = 0; i < draws->n_jobs; i++) {
        sim_job_draw(&draws->jobs[i], i, SIM_DRAW_OF(1, 3, 6));
        n_rounds += draws->jobs[i].n_rounds;
    }
    draws->network.delay_us = SIM_DRAW_OF(50, 1000, 20000);
    draws->workers.think_us = SIM_DRAW_OF(0, 500, 10000);
    draws->estimate_us =
        n_rounds * (5 * draws->network.delay_us + 3 * draws->workers.think_us + 1000);
}

void draw_network(struct draws *draws)
{
    struct sim_network_faults *faults = &draws->network;
    faults->lost_requests = (int)SIM_DRAW_OF(0, 0, 5, 50, 200);
    faults->lost_answers = (int)SIM_DRAW_OF(0, 0, 5, 50, 200);
    faults->silent = (int)SIM_DRAW_OF(0, 20, 200);
    faults->doubled = (int)SIM_DRAW_OF(0, 0, 20, 200);
    faults->late = (int)SIM_DRAW_OF(0, 0, 10, 50);
}

/* Enough slots for all clients of every job or, with every second job, of its cohort; sometimes
 * more. */
void draw_workers(struct draws *draws)
{
    int64_t need = 0, have = 0;
    for (int i = 0; i < draws->n_jobs; i++) {
        const struct tally_job_spec *spec = &draws->jobs[i].spec;
        const int64_t least = spec->seed % 2 != 0 ? spec->clients : tally_job_spec_slots(spec);
        need = least > need ? least : need;
    }
    need += sim_chance(400) ? sim_between(1, 3) : 0;
    struct sim_workers_config *workers = &draws->workers;
    const int64_t most = SIM_DRAW_OF(1, 2, 6);
    while (have < need && workers->n_workers < SIM_MAX_WORKERS) {
        const int64_t slots = sim_between(1, most);
        workers->slots[workers->n_workers++] = (uint32_t)slots;
        have += slots;
    }
    workers->wait_ms = (uint32_t)SIM_DRAW_OF(200, 2000, 20000);
    workers->restart_us = SIM_DRAW_OF(2000, 100000, 2000000);
    workers->renamed = (int)SIM_DRAW_OF(0, 300, 1000);
}
