/* workers_service: the methods of tally.v1.WorkerService, worker.proto. Those for updates are in
 * workers_updates.c. */
#ifndef TALLY_SERVICES_COORDINATOR_WORKERS_SERVICE_H
#define TALLY_SERVICES_COORDINATOR_WORKERS_SERVICE_H

#include "services/coordinator/call.h"

/* Part of a worker's request has arrived, and the rest takes long: notes whose it is. Returns false
 * if more of it is needed for that. */
bool worker_part(struct tally_coordinator *coordinator, const struct call *call);

handler_fn worker_join, worker_poll, worker_update, worker_updates, worker_progress, worker_leave;

#endif
