/* workers_tasks: the next task of a session, and what a client that returns gets: broadcasts, or
 * the point. */
#include "services/coordinator/workers.h"

#include <stdio.h>
#include <string.h>

#include "services/base/log.h"
#include "services/coordinator/session.h"

/* From this size on, the shared part of a round's tasks is not copied into each response: below it,
 * the pages of a connection cost more. */
enum { MIN_TAIL_BYTES = 8 * 1024 };

/* Shifts that go with one task, if there is more than one client. */
enum { MAX_SHIFT_BYTES = 4 << 20 };

/* Whether the job's open round asks the client for an answer. */
static bool is_pending(const struct hosted_job *job, uint32_t client)
{
    return tally_job_asks(job->engine, client);
}

/* The cohort of the job's open round, if it is shorter than the list of the session's clients; NULL
 * otherwise. */
static const uint32_t *short_cohort(const struct session *session, const struct hosted_job *job,
                                    uint32_t *ret_n)
{
    const uint32_t *cohort = tally_job_cohort(job->engine, ret_n);
    return *ret_n < session->n_assignments ? cohort : NULL;
}

/* Writes the first clients of the session, at most `most`, that the job's open round still waits
 * for. */
static size_t pending_clients(const struct session *session, const struct hosted_job *job,
                              size_t most, uint32_t *clients)
{
    size_t n = 0;
    uint32_t n_cohort;
    const uint32_t *cohort = short_cohort(session, job, &n_cohort);
    for (uint32_t i = 0; cohort != NULL && i < n_cohort && n < most; i++) {
        if (job->slots[cohort[i]].session == session && is_pending(job, cohort[i])) {
            clients[n++] = cohort[i];
        }
    }
    for (uint32_t i = 0; cohort == NULL && i < session->n_assignments && n < most; i++) {
        const struct assignment *assigned = &session->assignments[i];
        if (assigned->job == job && is_pending(job, assigned->client)) {
            clients[n++] = assigned->client;
        }
    }
    return n;
}

/* Whether the job hands out tasks of its open round. */
static bool hands_out(const struct hosted_job *job)
{
    return tally_job_status(job->engine) == TALLY_JOB_RUNNING && !job->needs_reload;
}

bool workers_has_work(const struct session *session)
{
    const struct hosted_job *before = NULL;
    for (uint32_t i = 0; i < session->n_assignments; i++) {
        const struct assignment *assigned = &session->assignments[i];
        const struct hosted_job *job = assigned->job;
        uint32_t n_cohort, first;
        if (job == before || !hands_out(job)) {
            continue;
        }
        if (short_cohort(session, job, &n_cohort) == NULL) {
            if (is_pending(job, assigned->client)) {
                return true;
            }
        } else if (pending_clients(session, job, 1, &first) > 0) {
            return true;
        } else {
            before = job;
        }
    }
    return false;
}

/* Jobs take turns, or a busy job would starve the others. */
struct hosted_job *workers_find_work(struct session *session, uint32_t *clients,
                                     size_t *ret_n_clients)
{
    const uint32_t n = session->n_assignments;
    const struct hosted_job *before = NULL;
    for (uint32_t k = 0, first = session->next_assignment; k < n; k++) {
        const uint32_t i = (first + k) % n;
        struct hosted_job *job = session->assignments[i].job;
        if (job == before) { /* adjacent clients mostly belong to one job */
            continue;
        }
        before = job;
        if (hands_out(job)) {
            *ret_n_clients = pending_clients(session, job, session->n_assignments, clients);
            if (*ret_n_clients > 0) {
                /* Without memory the order differs, which does no harm. */
                (void)tally_job_order(job->engine, clients, *ret_n_clients, NULL);
                session->next_assignment = i + 1;
                while (session->next_assignment < n &&
                       session->assignments[session->next_assignment].job == job) {
                    session->next_assignment++;
                }
                return job;
            }
        }
    }
    return NULL;
}

/* The newest point that all of the clients have been sent. A later broadcast is the first copy for
 * at least one of them, and the ledger counted that copy when the broadcast was made. With cohorts,
 * the ledger counts each broadcast only for the next cohort: older ones are recovery. */
static int64_t delivered_to(const struct hosted_job *job, const uint32_t *clients, size_t n)
{
    int64_t delivered = INT64_MAX;
    for (size_t i = 0; i < n; i++) {
        const int64_t iterate = job->slots[clients[i]].delivered_iterate;
        delivered = iterate < delivered ? iterate : delivered;
    }
    return delivered;
}

/* Adds what updates a worker from point `have` to the current one: the broadcasts in between if
 * they are kept and shorter than the point itself, else the point. */
