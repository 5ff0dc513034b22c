/* job_cohort: the clients that take part in a round: `n` of a job's M, drawn without replacement.
 *
 * The draw is a function of (seed, run, round) alone and uses a separate random stream.
 * Coordinator, simulator and tests therefore know it at no cost in bits, and a restart repeats it.
 * Neither faults nor the order of arrival can change it. Every subset of n clients has the same
 * probability, in every round independently of the others (codec/numeric/subset.h).
 *
 * Time O(n log n), for the order; memory O(n). With n = M all clients take part and nothing is
 * drawn. */
#ifndef TALLY_SERVICES_JOB_JOB_COHORT_H
#define TALLY_SERVICES_JOB_JOB_COHORT_H

#include <stdbool.h>
#include <stdint.h>

#include "codec/error.h"
#include "codec/numeric/rng.h"

struct tally_cohort {
    struct tally_rng_key key;
    uint32_t clients; /* M */
    uint32_t n;       /* in [1, M] */
    uint32_t round;   /* of the last draw; 0 = none */
    uint32_t *drawn;  /* [n], ascending; those of the last draw */
    uint32_t *taken;  /* [tally_subset_room(n)]; NULL if n = M */
};

/* Draws nothing yet; with n = M `drawn` has all clients from now on. Errors: NO_MEMORY. */
enum tally_status tally_cohort_init(struct tally_cohort *cohort, struct tally_rng_key key,
                                    uint32_t clients, uint32_t n, struct tally_error *err);
void tally_cohort_fini(struct tally_cohort *cohort);

/* Fills `drawn` with the clients of the round, unless it has them already. */
void tally_cohort_draw(struct tally_cohort *cohort, uint32_t round);

/* Sorts clients by random numbers, which a second stream gives for each client and round. The order
 * of some clients therefore does not depend on the others. Errors: NO_MEMORY. */
enum tally_status tally_cohort_shuffle(struct tally_rng_key key, uint32_t round, uint32_t *clients,
                                       size_t n, struct tally_error *err);

/* The index of the client in `drawn`; n if it is not there. */
uint32_t tally_cohort_place(const struct tally_cohort *cohort, uint32_t client);

#endif
