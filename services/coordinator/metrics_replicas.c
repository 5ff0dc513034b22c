/* metrics_replicas: the part of /metrics that is about other coordinators on the same store, and
 * the counters of such a store. */
#include "services/base/time.h"
#include "services/coordinator/metrics.h"
#include "services/coordinator/replicas.h"
#include "services/coordinator/rooms.h"

static void write_store(const struct tally_coordinator *coordinator, struct exposition *exposition)
{
    const struct tally_store *store = coordinator->store;
    if (store->ops->counters == NULL) {
        return;
    }
    const struct tally_store_counters counters = store->ops->counters(store);
    exposition_one(exposition, "tally_store_retried_conflicts_total", EXPOSITION_COUNTER,
                   "Transactions retried after a conflict with another coordinator.",
                   counters.retried_conflicts);
    exposition_one(exposition, "tally_store_reconnects_total", EXPOSITION_COUNTER,
                   "Times that the connection to the store was made again.", counters.reconnects);
    exposition_one(exposition, "tally_store_fenced_writes_total", EXPOSITION_COUNTER,
                   "Writes refused because another coordinator leads the job.",
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
    exposition_each(exposition, "tally_replicas", EXPOSITION_GAUGE,
                    "Coordinators on this store, this one among them, as it saw them last: alive, "
                    "or silent without having left.",
                    "state", (const char *const[]){"alive", "dead"},
                    (uint64_t[]){(uint64_t)n_alive, (uint64_t)n_dead}, 2);
    exposition_one(exposition, "tally_replica_serves", EXPOSITION_GAUGE,
                   "1 while this coordinator holds its leases; 0: it has stepped down.",
                   may_serve(&coordinator->view, tally_monotonic_ms()));
    exposition_one(exposition, "tally_replica_failed_heartbeats_total", EXPOSITION_COUNTER,
                   "Heartbeats that the store did not accept.", metrics->failed_heartbeats);
    exposition_one(exposition, "tally_replica_step_downs_total", EXPOSITION_COUNTER,
                   "Times that no heartbeat succeeded for a whole lease.", metrics->step_downs);
    exposition_one(exposition, "tally_replica_jobs_taken_total", EXPOSITION_COUNTER,
                   "Jobs taken over from coordinators that died or left, or given by others.",
                   metrics->jobs_taken);
    exposition_one(exposition, "tally_replica_jobs_lost_total", EXPOSITION_COUNTER,
                   "Jobs that others took over from this coordinator.", metrics->jobs_lost);
    exposition_one(exposition, "tally_replica_jobs_given_total", EXPOSITION_COUNTER,
                   "Queued jobs given to a coordinator with free slots.", metrics->jobs_given);
    exposition_one(exposition, "tally_replica_workers_given_total", EXPOSITION_COUNTER,
                   "Idle workers sent to a coordinator that lacks slots.", metrics->workers_given);
}
