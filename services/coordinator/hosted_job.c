#include "services/coordinator/hosted_job.h"
#include "services/base/alloc.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/worker/worker_messages.h"
#include "codec/numeric/checksum.h"
#include "services/base/time.h"
#include "services/coordinator/provenance.h"
#include "services/coordinator/webhook_queue.h"
#include "services/job/document.h"
#include "services/job/job_advice.h"
#include "services/job/job_detail.h"
#include "services/job/job_footprint.h"

/* How long the workers of a job that was read from the store have to return before its slots go to
 * other clients and other replicas are asked for slots. */
enum { WORKERS_RETURN_MS = 3000 };

/* The number of a survey's round, which is also that of the round after it (job_survey.h). */
enum { SURVEY_ROUND = 1 };

_Static_assert(sizeof(struct client_slot) + sizeof(struct client_traffic) <= TALLY_FOOTPRINT_SLOT,
               "as job_footprint.h says");

void hosted_job_forget_task(struct hosted_job *job)
{
    struct shared_task *shared = &job->shared_task;
    shared->round = 0;
    shared->bytes.size = 0;
    tally_shared_bytes_release(shared->tail);
    shared->tail = NULL;
}

void hosted_job_free(struct hosted_job *job)
{
    if (job != NULL) {
        tally_job_free(job->engine);
        tally_buffer_fini(&job->document);
        hosted_job_forget_task(job);
        tally_buffer_fini(&job->shared_task.bytes);
        hosted_job_drop_slots(job);
        provenance_forget(&job->origins);
        free(job->start);
        free(job->damage);
        free(job);
    }
}

enum tally_status hosted_job_make_slots(struct hosted_job *job, struct tally_error *err)
{
    if (job->slots == NULL) {
        job->slots = calloc((size_t)job->row.clients, sizeof *job->slots);
    }
    if (job->traffic == NULL) {
        job->traffic = calloc((size_t)job->row.clients, sizeof *job->traffic);
        job->traffic_stored_ms = tally_monotonic_ms();
    }
    return job->slots != NULL && job->traffic != NULL
               ? TALLY_OK
               : tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for %lld clients",
                            (long long)job->row.clients);
}

void hosted_job_drop_slots(struct hosted_job *job)
{
    free(job->slots);
    free(job->traffic);
    job->slots = NULL;
    job->traffic = NULL;
    job->traffic_has_moved = false;
}

/* ---- Traffic ---- */

void hosted_job_count_bytes(struct hosted_job *job, const struct traffic_part *parts, size_t n,
                            uint64_t in, uint64_t out)
{
    job->wire_in_bytes += in;
    job->wire_out_bytes += out;
    if (job->traffic != NULL) {
        traffic_share(job->traffic, parts, n, TRAFFIC_IN, in);
        traffic_share(job->traffic, parts, n, TRAFFIC_OUT, out);
        job->traffic_has_moved |= n > 0;
    }
}

void hosted_job_count_updates(struct hosted_job *job, const struct traffic_part *parts, size_t n)
{
    if (job->traffic != NULL) {
        traffic_add_updates(job->traffic, parts, n);
        job->traffic_has_moved |= n > 0;
    }
}

enum tally_status hosted_job_put_traffic(struct tally_store *store, struct hosted_job *job,
                                         struct tally_error *err)
{
    job->traffic_has_moved = false;
    job->traffic_stored_ms = tally_monotonic_ms();
    return traffic_put(store, &job->row, job->traffic, err);
}

/* ---- From and to the store ---- */

/* Receives a stored update again. */
static enum tally_status receive_again(void *context, const struct tally_store_update *stored,
                                       struct tally_error *err)
{
    struct tally_update update;
    enum tally_status status = tally_update_decode(stored->body, stored->n_body, &update, err);
    if (status == TALLY_OK) {
        struct tally_job_outcome outcome;
        update.round = (uint32_t)stored->round;
        status = tally_job_receive(context, &update, &outcome, err);
        if (status == TALLY_OK && outcome.n_records > 0) {
            status = tally_fail(err, TALLY_DATA_LOSS, NULL, "stored updates close a round");
        }
    }
    if (status != TALLY_OK) {
        tally_error_wrap(err, "stored update of client %u", stored->client);
        return status == TALLY_NO_MEMORY ? status : TALLY_DATA_LOSS;
    }
    return TALLY_OK;
}

