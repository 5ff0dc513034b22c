/* worker_state: the state that the parts of a worker share: worker_contact.h, worker_posting.h and
 * worker.c. */
#ifndef TALLY_SERVICES_WORKER_WORKER_STATE_H
#define TALLY_SERVICES_WORKER_WORKER_STATE_H

#include "codec/numeric/rng.h"
#include "services/base/outage.h"
#include "services/base/token_file.h"
#include "services/worker/worker.h"
#include "services/worker/worker_calls.h"
#include "services/worker/worker_job.h"
#include "services/worker/worker_patience.h"
#include "services/worker/worker_undeliverable.h"

/* Updates of one task that are computed and encoded, but not posted yet (worker_posting.h). The
 * memory is reused from task to task. */
struct batch {
    struct tally_buffer encoded;       /* by tally_update_request_add() */
    struct tally_update_request whole; /* their common part */
    struct tally_bits *bits;           /* of each */
    size_t n, capacity;
    int64_t since_ms; /* monotonic; when the computation of the first one began */
};

struct worker {
    const struct worker_config *config;
    struct tally_http_client *client;
    struct call_buffers buffers;
    struct tally_poll_response response; /* of the last poll; large */
    struct batch batch;
    struct tally_buffer alone; /* an update that is posted by itself, encoded */
    struct tally_buffer poll;  /* encoded, for an update that polls as well ... */
    uint32_t poll_wait_ms;     /* ... and for how long */
    bool has_next;             /* the last update's response also answers its poll: */
    struct tally_bytes next;   /* there, until the next call */
    uint64_t session;          /* 0 = none */
    uint32_t max_wait_ms;      /* as the coordinator said; 0 = no limit */
    uint32_t max_batch_bytes;  /* as the coordinator said, or less if a proxy takes no more */
    struct job_copy *jobs;
    struct undeliverables undeliverables;
    bool way_is_suspect; /* the last post was not answered, although a small call after it was */
    struct tally_error refusal; /* why it cannot serve the last job that it refused; OK = none */
    struct tally_rng jitter;
    int64_t pause_ms;
    struct tally_outage outage;
    /* Monotonic times at which the progress of a call was last logged, and told. */
    int64_t progress_logged_ms, progress_told_ms;
    int64_t session_timeout_ms; /* as the coordinator said; 0 = it is told of no progress */
    struct tally_http_client *progress_client; /* NULL = not needed yet */
    struct call_buffers progress_buffers;
    int64_t rival_pause_ms; /* before joining again while another worker has the name; 0 = none */
    int64_t joined_ms;      /* monotonic */
    bool has_ended;         /* its only job, as the coordinator said when the worker joined */
    struct patience patience;
    unsigned lost_points;
    uint32_t n_setbacks; /* trainings that failed */
    struct worker_totals totals;
    char token[TALLY_TOKEN_CAPACITY]; /* "" = none */
};

#endif
