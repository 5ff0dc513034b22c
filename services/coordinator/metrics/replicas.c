/* replicas: the part of /metrics that is about other coordinators on the same store, and
 * about what a store of several has to count. */
#include "services/coordinator/replicas/replicas.h"
#include "services/base/time.h"
#include "services/coordinator/base/rooms.h"
#include "services/coordinator/metrics/metrics.h"

static void write_one(struct exposition *exposition, enum exposition_type type, const char *name,
                      const char *help, uint64_t value)
{
    exposition_family(exposition, name, type, help);
    exposition_unsigned(exposition, name, NULL, value);
}

static void write_store(const struct tally_coordinator *coordinator, struct exposition *exposition)
{
    const struct tally_store *store = coordinator->store;
    if (store->ops->counters == NULL) {
        return;
    }
    const struct tally_store_counters counters = store->ops->counters(store);
    write_one(exposition, EXPOSITION_COUNTER, "tally_store_retried_conflicts_total",
              "Transactions that met one of another coordinator and were run again.",
              counters.retried_conflicts);
    write_one(exposition, EXPOSITION_COUNTER, "tally_store_reconnects_total",
              "Connections to the store that were made anew.", counters.reconnects);
    write_one(exposition, EXPOSITION_COUNTER, "tally_store_fenced_writes_total",
              "Writes refused, as another coordinator leads the job by now.",
              counters.fenced_writes);
}

void metrics_write_replicas(struct tally_coordinator *coordinator, struct exposition *exposition)
{
    write_store(coordinator, exposition);
    if (!coordinator->view.is_shared) {
        return;
    }
    const struct replica_counts *metrics = replicas_counts(coordinator);
    int64_t n_alive, n_dead;
    replicas_count(coordinator, &n_alive, &n_dead);
    static const char REPLICAS[] = "tally_replicas";
    exposition_family(
        exposition, REPLICAS, EXPOSITION_GAUGE,
        "Coordinators on this store, this one among them, as it saw them last: alive, "
        "or silent without having left.");
    exposition_unsigned(exposition, REPLICAS, EXPOSITION_LABELS({"state", "alive"}),
                        (uint64_t)n_alive);
    exposition_unsigned(exposition, REPLICAS, EXPOSITION_LABELS({"state", "dead"}),
                        (uint64_t)n_dead);
    write_one(exposition, EXPOSITION_GAUGE, "tally_replica_serves",
              "1 while this coordinator holds its leases; 0: it has stepped down.",
              may_serve(&coordinator->view, tally_monotonic_ms()));
    write_one(exposition, EXPOSITION_COUNTER, "tally_replica_failed_heartbeats_total",
              "Heartbeats that the store did not take.", metrics->failed_heartbeats);
    write_one(exposition, EXPOSITION_COUNTER, "tally_replica_step_downs_total",
              "Times that no heartbeat succeeded for as long as a lease lasts.",
              metrics->step_downs);
    write_one(exposition, EXPOSITION_COUNTER, "tally_replica_jobs_taken_total",
              "Jobs taken over from coordinators that died or left, or given by others.",
              metrics->jobs_taken);
    write_one(exposition, EXPOSITION_COUNTER, "tally_replica_jobs_lost_total",
              "Jobs that others took over from this coordinator.", metrics->jobs_lost);
    write_one(exposition, EXPOSITION_COUNTER, "tally_replica_jobs_given_total",
              "Queued jobs given to a coordinator with free slots.", metrics->jobs_given);
    write_one(exposition, EXPOSITION_COUNTER, "tally_replica_workers_given_total",
              "Idle workers sent to a coordinator that lacks slots.", metrics->workers_given);
}
