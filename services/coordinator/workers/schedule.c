/* schedule: which session plays which client, and what a waiting poll is answered.
 *
 * Vacant clients of started jobs are filled first, oldest job first; where that leaves several of
 * them short, the oldest that can be filled gets the others' slots. Then queued jobs start in
 * order of age as soon as all their clients can be filled. A queued job that the present workers
 * could fill as soon as the jobs that get on have ended keeps younger jobs from taking its slots;
 * one that they could not, because there are too few or because a job that is paused or waits keeps
 * them, does not. Memory (memory.h) goes by the same rule. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/json/problem.h"
#include "services/base/log.h"
#include "services/base/time.h"
#include "services/coordinator/internal.h"
#include "services/coordinator/replicas/replicas.h"
#include "services/coordinator/replicas/request_routing.h"

/* Workers of a job that has come from another replica have so long to come as well before others
 * are looked for. */
enum { WORKERS_RETURN_MS = 3000 };

enum { OWN_BYTES = 96 }; /* of an answer with a task, for its own fields and lengths; a guess */
/* What the tasks of a round share is not copied into each answer from here on: below, the pages of
 * a connection cost more. */
enum { MIN_TAIL_BYTES = 8 * 1024 };

int64_t count_free_slots(const struct tally_coordinator *coordinator, const struct hosted_job *job)
{
    return supply_n_free(&coordinator->sessions, job);
}

bool can_be_served(const struct tally_coordinator *coordinator, const struct hosted_job *job)
{
    return supply_n_serving(&coordinator->sessions, job) > 0;
}

bool is_progressing(const struct hosted_job *job)
{
    const enum tally_job_status status = tally_job_status(job->engine);
    return tally_job_status_is_terminal(status) ||
           (status == TALLY_JOB_RUNNING && !job->deadline_noted &&
            (job->n_vacant == 0 || job->spec.policy == TALLY_POLICY_DROP));
}

/* Clients that unbound workers play, of the jobs that the caller counts. */
static int64_t count_played(const struct tally_coordinator *coordinator,
                            bool counts(const struct hosted_job *))
{
    int64_t n = 0;
    for (const struct hosted_job *job = coordinator->jobs; job != NULL; job = job->next) {
        n += counts(job) ? job->supply.n_played : 0;
    }
    return n;
}

/* Slots that a queued job could have if it waited for them: free ones, and those of jobs that get
 * on, n_played in all. A paused job keeps its own for as long as its owner likes, so no job waits
 * for them. Workers bound to the queued job play no other. */
static int64_t count_coming_slots(const struct tally_coordinator *coordinator,
                                  const struct hosted_job *job, int64_t n_played)
{
    return count_free_slots(coordinator, job) + n_played -
           supply_n_refused_played(job, is_progressing);
}

int64_t count_moving_slots(const struct tally_coordinator *coordinator)
{
    int64_t n = 0;
    for (const struct session *s = coordinator->sessions.first; s != NULL; s = s->next) {
        bool moves = s->pinned_job[0] == '\0';
        for (uint32_t i = 0; i < s->n_assignments && moves; i++) {
            moves = is_progressing(s->assignments[i].job);
        }
        n += moves ? s->n_slots : 0;
    }
    return n;
}

/* Whether the job lacks nothing but slots and memory to start. */
static bool may_start(const struct hosted_job *job)
{
    return tally_job_status(job->engine) == TALLY_JOB_QUEUED && job->prepared && !job->needs_reload;
}

int64_t find_expectant(const struct tally_coordinator *coordinator)
{
    const int64_t n_played = count_played(coordinator, is_progressing);
    const struct memory_use use = memory_use(coordinator);
    for (const struct hosted_job *job = coordinator->jobs; job != NULL; job = job->next) {
        if (may_start(job) && memory_will_be_free(&use, job) &&
            count_coming_slots(coordinator, job, n_played) >= job->row.clients) {
            return job->row.key;
        }
    }
    return 0;
}

/* How many slots the job lacks that others are to send: those that it needs to start at once if the
 * others have them free, else those that it will lack even when all that comes here has come. */
