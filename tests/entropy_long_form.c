#include "tests/entropy_long_form.h"

#include "codec/entropy/entropy_message.h"

static enum tally_status encode(const int32_t *levels, size_t dim, const struct tally_grid *grid,
                                uint8_t *data, size_t capacity, struct tally_level_stats *ret_stats)
{
    (void)grid;
    return tally_entropy_encode(levels, dim, true, data, capacity, ret_stats);
}

static enum tally_status decode(const uint8_t *data, size_t n_bytes, uint64_t payload_bits,
                                size_t dim, const struct tally_grid *grid, int32_t *levels,
                                struct tally_level_stats *ret_stats, struct tally_error *err)
{
    return tally_entropy_decode(data, n_bytes, payload_bits, dim, true, grid, levels, ret_stats,
                                err);
}

static enum tally_status accumulate(const uint8_t *data, size_t n_bytes, uint64_t payload_bits,
                                    size_t dim, const struct tally_grid *grid, int64_t *sums,
                                    struct tally_level_stats *ret_stats, struct tally_error *err)
{
    return tally_entropy_accumulate(data, n_bytes, payload_bits, dim, true, grid, sums, ret_stats,
                                    err);
}

const struct tally_encoding ENTROPY_LONG_FORM = {
    .name = "entropy in its long form",
    .bound = tally_entropy_bound,
    .encode = encode,
    .decode = decode,
    .accumulate = accumulate,
};
