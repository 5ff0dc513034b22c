/* loss_kind: the interface of a type of objective, and the operations on objectives.
 *
 * Client m holds a shard of n_m points. Its local loss f_m is the mean over the shard. The job's
 * objective is
 *
 *     f(x) = (1/M) sum_m f_m(x)                      weighting `equal`
 *     f(x) = sum_m n_m f_m(x) / sum_m n_m            weighting `points`: the mean over all points
 *
 * The two are the same for shards of equal size. Each type of objective is a file in this folder
 * or in ../plugin that defines a `struct tally_objective_kind`; services/objectives/objective.h has
 * the table of all types. An objective is immutable, so several threads may use it at once. */
#ifndef TALLY_SERVICES_OBJECTIVES_LOSSES_LOSS_KIND_H
#define TALLY_SERVICES_OBJECTIVES_LOSSES_LOSS_KIND_H

#include <math.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/buffer.h"
#include "codec/error.h"
#include "codec/field.h"
#include "codec/numeric/rng.h"
#include "codec/record.h"
#include "services/objectives/data/data.h"
#include "services/objectives/data/data_source.h"
#include "services/objectives/solve/domain.h"

/* Largest d of an objective, and so of --max-dim. */
enum { TALLY_MAX_DIM = 10000000 };
_Static_assert((int)TALLY_MAX_DIM == (int)TALLY_DATA_MAX_FEATURES, "one limit of d");

enum { TALLY_LOSS_PARAMETERS = 2 };

/* The spec of `plugin` and of `training`, which the worker has loaded (plugin.h). */
struct tally_plugin_spec {
    char name[65]; /* of the plug-in */
    int64_t dim;
    char options[4097]; /* for the plug-in */
};

/* How clients are weighted in f and in the means of a job. */
enum tally_weighting { TALLY_WEIGHTING_EQUAL, TALLY_WEIGHTING_POINTS };
extern const char *const TALLY_WEIGHTING_NAMES[]; /* NULL-terminated */

struct tally_objective_spec {
    int type;                                 /* index into TALLY_OBJECTIVE_KINDS */
    int weighting;                            /* enum tally_weighting; from the job document */
    double l2;                                /* ridge mu: f has the term mu |x|^2 */
    double parameters[TALLY_LOSS_PARAMETERS]; /* of the loss; its .c file names them */
    bool bias;                                /* every point has one more feature, which is 1 */
    bool accuracy;                            /* clients report it */
    struct tally_plugin_spec plugin;
    struct tally_data_spec data; /* unless the kind takes none */
};

struct tally_objective;
struct tally_objective_kind;

/* Makes an objective. Precondition: a valid spec. Errors: NO_MEMORY, those of the data's loader
 * (data/load_data.h). */
typedef enum tally_status tally_objective_make_fn(const struct tally_objective_kind *kind,
                                                  const struct tally_objective_spec *spec,
                                                  uint32_t clients, struct tally_rng_key key,
                                                  const struct tally_data_source *source,
                                                  struct tally_objective **ret,
                                                  struct tally_error *err);

struct tally_scalar_loss;

/* A type of objective. */
struct tally_objective_kind {
    const char *name;                 /* as in TALLY_OBJECTIVE_TABLE */
    const struct tally_field *fields; /* of struct tally_objective_spec */
    size_t n_fields;
    unsigned data;            /* the types of data it accepts: a set of 1 << enum tally_data_type */
    enum tally_labels labels; /* the labels that the points must have */
    double l2, parameters[TALLY_LOSS_PARAMETERS]; /* defaults */
    tally_objective_make_fn *make;                /* NULL: only a plug-in can make one */
    const struct tally_scalar_loss *loss;         /* of kinds that linear_model.h makes */
    bool has_classes;                             /* x has coordinates for each class */
};

/* Fields that several kinds share. */
#define TALLY_OBJECTIVE_MEMBER(member) offsetof(struct tally_objective_spec, member)
#define TALLY_L2_FIELD                                                                             \
    TALLY_REAL("l2", TALLY_OBJECTIVE_MEMBER(l2), 0, 1e9, .unit = "f per norm^2",                   \
               .doc = "ridge mu: the objective has the term mu |x|^2")
#define TALLY_BIAS_FIELD                                                                           \
    TALLY_BOOL("bias", TALLY_OBJECTIVE_MEMBER(bias),                                               \
               .doc = "whether every point has one more feature, which is 1")

#define TALLY_ACCURACY_FIELD                                                                       \
    TALLY_BOOL("accuracy", TALLY_OBJECTIVE_MEMBER(accuracy), .quiet = true,                        \
               .doc =                                                                              \
                   "whether clients report the metric accuracy: the share of their data points "   \
                   "that the model classifies correctly")

