#include "services/job/job_cohort.h"

#include <stdlib.h>

#include "codec/numeric/subset.h"

enum tally_status tally_cohort_init(struct tally_cohort *cohort, struct tally_rng_key key,
                                    uint32_t clients, uint32_t n, struct tally_error *err)
{
    *cohort = (struct tally_cohort){.key = key, .clients = clients, .n = n};
    cohort->drawn = calloc(n, sizeof *cohort->drawn);
    cohort->taken = n < clients ? malloc(tally_subset_room(n) * sizeof *cohort->taken) : NULL;
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
    tally_subset_draw(&rng, cohort->clients, cohort->n, cohort->taken, cohort->drawn);
}

struct numbered {
    uint64_t number;
    uint32_t client;
};

static int compare_numbers(const void *a, const void *b)
{
    const struct numbered *left = a, *right = b;
    return left->number != right->number ? (left->number > right->number ? 1 : -1)
                                         : compare_clients(&left->client, &right->client);
}

enum tally_status tally_cohort_shuffle(struct tally_rng_key key, uint32_t round, uint32_t *clients,
                                       size_t n, struct tally_error *err)
{
    struct numbered *all = malloc(n * sizeof *all);
    if (all == NULL && n > 0) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for the order of %zu clients", n);
    }
    for (size_t i = 0; i < n; i++) {
        struct tally_rng rng;
        tally_rng_init(&rng, key, clients[i], round, TALLY_RNG_ARRIVAL);
        all[i] = (struct numbered){(uint64_t)tally_rng_u32(&rng) << 32, clients[i]};
        all[i].number |= tally_rng_u32(&rng);
    }
    if (n > 1) {
        qsort(all, n, sizeof *all, compare_numbers);
    }
    for (size_t i = 0; i < n; i++) {
        clients[i] = all[i].client;
    }
    free(all);
    return TALLY_OK;
}

uint32_t tally_cohort_place(const struct tally_cohort *cohort, uint32_t client)
{
    const uint32_t *found =
        bsearch(&client, cohort->drawn, cohort->n, sizeof *cohort->drawn, compare_clients);
    return found != NULL ? (uint32_t)(found - cohort->drawn) : cohort->n;
}
