#include "services/coordinator/rest_events.h"
#include "services/base/alloc.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/base/log.h"
#include "services/base/time.h"
#include "services/coordinator/coordinator.h"
#include "services/coordinator/jobs_live.h"
#include "services/coordinator/loop_transaction.h"
#include "services/coordinator/rest_routes.h"
#include "services/coordinator/rest_series.h"
#include "services/coordinator/workers.h"
#include "services/job/document.h"
#include "services/job/job_detail.h"

/* Ends the stream: no event follows (rest_events.c). */
static void finish_stream(struct event_stream *stream);

/* The events after a stream's cursor. Makes at most *n_left chunks from the store, counting *n_left
 * down. NULL with TALLY_OK: not in this turn. Errors: STORE, DATA_LOSS, NO_MEMORY. */
static enum tally_status find_chunk(struct event_stream *stream, int *n_left,
                                    const struct event_chunk **ret_chunk, struct tally_error *err);

/* Writes the evaluation of an ended job's last round. False if it must be tried again. */
static bool write_last_evaluation(struct event_stream *stream, int64_t now_ms);

/* Makes the job event of the feed's row, if it has not been made. Errors: STORE, DATA_LOSS,
 * NO_MEMORY. */
static enum tally_status make_detail(struct tally_coordinator *coordinator, struct event_feed *feed,
                                     struct tally_error *err);

/* Counts one stream less; the last one frees the feed. */
static void release_feed(struct event_feed *feed);

/* Updates the feed from the job. True if there is something new for the streams. */
static bool events_check_job(struct tally_coordinator *coordinator, struct event_feed *feed,
                             int64_t now_ms);

/* The job's feed, or a new one, with `row` as its newest row; counts one more stream. NULL = out of
 * memory. */
static struct event_feed *take_feed(struct tally_coordinator *coordinator,
                                    const struct tally_store_job *row);

enum {
    /* Buffer per reader; a chunk and a detail must fit. */
    MAX_PENDING_BYTES = 64 * 1024,
    CHUNKS_PER_STEP = 8 /* made per turn, in a few milliseconds */
};

/* ---- Streams ---- */

/* Writes a text if it fits; returns false if the stream is full and must drain first. */
static bool write_text(struct event_stream *stream, const struct tally_buffer *text, int64_t now_ms)
{
    if (tally_http_stream_write(stream->stream, text->data, text->size) != TALLY_OK) {
        stream->is_full = tally_http_stream_pending(stream->stream) > 0;
        return false;
    }
    stream->written_ms = now_ms;
    return true;
}

static void finish_stream(struct event_stream *stream)
{
    stream->ended = true;
    tally_http_stream_end(stream->stream);
}

static bool write_job_event(struct event_stream *stream, int64_t now_ms)
{
    struct event_feed *feed = stream->feed;
    struct tally_error err = TALLY_ERROR_INIT;
    if (make_detail(stream->coordinator, feed, &err) != TALLY_OK ||
        feed->detail.size > MAX_PENDING_BYTES) {
        transaction_note_damage(stream->coordinator->transaction, &err);
        finish_stream(stream); /* a client that reconnects gets the reason */
        return false;
    }
    if (!write_text(stream, &feed->detail, now_ms)) {
        return false;
    }
    stream->job_event = feed->job_event;
    stream->job_event_is_last = true;
    return true;
}

/* Writes what the stream lacks and has room for. Returns false if more must be made in the next
 * turn. */
