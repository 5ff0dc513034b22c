#include "codec/encoding.h"

const struct tally_encoding *const TALLY_ENCODINGS[] = {
    [TALLY_ENCODING_INDEX_UNARY] = &TALLY_ENCODING_UNARY,
    [TALLY_ENCODING_INDEX_ENTROPY] = &TALLY_ENCODING_ENTROPY,
    NULL};
const char *const TALLY_ENCODING_NAMES[] = {
    [TALLY_ENCODING_INDEX_UNARY] = "unary", [TALLY_ENCODING_INDEX_ENTROPY] = "entropy", NULL};

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
    const size_t n = encoding->bound(scratch, vector->dim);
    status = tally_buffer_reserve(payload, n);
    if (status == TALLY_OK) {
        status = encoding->encode(scratch, vector->dim, vector->grid, payload->data, n, &stats);
    }
    if (status != TALLY_OK) {
        return tally_fail(err, status, NULL, "a message of %zu bytes: %s", n,
                          tally_status_info(status)->title);
    }
    payload->size = (size_t)((stats.payload_bits + 7) / 8);
    *ret_stats = stats;
    *ret_clipped = clipped;
    return TALLY_OK;
}
