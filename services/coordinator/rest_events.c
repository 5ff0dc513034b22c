#include "services/coordinator/rest_events.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/base/log.h"
#include "services/base/time.h"
#include "services/coordinator/jobs_live.h"
#include "services/coordinator/loop_transaction.h"
#include "services/coordinator/rest_event_feeds.h"
#include "services/coordinator/rest_handlers.h"
#include "services/coordinator/rest_series.h"
#include "services/coordinator/rooms.h"

enum {
    /* Buffer per reader; a chunk and a detail must fit. */
    MAX_PENDING_BYTES = 64 * 1024,
    CHUNKS_PER_TURN = 8 /* made per turn, in a few milliseconds */
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

void end_event_stream(struct event_stream *stream)
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
        end_event_stream(stream); /* a client that reconnects gets the reason */
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
            end_event_stream(stream);
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
    const bool lacks_job_event =
        stream->job_event != feed->job_event || (is_over && !stream->job_event_is_last);
    if (lacks_job_event && !write_job_event(stream, now_ms)) {
        return true;
    }
    if (is_over) {
        end_event_stream(stream);
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
        stream->coordinator->events->is_hungry = true;
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
        end_event_stream(stream);
        return;
    }
    if (!fill(stream, now_ms, n_left) && *first_unserved == NULL) {
        *first_unserved = stream;
    }
    beat(stream, now_ms);
}

void end_streams(struct tally_coordinator *coordinator)
{
    TALLY_LIST_EACH(node, &coordinator->events->streams)
    {
        struct event_stream *s = TALLY_LIST_MEMBER(struct event_stream, node, node);
        if (!s->ended) {
            end_event_stream(s);
        }
    }
}

enum tally_status events_new(struct tally_coordinator *coordinator, struct tally_error *err)
{
    struct events *events = calloc(1, sizeof *events);
    if (events == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for events");
    }
    tally_list_init(&events->streams);
    tally_list_init(&events->feeds);
    coordinator->events = events;
    return TALLY_OK;
}

bool serve_events(struct tally_coordinator *coordinator, int64_t now_ms)
{
    bool must_serve = coordinator->events->is_hungry || now_ms >= coordinator->events->next_ms;
    TALLY_LIST_EACH(node, &coordinator->events->feeds)
    {
        struct event_feed *feed = TALLY_LIST_MEMBER(struct event_feed, node, node);
        must_serve = look_at_job(coordinator, feed, now_ms) || must_serve;
    }
    if (!must_serve || tally_list_is_empty(&coordinator->events->streams)) {
        return false;
    }
    coordinator->events->next_ms = now_ms + FEED_MS;
    coordinator->events->is_hungry = false;
    int n_left = CHUNKS_PER_TURN;
    struct event_stream *unserved = NULL;
    TALLY_LIST_EACH(node, &coordinator->events->streams)
    {
        serve_stream(TALLY_LIST_MEMBER(struct event_stream, node, node), now_ms, &n_left,
                     &unserved);
    }
    if (unserved != NULL) { /* this stream comes first in the next turn */
        rotate_to(&coordinator->events->streams, unserved);
        coordinator->events->is_hungry = true;
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

static enum tally_status open_stream(struct tally_coordinator *coordinator, struct call *call,
                                     const struct tally_store_job *row,
                                     const struct event_stream *begin, struct tally_error *err)
{
    struct event_stream *stream = malloc(sizeof *stream);
    struct event_feed *feed = stream != NULL ? take_feed(coordinator, row) : NULL;
    if (feed == NULL) {
        free(stream);
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for events");
    }
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
    enum tally_status status = begin_stream(coordinator, call, &config, &stream->stream, err);
    if (status != TALLY_OK) {
        release_feed(feed);
        free(stream);
        return status;
    }
    tally_list_append(&coordinator->events->streams, &stream->node);
    coordinator->events->n_streams++;
    coordinator->events->is_hungry = true;
    char opening[64];
    const int n =
        snprintf(opening, sizeof opening, "retry: 1000\nid: %" PRId64 "\n\n", stream->cursor);
    (void)tally_http_stream_write(stream->stream, opening, (size_t)n);
    (void)write_job_event(stream, stream->written_ms);
    return TALLY_OK;
}

/* Opens the stream once its totals are known. */
static enum tally_status open_when_read(struct call *call, struct tally_error *err)
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
    return status == TALLY_OK ? open_stream(coordinator, call, &opening->row, begin, err) : status;
}

enum tally_status get_events(struct tally_coordinator *coordinator, struct call *call,
                             struct tally_error *err)
{
    struct tally_store_job row;
    const char *resumed = tally_http_header(call->request, "Last-Event-ID");
    const char *after = tally_http_query(call->request, "after");
    struct event_stream begin = {.coordinator = coordinator,
                                 .token_until_ms = call->token_until_ms};
    enum tally_status status = read_row(coordinator, call->params[0], &row, err);
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
    struct opening *opening = calloc(1, sizeof *opening);
    if (opening == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for events");
    }
    opening->pieces = (struct response_pieces){open_when_read, free_opening, 0};
    opening->row = row;
    opening->begin = begin;
    call->pieces = &opening->pieces;
    return open_when_read(call, err);
}
