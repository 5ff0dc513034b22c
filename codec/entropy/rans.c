#include "codec/entropy/rans.h"

#include <stddef.h>

void tally_rans_init(struct tally_rans_states *ret_states)
{
    for (int i = 0; i < TALLY_RANS_LANES; i++) {
        ret_states->lane[i] = TALLY_RANS_LOWEST;
    }
}

void tally_rans_write(const struct tally_rans_states *states, uint8_t *data)
{
    for (size_t i = 0; i < TALLY_RANS_BYTES; i++) {
        data[i] = (uint8_t)(states->lane[i / 4] >> 8 * (i % 4));
    }
}

static uint32_t load32(const uint8_t *data)
{
    return (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 |
           (uint32_t)data[3] << 24;
}

enum tally_status tally_rans_read(const uint8_t *data, struct tally_rans_states *ret_states,
                                  struct tally_error *err)
{
    for (int i = 0; i < TALLY_RANS_LANES; i++) {
        const uint32_t state = load32(data + 4 * (size_t)i);
        if (state < TALLY_RANS_LOWEST || state >> TALLY_RANS_STATE_BITS != 0) {
            return tally_fail(err, TALLY_MALFORMED, "payload", "state %d is %lu", i,
                              (unsigned long)state);
        }
        ret_states->lane[i] = state;
    }
    return TALLY_OK;
}

enum tally_status tally_rans_check_end(const struct tally_rans_states *states,
                                       struct tally_error *err)
{
    for (int i = 0; i < TALLY_RANS_LANES; i++) {
        if (states->lane[i] != TALLY_RANS_LOWEST) {
            return tally_fail(err, TALLY_MALFORMED, "payload", "state %d ends as %lu, not %d", i,
                              (unsigned long)states->lane[i], TALLY_RANS_LOWEST);
        }
    }
    return TALLY_OK;
}
