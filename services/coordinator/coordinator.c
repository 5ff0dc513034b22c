#include "services/coordinator/coordinator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "services/base/log.h"
#include "services/base/time.h"
#include "services/coordinator/internal.h"
#include "services/coordinator/replicas/replicas.h"
#include "services/job/advice.h"
#include "services/job/reasons.h"

enum {
    TICK_MS = 100,        /* precision of long polls' ends */
    DEFER_MS = 250,       /* that updates which wait for a task anyway may wait for their commit */
    DEFER_SHARED_MS = 5,  /* likewise, where there is something to be done outside of it */
    WIRE_FLUSH_TICKS = 10 /* every second, wire counters that have moved are stored */
};

/* Start and end. */

/* Of a store that is this process's alone; else jobs come with the first heartbeat. */
static enum tally_status load_jobs(struct tally_coordinator *coordinator, struct tally_error *err)
{
    struct tally_store *store = coordinator->store;
    struct job_rows live = {0};
    enum tally_status status = store->ops->job_list_live(store, collect_row, &live, err);
    for (size_t i = 0; status == TALLY_OK && i < live.n; i++) {
        status = load_job(coordinator, &live.rows[i], "job restored", err);
    }
    free(live.rows);
    return status;
}

enum tally_status tally_coordinator_new(const struct tally_coordinator_config *config,
                                        struct tally_coordinator **ret_coordinator,
                                        struct tally_error *err)
{
    struct tally_coordinator *coordinator = calloc(1, sizeof *coordinator);
    if (coordinator == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the coordinator");
    }
    coordinator->config = *config;
    coordinator->store = config->store;
    coordinator->last_job = &coordinator->jobs;
    coordinator->marks.transaction = 1;
    coordinator->memory.limit = config->max_job_bytes;
    coordinator->reads.last = &coordinator->reads.first;
    coordinator->written.last = &coordinator->written.first;
    coordinator->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    enum tally_status status = TALLY_OK;
    if (coordinator->wake_fd < 0) {
        status = tally_fail(err, TALLY_UNAVAILABLE, NULL, "no file descriptor for the loop");
    }
    if (status == TALLY_OK) {
        status = preparer_new(coordinator->wake_fd, config->data_dir, &coordinator->preparer, err);
    }
    if (status == TALLY_OK && coordinator->store->leases != NULL) {
        status = forwarding_new(coordinator, err);
    }
    if (status == TALLY_OK) {
        status = coordinator->store->leases != NULL ? replicas_new(coordinator, err)
                                                    : load_jobs(coordinator, err);
    }
    if (status == TALLY_OK) {
        status = metrics_init(coordinator, err); /* after those that cannot be loaded have ended */
    }
    if (status != TALLY_OK) {
        coordinator->store = NULL; /* stays the caller's */
        tally_coordinator_free(coordinator);
        return status;
    }
    *ret_coordinator = coordinator;
    return TALLY_OK;
}

static void free_calls(struct tally_coordinator *coordinator, struct call_queue *queue)
{
    while (queue->first != NULL) {
        struct call *call = queue->first;
        queue->first = call->next;
        call_free(coordinator, call);
    }
}

void tally_coordinator_free(struct tally_coordinator *coordinator)
{
    if (coordinator == NULL) {
        return;
    }
    session_table_fini(&coordinator->sessions);
    while (coordinator->jobs != NULL) {
        struct hosted_job *job = coordinator->jobs;
        coordinator->jobs = job->next;
        hosted_job_free(job);
    }
    free_calls(coordinator, &coordinator->reads);
    free_calls(coordinator, &coordinator->written);
    forwarding_free(coordinator->forwarding);
    replicas_free(coordinator->replicas);
    while (coordinator->free_calls != NULL) {
        struct call *call = coordinator->free_calls;
        coordinator->free_calls = call->next;
        free(call);
    }
    tally_buffer_fini(&coordinator->answer);
    pending_fini(&coordinator->pending);
    ended_fini(&coordinator->ended);
    preparer_free(coordinator->preparer);
    metrics_fini(&coordinator->metrics);
    free_series_cache(coordinator);
    /* wake_fd stays open: a solve under way may still write to it. */
    if (coordinator->store != NULL) {
        coordinator->store->ops->close(coordinator->store);
    }
    free(coordinator);
}

