/* logistic: l2-regularised logistic regression on small real data, the figure of the papers about
 * compressed gradients: the gap f(x) - f(x*) against the bits that were sent.
 *
 *     sets       wine, digits, heart_scale, Fashion-MNIST (deploy/fetch-logistic), 20 clients
 *     gradients  exact: of all points of a client; stochastic: of a few drawn points
 *     methods    Minibatch SGD, FedAvg, DIANA, EF21, CEAL, CALM, FedAvg with compression
 *     steps      2^j / beta, j = -4 .. 6, where beta is the smoothness of f
 *
 * A row is a set, a kind of gradient and a method, run once at each step size. Gaps are relative to
 * the initial gap, f(0) - f(x*), and measured at the server's point. Bits are those of decodable
 * messages: up, the mean of the clients; down, each broadcast once, and control bits. */
#ifndef TALLY_SERVICES_EXPERIMENT_LOGISTIC_H
#define TALLY_SERVICES_EXPERIMENT_LOGISTIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/json/json.h"
#include "codec/buffer.h"
#include "codec/error.h"
#include "services/job/job_spec.h"

enum { TALLY_LOGISTIC_STEPS = 11, TALLY_LOGISTIC_LEVELS = 4 };

/* The relative gaps whose price is reported: 1e-1, 1e-2, 1e-4, 1e-6. */
extern const double TALLY_LOGISTIC_GAPS[TALLY_LOGISTIC_LEVELS];

struct tally_logistic_config {
    const char *data_dir;
    const char *only; /* names of sets, separated by commas; NULL = all */
    int64_t seed;
    unsigned threads;
    /* Called ten times a second with the share of work done. Returning false asks to stop. */
    bool (*watch)(void *context, double fraction, const char *what);
    void *context;
};

/* The state after a round. */
struct tally_logistic_point {
    int64_t round;
    double uplink, downlink; /* bits so far */
    double gap;
};

/* One run. It ends early if the job diverges. */
struct tally_logistic_curve {
    double step_size;
    struct tally_logistic_point *points; /* heap; of at most 272 rounds, including the last */
    size_t n_points;
};

/* The fewest uplink bits with which a gap was reached. */
struct tally_logistic_price {
    const struct tally_logistic_curve *curve; /* NULL: not reached at any step size */
    double uplink, downlink;
};

struct tally_logistic_row {
    const char *set, *method;
    bool is_exact;
    struct tally_logistic_curve curves[TALLY_LOGISTIC_STEPS]; /* by step size */
    struct tally_logistic_price prices[TALLY_LOGISTIC_LEVELS];
    /* The curve with the lowest price of the smallest gap that the method reached. If it reached
     * none, the curve with the smallest final gap. */
    const struct tally_logistic_curve *best;
};

/* What is known about f on a set. */
struct tally_logistic_set {
    const char *name;
    size_t dim;
    double smoothness, strong_convexity;
    double start_gap; /* f(0) - f(x*) */
};

struct tally_logistic {
    int64_t seed;
    struct tally_logistic_set *sets; /* heap */
    size_t n_sets;
    struct tally_logistic_row *rows; /* heap; set by set, exact before stochastic */
    size_t n_rows;
};

/* Errors: INVALID_ARGUMENT (no such set; data files, with a message that says how to get them),
 * NO_MEMORY, CANCELLED. */
enum tally_status tally_logistic_run(const struct tally_logistic_config *config,
                                     struct tally_logistic *ret_logistic, struct tally_error *err);
void tally_logistic_fini(struct tally_logistic *logistic);

/* The job of a curve of row i. Errors: NO_MEMORY. */
enum tally_status tally_logistic_job(const struct tally_logistic *logistic, size_t i,
                                     double step_size, struct tally_job_spec *ret_spec,
                                     struct tally_error *err);

/* ---- The results of tally_logistic_run() as a table, JSON, CSV and a gnuplot script.
 * Errors of all functions: NO_MEMORY. */

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