static void add_catch_up(struct hosted_job *job, int64_t have, struct tally_task *task)
{
    const int64_t now = tally_job_progress(job->engine)->iterate;
    if (have == now) {
        return;
    }
    size_t dim;
    const double *x = tally_job_point(job->engine, &dim);
    const int64_t delivered = delivered_to(job, task->clients, task->n_clients);
    const bool has_cohorts = tally_job_spec_cohort(&job->spec) < job->row.clients;
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
                .quantizer_intervals = message->grid.intervals,
                .quantizer_scale = message->grid.scale};
            task->broadcasts[task->n_broadcasts++] = broadcast;
            bits += message->bits.payload_bits;
            again_bits +=
                k <= delivered || (k < now && has_cohorts) ? message->bits.payload_bits : 0;
        }
    }
    const bool is_next = now == have + 1; /* the usual case: never replaced by the point */
    if (kept && (is_next || bits <= snapshot_bits)) {
        job->recovery_bits += again_bits;
    } else {
        task->n_broadcasts = 0;
        task->snapshot = (struct tally_bytes){(const uint8_t *)x, dim * sizeof *x};
        job->recovery_bits += snapshot_bits;
    }
}

/* The worker's cursor for the job; 0 if it has none. */
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

/* The digest of the scaling that the worker has; 0 = none. */
static uint32_t scaling_of(const struct session *session, const struct hosted_job *job)
{
    const struct tally_poll_request *poll = session->poll.message;
    for (size_t i = 0; i < poll->n_cursors; i++) {
        if (strcmp(poll->cursors[i].job_id, job->row.id) == 0) {
            return poll->cursors[i].scaling;
        }
    }
    return 0;
}

/* Adds the scaling of the features, unless the worker has it. The ledger counts the first copy, as
 * it does for broadcasts. */
static void add_scaling(const struct session *session, struct hosted_job *job,
                        struct tally_task *task)
{
    size_t n;
    const double *numbers = tally_job_scaling(job->engine, &n);
    bool is_again = true;
    task->scaling = (struct tally_bytes){.size = 0};
    if (numbers == NULL || scaling_of(session, job) == tally_job_open_round(job->engine)->scaling) {
        return;
    }
    task->scaling = (struct tally_bytes){(const uint8_t *)numbers, n};
    for (size_t i = 0; i < task->n_clients; i++) {
        struct client_slot *slot = &job->slots[task->clients[i]];
        is_again = is_again && slot->has_had_scaling;
        slot->has_had_scaling = true;
    }
    job->recovery_bits += is_again ? 8 * (uint64_t)n : 0;
}

static uint32_t time_left(const struct hosted_job *job, int64_t now_ms)
{
    if (job->spec.round_deadline_ms == 0 || tally_job_open_round(job->engine)->surveys) {
        return 0;
    }
    const int64_t left = job->deadline_from_ms + job->spec.round_deadline_ms - now_ms;
    return left > 0 ? (uint32_t)left : 1;
}

/* Fills in what is the same for all clients of the round. */
static void describe_round(const struct hosted_job *job, const struct tally_job_round *round,
                           struct tally_task *task)
{
    memcpy(task->job_id, job->row.id, sizeof task->job_id);
    task->round = (uint32_t)round->round;
    task->stage = (uint32_t)round->plan.stage;
    task->iterate = (uint64_t)round->iterate;
    task->samples = (uint64_t)round->plan.samples;
    task->quantizer_step = round->plan.grid.step;
    task->quantizer_intervals =
        round->plan.facts.travel_step > 0 ? 0 : round->plan.grid.intervals; /* worker.proto */
    task->quantizer_scale = round->plan.grid.scale;
    task->distance = round->plan.facts.distance;
    task->client_spread = round->plan.facts.client_spread;
    task->noise = round->plan.facts.noise;
    task->noise_growth = round->plan.facts.noise_growth;
    task->travel_step = round->plan.facts.travel_step;
    task->shift_gain = round->plan.facts.shift_gain;
    task->step_size = round->plan.facts.step_size;
    task->repeats = (uint32_t)round->plan.facts.repeats;
    task->max_bits = round->plan.max_bits;
    snprintf(task->encoding, sizeof task->encoding, "%s",
             TALLY_JOB_ENCODING_NAMES[job->spec.encoding]);
    task->evaluate = round->evaluate;
    task->cut = round->plan.cut;
    task->evaluate_model = round->evaluate_model;
    task->evaluator = round->evaluator;
    task->mark = round->mark;
    task->wants_survey = round->surveys;
    task->scaling_digest = round->scaling;
    task->x_checksum = tally_job_progress(job->engine)->x_checksum;
}

