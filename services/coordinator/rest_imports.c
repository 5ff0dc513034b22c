#include "services/coordinator/rest_imports.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/base/alloc.h"
#include "services/base/time.h"
#include "services/coordinator/background.h"
#include "services/coordinator/coordinator.h"
#include "services/coordinator/jobs_import.h"
#include "services/coordinator/jobs_lifecycle.h"
#include "services/coordinator/loop.h"
#include "services/coordinator/provenance.h"
#include "services/coordinator/rest_routes.h"

struct import {
    struct background_work work; /* must be first */
    struct call *call;
    int64_t now_ms;
    /* The result. */
    enum tally_status status;
    struct tally_error err;   /* unless it is OK */
    struct imported_job *job; /* borrows from the bundle */
    /* A copy of the body: reading may outlive the connection, and the coordinator. */
    size_t n_bundle;
    uint8_t bundle[];
};

struct imports {
    struct background *background; /* NULL = nothing has been imported yet */
    int n;                         /* in progress or waiting */
    struct import *result;         /* whose call runs again; NULL = none */
};

struct imports *imports_new(void)
{
    return tally_xcalloc(1, sizeof(struct imports));
}

static struct import *import_at(struct tally_list_node *node)
{
    return (struct import *)TALLY_LIST_MEMBER(struct background_work, in_works, node);
}

static void import_free(struct import *import)
{
    imported_job_free(import->job);
    free(import);
}

void imports_free(struct tally_coordinator *coordinator)
{
    struct imports *imports = coordinator->imports;
    struct background_work *work;
    if (imports != NULL && imports->background != NULL) {
        while ((work = background_take(imports->background)) != NULL) {
            call_free(coordinator, ((struct import *)work)->call);
            import_free((struct import *)work);
        }
        TALLY_LIST_EACH(node, background_works(imports->background))
        {
            call_free(coordinator, import_at(node)->call);
        }
        background_free(imports->background);
    }
    free(imports);
    coordinator->imports = NULL;
}

static void run(struct background_work *work)
{
    struct import *import = (struct import *)work;
    import->status = imported_job_read(import->bundle, import->n_bundle, import->now_ms,
                                       &work->stop, &import->job, &import->err);
}

static enum tally_status begin(struct tally_coordinator *coordinator, struct call *call,
                               const uint8_t *body, size_t n_body, struct tally_error *err)
{
    struct imports *imports = coordinator->imports;
    struct tally_job_spec spec;
    if (n_body > 0 && imported_job_peek(body, n_body, &spec)) {
        const enum tally_status status = jobs_check_imported(coordinator, &spec, err);
        if (status != TALLY_OK) {
            return status;
        }
    }
    if (imports->n == MAX_IMPORTS) {
        return tally_fail(err, TALLY_RESOURCE_EXHAUSTED, NULL,
                          "%d other bundles are being imported, which is the limit",
                          (int)MAX_IMPORTS);
    }
    if (imports->background == NULL &&
        background_new(coordinator->loop->wake_fd, &imports->background, err) != TALLY_OK) {
        return TALLY_NO_MEMORY;
    }
    struct import *import = calloc(1, sizeof *import + n_body);
    if (import == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a bundle of %zu bytes",
                          n_body);
    }
    if (n_body > 0) {
        memcpy(import->bundle, body, n_body);
    }
    import->work.run = run;
    import->call = call;
    import->now_ms = tally_realtime_ms();
    import->n_bundle = n_body;
    background_add(imports->background, &import->work);
    imports->n++;
    call->is_held = true;
    return TALLY_OK;
}

/* Responds with the job's detail. */
static enum tally_status answer(struct tally_coordinator *coordinator, struct call *call,
                                const struct tally_store_job *row, bool is_new,
                                struct tally_error *err)
{
    struct tally_store *store = coordinator->store;
    struct tally_buffer document = {0};
    struct tally_json *detail = NULL;
    enum tally_status status = store->ops->document_get(store, row->key, &document, err);
    if (status == TALLY_OK) {
        detail = hosted_job_detail(row, &document, NULL, NULL);
        status = detail != NULL
                     ? provenance_add(store, row, &document, detail, err)
                     : tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the response");
    }
    if (status == TALLY_OK) {
        snprintf(call->location, sizeof call->location, "/v1/jobs/%s", row->id);
        status = call_answer_json(call, is_new ? 201 : 200, detail, err);
    } else {
        tally_json_free(detail);
    }
    tally_buffer_fini(&document);
    return status;
}

static enum tally_status store_result(struct tally_coordinator *coordinator, struct call *call,
                                      struct import *import, struct tally_error *err)
{
    struct tally_store_job row;
    bool is_new = false;
    if (import->status != TALLY_OK) {
        return tally_fail(err, import->status, import->err.field, "%s", import->err.message);
    }
    const enum tally_status status = jobs_import(coordinator, import->job, &row, &is_new, err);
    return status == TALLY_OK ? answer(coordinator, call, &row, is_new, err) : status;
}

enum tally_status rest_import_job(struct tally_coordinator *coordinator, struct call *call,
                                  struct tally_error *err)
{
    struct import *result = coordinator->imports->result;
    const uint8_t *body = NULL;
    size_t n_body = 0;
    if (result != NULL && result->call == call) {
        return store_result(coordinator, call, result, err);
    }
    const enum tally_status status = call_read_body(call, "application/x-tar", &body, &n_body, err);
    return status == TALLY_OK ? begin(coordinator, call, body, n_body, err) : status;
}

void imports_serve(struct tally_coordinator *coordinator)
{
    struct imports *imports = coordinator->imports;
    struct background_work *work;
    if (imports->n == 0) {
        return;
    }
    TALLY_LIST_EACH(node, background_works(imports->background))
    {
        if (import_at(node)->call->request == NULL) { /* its client has disconnected */
            atomic_store(&import_at(node)->work.stop, true);
        }
    }
    while ((work = background_take(imports->background)) != NULL) {
        struct import *import = (struct import *)work;
        imports->n--;
        if (import->call->request == NULL) {
            call_send(coordinator, import->call);
        } else {
            imports->result = import;
            coordinator->jobs->ops->run_again(coordinator, import->call);
            imports->result = NULL;
        }
        import_free(import);
    }
}
