#include "services/experiment/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    N_WIDENINGS = 6, /* times that a grid may be widened */
    WIDENING = 3     /* step sizes each time */
};

double tally_search_step_size(const struct tally_preset *preset, int exponent)
{
    return tally_preset_step_size(preset) * pow(preset->grid.factor, exponent);
}

size_t tally_search_best(const struct tally_trial *trials, size_t n, enum tally_grid_edge *ret_edge)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++) {
        if (trials[i].regret.mean < trials[best].regret.mean) {
            best = i;
        }
    }
    *ret_edge = best == 0 ? TALLY_EDGE_LOW : best == n - 1 ? TALLY_EDGE_HIGH : TALLY_EDGE_NONE;
    return best;
}

/* The new trials of one search: exponents first .. last. */
struct stretch {
    struct tally_search *search;
    int first, last;
    struct tally_run *runs; /* [last - first + 1][n_seeds] */
};

static size_t length_of(const struct stretch *stretch)
{
    const int n = stretch->last - stretch->first + 1;
    return (size_t)n;
}

static size_t add_items(const struct stretch *stretch, const struct tally_problem *problem,
                        size_t n_seeds, struct tally_runner_item *items)
{
    size_t n = 0;
    for (int k = stretch->first; k <= stretch->last; k++) {
        for (size_t seed = 0; seed < n_seeds; seed++, n++) {
            items[n] = (struct tally_runner_item){
                .preset = stretch->search->preset,
                .problem = problem,
                .step_size = tally_search_step_size(stretch->search->preset, k),
                .seed = seed,
                .place = &stretch->runs[n]};
        }
    }
    return n;
}

/* Inserts the new trials below or above the existing ones. */
static enum tally_status take_trials(const struct stretch *stretch, size_t n_seeds,
                                     struct tally_error *err)
{
    struct tally_search *search = stretch->search;
    const size_t n_new = length_of(stretch), n_old = search->n_trials;
    struct tally_trial *trials = realloc(search->trials, (n_old + n_new) * sizeof *trials);
    if (trials == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a grid");
    }
    search->trials = trials;
    search->n_trials = n_old + n_new;
    struct tally_trial *fresh = trials + n_old;
    if (n_old > 0 && stretch->first < trials[0].exponent) {
        memmove(trials + n_new, trials, n_old * sizeof *trials);
        fresh = trials;
    }
    for (size_t i = 0; i < n_new; i++) {
        const int exponent = stretch->first + (int)i;
        fresh[i] =
            (struct tally_trial){exponent, tally_search_step_size(search->preset, exponent),
                                 tally_summary_of_regret(stretch->runs + i * n_seeds, n_seeds)};
    }
    search->best = tally_search_best(trials, search->n_trials, &search->edge);
    return TALLY_OK;
}

static enum tally_status run_stretches(struct tally_runner *runner,
                                       const struct tally_problem *problem,
                                       struct stretch *stretches, size_t n, size_t n_seeds,
                                       const char *what, struct tally_error *err)
{
    size_t n_items = 0, at = 0;
    for (size_t i = 0; i < n; i++) {
        n_items += length_of(&stretches[i]) * n_seeds;
    }
    struct tally_runner_item *items = calloc(n_items, sizeof *items);
    struct tally_run *runs = calloc(n_items, sizeof *runs);
    enum tally_status status = TALLY_NO_MEMORY;
    if (items != NULL && runs != NULL) {
        for (size_t i = 0; i < n; i++) {
            stretches[i].runs = runs + at;
            at += add_items(&stretches[i], problem, n_seeds, items + at);
        }
        status = tally_runner_run(runner, items, n_items, what, err);
    } else {
        tally_fail(err, status, NULL, "no memory for %zu runs", n_items);
    }
    for (size_t i = 0; status == TALLY_OK && i < n; i++) {
        status = take_trials(&stretches[i], n_seeds, err);
    }
    for (size_t i = 0; runs != NULL && i < n_items; i++) {
        tally_run_fini(&runs[i]);
    }
    free(items);
    free(runs);
    return status;
}

/* The next stretches of the searches whose best trial is at an edge. Marks these searches as
 * widened. */
static size_t widen(struct tally_search *searches, size_t n, struct stretch *ret_stretches)
{
    size_t n_stretches = 0;
    for (size_t i = 0; i < n; i++) {
        struct tally_search *search = &searches[i];
        const int low = search->trials[0].exponent;
        const int high = search->trials[search->n_trials - 1].exponent;
        struct stretch stretch = {.search = search, .first = high + 1, .last = high + WIDENING};
        if (search->edge == TALLY_EDGE_NONE) {
            continue;
        }
        if (search->edge == TALLY_EDGE_LOW) {
            stretch.first = low - WIDENING;
            stretch.last = low - 1;
            search->widened_low = true;
        } else {
            search->widened_high = true;
        }
        ret_stretches[n_stretches++] = stretch;
    }
    return n_stretches;
}

static double stretch_cost(const struct stretch *stretch, const struct tally_problem *problem,
                           size_t n_seeds)
{
    const struct tally_runner_item item = {.preset = stretch->search->preset,
                                           .problem = problem,
                                           .step_size =
                                               tally_preset_step_size(stretch->search->preset)};
    return (double)(length_of(stretch) * n_seeds) * tally_runner_cost(&item);
}

double tally_search_cost(const struct tally_problem *problem, const struct tally_preset *preset,
                         size_t n_seeds)
{
    struct tally_search search = {.preset = preset};
    const struct stretch stretch = {
        .search = &search, .first = preset->grid.first, .last = preset->grid.last};
    return stretch_cost(&stretch, problem, n_seeds);
}

enum tally_status tally_search_run(struct tally_runner *runner, const struct tally_problem *problem,
                                   const struct tally_preset *const *presets, size_t n,
                                   size_t n_seeds, struct tally_search *ret_searches,
                                   struct tally_error *err)
{
    struct stretch *stretches = calloc(n > 0 ? n : 1, sizeof *stretches);
    if (stretches == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for %zu searches", n);
    }
    for (size_t i = 0; i < n; i++) {
        ret_searches[i] = (struct tally_search){.preset = presets[i]};
        stretches[i] = (struct stretch){.search = &ret_searches[i],
                                        .first = presets[i]->grid.first,
                                        .last = presets[i]->grid.last};
    }
    enum tally_status status =
        n > 0 ? run_stretches(runner, problem, stretches, n, n_seeds, "grid", err) : TALLY_OK;
    for (int again = 0; status == TALLY_OK && again < N_WIDENINGS; again++) {
        const size_t n_wide = widen(ret_searches, n, stretches);
        if (n_wide == 0) {
            break;
        }
        for (size_t i = 0; i < n_wide; i++) {
            tally_runner_plan(runner, stretch_cost(&stretches[i], problem, n_seeds));
        }
        status = run_stretches(runner, problem, stretches, n_wide, n_seeds, "wider grid", err);
    }
    free(stretches);
    for (size_t i = 0; status != TALLY_OK && i < n; i++) {
        tally_search_fini(&ret_searches[i]);
    }
    return status;
}

void tally_search_fini(struct tally_search *search)
{
    free(search->trials);
    *search = (struct tally_search){0};
}
