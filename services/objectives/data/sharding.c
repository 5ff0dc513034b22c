#include "services/objectives/data/sharding.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct tally_shard tally_shard_of(uint32_t points, uint32_t clients, uint32_t client)
{
    uint32_t size = points / clients;
    uint32_t longer = points % clients;
    uint32_t extra = client < longer ? client : longer;
    return (struct tally_shard){.first = client * size + extra, .size = size + (client < longer)};
}

/* `round` selects the stream. */
static void permute(struct tally_rng_key key, uint32_t round, uint32_t points, uint32_t *order)
{
    struct tally_rng rng;
    tally_rng_init(&rng, key, TALLY_RNG_SERVER, round, TALLY_RNG_SHARDING);
    for (uint32_t i = 0; i < points; i++) {
        order[i] = i;
    }
    for (uint32_t i = points; i > 1; i--) {
        uint32_t j = tally_rng_below(&rng, i);
        uint32_t point = order[i - 1];
        order[i - 1] = order[j];
        order[j] = point;
    }
}

void tally_shard_permutation(struct tally_rng_key key, uint32_t points, uint32_t *order)
{
    permute(key, 0, points, order);
}

void tally_shard_permutation_of_chosen(struct tally_rng_key key, uint32_t points, uint32_t *order)
{
    permute(key, 1, points, order);
}

void tally_shard_permutation_of_test(struct tally_rng_key key, uint32_t points, uint32_t *order)
{
    permute(key, 2, points, order);
}

/* The logarithm of a draw from the Gamma distribution with shape alpha and scale 1: Marsaglia and
 * Tsang, "A simple method for generating gamma variables", ACM TOMS 26 (2000), section 3, for shape
 * alpha + 1; by section 6, times U^(1/alpha) it has shape alpha. A logarithm, because the draw
 * itself underflows for a small alpha. */
static double draw_log_gamma(struct tally_rng *rng, double alpha)
{
    const double d = alpha + 1 - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        double x[2];
        tally_rng_normal(rng, x, 2);
        const double v = pow(1 + c * x[0], 3), u = 1 - tally_rng_uniform(rng);
        if (1 + c * x[0] > 0 && log(u) < 0.5 * x[0] * x[0] + d - d * v + d * log(v)) {
            return log(d * v) + log(1 - tally_rng_uniform(rng)) / alpha;
        }
    }
}

/* Fills proportions[n] with a draw from the Dirichlet distribution. */
static void draw_proportions(struct tally_rng *rng, double alpha, uint32_t n, double *proportions)
{
    double most = -INFINITY, sum = 0;
    for (uint32_t m = 0; m < n; m++) {
        proportions[m] = draw_log_gamma(rng, alpha);
        most = fmax(most, proportions[m]);
    }
    for (uint32_t m = 0; m < n; m++) {
        proportions[m] = exp(proportions[m] - most);
        sum += proportions[m];
    }
    for (uint32_t m = 0; m < n; m++) {
        proportions[m] /= sum;
    }
}

/* What dealing needs besides the result. */
struct deal {
    const double *labels;
    uint32_t points, clients;
    uint32_t *rank;      /* uint32[points]: place of a point in a random order */
    uint32_t *owner;     /* uint32[points]: client of the i-th point by label and rank */
    uint32_t *dealt;     /* uint32[points]: the points, by client */
    uint32_t *given;     /* uint32[clients]: points that a client gives away */
    uint32_t *end;       /* uint32[clients]: where its points in `dealt` end; in the room of rank */
    double *proportions; /* double[clients] */
};

static int compare_ranks(const void *a, const void *b, void *context)
{
    const struct deal *deal = context;
    const uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    if (deal->labels[i] != deal->labels[j]) {
        return deal->labels[i] < deal->labels[j] ? -1 : 1;
    }
    return (deal->rank[i] > deal->rank[j]) - (deal->rank[i] < deal->rank[j]);
}

/* Deals the points first .. end - 1 by label and rank, which have one label. */
static void deal_label(struct deal *deal, struct tally_rng *rng, double alpha, uint32_t first,
                       uint32_t end)
{
    double sum = 0;
    uint32_t at = first;
    draw_proportions(rng, alpha, deal->clients, deal->proportions);
    for (uint32_t m = 0; m < deal->clients; m++) {
        sum += deal->proportions[m];
        const uint32_t until =
            m + 1 == deal->clients ? end : first + (uint32_t)(fmin(sum, 1) * (end - first) + 0.5);
        for (; at < until; at++) {
            deal->owner[at] = m;
        }
    }
}

/* The client with the most points, of those that have not given any away. */
static uint32_t largest(const struct deal *deal, const struct tally_shard *shards)
{
    uint32_t best = 0;
    for (uint32_t m = 1; m < deal->clients; m++) {
        if (shards[m].size - deal->given[m] > shards[best].size - deal->given[best]) {
            best = m;
        }
    }
    return best;
}

