/* shared_bytes: reference-counted bytes, for one thread. */
#ifndef TALLY_CODEC_SHARED_BYTES_H
#define TALLY_CODEC_SHARED_BYTES_H

#include "codec/buffer.h"

struct tally_shared_bytes {
    unsigned n_holders;
    struct tally_buffer bytes;                /* constant */
    void (*fini)(struct tally_buffer *bytes); /* frees them: tally_buffer_fini() at first */
};

/* Takes over the bytes, with one holder. NULL = out of memory; the caller then keeps the bytes. */
struct tally_shared_bytes *tally_shared_bytes_new(struct tally_buffer *bytes);
/* Adds a holder; returns its argument. */
struct tally_shared_bytes *tally_shared_bytes_hold(struct tally_shared_bytes *shared);
/* Removes a holder; the last one frees the bytes. NULL is allowed. */
void tally_shared_bytes_release(struct tally_shared_bytes *shared);

#endif
