/* rest_events: a job's progress as server-sent events, GET /v1/jobs/{id}/events.
 *
 *     retry: 1000         first; with the id after which rounds follow
 *     id: 17
 *
 *     event: job          the job's detail: on connect, when the status changes, at most once a
 *     data: {...}         second when anything else in it changes (such as what it waits for),
 *                         and as the last event
 *
 *     event: round        every closed round, with the running totals after it
 *     id: 18
 *     data: {...}
 *
 *     event: evaluation   in a job whose models are evaluated: the metrics of a round whose event
 *     data: {...}         may have come without those of the model that it made
 *
 *     : heartbeat         after some seconds of silence
 *
 * All streams of a job share a feed, which knows what the store holds of the job. Streams are
 * filled from the store, after the step's commit, each from its own cursor. So they never show what
 * a crash could undo, and a slow reader costs only its buffer. The text of rounds is made once for
 * all streams with the same cursor; those that watch a running job always have the same cursor.
 *
 * The work of a turn for streams is bounded, so that readers far behind do not hold up the jobs. A
 * stream that has used up its share is filled again in the next turn, the others ten times a
 * second. */
#ifndef TALLY_SERVICES_COORDINATOR_REST_EVENTS_H
#define TALLY_SERVICES_COORDINATOR_REST_EVENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "api/http/http_server.h"
#include "codec/error.h"
#include "codec/list.h"
#include "services/coordinator/hosted_job.h"
#include "services/coordinator/rest_thinning.h"

struct hosted_job;
struct tally_coordinator;

struct events {
    int64_t n_streams;         /* open ones */
    struct tally_list streams; /* in the order in which they are filled */
    struct tally_list feeds;   /* one for each job that has streams */
    int64_t next_ms;           /* monotonic; when they are next examined */
    bool has_more;             /* some streams have used up their share and need more */
};

/* Sets coordinator->events. */
void events_new(struct tally_coordinator *coordinator);
/* Fills the streams from the store, after the commit; true if the next turn must continue. */
bool events_serve(struct tally_coordinator *coordinator, int64_t now_ms);
/* To be called when the job is live here: its streams learn of changes at once. */
void events_adopt_job(struct tally_coordinator *coordinator, struct hosted_job *job);
/* To be called when the job is no longer live here. */
void events_forget_job(struct hosted_job *job);
/* Ends the streams of an ended job that is deleted. */
void events_forget_key(struct tally_coordinator *coordinator, int64_t job_key);
/* Ends all streams; a client that reconnects continues where it was. */
void events_finish_streams(struct tally_coordinator *coordinator);

/* ---- The state that the event streams of one job share: what the store holds of the
 * job, and the texts made from it. */

enum {
    FEED_MS = 100,      /* how long rounds of a running job are collected */
    CHUNKS_PER_FEED = 4 /* for the newest rounds, and for readers that catch up together */
};

struct tally_coordinator;

/* The events of rounds (after, through], and the evaluation of round `after`. Only the last round
 * may change, by its evaluation, which the next chunk has. So a chunk stays valid. */
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
    bool evaluates; /* models of the job are evaluated */
    bool must_read; /* the row: the job is no longer live here, but has not ended */
    int64_t next_check_ms;
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
    bool has_last_evaluation;    /* of the last round, after the job has ended */
    bool is_full;                /* the next text did not fit: none is made until it has drained */
    bool ended;
    int64_t written_ms;
    int64_t token_until_ms;      /* Unix time when its caller's token, and so the stream, expires */
    struct tally_list_node node; /* in events->streams */
};

#endif
