/* logistic: l2-regularised logistic regression on small real data, the figure of the papers about
 * compressed gradients: the gap f(x) - f(x*) against the bits that were sent.
 *
 *     sets       wine, digits, heart_scale, Fashion-MNIST (deploy/fetch-logistic), 20 clients
 *     gradients  exact: of all points of a client; stochastic: of a few drawn points
 *     methods    Minibatch SGD, FedAvg, DIANA, EF21, CEAL, CALM, FedAvg with compression
 *     steps      2^j / beta, j = -4 .. 6, where beta is the smoothness of f
 *
 * What runs is data, the document `logistic` of deploy/experiments: each row, "SET GRADIENTS
 * METHOD", is run once at each step size. Here the runs of its gaps (run.h) become curves and
 * prices. Gaps are relative to the initial gap, f(0) - f(x*), and measured at the server's point.
 * Bits are those of decodable messages: up, the mean of the clients; down, each broadcast once, and
 * control bits. */
#ifndef TALLY_SERVICES_EXPERIMENT_LOGISTIC_H
#define TALLY_SERVICES_EXPERIMENT_LOGISTIC_H

#include "services/experiment/sweep.h"

enum { TALLY_LOGISTIC_LEVELS = 4 };

/* The relative gaps whose price is reported: 1e-1, 1e-2, 1e-4, 1e-6. */
extern const double TALLY_LOGISTIC_GAPS[TALLY_LOGISTIC_LEVELS];

/* The fewest uplink bits with which a gap was reached. */
struct tally_logistic_price {
    const struct tally_sweep_trial *trial; /* NULL: not reached at any step size */
    double uplink, downlink;
};

struct tally_logistic_row {
    const struct tally_sweep_row *row; /* its trials are by step size */
    char set[32], gradients[16];
    const char *method;
    struct tally_logistic_price prices[TALLY_LOGISTIC_LEVELS];
    /* The trial with the lowest price of the smallest gap that the method reached. If it reached
     * none, the one with the smallest final gap. */
    const struct tally_sweep_trial *best;
};

struct tally_logistic {
    struct tally_sweep sweep;
    struct tally_logistic_row *rows; /* heap; set by set, exact before stochastic */
    size_t n_rows;
    size_t n_sets, rows_per_set;
};

/* Reads the sweep of some sets: their names, separated by commas; NULL = all. Errors:
 * INVALID_ARGUMENT (no such set), NO_MEMORY. */
enum tally_status tally_logistic_read(const char *only, int64_t seed,
                                      struct tally_logistic *ret_logistic, struct tally_error *err);
/* Runs it; the config is to have `with_gaps`. Errors: those of tally_sweep_run(). */
enum tally_status tally_logistic_run(struct tally_logistic *logistic,
                                     const struct tally_sweep_config *config,
                                     struct tally_error *err);
void tally_logistic_fini(struct tally_logistic *logistic);

/* ---- The results as a table, JSON, CSV and a gnuplot script. Errors of all functions:
 * NO_MEMORY. */

/* One table per set: the bits up that each gap took. */
enum tally_status tally_logistic_table(const struct tally_logistic *logistic,
                                       struct tally_buffer *out);

/* {"experiment", "seed", "clients", "sets": [{"name", "dim", "smoothness", "strong_convexity",
 *  "start_gap"}], "rows": [{"set", "gradients", "algorithm", "step_size", "at_edge", "final_gap",
 *  "prices": [{"gap", "step_size", "uplink_bits", "downlink_bits"}]}]}: the row's step_size,
 * at_edge and final_gap are those of the best curve; prices of gaps that were not reached are
 * missing. NULL when memory ran out. */
struct tally_json *tally_logistic_json(const struct tally_logistic *logistic);

/* The best curve of every row: set, gradients, algorithm, step_size, round, uplink_bits,
 * downlink_bits, gap; two blank lines between two curves, which separate them for gnuplot's
 * `index`. */
enum tally_status tally_logistic_curves_csv(const struct tally_logistic *logistic,
                                            struct tally_buffer *out);

/* Draws logistic-curves.csv: logistic.svg and logistic.png, a panel for each set and kind of
 * gradient. */
enum tally_status tally_logistic_script(const struct tally_logistic *logistic,
                                        struct tally_buffer *out);

#endif