static int64_t count_lacking(const struct tally_coordinator *coordinator,
                             const struct hosted_job *job, int64_t n_played,
                             int64_t n_free_elsewhere)
{
    const enum tally_job_status status = tally_job_status(job->engine);
    if (may_start(job)) {
        const int64_t now = job->row.clients - count_free_slots(coordinator, job);
        return now <= n_free_elsewhere
                   ? now
                   : job->row.clients - count_coming_slots(coordinator, job, n_played);
    }
    const bool is_settled = tally_monotonic_ms() - job->arrived_ms >= WORKERS_RETURN_MS;
    return status == TALLY_JOB_RUNNING && job->n_vacant > 0 && is_settled
               ? job->n_vacant - count_free_slots(coordinator, job)
               : 0;
}

void find_want(const struct tally_coordinator *coordinator, int64_t n_elsewhere,
               int64_t n_free_elsewhere, int64_t *ret_key, int64_t *ret_slots)
{
    const int64_t n_played = count_played(coordinator, is_progressing);
    const struct memory_use use = memory_use(coordinator);
    *ret_key = *ret_slots = 0;
    for (const struct hosted_job *job = coordinator->jobs; job != NULL; job = job->next) {
        const bool lacks_memory = may_start(job) && !memory_is_free(&use, job);
        const int64_t lacking = job->needs_reload || lacks_memory
                                    ? 0
                                    : count_lacking(coordinator, job, n_played, n_free_elsewhere);
        if (lacking > 0 && lacking <= n_elsewhere) {
            *ret_key = job->row.key;
            *ret_slots = lacking;
            return;
        }
    }
}

static void fill_job(struct tally_coordinator *coordinator, struct hosted_job *job)
{
    const struct session_table *sessions = &coordinator->sessions;
    uint32_t client = 0;
    struct session *session = NULL;
    while (job->n_vacant > 0 && count_free_slots(coordinator, job) > 0) {
        if (session == NULL || session_n_free(session) == 0) {
            const uint64_t before = session != NULL ? session->place.number : UINT64_MAX;
            session = supply_next_free(sessions, job, before);
        }
        while (job->slots[client].session != NULL) {
            client++;
        }
        session_assign(&coordinator->sessions, session, job, client);
        mark_ready(coordinator, session);
    }
}

bool is_stuck(const struct hosted_job *job)
{
    const enum tally_job_status status = tally_job_status(job->engine);
    const bool started = status == TALLY_JOB_RUNNING || status == TALLY_JOB_PAUSED;
    const bool drops = job->spec.policy == TALLY_POLICY_DROP &&
                       job->row.clients - job->n_vacant >= job->spec.quorum;
    return started && job->n_vacant > 0 && !drops;
}

/* Takes up to n clients away from a stuck job whose workers may serve `job`. Returns how many. */
static int64_t lend(struct tally_coordinator *coordinator, const struct hosted_job *job,
                    struct hosted_job *lender, int64_t n)
{
    int64_t lent = 0;
    for (uint32_t m = 0; m < lender->row.clients && lent < n; m++) {
        const struct session *session = lender->slots[m].session;
        if (session != NULL && session_serves(session, job)) {
            session_unassign(&coordinator->sessions, lender, m);
            lent++;
        }
    }
    return lent;
}

/* Whether the other stuck jobs have as many clients as the job lacks, played by workers that may
 * serve it. n_played: of all stuck jobs, by unbound workers. */
static bool can_borrow(const struct hosted_job *job, int64_t n_played)
{
    const int64_t n_elsewhere = n_played - job->supply.n_played;
    return n_elsewhere >= job->n_vacant &&
           n_elsewhere - supply_n_refused_played(job, is_stuck) >= job->n_vacant;
}

/* Jobs that began when there were more workers may each lack clients for ever, while together they
 * hold enough for one. So the oldest that can be filled that way gets the slots of the others, and
 * these get them back when it has ended. */
static void borrow_slots(struct tally_coordinator *coordinator, struct hosted_job *job)
{
    int64_t n = 0;
    for (struct hosted_job *other = coordinator->jobs; other != NULL; other = other->next) {
        if (other != job && is_stuck(other)) {
            n += lend(coordinator, job, other, job->n_vacant - n);
        }
    }
    tally_log(TALLY_LOG_INFO, tally_log_event("job gets the slots of jobs that wait as well"),
              tally_log_text("job", job->row.id), tally_log_integer("clients", job->n_vacant));
    fill_job(coordinator, job);
}