/* Restores the metrics of a block of clients, stored as an update of round
 * TALLY_STORE_METRICS_ROUND (hosted_job.h). */
static enum tally_status take_metrics_again(void *context, const struct tally_store_update *stored,
                                            struct tally_error *err)
{
    struct tally_update_request block;
    struct tally_update update;
    enum tally_status status =
        tally_update_request_decode(stored->body, stored->n_body, &block, err);
    for (size_t i = 0; status == TALLY_OK && i < block.n_updates; i++) {
        status = tally_update_request_next(&block, &update, err);
        if (status == TALLY_OK) {
            status = tally_job_restore_metrics(context, block.round, update.client, update.metrics,
                                               update.n_metrics, err);
        }
    }
    if (status != TALLY_OK) {
        tally_error_wrap(err, "stored metrics of clients from %u on", stored->client);
        return status == TALLY_NO_MEMORY ? status : TALLY_DATA_LOSS;
    }
    return TALLY_OK;
}

/* Makes slots and traffic. Traffic in memory is ahead of the store and is kept, to be written
 * again, because the last write may be lost. It is reloaded if another replica has led the job
 * meanwhile. The traffic of a job that has ended stays in the store. */
static enum tally_status make_clients(struct tally_store *store, struct hosted_job *job,
                                      struct tally_error *err)
{
    const struct tally_store_job *row = &job->row;
    const bool is_behind = job->traffic == NULL || row->wire_in_bytes > job->wire_in_bytes ||
                           row->wire_out_bytes > job->wire_out_bytes;
    enum tally_status status = hosted_job_make_slots(job, err);
    job->traffic_has_moved = !is_behind;
    if (status == TALLY_OK && is_behind && !tally_job_status_is_terminal(row->status)) {
        memset(job->traffic, 0, (size_t)row->clients * sizeof *job->traffic);
        status = traffic_get(store, row, job->traffic, err);
        if (status != TALLY_OK) {
            free(job->traffic);
            job->traffic = NULL;
        }
    }
    return status;
}

static enum tally_status restore_engine(struct tally_store *store, struct hosted_job *job,
                                        struct tally_job **ret_engine, struct tally_error *err)
{
    const struct tally_store_job *row = &job->row;
    struct tally_buffer state = {0};
    struct tally_job *engine = NULL;
    enum tally_status status = store->ops->state_get(store, row->key, &state, err);
    if (status == TALLY_NOT_FOUND) {
        tally_error_clear(err);
        status = TALLY_OK;
    }
    if (status == TALLY_OK) {
        status = tally_job_restore(&job->spec, row->status, &row->progress, state.data, state.size,
                                   &engine, err);
    }
    if (status == TALLY_OK && !tally_job_status_is_terminal(row->status) &&
        row->status != TALLY_JOB_QUEUED) {
        status = store->ops->update_list(store, row->key, TALLY_STORE_METRICS_ROUND,
                                         take_metrics_again, engine, err);
        if (status == TALLY_OK) {
            status = store->ops->update_list(store, row->key, tally_job_open_round(engine)->round,
                                             receive_again, engine, err);
        }
    }
    tally_buffer_fini(&state);
    if (status == TALLY_OK && row->status != TALLY_JOB_QUEUED) {
        status = make_clients(store, job, err);
    }
    if (status != TALLY_OK) {
        tally_job_free(engine);
        return status;
    }
    *ret_engine = engine;
    return TALLY_OK;
}

/* A queued engine that stands in until there is memory for the real one. */
static enum tally_status make_stand_in(struct tally_store *store, struct hosted_job *job,
                                       struct tally_job **ret_engine, struct tally_error *err)
{
    (void)store;
    job->needs_reload = job->lacks_memory = true;
    return tally_job_restore(&job->spec, TALLY_JOB_QUEUED, &(struct tally_progress){0}, NULL, 0,
                             ret_engine, err);
}