int tally_coordinator_wake_fd(const struct tally_coordinator *coordinator)
{
    return coordinator->wake_fd;
}

/* The turn of the loop. */

/* Fails the jobs that cannot be prepared; again if the store did not take it. */
static void fail_unprepared(struct tally_coordinator *coordinator)
{
    for (struct hosted_job *job = coordinator->jobs; job != NULL; job = job->next) {
        if (job->prepare_error.status != TALLY_OK && !job->needs_reload &&
            tally_job_status(job->engine) == TALLY_JOB_QUEUED) {
            struct tally_error err = TALLY_ERROR_INIT;
            char reason[TALLY_REASON_CAPACITY];
            TALLY_REASON_WRITE(reason, PREPARATION_FAILED, job->prepare_error.message);
            fail_job(coordinator, job, reason, &err);
        }
    }
}

/* What is known about f now; the curvature is stored at once, for those who look at the job while
 * it waits for workers. */
static void take_preparation(struct tally_coordinator *coordinator, struct hosted_job *job,
                             const struct tally_local_preparation *preparation)
{
    job->prepared = true;
    job->prepare_took_ms = tally_monotonic_ms() - job->prepare_began_ms;
    job->f_star = preparation->f_star;
    job->curvature = preparation->curvature;
    restart_clock(job);
    if (!(job->curvature.smoothness > 0)) {
        return;
    }
    struct tally_error err = TALLY_ERROR_INIT;
    enum tally_status status = begin_write(coordinator, &err);
    if (status == TALLY_OK) { /* if it fails, the start writes it again */
        status = hosted_job_put_row(coordinator->store, job, tally_realtime_ms(), &err);
        write_failed(coordinator, status, &err);
    }
    const struct tally_advice advice = tally_advise(&job->spec, &job->curvature);
    for (int i = 0; i < advice.n; i++) {
        tally_log(TALLY_LOG_WARN, tally_log_event("job has questionable parameters"),
                  tally_log_text("job", job->row.id), tally_log_text("warning", advice.texts[i]));
    }
}

static void take_prepared(struct tally_coordinator *coordinator)
{
    uint64_t count;
    ssize_t n = read(coordinator->wake_fd, &count, sizeof count);
    (void)n; /* EAGAIN: nobody woke us */
    struct prepared result;
    while (preparer_take(coordinator->preparer, &result)) {
        coordinator->assignment_changed = true;
        struct hosted_job *job = find_job(coordinator, result.job_id);
        if (job == NULL || job->row.status != TALLY_JOB_QUEUED) {
            continue; /* cancelled meanwhile */
        }
        if (result.status == TALLY_OK) {
            take_preparation(coordinator, job, &result.preparation);
        } else {
            job->prepare_error = result.err;
            job->prepare_error.status = result.status;
            fail_unprepared(coordinator);
        }
    }
}

/* Ends a job whose stored parts cannot be read back. True if that is stored. */
static bool end_damaged_job(struct tally_coordinator *coordinator, const struct hosted_job *job,
                            const struct tally_error *why)
{
    struct tally_store *store = coordinator->store;
    struct tally_store_job row;
    if (store->ops->job_get(store, job->row.id, &row, NULL) != TALLY_OK ||
        (!tally_job_status_is_terminal(row.status) &&
         bury_job(store, &row, why, NULL) != TALLY_OK)) {
        return false;
    }
    metrics_end_job(&coordinator->metrics, &row);
    return true;
}

/* Brings engines that are ahead of the store back to it, as far as it can be read. No transaction
 * may be open. */
