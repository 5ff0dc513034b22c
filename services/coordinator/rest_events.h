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

#include "codec/error.h"
#include "codec/list.h"

struct hosted_job;
struct tally_coordinator;

struct events {
    int64_t n_streams;         /* open ones */
    struct tally_list streams; /* in the order in which they are filled */
    struct tally_list feeds;   /* one for each job that has streams */
    int64_t next_ms;           /* monotonic; when they are next examined */
    bool is_hungry;            /* some streams have used up their share and need more */
};

/* Sets coordinator->events. Errors: NO_MEMORY. */
enum tally_status events_new(struct tally_coordinator *coordinator, struct tally_error *err);
/* Fills the streams from the store, after the commit; true if the next turn must continue. */
bool serve_events(struct tally_coordinator *coordinator, int64_t now_ms);
/* To be called when the job is live here: its streams learn of changes at once. */
void events_adopt_job(struct tally_coordinator *coordinator, struct hosted_job *job);
/* To be called when the job is no longer live here. */
void events_forget_job(struct hosted_job *job);
/* Ends the streams of an ended job that is deleted. */
void events_forget_key(struct tally_coordinator *coordinator, int64_t job_key);
/* Ends all streams; a client that reconnects continues where it was. */
void end_streams(struct tally_coordinator *coordinator);

#endif