/* Starts a queued job whose f(x*) is known and whose clients are all there. */
static void start_job(struct tally_coordinator *coordinator, struct hosted_job *job)
{
    struct tally_error err = TALLY_ERROR_INIT;
    enum tally_status status = hosted_job_make_slots(job, &err);
    if (status == TALLY_OK) {
        fill_job(coordinator, job);
        status = begin_write(coordinator, &err);
    }
    if (status == TALLY_OK) {
        status = tally_job_start(job->engine, job->f_star, &err);
    }
    if (status == TALLY_OK) {
        /* An empty outcome: no round has closed, but the state must exist from now on. */
        const struct tally_job_outcome none = {0};
        status = hosted_job_put_rounds(coordinator->store, job, &none, tally_realtime_ms(), &err);
        write_failed(coordinator, status, &err);
    }
    if (status != TALLY_OK) {
        tally_log(TALLY_LOG_ERROR, tally_log_event("job not started"),
                  tally_log_text("job", job->row.id), tally_log_problem(&err));
        coordinator->assignment_failed = true;
        return;
    }
    restart_clock(job);
    mark_job_ready(coordinator, job);
    tally_log(TALLY_LOG_INFO, tally_log_event("job started"), tally_log_text("job", job->row.id),
              tally_log_text("algorithm", job->row.algorithm),
              tally_log_integer("clients", job->row.clients), tally_log_real("f_star", job->f_star),
              tally_log_real("smoothness", job->curvature.smoothness),
              tally_log_real("strong_convexity", job->curvature.strong_convexity));
}

/* A start that was not stored has left slots to a job that may not be the next to start. */
static void release_unstarted(struct tally_coordinator *coordinator, struct hosted_job *job)
{
    for (uint32_t m = 0; m < job->row.clients && job->n_vacant < job->row.clients; m++) {
        if (job->slots[m].session != NULL) {
            session_unassign(&coordinator->sessions, job, m);
        }
    }
    hosted_job_drop_slots(job);
}

/* Whether a queued job that cannot start now can start once the jobs that progress have ended. */
static bool will_start(const struct tally_coordinator *coordinator, const struct hosted_job *job,
                       int64_t n_played, const struct memory_use *use)
{
    return memory_will_be_free(use, job) &&
           count_coming_slots(coordinator, job, n_played) >= job->row.clients;
}

/* Starts queued jobs, oldest first. No younger job overtakes a job that will start, or whose f(x*)
 * will be solved, once the jobs that progress have ended. */
static void start_jobs(struct tally_coordinator *coordinator)
{
    int64_t n_played = count_played(coordinator, is_progressing);
    struct memory_use use = memory_use(coordinator);
    for (struct hosted_job *job = coordinator->jobs; job != NULL; job = job->next) {
        const bool is_solved = may_start(job);
        const bool has_memory = memory_is_free(&use, job);
        if (!is_solved && (has_memory || !memory_is_unsolved(job))) {
            continue;
        }
        if (replicas_hold_back(coordinator, job->row.key)) {
            break;
        }
        if (is_solved && has_memory && count_free_slots(coordinator, job) >= job->n_vacant) {
            start_job(coordinator, job);
            n_played = count_played(coordinator, is_progressing);
            use = memory_use(coordinator);
        } else if (will_start(coordinator, job, n_played, &use)) {
            break;
        }
    }
    coordinator->memory = use;
}

void assign_slots(struct tally_coordinator *coordinator)
{
    coordinator->assignment_changed = false;
    if (coordinator->draining) {
        return;
    }
    for (struct hosted_job *job = coordinator->jobs; job != NULL; job = job->next) {
        if (tally_job_status(job->engine) == TALLY_JOB_QUEUED) {
            release_unstarted(coordinator, job);
        }
    }
    for (struct hosted_job *job = coordinator->jobs; job != NULL; job = job->next) {
        enum tally_job_status status = tally_job_status(job->engine);
        if (status == TALLY_JOB_RUNNING || status == TALLY_JOB_PAUSED) {
            fill_job(coordinator, job);
        }
    }
    int64_t n_played = count_played(coordinator, is_stuck);
    for (struct hosted_job *job = coordinator->jobs; job != NULL; job = job->next) {
        if (tally_job_status(job->engine) == TALLY_JOB_RUNNING && is_stuck(job) &&
            can_borrow(job, n_played)) {
            borrow_slots(coordinator, job);
            n_played = count_played(coordinator, is_stuck);
        }
    }
    start_jobs(coordinator);
}

