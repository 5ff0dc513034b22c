/* rest_event_feeds: the state that the event streams of one job share: what the store holds of the
 * job, and the texts made from it. */
#ifndef TALLY_SERVICES_COORDINATOR_REST_EVENT_FEEDS_H
#define TALLY_SERVICES_COORDINATOR_REST_EVENT_FEEDS_H

#include <stdbool.h>
#include <stdint.h>

#include "api/http/http_server.h"
#include "codec/list.h"
#include "services/coordinator/hosted_job.h"
#include "services/coordinator/rest_thinning.h"

enum {
    FEED_MS = 100,      /* how long rounds of a running job are collected */
    CHUNKS_PER_FEED = 4 /* for the newest rounds, and for readers that catch up together */
};

struct tally_coordinator;

/* The events of rounds (after, through]. Rounds never change, so a chunk stays valid. */
struct event_chunk {
    int64_t after, through;      /* equal = unused */
    struct series_totals totals; /* after `through` */
    struct tally_buffer text;
    uint64_t used;
};

struct event_feed {
    struct hosted_job *job;     /* NULL: it is not live, or another replica leads it */
    struct tally_store_job row; /* as stored when the feed last looked */
    bool waits;                 /* whether the job waited then */
    struct tally_waiting waiting;
    bool must_read; /* the row: the job is no longer live here, but has not ended */
    int64_t next_look_ms;
    int64_t next_job_event_ms;
    uint64_t job_event;               /* number of the newest job event */
    struct tally_store_job announced; /* the row that this event showed */
    bool has_new_waiting;             /* the event does not show what the job waits for now */
    struct tally_buffer detail;       /* event text ... */
    struct tally_store_job detailed;  /* ... for this row; key 0 = none */
    struct event_chunk chunks[CHUNKS_PER_FEED];
    uint64_t n_chunk_uses;
    int64_t n_streams;
    struct tally_list_node node; /* in events->feeds */
};

struct event_stream {
    struct tally_coordinator *coordinator;
    struct event_feed *feed;
    struct tally_http_stream *stream;
    int64_t cursor;              /* last round written */
    struct series_totals totals; /* after the cursor */
    uint64_t job_event;          /* newest job event written */
    bool job_event_is_last;      /* no round came after it */
    bool is_full;                /* the next text did not fit: none is made until it has drained */
    bool ended;
    int64_t written_ms;
    int64_t token_until_ms;      /* Unix time when its caller's token, and so the stream, expires */
    struct tally_list_node node; /* in events->streams */
};

/* The job's feed, or a new one, with `row` as its newest row; counts one more stream. NULL = out of
 * memory. */
struct event_feed *take_feed(struct tally_coordinator *coordinator,
                             const struct tally_store_job *row);
/* Counts one stream less; the last one frees the feed. */
void release_feed(struct event_feed *feed);
/* Updates the feed from the job. True if there is something new for the streams. */
bool look_at_job(struct tally_coordinator *coordinator, struct event_feed *feed, int64_t now_ms);
/* The events after a stream's cursor. Makes at most *n_left chunks from the store, counting *n_left
 * down. NULL with TALLY_OK: not in this turn. Errors: STORE, DATA_LOSS, NO_MEMORY. */
enum tally_status find_chunk(struct event_stream *stream, int *n_left,
                             const struct event_chunk **ret_chunk, struct tally_error *err);
/* Makes the job event of the feed's row, if it has not been made. Errors: STORE, DATA_LOSS,
 * NO_MEMORY. */
enum tally_status make_detail(struct tally_coordinator *coordinator, struct event_feed *feed,
                              struct tally_error *err);
/* Ends the stream: no event follows (rest_events.c). */
void end_event_stream(struct event_stream *stream);

#endif
