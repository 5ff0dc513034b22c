/* job_broadcasts: the newest broadcasts of a job, for clients that are a few rounds behind.
 *
 * A ring: the broadcast that led to iterate k is at slot k % 16. The ring has the last 16 at most,
 * and of those only as many as are shorter together than the point or 64 KiB, whichever is more: in
 * place of more of them a client is sent the point. The newest is always kept. */
#ifndef TALLY_SERVICES_JOB_JOB_BROADCASTS_H
#define TALLY_SERVICES_JOB_JOB_BROADCASTS_H

#include "services/algorithms/algorithm.h"

enum { JOB_BROADCASTS_MOST = 16 };

struct job_broadcasts {
    struct tally_message ring[JOB_BROADCASTS_MOST];
    int64_t oldest, newest; /* iterates; oldest = newest + 1: none is kept */
};

/* None is kept; the first one will lead to iterate + 1. */
void job_broadcasts_init(struct job_broadcasts *broadcasts, int64_t iterate);
void job_broadcasts_fini(struct job_broadcasts *broadcasts);

/* The broadcast that led to `iterate`; NULL if it is not kept. Valid until the next add. */
const struct tally_message *job_broadcasts_get(const struct job_broadcasts *broadcasts,
                                               int64_t iterate);

/* Takes *message, which led to iterate newest + 1 of a point of `dim` coordinates, and leaves in it
 * a message that is no longer kept, whose buffer can be reused. */
void job_broadcasts_add(struct job_broadcasts *broadcasts, size_t dim,
                        struct tally_message *message);

#endif
