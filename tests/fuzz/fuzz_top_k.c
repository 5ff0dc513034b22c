/* Messages of top_k: two bytes, little-endian, k - 1 modulo dim, then the head of fuzz.h, whose p
 * is not used. */
#include <math.h>
#include <string.h>

#include "codec/sparse/top_k.h"
#include "tests/fuzz/fuzz.h"

static void check_accepted(const struct fuzz_message *message, size_t k, const float *values,
                           const uint32_t *indices)
{
    const size_t bound = tally_top_k_bound(message->dim, k);
    uint8_t *again = fuzz_allocate(bound, 1);
    uint64_t bits;
    FUZZ_CHECK(tally_top_k_encode(values, indices, message->dim, k, again, bound, &bits, NULL) ==
               TALLY_OK);
    FUZZ_CHECK(bits == message->payload_bits);
    FUZZ_CHECK(memcmp(again, message->payload, message->n_payload) == 0);
    for (size_t i = 0; i < k; i++) {
        FUZZ_CHECK(isfinite(values[i]) && indices[i] < message->dim);
        FUZZ_CHECK(i == 0 || indices[i - 1] < indices[i]);
    }
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_message message;
    if (size < 2 || !fuzz_message_read(data + 2, size - 2, &message)) {
        return 0;
    }
    const size_t k = 1 + (data[0] | (size_t)data[1] << 8) % message.dim;
    float *values = fuzz_allocate(k, sizeof *values);
    uint32_t *indices = fuzz_allocate(k, sizeof *indices);
    struct tally_error err = TALLY_ERROR_INIT;
    const enum tally_status status =
        tally_top_k_decode(message.payload, message.n_payload, message.payload_bits, message.dim, k,
                           values, indices, &err);
    if (status == TALLY_OK) {
        check_accepted(&message, k, values, indices);
    } else {
        FUZZ_CHECK((status == TALLY_MALFORMED || status == TALLY_NOT_FINITE) &&
                   err.message[0] != '\0');
    }
    free(values);
    free(indices);
    return 0;
}
