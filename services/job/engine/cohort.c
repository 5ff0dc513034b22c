#include "services/job/engine/cohort.h"

#include <stdlib.h>
#include <string.h>

enum tally_status tally_cohort_init(struct tally_cohort *cohort, struct tally_rng_key key,
                                    uint32_t clients, uint32_t n, struct tally_error *err)
{
    *cohort = (struct tally_cohort){.key = key, .clients = clients, .n = n, .mask = 1};
    while (n < clients && cohort->mask < 2 * n - 1) {
        cohort->mask = 2 * cohort->mask + 1;
    }
    cohort->drawn = calloc(n, sizeof *cohort->drawn);
    cohort->taken = n < clients ? malloc(((size_t)cohort->mask + 1) * sizeof *cohort->taken) : NULL;
    if (cohort->drawn == NULL || (n < clients && cohort->taken == NULL)) {
        tally_cohort_fini(cohort);
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a cohort of %u clients", n);
    }
    for (uint32_t m = 0; n == clients && m < n; m++) {
        cohort->drawn[m] = m;
    }
    return TALLY_OK;
}

void tally_cohort_fini(struct tally_cohort *cohort)
{
    free(cohort->drawn);
    free(cohort->taken);
    *cohort = (struct tally_cohort){.n = 0};
}

/* False if the client is in the table already. */
static bool take(struct tally_cohort *cohort, uint32_t client)
{
    static const uint32_t multiplier = 2654435769; /* 2^32 / golden ratio: spreads neighbours */
    uint32_t at = ((client * multiplier) >> 7) & cohort->mask;
    while (cohort->taken[at] != 0 && cohort->taken[at] != client + 1) {
        at = (at + 1) & cohort->mask;
    }
    const bool is_new = cohort->taken[at] == 0;
    cohort->taken[at] = client + 1;
    return is_new;
}

static int compare_clients(const void *a, const void *b)
{
    const uint32_t *left = a, *right = b;
    return (*left > *right) - (*left < *right);
}

void tally_cohort_draw(struct tally_cohort *cohort, uint32_t round)
{
    if (cohort->n == cohort->clients || cohort->round == round) {
        return;
    }
    cohort->round = round;
    struct tally_rng rng;
    tally_rng_init(&rng, cohort->key, TALLY_RNG_SERVER, round, TALLY_RNG_COHORT);
    memset(cohort->taken, 0, ((size_t)cohort->mask + 1) * sizeof *cohort->taken);
    for (uint32_t i = 0; i < cohort->n; i++) {
        const uint32_t last = cohort->clients - cohort->n + i;
        const uint32_t client = tally_rng_below(&rng, last + 1);
        cohort->drawn[i] = take(cohort, client) ? client : last;
        if (cohort->drawn[i] == last && client != last) {
            take(cohort, last);
        }
    }
    qsort(cohort->drawn, cohort->n, sizeof *cohort->drawn, compare_clients);
}

uint32_t tally_cohort_place(const struct tally_cohort *cohort, uint32_t client)
{
    const uint32_t *found =
        bsearch(&client, cohort->drawn, cohort->n, sizeof *cohort->drawn, compare_clients);
    return found != NULL ? (uint32_t)(found - cohort->drawn) : cohort->n;
}