static bool fill(struct event_stream *stream, int64_t now_ms, int *n_left)
{
    const struct event_feed *feed = stream->feed;
    if (stream->is_full) {
        return true;
    }
    while (stream->cursor < feed->row.progress.round) {
        const struct event_chunk *chunk;
        struct tally_error err = TALLY_ERROR_INIT;
        if (find_chunk(stream, n_left, &chunk, &err) != TALLY_OK) {
            tally_log(TALLY_LOG_WARN, tally_log_event("events cannot be read"),
                      tally_log_text("job", feed->row.id), tally_log_problem(&err));
            transaction_note_damage(stream->coordinator->transaction, &err);
            finish_stream(stream);
            return true;
        }
        if (chunk == NULL) {
            return false;
        }
        if (!write_text(stream, &chunk->text, now_ms)) {
            return true;
        }
        stream->cursor = chunk->through;
        stream->totals = chunk->totals;
        stream->job_event_is_last = false;
    }
    const bool is_over = tally_job_status_is_terminal(feed->row.status) && feed->job == NULL;
    if (is_over && feed->evaluates && !stream->has_last_evaluation &&
        !write_last_evaluation(stream, now_ms)) {
        return true;
    }
    const bool lacks_job_event =
        stream->job_event != feed->job_event || (is_over && !stream->job_event_is_last);
    if (lacks_job_event && !write_job_event(stream, now_ms)) {
        return true;
    }
    if (is_over) {
        finish_stream(stream);
    }
    return true;
}

static void beat(struct event_stream *stream, int64_t now_ms)
{
    static const char HEARTBEAT[] = ": heartbeat\n\n";
    if (!stream->ended && now_ms - stream->written_ms >= stream->coordinator->config.heartbeat_ms &&
        tally_http_stream_pending(stream->stream) == 0) {
        (void)tally_http_stream_write(stream->stream, HEARTBEAT, sizeof HEARTBEAT - 1);
        stream->written_ms = now_ms;
    }
}

static void on_drained(void *context, struct tally_http_stream *http)
{
    (void)http;
    struct event_stream *stream = context;
    stream->is_full = false;
    if (stream->cursor < stream->feed->row.progress.round ||
        stream->job_event != stream->feed->job_event) {
        stream->coordinator->events->has_more = true;
    }
}

static void on_closed(void *context, struct tally_http_stream *http)
{
    (void)http;
    struct event_stream *stream = context;
    struct tally_coordinator *coordinator = stream->coordinator;
    tally_list_remove(&stream->node);
    coordinator->events->n_streams--;
    release_feed(stream->feed);
    free(stream);
}

/* Moves the streams before `first` behind the others. */
static void rotate_to(struct tally_list *streams, struct event_stream *first)
{
    while (streams->head.next != &first->node) {
        struct tally_list_node *node = streams->head.next;
        tally_list_remove(node);
        tally_list_append(streams, node);
    }
}

static void serve_stream(struct event_stream *stream, int64_t now_ms, int *n_left,
                         struct event_stream **first_unserved)
{
    if (stream->ended) {
        return;
    }
    if (stream->coordinator->draining ||
        (stream->token_until_ms != INT64_MAX && tally_realtime_ms() >= stream->token_until_ms)) {
        finish_stream(stream);
        return;
    }
    if (!fill(stream, now_ms, n_left) && *first_unserved == NULL) {
        *first_unserved = stream;
    }
    beat(stream, now_ms);
}

void events_finish_streams(struct tally_coordinator *coordinator)
{
    TALLY_LIST_EACH(node, &coordinator->events->streams)
    {
        struct event_stream *s = TALLY_LIST_MEMBER(struct event_stream, node, node);
        if (!s->ended) {
            finish_stream(s);
        }
    }
}

void events_new(struct tally_coordinator *coordinator)
{
    struct events *events = tally_xcalloc(1, sizeof *events);
    tally_list_init(&events->streams);
    tally_list_init(&events->feeds);
    coordinator->events = events;
}

bool events_serve(struct tally_coordinator *coordinator, int64_t now_ms)
{
    bool must_serve = coordinator->events->has_more || now_ms >= coordinator->events->next_ms;
    TALLY_LIST_EACH(node, &coordinator->events->feeds)
    {
        struct event_feed *feed = TALLY_LIST_MEMBER(struct event_feed, node, node);
        must_serve = events_check_job(coordinator, feed, now_ms) || must_serve;
    }
    if (!must_serve || tally_list_is_empty(&coordinator->events->streams)) {
        return false;
    }
    coordinator->events->next_ms = now_ms + FEED_MS;
    coordinator->events->has_more = false;
    int n_left = CHUNKS_PER_STEP;
    struct event_stream *unserved = NULL;
    TALLY_LIST_EACH(node, &coordinator->events->streams)
    {
        serve_stream(TALLY_LIST_MEMBER(struct event_stream, node, node), now_ms, &n_left,
                     &unserved);
    }
    if (unserved != NULL) { /* this stream comes first in the next turn */
        rotate_to(&coordinator->events->streams, unserved);
        coordinator->events->has_more = true;
    }
    return unserved != NULL;
}

