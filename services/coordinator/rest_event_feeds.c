#include "services/coordinator/rest_event_feeds.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/base/time.h"
#include "services/coordinator/jobs_live.h"
#include "services/coordinator/rest_events.h"
#include "services/coordinator/rooms.h"
#include "services/coordinator/workers_waiting.h"
#include "services/job/job_detail.h"

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

static enum tally_status add_round_event(void *context, const struct tally_round_record *record,
                                         struct tally_error *err)
{
    struct event_chunk *chunk = context;
    series_totals_add(&chunk->totals, record);
    chunk->through = record->round;
    struct tally_json *object = tally_detail_round(record);
    char head[64];
    snprintf(head, sizeof head, "event: round\nid: %" PRId64 "\ndata: ", record->round);
    object = tally_json_if_complete(object, set_totals(object, &chunk->totals));
    return append_event(&chunk->text, head, object, err);
}

enum tally_status find_chunk(struct event_stream *stream, int *n_left,
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
    enum tally_status status = store->ops->round_list(store, feed->row.key, chunk->after,
                                                      CHUNK_ROUNDS, add_round_event, chunk, err);
    struct tally_store_job row;
    const bool is_empty = status == TALLY_OK && chunk->through == chunk->after;
    if (is_empty) {
        status = read_row(stream->coordinator, feed->row.id, &row, err); /* may be deleted by now */
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

/* Whether two rows of a job would be shown alike. */
static bool same_row(const struct tally_store_job *a, const struct tally_store_job *b)
{
    return a->key == b->key && a->status == b->status && a->progress.round == b->progress.round &&
           a->recovery_bits == b->recovery_bits && a->wire_in_bytes == b->wire_in_bytes &&
           a->wire_out_bytes == b->wire_out_bytes;
}

enum tally_status make_detail(struct tally_coordinator *coordinator, struct event_feed *feed,
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
            job_detail(&feed->row, &document, feed->waits ? &feed->waiting : NULL);
        status = append_event(&feed->detail, "event: job\ndata: ", detail, err);
    }
    tally_buffer_fini(&document);
    if (status == TALLY_OK) {
        feed->detailed = feed->row;
    }
    return status;
}

/* ---- Feeds ---- */

void release_feed(struct event_feed *feed)
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
        job->feed->next_look_ms = 0;
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
            feed->next_look_ms = 0;
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
            feed->next_look_ms = 0;
        }
    }
}

/* Reads a job that is no longer live here: the store has its end, or what its leader has
 * written. */
static bool read_stored_row(struct tally_coordinator *coordinator, struct event_feed *feed)
{
    struct tally_error err = TALLY_ERROR_INIT;
    enum tally_status status = read_row(coordinator, feed->row.id, &feed->row, &err);
    feed->must_read = status != TALLY_OK || !tally_job_status_is_terminal(feed->row.status);
    if (status == TALLY_NOT_FOUND) { /* it is deleted, or its insertion was rolled back */
        TALLY_LIST_EACH(node, &coordinator->events->streams)
        {
            struct event_stream *s = TALLY_LIST_MEMBER(struct event_stream, node, node);
            if (s->feed == feed) {
                end_event_stream(s);
            }
        }
    }
    return status == TALLY_OK;
}

/* Updates what the live job waits for. If that has changed, writes the text of the row again. */
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

bool look_at_job(struct tally_coordinator *coordinator, struct event_feed *feed, int64_t now_ms)
{
    bool is_new = false;
    if (feed->job == NULL) {
        if (!feed->must_read || now_ms < feed->next_look_ms) {
            return false;
        }
        is_new = read_stored_row(coordinator, feed);
        feed->next_look_ms =
            now_ms + (is_new ? ELSEWHERE_MS : JOB_EVENT_MS); /* later if the store cannot be read */
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

struct event_feed *take_feed(struct tally_coordinator *coordinator,
                             const struct tally_store_job *row)
{
    struct event_feed *feed = NULL;
    TALLY_LIST_EACH(node, &coordinator->events->feeds)
    {
        struct event_feed *each = TALLY_LIST_MEMBER(struct event_feed, node, node);
        feed = each->row.key == row->key ? each : feed;
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
        tally_list_prepend(&coordinator->events->feeds, &feed->node);
    } else if (feed->row.status == row->status) {
        feed->row = *row; /* look_at_job() must find changes of status */
    }
    feed->n_streams++;
    return feed;
}