static struct hosted_job *make(const struct tally_store_job *row)
{
    struct hosted_job *job = tally_xcalloc(1, sizeof *job);
    job->row = *row;
    job->prepared = row->progress.has_f_star;
    job->f_star = row->progress.f_star;
    job->curvature = row->curvature;
    memcpy(job->schedule, row->schedule, sizeof job->schedule);
    job->recovery_bits = row->recovery_bits;
    job->wire_in_bytes = row->wire_in_bytes;
    job->wire_out_bytes = row->wire_out_bytes;
    job->n_vacant = row->clients;
    tally_list_init(&job->assigned);
    return job;
}

static void set_spec(struct hosted_job *job, const struct tally_job_spec *spec)
{
    job->spec = *spec;
    job->started_bytes = tally_footprint_started(spec);
    job->solving_bytes = tally_footprint_solving(spec);
}

enum tally_status hosted_job_new(const struct tally_job_spec *spec, struct hosted_job **ret_job,
                                 struct tally_error *err)
{
    struct tally_store_job row = {.status = TALLY_JOB_QUEUED,
                                  .created_ms = tally_realtime_ms(),
                                  .clients = spec->clients,
                                  .dim = (int64_t)tally_objective_spec_dim(&spec->objective),
                                  .horizon = spec->horizon,
                                  .curvature = TALLY_CURVATURE_UNKNOWN};
    snprintf(row.name, sizeof row.name, "%s", spec->name);
    memcpy(row.labels, spec->labels, sizeof row.labels);
    snprintf(row.algorithm, sizeof row.algorithm, "%s", tally_job_spec_algorithm(spec)->name);
    struct hosted_job *job = make(&row);
    struct tally_json *document = tally_document_of(spec);
    enum tally_status status = TALLY_NO_MEMORY;
    if (document != NULL) {
        set_spec(job, spec);
        status = tally_json_dump(document, 0, &job->document);
    }
    if (status == TALLY_OK) {
        status = tally_job_new(spec, &job->engine, err);
    }
    tally_json_free(document);
    if (status != TALLY_OK) {
        hosted_job_free(job);
        return tally_fail(err, status, NULL, "no memory for the job");
    }
    job->row.progress = *tally_job_progress(job->engine);
    *ret_job = job;
    return TALLY_OK;
}

typedef enum tally_status engine_fn(struct tally_store *store, struct hosted_job *job,
                                    struct tally_job **ret_engine, struct tally_error *err);

static enum tally_status load_with(struct tally_store *store, const struct tally_store_job *row,
                                   engine_fn *make_engine, struct hosted_job **ret_job,
                                   struct tally_error *err)
{
    struct hosted_job *job = make(row);
    struct tally_job_spec spec;
    job->has_stored_updates = true;
    enum tally_status status = store->ops->document_get(store, row->key, &job->document, err);
    if (status == TALLY_NOT_FOUND) { /* every job is stored with one */
        status = TALLY_DATA_LOSS;
        if (err != NULL) {
            err->status = status;
        }
    }
    if (status == TALLY_OK) {
        status =
            tally_document_parse((const char *)job->document.data, job->document.size, &spec, err);
        if (status != TALLY_OK && status != TALLY_NO_MEMORY) {
            status = TALLY_DATA_LOSS;
        }
    }
    if (status == TALLY_OK) {
        set_spec(job, &spec);
        status = make_engine(store, job, &job->engine, err);
    }
    if (status != TALLY_OK) {
        tally_fail(err, status, NULL, "no memory");
        tally_error_wrap(err, "job %s", row->id);
        hosted_job_free(job);
        return status;
    }
    *ret_job = job;
    return TALLY_OK;
}

enum tally_status hosted_job_load(struct tally_store *store, const struct tally_store_job *row,
                                  struct hosted_job **ret_job, struct tally_error *err)
{
    return load_with(store, row, restore_engine, ret_job, err);
}

enum tally_status hosted_job_load_later(struct tally_store *store,
                                        const struct tally_store_job *row,
                                        struct hosted_job **ret_job, struct tally_error *err)
{
    return load_with(store, row, make_stand_in, ret_job, err);
}

int64_t hosted_job_n_lacking(const struct hosted_job *job)
{
    const int64_t needed = tally_job_spec_slots(&job->spec);
    const int64_t n_assigned = job->row.clients - job->n_vacant;
    return needed > n_assigned ? needed - n_assigned : 0;
}