void mark_ready(struct tally_coordinator *coordinator, struct session *session)
{
    if (session->link_ready != NULL) {
        return;
    }
    session->next_ready = coordinator->ready;
    session->link_ready = &coordinator->ready;
    if (coordinator->ready != NULL) {
        coordinator->ready->link_ready = &session->next_ready;
    }
    coordinator->ready = session;
}

static void unmark_ready(struct session *session)
{
    if (session->link_ready == NULL) {
        return;
    }
    *session->link_ready = session->next_ready;
    if (session->next_ready != NULL) {
        session->next_ready->link_ready = session->link_ready;
    }
    session->link_ready = NULL;
}

void mark_job_ready(struct tally_coordinator *coordinator, struct hosted_job *job)
{
    for (int64_t m = 0; job->slots != NULL && m < job->row.clients; m++) {
        if (job->slots[m].session != NULL) {
            mark_ready(coordinator, job->slots[m].session);
        }
    }
}

void end_session(struct tally_coordinator *coordinator, struct session *session)
{
    if (session->poll.request != NULL) {
        answer_idle(coordinator, session);
    }
    unmark_ready(session);
    session_free(&coordinator->sessions, session);
    coordinator->assignment_changed = true;
}

/* Answers. */

/* The answer to a poll, in that to its update if it came with one. */
static enum tally_status encode_answer(const struct session *session,
                                       const struct tally_poll_response *response,
                                       struct tally_buffer *body)
{
    /* Room for a task that is shared, so that it is written without counting before. */
    const bool is_whole = response->kind == TALLY_POLL_TASK && !response->task.shared_is_apart;
    const size_t n_shared = is_whole ? response->task.shared.size : 0;
    enum tally_status status = tally_buffer_reserve(body, n_shared + OWN_BYTES);
    if (status != TALLY_OK) {
        return status;
    }
    return session->poll.has_update
               ? tally_update_response_encode(&session->poll.update, response, body)
               : tally_poll_response_encode(response, body);
}

/* Its request, to be answered. Until now the worker was there: it may have waited for longer than
 * it may be silent. */
static struct tally_http_request *end_poll(struct tally_coordinator *coordinator,
                                           struct session *session, int64_t now_ms)
{
    coordinator->sessions.n_waiting--;
    struct tally_http_request *request = session->poll.request;
    session->poll.request = NULL;
    session->last_contact_ms = now_ms;
    session_set_timer(&coordinator->sessions, session, coordinator->config.session_timeout_ms);
    return request;
}

static void finish_poll(struct tally_coordinator *coordinator, struct session *session,
                        const struct tally_poll_response *response, struct hosted_job *job)
{
    struct tally_buffer *body = &coordinator->answer;
    body->size = 0;
    if (encode_answer(session, response, body) != TALLY_OK) {
        if (response->kind != TALLY_POLL_IDLE) {
            return; /* out of memory: the poll goes on waiting and is tried again */
        }
    }
    const int64_t now_ns = tally_monotonic_ns();
    struct tally_http_request *request = end_poll(coordinator, session, now_ns / 1000000);
    /* An update's bytes have been counted when it was durable. */
    const bool has_update = session->poll.has_update;
    const uint64_t in = has_update ? 0 : tally_http_wire_in_bytes(request);
    const bool is_apart =
        job != NULL && response->kind == TALLY_POLL_TASK && response->task.shared_is_apart;
    const uint64_t out = send_protobuf(request, body, is_apart ? job->shared_task.tail : NULL);
    metrics_count_poll(&coordinator->metrics, response->kind, !has_update,
                       (double)(now_ns - session->poll.arrived_ns) / 1e9);
    if (job == NULL && has_update) {
        job = find_job(coordinator, session->poll.job_id);
    }
    if (job != NULL) {
        job->wire_in_bytes += in;
        job->wire_out_bytes += out;
    }
}

/* Live jobs that the session could serve, also at other replicas: it may be sent there. */
static uint32_t count_pending(const struct tally_coordinator *coordinator,
                              const struct session *session)
{
    if (is_bound(session)) {
        return session->bound_to != NULL && session_serves(session, session->bound_to);
    }
    /* Refusals are of live jobs here. */
    return (uint32_t)(coordinator->n_jobs - session->n_refusals +
                      replicas_n_jobs_elsewhere(coordinator));
}

void answer_idle(struct tally_coordinator *coordinator, struct session *session)
{
    const struct tally_poll_response response = {
        .kind = TALLY_POLL_IDLE, .jobs_pending = count_pending(coordinator, session)};
    finish_poll(coordinator, session, &response, NULL);
}

