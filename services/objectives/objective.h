/* objective: the table of all types of objective (losses/loss_kind.h), and their specs. */
#ifndef TALLY_SERVICES_OBJECTIVES_OBJECTIVE_H
#define TALLY_SERVICES_OBJECTIVES_OBJECTIVE_H

#include "services/objectives/losses/loss_kind.h"

/* One row per type: enumerator, and the name in job documents. The file of the type defines
 * TALLY_OBJECTIVE_<enumerator>. The rows may be reordered, since their indices are not stored. */
#define TALLY_OBJECTIVE_TABLE(X)                                                                   \
    X(LEAST_SQUARES, least_squares)                                                                \
    X(SOFTMAX_REGRESSION, softmax_regression)                                                      \
    X(LOGISTIC_REGRESSION, logistic_regression)                                                    \
    X(HUBER_REGRESSION, huber_regression)                                                          \
    X(QUADRATIC, quadratic)                                                                        \
    X(PLUGIN, plugin)                                                                              \
    X(TRAINING, training)

enum tally_objective_type {
#define TALLY_OBJECTIVE_ENUM(symbol, name) TALLY_##symbol,
    TALLY_OBJECTIVE_TABLE(TALLY_OBJECTIVE_ENUM)
#undef TALLY_OBJECTIVE_ENUM
};

#define TALLY_OBJECTIVE_EXTERN(symbol, name)                                                       \
    extern const struct tally_objective_kind TALLY_OBJECTIVE_##symbol;
TALLY_OBJECTIVE_TABLE(TALLY_OBJECTIVE_EXTERN)
#undef TALLY_OBJECTIVE_EXTERN

/* By enum tally_objective_type; NULL-terminated. */
extern const char *const TALLY_OBJECTIVE_NAMES[];
extern const struct tally_objective_kind *const TALLY_OBJECTIVE_KINDS[];

struct tally_objective_spec tally_objective_spec_default(void);
/* Sets the spec's type and the defaults of that type. */
void tally_objective_spec_choose(struct tally_objective_spec *spec, int type);

/* Whether a plug-in (plugin.h) computes it. */
bool tally_objective_spec_is_plugin(const struct tally_objective_spec *spec);

/* Checks what the field tables cannot: that every client has a point, and that the data fit in
 * memory. Errors: INVALID_ARGUMENT, with the field's path below "objective". */
enum tally_status tally_objective_spec_validate(const struct tally_objective_spec *spec,
                                                int64_t clients, struct tally_error *err);

/* Whether clients have a number of data points, which can serve as a client's weight. */
bool tally_objective_spec_has_points(const struct tally_objective_spec *spec);
/* The number of points of all clients, which tally_shard_of() splits; 0 if the spec does not state
 * it. */
uint32_t tally_objective_spec_points(const struct tally_objective_spec *spec);

/* Whether the clients' surveys give the scaling of the features (data/survey.h). */
bool tally_objective_spec_is_surveyed(const struct tally_objective_spec *spec);

/* Removes the metrics from a spec, for a process that only computes the minimum and so needs no
 * files of held-out points. */
void tally_objective_spec_drop_report(struct tally_objective_spec *spec);

/* d, without making the data. At most TALLY_MAX_DIM in a valid spec. */
size_t tally_objective_spec_dim(const struct tally_objective_spec *spec);

/* A curvature that f has at least in every direction, from its ridge: 2 mu; 0: unknown. */
double tally_objective_spec_convexity(const struct tally_objective_spec *spec);
/* The path of the job document's member that determines d. */
const char *tally_objective_dim_field(const struct tally_objective_spec *spec);

/* Makes an objective with the data of all clients, drawn from the key's streams or loaded from the
 * source. If the data are surveyed, the objective keeps the clients' surveys. Its features are then
 * scaled if source->scaling is fitted or the points of all clients are here; otherwise
 * tally_objective.scaling is 0, and only the surveys are of use. Precondition: a valid spec.
 * Errors: NO_MEMORY, those of the file loader (data/load_data.h), FAILED_PRECONDITION for a plug-in
 * (services/plugins makes it). */
enum tally_status tally_objective_load(const struct tally_objective_spec *spec, uint32_t clients,
                                       struct tally_rng_key key,
                                       const struct tally_data_source *source,
                                       struct tally_objective **ret, struct tally_error *err);
/* The same with files below data_dir, without progress reports. */
enum tally_status tally_objective_new(const struct tally_objective_spec *spec, uint32_t clients,
                                      struct tally_rng_key key, const char *data_dir,
                                      struct tally_objective **ret, struct tally_error *err);

#endif
