/* Messages of `entropy` in its long form, with as few coordinates as the head says. If
 * fuzz_draws(1024), they have 40000 more: several blocks of full length. */
#include "tests/entropy_long_form.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_message message;
    if (fuzz_message_read(data, size, &message)) {
        message.dim += fuzz_draws(data, size, 1024) ? 40000 : 0;
        fuzz_check_message(&ENTROPY_LONG_FORM, &message);
    }
    return 0;
}