static void reload_jobs(struct tally_coordinator *coordinator)
{
    struct hosted_job **at = &coordinator->jobs;
    while (*at != NULL) {
        struct hosted_job *job = *at;
        struct tally_error err = TALLY_ERROR_INIT;
        const bool reloads = job->needs_reload;
        enum tally_status status = TALLY_OK;
        if (reloads) {
            status = hosted_job_reload(coordinator->store, job, &err);
            if (status == TALLY_DATA_LOSS && !replicas_still_leads(coordinator, job)) {
                status = TALLY_FAILED_PRECONDITION; /* somebody else writes while we read */
            } else {
                note_damage(coordinator, &err);
            }
        }
        if (status == TALLY_NOT_FOUND || /* its insertion was rolled back */
            (status == TALLY_DATA_LOSS && end_damaged_job(coordinator, job, &err))) {
            drop_job(coordinator, at);
            continue;
        }
        if (reloads && status == TALLY_OK) {
            mark_absence(job); /* the engine has forgotten it */
            restart_clock_after_outage(job);
            coordinator->assignment_failed = true; /* it may be queued again, with its slots */
        }
        if (!job->needs_reload) {
            mark_job_ready(coordinator, job);
        }
        at = &job->next;
    }
}

/* What the step has accepted and not closed a round with. */
static void store_pending(struct tally_coordinator *coordinator)
{
    struct tally_error err = TALLY_ERROR_INIT;
    if (!coordinator->transaction_failed) {
        enum tally_status status = pending_store(&coordinator->pending, coordinator->store, &err);
        write_failed(coordinator, status, &err);
    }
    pending_clear(&coordinator->pending);
}

/* Ends the step's transaction. False if what it wrote is lost. */
static bool commit(struct tally_coordinator *coordinator)
{
    if (!coordinator->in_transaction || coordinator->defers) {
        return true;
    }
    struct tally_store *store = coordinator->store;
    struct tally_error err = TALLY_ERROR_INIT;
    bool ok = false;
    store_pending(coordinator);
    if (coordinator->transaction_failed) {
        store->ops->rollback(store);
    } else {
        const int64_t began_ns = tally_monotonic_ns();
        ok = store->ops->commit(store, &err) == TALLY_OK;
        coordinator->was_fenced = err.status == TALLY_FAILED_PRECONDITION;
        if (!coordinator->was_fenced) {
            note_store(coordinator, &err); /* OK again, or the reason of this failure */
        }
        note_damage(coordinator, &err);
        metrics_count_commit(&coordinator->metrics,
                             (double)(tally_monotonic_ns() - began_ns) / 1e9);
        coordinator->metrics.store_errors[STORE_COMMIT] += !ok && !coordinator->was_fenced;
    }
    coordinator->in_transaction = false;
    coordinator->transaction_failed = false;
    coordinator->must_commit = false;
    coordinator->defer_until_ms = 0;
    coordinator->metrics.requests_in_commit = 0;
    coordinator->metrics.rounds += ok ? coordinator->uncommitted.rounds : 0;
    coordinator->metrics.dropped_answers += ok ? coordinator->uncommitted.dropped_answers : 0;
    coordinator->uncommitted.rounds = coordinator->uncommitted.dropped_answers = 0;
    for (struct hosted_job *job = ok ? NULL : coordinator->jobs; job != NULL; job = job->next) {
        if (job->touched_in == coordinator->marks.transaction && !job->needs_reload) {
            job->needs_reload = true;
            job->waits_since_ms = tally_realtime_ms();
        }
    }
    coordinator->marks.transaction++;
    if (!ok) {
        coordinator->assignment_failed = true; /* what it started is queued again */
        if (coordinator->was_fenced) {
            tally_log(TALLY_LOG_WARN,
                      tally_log_event("write refused: another replica leads a job by now"));
            replicas_recount(coordinator);
        } else {
            tally_log(TALLY_LOG_ERROR, tally_log_event("write failed"),
                      tally_log_problem(&coordinator->store_error));
        }
        reload_jobs(coordinator);
    }
    return ok;
}

/* How long the step's transaction may stay open: heartbeats and event streams wait for its end. */
static int64_t end_of_deferral(const struct tally_coordinator *coordinator, int64_t now_ms)
{
    const bool is_shared = coordinator->replicas != NULL || coordinator->streams_hungry;
    const int64_t end_ms = now_ms + (is_shared ? DEFER_SHARED_MS : DEFER_MS);
    return coordinator->n_streams > 0 && coordinator->next_events_ms < end_ms
               ? coordinator->next_events_ms
               : end_ms;
}