/* Clients of the session that the job's open round still waits for. */
static size_t pending_clients(const struct session *session, const struct hosted_job *job,
                              uint32_t *clients)
{
    size_t n = 0;
    for (uint32_t i = 0; i < session->n_assignments; i++) {
        const struct assignment *played = &session->assignments[i];
        if (played->job == job && !tally_job_has_received(job->engine, played->client)) {
            clients[n++] = played->client;
        }
    }
    return n;
}

/* Whether the clients of the job may be given its open round. */
static bool hands_out(const struct hosted_job *job)
{
    return tally_job_status(job->engine) == TALLY_JOB_RUNNING && !job->needs_reload;
}

bool has_work(const struct session *session)
{
    for (uint32_t i = 0; i < session->n_assignments; i++) {
        const struct assignment *played = &session->assignments[i];
        if (hands_out(played->job) &&
            !tally_job_has_received(played->job->engine, played->client)) {
            return true;
        }
    }
    return false;
}

/* The next job of the session that has work for it; in turns, else a busy job starves the others.
 */
static struct hosted_job *find_work(struct session *session, uint32_t *clients,
                                    size_t *ret_n_clients)
{
    const uint32_t n = session->n_assignments;
    const struct hosted_job *before = NULL;
    for (uint32_t k = 0, first = session->turn; k < n; k++) {
        const uint32_t i = (first + k) % n;
        struct hosted_job *job = session->assignments[i].job;
        if (job == before) { /* the clients of a job are mostly side by side */
            continue;
        }
        before = job;
        if (hands_out(job)) {
            *ret_n_clients = pending_clients(session, job, clients);
            if (*ret_n_clients > 0) {
                session->turn = i + 1;
                while (session->turn < n && session->assignments[session->turn].job == job) {
                    session->turn++;
                }
                return job;
            }
        }
    }
    return NULL;
}

/* Newest point that all of the clients were sent before. A broadcast past it is the first copy for
 * one of them, which the ledger has counted as delivered to it when the broadcast was made. */
static int64_t delivered_to(const struct hosted_job *job, const uint32_t *clients, size_t n)
{
    int64_t delivered = INT64_MAX;
    for (size_t i = 0; i < n; i++) {
        const int64_t iterate = job->slots[clients[i]].delivered_iterate;
        delivered = iterate < delivered ? iterate : delivered;
    }
    return delivered;
}

/* Adds what brings a worker from point `have` to the present one: the broadcasts in between if they
 * are kept and shorter than the point itself, else the point. */
static void add_catch_up(struct hosted_job *job, int64_t have, struct tally_task *task)
{
    const int64_t now = tally_job_progress(job->engine)->iterate;
    if (have == now) {
        return;
    }
    size_t dim;
    const double *x = tally_job_point(job->engine, &dim);
    const int64_t delivered = delivered_to(job, task->clients, task->n_clients);
    const uint64_t snapshot_bits = 64 * (uint64_t)dim;
    uint64_t bits = 0, again_bits = 0;
    bool kept = now - have <= TALLY_MAX_BROADCASTS;
    for (int64_t k = have + 1; kept && k <= now; k++) {
        const struct tally_message *message = tally_job_broadcast(job->engine, k);
        kept = message != NULL;
        if (kept) {
            const struct tally_broadcast broadcast = {
                .iterate = (uint64_t)k,
                .payload = {message->payload.data, message->payload.size},
                .payload_bits = message->bits.payload_bits,
                .quantizer_step = message->grid.step,
                .quantizer_intervals = message->grid.intervals};
            task->broadcasts[task->n_broadcasts++] = broadcast;
            bits += message->bits.payload_bits;
            again_bits += k <= delivered ? message->bits.payload_bits : 0;
        }
    }
    const bool is_next = now == have + 1; /* the ordinary case: never replaced by the point */
    if (kept && (is_next || bits <= snapshot_bits)) {
        job->recovery_bits += again_bits;
    } else {
        task->n_broadcasts = 0;
        task->snapshot = (struct tally_bytes){(const uint8_t *)x, dim * sizeof *x};
        job->recovery_bits += snapshot_bits;
    }
}

