#include "tests/simulation/programs/sim_worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/base/signals.h"
#include "services/worker/worker.h"
#include "tests/simulation/checks/invariants.h"
#include "tests/simulation/programs/sim_training.h"
#include "tests/simulation/world/sim.h"
#include "tests/simulation/world/sim_clock.h"
#include "tests/simulation/world/sim_process.h"
#include "tests/simulation/world/sim_random.h"

struct worker {
    struct sim_process process;
    struct worker_config config;
    char name[32]; /* of the process that runs now */
    int number, n_names;
    int64_t slowness_us;
    bool is_double; /* runs beside another worker of its name, until the calm */
};

static struct {
    struct sim_workers_config config;
    struct worker workers[SIM_MAX_WORKERS + 1]; /* the last one is the double */
    bool is_calm, has_ended;
} all;

static void start(void *context, int64_t argument);

static bool wait_for_stop(void *context, int timeout_ms)
{
    (void)context;
    return tally_signals_wait(timeout_ms);
}

static void run(void *context)
{
    struct worker *worker = context;
    worker->config.stop = (struct worker_stop){.flag = tally_signals_stop(), .wait = wait_for_stop};
    struct worker_totals totals;
    struct tally_error err = TALLY_ERROR_INIT;
    const enum tally_status status = worker_run(&worker->config, &totals, &err);
    if (status != TALLY_OK && !worker->process.is_killed) {
        sim_note(worker->name, "ends: %s", err.message);
        invariants_see_worker_end(worker->name, &err);
    }
}

/* Starts it again, as a supervisor would. */
static void on_end(void *context)
{
    struct worker *worker = context;
    if (all.has_ended || worker->is_double) {
        return;
    }
    sim_after(sim_around(all.config.restart_us), start, worker, 0);
}

static void start(void *context, int64_t argument)
{
    struct worker *worker = context;
    (void)argument;
    if (worker->process.fiber != NULL || all.has_ended) {
        return;
    }
    if (!all.is_calm && worker->n_names > 0 && sim_chance(all.config.renamed)) {
        worker->n_names++;
    }
    worker->n_names += worker->n_names == 0;
    if (!worker->is_double) {
        snprintf(worker->name, sizeof worker->name, "worker-%d.%d", worker->number,
                 worker->n_names);
    }
    snprintf(worker->process.peer.name, sizeof worker->process.peer.name, "%s%s", worker->name,
             worker->is_double ? " (2)" : "");
    worker->config.name = worker->name;
    sim_note(worker->process.peer.name, "started, %u slots", worker->config.slots);
    sim_process_start(&worker->process, run, on_end, worker);
}

void sim_workers_begin(const struct sim_workers_config *config)
{
    memset(&all, 0, sizeof all);
    all.config = *config;
    sim_training_begin();
    for (int i = 0; i <= SIM_MAX_WORKERS; i++) {
        struct worker *worker = &all.workers[i];
        worker->number = i;
        worker->process.peer.place = SIM_FIRST_WORKER_PLACE + i;
        worker->config = (struct worker_config){.coordinator_url = "http://simulated",
                                                .slots = 1,
                                                .wait_ms = config->wait_ms,
                                                .data_dir = SIM_DATA_DIR,
                                                .plugins = sim_training_plugins(),
                                                .environment = "{\"version\": \"simulated\"}"};
    }
    for (int i = 0; i < config->n_workers; i++) {
        all.workers[i].config.slots = config->slots[i];
        sim_after(sim_around(1000), start, &all.workers[i], 0);
    }
}

void sim_workers_end(void)
{
    all.has_ended = true;
    for (int i = 0; i <= SIM_MAX_WORKERS; i++) {
        sim_process_kill(&all.workers[i].process, true);
    }
}

static struct worker *draw_worker(void)
{
    return &all.workers[sim_between(0, all.config.n_workers - 1)];
}

void sim_worker_kill(void)
{
    struct worker *worker = draw_worker();
    const bool unseen = sim_chance(200); /* its machine died with it */
    sim_note(worker->process.peer.name, "killed%s", unseen ? ", unseen" : "");
    sim_process_kill(&worker->process, unseen);
}

void sim_worker_terminate(void)
{
    struct worker *worker = draw_worker();
    sim_note(worker->process.peer.name, "terminated");
    sim_process_terminate(&worker->process);
}

void sim_worker_pause(int64_t us)
{
    struct worker *worker = draw_worker();
    sim_note(worker->process.peer.name, "stopped for %.3f s", (double)us / 1e6);
    worker->process.peer.paused_until_us = sim_now_us() + us;
}

void sim_worker_partition(int64_t us)
{
    struct worker *worker = draw_worker();
    sim_note(worker->process.peer.name, "cut off for %.3f s", (double)us / 1e6);
    worker->process.peer.partitioned_until_us = sim_now_us() + us;
}

void sim_worker_slow_down(int64_t us)
{
    struct worker *worker = draw_worker();
    sim_note(worker->process.peer.name, "slow: %.3f s more per request", (double)us / 1e6);
    worker->slowness_us = us;
}

void sim_worker_start_double(void)
{
    struct worker *twin = &all.workers[SIM_MAX_WORKERS];
    const struct worker *worker = draw_worker();
    if (twin->process.fiber == NULL && worker->name[0] != '\0') {
        memcpy(twin->name, worker->name, sizeof twin->name);
        twin->config.slots = worker->config.slots;
        twin->is_double = true;
        start(twin, 0);
    }
}

void sim_workers_calm(void)
{
    all.is_calm = true;
    for (int i = 0; i <= SIM_MAX_WORKERS; i++) {
        all.workers[i].slowness_us = 0;
        all.workers[i].process.peer.partitioned_until_us = 0;
        /* Pauses are kept: events that wait for their end are already scheduled. */
    }
    sim_process_kill(&all.workers[SIM_MAX_WORKERS].process, false);
}

const char *sim_worker_speaking(void)
{
    const struct sim_process *process = sim_process_self();
    return process != NULL ? process->peer.name : NULL;
}

void sim_worker_said(const char *event, const char *text)
{
    if (!sim_process_self()->is_killed) {
        invariants_see_worker_log(sim_worker_speaking(), event, text);
    }
}

void sim_worker_think(void)
{
    const struct sim_process *process = sim_process_self();
    const struct worker *worker = process->context;
    if (process->stop == 0) {
        sim_process_sleep(sim_around(all.config.think_us) + worker->slowness_us);
    }
}
