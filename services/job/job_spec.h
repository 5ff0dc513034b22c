/* job_spec: a job as plain data, parsed from a job document.
 *
 * document.c reads it from JSON with the field tables here. */
#ifndef TALLY_SERVICES_JOB_JOB_SPEC_H
#define TALLY_SERVICES_JOB_JOB_SPEC_H

#include <stdint.h>

#include "codec/error.h"
#include "codec/field.h"
#include "codec/record.h"
#include "services/algorithms/algorithm.h"
#include "services/job/initial_point.h"
#include "services/objectives/objective.h"
#include "services/objectives/solve/domain.h"

enum { TALLY_MAX_CLIENTS = 100000 };

enum tally_reference_type {
    TALLY_REFERENCE_SOLVE,
    TALLY_REFERENCE_VALUE,
    TALLY_REFERENCE_NONE /* f(x*) is unknown: the job has no regret */
};
struct tally_reference {
    int type;     /* enum tally_reference_type */
    double value; /* f(x*), for VALUE */
};

/* What a round does when its deadline has passed and clients have not answered. */
enum tally_policy {
    TALLY_POLICY_WAIT, /* it waits for every client, whatever the quorum */
    TALLY_POLICY_DROP, /* it closes as soon as it has `quorum` answers; it never waits for clients
                        * that are known to be absent */
    TALLY_POLICY_FAIL, /* with fewer than `quorum` answers the job fails, else as DROP */
};

/* Who evaluates the model that a round has made, in jobs whose clients train: one client of the
 * next round, each of them on its own data, or none. */
enum tally_evaluators { TALLY_EVALUATION_ONE, TALLY_EVALUATION_CLIENTS, TALLY_EVALUATION_NONE };

/* Which of two values of a metric is better. */
enum tally_better {
    TALLY_BETTER_AUTO, /* the lower one of a metric named "loss", the higher one of all others */
    TALLY_BETTER_HIGHER,
    TALLY_BETTER_LOWER
};

/* When a job ends before its horizon. A metric named "loss" is the mean loss of a round, unless
 * clients report a metric of that name. */
struct tally_stop {
    char metric[TALLY_METRIC_NAME_CAPACITY]; /* for the next two; "" = none */
    double at_least, at_most;                /* of which one is given; NaN = not given */
    double loss;                             /* at most; NaN = no such rule */
    int64_t patience;                        /* values without an improvement; 0 = no such rule */
    char watch[TALLY_METRIC_NAME_CAPACITY];  /* the metric that should improve */
    int better;                              /* enum tally_better */
    double min_delta;                        /* a smaller step is no improvement */
    int64_t uplink_bits, downlink_bits;      /* payload and control; 0 = no such rule */
    double seconds;                          /* since the start; 0 = no such rule */
};

/* Which points of a job are kept, besides the last. */
struct tally_keep {
    char best[TALLY_METRIC_NAME_CAPACITY]; /* the point with the best value; "" = none */
    int better;                            /* enum tally_better */
    int64_t every;                         /* the point after every n-th round; 0 = none */
};

/* The most points that one job keeps with `every`, and their bytes. */
enum { TALLY_KEEP_MOST = 1000 };
#define TALLY_KEEP_MOST_BYTES INT64_C(10000000000)

enum { TALLY_WEBHOOK_CAPACITY = 513 }; /* with NUL */

struct tally_job_spec {
    char name[129];
    char webhook[TALLY_WEBHOOK_CAPACITY]; /* URL that is told of changes of the status; "" = none */
    char labels[TALLY_LABELS_CAPACITY];   /* in the form of services/base/labels.h */
    int algorithm;                        /* index into TALLY_ALGORITHMS */
    union tally_algorithm_params params;
    struct tally_objective_spec objective;
    int64_t clients;        /* M */
    double cohort;          /* clients per round: a number, or below 1 a share of M; 0 = all */
    double over_selection;  /* extra clients that a round draws, as a share of the cohort */
    int64_t horizon;        /* T, gradient queries per client */
    int64_t minibatch;      /* data points per query; 0 = all of the client's */
    int64_t evaluate_every; /* local steps between two evaluations of the loss */
    int evaluation;         /* enum tally_evaluators */
    int64_t seed;
    int64_t run;  /* replication; 0 in the service */
    int encoding; /* index into TALLY_JOB_ENCODING_NAMES */
    struct tally_budget budget;
    struct tally_initial_point initial_point;
    struct tally_domain domain;
    struct tally_reference reference;
    struct tally_stop stop;
    struct tally_keep keep;
    int policy;                /* enum tally_policy */
    int64_t quorum;            /* the least number of answers per round; 0 = all */
    int64_t round_deadline_ms; /* when the policy applies; 0 = never */
    int64_t job_deadline_ms;   /* from submission; a job that lasts longer fails; 0 = never */
};