/* ---- The request ---- */

/* Accepts only digits, as we wrote them. */
static enum tally_status parse_round(const char *field, const char *text, int64_t last,
                                     int64_t *ret_round, struct tally_error *err)
{
    const size_t n = strlen(text);
    if (n == 0 || n > 18 || strspn(text, "0123456789") != n) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, field, "%s \"%.32s\" is not a round", field,
                          text);
    }
    const int64_t round = strtoll(text, NULL, 10);
    if (round > last) {
        return tally_fail(err, TALLY_OUT_OF_RANGE, field, "%s %lld is past the last round, %lld",
                          field, (long long)round, (long long)last);
    }
    *ret_round = round;
    return TALLY_OK;
}

static enum tally_status add_to_totals(void *context, const struct tally_round_record *record,
                                       struct tally_error *err)
{
    (void)err;
    series_totals_add(context, record);
    return TALLY_OK;
}

/* A request for a stream until the stream opens: the running totals after its cursor must be known,
 * and reading them may take many pieces. */
struct opening {
    struct response_pieces pieces; /* must be first */
    struct tally_store_job row;
    struct event_stream begin;
    struct series_use use;
};

static void free_opening(struct response_pieces *pieces)
{
    struct opening *opening = (struct opening *)pieces;
    series_release(&opening->use);
    free(opening);
}

/* Running totals after the cursor, once the series has been read: those of the newest kept row
 * before it, plus the rounds in between. */
static enum tally_status totals_at(struct tally_store *store, const struct opening *opening,
                                   int64_t round, struct series_totals *ret_totals,
                                   struct tally_error *err)
{
    const struct series_row *before = series_at_or_before(opening->use.series, round);
    int64_t after = 0;
    *ret_totals = (struct series_totals){0};
    if (before != NULL) {
        *ret_totals = before->totals;
        after = before->round;
    }
    return after == round ? TALLY_OK
                          : store->ops->round_list(store, opening->row.key, after, round - after,
                                                   add_to_totals, ret_totals, err);
}

static enum tally_status begin_stream(struct tally_coordinator *coordinator, struct call *call,
                                      const struct tally_store_job *row,
                                      const struct event_stream *begin, struct tally_error *err)
{
    struct event_stream *stream = tally_xcalloc(1, sizeof *stream);
    struct event_feed *feed = take_feed(coordinator, row);
    const struct tally_http_stream_config config = {.max_pending_bytes = MAX_PENDING_BYTES,
                                                    .on_drained = on_drained,
                                                    .on_closed = on_closed,
                                                    .context = stream};
    *stream = *begin;
    stream->feed = feed;
    stream->written_ms = tally_monotonic_ms();
    call->headers[0].name = "Cache-Control";
    call->headers[0].value = "no-store";
    call->headers[1].name = "X-Accel-Buffering"; /* so that nginx does not buffer the events */
    call->headers[1].value = "no";
    call->content_type = "text/event-stream";
    enum tally_status status = call_begin_stream(coordinator, call, &config, &stream->stream, err);
    if (status != TALLY_OK) {
        release_feed(feed);
        free(stream);
        return status;
    }
    tally_list_append(&coordinator->events->streams, &stream->node);
    coordinator->events->n_streams++;
    coordinator->events->has_more = true;
    char opening[64];
    const int n =
        snprintf(opening, sizeof opening, "retry: 1000\nid: %" PRId64 "\n\n", stream->cursor);
    (void)tally_http_stream_write(stream->stream, opening, (size_t)n);
    (void)write_job_event(stream, stream->written_ms);
    return TALLY_OK;
}

