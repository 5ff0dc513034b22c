/* routes: every address of the coordinator. */
#include <stddef.h>

#include "services/coordinator/internal.h"

const struct route ROUTES[] = {
    /* Those that are called most are looked at first. */
    {"POST", "/tally.v1.WorkerService/PostUpdate", ROUTE_WORKER, true, worker_update, AT_SESSION},
    {"POST", "/tally.v1.WorkerService/PollTask", ROUTE_WORKER, true, worker_poll, AT_SESSION},
    {"POST", "/tally.v1.WorkerService/Join", ROUTE_WORKER, true, worker_join, AT_WORKERS_JOB},
    {"POST", "/tally.v1.WorkerService/Leave", ROUTE_WORKER, true, worker_leave, AT_SESSION},
    {"POST", "/v1/jobs", ROUTE_ADMIN, true, post_job, AT_ANY},
    {"GET", "/v1/jobs", ROUTE_ADMIN, false, list_jobs, AT_ANY},
    {"GET", "/v1/jobs/{id}", ROUTE_ADMIN, false, get_job, AT_LEADER_OR_STORE},
    {"POST", "/v1/jobs/{id}/cancel", ROUTE_ADMIN, true, cancel_job, AT_LEADER},
    {"POST", "/v1/jobs/{id}/pause", ROUTE_ADMIN, true, pause_job, AT_LEADER},
    {"POST", "/v1/jobs/{id}/resume", ROUTE_ADMIN, true, resume_job, AT_LEADER},
    {"GET", "/v1/jobs/{id}/rounds", ROUTE_ADMIN, false, get_rounds, AT_ANY},
    {"GET", "/v1/jobs/{id}/rounds.csv", ROUTE_ADMIN, false, get_rounds_csv, AT_ANY},
    {"GET", "/v1/jobs/{id}/model", ROUTE_ADMIN, false, get_model, AT_LEADER},
    {"GET", "/v1/jobs/{id}/series", ROUTE_ADMIN, false, get_series, AT_ANY},
    {"GET", "/v1/jobs/{id}/events", ROUTE_ADMIN, false, get_events, AT_ANY},
    {"GET", "/v1/workers", ROUTE_ADMIN, false, get_workers, AT_ANY},
    {"GET", "/healthz", ROUTE_PUBLIC, false, get_healthz, AT_ANY},
    {"GET", "/readyz", ROUTE_PUBLIC, false, get_readyz, AT_ANY},
    {"GET", "/metrics", ROUTE_METRICS, false, get_metrics, AT_ANY},
    {"GET", "/", ROUTE_PUBLIC, false, get_asset, AT_ANY},
    {"GET", "/assets/{id}", ROUTE_PUBLIC, false, get_asset, AT_ANY},
    {"GET", "/openapi.yaml", ROUTE_PUBLIC, false, get_asset, AT_ANY},
    {NULL, NULL, ROUTE_PUBLIC, false, NULL, AT_ANY},
};
