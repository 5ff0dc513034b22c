/* events: a job's course as server-sent events, GET /v1/jobs/{id}/events.
 *
 *   retry: 1000                  first; with the id after which rounds follow
 *   id: 17
 *
 *   event: job                   the job's detail: on connect, when the status changes, at most
 * once data: {...}                  a second while something else changes (what it waits for is
 * part of it), and as the last event
 *
 *   event: round                 every closed round, with the running totals after it
 *   id: 18
 *   data: {...}
 *
 *   : heartbeat                  after some seconds of silence
 *
 * All streams of a job share a feed, which knows what the store holds of the job. Streams are
 * filled from the store, after the step's commit, each from its own cursor: so nothing is shown
 * that a crash could take back, and a slow reader costs its buffer and no more. The text of rounds
 * is made once for all streams with the same cursor; those that watch a running job always have the
 * same.
 *
 * What a turn does for streams is bounded, so that readers far behind do not hold up the jobs; a
 * stream that has taken what it was given is filled at the next turn, the others ten times a
 * second.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/base/log.h"
#include "services/base/time.h"
#include "services/coordinator/internal.h"
#include "services/coordinator/rest/thinning.h"
#include "services/document/detail.h"

enum {
    FEED_MS = 100,       /* rounds of a running job are collected so long */
    ELSEWHERE_MS = 250,  /* likewise of a job that another replica leads, from the store */
    JOB_EVENT_MS = 1000, /* the detail changes all the time */
    /* Of a reader; a chunk and a detail must fit. */
    MAX_PENDING_BYTES = 64 * 1024,
    CHUNK_ROUNDS = 48,   /* some 35 KB of text, never more than 60 KB */
    CHUNKS_PER_FEED = 4, /* the tip, and readers that catch up together */
    CHUNKS_PER_TURN = 8  /* to be made anew: a few milliseconds */
};

/* The events of rounds (after, through]. Rounds never change, so it stays true. */
struct event_chunk {
    int64_t after, through;      /* equal = unused */
    struct series_totals totals; /* after `through` */
    struct tally_buffer text;
    uint64_t used;
};

struct event_feed {
    struct hosted_job *job;     /* NULL: it is not live, or another replica leads it */
    struct tally_store_job row; /* as stored when the feed last looked */
    bool waits;                 /* likewise */
    struct tally_waiting waiting;
    bool must_read; /* the row: the job has left the live ones here, and has not ended */
    int64_t next_look_ms;
    int64_t next_job_event_ms;
    uint64_t job_event;               /* number of the newest one */
    struct tally_store_job announced; /* the row that it told */
    bool has_new_waiting;             /* it has not told what the job waits for now */
    struct tally_buffer detail;       /* event text ... */
    struct tally_store_job detailed;  /* ... of this row; key 0 = none */
    struct event_chunk chunks[CHUNKS_PER_FEED];
    uint64_t n_chunk_uses;
    int64_t n_streams;
    struct event_feed *next;
};

struct event_stream {
    struct tally_coordinator *coordinator;
    struct event_feed *feed;
    struct tally_http_stream *stream;
    int64_t cursor;              /* last round written */
    struct series_totals totals; /* after the cursor */
    uint64_t job_event;          /* newest one written */
    bool job_event_is_last;      /* no round came after it */
    bool is_full; /* what comes next did not fit: nothing is made for it until it has drained */
    bool ended;
    int64_t written_ms;
    int64_t token_until_ms; /* Unix time when its caller's token ends, and the stream with it */
    struct event_stream *previous, *next;
};

/* ---- Texts ---- */

