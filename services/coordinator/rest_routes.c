/* rest_routes: every address of the coordinator, with its handler. */
#include "services/coordinator/rest_routes.h"

#include <stddef.h>

#include "services/base/time.h"
#include "services/coordinator/coordinator.h"
#include "services/coordinator/loop_transaction.h"
#include "services/coordinator/metrics.h"
#include "services/coordinator/workers.h"
#include "services/dashboard/dashboard.h"

static handler_fn get_healthz, get_readyz, get_asset;

const struct route ROUTES[] = {
    /* The most frequent routes come first, to be matched first. */
    {"POST", "/tally.v1.WorkerService/PostUpdate", ROUTE_WORKER, ROUTE_WRITES | ROUTE_IS_UPDATE,
     workers_update, AT_SESSION},
    {"POST", "/tally.v1.WorkerService/PollTask", ROUTE_WORKER,
     ROUTE_WRITES | ROUTE_IS_POLL | ROUTE_ASKS_WORK, workers_poll, AT_SESSION},
    {"POST", "/tally.v1.WorkerService/Join", ROUTE_WORKER,
     ROUTE_WRITES | ROUTE_IN_MEMORY | ROUTE_ASKS_WORK, workers_join, AT_WORKERS_JOB},
    {"POST", "/tally.v1.WorkerService/Progress", ROUTE_WORKER, ROUTE_WRITES | ROUTE_IN_MEMORY,
     workers_progress, AT_SESSION},
    {"POST", "/tally.v1.WorkerService/Describe", ROUTE_WORKER, ROUTE_WRITES, workers_describe,
     AT_SESSION},
    {"POST", "/tally.v1.WorkerService/Leave", ROUTE_WORKER, ROUTE_WRITES | ROUTE_IN_MEMORY,
     workers_leave, AT_SESSION},
    {"POST", "/v1/jobs", ROUTE_ADMIN, ROUTE_WRITES, rest_post_job, AT_ANY},
    {"POST", "/v1/jobs/import", ROUTE_ADMIN, ROUTE_WRITES | ROUTE_TAKES_TAR, rest_import_job,
     AT_ANY},
    {"GET", "/v1/jobs", ROUTE_ADMIN, ROUTE_IN_PIECES, rest_list_jobs, AT_ANY},
    {"GET", "/v1/jobs/{id}", ROUTE_ADMIN, 0, rest_get_job, AT_LEADER_OR_STORE},
    {"GET", "/v1/jobs/{id}/document", ROUTE_ADMIN, 0, rest_get_document, AT_ANY},
    {"DELETE", "/v1/jobs/{id}", ROUTE_ADMIN, ROUTE_WRITES, rest_delete_job, AT_LEADER},
    {"POST", "/v1/jobs/{id}/cancel", ROUTE_ADMIN, ROUTE_WRITES, rest_cancel_job, AT_LEADER},
    {"POST", "/v1/jobs/{id}/pause", ROUTE_ADMIN, ROUTE_WRITES, rest_pause_job, AT_LEADER},
    {"POST", "/v1/jobs/{id}/resume", ROUTE_ADMIN, ROUTE_WRITES, rest_resume_job, AT_LEADER},
    {"GET", "/v1/jobs/{id}/rounds", ROUTE_ADMIN, ROUTE_IN_PIECES, rest_get_rounds, AT_ANY},
    {"GET", "/v1/jobs/{id}/rounds.csv", ROUTE_ADMIN, ROUTE_IN_PIECES, rest_get_rounds_csv, AT_ANY},
    {"GET", "/v1/jobs/{id}/metrics", ROUTE_ADMIN, ROUTE_IN_PIECES, rest_get_client_metrics, AT_ANY},
    {"GET", "/v1/jobs/{id}/traffic", ROUTE_ADMIN, ROUTE_IN_PIECES, rest_get_client_traffic,
     AT_LEADER_OR_STORE},
    {"GET", "/v1/jobs/{id}/model", ROUTE_ADMIN, ROUTE_IN_PIECES, rest_get_model, AT_LEADER},
    {"GET", "/v1/jobs/{id}/models", ROUTE_ADMIN, 0, rest_list_models, AT_ANY},
    {"GET", "/v1/jobs/{id}/scaling", ROUTE_ADMIN, ROUTE_IN_PIECES, rest_get_scaling, AT_LEADER},
    {"GET", "/v1/jobs/{id}/series", ROUTE_ADMIN, ROUTE_IN_PIECES, rest_get_series, AT_ANY},
    {"GET", "/v1/jobs/{id}/events", ROUTE_ADMIN, ROUTE_IN_PIECES, rest_get_events, AT_ANY},
    {"GET", "/v1/workers", ROUTE_ADMIN, 0, rest_get_workers, AT_ANY},
    {"GET", "/healthz", ROUTE_PUBLIC, ROUTE_IS_BRIEF, get_healthz, AT_ANY},
    {"GET", "/readyz", ROUTE_PUBLIC, 0, get_readyz, AT_ANY},
    {"GET", "/metrics", ROUTE_METRICS, 0, rest_get_metrics, AT_ANY},
    {"GET", "/", ROUTE_PUBLIC, ROUTE_IS_BRIEF, get_asset, AT_ANY},
    {"GET", "/assets/{id}", ROUTE_PUBLIC, ROUTE_IS_BRIEF, get_asset, AT_ANY},
    {"GET", "/openapi.yaml", ROUTE_PUBLIC, ROUTE_IS_BRIEF, get_asset, AT_ANY},
    {NULL, NULL, ROUTE_PUBLIC, 0, NULL, AT_ANY},
};

