#include "tests/unit/codec/entropy_samples.h"

#include <stdlib.h>

#include "tests/harness.h"

const struct tally_encoding *const ENTROPY = &TALLY_ENCODING_ENTROPY;
const struct tally_grid ENTROPY_WIDE = {.step = 0.1, .intervals = TALLY_MAX_INTERVALS};

void *entropy_allocate(size_t n)
{
    void *block = malloc(n + (n == 0));
    CU_ASSERT_PTR_NOT_NULL_FATAL(block);
    return block;
}

uint8_t *entropy_encode(const int32_t *levels, size_t dim, size_t *ret_n,
                        struct tally_level_stats *ret_stats)
{
    size_t n = ENTROPY->bound(levels, dim);
    uint8_t *data = entropy_allocate(n);
    CU_ASSERT_EQUAL_FATAL(ENTROPY->encode(levels, dim, &ENTROPY_WIDE, data, n, ret_stats),
                          TALLY_OK);
    *ret_n = (size_t)((ret_stats->payload_bits + 7) / 8);
    CU_ASSERT_TRUE_FATAL(*ret_n <= n);
    return data;
}

bool entropy_same_stats(const struct tally_level_stats *a, const struct tally_level_stats *b)
{
    return a->formula_bits == b->formula_bits && a->payload_bits == b->payload_bits &&
           a->nonzeros == b->nonzeros;
}

bool entropy_accumulates_alike(const uint8_t *data, size_t n, uint64_t payload_bits, size_t dim,
                               const struct tally_grid *grid, enum tally_status status,
                               const int32_t *levels, const struct tally_level_stats *stats)
{
    int64_t *sums = entropy_allocate(dim * sizeof *sums);
    for (size_t i = 0; i < dim; i++) {
        sums[i] = (int64_t)i * 1000003 - 500;
    }
    struct tally_level_stats seen;
    bool good = ENTROPY->accumulate(data, n, payload_bits, dim, grid, sums, &seen, NULL) == status;
    good = good && (status != TALLY_OK || entropy_same_stats(&seen, stats));
    for (size_t i = 0; i < dim; i++) {
        const int64_t added = status == TALLY_OK ? levels[i] : 0;
        good = good && sums[i] == (int64_t)i * 1000003 - 500 + added;
    }
    free(sums);
    return good;
}

static int32_t bell(struct tally_rng *rng, uint32_t width)
{
    int32_t sum = 0;
    for (int k = 0; k < 4; k++) {
        sum += (int32_t)tally_rng_below(rng, width + 1);
    }
    return sum - (int32_t)(2 * width);
}

static int32_t clamp(int64_t level, int32_t top)
{
    return (int32_t)(level > top ? top : level < -top ? -top : level);
}

void entropy_random_levels(struct tally_rng *rng, enum shape shape, int32_t top, int32_t *levels,
                           size_t dim)
{
    const int32_t constant = (int32_t)tally_rng_below(rng, (uint32_t)top + 1);
    const uint32_t width = 1 + tally_rng_below(rng, 1u << tally_rng_below(rng, 20));
    const size_t far = tally_rng_below(rng, (uint32_t)dim);
    for (size_t i = 0; i < dim; i++) {
        int64_t level = 0;
        switch (shape) {
        case SPARSE:
            level = tally_rng_below(rng, 50) == 0 ? bell(rng, 3) : 0;
            break;
        case BELL:
            level = bell(rng, 1 + width % 8);
            break;
        case WIDE_BELL:
            level = bell(rng, width);
            break;
        case UNIFORM:
            level = (int64_t)tally_rng_below(rng, 2 * (uint32_t)top + 1) - top;
            break;
        case HEAVY:
            level = (INT64_C(1) << tally_rng_below(rng, 22)) / (1 + tally_rng_below(rng, 64)) *
                    (tally_rng_below(rng, 2) == 0 ? 1 : -1);
            break;
        case CONSTANT:
            level = constant;
            break;
        case ONE_FAR:
            level = i == far ? -top : 0;
            break;
        case HALVES:
            level = i < far ? bell(rng, 1) : bell(rng, width);
            break;
        case ZERO:
        case N_SHAPES:
        default:
            break;
        }
        levels[i] = clamp(level, top);
    }
}

struct tally_rng entropy_stream(uint64_t seed)
{
    struct tally_rng rng;
    tally_rng_init(&rng, tally_rng_key(seed, 0), 0, 0, TALLY_RNG_NOISE);
    return rng;
}
