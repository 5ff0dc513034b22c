#include "tests/adaptive_long_form.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codec/adaptive/adaptive_long.h"
#include "codec/quantize/payload.h"

enum tally_status adaptive_long_decode(const uint8_t *data, size_t n_bytes, uint64_t payload_bits,
                                       size_t dim, const struct tally_rng *dither, int32_t *levels,
                                       struct tally_level_stats *ret_stats, struct tally_error *err)
{
    struct tally_adaptive_message message = {.dim = dim, .dither = dither};
    int32_t block[TALLY_ADAPTIVE_BLOCK];
    enum tally_status status = tally_payload_check_frame(data, n_bytes, payload_bits, err);
    *ret_stats = (struct tally_level_stats){.payload_bits = payload_bits, .formula_bits = dim};
    if (status == TALLY_OK) {
        status = tally_adaptive_long_read(data, payload_bits, &message, NULL, ret_stats, err);
    }
    for (size_t at = 0, n; status == TALLY_OK && at < dim; at += n) {
        n = dim - at < TALLY_ADAPTIVE_BLOCK ? dim - at : TALLY_ADAPTIVE_BLOCK;
        tally_adaptive_levels(&message, at, n, block);
        memcpy(levels + at, block, n * sizeof *levels);
    }
    tally_adaptive_message_fini(&message);
    return status;
}

static int64_t *begin_sums(size_t dim)
{
    int64_t *sums = calloc(dim, sizeof *sums);
    if (sums == NULL) {
        abort();
    }
    for (size_t i = 0; i < dim; i++) {
        sums[i] = (int64_t)i - 7;
    }
    return sums;
}

static double sum_of(const double squares[TALLY_FIXED_POINT_LANES])
{
    double sum = 0;
    for (size_t j = 0; j < TALLY_FIXED_POINT_LANES; j++) {
        sum += squares[j];
    }
    return sum;
}

/* Reads first, then adds. */
static enum tally_status add_later(const uint8_t *data, uint64_t payload_bits, size_t dim,
                                   const struct tally_rng *dither, struct tally_adaptive_sum *sum)
{
    struct tally_adaptive_message message = {.dim = dim, .dither = dither};
    struct tally_level_stats stats;
    enum tally_status status =
        tally_adaptive_long_read(data, payload_bits, &message, NULL, &stats, NULL);
    if (status == TALLY_OK) {
        status = tally_adaptive_check_range(&message, sum->step, sum->bound, NULL);
    }
    for (size_t at = 0, n; status == TALLY_OK && at < dim; at += n) {
        n = dim - at < TALLY_ADAPTIVE_BLOCK ? dim - at : TALLY_ADAPTIVE_BLOCK;
        tally_adaptive_add(&message, at, n, sum->step, sum->sums + at, sum->squares);
    }
    tally_adaptive_message_fini(&message);
    return status;
}

bool adaptive_long_adds_alike(const uint8_t *data, size_t n_bytes, uint64_t payload_bits,
                              size_t dim, const struct tally_rng *dither)
{
    static const double STEP = 3e-4, BOUND = 0.1; /* so that there are levels beyond the bound */
    if (tally_payload_check_frame(data, n_bytes, payload_bits, NULL) != TALLY_OK) {
        return true;
    }
    struct tally_adaptive_message message = {.dim = dim, .dither = dither};
    struct tally_level_stats stats;
    struct tally_adaptive_sum later = {.step = STEP, .bound = BOUND, .sums = begin_sums(dim)};
    struct tally_adaptive_sum sum = {.step = STEP, .bound = BOUND, .sums = begin_sums(dim)};
    const enum tally_status wanted = add_later(data, payload_bits, dim, dither, &later);
    const enum tally_status status =
        tally_adaptive_long_read(data, payload_bits, &message, &sum, &stats, NULL);
    const double square = sum_of(sum.squares), expected = sum_of(later.squares);
    const bool ok = status == wanted && memcmp(sum.sums, later.sums, dim * sizeof *sum.sums) == 0 &&
                    (status != TALLY_OK || fabs(square - expected) <= 1e-9 * expected);
    tally_adaptive_message_fini(&message);
    free(sum.sums);
    free(later.sums);
    return ok;
}
