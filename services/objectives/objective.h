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

#include <stddef.h>
#include <stdint.h>

#include "codec/base/error.h"
#include "codec/base/field.h"
#include "codec/rng.h"

/* `synthetic_linear`: y_i = X_i . theta* + noise. X_i is Gaussian, scaled to length
 * frobenius_norm / sqrt(points) so that the whole matrix has that Frobenius norm; theta* is uniform
 * on the unit sphere. ([1] section V, read as ALGORITHM.md section 5 says.) */
struct tally_synthetic_linear {
    int64_t dim;           /* d */
    int64_t points;        /* N */
    double frobenius_norm; /* of X */
    double noise_std;
};

struct tally_data_spec {
    int type; /* index into TALLY_DATA_NAMES */
    struct tally_synthetic_linear synthetic_linear;
};

struct tally_objective_spec {
    int type; /* index into TALLY_OBJECTIVE_NAMES */
    struct tally_data_spec data;
};

extern const char *const TALLY_OBJECTIVE_NAMES[]; /* NULL-terminated */
extern const char *const TALLY_DATA_NAMES[];
extern const struct tally_field TALLY_SYNTHETIC_LINEAR_FIELDS[];
extern const size_t TALLY_N_SYNTHETIC_LINEAR_FIELDS;

struct tally_objective_spec tally_objective_spec_default(void);

/* Checks what the field tables cannot: that every client gets a point, and that the data fit in
 * memory. Errors: INVALID_ARGUMENT, with the field's path below "objective". */
enum tally_status tally_objective_spec_validate(const struct tally_objective_spec *spec,
                                                int64_t clients, struct tally_error *err);

/* d, without making the data. */
size_t tally_objective_spec_dim(const struct tally_objective_spec *spec);

struct tally_objective;

/* What a kind of objective implements; all slots required. x is double[dim]. */
struct tally_objective_ops {
    void (*free)(struct tally_objective *objective);
    double (*local_loss)(const struct tally_objective *objective, uint32_t client, const double *x);
    void (*local_gradient)(const struct tally_objective *objective, uint32_t client,
                           const double *x, int64_t n, struct tally_rng *rng, double *ret_gradient);
    enum tally_status (*minimum)(const struct tally_objective *objective, double *ret_f_star,
                                 double *ret_x_star, struct tally_error *err);
};

struct tally_objective {
    const struct tally_objective_ops *ops;
    size_t dim;
    uint32_t clients;
};

/* Makes the data of all clients from the key's streams. Errors: NO_MEMORY. The spec is valid. */
enum tally_status tally_objective_new(const struct tally_objective_spec *spec, uint32_t clients,
                                      struct tally_rng_key key, struct tally_objective **ret,
                                      struct tally_error *err);
void tally_objective_free(struct tally_objective *objective);

/* f_m(x), client in [0, M). */
double tally_objective_local_loss(const struct tally_objective *objective, uint32_t client,
                                  const double *x);

/* Mean of n stochastic gradients of f_m at x, each at a point drawn uniformly from the shard with
 * replacement; ret_gradient is double[dim]. Draws n points from rng. n >= 1. */
void tally_objective_local_gradient(const struct tally_objective *objective, uint32_t client,
                                    const double *x, int64_t n, struct tally_rng *rng,
                                    double *ret_gradient);

/* f(x*) and, unless NULL, x* (double[dim]). Errors: FAILED_PRECONDITION (no unique minimum, or too
 * large to solve), NO_MEMORY. */
enum tally_status tally_objective_minimum(const struct tally_objective *objective,
                                          double *ret_f_star, double *ret_x_star,
                                          struct tally_error *err);

/* Kinds; tally_objective_new() chooses between them. */
enum tally_status tally_least_squares_new(const struct tally_data_spec *data, uint32_t clients,
                                          struct tally_rng_key key, struct tally_objective **ret,
                                          struct tally_error *err);

#endif