/* Opens the stream once its totals are known. */
static enum tally_status begin_when_read(struct call *call, struct tally_error *err)
{
    struct opening *opening = (struct opening *)call->pieces;
    struct event_stream *begin = &opening->begin;
    struct tally_coordinator *coordinator = begin->coordinator;
    enum tally_status status = TALLY_OK;
    if (begin->cursor == opening->row.progress.round) {
        begin->totals = series_totals_of(&opening->row.progress);
    } else if (begin->cursor > 0) {
        bool is_read;
        status = series_read(coordinator, &opening->row, &opening->use, &is_read, err);
        if (status != TALLY_OK || !is_read) {
            return status;
        }
        status = totals_at(coordinator->store, opening, begin->cursor, &begin->totals, err);
    }
    if (status == TALLY_OK && coordinator->draining) {
        return tally_fail(err, TALLY_UNAVAILABLE, NULL, "the coordinator is shutting down");
    }
    if (status == TALLY_OK && coordinator->events->n_streams >= coordinator->config.max_streams) {
        return tally_fail(
            err, TALLY_RESOURCE_EXHAUSTED, NULL, "%lld event streams are open, the limit is %lld",
            (long long)coordinator->events->n_streams, (long long)coordinator->config.max_streams);
    }
    return status == TALLY_OK ? begin_stream(coordinator, call, &opening->row, begin, err) : status;
}

enum tally_status rest_get_events(struct tally_coordinator *coordinator, struct call *call,
                                  struct tally_error *err)
{
    struct tally_store_job row;
    const char *resumed = tally_http_header(call->request, "Last-Event-ID");
    const char *after = tally_http_query(call->request, "after");
    struct event_stream begin = {.coordinator = coordinator,
                                 .token_until_ms = call->token_until_ms};
    enum tally_status status = jobs_read_row(coordinator, call->params[0], &row, err);
    if (status != TALLY_OK) {
        return status;
    }
    begin.cursor = row.progress.round;
    if (resumed != NULL) { /* the newer of the two, since EventSource repeats the query unchanged */
        status = parse_round("Last-Event-ID", resumed, row.progress.round, &begin.cursor, err);
    } else if (after != NULL) {
        status = parse_round("after", after, row.progress.round, &begin.cursor, err);
    }
    if (status != TALLY_OK) {
        return status;
    }
    if (tally_job_status_is_terminal(row.status) && (resumed != NULL || after != NULL) &&
        begin.cursor == row.progress.round) {
        call->answered = true;
        call->status = 204; /* after this, EventSource does not reconnect */
        return TALLY_OK;
    }
    struct opening *opening = tally_xcalloc(1, sizeof *opening);
    opening->pieces = (struct response_pieces){begin_when_read, free_opening, 0};
    opening->row = row;
    opening->begin = begin;
    call->pieces = &opening->pieces;
    return begin_when_read(call, err);
}

enum {
    ELSEWHERE_MS = 250,  /* between reads of a job that another replica leads */
    JOB_EVENT_MS = 1000, /* between job events: the detail changes all the time */
    CHUNK_ROUNDS = 48    /* some 35 KB of text, never more than 60 KB */
};

/* ---- Texts ---- */

static bool set_totals(struct tally_json *object, const struct series_totals *totals)
{
    const struct tally_ledger *bits = &totals->bits;
    struct tally_json *value = tally_json_object();
    const bool ok =
        tally_json_set_real(value, "cumulative_regret", totals->cumulative_regret) &&
        tally_json_set_unsigned(value, "uplink_formula", bits->uplink.formula_bits) &&
        tally_json_set_unsigned(value, "uplink_payload", bits->uplink.payload_bits) &&
        tally_json_set_unsigned(value, "downlink_formula", bits->downlink.formula_bits) &&
        tally_json_set_unsigned(value, "downlink_payload", bits->downlink.payload_bits) &&
        tally_json_set_unsigned(value, "uplink_messages", bits->uplink.messages) &&
        tally_json_set_unsigned(value, "downlink_messages", bits->downlink.messages) &&
        tally_json_set_unsigned(value, "control", bits->control_bits) &&
        tally_json_set_unsigned(value, "telemetry", bits->telemetry_bits);
    return tally_json_set(object, "totals", tally_json_if_complete(value, ok));
}

