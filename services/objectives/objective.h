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
#include <stddef.h>
#include <stdint.h>

#include "codec/base/error.h"
#include "codec/base/field.h"
#include "codec/rng.h"
#include "services/objectives/idx.h"

/* `synthetic_linear`: y_i = X_i . theta* + noise. X_i is Gaussian, scaled to length
 * frobenius_norm / sqrt(points) so that the whole matrix has that Frobenius norm; theta* is uniform
 * on the unit sphere. ([1] section V, read as ALGORITHM.md section 5 says.) */
struct tally_synthetic_linear {
    int64_t dim;           /* d */
    int64_t points;        /* N */
    double frobenius_norm; /* of X */
    double noise_std;
};

enum tally_data_type {
    TALLY_DATA_NONE = -1, /* an objective that takes no data */
    TALLY_DATA_SYNTHETIC_LINEAR,
    TALLY_DATA_IDX
};
struct tally_data_spec {
    int type; /* enum tally_data_type */
    struct tally_synthetic_linear synthetic_linear;
    struct tally_idx_data idx;
};

/* `plugin`: what a worker has loaded (plugin.h). */
struct tally_plugin_spec {
    char name[65]; /* of the plug-in */
    int64_t dim;
    char options[4097]; /* for the plug-in */
};

enum tally_objective_type { TALLY_LEAST_SQUARES, TALLY_SOFTMAX_REGRESSION, TALLY_PLUGIN };
struct tally_objective_spec {
    int type;  /* enum tally_objective_type */
    double l2; /* mu of softmax_regression */
    struct tally_plugin_spec plugin;
    struct tally_data_spec data; /* unless its kind is TALLY_DATA_NONE */
};

/* One row per kind: its name in documents and the fields of its JSON object. */
struct tally_objective_kind {
    const char *name;
    const struct tally_field *fields; /* of struct tally_objective_spec */
    size_t n_fields;
    enum tally_data_type data; /* the kind of data that it takes */
};
struct tally_data_kind {
    const char *name;
    const struct tally_field *fields; /* of struct tally_data_spec */
    size_t n_fields;
};
extern const char *const TALLY_OBJECTIVE_NAMES[]; /* NULL-terminated */
extern const char *const TALLY_DATA_NAMES[];
extern const struct tally_objective_kind TALLY_OBJECTIVE_KINDS[];
extern const struct tally_data_kind TALLY_DATA_KINDS[];

struct tally_objective_spec tally_objective_spec_default(void);

/* Checks what the field tables cannot: that every client gets a point, and that the data fit in
 * memory. Errors: INVALID_ARGUMENT, with the field's path below "objective". */
enum tally_status tally_objective_spec_validate(const struct tally_objective_spec *spec,
                                                int64_t clients, struct tally_error *err);

/* d, without making the data. */
size_t tally_objective_spec_dim(const struct tally_objective_spec *spec);

struct tally_objective;

/* What a kind of objective implements, as the functions below say; all slots required. */
struct tally_objective_ops {
    void (*free)(struct tally_objective *objective);
    enum tally_status (*local_loss)(const struct tally_objective *objective, uint32_t client,
                                    const double *x, double *ret_loss, struct tally_error *err);
    enum tally_status (*local_gradient)(const struct tally_objective *objective, uint32_t client,
                                        const double *x, int64_t n, struct tally_rng *rng,
                                        double *ret_gradient, struct tally_error *err);
    enum tally_status (*losses)(const struct tally_objective *objective, const double *points,
                                size_t n, double *ret_losses, struct tally_error *err);
    enum tally_status (*minimum)(const struct tally_objective *objective, const atomic_bool *stop,
                                 double *ret_f_star, double *ret_x_star, struct tally_error *err);
};

struct tally_objective {
    const struct tally_objective_ops *ops;
    size_t dim;
    uint32_t clients;
};

/* Makes or loads the data of all clients; random choices come from the key's streams. Files are
 * looked for below data_dir. Errors: NO_MEMORY, for files those of their loader (idx.h), and
 * FAILED_PRECONDITION for a plug-in, which is made by services/plugins. The spec is valid. */
enum tally_status tally_objective_new(const struct tally_objective_spec *spec, uint32_t clients,
                                      struct tally_rng_key key, const char *data_dir,
                                      struct tally_objective **ret, struct tally_error *err);
void tally_objective_free(struct tally_objective *objective);

/* All of these may fail with NO_MEMORY, which passes, and with FAILED_PRECONDITION: this process
 * cannot answer, another one may (plugin_objective.h). A loss or a gradient that overflowed is no
 * error but infinite or NaN. x is double[dim]. */

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

/* f at n points (double[n][dim]) at once: ret_losses[n]. Over all clients' data, for evaluation
 * alone. */
enum tally_status tally_objective_losses(const struct tally_objective *objective,
                                         const double *points, size_t n, double *ret_losses,
                                         struct tally_error *err);

/* f(x*) and, unless NULL, x* (double[dim]). A solver that takes seconds gives up once *stop is set,
 * which may be NULL. Errors: FAILED_PRECONDITION (no unique minimum, or too large to solve),
 * CANCELLED, NO_MEMORY. */
enum tally_status tally_objective_minimum(const struct tally_objective *objective,
                                          const atomic_bool *stop, double *ret_f_star,
                                          double *ret_x_star, struct tally_error *err);

/* Kinds; tally_objective_new() chooses between them. */
enum tally_status tally_least_squares_new(const struct tally_data_spec *data, uint32_t clients,
                                          struct tally_rng_key key, struct tally_objective **ret,
                                          struct tally_error *err);
enum tally_status tally_softmax_regression_new(const struct tally_objective_spec *spec,
                                               uint32_t clients, struct tally_rng_key key,
                                               const char *data_dir, struct tally_objective **ret,
                                               struct tally_error *err);

#endif