static bool set_totals(struct tally_json *object, const struct series_totals *totals)
{
    struct tally_json *value = tally_json_object();
    bool ok = value != NULL;
    ok = ok && tally_json_set_real(value, "cumulative_regret", totals->cumulative_regret);
    ok = ok && tally_json_set_unsigned(value, "uplink_formula", totals->uplink_formula);
    ok = ok && tally_json_set_unsigned(value, "uplink_payload", totals->uplink_payload);
    ok = ok && tally_json_set_unsigned(value, "downlink_formula", totals->downlink_formula);
    ok = ok && tally_json_set_unsigned(value, "downlink_payload", totals->downlink_payload);
    ok = ok && tally_json_set_unsigned(value, "uplink_messages", totals->uplink_messages);
    ok = ok && tally_json_set_unsigned(value, "downlink_messages", totals->downlink_messages);
    ok = ok && tally_json_set_unsigned(value, "control", totals->control);
    ok = ok && tally_json_set_unsigned(value, "telemetry", totals->telemetry);
    if (!ok) {
        tally_json_free(value);
        return false;
    }
    return tally_json_set(object, "totals", value);
}

static enum tally_status add_round_event(void *context, const struct tally_round_record *record,
                                         struct tally_error *err)
{
    struct event_chunk *chunk = context;
    series_totals_add(&chunk->totals, record);
    chunk->through = record->round;
    struct tally_json *object = tally_detail_round(record);
    enum tally_status status =
        object != NULL && set_totals(object, &chunk->totals) ? TALLY_OK : TALLY_NO_MEMORY;
    if (status == TALLY_OK) {
        status = tally_buffer_printf(&chunk->text,
                                     "event: round\nid: %" PRId64 "\ndata: ", record->round);
    }
    if (status == TALLY_OK) {
        status = tally_json_dump(object, 0, &chunk->text);
    }
    if (status == TALLY_OK) {
        status = tally_buffer_append_text(&chunk->text, "\n\n");
    }
    tally_json_free(object);
    return status == TALLY_OK ? status : tally_fail(err, status, NULL, "no memory for events");
}

/* The events after a stream's cursor, made or made before. NULL with TALLY_OK: not in this turn. */
static enum tally_status find_chunk(struct event_stream *stream, int *n_left,
                                    const struct event_chunk **ret_chunk, struct tally_error *err)
{
    struct event_feed *feed = stream->feed;
    struct event_chunk *chunk = &feed->chunks[0];
    /* Not more than there are readers: the memory of a thousand feeds adds up. */
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
    enum tally_status status = store->ops->round_list(store, feed->row.key, chunk->after,
                                                      CHUNK_ROUNDS, add_round_event, chunk, err);
    if (status == TALLY_OK && chunk->through == chunk->after) {
        status = tally_fail(err, TALLY_DATA_LOSS, NULL, "no round after %lld of %lld",
                            (long long)chunk->after, (long long)feed->row.progress.round);
    }
    if (status != TALLY_OK) {
        chunk->through = chunk->after; /* half a text is none */
        return status;
    }
    chunk->used = ++feed->n_chunk_uses;
    *ret_chunk = chunk;
    return TALLY_OK;
}

/* Whether two rows of a job would be shown alike. */
static bool same_row(const struct tally_store_job *a, const struct tally_store_job *b)
{
    return a->key == b->key && a->status == b->status && a->progress.round == b->progress.round &&
           a->recovery_bits == b->recovery_bits && a->wire_in_bytes == b->wire_in_bytes &&
           a->wire_out_bytes == b->wire_out_bytes;
}

/* Makes the job event of the feed's row, if it is not made. */
static enum tally_status make_detail(struct tally_coordinator *coordinator, struct event_feed *feed,
                                     struct tally_error *err)
{
    if (same_row(&feed->detailed, &feed->row)) {
        return TALLY_OK;
    }
    struct tally_store *store = coordinator->store;
    struct tally_buffer document = {0};
    struct tally_json *detail = NULL;
    feed->detailed.key = 0;
    feed->detail.size = 0;
    enum tally_status status = store->ops->document_get(store, feed->row.key, &document, err);
    if (status == TALLY_OK) {
        detail = job_detail(&feed->row, &document, feed->waits ? &feed->waiting : NULL);
        status = detail != NULL ? tally_buffer_append_text(&feed->detail, "event: job\ndata: ")
                                : TALLY_NO_MEMORY;
    }
    if (status == TALLY_OK) {
        status = tally_json_dump(detail, 0, &feed->detail);
    }
    if (status == TALLY_OK) {
        status = tally_buffer_append_text(&feed->detail, "\n\n");
    }
    tally_json_free(detail);
    tally_buffer_fini(&document);
    if (status != TALLY_OK) {
        return tally_fail(err, status, NULL, "no memory for events");
    }
    feed->detailed = feed->row;
    return TALLY_OK;
}

