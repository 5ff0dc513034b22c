/* known_losses: f at the points where it was computed last, for an objective whose losses are
 * expensive.
 *
 * Clients that make local steps begin a round at the same point, and may meet again later, while f
 * is a mean over all M of them: without this, a worker with M clients computes M^2 losses at the
 * first point of every round. Points are recognised by a digest of 128 bits.
 *
 * Two tables: when the newer one is full, it replaces the older one. So a point is known for at
 * least the next KNOWN_LOSSES_MOST points. */
#ifndef TALLY_SERVICES_OBJECTIVES_KNOWN_LOSSES_H
#define TALLY_SERVICES_OBJECTIVES_KNOWN_LOSSES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KNOWN_LOSSES_MOST = 1 << 15 };

struct tally_point_key {
    uint64_t digest, checksum; /* both 0: a free slot */
};

struct tally_known_loss;

/* A zeroed struct knows no points. */
struct tally_known_losses {
    struct tally_known_loss *newer, *older; /* [2 * KNOWN_LOSSES_MOST]; NULL = empty */
    size_t n_newer;
};

void tally_known_losses_fini(struct tally_known_losses *known);

struct tally_point_key tally_point_key(const double *x, size_t dim);
bool tally_known_losses_get(const struct tally_known_losses *known,
                            const struct tally_point_key *key, double *ret_loss);
/* Adds a point that is not known. Without memory it stays unknown. */
void tally_known_losses_put(struct tally_known_losses *known, const struct tally_point_key *key,
                            double loss);

#endif