/* The worker's cursor for the job; 0 if it shows none. */
static int64_t cursor_of(const struct session *session, const struct hosted_job *job)
{
    const struct tally_poll_request *poll = session->poll.message;
    for (size_t i = 0; i < poll->n_cursors; i++) {
        if (strcmp(poll->cursors[i].job_id, job->row.id) == 0) {
            uint64_t iterate = poll->cursors[i].iterate;
            return iterate <= (uint64_t)tally_job_progress(job->engine)->iterate ? (int64_t)iterate
                                                                                 : 0;
        }
    }
    return 0;
}

static uint32_t time_left(const struct hosted_job *job, int64_t now_ms)
{
    if (job->spec.round_deadline_ms == 0) {
        return 0;
    }
    const int64_t left = job->deadline_from_ms + job->spec.round_deadline_ms - now_ms;
    return left > 0 ? (uint32_t)left : 1;
}

/* What is the same for all clients of the round. */
static void describe_round(const struct hosted_job *job, const struct tally_job_round *round,
                           struct tally_task *task)
{
    memcpy(task->job_id, job->row.id, sizeof task->job_id);
    task->round = (uint32_t)round->round;
    task->stage = (uint32_t)round->plan.stage;
    task->iterate = (uint64_t)round->iterate;
    task->samples = (uint64_t)round->plan.samples;
    task->quantizer_step = round->plan.grid.step;
    task->quantizer_intervals = round->plan.grid.intervals;
    snprintf(task->encoding, sizeof task->encoding, "%s",
             TALLY_ENCODINGS[job->spec.encoding]->name);
    task->evaluate = round->evaluate;
    task->cut = round->plan.cut;
    task->x_checksum = tally_job_progress(job->engine)->x_checksum;
}

/* Encodes that once for all who hold point `have`. A task with a document or a point, of which few
 * are sent, is encoded by itself, and so is every one if memory is short. */
static void share_task(struct hosted_job *job, const struct tally_job_round *round, int64_t have,
                       struct tally_task *task)
{
    struct shared_task *shared = &job->shared_task;
    if (shared->round != round->round || shared->have != have) {
        describe_round(job, round, task);
        shared->round = 0;
        shared->bytes.size = 0;
        tally_shared_bytes_release(shared->tail);
        shared->tail = NULL;
        if (task->job_document.size + task->snapshot.size > 0 ||
            tally_task_encode_shared(task, &shared->bytes) != TALLY_OK) {
            return;
        }
        shared->round = round->round;
        shared->have = have;
        if (shared->bytes.size >= MIN_TAIL_BYTES) {
            shared->tail = tally_shared_bytes_new(&shared->bytes);
        }
    }
    const struct tally_buffer *bytes = shared->tail != NULL ? &shared->tail->bytes : &shared->bytes;
    task->shared = (struct tally_bytes){bytes->data, bytes->size};
    task->shared_is_apart = shared->tail != NULL;
}

static void answer_task(struct tally_coordinator *coordinator, struct session *session,
                        struct hosted_job *job, uint32_t *clients, size_t n_clients, int64_t now_ms)
{
    const struct tally_job_round *round = tally_job_open_round(job->engine);
    struct tally_poll_response response; /* large: what is not looked at is not cleared */
    struct tally_task *task = &response.task;
    response.kind = TALLY_POLL_TASK;
    task->job_document = task->snapshot = task->shared = (struct tally_bytes){.size = 0};
    task->n_broadcasts = 0;
    task->shared_is_apart = false;
    task->deadline_ms = time_left(job, now_ms);
    task->clients = clients;
    task->n_clients = n_clients;
    const int64_t have = cursor_of(session, job);
    if (have == 0) {
        task->job_document = (struct tally_bytes){job->document.data, job->document.size};
    }
    /* Every worker can make the initial point from the document. */
    add_catch_up(job, have > 0 ? have : 1, task);
    share_task(job, round, have, task);
    for (size_t i = 0; i < n_clients; i++) {
        job->slots[clients[i]].delivered_iterate = round->iterate;
    }
    finish_poll(coordinator, session, &response, job);
}

/* Whether the job has ended; not if another replica leads it, or nobody can say. */
static bool has_ended(struct tally_coordinator *coordinator, const char *job_id)
{
    bool is_elsewhere;
    const enum tally_status status = is_live_elsewhere(coordinator, job_id, &is_elsewhere, NULL);
    return status == TALLY_NOT_FOUND || (status == TALLY_OK && !is_elsewhere);
}