/* ---- Streams ---- */

/* Writes a text that fits; false if the stream is full and must drain first. */
static bool write_text(struct event_stream *stream, const struct tally_buffer *text, int64_t now_ms)
{
    if (tally_http_stream_write(stream->stream, text->data, text->size) != TALLY_OK) {
        stream->is_full = tally_http_stream_pending(stream->stream) > 0;
        return false;
    }
    stream->written_ms = now_ms;
    return true;
}

static void end_stream(struct event_stream *stream)
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
        note_damage(stream->coordinator, &err);
        end_stream(stream); /* whoever connects again is told why */
        return false;
    }
    if (!write_text(stream, &feed->detail, now_ms)) {
        return false;
    }
    stream->job_event = feed->job_event;
    stream->job_event_is_last = true;
    return true;
}

/* Writes what the stream lacks and has room for. False if more is to be made in the next turn. */
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
            note_damage(stream->coordinator, &err);
            end_stream(stream);
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
        end_stream(stream);
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
        stream->coordinator->streams_hungry = true;
    }
}

static void unlink_stream(struct tally_coordinator *coordinator, struct event_stream *stream)
{
    *(stream->previous != NULL ? &stream->previous->next : &coordinator->first_stream) =
        stream->next;
    *(stream->next != NULL ? &stream->next->previous : &coordinator->last_stream) =
        stream->previous;
}

static void link_stream(struct tally_coordinator *coordinator, struct event_stream *stream)
{
    stream->next = NULL;
    stream->previous = coordinator->last_stream;
    *(stream->previous != NULL ? &stream->previous->next : &coordinator->first_stream) = stream;
    coordinator->last_stream = stream;
}

static void release_feed(struct tally_coordinator *coordinator, struct event_feed *feed)
{
    if (--feed->n_streams > 0) {
        return;
    }
    struct event_feed **at = &coordinator->feeds;
    while (*at != feed) {
        at = &(*at)->next;
    }
    *at = feed->next;
    if (feed->job != NULL) {
        feed->job->feed = NULL;
    }
    for (size_t i = 0; i < CHUNKS_PER_FEED; i++) {
        tally_buffer_fini(&feed->chunks[i].text);
    }
    tally_buffer_fini(&feed->detail);
    free(feed);
}

static void on_closed(void *context, struct tally_http_stream *http)
{
    (void)http;
    struct event_stream *stream = context;
    struct tally_coordinator *coordinator = stream->coordinator;
    unlink_stream(coordinator, stream);
    coordinator->n_streams--;
    release_feed(coordinator, stream->feed);
    free(stream);
}

/* ---- Feeds ---- */

void events_forget_job(struct hosted_job *job)
{
    if (job->feed != NULL) {
        job->feed->next_look_ms = 0;
        job->feed->job = NULL;
        job->feed->must_read = true;
        job->feed = NULL;
    }
}

void events_adopt_job(struct tally_coordinator *coordinator, struct hosted_job *job)
{
    for (struct event_feed *feed = coordinator->feeds; feed != NULL; feed = feed->next) {
        if (feed->row.key == job->row.key) { /* another replica led it until now */
            feed->job = job;
            job->feed = feed;
            feed->must_read = false;
            feed->next_look_ms = 0;
        }
    }
}

/* The job has left the live ones here: the store has its last word, or that of another replica. */
static bool read_stored_row(struct tally_coordinator *coordinator, struct event_feed *feed)
{
    struct tally_error err = TALLY_ERROR_INIT;
    enum tally_status status = read_row(coordinator, feed->row.id, &feed->row, &err);
    feed->must_read = status != TALLY_OK || !tally_job_status_is_terminal(feed->row.status);
    if (status == TALLY_NOT_FOUND) { /* its insertion was rolled back */
        for (struct event_stream *s = coordinator->first_stream; s != NULL; s = s->next) {
            if (s->feed == feed) {
                end_stream(s);
            }
        }
    }
    return status == TALLY_OK;
}

