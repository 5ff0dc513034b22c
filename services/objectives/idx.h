/* idx: labelled images in the IDX files of MNIST and its relatives, plain or gzip.
 *
 *     images   00 00 08 03, count, rows, columns (big-endian uint32 each), then bytes, row by row
 *     labels   00 00 08 01, count, then bytes
 *
 * Pixels stay bytes in memory; whoever computes with them divides by 255. */
#ifndef TALLY_SERVICES_OBJECTIVES_IDX_H
#define TALLY_SERVICES_OBJECTIVES_IDX_H

#include <stddef.h>
#include <stdint.h>

#include "codec/base/error.h"
#include "codec/rng.h"

struct tally_idx_data {
    char images[256]; /* file name below the data folder; ".gz" is tried too */
    char labels[256];
    int64_t features; /* rows * columns of an image */
    int64_t classes;  /* labels are 0 .. classes - 1 */
    int64_t points_per_class;
};

/* A balanced subset in random order. */
struct tally_idx_set {
    uint32_t points; /* classes * points_per_class */
    size_t features;
    uint8_t *pixels; /* uint8[points][features], heap */
    uint8_t *labels; /* uint8[points], heap */
};

/* Reads points_per_class images of every class, chosen and ordered by the key's sharding stream.
 * Errors: INVALID_ARGUMENT (a name that leaves the folder, a file that is missing, has another
 * shape, ends early, or has too few images of a class; the message names the file), NO_MEMORY. */
enum tally_status tally_idx_load(const struct tally_idx_data *data, const char *folder,
                                 struct tally_rng_key key, struct tally_idx_set *ret_set,
                                 struct tally_error *err);
void tally_idx_fini(struct tally_idx_set *set);

#endif
