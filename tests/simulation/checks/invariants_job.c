#include "tests/simulation/checks/invariants_job.h"

#include <stdlib.h>
#include <string.h>

#include "tests/simulation/checks/lease_invariants.h"
#include "tests/simulation/programs/sim_replica.h"
#include "tests/simulation/world/sim.h"
#include "tests/simulation/world/sim_clock.h"

struct invariants_seen seen;

bool invariants_is_current(const struct invariants_job *watch)
{
    const struct sim_replica *replica = sim_replica_self();
    return !seen.is_stale &&
           (!seen.source.is_shared ||
            lease_invariants_leads(sim_replica_index(replica), watch->row.key, seen.age_us));
}

bool invariants_is_stopped(const struct invariants_job *watch)
{
    return strcmp(watch->row.progress.stopped.rule, "seconds") == 0;
}

size_t invariants_n_updates(const struct invariants_job *watch)
{
    return (size_t)watch->max_rounds * (size_t)watch->job->spec.clients;
}

/* Resets to the state before the store is read, when only the fault-free run is known. */
static void forget(struct invariants_job *watch)
{
    const struct sim_job *job = watch->job;
    /* One round more, in which the last model is evaluated. */
    const size_t n = (size_t)(job->n_rounds + 1) * (size_t)job->spec.clients;
    watch->is_known = false;
    watch->row = (struct tally_store_job){0};
    watch->n_records = 0;
    watch->sum = (struct tally_ledger){0};
    watch->has_scaling = false;
    memset(watch->surveyed, 0, (size_t)job->spec.clients * sizeof(uint64_t));
    watch->dropped_in_round = INT64_MAX;
    watch->dropped_at_iterate = INT64_MAX;
    memset(watch->acknowledged, 0, invariants_n_updates(watch) * sizeof(uint64_t));
    memset(watch->failing, 0, invariants_n_updates(watch) * sizeof(uint64_t));
    sim_replay_free(watch->replay);
    watch->replay = NULL;
    memset(watch->sent, 0, invariants_n_updates(watch) * sizeof(uint64_t));
    memcpy(watch->sent, job->updates, n * sizeof(uint64_t));
    memset(watch->checksums, 0, ((size_t)watch->max_rounds + 2) * sizeof(uint64_t));
    memcpy(watch->checksums, job->checksums, sizeof job->checksums);
}

void invariants_begin(const struct sim_job *jobs, int n_jobs,
                      const struct invariants_source *source)
{
    memset(&seen, 0, sizeof seen);
    seen.n = n_jobs;
    seen.source = *source;
    for (int i = 0; i < n_jobs; i++) {
        struct invariants_job *watch = &seen.watches[i];
        watch->job = &jobs[i];
        watch->max_rounds = jobs[i].spec.horizon + SIM_MAX_ROUNDS; /* a round takes a step */
        watch->surveyed = sim_new((size_t)jobs[i].spec.clients * sizeof(uint64_t));
        watch->acknowledged = sim_new(invariants_n_updates(watch) * sizeof(uint64_t));
        watch->sent = sim_new(invariants_n_updates(watch) * sizeof(uint64_t));
        watch->failing = sim_new(invariants_n_updates(watch) * sizeof(uint64_t));
        watch->checksums = sim_new(((size_t)watch->max_rounds + 2) * sizeof(uint64_t));
        watch->stored = sim_new((size_t)jobs[i].spec.clients * sizeof(uint64_t));
        watch->payload_bits = sim_new(((size_t)watch->max_rounds + 1) * sizeof(int64_t));
        forget(watch);
    }
}

void invariants_end(void)
{
    for (int i = 0; i < seen.n; i++) {
        free(seen.watches[i].surveyed);
        free(seen.watches[i].acknowledged);
        free(seen.watches[i].sent);
        free(seen.watches[i].failing);
        sim_replay_free(seen.watches[i].replay);
        free(seen.watches[i].checksums);
        free(seen.watches[i].stored);
        free(seen.watches[i].payload_bits);
    }
    seen.n = 0;
}

struct invariants_job *invariants_job_named(const char *name)
{
    for (int i = 0; i < seen.n; i++) {
        if (strcmp(seen.watches[i].job->name, name) == 0) {
            return &seen.watches[i];
        }
    }
    return NULL;
}

struct invariants_job *invariants_job(const char *id)
{
    for (int i = 0; i < seen.n; i++) {
        if (seen.watches[i].is_known && strcmp(seen.watches[i].row.id, id) == 0) {
            return &seen.watches[i];
        }
    }
    return NULL;
}

uint64_t *invariants_at_update(const struct invariants_job *watch, uint64_t *digests, int64_t round,
                               int64_t client)
{
    const bool is_there = round >= 1 && round <= watch->max_rounds && client >= 0 &&
                          client < watch->job->spec.clients;
    return is_there ? &digests[(round - 1) * watch->job->spec.clients + client] : NULL;
}

bool invariants_is_point(const struct invariants_job *watch, int64_t iterate, uint64_t checksum)
{
    if (iterate < 1 || iterate > watch->max_rounds) {
        return false;
    }
    if (watch->checksums[iterate] == 0) {
        watch->checksums[iterate] = checksum;
    }
    return watch->checksums[iterate] == checksum;
}

static void begin_waits_anew(void)
{
    for (int i = 0; i < seen.n; i++) {
        seen.watches[i].moved_us = sim_now_us();
    }
}

void invariants_see_restart(void)
{
    const struct sim_replica *replica = sim_replica_self();
    if (replica != NULL) {
        seen.serves[sim_replica_index(replica)] = false;
    }
    begin_waits_anew();
    seen.is_stale = true;
    invariants_check();
}

/* After some events jobs are reloaded from the store, and their rounds begin anew. */
void invariants_see_coordinator_log(const char *event)
{
    static const char *const BEGINS[] = {"write failed",
                                         "job taken over",
                                         "stepping up",
                                         "job cannot be taken over yet",
                                         "cannot look for jobs to take over",
                                         "heartbeat failed"};
    const struct sim_replica *replica = sim_replica_self();
    if (replica != NULL && strncmp(event, "stepping ", 9) == 0) {
        seen.serves[sim_replica_index(replica)] = strcmp(event, "stepping up") == 0;
    }
    for (size_t i = 0; i < sizeof BEGINS / sizeof BEGINS[0]; i++) {
        if (strcmp(event, BEGINS[i]) == 0) {
            begin_waits_anew();
        }
    }
}

void invariants_see_power_cut(bool power_loss_safe)
{
    if (power_loss_safe) {
        return;
    }
    seen.has_gone_back = true;
    for (int i = 0; i < seen.n; i++) {
        struct invariants_job *watch = &seen.watches[i];
        watch->has_two_histories |= watch->dropped_in_round != INT64_MAX;
        if (watch->n_records > watch->lost_rounds) {
            watch->lost_rounds = watch->n_records;
        }
        forget(watch);
    }
}

void invariants_allow_cancel(const struct sim_job *job)
{
    invariants_job_named(job->name)->may_be_cancelled = true;
}

bool invariants_all_ended(void)
{
    for (int i = 0; i < seen.n; i++) {
        const struct invariants_job *watch = &seen.watches[i];
        if (!watch->is_known || !tally_job_status_is_terminal(watch->row.status)) {
            return false;
        }
    }
    return true;
}