/* Types of data that hold points with labels. */
enum {
    TALLY_DATA_SET_FILES = TALLY_DATA_SET_TABLES | 1 << TALLY_DATA_IDX,
    TALLY_DATA_SET_POINTS = TALLY_DATA_SET_FILES | 1 << TALLY_DATA_SYNTHETIC_LINEAR
};

static const struct tally_curvature TALLY_CURVATURE_UNKNOWN = {NAN, NAN};

/* The result of evaluating a client's points at some x. */
struct tally_evaluation {
    double loss;     /* f_m(x), the same double as local_loss */
    double accuracy; /* share of points classified correctly; NaN: labels are not classes */
};

/* The functions of an objective; the wrappers below document them. A function is required unless
 * its comment says what NULL means. */
struct tally_objective_ops {
    bool is_program; /* a user's program computes the gradients */
    void (*free)(struct tally_objective *objective);
    enum tally_status (*local_loss)(const struct tally_objective *objective, uint32_t client,
                                    const double *x, double *ret_loss, struct tally_error *err);
    enum tally_status (*local_gradient)(const struct tally_objective *objective, uint32_t client,
                                        const double *x, int64_t n, struct tally_rng *rng,
                                        double *ret_gradient, struct tally_error *err);
    enum tally_status (*losses)(const struct tally_objective *objective, const double *points,
                                size_t n, double *ret_losses, struct tally_error *err);
    enum tally_status (*minimum)(const struct tally_objective *objective,
                                 const struct tally_domain *domain, const atomic_bool *stop,
                                 double *ret_f_star, double *ret_x_star, struct tally_error *err);
    /* NULL: unknown. */
    enum tally_status (*curvature)(const struct tally_objective *objective, const atomic_bool *stop,
                                   struct tally_curvature *ret_curvature, struct tally_error *err);
    bool (*has_loss)(const struct tally_objective *objective); /* NULL: always true */
    /* NULL: the metrics of `report`, if any. */
    enum tally_status (*metrics)(const struct tally_objective *objective, uint32_t client,
                                 uint32_t round, const double *x, struct tally_metric *ret_metrics,
                                 size_t *ret_n, struct tally_error *err);
    /* NULL: unknown. Errors: as local_loss. */
    enum tally_status (*points)(const struct tally_objective *objective, uint32_t client,
                                uint32_t *ret_n, struct tally_error *err);
    /* NULL: the objective has gradients. Otherwise it has nothing but this, `points`, `metrics`
     * and `evaluate_model`. */
    enum tally_status (*train)(const struct tally_objective *objective, uint32_t client,
                               uint32_t round, float *weights, struct tally_error *err);
    /* NULL: it offers none. */
    enum tally_status (*initial)(const struct tally_objective *objective, float *ret_weights,
                                 struct tally_error *err);
    /* NULL: models are not evaluated. */
    enum tally_status (*evaluate_model)(const struct tally_objective *objective, uint32_t client,
                                        uint32_t round, const float *weights,
                                        struct tally_metric *ret_metrics, size_t *ret_n,
                                        struct tally_error *err);
    /* NULL: not available. Errors: as local_loss. */
    enum tally_status (*evaluate)(const struct tally_objective *objective, uint32_t client,
                                  const double *x, struct tally_evaluation *ret_evaluation,
                                  struct tally_error *err);
};

struct tally_report;
struct tally_surveys;

struct tally_objective {
    const struct tally_objective_ops *ops;
    size_t dim;
    uint32_t clients;
    struct tally_report *report; /* owned; the metrics if ops->metrics is NULL (loss_report.h);
                                  * NULL: none */
    uint32_t columns;     /* tally_columns_digest() of the data; 0 = their columns have no names */
    uint64_t data_digest; /* tally_dataset_digest(); 0 = its data are not points of files */
    struct tally_surveys *surveys; /* owned; of the clients (survey.h); NULL: there are none */
    uint32_t scaling; /* tally_scaling_digest() of the numbers that surveys gave and that
                       * its features are scaled by; 0 = they are not */
};

void tally_objective_free(struct tally_objective *objective);

/* All of these may fail with NO_MEMORY, which is transient, or with FAILED_PRECONDITION, which
 * means that this process cannot answer but another one may (plugin.h). A loss
 * or gradient that overflows is not an error: it is infinite or NaN. x is double[dim]. */

/* False if the objective has only gradients. Its loss is then never requested, and its clients
 * report none. */
bool tally_objective_has_loss(const struct tally_objective *objective);