bool hosted_job_is_settled(const struct hosted_job *job)
{
    return tally_monotonic_ms() - job->arrived_ms >= WORKERS_RETURN_MS;
}

/* Whether rounds go on without clients that are absent. */
static bool does_without(const struct hosted_job *job)
{
    return job->spec.policy == TALLY_POLICY_DROP && !tally_job_open_round(job->engine)->surveys;
}

bool hosted_job_is_progressing(const struct hosted_job *job)
{
    const enum tally_job_status status = tally_job_status(job->engine);
    return tally_job_status_is_terminal(status) ||
           (status == TALLY_JOB_RUNNING && !job->deadline_noted &&
            (hosted_job_n_lacking(job) == 0 || does_without(job)));
}

bool hosted_job_may_start(const struct hosted_job *job)
{
    return tally_job_status(job->engine) == TALLY_JOB_QUEUED && job->prepared && !job->needs_reload;
}

bool hosted_job_is_stuck(const struct hosted_job *job)
{
    const enum tally_job_status status = tally_job_status(job->engine);
    const bool started = status == TALLY_JOB_RUNNING || status == TALLY_JOB_PAUSED;
    const int64_t n_lacking = hosted_job_n_lacking(job);
    const bool drops = does_without(job) && /* whichever clients are drawn */
                       tally_job_spec_cohort(&job->spec) - n_lacking >= job->spec.quorum;
    return started && n_lacking > 0 && !drops;
}

void hosted_job_mark_active(struct hosted_job *job)
{
    if (job->marks == NULL || tally_list_has(&job->in_active)) {
        return;
    }
    struct tally_list_node *place = job->marks->active.head.previous;
    while (place != &job->marks->active.head &&
           TALLY_LIST_MEMBER(struct hosted_job, in_active, place)->row.key > job->row.key) {
        place = place->previous;
    }
    tally_list_insert(place, &job->in_active);
}

void hosted_job_mark_touched(struct hosted_job *job)
{
    if (job->marks != NULL) {
        hosted_job_mark_active(job);
        job->touched_in = *job->marks->transaction;
    }
}

void hosted_job_mark_absence(struct hosted_job *job)
{
    job->absence_changed = true;
    if (job->marks != NULL) {
        job->marks->absence_changed = true;
    }
}

/* Notes that the job has ended if its row says so. */
static void mark_ended(const struct hosted_job *job)
{
    if (job->marks != NULL && tally_job_status_is_terminal(job->row.status)) {
        job->marks->ended = true;
    }
}

static void raise_to(uint64_t *counter, uint64_t stored)
{
    *counter = stored > *counter ? stored : *counter;
}

enum tally_status hosted_job_reload(struct tally_store *store, struct hosted_job *job,
                                    struct tally_error *err)
{
    struct tally_job *engine;
    struct tally_store_job row;
    if (job->damage != NULL) {
        return tally_fail(err, TALLY_DATA_LOSS, NULL, "%s", job->damage);
    }
    enum tally_status status = store->ops->job_get(store, job->row.id, &row, err);
    if (status == TALLY_OK) {
        struct tally_store_job old = job->row;
        job->row = row;
        status = restore_engine(store, job, &engine, err);
        if (status != TALLY_OK) {
            job->row = old;
        }
    }
    if (status == TALLY_OK) {
        tally_job_free(job->engine);
        job->engine = engine;
        job->provenance_is_current = false;
        provenance_forget(&job->origins);
        hosted_job_forget_task(job); /* it may be a different round with the same number */
        job->stored_state = (struct stored_state){0};
        job->has_stored_updates = true;
        hosted_job_mark_active(job); /* it may have been started by then */
        job->needs_reload = job->lacks_memory = job->is_deleted = false;
        /* Another replica may have led the job meanwhile, and its counts may be higher. */
        raise_to(&job->recovery_bits, row.recovery_bits);
        raise_to(&job->wire_in_bytes, row.wire_in_bytes);
        raise_to(&job->wire_out_bytes, row.wire_out_bytes);
        mark_ended(job);
    }
    return status;
}

