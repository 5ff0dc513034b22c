#include "services/coordinator/coordinator.h"
#include "services/base/alloc.h"

#include <stdlib.h>

#include "services/base/time.h"
#include "services/coordinator/calls.h"
#include "services/coordinator/jobs_initial.h"
#include "services/coordinator/jobs_lifecycle.h"
#include "services/coordinator/jobs_rounds.h"
#include "services/coordinator/loop.h"
#include "services/coordinator/loop_transaction.h"
#include "services/coordinator/metrics.h"
#include "services/coordinator/replicas.h"
#include "services/coordinator/replicas_forwarding.h"
#include "services/coordinator/rest_events.h"
#include "services/coordinator/rest_imports.h"
#include "services/coordinator/rest_plans.h"
#include "services/coordinator/rest_routes.h"
#include "services/coordinator/rest_series.h"
#include "services/coordinator/rest_surveys.h"
#include "services/coordinator/workers.h"

/* ---- Callbacks from lower modules to higher ones ---- */

static void count_wire(struct tally_coordinator *coordinator, const struct call *call, uint64_t in,
                       uint64_t out)
{
    struct hosted_job *job = jobs_find(coordinator, call->job_id);
    const struct traffic_part *parts = (const struct traffic_part *)call->parts.data;
    const size_t n = call->parts.size / sizeof *parts;
    if (job != NULL) {
        hosted_job_count_bytes(job, parts, n, in, out);
        if (call->error.status == TALLY_OK) { /* otherwise the commit may have failed */
            hosted_job_count_updates(job, parts, n);
        }
    }
}

static void on_recovered(void *context)
{
    struct tally_coordinator *coordinator = context;
    if (coordinator->jobs != NULL) {
        rounds_restart_clocks_after_outage(coordinator);
    }
}

static void on_added(struct tally_coordinator *coordinator, struct hosted_job *job)
{
    events_adopt_job(coordinator, job);
    if (job->spec.webhook[0] != '\0') {
        webhooks_wake(coordinator, job->row.key); /* its former leader may have left something */
    }
}

static void on_removing(struct tally_coordinator *coordinator, struct hosted_job *job)
{
    session_release_job(&coordinator->workers->sessions, job);
    events_forget_job(job);
    poll_mark_until_idle(coordinator);
}

static void on_ended(struct tally_coordinator *coordinator, const struct tally_store_job *row)
{
    metrics_end_job(coordinator->metrics, row);
    webhooks_wake(coordinator, row->key);
}

static void on_deleted(struct tally_coordinator *coordinator, const struct tally_store_job *row)
{
    metrics_forget_job(coordinator->metrics, row->key);
    events_forget_key(coordinator, row->key);
}

static const struct jobs_ops JOBS_OPS = {.added = on_added,
                                         .removing = on_removing,
                                         .ready = workers_mark_job_ready,
                                         .ending = poll_finish_last_updates,
                                         .ended = on_ended,
                                         .deleted = on_deleted,
                                         .leads = replicas_still_leads,
                                         .run_again = rest_run_again};

/* ---- The turn (loop.h) ---- */

/* Checks whether a store that failed works again; without writes, nothing else would show it. */
static void check_store(struct tally_coordinator *coordinator)
{
    struct transaction *transaction = coordinator->transaction;
    if (transaction->error.status != TALLY_OK && !transaction_is_open(transaction)) {
        struct tally_error err = TALLY_ERROR_INIT;
        (void)coordinator->store->ops->check(coordinator->store, &err);
        transaction_note_store(transaction, &err);
    }
}

static void work_each_second(struct tally_coordinator *coordinator)
{
    struct live_jobs *jobs = coordinator->jobs;
    check_store(coordinator);
    jobs_flush_wire(coordinator, coordinator->draining);
    jobs->reload_due = true;
    jobs_fail_unprepared(coordinator);
    jobs_delete_expired(coordinator);
    jobs->match_due |= jobs->match_failed;
    jobs->match_failed = false;
}