/* Appends an event. Takes `data`, which is NULL if memory ran out. */
static enum tally_status append_event(struct tally_buffer *out, const char *head,
                                      struct tally_json *data, struct tally_error *err)
{
    enum tally_status status = data != NULL ? tally_buffer_append_text(out, head) : TALLY_NO_MEMORY;
    if (status == TALLY_OK) {
        status = tally_json_dump(data, 0, out);
    }
    if (status == TALLY_OK) {
        status = tally_buffer_append_text(out, "\n\n");
    }
    tally_json_free(data);
    return status == TALLY_OK ? status : tally_fail(err, status, NULL, "no memory for events");
}

/* {"round": 3, "metrics": {...}} */
static enum tally_status append_evaluation(const struct tally_round_record *record,
                                           struct tally_buffer *out, struct tally_error *err)
{
    if (record->metrics[0] == '\0') {
        return TALLY_OK;
    }
    struct tally_json *object = tally_json_object();
    const bool ok = tally_json_set_integer(object, "round", record->round) &&
                    tally_detail_set_metrics(object, record->metrics);
    return append_event(out, "event: evaluation\ndata: ", tally_json_if_complete(object, ok), err);
}

static enum tally_status add_round_event(void *context, const struct tally_round_record *record,
                                         struct tally_error *err)
{
    struct event_chunk *chunk = context;
    if (record->round == chunk->after) {
        return append_evaluation(record, &chunk->text, err);
    }
    series_totals_add(&chunk->totals, record);
    chunk->through = record->round;
    struct tally_json *object = tally_detail_round(record);
    char head[64];
    snprintf(head, sizeof head, "event: round\nid: %" PRId64 "\ndata: ", record->round);
    object = tally_json_if_complete(object, set_totals(object, &chunk->totals));
    return append_event(&chunk->text, head, object, err);
}

static enum tally_status find_chunk(struct event_stream *stream, int *n_left,
                                    const struct event_chunk **ret_chunk, struct tally_error *err)
{
    struct event_feed *feed = stream->feed;
    struct event_chunk *chunk = &feed->chunks[0];
    /* No more chunks than readers, since the memory of a thousand feeds adds up. */
    for (int64_t i = 0; i < CHUNKS_PER_FEED && i < feed->n_streams; i++) {
        struct event_chunk *each = &feed->chunks[i];
        if (each->after == stream->cursor && each->through > each->after) {
            each->used = ++feed->n_chunk_uses;
            *ret_chunk = each;
            return TALLY_OK;
        }
        chunk = each->used < chunk->used ? each : chunk;
    }
    *ret_chunk = NULL;
    if (*n_left == 0) {
        return TALLY_OK;
    }
    --*n_left;
    chunk->after = chunk->through = stream->cursor;
    chunk->totals = stream->totals;
    chunk->text.size = 0;
    struct tally_store *store = stream->coordinator->store;
    const bool has_evaluation = feed->evaluates && chunk->after > 0;
    enum tally_status status =
        store->ops->round_list(store, feed->row.key, chunk->after - has_evaluation,
                               CHUNK_ROUNDS + has_evaluation, add_round_event, chunk, err);
    struct tally_store_job row;
    const bool is_empty = status == TALLY_OK && chunk->through == chunk->after;
    if (is_empty) {
        status =
            jobs_read_row(stream->coordinator, feed->row.id, &row, err); /* may be deleted by now */
    }
    if (is_empty && status == TALLY_OK) {
        status = tally_fail(err, TALLY_DATA_LOSS, NULL, "no round after %lld of %lld",
                            (long long)chunk->after, (long long)feed->row.progress.round);
    }
    if (status != TALLY_OK) {
        chunk->through = chunk->after; /* a truncated text is useless */
        return status;
    }
    chunk->used = ++feed->n_chunk_uses;
    *ret_chunk = chunk;
    return TALLY_OK;
}