void answer_last_updates(struct tally_coordinator *coordinator, struct hosted_job *job)
{
    for (struct session *s = coordinator->sessions.first; s != NULL; s = s->next) {
        if (s->poll.request == NULL || !s->poll.has_update ||
            strcmp(s->poll.job_id, job->row.id) != 0) {
            continue;
        }
        struct tally_poll_response response = {.kind = TALLY_POLL_RELEASED};
        memcpy(response.released_job_id, s->poll.job_id, sizeof response.released_job_id);
        finish_poll(coordinator, s, &response, job);
    }
}

/* A job for which the worker holds a point that it needs no more. */
static const char *find_released(struct tally_coordinator *coordinator,
                                 const struct session *session)
{
    const struct tally_poll_request *poll = session->poll.message;
    for (size_t i = 0; i < poll->n_cursors; i++) {
        if (find_job(coordinator, poll->cursors[i].job_id) == NULL &&
            has_ended(coordinator, poll->cursors[i].job_id)) {
            return poll->cursors[i].job_id;
        }
    }
    return NULL;
}

static void refuse_poll(struct tally_coordinator *coordinator, struct session *session)
{
    struct tally_error err = TALLY_ERROR_INIT;
    tally_fail(&err, TALLY_UNAVAILABLE, NULL, "%s",
               coordinator->draining ? "the coordinator is shutting down"
                                     : "this coordinator has lost touch with the others");
    struct tally_buffer body = {0};
    tally_connect_error_encode(&err, &body);
    char drawn[REQUEST_ID_CAPACITY];
    struct tally_http_request *request = end_poll(coordinator, session, tally_monotonic_ms());
    const char *told = told_request_id(request);
    if (told == NULL) {
        draw_request_id(coordinator, drawn);
    }
    const struct tally_http_response response = {
        .status = tally_status_info(err.status)->connect_http_status,
        .content_type = "application/json",
        .headers = {{"X-Request-Id", told != NULL ? told : drawn}},
        .body = &body};
    metrics_count_refused_poll(&coordinator->metrics);
    tally_log(TALLY_LOG_DEBUG, tally_log_event("poll refused"),
              tally_log_text("request_id", told != NULL ? told : drawn),
              tally_log_text("worker", session->name),
              tally_log_integer("status", response.status));
    tally_http_respond(request, &response);
    tally_buffer_fini(&body);
}

/* The poll is over without an answer; the update that it came with has one. */
static void acknowledge_alone(struct tally_coordinator *coordinator, struct session *session)
{
    struct tally_buffer body = {0};
    struct hosted_job *job = find_job(coordinator, session->poll.job_id);
    if (tally_update_response_encode(&session->poll.update, NULL, &body) != TALLY_OK) {
        return; /* out of memory: tried again, or cut off by the end */
    }
    struct tally_http_request *request = end_poll(coordinator, session, tally_monotonic_ms());
    const uint64_t out = send_protobuf(request, &body, NULL);
    if (job != NULL) {
        job->wire_out_bytes += out;
    }
    tally_buffer_fini(&body);
}

static void serve_poll(struct tally_coordinator *coordinator, struct session *session,
                       uint32_t *clients, int64_t now_ms)
{
    if (coordinator->draining || !replicas_may_serve(coordinator)) {
        if (session->poll.has_update) {
            acknowledge_alone(coordinator, session);
        } else {
            refuse_poll(coordinator, session);
        }
        return;
    }
    const char *released = find_released(coordinator, session);
    if (released != NULL) {
        struct tally_poll_response response = {.kind = TALLY_POLL_RELEASED};
        snprintf(response.released_job_id, sizeof response.released_job_id, "%s", released);
        finish_poll(coordinator, session, &response, NULL);
        return;
    }
    size_t n_clients;
    struct hosted_job *job = find_work(session, clients, &n_clients);
    if (job != NULL) {
        answer_task(coordinator, session, job, clients, n_clients, now_ms);
    } else if (now_ms >= session->poll.until_ms) {
        answer_idle(coordinator, session);
    }
}

void serve_polls(struct tally_coordinator *coordinator, int64_t now_ms)
{
    static uint32_t clients[TALLY_MAX_SLOTS]; /* of one thread; too large for the stack's taste */
    while (coordinator->ready != NULL) {
        struct session *session = coordinator->ready;
        unmark_ready(session);
        if (session->poll.request != NULL) {
            serve_poll(coordinator, session, clients, now_ms);
        }
    }
}
