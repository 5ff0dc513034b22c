/* Messages of the encoding `entropy`. */
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_message message;
    if (fuzz_message_read(data, size, &message)) {
        fuzz_check_message(&TALLY_ENCODING_ENTROPY, &message);
    }
    return 0;
}