enum tally_status hosted_job_put_row(struct tally_store *store, struct hosted_job *job,
                                     int64_t now_ms, struct tally_error *err)
{
    hosted_job_mark_touched(job);
    struct tally_store_job row = job->row;
    row.status = tally_job_status(job->engine);
    row.progress = *tally_job_progress(job->engine);
    row.curvature = job->curvature;
    if (job->schedule[0] != '\0') { /* another replica may have stored one that is not known here */
        memcpy(row.schedule, job->schedule, sizeof row.schedule);
    }
    row.recovery_bits = job->recovery_bits;
    row.wire_in_bytes = job->wire_in_bytes;
    row.wire_out_bytes = job->wire_out_bytes;
    if (row.reason[0] == '\0') {
        snprintf(row.reason, sizeof row.reason, "%s", tally_job_reason(job->engine));
    }
    size_t dim; /* a job that ends or pauses in the queue has not started */
    if (row.started_ms == 0 && tally_job_point(job->engine, &dim) != NULL) {
        row.started_ms = now_ms;
    }
    if (tally_job_status_is_terminal(row.status) && row.finished_ms == 0) {
        row.finished_ms = now_ms;
    }
    const enum tally_job_status before = job->row.status;
    enum tally_status status = store->ops->job_update(store, &row, err);
    if (status == TALLY_OK && row.status != before && job->spec.webhook[0] != '\0') {
        status = webhook_queue_add(store, &row, before, job->spec.webhook, now_ms, err);
        job->webhook_is_due = true;
        job->marks->webhooks_due = true;
    }
    if (status == TALLY_OK) {
        job->row = row;
        mark_ended(job);
    }
    return status;
}

static struct tally_saved saved_at(const struct hosted_job *job)
{
    return (struct tally_saved){job->row.progress.round, job->row.progress.iterate};
}

static enum tally_status put_whole(struct tally_store *store, struct hosted_job *job,
                                   struct tally_error *err)
{
    struct tally_buffer bytes = {0};
    enum tally_status status = tally_job_save_state(job->engine, &bytes);
    if (status == TALLY_OK) {
        status = store->ops->state_put(store, job->row.key, bytes.data, bytes.size, err);
    }
    job->stored_state = (struct stored_state){.at = saved_at(job),
                                              .whole_bytes = bytes.size,
                                              .most_changes = tally_job_has_memory(job->engine)
                                                                  ? STATE_MOST_ROUNDS_AGAIN
                                                                  : STATE_MOST_CHANGES};
    tally_buffer_fini(&bytes);
    return status;
}

static enum tally_status append_change(struct tally_store *store, struct hosted_job *job,
                                       struct tally_error *err)
{
    struct stored_state *stored = &job->stored_state;
    struct tally_buffer change = {0};
    enum tally_status status = tally_job_save_change(job->engine, &stored->at, &change, err);
    if (status == TALLY_OK) {
        status = store->ops->state_append(store, job->row.key, job->row.progress.round, change.data,
                                          change.size, err);
    }
    stored->at = saved_at(job);
    stored->change_bytes += change.size;
    stored->n_changes++;
    tally_buffer_fini(&change);
    return status;
}

/* Appends the round's change to the state, or stores the whole state. The latter if no round
 * closed, since changes are identified by their round, and if the job has finished, since its state
 * will never change again. */
static enum tally_status put_state(struct tally_store *store, struct hosted_job *job,
                                   bool has_closed_round, struct tally_error *err)
{
    const struct stored_state *stored = &job->stored_state;
    const bool takes_change =
        has_closed_round && !tally_job_status_is_terminal(job->row.status) &&
        stored_state_takes(stored, tally_job_change_bytes(job->engine, &stored->at));
    return takes_change ? append_change(store, job, err) : put_whole(store, job, err);
}

/* Appends the metrics of one row: those that the round's clients from place `first` on reported.
 * Returns how many clients reported any; -1 = out of memory. */
static int64_t encode_metrics(const struct hosted_job *job, uint32_t first,
                              struct tally_buffer *out)
{
    struct tally_update update = {0};
    struct tally_update_request block = {.round = (uint32_t)tally_job_metrics_round(job->engine)};
    enum tally_status status = TALLY_OK;
    int64_t n = 0;
    uint32_t n_clients;
    const uint32_t *clients = tally_job_metrics_clients(job->engine, &n_clients);
    for (uint32_t i = first;
         status == TALLY_OK && i < n_clients && i - first < CLIENT_METRICS_BLOCK; i++) {
        update.client = clients[i];
        update.n_metrics = tally_job_client_metrics(job->engine, clients[i], update.metrics);
        if (update.n_metrics > 0) {
            status = tally_update_request_add(&update, out);
            n++;
        }
    }
    memcpy(block.job_id, job->row.id, sizeof job->row.id);
    if (status == TALLY_OK) {
        status = tally_update_request_end(&block, out);
    }
    return status == TALLY_OK ? n : -1;
}

