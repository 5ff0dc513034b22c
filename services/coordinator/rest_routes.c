/* rest_routes: every address of the coordinator, with its handler. */
#include <stddef.h>

#include "services/coordinator/metrics.h"
#include "services/coordinator/rest_handlers.h"
#include "services/coordinator/rest_routes.h"
#include "services/coordinator/workers_service.h"

const struct route ROUTES[] = {
    /* The most frequent routes come first, to be matched first. */
    {"POST", "/tally.v1.WorkerService/PostUpdate", ROUTE_WORKER, ROUTE_WRITES | ROUTE_IS_UPDATE,
     worker_update, AT_SESSION},
    {"POST", "/tally.v1.WorkerService/PostUpdates", ROUTE_WORKER,
     ROUTE_WRITES | ROUTE_IS_UPDATE | ROUTE_IS_BATCH, worker_updates, AT_SESSION},
    {"POST", "/tally.v1.WorkerService/PollTask", ROUTE_WORKER,
     ROUTE_WRITES | ROUTE_IS_POLL | ROUTE_ASKS_WORK, worker_poll, AT_SESSION},
    {"POST", "/tally.v1.WorkerService/Join", ROUTE_WORKER,
     ROUTE_WRITES | ROUTE_IN_MEMORY | ROUTE_ASKS_WORK, worker_join, AT_WORKERS_JOB},
    {"POST", "/tally.v1.WorkerService/Progress", ROUTE_WORKER, ROUTE_WRITES | ROUTE_IN_MEMORY,
     worker_progress, AT_SESSION},
    {"POST", "/tally.v1.WorkerService/Leave", ROUTE_WORKER, ROUTE_WRITES | ROUTE_IN_MEMORY,
     worker_leave, AT_SESSION},
    {"POST", "/v1/jobs", ROUTE_ADMIN, ROUTE_WRITES, post_job, AT_ANY},
    {"GET", "/v1/jobs", ROUTE_ADMIN, ROUTE_IN_PIECES, list_jobs, AT_ANY},
    {"GET", "/v1/jobs/{id}", ROUTE_ADMIN, 0, get_job, AT_LEADER_OR_STORE},
    {"DELETE", "/v1/jobs/{id}", ROUTE_ADMIN, ROUTE_WRITES, delete_job, AT_LEADER},
    {"POST", "/v1/jobs/{id}/cancel", ROUTE_ADMIN, ROUTE_WRITES, cancel_job, AT_LEADER},
    {"POST", "/v1/jobs/{id}/pause", ROUTE_ADMIN, ROUTE_WRITES, pause_job, AT_LEADER},
    {"POST", "/v1/jobs/{id}/resume", ROUTE_ADMIN, ROUTE_WRITES, resume_job, AT_LEADER},
    {"GET", "/v1/jobs/{id}/rounds", ROUTE_ADMIN, ROUTE_IN_PIECES, get_rounds, AT_ANY},
    {"GET", "/v1/jobs/{id}/rounds.csv", ROUTE_ADMIN, ROUTE_IN_PIECES, get_rounds_csv, AT_ANY},
    {"GET", "/v1/jobs/{id}/metrics", ROUTE_ADMIN, ROUTE_IN_PIECES, get_client_metrics, AT_ANY},
    {"GET", "/v1/jobs/{id}/traffic", ROUTE_ADMIN, ROUTE_IN_PIECES, get_client_traffic,
     AT_LEADER_OR_STORE},
    {"GET", "/v1/jobs/{id}/model", ROUTE_ADMIN, ROUTE_IN_PIECES, get_model, AT_LEADER},
    {"GET", "/v1/jobs/{id}/series", ROUTE_ADMIN, ROUTE_IN_PIECES, get_series, AT_ANY},
    {"GET", "/v1/jobs/{id}/events", ROUTE_ADMIN, ROUTE_IN_PIECES, get_events, AT_ANY},
    {"GET", "/v1/workers", ROUTE_ADMIN, 0, get_workers, AT_ANY},
    {"GET", "/healthz", ROUTE_PUBLIC, ROUTE_IS_BRIEF, get_healthz, AT_ANY},
    {"GET", "/readyz", ROUTE_PUBLIC, 0, get_readyz, AT_ANY},
    {"GET", "/metrics", ROUTE_METRICS, 0, get_metrics, AT_ANY},
    {"GET", "/", ROUTE_PUBLIC, ROUTE_IS_BRIEF, get_asset, AT_ANY},
    {"GET", "/assets/{id}", ROUTE_PUBLIC, ROUTE_IS_BRIEF, get_asset, AT_ANY},
    {"GET", "/openapi.yaml", ROUTE_PUBLIC, ROUTE_IS_BRIEF, get_asset, AT_ANY},
    {NULL, NULL, ROUTE_PUBLIC, 0, NULL, AT_ANY},
};
