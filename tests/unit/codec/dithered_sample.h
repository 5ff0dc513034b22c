/* dithered_sample: a vector, its message in the encoding `dithered`, and the values to compare.
 *
 *     struct dithered_sample sample;
 *     dithered_sample_init(&sample, dim, grid);
 *     dithered_fill_normal(&rng, sigma, sample.y, dim);
 *     sample.rng = ...
 *     CU_ASSERT_EQUAL_FATAL(dithered_sample_encode(&sample), TALLY_OK);
 *     ... sample.payload, sample.levels
 *     dithered_sample_fini(&sample); */
#ifndef TALLY_TESTS_UNIT_CODEC_DITHERED_SAMPLE_H
#define TALLY_TESTS_UNIT_CODEC_DITHERED_SAMPLE_H

#include "codec/dithered/dithered.h"

struct dithered_sample {
    size_t dim;
    float *y;         /* input */
    int32_t *levels;  /* of encode; of the long form as rounded by plain C */
    int32_t *dithers; /* of encode; of the short form after the trellis, U' */
    int64_t *values;  /* of dithered_sample_decodes() */
    struct tally_grid grid;
    struct tally_rng rng;
    bool is_long; /* long form at any length; otherwise the length selects the form */
    struct tally_buffer payload;
    struct tally_level_stats stats; /* of encode */
    uint64_t clipped;
};

/* Allocates n bytes, not zeroed; n may be 0. The test ends if memory runs out. */
void *dithered_allocate(size_t n);

void dithered_sample_init(struct dithered_sample *sample, size_t dim, struct tally_grid grid);
void dithered_sample_fini(struct dithered_sample *sample);

void dithered_fill_normal(struct tally_rng *rng, double sigma, float *y, size_t dim);

/* Encodes y with the stream `rng`. */
enum tally_status dithered_sample_encode(struct dithered_sample *sample);

/* Decodes a copy of exactly n bytes into sample->values and accumulates it. Returns whether both
 * agree on status and numbers and any refusal has a message. Writes ret_stats if *ret_status is OK.
 */
bool dithered_sample_decodes(struct dithered_sample *sample, const uint8_t *bytes, size_t n,
                             uint64_t payload_bits, enum tally_status *ret_status,
                             struct tally_level_stats *ret_stats);

/* -log2 of the probability of the levels given the dithers, for normal coordinates of standard
 * deviation sigma: on average, no code takes fewer bits. */
double dithered_sample_ideal_bits(const struct dithered_sample *sample, double sigma);

bool dithered_same_stats(const struct tally_level_stats *a, const struct tally_level_stats *b);

#endif
