/* reproduction: one experiment of [1] as a sweep (sweep.h), and the rows of its Table I.
 *
 *   synthetic   linear regression, N = 2000, d = 30, M = 10, T = 2000, one point per query
 *   mnist       softmax regression on 50,000 balanced images, d = 7840, M = 10, T = 1000, 25 images
 *               per query, from zero
 *
 * [1] does not say how the covariates of the synthetic one were "normalized". Two readings remain
 * (services/algorithms/README.md): `loud`, with the noise of the text, and `quiet`, the same
 * problem rescaled so that [1]'s step sizes are the best ones.
 *
 * The documents are data (shipped.h): `synthetic`, `synthetic-quiet` and `mnist`. A row is named
 * "ALGORITHM PRESET"; one with `tune` is at the best step size of its grid. The reference row named
 * "Table I, ALGORITHM" has the bits that [1] reports; for algorithms that [1] does not have, CEAL's
 * are taken.
 *
 *     document  -->  rows asked for  -->  sweep  -->  table, JSON, CSV here; pictures in plot.h */
#ifndef TALLY_SERVICES_EXPERIMENT_REPRODUCTION_H
#define TALLY_SERVICES_EXPERIMENT_REPRODUCTION_H

#include "services/experiment/sweep.h"

struct tally_reproduction_config {
    const char *document; /* "synthetic", "synthetic-quiet", "mnist" */
    const char *only;     /* names of presets, separated by commas; NULL = all */
    bool with_grid;       /* whether there are rows with `tune` */
    double radius;        /* of a random start; NaN = as in the document */
    int64_t first_seed;
    size_t n_seeds;
};

/* Reads the sweep of an experiment. With another radius, CALM is given the variance of the initial
 * point that follows from it. Errors: INVALID_ARGUMENT (no such preset; no row is left), with field
 * "preset"; OUT_OF_RANGE (too many runs), NO_MEMORY. */
enum tally_status tally_reproduction_read(const struct tally_reproduction_config *config,
                                          struct tally_sweep *ret_sweep, struct tally_error *err);

/* Reads the sweep deploy/experiments/NAME.json with the rows that `keeps` keeps. Errors: as above.
 */
typedef bool tally_reproduction_keep_fn(const void *context, const char *name, bool is_tuned);
enum tally_status tally_reproduction_load(const char *name, tally_reproduction_keep_fn *keeps,
                                          const void *context, int64_t first_seed, size_t n_seeds,
                                          struct tally_sweep *ret_sweep, struct tally_error *err);

/* A row of the table, over all seeds. */
struct tally_reproduction_row {
    const struct tally_sweep_trial *trial; /* borrowed */
    const struct tally_algorithm *algorithm;
    const char *preset; /* borrowed; "tuned" = at the best step size of a grid */
    bool tuned;
    double step_size;
    struct tally_summary regret;
    double planned_regret; /* of CALM; NaN = it is not planned */
    struct tally_mean_bits bits;
    struct tally_bit_pair counted; /* run.h */
    struct tally_bit_pair paper;   /* of [1] */
};

struct tally_reproduction {
    const struct tally_sweep *sweep;     /* borrowed */
    struct tally_reproduction_row *rows; /* heap; [sweep->n_rows] */
};
/* Makes the rows of a sweep that has run. Errors: NO_MEMORY. */
enum tally_status tally_reproduction_make(const struct tally_sweep *sweep,
                                          struct tally_reproduction *ret_table,
                                          struct tally_error *err);
void tally_reproduction_fini(struct tally_reproduction *table);

double tally_reproduction_step_size(const struct tally_sweep_trial *trial);
/* How many of the seeds the grids are searched with. */
size_t tally_reproduction_search_seeds(const struct tally_sweep *sweep);
/* The regret of a trial of a grid, over these seeds. */
struct tally_summary tally_reproduction_trial_regret(const struct tally_sweep *sweep,
                                                     const struct tally_sweep_trial *trial);

/* "synthetic, loud reading, start radius 2, seeds 101-110"; `to` separates first and last seed. */
void tally_reproduction_title(const struct tally_sweep *sweep, const char *to, char *ret_title,
                              size_t capacity);

/* ---- The results, as JSON and as CSV. */

/* {"experiment", "seeds": [...], "rows": [{"algorithm", "preset", "step_size", "tuned",
 *  "regret": {"mean", "std"}, "planned_regret", "uplink": {"formula", "payload", "control",
 *  "entropy_payload"}, "downlink": same, "paper": {"uplink", "downlink"}}]}: bits per client up and
 * per broadcast down, means over runs; entropy_payload is an estimate; null stands for the regret
 * of runs that diverged, and for a regret that is not planned. NULL when memory ran out. */
struct tally_json *tally_reproduction_json(const struct tally_reproduction *table);

/* Parts that the frontier's JSON shares. NULL when memory ran out. */
struct tally_json *tally_reproduction_seeds_json(int64_t first, size_t n);
struct tally_json *tally_reproduction_bits_json(const struct tally_run_bits *bits);
struct tally_json *tally_reproduction_regret_json(const struct tally_summary *regret);

/* The same rows as CSV with a header line, and the grids. Errors: NO_MEMORY. */
enum tally_status tally_reproduction_rows_csv(const struct tally_reproduction *table,
                                              struct tally_buffer *out);
enum tally_status tally_reproduction_grids_csv(const struct tally_reproduction *table,
                                               struct tally_buffer *out);

#endif
