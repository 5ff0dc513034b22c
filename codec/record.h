/* record: plain data on a job's progress that the engine makes, the store keeps and the API shows.
 *
 * The structs hold values only: they may be copied, compared and stored column by column. */
#ifndef TALLY_CODEC_RECORD_H
#define TALLY_CODEC_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/ledger.h"

/* Life of a job: queued until its reference is known and enough client slots are free. */
#define TALLY_JOB_STATUS_TABLE(X)                                                                  \
    X(QUEUED, "queued", false)                                                                     \
    X(RUNNING, "running", false)                                                                   \
    X(PAUSED, "paused", false)                                                                     \
    X(COMPLETED, "completed", true)                                                                \
    X(FAILED, "failed", true)                                                                      \
    X(CANCELLED, "cancelled", true)

enum tally_job_status {
#define TALLY_JOB_STATUS_ENUM(symbol, name, terminal) TALLY_JOB_##symbol,
    TALLY_JOB_STATUS_TABLE(TALLY_JOB_STATUS_ENUM)
#undef TALLY_JOB_STATUS_ENUM
        TALLY_N_JOB_STATUS
};

const char *tally_job_status_name(enum tally_job_status status); /* "queued" */
bool tally_job_status_is_terminal(enum tally_job_status status);
/* False if `name` is not a status. */
bool tally_job_status_of_name(const char *name, enum tally_job_status *ret_status);

enum { TALLY_MISSING_CAPACITY = 64 }; /* with NUL; a multiple of 8 */

/* A schedule as text, with NUL, for jobs that their algorithm plans before they start. */
enum { TALLY_SCHEDULE_CAPACITY = 1024 };

/* The labels of a job as text (services/base/labels.h), with NUL; a multiple of 8. */
enum { TALLY_LABELS_CAPACITY = 2056 };

/* Metrics: named numbers that a worker reports with its update, such as an accuracy or a computing
 * time. They are telemetry and never enter the computation. */
enum {
    TALLY_METRICS_MOST = 16, /* metrics of one update; also distinct names that the clients of
                              * a round report, and that the evaluations of its model have */
    TALLY_METRIC_NAME_CAPACITY = 33, /* with NUL */
    TALLY_JOB_METRICS_MOST = 32,     /* distinct names of which a job keeps the last summary */
    TALLY_METRICS_CAPACITY = 3464    /* of 32 summaries as text, with NUL; a multiple of 8 */
};

struct tally_metric {
    char name[TALLY_METRIC_NAME_CAPACITY]; /* [a-z][a-z0-9_]{0,31} */
    double value;                          /* one that is not finite is dropped */
};

bool tally_metric_is_name(const char *name);

/* One metric, over those clients of a round that reported it. All of them made the same number of
 * gradient queries, so the mean needs no weights. */
struct tally_metric_summary {
    char name[TALLY_METRIC_NAME_CAPACITY];
    double mean, min, max;
};

/* Summaries are kept as text, "accuracy 0.9 0.8 1;seconds 2.5 2 3;": names ascending, each with
 * mean, min and max of 17 digits. Appends one to a text with room for it; names must be appended in
 * ascending order. */
void tally_metrics_append(char *text, const struct tally_metric_summary *summary);
/* Reads the summary at *at and advances *at. False at the end of the text or if it is damaged. */
bool tally_metrics_next(const char **at, struct tally_metric_summary *ret_summary);
/* Puts the summaries of a round into `last`, in place of earlier ones of the same names. New names
 * beyond TALLY_JOB_METRICS_MOST are left out. */
void tally_metrics_update(char last[TALLY_METRICS_CAPACITY], const char *round);

/* Why a client's training or evaluation failed, as one line of text, with NUL; a multiple of 8. */
enum { TALLY_SETBACK_CAPACITY = 264 };

/* What the evaluation of the model that a round made has given. It is known when the next round
 * closes, or when the job ends, and belongs into the record of the round that made the model. */
struct tally_round_evaluation {
    int64_t round;           /* 0 = there is no evaluation */
    uint64_t telemetry_bits; /* to be added to those of the record; 0 if the next record has them */
    char metrics[TALLY_METRICS_CAPACITY]; /* summaries */
};