static enum tally_status append_last(void *context, const struct tally_round_record *record,
                                     struct tally_error *err)
{
    return append_evaluation(record, context, err);
}

static bool write_last_evaluation(struct event_stream *stream, int64_t now_ms)
{
    struct tally_store *store = stream->coordinator->store;
    struct tally_buffer text = {0};
    struct tally_error err = TALLY_ERROR_INIT;
    const enum tally_status status = store->ops->round_list(
        store, stream->feed->row.key, stream->cursor - 1, 1, append_last, &text, &err);
    if (status != TALLY_OK) {
        transaction_note_damage(stream->coordinator->transaction, &err);
        finish_stream(stream); /* a client that reconnects gets the reason */
    }
    const bool is_written =
        status == TALLY_OK && (text.size == 0 || write_text(stream, &text, now_ms));
    stream->has_last_evaluation = is_written;
    if (is_written) {
        stream->job_event_is_last = false;
    }
    tally_buffer_fini(&text);
    return is_written;
}

/* Whether two rows of a job would be shown alike. */
static bool same_row(const struct tally_store_job *a, const struct tally_store_job *b)
{
    return a->key == b->key && a->status == b->status && a->progress.round == b->progress.round &&
           a->recovery_bits == b->recovery_bits && a->wire_in_bytes == b->wire_in_bytes &&
           a->wire_out_bytes == b->wire_out_bytes;
}

static enum tally_status make_detail(struct tally_coordinator *coordinator, struct event_feed *feed,
                                     struct tally_error *err)
{
    if (same_row(&feed->detailed, &feed->row)) {
        return TALLY_OK;
    }
    struct tally_store *store = coordinator->store;
    struct tally_buffer document = {0};
    feed->detailed.key = 0;
    feed->detail.size = 0;
    enum tally_status status = store->ops->document_get(store, feed->row.key, &document, err);
    if (status == TALLY_OK) {
        struct tally_json *detail =
            hosted_job_detail(&feed->row, &document, feed->job != NULL ? &feed->job->spec : NULL,
                              feed->waits ? &feed->waiting : NULL);
        feed->evaluates = tally_document_evaluates(detail);
        status = append_event(&feed->detail, "event: job\ndata: ", detail, err);
    }
    tally_buffer_fini(&document);
    if (status == TALLY_OK) {
        feed->detailed = feed->row;
    }
    return status;
}

/* ---- Feeds ---- */

static void release_feed(struct event_feed *feed)
{
    if (--feed->n_streams > 0) {
        return;
    }
    tally_list_remove(&feed->node);
    if (feed->job != NULL) {
        feed->job->feed = NULL;
    }
    for (size_t i = 0; i < CHUNKS_PER_FEED; i++) {
        tally_buffer_fini(&feed->chunks[i].text);
    }
    tally_buffer_fini(&feed->detail);
    free(feed);
}

void events_forget_job(struct hosted_job *job)
{
    if (job->feed != NULL) {
        job->feed->next_check_ms = 0;
        job->feed->job = NULL;
        job->feed->must_read = true;
        job->feed = NULL;
    }
}

void events_forget_key(struct tally_coordinator *coordinator, int64_t job_key)
{
    TALLY_LIST_EACH(node, &coordinator->events->feeds)
    {
        struct event_feed *feed = TALLY_LIST_MEMBER(struct event_feed, node, node);
        if (feed->row.key == job_key) { /* the store no longer has it */
            feed->must_read = true;
            feed->next_check_ms = 0;
        }
    }
}

void events_adopt_job(struct tally_coordinator *coordinator, struct hosted_job *job)
{
    TALLY_LIST_EACH(node, &coordinator->events->feeds)
    {
        struct event_feed *feed = TALLY_LIST_MEMBER(struct event_feed, node, node);
        if (feed->row.key == job->row.key) { /* another replica led it until now */
            feed->job = job;
            job->feed = feed;
            feed->must_read = false;
            feed->next_check_ms = 0;
        }
    }
}

/* Reads a job that is no longer live here: the store has its end, or what its leader has
 * written. */