/* Whether the step's transaction may stay open: nobody waits for it but updates whose answers wait
 * for the next task anyway. Most of them need not be written at all if their round closes first. */
static bool may_defer(struct tally_coordinator *coordinator, int64_t now_ms)
{
    if (!coordinator->in_transaction || coordinator->transaction_failed ||
        coordinator->must_commit || coordinator->draining || coordinator->reads.first != NULL) {
        return false;
    }
    if (coordinator->defer_until_ms == 0) {
        coordinator->defer_until_ms = end_of_deferral(coordinator, now_ms);
    }
    const struct call *call = coordinator->last_deferred != NULL ? coordinator->last_deferred->next
                                                                 : coordinator->written.first;
    for (; call != NULL; call = call->next) {
        if (call->polling_session == 0 || call->error.status != TALLY_OK) {
            return false;
        }
        const struct session *session =
            session_by_id(&coordinator->sessions, call->polling_session);
        const int64_t shared_ms = now_ms + DEFER_SHARED_MS;
        if (call->poll_until_ms < coordinator->defer_until_ms) {
            coordinator->defer_until_ms = call->poll_until_ms;
        }
        if (shared_ms < coordinator->defer_until_ms && session != NULL && has_work(session)) {
            coordinator->defer_until_ms = shared_ms;
        }
        coordinator->last_deferred = call;
    }
    return now_ms < coordinator->defer_until_ms;
}

/* Acknowledges the step's writes, or takes the acknowledgement back. */
static void publish(struct tally_coordinator *coordinator, bool committed)
{
    struct call *call = coordinator->written.first;
    if (coordinator->defers) {
        return;
    }
    coordinator->written = (struct call_queue){.last = &coordinator->written.first};
    coordinator->last_deferred = NULL;
    while (call != NULL) {
        struct call *next = call->next;
        if (!committed && call->in_transaction && call->route->handler != worker_join &&
            call->route->handler != worker_leave) {
            struct tally_error err = TALLY_ERROR_INIT;
            fail_write(coordinator, &err);
            call->location[0] = '\0';
            answer_error(call, &err);
        }
        if (call->polling_session == 0 || !begin_polling(coordinator, call)) {
            send_answer(coordinator, call);
        }
        call = next;
    }
}

static bool wire_has_moved(const struct hosted_job *job)
{
    return job->wire_in_bytes != job->row.wire_in_bytes ||
           job->wire_out_bytes != job->row.wire_out_bytes ||
           job->recovery_bits != job->row.recovery_bits;
}

static void put_wire(struct tally_coordinator *coordinator, struct hosted_job *job)
{
    if (wire_has_moved(job) && begin_write(coordinator, NULL) == TALLY_OK) {
        struct tally_error err = TALLY_ERROR_INIT;
        enum tally_status status =
            hosted_job_put_row(coordinator->store, job, tally_realtime_ms(), &err);
        write_failed(coordinator, status, &err);
    }
}

/* Stores the last exchanges of jobs that ended, and lets them go. */
static void retire_jobs(struct tally_coordinator *coordinator)
{
    struct hosted_job **at = &coordinator->jobs;
    if (!coordinator->marks.ended) {
        return;
    }
    coordinator->marks.ended = false;
    while (*at != NULL) {
        struct hosted_job *job = *at;
        if (job->needs_reload || !tally_job_status_is_terminal(job->row.status)) {
            at = &job->next;
            continue;
        }
        answer_last_updates(coordinator, job);
        put_wire(coordinator, job);
        mark_job_ready(coordinator, job);
        metrics_end_job(&coordinator->metrics, &job->row);
        ended_remember(&coordinator->ended, job);
        drop_job(coordinator, at);
    }
}

static void flush_wire(struct tally_coordinator *coordinator)
{
    for (struct hosted_job *job = coordinator->jobs; job != NULL; job = job->next) {
        if (!job->needs_reload) {
            put_wire(coordinator, job);
        }
    }
}

/* Whether a store that failed has recovered, which nobody would see while nothing is written. */
static void look_after_store(struct tally_coordinator *coordinator)
{
    struct tally_store *store = coordinator->store;
    if (coordinator->store_error.status != TALLY_OK && !coordinator->in_transaction) {
        struct tally_error err = TALLY_ERROR_INIT;
        (void)store->ops->check(store, &err);
        note_store(coordinator, &err);
    }
}

