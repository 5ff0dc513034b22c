/* objective: the table of all types of objectives (losses/kind.h), and their specs. */
#ifndef TALLY_SERVICES_OBJECTIVES_OBJECTIVE_H
#define TALLY_SERVICES_OBJECTIVES_OBJECTIVE_H

#include "services/objectives/losses/kind.h"

/* One row per type: enumerator, and the name in job documents. The file of the type defines
 * TALLY_OBJECTIVE_<enumerator>. The order of the rows does not matter: it is not stored. */
#define TALLY_OBJECTIVE_TABLE(X)                                                                   \
    X(LEAST_SQUARES, least_squares)                                                                \
    X(SOFTMAX_REGRESSION, softmax_regression)                                                      \
    X(LOGISTIC_REGRESSION, logistic_regression)                                                    \
    X(HUBER_REGRESSION, huber_regression)                                                          \
    X(QUADRATIC, quadratic)                                                                        \
    X(PLUGIN, plugin)

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
/* Gives a spec its type and the type's defaults. */
void tally_objective_spec_choose(struct tally_objective_spec *spec, int type);

/* Checks what the field tables cannot: that every client has a point, and that the data fit in
 * memory. Errors: INVALID_ARGUMENT, with the field's path below "objective". */
enum tally_status tally_objective_spec_validate(const struct tally_objective_spec *spec,
                                                int64_t clients, struct tally_error *err);

/* Whether the objective consists of points, so that clients can be weighted by their number. */
bool tally_objective_spec_has_points(const struct tally_objective_spec *spec);
/* The number of points of all clients, cut as tally_shard_of() does it, if the spec says; 0: only
 * known with the data. */
uint32_t tally_objective_spec_points(const struct tally_objective_spec *spec);

/* Removes what clients report besides the loss, for a process that only solves and thus needs no
 * files of held-out points. */
void tally_objective_spec_drop_report(struct tally_objective_spec *spec);

/* d, without making the data. At most TALLY_MAX_DIM in a valid spec. */
size_t tally_objective_spec_dim(const struct tally_objective_spec *spec);
/* Path of the member of a job document that d depends on. */
const char *tally_objective_dim_field(const struct tally_objective_spec *spec);

/* Makes or loads the data of all clients; random choices come from the key's streams. Files come
 * from the source. Errors: NO_MEMORY, those of the file loader (data/loaders/load.h),
 * FAILED_PRECONDITION for a plug-in (services/plugins makes it). Precondition: a valid spec. */
enum tally_status tally_objective_load(const struct tally_objective_spec *spec, uint32_t clients,
                                       struct tally_rng_key key,
                                       const struct tally_data_source *source,
                                       struct tally_objective **ret, struct tally_error *err);
/* The same with files below data_dir, without progress reports. */
enum tally_status tally_objective_new(const struct tally_objective_spec *spec, uint32_t clients,
                                      struct tally_rng_key key, const char *data_dir,
                                      struct tally_objective **ret, struct tally_error *err);

#endif