static void work(struct tally_coordinator *coordinator, int64_t now_ms, bool ticks, bool seconds)
{
    coordinator->workers->n_decoded = 0;
    jobs_take_prepared(coordinator);
    jobs_initial_take(coordinator);
    surveys_serve(coordinator);
    imports_serve(coordinator);
    forwarding_take_results(coordinator);
    if (ticks) {
        workers_check_sessions(coordinator, now_ms);
    }
    if (seconds) {
        work_each_second(coordinator);
    }
    if (coordinator->jobs->match_due || !tally_list_is_empty(&coordinator->jobs->prepared)) {
        jobs_memory_solve_next(coordinator);
        workers_assign_slots(coordinator);
    }
    rounds_settle_absence(
        coordinator); /* a client that has just been reassigned was never absent */
    if (ticks) {
        workers_check_deadlines(coordinator, now_ms);
    }
}

/* Heartbeats and event streams wait for the end of the transaction. */
static int64_t defer_until(const struct tally_coordinator *coordinator, int64_t now_ms)
{
    const struct events *events = coordinator->events;
    const bool is_shared = coordinator->view.is_shared || events->has_more;
    const int64_t end_ms = now_ms + (is_shared ? DEFER_SHARED_MS : DEFER_MS);
    return events->n_streams > 0 && events->next_ms < end_ms ? events->next_ms : end_ms;
}

static void on_lost(struct tally_coordinator *coordinator, uint64_t number)
{
    jobs_mark_lost(coordinator, number);
    if (coordinator->transaction->was_fenced) {
        replicas_recount(coordinator);
    }
    jobs_reload(coordinator);
}

/* Live jobs whose status has changed; those that have ended are woken by on_ended(). */
static void wake_webhooks(struct tally_coordinator *coordinator)
{
    struct job_marks *marks = &coordinator->jobs->marks;
    if (!marks->webhooks_due) {
        return;
    }
    marks->webhooks_due = false;
    TALLY_LIST_EACH(node, &marks->active)
    {
        struct hosted_job *job = TALLY_LIST_MEMBER(struct hosted_job, in_active, node);
        if (job->webhook_is_due) {
            job->webhook_is_due = false;
            webhooks_wake(coordinator, job->row.key);
        }
    }
}

static void outside(struct tally_coordinator *coordinator, int64_t now_ms)
{
    if (coordinator->jobs->reload_due) {
        coordinator->jobs->reload_due = false;
        jobs_reload(coordinator); /* uses a separate transaction to end each damaged job */
    }
    replicas_step(coordinator, now_ms);
    wake_webhooks(coordinator);
    webhooks_step(coordinator, now_ms);
}

static bool serve(struct tally_coordinator *coordinator, int64_t now_ms, bool defers)
{
    poll_serve(coordinator, now_ms);
    rest_run_reads(coordinator);
    plans_serve(coordinator);
    if (coordinator->draining) {
        replicas_leave(coordinator); /* all is stored: others may take our jobs */
    }
    const bool more_events = !defers && events_serve(coordinator, tally_monotonic_ms());
    return more_events || calls_have_reads(coordinator->calls) ||
           coordinator->jobs->match_due; /* jobs ended: others may start at once */
}

static const struct loop_ops LOOP_OPS = {.stalled = workers_forgive_stall,
                                         .work = work,
                                         .defer_until = defer_until,
                                         .has_task = poll_has_task,
                                         .begin_poll = poll_begin_after_update,
                                         .lost = on_lost,
                                         .retire = jobs_retire,
                                         .outside = outside,
                                         .serve = serve};

/* ---- Start and end ---- */