/* Stores the metrics of each client. Those of earlier rounds were dropped with their updates. */
static enum tally_status put_client_metrics(struct tally_store *store, struct hosted_job *job,
                                            struct tally_error *err)
{
    struct tally_buffer body = {0};
    enum tally_status status = TALLY_OK;
    if (tally_job_metrics_round(job->engine) == 0) {
        return TALLY_OK;
    }
    const uint32_t n_clients = tally_job_spec_cohort(&job->spec);
    job->has_stored_updates = true;
    for (uint32_t first = 0; status == TALLY_OK && first < n_clients;
         first += CLIENT_METRICS_BLOCK) {
        body.size = 0;
        const int64_t n = encode_metrics(job, first, &body);
        if (n < 0) {
            status = tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the clients' metrics");
        } else if (n > 0) {
            const struct tally_store_update update = {.round = TALLY_STORE_METRICS_ROUND,
                                                      .client = first,
                                                      .body = body.data,
                                                      .n_body = body.size};
            status = store->ops->update_insert(store, job->row.key, &update, err);
        }
    }
    tally_buffer_fini(&body);
    return status;
}

static enum tally_status copy_record(void *context, const struct tally_round_record *record,
                                     struct tally_error *err)
{
    (void)err;
    *(struct tally_round_record *)context = *record;
    return TALLY_OK;
}

/* Adds an evaluation to the record of the round that made the model, which an earlier transaction
 * has stored. */
static enum tally_status put_evaluation(struct tally_store *store, const struct hosted_job *job,
                                        const struct tally_round_evaluation *evaluation,
                                        struct tally_error *err)
{
    struct tally_round_record record = {.round = 0};
    enum tally_status status = store->ops->round_list(store, job->row.key, evaluation->round - 1, 1,
                                                      copy_record, &record, err);
    if (status == TALLY_OK && record.round != evaluation->round) {
        status = tally_fail(err, TALLY_DATA_LOSS, NULL, "job %s has no record of round %lld",
                            job->row.id, (long long)evaluation->round);
    }
    if (status == TALLY_OK) {
        tally_record_evaluate(&record, evaluation);
        status = store->ops->round_update(store, job->row.key, &record, err);
    }
    return status;
}

static enum tally_status put_model(struct tally_store *store, const struct hosted_job *job,
                                   const struct tally_store_model *model, const double *x,
                                   struct tally_error *err)
{
    struct tally_store_model whole = *model;
    whole.n_bytes = job->row.dim * (int64_t)sizeof *x;
    return store->ops->model_put(store, job->row.key, &whole, x, err);
}

/* Stores the models that the document asks to keep, if the rounds that closed have made any. */
static enum tally_status put_models(struct tally_store *store, const struct hosted_job *job,
                                    const struct tally_job_outcome *outcome,
                                    struct tally_error *err)
{
    const struct tally_progress *progress = &job->row.progress;
    const double *best = tally_job_new_best(job->engine);
    const int64_t every = job->spec.keep.every;
    enum tally_status status = TALLY_OK;
    size_t dim;
    if (best != NULL) {
        const struct tally_store_model model = {
            .slot = TALLY_STORE_BEST_MODEL,
            .round = progress->best.round,
            .iterate = progress->best.iterate,
            .value = progress->best.value,
            .x_checksum = tally_checksum64(best, (size_t)job->row.dim * sizeof *best)};
        status = put_model(store, job, &model, best, err);
    }
    for (int i = 0; status == TALLY_OK && every > 0 && i < outcome->n_records; i++) {
        const int64_t round = outcome->records[i].round;
        if (round % every == 0) { /* a second record is of a round that moved nothing */
            const struct tally_store_model model = {.slot = round,
                                                    .round = round,
                                                    .iterate = progress->iterate,
                                                    .value = (double)NAN,
                                                    .x_checksum = progress->x_checksum};
            status = put_model(store, job, &model, tally_job_point(job->engine, &dim), err);
        }
    }
    return status;
}