/* Members of the document's top level that are plain values. */
extern const struct tally_field TALLY_JOB_FIELDS[];
extern const size_t TALLY_N_JOB_FIELDS;

/* The encodings of TALLY_ENCODINGS, and `dithered`. */
enum { TALLY_ENCODING_INDEX_DITHERED = TALLY_ENCODING_INDEX_ENTROPY + 1 };
extern const char *const TALLY_JOB_ENCODING_NAMES[];

extern const char *const TALLY_POLICY_NAMES[];
extern const char *const TALLY_EVALUATION_NAMES[];

extern const struct tally_field TALLY_BUDGET_FIELDS[];
extern const size_t TALLY_N_BUDGET_FIELDS;

extern const char *const TALLY_REFERENCE_NAMES[];
extern const struct tally_field TALLY_REFERENCE_FIELDS[];
extern const size_t TALLY_N_REFERENCE_FIELDS;

extern const char *const TALLY_BETTER_NAMES[];
extern const struct tally_field TALLY_STOP_FIELDS[];
extern const size_t TALLY_N_STOP_FIELDS;
extern const struct tally_field TALLY_KEEP_FIELDS[];
extern const size_t TALLY_N_KEEP_FIELDS;

/* The name of the round's loss among the metrics. */
#define TALLY_LOSS_NAME "loss"
/* The metric of `stop.patience`. */
const char *tally_stop_watched(const struct tally_stop *stop);
/* Whether lower values of the metric `name` are better. */
bool tally_better_is_lower(int better, const char *name);

struct tally_job_spec tally_job_spec_default(void);

/* Checks the rules between fields: cohort, quorum and deadline; data and clients; the bounds of
 * the domain; and that every stage that the horizon allows has a quantizer grid. Errors:
 * INVALID_ARGUMENT, OUT_OF_RANGE, with the field's path. */
enum tally_status tally_job_spec_validate(const struct tally_job_spec *spec,
                                          struct tally_error *err);

/* Checks one of these rules, `rule` in [0, TALLY_N_JOB_RULES). The last rule, about rounds,
 * requires that the others hold. */
extern const size_t TALLY_N_JOB_RULES;
enum tally_status tally_job_spec_check(const struct tally_job_spec *spec, size_t rule,
                                       struct tally_error *err);

const struct tally_algorithm *tally_job_spec_algorithm(const struct tally_job_spec *spec);

/* The number of answers that close a round at once, in [1, clients]. A cohort given as a share is
 * rounded to the nearest number, at least one. */
uint32_t tally_job_spec_answers(const struct tally_job_spec *spec);
/* The number of clients drawn for a round, in [answers, clients]; above `answers` with
 * over-selection. */
uint32_t tally_job_spec_cohort(const struct tally_job_spec *spec);
/* The number of clients that must have a worker before the job can progress: one cohort, because
 * the clients can be served in turn, or all clients if the data of each is local to its worker. */
int64_t tally_job_spec_slots(const struct tally_job_spec *spec);

/* Whether a survey of all clients comes before the first round (job_survey.h). */
bool tally_job_spec_is_surveyed(const struct tally_job_spec *spec);

/* Whether clients evaluate the models of the job. */
bool tally_job_spec_evaluates(const struct tally_job_spec *spec);
/* Whether the mean of the clients' evaluations is by their samples, which their messages have. */
bool tally_job_spec_weighs_evaluations(const struct tally_job_spec *spec);
/* Whether such a mean may need the samples of clients whose last answers `stop.seconds` has taken
 * back. */
bool tally_job_spec_keeps_earlier_weights(const struct tally_job_spec *spec);

/* Whether the loss of a round is the weighted mean of the losses that its clients reported. With
 * weighting `points` it is, unless each client reports f itself, over all points, at its own
 * iterate: regret counts all queries equally. */
bool tally_job_spec_weighs_losses(const struct tally_job_spec *spec);

/* The part of the spec that algorithms see; borrows from spec. */
struct tally_setting tally_job_spec_setting(const struct tally_job_spec *spec);

/* Writes x^(1), double[dim], projected onto the domain; zeros if it is given (initial_point.h). */
void tally_job_spec_initial_point(const struct tally_job_spec *spec, double *ret_x);

#endif
