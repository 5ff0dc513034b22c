/* logistic: l2-regularised logistic regression on small real data, the figure of the papers about
 * compressed gradients: the gap f(x) - f(x*) against the bits that were sent.
 *
 *     sets       wine, digits, heart_scale, Fashion-MNIST (deploy/fetch-logistic), 20 clients
 *     gradients  exact: of all points of a client; stochastic: of a few drawn points
 *     methods    Minibatch SGD, FedAvg, DIANA, EF21, CEAL, CALM
 *     steps      2^j / beta, j = -4 .. 6, where beta is the smoothness of f
 *
 * A row is a set, a kind of gradient and a method, run once at each step size. Gaps are relative to
 * that of the start, f(0) - f(x*), and measured at the server's point. Bits are decodable ones: of
 * one client's messages up, of each broadcast once and control bits down. */
#ifndef TALLY_SERVICES_EXPERIMENT_LOGISTIC_LOGISTIC_H
#define TALLY_SERVICES_EXPERIMENT_LOGISTIC_LOGISTIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/base/error.h"
#include "services/job/spec.h"

enum { TALLY_LOGISTIC_STEPS = 11, TALLY_LOGISTIC_LEVELS = 4 };

/* Relative gaps whose price is reported: 1e-1, 1e-2, 1e-4, 1e-6. */
extern const double TALLY_LOGISTIC_GAPS[TALLY_LOGISTIC_LEVELS];

struct tally_logistic_config {
    const char *data_dir;
    const char *only; /* names of sets, separated by commas; NULL = all */
    int64_t seed;
    unsigned threads;
    /* Told ten times a second how much is done; false asks to stop. */
    bool (*watch)(void *context, double fraction, const char *what);
    void *context;
};

/* After some round. */
struct tally_logistic_point {
    int64_t round;
    double uplink, downlink; /* bits so far */
    double gap;
};

/* One run. It ends early if the job diverges. */
struct tally_logistic_curve {
    double step_size;
    struct tally_logistic_point *points; /* heap; those of about 200 rounds, the last among them */
    size_t n_points;
};

/* The fewest bits up with which a gap was reached. */
struct tally_logistic_price {
    const struct tally_logistic_curve *curve; /* NULL: at no step size */
    double uplink, downlink;
};

struct tally_logistic_row {
    const char *set, *method;
    bool is_exact;
    struct tally_logistic_curve curves[TALLY_LOGISTIC_STEPS]; /* by step size */
    struct tally_logistic_price prices[TALLY_LOGISTIC_LEVELS];
    /* The step size with the lowest price of the smallest gap that the method reached, or else with
     * the smallest gap in the end. */
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

/* Errors: INVALID_ARGUMENT (no such set; data files, with a word on where to get them), NO_MEMORY,
 * CANCELLED. */
enum tally_status tally_logistic_run(const struct tally_logistic_config *config,
                                     struct tally_logistic *ret_logistic, struct tally_error *err);
void tally_logistic_fini(struct tally_logistic *logistic);

/* The job of a curve of row i. Errors: NO_MEMORY. */
enum tally_status tally_logistic_job(const struct tally_logistic *logistic, size_t i,
                                     double step_size, struct tally_job_spec *ret_spec,
                                     struct tally_error *err);

/* Whether the best step size is the least or the largest, so that one beyond may do better. */
bool tally_logistic_is_at_edge(const struct tally_logistic_row *row);

#endif