int64_t hosted_job_last_settled_round(const struct hosted_job *job)
{
    const bool is_over = tally_job_status(job->engine) == TALLY_JOB_COMPLETED ||
                         tally_job_round_only_evaluates(tally_job_open_round(job->engine));
    return tally_job_progress(job->engine)->round + is_over;
}

enum tally_status hosted_job_put_rounds(struct tally_store *store, struct hosted_job *job,
                                        const struct tally_job_outcome *outcome, int64_t now_ms,
                                        struct tally_error *err)
{
    enum tally_status status = hosted_job_put_row(store, job, now_ms, err);
    if (status == TALLY_OK && outcome->evaluation.round != 0) {
        status = put_evaluation(store, job, &outcome->evaluation, err);
    }
    for (int i = 0; status == TALLY_OK && i < outcome->n_records; i++) {
        struct tally_round_record record = outcome->records[i];
        record.closed_ms = now_ms;
        status = store->ops->round_insert(store, job->row.key, &record, err);
    }
    if (status == TALLY_OK) {
        status = put_models(store, job, outcome, err);
    }
    if (status == TALLY_OK && job->has_stored_updates) {
        const int64_t settled =
            outcome->surveyed ? SURVEY_ROUND : hosted_job_last_settled_round(job);
        status = store->ops->updates_delete(store, job->row.key, TALLY_STORE_METRICS_ROUND, settled,
                                            err);
        job->has_stored_updates = status != TALLY_OK;
    }
    if (status == TALLY_OK) {
        status = put_client_metrics(store, job, err);
    }
    return status == TALLY_OK ? put_state(store, job, outcome->n_records > 0, err) : status;
}

/* Completes the detail, whose members are those of the job's document so far; it is taken. spec:
 * NULL = not valid. */
static struct tally_json *add_detail(struct tally_json *detail, const struct tally_store_job *row,
                                     const struct tally_job_spec *spec,
                                     const struct tally_waiting *waiting)
{
    struct tally_advice advice = {.n = 0};
    struct tally_planned planned;
    bool is_planned = false;
    if (spec != NULL) {
        advice = tally_advise(spec, &row->curvature);
        is_planned = tally_planned_read(spec, row->schedule, &planned);
    }
    const struct tally_job_facts facts = {.id = row->id,
                                          .status = row->status,
                                          .reason = row->reason,
                                          .clients = row->clients,
                                          .dim = row->dim,
                                          .created_ms = row->created_ms,
                                          .started_ms = row->started_ms,
                                          .finished_ms = row->finished_ms,
                                          .recovery_bits = row->recovery_bits,
                                          .wire_in_bytes = row->wire_in_bytes,
                                          .wire_out_bytes = row->wire_out_bytes,
                                          .waiting = waiting,
                                          .curvature = row->curvature,
                                          .advice = &advice,
                                          .planned = is_planned ? &planned : NULL};
    return tally_json_if_complete(detail, tally_detail_add(detail, &facts, &row->progress));
}

struct tally_json *hosted_job_detail(const struct tally_store_job *row,
                                     const struct tally_buffer *document,
                                     const struct tally_job_spec *spec,
                                     const struct tally_waiting *waiting)
{
    struct tally_json *detail;
    struct tally_job_spec stored = tally_job_spec_default();
    if (tally_json_parse((const char *)document->data, document->size, &detail, NULL) != TALLY_OK) {
        return NULL;
    }
    /* A document that only an older version accepted still has a detail. */
    if (spec == NULL && tally_document_read(detail, &stored, NULL) == TALLY_OK &&
        tally_job_spec_validate(&stored, NULL) == TALLY_OK) {
        spec = &stored;
    }
    return add_detail(detail, row, spec, waiting);
}

struct tally_json *hosted_job_new_detail(const struct hosted_job *job,
                                         const struct tally_waiting *waiting)
{
    assert(job->spec.clients > 0); /* it is valid */
    return add_detail(tally_document_of(&job->spec), &job->row, &job->spec, waiting);
}
