/* calls: all requests in progress, from their arrival to their response, and their counters.
 *
 * A request becomes a call (call.h). Dispatch runs its handler at once or queues it for after the
 * commit; the turn publishes it; call_responses.c sends it and frees it. */
#ifndef TALLY_SERVICES_COORDINATOR_CALLS_H
#define TALLY_SERVICES_COORDINATOR_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "services/coordinator/call.h"
#include "services/coordinator/call_counts.h"

struct calls {
    const struct route *routes; /* ended by a NULL method; borrowed */
    /* Adds an exchange to the counters of the call's job, if the job is live. Set by the owner of
     * this struct. */
    void (*count_wire)(struct tally_coordinator *coordinator, const struct call *call, uint64_t in,
                       uint64_t out);
    struct call *unused; /* freed calls, kept because malloc() is slow for their size */
    int n_unused;
    struct call_queue brief;     /* to run after the commit: with ROUTE_IS_BRIEF, .. */
    struct call_queue reads;     /* .. without, .. */
    struct call_queue in_pieces; /* .. and with ROUTE_IN_PIECES */
    struct call_queue begun;     /* those of them that have pieces left; they take turns */
    size_t begun_bytes;          /* of memory that the begun ones hold */
    struct call_queue written;   /* ran; to be answered after the commit */
    uint32_t request_id_prefix;  /* random; drawn with the first id */
    uint64_t n_request_ids;
    struct call_counts counts;
};

/* Errors: NO_MEMORY. */
enum tally_status calls_new(const struct route *routes, struct calls **ret_calls,
                            struct tally_error *err);
/* Frees the calls that wait in the queues. To be called before the rooms whose objects they hold
 * are freed. */
void calls_drop_queued(struct tally_coordinator *coordinator);
/* NULL is allowed. */
void calls_free(struct calls *calls);
void call_queue_push(struct call_queue *queue, struct call *call);
/* Whether requests wait to be answered after the commit, in this turn or in later ones. */
bool calls_have_reads(const struct calls *calls);
void call_queue_push_first(struct call_queue *queue, struct call *call);
/* Removes and returns the first call. Precondition: the queue is not empty. */
struct call *call_queue_pop(struct call_queue *queue);
/* Empties the queue and returns its calls as a list, linked by `next`. */
struct call *call_queue_take(struct call_queue *queue);

#endif