static void tick(struct tally_coordinator *coordinator, int64_t now_ms)
{
    const int64_t timeout_ms = coordinator->config.session_timeout_ms;
    struct session *session = session_take_due(&coordinator->sessions, now_ms, timeout_ms);
    while (session != NULL) {
        struct session *next = session_of_timer(session->timer.next);
        session_set_timer(&coordinator->sessions, session, timeout_ms);
        if (session->poll.request != NULL) {
            mark_ready(coordinator, session);
        } else {
            tally_log(TALLY_LOG_WARN, tally_log_event("worker is silent"),
                      tally_log_text("worker", session->name),
                      tally_log_integer("clients", session->n_assignments));
            coordinator->metrics.workers_lost++;
            end_session(coordinator, session);
        }
        session = next;
    }
    if (coordinator->n_ticks++ % WIRE_FLUSH_TICKS == 0) {
        look_after_store(coordinator);
        flush_wire(coordinator);
        coordinator->reload_due = true;
        fail_unprepared(coordinator);
        coordinator->assignment_changed |= coordinator->assignment_failed;
        coordinator->assignment_failed = false;
    }
}

int tally_coordinator_turn(struct tally_coordinator *coordinator)
{
    int64_t now_ms = tally_monotonic_ms();
    const bool ticks = now_ms >= coordinator->next_tick_ms;
    take_prepared(coordinator);
    forward_take_results(coordinator);
    if (ticks) {
        coordinator->next_tick_ms = now_ms + TICK_MS;
        tick(coordinator, now_ms);
    }
    if (coordinator->assignment_changed) {
        memory_solve_next(coordinator);
        assign_slots(coordinator);
    }
    settle_absence(coordinator); /* who has just been replaced was never absent */
    if (ticks) {
        check_deadlines(coordinator, now_ms);
    }
    coordinator->defers = may_defer(coordinator, now_ms);
    publish(coordinator, commit(coordinator));
    retire_jobs(coordinator);
    commit(coordinator);
    /* A job that is damaged ends in a transaction of its own. */
    if (coordinator->reload_due && !coordinator->in_transaction) {
        coordinator->reload_due = false;
        reload_jobs(coordinator);
    }
    coordinator->begin_failed = coordinator->was_fenced = false;
    if (!coordinator->in_transaction) {
        replicas_turn(coordinator, now_ms);
    }
    serve_polls(coordinator, now_ms);
    run_reads(coordinator);
    if (coordinator->draining) {
        replicas_leave(coordinator); /* what is to be stored is: others may go on with our jobs */
    }
    const bool more_events =
        !coordinator->defers && serve_events(coordinator, tally_monotonic_ms());
    if (more_events || coordinator->assignment_changed) { /* jobs ended: others may start at once */
        return 0;
    }
    int64_t next_ms = coordinator->next_tick_ms;
    if (coordinator->defers && coordinator->defer_until_ms < next_ms) {
        next_ms = coordinator->defer_until_ms;
    }
    int64_t wait = next_ms - tally_monotonic_ms();
    return wait < 0 ? 0 : (int)wait;
}

uint64_t tally_coordinator_n_requests(const struct tally_coordinator *coordinator)
{
    return coordinator->n_requests;
}

void tally_coordinator_tokens_changed(struct tally_coordinator *coordinator)
{
    for (struct session *s = coordinator->sessions.first; s != NULL; s = s->next) {
        if (s->poll.request != NULL) {
            answer_idle(coordinator, s);
        }
    }
    forward_end_polls(coordinator);
    end_streams(coordinator);
}

void tally_coordinator_drain(struct tally_coordinator *coordinator)
{
    coordinator->draining = true;
    for (struct session *s = coordinator->sessions.first; s != NULL; s = s->next) {
        mark_ready(coordinator, s);
    }
    forward_end_polls(coordinator);
    coordinator->next_tick_ms = 0;
    coordinator->next_events_ms = 0; /* the next turn ends the streams */
    coordinator->n_ticks = 0;        /* the next tick stores the wire counters */
}
