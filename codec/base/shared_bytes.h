/* shared_bytes: bytes that have several holders, of one thread, and go with the last of them. */
#ifndef TALLY_CODEC_BASE_SHARED_BYTES_H
#define TALLY_CODEC_BASE_SHARED_BYTES_H

#include "codec/base/buffer.h"

struct tally_shared_bytes {
    unsigned n_holders;
    struct tally_buffer bytes; /* not changed any more */
};

/* Takes the bytes, which are left where they are when memory ran out (NULL). The caller holds them.
 */
struct tally_shared_bytes *tally_shared_bytes_new(struct tally_buffer *bytes);
/* One holder more; returns its argument. */
struct tally_shared_bytes *tally_shared_bytes_hold(struct tally_shared_bytes *shared);
/* One holder less. NULL is allowed. */
void tally_shared_bytes_release(struct tally_shared_bytes *shared);

#endif
