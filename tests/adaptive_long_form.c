#include "tests/adaptive_long_form.h"

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

/* Sums that messages have been added to: narrow ones, near the end of their reach or not, or wide
 * ones. */
static struct tally_adaptive_units begin_units(size_t dim, int64_t reach)
{
    static const double STEP = 3e-4, BOUND = 0.1; /* so that there are levels beyond the bound */
    int64_t *sums = calloc(dim, sizeof *sums);
    if (sums == NULL) {
        abort();
    }
    for (size_t i = 0; i < dim; i++) {
        if (reach > TALLY_ADAPTIVE_NARROW_REACH) {
            sums[i] = (int64_t)i - 7;
        } else {
            ((int32_t *)(void *)sums)[i] = (int32_t)i - 7;
        }
    }
    return (struct tally_adaptive_units){
        .step = STEP, .bound = BOUND, .sums = sums, .reach = reach};
}

/* Reads first, then counts. */
static enum tally_status count_later(const uint8_t *data, uint64_t payload_bits, size_t dim,
                                     const struct tally_rng *dither,
                                     struct tally_adaptive_units *units)
{
    struct tally_adaptive_message message = {.dim = dim, .dither = dither};
    struct tally_level_stats stats;
    enum tally_status status =
        tally_adaptive_long_read(data, payload_bits, &message, NULL, &stats, NULL);
    if (status == TALLY_OK) {
        status = tally_adaptive_check_range(&message, units->step, units->bound, NULL);
    }
    if (status == TALLY_OK) {
        tally_adaptive_count(&message, units);
    }
    tally_adaptive_message_fini(&message);
    return status;
}

static bool are_equal(const struct tally_adaptive_units *a, const struct tally_adaptive_units *b,
                      size_t dim)
{
    bool ok = true;
    for (size_t i = 0; i < dim; i++) {
        int64_t one, other;
        tally_adaptive_units_get(a, i, 1, &one);
        tally_adaptive_units_get(b, i, 1, &other);
        ok = ok && one == other;
    }
    return ok;
}

bool adaptive_long_adds_alike(const uint8_t *data, size_t n_bytes, uint64_t payload_bits,
                              size_t dim, const struct tally_rng *dither)
{
    static const int64_t reaches[] = {0, TALLY_ADAPTIVE_NARROW_REACH - 3,
                                      TALLY_ADAPTIVE_NARROW_REACH - 1,
                                      TALLY_ADAPTIVE_NARROW_REACH + 1};
    bool ok = true;
    if (tally_payload_check_frame(data, n_bytes, payload_bits, NULL) != TALLY_OK) {
        return true;
    }
    for (size_t i = 0; i < sizeof reaches / sizeof *reaches; i++) {
        struct tally_adaptive_message message = {.dim = dim, .dither = dither};
        struct tally_level_stats stats;
        struct tally_adaptive_units later = begin_units(dim, reaches[i]),
                                    units = begin_units(dim, reaches[i]);
        const enum tally_status wanted = count_later(data, payload_bits, dim, dither, &later);
        const enum tally_status status =
            tally_adaptive_long_read(data, payload_bits, &message, &units, &stats, NULL);
        ok = ok && status == wanted && are_equal(&units, &later, dim) &&
             (status != TALLY_OK ||
              tally_adaptive_units_square(&units) == tally_adaptive_units_square(&later));
        tally_adaptive_message_fini(&message);
        free(units.sums);
        free(later.sums);
    }
    return ok;
}
