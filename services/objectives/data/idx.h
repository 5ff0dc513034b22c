/* idx: labelled images in the IDX files of MNIST and its relatives, plain or gzip.
 *
 *     images   00 00 08 03, count, rows, columns (big-endian uint32 each), then bytes, row by row
 *     labels   00 00 08 01, count, then bytes
 *
 * Pixels stay bytes in memory; computations divide them by 255. */
#ifndef TALLY_SERVICES_OBJECTIVES_DATA_IDX_H
#define TALLY_SERVICES_OBJECTIVES_DATA_IDX_H

#include <stddef.h>
#include <stdint.h>

#include "codec/error.h"
#include "codec/numeric/rng.h"
#include "services/objectives/data/data.h"
#include "services/objectives/data/data_source.h"

/* Images in the order of their shards. */
struct tally_idx_set {
    uint32_t points;
    size_t features;
    uint8_t *pixels; /* uint8[points][features], heap */
    uint8_t *labels; /* uint8[points], heap */
};

/* Reads all images, or points_per_class of every class, which the key's sharding stream chooses.
 * The order is drawn (IID), by class (BY_LABEL) or that of the file. A subset gets an order of its
 * own, so that each of its shards has about the same classes (sharding.h).
 * Errors: INVALID_ARGUMENT (a name that leaves the folder, a file that has another shape, ends
 * early, or has too few images of a class; the message names the file), CANCELLED, NO_MEMORY. */
enum tally_status tally_idx_load(const struct tally_idx_data *data, enum tally_sharding sharding,
                                 const struct tally_data_source *source, struct tally_rng_key key,
                                 struct tally_idx_set *ret_set, struct tally_error *err);
/* As tally_dataset_digest(). */
uint64_t tally_idx_digest(const struct tally_idx_set *set);
void tally_idx_fini(struct tally_idx_set *set);

#endif
