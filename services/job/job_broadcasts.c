#include "services/job/job_broadcasts.h"

enum { ALWAYS_KEPT_BITS = 8 * 64 * 1024 };

static struct tally_message *slot(struct job_broadcasts *broadcasts, int64_t iterate)
{
    return &broadcasts->ring[iterate % JOB_BROADCASTS_MOST];
}

void job_broadcasts_init(struct job_broadcasts *broadcasts, int64_t iterate)
{
    broadcasts->oldest = iterate + 1;
    broadcasts->newest = iterate;
}

void job_broadcasts_fini(struct job_broadcasts *broadcasts)
{
    for (int i = 0; i < JOB_BROADCASTS_MOST; i++) {
        tally_message_fini(&broadcasts->ring[i]);
    }
}

const struct tally_message *job_broadcasts_get(const struct job_broadcasts *broadcasts,
                                               int64_t iterate)
{
    const bool is_kept = iterate >= broadcasts->oldest && iterate <= broadcasts->newest;
    return is_kept ? &broadcasts->ring[iterate % JOB_BROADCASTS_MOST] : NULL;
}

/* Drops the oldest broadcasts as long as all together are longer than the limit. */
static void drop_long(struct job_broadcasts *broadcasts, size_t dim, struct tally_message *spare)
{
    const uint64_t point_bits = 64 * (uint64_t)dim;
    const uint64_t most = point_bits > ALWAYS_KEPT_BITS ? point_bits : ALWAYS_KEPT_BITS;
    int64_t first = broadcasts->newest;
    uint64_t bits = slot(broadcasts, first)->bits.payload_bits;
    while (first > broadcasts->oldest &&
           (bits += slot(broadcasts, first - 1)->bits.payload_bits) < most) {
        first--;
    }
    for (; broadcasts->oldest < first; broadcasts->oldest++) {
        struct tally_message *dropped = slot(broadcasts, broadcasts->oldest);
        if (spare->payload.data == NULL) {
            *spare = *dropped;
            *dropped = (struct tally_message){0};
        }
        tally_message_fini(dropped);
    }
}

void job_broadcasts_add(struct job_broadcasts *broadcasts, size_t dim,
                        struct tally_message *message)
{
    broadcasts->newest++;
    struct tally_message *kept = slot(broadcasts, broadcasts->newest);
    const struct tally_message spare = *kept;
    *kept = *message;
    *message = spare;
    tally_buffer_fit(&kept->payload);
    if (broadcasts->newest - broadcasts->oldest >= JOB_BROADCASTS_MOST) {
        broadcasts->oldest = broadcasts->newest - JOB_BROADCASTS_MOST + 1;
    }
    drop_long(broadcasts, dim, message);
}