/* ---- Healthz, readyz. */

static enum tally_status answer_state(struct call *call, const char *state, struct tally_error *err)
{
    struct tally_json *answer = tally_json_object();
    if (answer != NULL && !tally_json_set_text(answer, "status", state)) {
        tally_json_free(answer);
        answer = NULL;
    }
    return call_answer_json(call, 200, answer, err);
}

static enum tally_status get_healthz(struct tally_coordinator *coordinator, struct call *call,
                                     struct tally_error *err)
{
    (void)coordinator; /* the response shows that the loop runs */
    return answer_state(call, "ok", err);
}

static enum tally_status get_readyz(struct tally_coordinator *coordinator, struct call *call,
                                    struct tally_error *err)
{
    if (coordinator->draining) {
        return tally_fail(err, TALLY_UNAVAILABLE, NULL, "the coordinator is shutting down");
    }
    if (coordinator->transaction->damage.status !=
        TALLY_OK) { /* until an operator has dealt with it */
        return tally_fail(err, TALLY_UNAVAILABLE, NULL, "%s",
                          coordinator->transaction->damage.message);
    }
    if (!may_serve(&coordinator->view, tally_monotonic_ms())) {
        return tally_fail(err, TALLY_UNAVAILABLE, NULL, "this coordinator has lost its leases: %s",
                          coordinator->transaction->error.message);
    }
    struct tally_store *store = coordinator->store;
    enum tally_status status = store->ops->check(store, err);
    if (status == TALLY_DATA_LOSS) {
        transaction_note_damage(coordinator->transaction, err);
        tally_error_clear(err);
        return tally_fail(err, TALLY_UNAVAILABLE, NULL, "%s",
                          coordinator->transaction->damage.message);
    }
    if (status != TALLY_OK) {
        return status;
    }
    transaction_note_store(coordinator->transaction,
                           &(struct tally_error)TALLY_ERROR_INIT); /* the check is a commit */
    return answer_state(call, "ready", err);
}

/* ---- The dashboard's files and openapi.yaml. */

/* The page may load from and connect to its own origin only, and no page may frame it. Chart.js
 * needs no more; blob: is for the charts that are saved as pictures. */
#define CONTENT_SECURITY_POLICY                                                                    \
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "        \
    "connect-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'"

static enum tally_status get_asset(struct tally_coordinator *coordinator, struct call *call,
                                   struct tally_error *err)
{
    (void)coordinator;
    const char *path = tally_http_path(call->request);
    const struct tally_asset *asset = tally_asset_get(path);
    if (asset == NULL) {
        return tally_fail(err, TALLY_NOT_FOUND, NULL, "no such resource: %.128s", path);
    }
    size_t n = 0;
    if (asset->gzip != NULL) {
        call->headers[n].name = "Vary";
        call->headers[n++].value = "Accept-Encoding";
        const char *accepted = tally_http_header(call->request, "Accept-Encoding");
        if (accepted != NULL && call_accepts(accepted, "gzip")) {
            asset = asset->gzip;
            call->headers[n].name = "Content-Encoding";
            call->headers[n++].value = "gzip";
        }
    }
    call->headers[n].name = "ETag";
    call->headers[n++].value = asset->etag;
    call->headers[n].name = "Cache-Control";
    call->headers[n++].value = "no-cache"; /* revalidate each time; the response is mostly 304 */
    call->headers[n].name = "Content-Security-Policy";
    call->headers[n++].value = CONTENT_SECURITY_POLICY;
    call->headers[n].name = "X-Content-Type-Options";
    call->headers[n++].value = "nosniff";
    call->headers[n].name = "Referrer-Policy";
    call->headers[n].value = "no-referrer";
    call->answered = true;
    call->static_body = asset->bytes; /* a 304 sends only the length, which is that of the 200 */
    call->n_static_body = asset->n_bytes;
    if (tally_asset_is_known(asset, tally_http_header(call->request, "If-None-Match"))) {
        call->status = 304;
        return TALLY_OK;
    }
    call->status = 200;
    call->content_type = asset->content_type;
    return TALLY_OK;
}
