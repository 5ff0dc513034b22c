/* Messages of the encoding `entropy` that are long enough for its other coder: 2^18 coordinates
 * more than the head says. */
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_message message;
    if (fuzz_message_read(data, size, &message)) {
        message.dim += (1 << 18) - 1;
        fuzz_check_message(&TALLY_ENCODING_ENTROPY, &message);
    }
    return 0;
}
