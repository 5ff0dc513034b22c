#include "tests/unit/codec/dithered_sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codec/dithered/dithered_kernels.h"
#include "codec/dithered/dithered_long.h"
#include "codec/dithered/dithered_message.h"
#include "tests/harness.h"

void *dithered_allocate(size_t n)
{
    void *block = malloc(n + (n == 0));
    CU_ASSERT_PTR_NOT_NULL_FATAL(block);
    return block;
}

void dithered_sample_init(struct dithered_sample *sample, size_t dim, struct tally_grid grid)
{
    *sample = (struct dithered_sample){
        .dim = dim,
        .y = dithered_allocate(dim * sizeof *sample->y),
        .levels = dithered_allocate(dim * sizeof *sample->levels),
        .dithers = dithered_allocate((dim + TALLY_RNG_LANES) * sizeof *sample->dithers),
        .values = dithered_allocate(dim * sizeof *sample->values),
        .grid = grid};
}

void dithered_sample_fini(struct dithered_sample *sample)
{
    free(sample->y);
    free(sample->levels);
    free(sample->dithers);
    free(sample->values);
    tally_buffer_fini(&sample->payload);
}

void dithered_fill_normal(struct tally_rng *rng, double sigma, float *y, size_t dim)
{
    double *normal = dithered_allocate(dim * sizeof *normal);
    tally_rng_normal(rng, normal, dim);
    for (size_t i = 0; i < dim; i++) {
        y[i] = (float)(sigma * normal[i]);
    }
    free(normal);
}

/* Makes the dithers U' of a short message of U, with the table of FORMAT.md. */
static void follow_trellis(struct dithered_sample *sample)
{
    static const int AFTER[8][2] = {{0, 2}, {5, 7}, {1, 3}, {4, 6}, {2, 0}, {7, 5}, {3, 1}, {6, 4}};
    int state = 0;
    for (size_t i = 0; i < sample->dim; i++) {
        const int64_t u = sample->dithers[i];
        const int64_t shifted = u + (state % 2 == 1 ? INT64_C(1) << 31 : 0);
        const bool wraps = shifted >= INT64_C(1) << 31;
        const int64_t parity = sample->levels[i] + u + wraps;
        sample->dithers[i] = (int32_t)(wraps ? shifted - (INT64_C(1) << 32) : shifted);
        state = AFTER[state][parity % 2 != 0];
    }
}

/* Computes the dithers, and the levels of a long message, with the plain C kernels. */
static void quantize(struct dithered_sample *sample)
{
    const bool has_trellis = !sample->is_long && sample->dim < TALLY_DITHERED_LONG_MESSAGE;
    uint64_t clipped = 0;
    for (size_t i = 0, n; i < sample->dim; i += n) {
        n = sample->dim - i < TALLY_RNG_LANES ? sample->dim - i : TALLY_RNG_LANES;
        TALLY_DITHERED_PORTABLE.dithers(&sample->rng, (uint32_t)(i / TALLY_RNG_LANES), n,
                                        sample->dithers + i);
        if (!has_trellis) {
            TALLY_DITHERED_PORTABLE.quantize(&sample->grid, sample->y + i, sample->dithers + i, n,
                                             sample->levels + i, &clipped);
        }
    }
    if (has_trellis) {
        follow_trellis(sample);
    }
}

enum tally_status dithered_sample_encode(struct dithered_sample *sample)
{
    const struct tally_vector vector = {
        .y = sample->y, .dim = sample->dim, .grid = &sample->grid, .rng = &sample->rng};
    const enum tally_status status =
        sample->is_long ? tally_dithered_encode_as(true, &vector, sample->levels, &sample->payload,
                                                   &sample->stats, &sample->clipped, NULL)
                        : tally_dithered_encode(&vector, sample->levels, &sample->payload,
                                                &sample->stats, &sample->clipped, NULL);
    if (status == TALLY_OK) {
        quantize(sample);
    }
    return status;
}

static enum tally_status decode(const struct tally_dithered_message *message, int64_t *values,
                                struct tally_level_stats *ret_stats, struct tally_error *err)
{
    return message->is_long
               ? tally_dithered_decode_as(message, values, ret_stats, err)
               : tally_dithered_decode(message->data, message->n_bytes, message->payload_bits,
                                       message->dim, message->grid, message->rng, values, ret_stats,
                                       err);
}

static enum tally_status accumulate(const struct tally_dithered_message *message, int64_t *sums,
                                    struct tally_level_stats *ret_stats)
{
    return message->is_long
               ? tally_dithered_accumulate_as(message, sums, ret_stats, NULL)
               : tally_dithered_accumulate(message->data, message->n_bytes, message->payload_bits,
                                           message->dim, message->grid, message->rng, sums,
                                           ret_stats, NULL);
}

/* The sums before the message is added. */
static int64_t sum_before(size_t i)
{
    return (int64_t)i * 1000003 - 500;
}

static bool accumulates(const struct dithered_sample *sample,
                        const struct tally_dithered_message *message, enum tally_status expected,
                        const struct tally_level_stats *expected_stats)
{
    struct tally_level_stats stats;
    int64_t *sums = dithered_allocate(sample->dim * sizeof *sums);
    for (size_t i = 0; i < sample->dim; i++) {
        sums[i] = sum_before(i);
    }
    bool good = accumulate(message, sums, &stats) == expected;
    for (size_t i = 0; i < sample->dim; i++) {
        const int64_t added = expected == TALLY_OK ? sample->values[i] : 0;
        good = good && sums[i] == sum_before(i) + added;
    }
    free(sums);
    return good && (expected != TALLY_OK || dithered_same_stats(&stats, expected_stats));
}

bool dithered_sample_decodes(struct dithered_sample *sample, const uint8_t *bytes, size_t n,
                             uint64_t payload_bits, enum tally_status *ret_status,
                             struct tally_level_stats *ret_stats)
{
    uint8_t *data = dithered_allocate(n);
    if (n > 0) {
        memcpy(data, bytes, n);
    }
    const struct tally_dithered_message message = {
        sample->is_long, data, n, payload_bits, sample->dim, &sample->grid, &sample->rng};
    struct tally_error err = TALLY_ERROR_INIT;
    *ret_status = decode(&message, sample->values, ret_stats, &err);
    bool good = *ret_status == TALLY_OK || (*ret_status == TALLY_MALFORMED && err.message[0] != 0);
    good = good && accumulates(sample, &message, *ret_status, ret_stats);
    free(data);
    return good;
}

double dithered_sample_ideal_bits(const struct dithered_sample *sample, double sigma)
{
    const double to_z = sample->grid.step / sigma / sqrt(2);
    double bits = 0;
    for (size_t i = 0; i < sample->dim; i++) {
        const double u = sample->dithers[i] * 0x1p-32;
        const double low = (sample->levels[i] - 0.5 - u) * to_z;
        const double high = (sample->levels[i] + 0.5 - u) * to_z;
        const double p = low > 0 ? erfc(low) - erfc(high) : erfc(-high) - erfc(-low);
        bits -= log2(p / 2 > 1e-12 ? p / 2 : 1e-12);
    }
    return bits;
}

bool dithered_same_stats(const struct tally_level_stats *a, const struct tally_level_stats *b)
{
    return a->formula_bits == b->formula_bits && a->payload_bits == b->payload_bits &&
           a->nonzeros == b->nonzeros;
}