/* Encodes the shared part once for all clients that hold point `have`. The few tasks with a
 * document, a point or a scaling are encoded separately, and so is every task if memory is short.
 */
static void share_task(struct hosted_job *job, const struct tally_job_round *round, int64_t have,
                       struct tally_task *task)
{
    struct shared_task *shared = &job->shared_task;
    if (task->scaling.size > 0) {
        describe_round(job, round, task);
        return;
    }
    if (shared->round != round->round || shared->have != have) {
        describe_round(job, round, task);
        hosted_job_forget_task(job);
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

/* Notes that the worker has no shifts of the job, whatever it had before. */
static void forget_shifts(const struct session *session, struct hosted_job *job)
{
    for (uint32_t i = 0; i < session->n_assignments; i++) {
        if (session->assignments[i].job == job) {
            job->slots[session->assignments[i].client].has_shift = false;
        }
    }
}

/* Adds the shifts of the task's clients, and drops the last clients if they would make the task too
 * long: the worker gets them once it has answered for the others. */
static void add_shifts(struct hosted_job *job, struct tally_task *task)
{
    const struct tally_job_round *open = tally_job_open_round(job->engine);
    static struct tally_client_shift shifts[TALLY_MAX_SLOTS]; /* used by one thread */
    const size_t bytes = (size_t)job->row.dim * sizeof(float);
    const bool lacks_initial =
        tally_initial_point_is_given(&job->spec.initial_point) && open->iterate > 1;
    size_t total = 0;
    task->shifts = shifts;
    task->n_shifts = 0;
    for (size_t i = 0; open->plan.facts.shift_gain > 0 && i < task->n_clients; i++) {
        const uint32_t client = task->clients[i];
        int64_t round;
        const float *vector = tally_job_shift(job->engine, client, &round);
        /* Every worker that has the initial point can make the shift of a client without messages.
         */
        const bool lacks = (round > 0 || lacks_initial) && !job->slots[client].has_shift;
        total += lacks ? bytes : 0;
        if (lacks && i > 0 && total > MAX_SHIFT_BYTES) {
            task->n_clients = i;
            return;
        }
        shifts[task->n_shifts++] =
            (struct tally_client_shift){.client = client,
                                        .round = (uint32_t)round,
                                        .vector = {(const uint8_t *)vector, lacks ? bytes : 0}};
        job->recovery_bits += lacks ? 8 * (uint64_t)bytes : 0;
    }
}

/* Counts how often the worker has been sent the same broadcast or point without receiving it: each
 * time, it begins anew. Logs the 2nd, 4th, 8th ... time. */
static void note_sent(struct session *session, const struct hosted_job *job, int64_t have)
{
    const int64_t round = tally_job_open_round(job->engine)->round;
    const bool is_same = session->sent.job_key == job->row.key && session->sent.round == round;
    if (have == tally_job_progress(job->engine)->iterate) {
        session->sent.n = 0;
        return;
    }
    session->sent.job_key = job->row.key;
    session->sent.round = round;
    const int64_t n = session->sent.n = is_same ? session->sent.n + 1 : 1;
    if (n > 1 && (n & (n - 1)) == 0) {
        tally_log(TALLY_LOG_WARN, tally_log_event("the worker has not received its task"),
                  tally_log_text("worker", session->name), tally_log_text("job", job->row.id),
                  tally_log_integer("round", round), tally_log_integer("attempt", n));
    }
}

void workers_make_task(struct session *session, struct hosted_job *job, uint32_t *clients,
                       size_t n_clients, int64_t now_ms, struct tally_poll_response *ret_response)
{
    const struct tally_job_round *round = tally_job_open_round(job->engine);
    struct tally_task *task = &ret_response->task;
    ret_response->kind = TALLY_POLL_TASK;
    task->job_document = task->snapshot = task->shared = (struct tally_bytes){.size = 0};
    task->n_broadcasts = 0;
    task->shared_is_apart = task->wants_start = false;
    task->deadline_ms = time_left(job, now_ms);
    task->clients = clients;
    task->n_clients = n_clients;
    const int64_t have = cursor_of(session, job);
    if (have == 0) {
        task->job_document = (struct tally_bytes){job->document.data, job->document.size};
        forget_shifts(session, job);
    }
    add_shifts(job, task);
    add_scaling(session, job, task);
    /* Every worker can make the initial point from the document, unless it is given. */
    const bool is_given = tally_initial_point_is_given(&job->spec.initial_point);
    const int64_t known = have > 0 || is_given ? have : 1;
    add_catch_up(job, known, task);
    note_sent(session, job, known);
    share_task(job, round, have, task);
    for (size_t i = 0; i < task->n_clients; i++) {
        job->slots[clients[i]].delivered_iterate = round->iterate;
    }
}