/* Borrows the survey of a client (survey.h), of a kind whose data are surveyed. Errors:
 * FAILED_PRECONDITION (its points are not here, or the objective has none). */
enum tally_status tally_objective_survey(const struct tally_objective *objective, uint32_t client,
                                         const struct tally_buffer **ret_survey,
                                         struct tally_error *err);

/* The metrics that the client reports with its message in a round that began at x. ret_metrics has
 * room for TALLY_METRICS_MOST, of which *ret_n are written. Accuracy and the metrics of held-out
 * points are computed only in rounds that evaluate the loss (`evaluates`). */
enum tally_status tally_objective_metrics(const struct tally_objective *objective, uint32_t client,
                                          uint32_t round, const double *x, bool evaluates,
                                          struct tally_metric *ret_metrics, size_t *ret_n,
                                          struct tally_error *err);

/* n_m, the client's number of points, at least 1. Errors: FAILED_PRECONDITION (also if the number
 * is unknown, as with some plug-ins). */
enum tally_status tally_objective_points(const struct tally_objective *objective, uint32_t client,
                                         uint32_t *ret_n, struct tally_error *err);

/* f_m(x), client in [0, M). */
enum tally_status tally_objective_local_loss(const struct tally_objective *objective,
                                             uint32_t client, const double *x, double *ret_loss,
                                             struct tally_error *err);

/* The mean of n stochastic gradients of f_m at x, each at a data point drawn from the shard with
 * rng, uniformly and with replacement; ret_gradient is double[dim]. n = 0 gives the gradient of
 * f_m itself without drawing from rng; plug-ins do not support it. */
enum tally_status tally_objective_local_gradient(const struct tally_objective *objective,
                                                 uint32_t client, const double *x, int64_t n,
                                                 struct tally_rng *rng, double *ret_gradient,
                                                 struct tally_error *err);

/* Whether the clients have a training loop of their own instead of gradients. */
bool tally_objective_trains(const struct tally_objective *objective);
/* Runs the client's training loop for one round: weights, float[dim], are those of the global model
 * on entry, and the client's on return, all finite. tally_objective_points() then gives the number
 * of samples that this client used. Errors: FAILED_PRECONDITION. */
enum tally_status tally_objective_train(const struct tally_objective *objective, uint32_t client,
                                        uint32_t round, float *weights, struct tally_error *err);

/* Writes the point that this process offers a job to start from, float[dim], all finite. Errors:
 * FAILED_PRECONDITION (also if it offers none). */
enum tally_status tally_objective_initial(const struct tally_objective *objective,
                                          float *ret_weights, struct tally_error *err);

/* Evaluates the model that `round` made: weights, float[dim]. ret_metrics has room for
 * TALLY_METRICS_MOST, of which *ret_n are written; 0 if the objective evaluates no models. Errors:
 * FAILED_PRECONDITION. */
enum tally_status tally_objective_evaluate_model(const struct tally_objective *objective,
                                                 uint32_t client, uint32_t round,
                                                 const float *weights,
                                                 struct tally_metric *ret_metrics, size_t *ret_n,
                                                 struct tally_error *err);

/* Sets ret_losses[n] to f at n points (double[n][dim]). For evaluation only. f is computed over the
 * data in this process: those of all clients or, with sharding `local`, those of this worker. */
enum tally_status tally_objective_losses(const struct tally_objective *objective,
                                         const double *points, size_t n, double *ret_losses,
                                         struct tally_error *err);

/* The minimum of f over a domain (NULL: all of R^d) and, unless ret_x_star is NULL, a minimiser x*
 * (double[dim]). The gradient at x*, or in a domain the gradient mapping, is below 1e-8 of the
 * problem's scale (convex.h). Stops once *stop is set (`stop` may be NULL). Errors:
 * FAILED_PRECONDITION (f has no minimum, it is not finite or was not reached, or this process lacks
 * some of the points), CANCELLED, NO_MEMORY. */
enum tally_status tally_objective_minimum(const struct tally_objective *objective,
                                          const struct tally_domain *domain,
                                          const atomic_bool *stop, double *ret_f_star,
                                          double *ret_x_star, struct tally_error *err);

/* The bounds of f's curvature; TALLY_CURVATURE_UNKNOWN for kinds that do not compute them. Errors:
 * FAILED_PRECONDITION (this process lacks some of the points), CANCELLED, NO_MEMORY. */
enum tally_status tally_objective_curvature(const struct tally_objective *objective,
                                            const atomic_bool *stop,
                                            struct tally_curvature *ret_curvature,
                                            struct tally_error *err);

#endif
