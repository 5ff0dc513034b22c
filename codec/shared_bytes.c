#include "codec/shared_bytes.h"

#include <stdlib.h>

struct tally_shared_bytes *tally_shared_bytes_new(struct tally_buffer *bytes)
{
    struct tally_shared_bytes *shared = malloc(sizeof *shared);
    if (shared != NULL) {
        *shared =
            (struct tally_shared_bytes){.n_holders = 1, .bytes = *bytes, .fini = tally_buffer_fini};
        *bytes = (struct tally_buffer){.limit = bytes->limit};
    }
    return shared;
}

struct tally_shared_bytes *tally_shared_bytes_hold(struct tally_shared_bytes *shared)
{
    shared->n_holders++;
    return shared;
}

void tally_shared_bytes_release(struct tally_shared_bytes *shared)
{
    if (shared != NULL && --shared->n_holders == 0) {
        shared->fini(&shared->bytes);
        free(shared);
    }
}