/* Has clients give points away, one for each client without points: the largest client gives until
 * it has one left, then the next, so that the time is linear unless very many clients are empty. */
static void fill_empty(struct deal *deal, const struct tally_shard *shards)
{
    uint32_t donor = UINT32_MAX;
    for (uint32_t m = 0; m < deal->clients; m++) {
        if (shards[m].size == 0) {
            if (donor == UINT32_MAX || shards[donor].size - deal->given[donor] == 1) {
                donor = largest(deal, shards);
            }
            deal->given[donor]++;
        }
    }
}

/* Writes the points in the order of the clients, and the final shards. */
static void write_order(struct deal *deal, uint32_t *order, struct tally_shard *shards)
{
    uint32_t n = 0, donor = 0, taken = 0;
    for (uint32_t m = 0; m < deal->clients; m++) {
        const struct tally_shard own = shards[m];
        const uint32_t first = n;
        for (uint32_t i = 0; i < own.size - deal->given[m]; i++) {
            order[n++] = deal->dealt[own.first + i];
        }
        if (own.size == 0) {
            while (taken == deal->given[donor]) {
                donor++;
                taken = 0;
            }
            order[n++] = deal->dealt[deal->end[donor] - 1 - taken]; /* from the end */
            taken++;
        }
        shards[m] = (struct tally_shard){first, n - first};
    }
}

static void deal_points(struct deal *deal, struct tally_rng_key key, double alpha, uint32_t *order,
                        struct tally_shard *shards)
{
    const uint32_t points = deal->points;
    struct tally_rng rng;
    tally_rng_init(&rng, key, TALLY_RNG_SERVER, 3, TALLY_RNG_SHARDING);
    tally_shard_permutation(key, points, order);
    for (uint32_t i = 0; i < points; i++) {
        deal->rank[order[i]] = i;
    }
    qsort_r(order, points, sizeof *order, compare_ranks, deal);
    for (uint32_t first = 0, end = 0; first < points; first = end) {
        while (end < points && deal->labels[order[end]] == deal->labels[order[first]]) {
            end++;
        }
        deal_label(deal, &rng, alpha, first, end);
    }
    memset(shards, 0, deal->clients * sizeof *shards);
    for (uint32_t i = 0; i < points; i++) {
        shards[deal->owner[i]].size++;
    }
    for (uint32_t m = 1; m < deal->clients; m++) {
        shards[m].first = shards[m - 1].first + shards[m - 1].size;
    }
    deal->end = deal->rank; /* the ranks are no longer needed; clients <= points */
    for (uint32_t m = 0; m < deal->clients; m++) {
        deal->end[m] = shards[m].first;
    }
    for (uint32_t i = 0; i < points; i++) {
        deal->dealt[deal->end[deal->owner[i]]++] = order[i];
    }
    fill_empty(deal, shards);
    write_order(deal, order, shards);
}

bool tally_shard_dirichlet(struct tally_rng_key key, double alpha, const double *labels,
                           uint32_t points, uint32_t clients, uint32_t *order,
                           struct tally_shard *shards)
{
    struct deal deal = {.labels = labels,
                        .points = points,
                        .clients = clients,
                        .rank = malloc(points * sizeof *order),
                        .owner = malloc(points * sizeof *order),
                        .dealt = malloc(points * sizeof *order),
                        .given = calloc(clients, sizeof *order),
                        .proportions = malloc(clients * sizeof *deal.proportions)};
    const bool ok = deal.rank != NULL && deal.owner != NULL && deal.dealt != NULL &&
                    deal.given != NULL && deal.proportions != NULL;
    if (ok) {
        deal_points(&deal, key, alpha, order, shards);
    }
    free(deal.rank);
    free(deal.owner);
    free(deal.dealt);
    free(deal.given);
    free(deal.proportions);
    return ok;
}

/* Moves rows cycle by cycle. The first row of a cycle is kept in `spare` until its place is free.
 */
void tally_shard_reorder(void *rows, size_t n_bytes, uint32_t points, uint32_t *order, void *spare)
{
    uint8_t *at = rows;
    for (uint32_t first = 0; first < points; first++) {
        if (order[first] == first) {
            continue;
        }
        memcpy(spare, at + first * n_bytes, n_bytes);
        uint32_t to = first;
        while (order[to] != first) {
            const uint32_t from = order[to];
            memcpy(at + to * n_bytes, at + from * n_bytes, n_bytes);
            order[to] = to;
            to = from;
        }
        memcpy(at + to * n_bytes, spare, n_bytes);
        order[to] = to;
    }
}
