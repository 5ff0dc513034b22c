/* routes: every address of the coordinator. */
#include <stddef.h>

#include "services/coordinator/internal.h"

const struct route ROUTES[] = {
    /* Those that are called most are looked at first. */
    {"POST", "/tally.v1.WorkerService/PostUpdate", ROUTE_WORKER, true, worker_update},
    {"POST", "/tally.v1.WorkerService/PollTask", ROUTE_WORKER, true, worker_poll},
    {"POST", "/tally.v1.WorkerService/Join", ROUTE_WORKER, true, worker_join},
    {"POST", "/tally.v1.WorkerService/Leave", ROUTE_WORKER, true, worker_leave},
    {"POST", "/v1/jobs", ROUTE_ADMIN, true, post_job},
    {"GET", "/v1/jobs", ROUTE_ADMIN, false, list_jobs},
    {"GET", "/v1/jobs/{id}", ROUTE_ADMIN, false, get_job},
    {"POST", "/v1/jobs/{id}/cancel", ROUTE_ADMIN, true, cancel_job},
    {"POST", "/v1/jobs/{id}/pause", ROUTE_ADMIN, true, pause_job},
    {"POST", "/v1/jobs/{id}/resume", ROUTE_ADMIN, true, resume_job},
    {"GET", "/v1/jobs/{id}/rounds", ROUTE_ADMIN, false, get_rounds},
    {"GET", "/v1/jobs/{id}/rounds.csv", ROUTE_ADMIN, false, get_rounds_csv},
    {"GET", "/v1/jobs/{id}/model", ROUTE_ADMIN, false, get_model},
    {"GET", "/v1/jobs/{id}/series", ROUTE_ADMIN, false, get_series},
    {"GET", "/v1/jobs/{id}/events", ROUTE_ADMIN, false, get_events},
    {"GET", "/v1/workers", ROUTE_ADMIN, false, get_workers},
    {"GET", "/healthz", ROUTE_PUBLIC, false, get_healthz},
    {"GET", "/readyz", ROUTE_PUBLIC, false, get_readyz},
    {"GET", "/metrics", ROUTE_METRICS, false, get_metrics},
    {"GET", "/", ROUTE_PUBLIC, false, get_asset},
    {"GET", "/assets/{id}", ROUTE_PUBLIC, false, get_asset},
    {"GET", "/openapi.yaml", ROUTE_PUBLIC, false, get_asset},
    {NULL, NULL, ROUTE_PUBLIC, false, NULL},
};
