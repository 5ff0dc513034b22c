/* Messages of qsgd: two bytes, little-endian, s - 1 modulo 32767, then the head of fuzz.h, whose p
 * is not used. */
#include <string.h>

#include "codec/quantize/qsgd.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_message message;
    if (size < 2 || !fuzz_message_read(data + 2, size - 2, &message)) {
        return 0;
    }
    const uint32_t s = 1 + (data[0] | (uint32_t)data[1] << 8) % TALLY_QSGD_MAX_LEVELS;
    int32_t *levels = fuzz_allocate(message.dim, sizeof *levels);
    struct tally_error err = TALLY_ERROR_INIT;
    struct tally_qsgd qsgd;
    const enum tally_status status =
        tally_qsgd_decode(message.payload, message.n_payload, message.payload_bits, s, message.dim,
                          &qsgd, levels, &err);
    if (status == TALLY_OK) {
        const size_t n = (size_t)((tally_qsgd_bits(s, message.dim) + 7) / 8);
        uint8_t *again = fuzz_allocate(n, 1);
        FUZZ_CHECK(tally_qsgd_encode(&qsgd, levels, message.dim, again, n) == TALLY_OK);
        FUZZ_CHECK(message.payload_bits == tally_qsgd_bits(s, message.dim));
        FUZZ_CHECK(n == message.n_payload && memcmp(again, message.payload, n) == 0);
        for (size_t i = 0; i < message.dim; i++) {
            FUZZ_CHECK(levels[i] <= (int32_t)s && -levels[i] <= (int32_t)s);
        }
        free(again);
    } else {
        FUZZ_CHECK(status == TALLY_MALFORMED && err.message[0] != '\0');
    }
    free(levels);
    return 0;
}