/* Takes over what the live job waits for. The text made of the row is made anew if it differs. */
static void look_at_waiting(struct tally_coordinator *coordinator, struct event_feed *feed,
                            int64_t now_ms)
{
    struct tally_waiting waiting;
    const bool waits = feed->job != NULL && job_waiting(coordinator, feed->job, now_ms, &waiting);
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

/* Takes over what the job's row has come to. True if there is something new for the streams. */
static bool look(struct tally_coordinator *coordinator, struct event_feed *feed, int64_t now_ms)
{
    bool is_new = false;
    if (feed->job == NULL) {
        if (!feed->must_read || now_ms < feed->next_look_ms) {
            return false;
        }
        is_new = read_stored_row(coordinator, feed);
        feed->next_look_ms =
            now_ms + (is_new ? ELSEWHERE_MS : JOB_EVENT_MS); /* a store that cannot be read */
    } else {
        const struct tally_store_job *row = &feed->job->row;
        const bool is_stored = !feed->job->needs_reload;
        const bool at_once = is_stored && row->status != feed->row.status;
        if (!at_once && now_ms < feed->next_look_ms) {
            return false;
        }
        if (is_stored) {
            is_new = feed->row.progress.round != row->progress.round || at_once;
            feed->row = *row;
        }
        feed->next_look_ms = now_ms + FEED_MS;
    }
    look_at_waiting(coordinator, feed, now_ms);
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

/* Puts a stream in front of the list, and those before it behind. */
static void rotate_to(struct tally_coordinator *coordinator, struct event_stream *stream)
{
    if (stream == coordinator->first_stream) {
        return;
    }
    coordinator->last_stream->next = coordinator->first_stream;
    coordinator->first_stream->previous = coordinator->last_stream;
    coordinator->first_stream = stream;
    coordinator->last_stream = stream->previous;
    coordinator->last_stream->next = NULL;
    stream->previous = NULL;
}

static void serve_stream(struct event_stream *stream, int64_t now_ms, int *n_left,
                         struct event_stream **first_unserved)
{
    if (stream->ended) {
        return;
    }
    if (stream->coordinator->draining ||
        (stream->token_until_ms != INT64_MAX && tally_realtime_ms() >= stream->token_until_ms)) {
        end_stream(stream);
        return;
    }
    if (!fill(stream, now_ms, n_left) && *first_unserved == NULL) {
        *first_unserved = stream;
    }
    beat(stream, now_ms);
}

void end_streams(struct tally_coordinator *coordinator)
{
    for (struct event_stream *s = coordinator->first_stream; s != NULL; s = s->next) {
        if (!s->ended) {
            end_stream(s);
        }
    }
}

bool serve_events(struct tally_coordinator *coordinator, int64_t now_ms)
{
    bool must_serve = coordinator->streams_hungry || now_ms >= coordinator->next_events_ms;
    for (struct event_feed *feed = coordinator->feeds; feed != NULL; feed = feed->next) {
        must_serve = look(coordinator, feed, now_ms) || must_serve;
    }
    if (!must_serve || coordinator->first_stream == NULL) {
        return false;
    }
    coordinator->next_events_ms = now_ms + FEED_MS;
    coordinator->streams_hungry = false;
    int n_left = CHUNKS_PER_TURN;
    struct event_stream *unserved = NULL;
    for (struct event_stream *s = coordinator->first_stream; s != NULL; s = s->next) {
        serve_stream(s, now_ms, &n_left, &unserved);
    }
    if (unserved != NULL) { /* it is the first one in the next turn */
        rotate_to(coordinator, unserved);
        coordinator->streams_hungry = true;
    }
    return unserved != NULL;
}

/* ---- The request ---- */

/* Digits alone, as we wrote them. */
static enum tally_status parse_round(const char *field, const char *text, int64_t last,
                                     int64_t *ret_round, struct tally_error *err)
{
    const size_t n = strlen(text);
    if (n == 0 || n > 18 || strspn(text, "0123456789") != n) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, field, "%s \"%.32s\" is no round", field,
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

/* Running totals after a round: those of the newest kept row before it, and the rounds between. */
static enum tally_status totals_at(struct tally_coordinator *coordinator,
                                   const struct tally_store_job *row, int64_t round,
                                   struct series_totals *ret_totals, struct tally_error *err)
{
    *ret_totals = (struct series_totals){0};
    if (round == row->progress.round) {
        *ret_totals = series_totals_of(&row->progress);
        return TALLY_OK;
    }
    if (round == 0) {
        return TALLY_OK;
    }
    const struct series *series;
    enum tally_status status = read_series(coordinator, row, &series, err);
    if (status != TALLY_OK) {
        return status;
    }
    const struct series_row *before = series_at_or_before(series, round);
    int64_t after = 0;
    if (before != NULL) {
        *ret_totals = before->totals;
        after = before->round;
    }
    struct tally_store *store = coordinator->store;
    return after == round ? TALLY_OK
                          : store->ops->round_list(store, row->key, after, round - after,
                                                   add_to_totals, ret_totals, err);
}

/* The job's feed with `row` as its newest, or a new one. NULL = out of memory. */
static struct event_feed *feed_of(struct tally_coordinator *coordinator,
                                  const struct tally_store_job *row)
{
    struct event_feed *feed = coordinator->feeds;
    while (feed != NULL && feed->row.key != row->key) {
        feed = feed->next;
    }
    if (feed == NULL) {
        feed = calloc(1, sizeof *feed);
        if (feed == NULL) {
            return NULL;
        }
        feed->row = feed->announced = *row;
        feed->next_job_event_ms = tally_monotonic_ms() + JOB_EVENT_MS;
        feed->job = find_job(coordinator, row->id);
        if (feed->job != NULL) {
            feed->job->feed = feed;
        }
        feed->must_read = feed->job == NULL && !tally_job_status_is_terminal(row->status);
        look_at_waiting(coordinator, feed, tally_monotonic_ms());
        feed->has_new_waiting = false; /* the stream begins with it */
        feed->next = coordinator->feeds;
        coordinator->feeds = feed;
    } else if (feed->row.status == row->status) {
        feed->row = *row; /* a change of status is for look() to find */
    }
    feed->n_streams++;
    return feed;
}

static enum tally_status open_stream(struct tally_coordinator *coordinator, struct call *call,
                                     const struct tally_store_job *row,
                                     const struct event_stream *begin, struct tally_error *err)
{
    struct event_stream *stream = malloc(sizeof *stream);
    struct event_feed *feed = stream != NULL ? feed_of(coordinator, row) : NULL;
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
    call->headers[1].name = "X-Accel-Buffering"; /* nginx would collect the events */
    call->headers[1].value = "no";
    call->content_type = "text/event-stream";
    enum tally_status status = begin_stream(coordinator, call, &config, &stream->stream, err);
    if (status != TALLY_OK) {
        release_feed(coordinator, feed);
        free(stream);
        return status;
    }
    link_stream(coordinator, stream);
    coordinator->n_streams++;
    coordinator->streams_hungry = true;
    char opening[64];
    const int n =
        snprintf(opening, sizeof opening, "retry: 1000\nid: %" PRId64 "\n\n", stream->cursor);
    (void)tally_http_stream_write(stream->stream, opening, (size_t)n);
    (void)write_job_event(stream, stream->written_ms);
    return TALLY_OK;
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
    if (resumed != NULL) { /* the newer of the two: EventSource repeats the query as it was */
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
        call->status = 204; /* EventSource does not come again */
        return TALLY_OK;
    }
    if (coordinator->draining) {
        return tally_fail(err, TALLY_UNAVAILABLE, NULL, "the coordinator is shutting down");
    }
    if (coordinator->n_streams >= coordinator->config.max_streams) {
        return tally_fail(
            err, TALLY_RESOURCE_EXHAUSTED, NULL, "%lld event streams are open, the limit is %lld",
            (long long)coordinator->n_streams, (long long)coordinator->config.max_streams);
    }
    status = totals_at(coordinator, &row, begin.cursor, &begin.totals, err);
    return status == TALLY_OK ? open_stream(coordinator, call, &row, &begin, err) : status;
}
