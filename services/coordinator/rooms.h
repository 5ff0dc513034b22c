/* rooms: what all rooms see of the coordinator: common data, and a pointer to each room's struct.
 *
 * The structs are incomplete here. A file sees the members of a struct only if its room may include
 * the header that defines it, so no room can depend on a higher one:
 *
 *     metrics -> rest -> replicas -> workers -> sessions -> jobs -> turn -> calls -> access
 *
 * coordinator.c makes all of them and sets the callbacks from lower rooms to higher ones. */
#ifndef TALLY_SERVICES_COORDINATOR_ROOMS_H
#define TALLY_SERVICES_COORDINATOR_ROOMS_H

#include <stdbool.h>
#include <stdint.h>

#include "services/coordinator/coordinator.h"

/* What the lower rooms know of other replicas. The room `replicas` updates it. All zero = there are
 * no other replicas. */
struct replica_view {
    bool is_shared;               /* several replicas share the store */
    int64_t number;               /* of this replica; 0 = has not joined */
    int64_t serves_until_ms;      /* monotonic; end of the lease, if is_shared */
    int64_t n_jobs, n_free_slots; /* of the other replicas */
    int64_t held_back_key; /* key of a job elsewhere, for which queued jobs with a higher key wait;
                              0 = none */
    bool has_held_back;    /* set when read: a queued job here waited for that job */
};

struct tally_coordinator {
    struct tally_store *store;
    struct tally_coordinator_config config;
    bool draining; /* shutting down: hands out no more tasks */
    struct replica_view view;
    struct calls *calls;             /* calls.h */
    struct transaction *transaction; /* loop_transaction.h */
    struct turn *turn;               /* loop.h */
    struct live_jobs *jobs;          /* jobs_live.h */
    struct workers *workers;         /* workers.h */
    struct replicas *replicas;       /* replicas.h; NULL = not shared */
    struct forwarding *forwarding;   /* replicas_forwarding.h; NULL = not shared */
    struct events *events;           /* rest_events.h */
    struct series_cache *series;     /* rest_series.h */
    struct plans *plans;             /* rest_plans.h */
    struct metrics *metrics;         /* metrics.h */
};

/* Whether this replica may answer for its jobs at monotonic time now_ms. */
static inline bool may_serve(const struct replica_view *view, int64_t now_ms)
{
    return !view->is_shared || now_ms < view->serves_until_ms;
}

#endif
