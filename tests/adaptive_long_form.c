#include "tests/adaptive_long_form.h"

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
        status = tally_adaptive_long_read(data, payload_bits, &message, ret_stats, err);
    }
    for (size_t at = 0, n; status == TALLY_OK && at < dim; at += n) {
        n = dim - at < TALLY_ADAPTIVE_BLOCK ? dim - at : TALLY_ADAPTIVE_BLOCK;
        tally_adaptive_levels(&message, at, n, block);
        memcpy(levels + at, block, n * sizeof *levels);
    }
    tally_adaptive_message_fini(&message);
    return status;
}
