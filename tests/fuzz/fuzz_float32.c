/* Messages of float32; the head is that of fuzz.h, p is not used. */
#include <math.h>
#include <string.h>

#include "codec/numeric/float32.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_message message;
    if (!fuzz_message_read(data, size, &message)) {
        return 0;
    }
    float *values = fuzz_allocate(message.dim, sizeof *values);
    struct tally_error err = TALLY_ERROR_INIT;
    const enum tally_status status = tally_float32_decode(
        message.payload, message.n_payload, message.payload_bits, message.dim, values, &err);
    const bool fits =
        message.n_payload == 4 * message.dim && message.payload_bits == 32 * (uint64_t)message.dim;
    FUZZ_CHECK((status == TALLY_MALFORMED) == !fits);
    if (status == TALLY_OK) {
        const size_t n = tally_float32_bound(message.dim);
        uint8_t *again = fuzz_allocate(n, 1);
        uint64_t payload_bits;
        FUZZ_CHECK(tally_float32_encode(values, message.dim, again, n, &payload_bits, NULL) ==
                   TALLY_OK);
        FUZZ_CHECK(payload_bits == message.payload_bits && n == message.n_payload);
        FUZZ_CHECK(memcmp(again, message.payload, n) == 0);
        free(again);
    } else {
        FUZZ_CHECK(status == TALLY_MALFORMED || status == TALLY_NOT_FINITE);
        FUZZ_CHECK(err.message[0] != '\0');
    }
    free(values);
    return 0;
}
