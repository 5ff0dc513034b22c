#include "codec/encoding.h"

const struct tally_encoding *const TALLY_ENCODINGS[] = {
    [TALLY_ENCODING_INDEX_UNARY] = &TALLY_ENCODING_UNARY,
    [TALLY_ENCODING_INDEX_ENTROPY] = &TALLY_ENCODING_ENTROPY,
    NULL};
const char *const TALLY_ENCODING_NAMES[] = {
    [TALLY_ENCODING_INDEX_UNARY] = "unary", [TALLY_ENCODING_INDEX_ENTROPY] = "entropy", NULL};

static enum tally_status encode_checked(const struct tally_encoding *encoding,
                                        const struct tally_grid *grid, const int32_t *levels,
                                        size_t dim, struct tally_buffer *payload,
                                        struct tally_level_stats *ret_stats,
                                        struct tally_error *err)
{
    const size_t n = encoding->bound(levels, dim);
    enum tally_status status = tally_buffer_reserve(payload, n);
    if (status == TALLY_OK) {
        status = encoding->encode(levels, dim, grid, payload->data, n, ret_stats);
    }
    if (status != TALLY_OK) {
        return tally_fail(err, status, NULL, "a message of %zu bytes: %s", n,
                          tally_status_info(status)->title);
    }
    payload->size = (size_t)((ret_stats->payload_bits + 7) / 8);
    return TALLY_OK;
}

enum tally_status tally_levels_encode(const struct tally_encoding *encoding,
                                      const struct tally_grid *grid, const int32_t *levels,
                                      size_t dim, struct tally_buffer *payload,
                                      struct tally_level_stats *ret_stats, struct tally_error *err)
{
    const int32_t top = (int32_t)(grid->intervals / 2);
    payload->size = 0;
    for (size_t i = 0; i < dim; i++) {
        if (levels[i] > top || levels[i] < -top) {
            return tally_fail(err, TALLY_OUT_OF_RANGE, NULL,
                              "level %d of coordinate %zu outside [%d, %d]", levels[i], i, -top,
                              top);
        }
    }
    return encode_checked(encoding, grid, levels, dim, payload, ret_stats, err);
}

enum tally_status tally_quantize_encode(const struct tally_encoding *encoding,
                                        const struct tally_vector *vector, int32_t *scratch,
                                        struct tally_buffer *payload,
                                        struct tally_level_stats *ret_stats, uint64_t *ret_clipped,
                                        struct tally_error *err)
{
    payload->size = 0;
    if (encoding->quantize_encode != NULL) {
        return encoding->quantize_encode(vector, scratch, payload, ret_stats, ret_clipped, err);
    }
    uint64_t clipped;
    struct tally_level_stats stats;
    enum tally_status status =
        tally_quantize(vector->grid, vector->y, vector->dim, vector->rng, scratch, &clipped, err);
    if (status != TALLY_OK) {
        return status;
    }
    status = encode_checked(encoding, vector->grid, scratch, vector->dim, payload, &stats, err);
    if (status != TALLY_OK) {
        return status;
    }
    *ret_stats = stats;
    *ret_clipped = clipped;
    return TALLY_OK;
}
