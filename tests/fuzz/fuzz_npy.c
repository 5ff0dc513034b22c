/* .npy files. An accepted vector lies within the bytes, and is the same after being written and
 * read again. */
#include <string.h>

#include "services/objectives/data/npy.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tally_npy npy, again;
    struct tally_error err = TALLY_ERROR_INIT;
    const enum tally_status status = tally_npy_parse(data, size, &npy, &err);
    if (status != TALLY_OK) {
        FUZZ_CHECK(status == TALLY_MALFORMED && err.message[0] != '\0');
        return 0;
    }
    const size_t n = npy.dim * tally_npy_type_bytes(npy.type);
    FUZZ_CHECK(npy.data + n == data + size);
    struct tally_buffer out = {0};
    FUZZ_CHECK(tally_npy_append(npy.type, npy.data, npy.dim, &out) == TALLY_OK);
    FUZZ_CHECK(tally_npy_parse(out.data, out.size, &again, NULL) == TALLY_OK);
    FUZZ_CHECK(again.type == npy.type && again.dim == npy.dim);
    FUZZ_CHECK(n == 0 || memcmp(again.data, npy.data, n) == 0);
    tally_buffer_fini(&out);
    return 0;
}