static bool read_stored_row(struct tally_coordinator *coordinator, struct event_feed *feed)
{
    struct tally_error err = TALLY_ERROR_INIT;
    enum tally_status status = jobs_read_row(coordinator, feed->row.id, &feed->row, &err);
    feed->must_read = status != TALLY_OK || !tally_job_status_is_terminal(feed->row.status);
    if (status == TALLY_NOT_FOUND) { /* it is deleted, or its insertion was rolled back */
        TALLY_LIST_EACH(node, &coordinator->events->streams)
        {
            struct event_stream *s = TALLY_LIST_MEMBER(struct event_stream, node, node);
            if (s->feed == feed) {
                finish_stream(s);
            }
        }
    }
    return status == TALLY_OK;
}

/* Updates what the live job waits for. If that has changed, writes the text of the row again. */
static void update_waiting(struct tally_coordinator *coordinator, struct event_feed *feed,
                           int64_t now_ms)
{
    struct tally_waiting waiting;
    const bool waits =
        feed->job != NULL && workers_job_waiting(coordinator, feed->job, now_ms, &waiting);
    if (waits == feed->waits && (!waits || tally_waiting_equals(&waiting, &feed->waiting))) {
        return;
    }
    feed->waits = waits;
    if (waits) {
        feed->waiting = waiting;
    }
    feed->detailed.key = 0;
    feed->has_new_waiting = true;
}

static bool events_check_job(struct tally_coordinator *coordinator, struct event_feed *feed,
                             int64_t now_ms)
{
    bool is_new = false;
    if (feed->job == NULL) {
        if (!feed->must_read || now_ms < feed->next_check_ms) {
            return false;
        }
        is_new = read_stored_row(coordinator, feed);
        feed->next_check_ms =
            now_ms + (is_new ? ELSEWHERE_MS : JOB_EVENT_MS); /* later if the store cannot be read */
    } else {
        const struct tally_store_job *row = &feed->job->row;
        const bool is_stored = !feed->job->needs_reload;
        const bool at_once = is_stored && row->status != feed->row.status;
        if (!at_once && now_ms < feed->next_check_ms) {
            return false;
        }
        if (is_stored) {
            is_new = feed->row.progress.round != row->progress.round || at_once;
            feed->row = *row;
        }
        feed->next_check_ms = now_ms + FEED_MS;
    }
    update_waiting(coordinator, feed, now_ms);
    const bool has_changed = feed->has_new_waiting || !same_row(&feed->row, &feed->announced);
    if (has_changed &&
        (feed->row.status != feed->announced.status || now_ms >= feed->next_job_event_ms)) {
        feed->job_event++;
        feed->announced = feed->row;
        feed->has_new_waiting = false;
        feed->next_job_event_ms = now_ms + JOB_EVENT_MS;
        is_new = true;
    }
    return is_new;
}

static struct event_feed *take_feed(struct tally_coordinator *coordinator,
                                    const struct tally_store_job *row)
{
    struct event_feed *feed = NULL;
    TALLY_LIST_EACH(node, &coordinator->events->feeds)
    {
        struct event_feed *each = TALLY_LIST_MEMBER(struct event_feed, node, node);
        feed = each->row.key == row->key ? each : feed;
    }
    if (feed == NULL) {
        feed = tally_xcalloc(1, sizeof *feed);
        feed->row = feed->announced = *row;
        feed->next_job_event_ms = tally_monotonic_ms() + JOB_EVENT_MS;
        feed->job = jobs_find(coordinator, row->id);
        if (feed->job != NULL) {
            feed->job->feed = feed;
        }
        feed->must_read = feed->job == NULL && !tally_job_status_is_terminal(row->status);
        update_waiting(coordinator, feed, tally_monotonic_ms());
        feed->has_new_waiting = false; /* the stream begins with it */
        tally_list_prepend(&coordinator->events->feeds, &feed->node);
    } else if (feed->row.status == row->status) {
        feed->row = *row; /* events_check_job() must find changes of status */
    }
    feed->n_streams++;
    return feed;
}