/* Makes the modules, from the lowest to the highest. */
static enum tally_status make_modules(struct tally_coordinator *coordinator,
                                      struct tally_error *err)
{
    coordinator->calls = calls_new(ROUTES);
    coordinator->calls->count_wire = count_wire;
    coordinator->transaction = transaction_new(coordinator->store);
    coordinator->transaction->on_recovered = on_recovered;
    coordinator->transaction->context = coordinator;
    coordinator->plans = plans_new();
    coordinator->surveys = surveys_new();
    coordinator->imports = imports_new();
    workers_new(coordinator);
    events_new(coordinator);
    jobs_initial_new(coordinator);
    enum tally_status status = loop_new(&LOOP_OPS, &coordinator->loop, err);
    if (status == TALLY_OK) {
        status = live_jobs_new(coordinator, &JOBS_OPS, err);
    }
    if (status == TALLY_OK && coordinator->store->leases != NULL) {
        status = forwarding_new(coordinator, err);
    }
    return status;
}

enum tally_status tally_coordinator_new(const struct tally_coordinator_config *config,
                                        struct tally_coordinator **ret_coordinator,
                                        struct tally_error *err)
{
    struct tally_coordinator *coordinator = tally_xcalloc(1, sizeof *coordinator);
    coordinator->config = *config;
    coordinator->store = config->store;
    enum tally_status status = make_modules(coordinator, err);
    if (status == TALLY_OK && coordinator->store->leases != NULL) {
        replicas_new(coordinator);
    } else if (status == TALLY_OK) {
        status = jobs_load_all(coordinator, err);
    }
    if (status == TALLY_OK) {
        status = metrics_new(coordinator, err); /* after damaged jobs have ended */
    }
    if (status == TALLY_OK) {
        status = webhooks_new(coordinator, err);
    }
    if (status != TALLY_OK) {
        coordinator->store = NULL; /* still the caller's */
        tally_coordinator_free(coordinator);
        return status;
    }
    *ret_coordinator = coordinator;
    return TALLY_OK;
}

void tally_coordinator_free(struct tally_coordinator *coordinator)
{
    if (coordinator == NULL) {
        return;
    }
    workers_free(coordinator->workers);
    calls_drop_queued(coordinator);
    plans_free(coordinator);
    jobs_initial_free(coordinator);
    surveys_free(coordinator);
    imports_free(coordinator);
    forwarding_free(coordinator->forwarding);
    webhooks_free(coordinator->webhooks);
    replicas_free(coordinator->replicas);
    metrics_free(coordinator->metrics);
    series_cache_free(coordinator->series);
    live_jobs_free(coordinator->jobs);
    transaction_free(coordinator->transaction);
    loop_free(coordinator->loop);
    calls_free(coordinator->calls);
    free(coordinator->events);
    if (coordinator->store != NULL) {
        coordinator->store->ops->close(coordinator->store);
    }
    free(coordinator);
}

/* ---- For the program ---- */

int tally_coordinator_wake_fd(const struct tally_coordinator *coordinator)
{
    return coordinator->loop->wake_fd;
}

int tally_coordinator_forward_fd(const struct tally_coordinator *coordinator)
{
    return forwarding_fd(coordinator->forwarding);
}

int tally_coordinator_webhook_fd(const struct tally_coordinator *coordinator)
{
    return webhooks_fd(coordinator->webhooks);
}

int tally_coordinator_turn(struct tally_coordinator *coordinator)
{
    return loop_run(coordinator);
}

uint64_t tally_coordinator_n_requests(const struct tally_coordinator *coordinator)
{
    return coordinator->calls->counts.n_requests;
}

void tally_coordinator_tokens_changed(struct tally_coordinator *coordinator)
{
    poll_finish_all_idle(coordinator);
    forwarding_finish_polls(coordinator);
    events_finish_streams(coordinator);
}

void tally_coordinator_drain(struct tally_coordinator *coordinator)
{
    coordinator->draining = true;
    workers_mark_all_ready(coordinator);
    forwarding_finish_polls(coordinator);
    loop_hurry(coordinator->loop);    /* the next turn stores the wire counters ... */
    coordinator->events->next_ms = 0; /* ... and ends the streams */
}