/* What one closed round did. The sum of `bits` over a job's records equals the job's ledger. */
struct tally_round_record {
    int64_t round;     /* 1, 2, ... */
    int64_t time_step; /* t after the round: gradient queries per client so far */
    int64_t iterate;   /* k, the point that the round queried; 1, 2, ... */
    int64_t stage;    /* j; 0 if the algorithm has none, and for an opening round; if steps decay or
                       * rounds grow, queries per client before the round */
    int64_t samples;  /* s_j, or the part of it before the horizon */
    int64_t received; /* messages that entered the average; 0 when cut at the horizon */
    char missing[TALLY_MISSING_CAPACITY]; /* clients whose updates were not waited for: "3 17
                                           * 20-25", ended by " ..." if there are more; "" = none */
    double norm;                          /* |g| at the server; 0 if cut or an opening round */
    bool passed;                          /* a broadcast was sent and the iterate moved */
    bool cut;                 /* the horizon ended it: its steps count, nothing was sent */
    double loss;              /* f(x^(k)); NaN if a client reported none */
    double cumulative_regret; /* R after the round, of all M clients, including the missing ones */
    struct tally_ledger bits; /* of this round alone */
    int64_t closed_ms;        /* Unix time, set by the host that stores it; 0 = the engine's, which
                               * has no clock */
    char metrics[TALLY_METRICS_CAPACITY]; /* summaries, of what the clients reported and of the
                                           * evaluation of the round's model; "" = there are none */
};

/* Adds the evaluation of the model that the record's round made. If a client reported a metric of
 * the same name, the evaluation's counts. */
void tally_record_evaluate(struct tally_round_record *record,
                           const struct tally_round_evaluation *evaluation);

/* Estimates from a job's opening round; 0 = not requested by the document, or not known yet. */
struct tally_estimates {
    double sigma;
    double gradient_bound;
    double step_size;
    double step_size_error; /* standard error of its reciprocal, as a share; 0: unknown */
    /* m of services/algorithms/CALM.md; 0: not estimated; -1: some directions are much flatter than
     * others. */
    double noise_growth;
};

/* Bounds of the eigenvalues of the Hessian of f at every x: the gradient is Lipschitz with
 * `smoothness` (beta in [1]), and f lies above its tangents by at least strong_convexity |x - y|^2
 * / 2 (alpha in [1]). NaN = unknown. */
struct tally_curvature {
    double smoothness;       /* an upper estimate, a few percent too large at worst */
    double strong_convexity; /* a lower bound; 0 if f is not strongly convex */
};

/* The rule of the job document's `stop` that ended a job. */
enum { TALLY_STOP_RULE_CAPACITY = 16 }; /* with NUL; a multiple of 8 */
struct tally_stopped {
    char rule[TALLY_STOP_RULE_CAPACITY]; /* the member of `stop` that names it; "" = none */
    double value;                        /* what met it */
    int64_t round;                       /* the round that the value belongs to */
};

/* The best point so far, by the metric of the job document's `keep.best`. */
struct tally_best {
    double value;
    int64_t round;   /* that made it; 0 = it is the initial point */
    int64_t iterate; /* its k; 0 = there is none yet */
};

/* What a rule `stop.patience` has seen. */
struct tally_patience {
    double best;     /* the best value so far */
    int64_t round;   /* that it belongs to; 0 = there is none yet */
    int64_t n_stale; /* values since then */
};

/* Where a job stands: the sum of its records, and the point that is queried next. */
struct tally_progress {
    int64_t round;     /* rounds closed */
    int64_t time_step; /* t */
    int64_t iterate;   /* k of the point that is queried next */
    int64_t stage;     /* j of the round that opens next */
    double cumulative_regret;
    double f_star; /* f(x*); meaningful if has_f_star */
    bool has_f_star;
    double loss;         /* of the last closed round, as in its record */
    bool has_loss;       /* `loss` is f at the current point, which has not moved since */
    uint64_t x_checksum; /* tally_checksum64 of the current point; 0 = not yet known (job.h) */
    struct tally_estimates estimates;
    struct tally_ledger bits;
    char metrics[TALLY_METRICS_CAPACITY]; /* of each name, the summary of the last round that has
                                           * it: these are the names of all rounds */
    struct tally_best best;
    struct tally_patience patience;
    struct tally_stopped stopped;
    char setback[TALLY_SETBACK_CAPACITY]; /* why a client's training or evaluation failed last; "" =
                                           * none has */
};

/* The loss of the last closed round; NaN = none has closed, or the round has no loss. */
double tally_progress_loss(const struct tally_progress *progress);

#endif
