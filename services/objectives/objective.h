/* objective: the function that a job minimises, split over its clients.
 *
 * Client m holds a shard and its local loss f_m, the mean over the shard; the job's objective is
 *
 *     f(x) = (1/M) sum_m f_m(x)
 *
 * which for shards of equal size is the mean over all points. An objective is immutable after
 * tally_objective_new(): several threads may query it. */
#ifndef TALLY_SERVICES_OBJECTIVES_OBJECTIVE_H
#define TALLY_SERVICES_OBJECTIVES_OBJECTIVE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/base/error.h"
#include "codec/base/field.h"
#include "codec/base/record.h"
#include "codec/numeric/rng.h"
#include "services/objectives/data/data.h"
#include "services/objectives/data/data_source.h"
#include "services/objectives/solve/domain.h"

/* Largest d of an objective, and so of --max-dim. */
enum { TALLY_MAX_DIM = 10000000 };

enum tally_objective_type {
    TALLY_LEAST_SQUARES,
    TALLY_SOFTMAX_REGRESSION,
    TALLY_LOGISTIC_REGRESSION,
    TALLY_HUBER_REGRESSION,
    TALLY_QUADRATIC,
    TALLY_PLUGIN,
};

/* `plugin`: what a worker has loaded (plugin.h). */
struct tally_plugin_spec {
    char name[65]; /* of the plug-in */
    int64_t dim;
    char options[4097]; /* for the plug-in */
};

struct tally_objective_spec {
    int type;         /* enum tally_objective_type */
    double l2;        /* ridge mu: f has the term mu |x|^2 */
    double threshold; /* of huber_regression */
    double noise_std; /* of quadratic: of every coordinate of a gradient */
    bool bias;        /* every point has one more feature, which is 1 */
    struct tally_plugin_spec plugin;
    struct tally_data_spec data; /* unless its kind takes none */
};

/* One row per kind: its name in documents and the fields of its JSON object. */
struct tally_objective_kind {
    const char *name;
    const struct tally_field *fields; /* of struct tally_objective_spec */
    size_t n_fields;
    unsigned data; /* the types of data that it takes: a set of 1 << enum tally_data_type;
                    * 0 = none */
    enum tally_labels labels; /* that the points must have */
    double l2;                /* where the document has none */
};
extern const char *const TALLY_OBJECTIVE_NAMES[]; /* NULL-terminated */
extern const struct tally_objective_kind TALLY_OBJECTIVE_KINDS[];

struct tally_objective_spec tally_objective_spec_default(void);

/* Checks what the field tables cannot: that every client gets a point, and that the data fit in
 * memory. Errors: INVALID_ARGUMENT, with the field's path below "objective". */
enum tally_status tally_objective_spec_validate(const struct tally_objective_spec *spec,
                                                int64_t clients, struct tally_error *err);

/* d, without making the data. At most TALLY_MAX_DIM in a valid spec. */
size_t tally_objective_spec_dim(const struct tally_objective_spec *spec);
/* Path of the member of a job document that d depends on. */
const char *tally_objective_dim_field(const struct tally_objective_spec *spec);

struct tally_objective;

extern const struct tally_curvature TALLY_CURVATURE_UNKNOWN;

/* What a kind of objective implements, as the functions below say; required, where not said
 * otherwise. */
struct tally_objective_ops {
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
    bool (*has_loss)(const struct tally_objective *objective); /* NULL: it has */
};

struct tally_objective {
    const struct tally_objective_ops *ops;
    size_t dim;
    uint32_t clients;
};

/* Makes or loads the data of all clients; random choices come from the key's streams. Files are
 * those of the source. Errors: NO_MEMORY, for files those of their loader (dataset.h), and
 * FAILED_PRECONDITION for a plug-in, which services/plugins makes. The spec is valid. */
enum tally_status tally_objective_load(const struct tally_objective_spec *spec, uint32_t clients,
                                       struct tally_rng_key key,
                                       const struct tally_data_source *source,
                                       struct tally_objective **ret, struct tally_error *err);
/* The same with files below data_dir, and nobody told how far it is. */
enum tally_status tally_objective_new(const struct tally_objective_spec *spec, uint32_t clients,
                                      struct tally_rng_key key, const char *data_dir,
                                      struct tally_objective **ret, struct tally_error *err);
void tally_objective_free(struct tally_objective *objective);

/* All of these may fail with NO_MEMORY, which passes, and with FAILED_PRECONDITION: this process
 * cannot answer, another one may (plugin_objective.h). A loss or a gradient that overflowed is no
 * error but infinite or NaN. x is double[dim]. */

/* False if it has gradients alone: then nobody asks for a loss, and its clients report none. */
bool tally_objective_has_loss(const struct tally_objective *objective);

/* f_m(x), client in [0, M). */
enum tally_status tally_objective_local_loss(const struct tally_objective *objective,
                                             uint32_t client, const double *x, double *ret_loss,
                                             struct tally_error *err);

/* Mean of n stochastic gradients of f_m at x, each at a point drawn uniformly from the shard with
 * replacement; ret_gradient is double[dim]. Draws n points from rng. n >= 1. */
enum tally_status tally_objective_local_gradient(const struct tally_objective *objective,
                                                 uint32_t client, const double *x, int64_t n,
                                                 struct tally_rng *rng, double *ret_gradient,
                                                 struct tally_error *err);

/* f at n points (double[n][dim]) at once: ret_losses[n]. For evaluation alone, over the data that
 * are here: all clients', but with sharding `local` those of this worker. */
enum tally_status tally_objective_losses(const struct tally_objective *objective,
                                         const double *points, size_t n, double *ret_losses,
                                         struct tally_error *err);

/* The least f(x) of a domain (NULL: all of R^d) and, unless NULL, an x* where it is (double[dim]);
 * the gradient there, projected in a domain, is below 1e-8 of the problem's scale (convex.h). Gives
 * up once *stop is set, which may be NULL. Errors: FAILED_PRECONDITION (f has no minimum, or it was
 * not reached, or points are missing here), CANCELLED, NO_MEMORY. */
enum tally_status tally_objective_minimum_in(const struct tally_objective *objective,
                                             const struct tally_domain *domain,
                                             const atomic_bool *stop, double *ret_f_star,
                                             double *ret_x_star, struct tally_error *err);
/* The same over R^d. */
enum tally_status tally_objective_minimum(const struct tally_objective *objective,
                                          const atomic_bool *stop, double *ret_f_star,
                                          double *ret_x_star, struct tally_error *err);

/* Unknown for kinds that cannot tell. Errors: FAILED_PRECONDITION (points are missing here),
 * CANCELLED, NO_MEMORY. */
enum tally_status tally_objective_curvature(const struct tally_objective *objective,
                                            const atomic_bool *stop,
                                            struct tally_curvature *ret_curvature,
                                            struct tally_error *err);

/* Kinds; tally_objective_load() chooses between them. */
typedef enum tally_status tally_objective_new_fn(const struct tally_objective_spec *spec,
                                                 uint32_t clients, struct tally_rng_key key,
                                                 const struct tally_data_source *source,
                                                 struct tally_objective **ret,
                                                 struct tally_error *err);
tally_objective_new_fn tally_linear_model_new, tally_quadratic_new, tally_softmax_points_new,
    tally_softmax_regression_new;

#endif
