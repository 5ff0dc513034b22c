/* dataset: the points of all clients in memory. load_data.h reads them from files,
 * synthetic_linear.h draws them.
 *
 * Points lie in the order of their shards. Three layouts, told apart by what is not NULL: dense,
 * sparse (LIBSVM) and bytes (IDX, whose pixels stay bytes; a value is byte / 255). */
#ifndef TALLY_SERVICES_OBJECTIVES_DATA_DATASET_H
#define TALLY_SERVICES_OBJECTIVES_DATA_DATASET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/error.h"
#include "services/objectives/data/data.h"
#include "services/objectives/data/sharding.h"

struct tally_dataset {
    uint32_t clients;
    uint32_t points;
    size_t features;
    /* The points of all clients are here, so f can be computed, not only some f_m. */
    bool is_whole;
    /* Client m's points are first .. first + size - 1 of shards[m]. With `local` sharding, size may
     * be 0 (no file of that client is here), and all clients may share all points. */
    struct tally_shard *shards;
    double *values;    /* dense: double[points][features]; sparse: double[row_first[points]] */
    size_t *row_first; /* sparse: size_t[points + 1] */
    uint32_t *columns; /* sparse: of each value, ascending within a row */
    uint8_t *bytes;    /* bytes: uint8[points][features] */
    double *labels;    /* double[points] */
    /* With weighting `points` (tally_dataset_weigh_points()); otherwise 0. */
    uint64_t n_weighed; /* sum of the sizes of all shards */
    uint32_t unit;      /* their greatest common divisor */
};

void tally_dataset_free(struct tally_dataset *dataset);

/* The points of a client. Errors: FAILED_PRECONDITION (it has none here). */
enum tally_status tally_dataset_shard(const struct tally_dataset *dataset, uint32_t client,
                                      struct tally_shard *ret_shard, struct tally_error *err);

/* The number of points of a client. Errors: as above. */
enum tally_status tally_dataset_count(const struct tally_dataset *dataset, uint32_t client,
                                      uint32_t *ret_n, struct tally_error *err);

/* The number of leading shards that contain all local points: 1 if all clients share the points,
 * otherwise all shards, some of which may be empty. */
uint32_t tally_dataset_n_shards(const struct tally_dataset *dataset);

/* Whether f can be computed. Errors: FAILED_PRECONDITION unless is_whole. */
enum tally_status tally_dataset_check_whole(const struct tally_dataset *dataset,
                                            struct tally_error *err);

/* Makes f the mean over all points instead of over the clients. */
void tally_dataset_weigh_points(struct tally_dataset *dataset);

/* The weight of the mean over a shard: 1, or n_m divided by the common divisor of all n_m, so that
 * equal weights change no bit. */
uint32_t tally_dataset_share(const struct tally_dataset *dataset, struct tally_shard shard);
/* The weight of a point of the shard in f: 1 / (M n_m), or 1 / sum n_m. */
double tally_dataset_weight(const struct tally_dataset *dataset, struct tally_shard shard);
/* The weight of every point, double[points], summed over the shards that share it. Precondition:
 * the dataset is whole. */
void tally_dataset_weights(const struct tally_dataset *dataset, double *ret_weights);

/* X_i . x, summed in the order of the columns; x is double[features]. */
double tally_dataset_dot(const struct tally_dataset *dataset, uint32_t point, const double *x);
/* x += factor X_i. */
void tally_dataset_add(const struct tally_dataset *dataset, uint32_t point, double factor,
                       double *x);
/* Writes X_i with its zeros, double[features]. */
void tally_dataset_row(const struct tally_dataset *dataset, uint32_t point, double *ret_row);

#endif
