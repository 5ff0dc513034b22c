#include "codec/adaptive/adaptive_units.h"

#include <string.h>

#include "codec/adaptive/adaptive_model.h"
#include "codec/numeric/fetch.h"

/* A value is not beyond largest + 1/2 steps. */
static int64_t reach_after(const struct tally_adaptive_units *units, uint32_t largest)
{
    return units->reach + (int64_t)largest + 1;
}

/* From the end on: the sums overlap their wide form. */
static void widen(struct tally_adaptive_units *units, size_t dim)
{
    const char *narrow = units->sums;
    char *wide = units->sums;
    for (size_t i = dim; i-- > 0;) {
        int32_t sum;
        memcpy(&sum, narrow + i * sizeof sum, sizeof sum);
        const int64_t same = sum;
        memcpy(wide + i * sizeof same, &same, sizeof same);
    }
    units->reach = TALLY_ADAPTIVE_NARROW_REACH + 1;
}

void tally_adaptive_units_reserve(struct tally_adaptive_units *units, size_t dim, uint32_t largest)
{
    if (!tally_adaptive_is_wide(units) &&
        reach_after(units, largest) > TALLY_ADAPTIVE_NARROW_REACH) {
        widen(units, dim);
    }
}

void tally_adaptive_units_reach(struct tally_adaptive_units *units, size_t dim, uint32_t largest)
{
    tally_adaptive_units_reserve(units, dim, largest);
    units->reach = reach_after(units, largest);
}

/* The value of any level. */
static int64_t value_of(int32_t level, int32_t dither)
{
    return (int64_t)level * (1 << TALLY_ADAPTIVE_UNIT_BITS) + tally_adaptive_value(0, dither);
}

static double square_of(int64_t value)
{
    const double quarter = (double)(value >> 2);
    return quarter * quarter;
}

void tally_adaptive_units_replace(struct tally_adaptive_units *units, size_t i, int32_t level,
                                  int32_t dither)
{
    const int64_t value = value_of(level, dither), plain = value_of(dither >> 31 | 1, dither);
    tally_adaptive_units_add(units, i, value - plain);
    units->more_squares += square_of(value) - square_of(plain);
}

void tally_adaptive_count(const struct tally_adaptive_message *message,
                          struct tally_adaptive_units *units)
{
    int32_t levels[TALLY_ADAPTIVE_BLOCK], dithers[TALLY_ADAPTIVE_BLOCK];
    tally_adaptive_units_reach(units, message->dim, message->largest);
    for (size_t first = 0, n; first < message->dim; first += n) {
        n = message->dim - first < TALLY_ADAPTIVE_BLOCK ? message->dim - first
                                                        : TALLY_ADAPTIVE_BLOCK;
        tally_adaptive_levels_and_dithers(message, first, n, levels, dithers);
        for (size_t i = 0; i < n; i++) {
            const int32_t plain = dithers[i] >> 31 | 1, level = levels[i] != 0 ? plain : 0;
            const int32_t value = tally_adaptive_value(level, dithers[i]);
            tally_adaptive_units_add(units, first + i, value);
            units->squares[0] += (uint32_t)((value >> 2) * (value >> 2));
            if (levels[i] != level) {
                tally_adaptive_units_replace(units, first + i, levels[i], dithers[i]);
            }
        }
    }
}

void tally_adaptive_units_get(const struct tally_adaptive_units *units, size_t first, size_t n,
                              int64_t *ret_sums)
{
    if (tally_adaptive_is_wide(units)) {
        memcpy(ret_sums, (const int64_t *)units->sums + first, n * sizeof *ret_sums);
    } else {
        const int32_t *narrow = (const int32_t *)units->sums + first;
        for (size_t i = 0; i < n; i++) {
            ret_sums[i] = narrow[i];
        }
    }
}

void tally_adaptive_units_scaled(const struct tally_adaptive_units *units, size_t first, size_t n,
                                 double factor, double *ret_values)
{
    if (tally_adaptive_is_wide(units)) {
        const int64_t *wide = (const int64_t *)units->sums + first;
        tally_fetch_ahead(wide, n * sizeof *wide);
        for (size_t i = 0; i < n; i++) {
            ret_values[i] = (double)wide[i] * factor;
        }
    } else {
        const int32_t *narrow = (const int32_t *)units->sums + first;
        tally_fetch_ahead(narrow, n * sizeof *narrow);
        for (size_t i = 0; i < n; i++) {
            ret_values[i] = narrow[i] * factor;
        }
    }
}

double tally_adaptive_units_square(const struct tally_adaptive_units *units)
{
    uint64_t sum = 0; /* of less than 2^32 squares of at most 2^28 */
    for (size_t j = 0; j < TALLY_FIXED_POINT_LANES; j++) {
        sum += units->squares[j];
    }
    return ((double)sum + units->more_squares) * 0x1p-28;
}
