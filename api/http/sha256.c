#include "api/http/sha256.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>

void tally_sha256(const void *bytes, size_t n, uint8_t ret_digest[TALLY_SHA256_BYTES])
{
    if (gnutls_hash_fast(GNUTLS_DIG_SHA256, bytes, n, ret_digest) != 0) {
        abort(); /* without SHA-256, no token could be checked */
    }
}

/* A stream is GnuTLS's handle. */
struct tally_sha256_stream *tally_sha256_begin(void)
{
    gnutls_hash_hd_t handle;
    if (gnutls_hash_init(&handle, GNUTLS_DIG_SHA256) != 0) {
        abort();
    }
    return (struct tally_sha256_stream *)handle;
}

void tally_sha256_add(struct tally_sha256_stream *stream, const void *bytes, size_t n)
{
    if (n > 0 && gnutls_hash((gnutls_hash_hd_t)stream, bytes, n) != 0) {
        abort();
    }
}

void tally_sha256_end(struct tally_sha256_stream *stream, uint8_t ret_digest[TALLY_SHA256_BYTES])
{
    gnutls_hash_deinit((gnutls_hash_hd_t)stream, ret_digest);
}

void tally_sha256_text(const uint8_t digest[TALLY_SHA256_BYTES],
                       char ret_text[TALLY_SHA256_TEXT_CAPACITY])
{
    for (size_t i = 0; i < TALLY_SHA256_BYTES; i++) {
        snprintf(ret_text + 2 * i, 3, "%02x", digest[i]);
    }
}

enum tally_status tally_hmac_sha256_base64(const void *key, size_t n_key, const void *bytes,
                                           size_t n, char ret_text[TALLY_HMAC_TEXT_CAPACITY])
{
    uint8_t digest[TALLY_SHA256_BYTES];
    const gnutls_datum_t plain = {.data = digest, .size = sizeof digest};
    gnutls_datum_t text = {0};
    if (gnutls_hmac_fast(GNUTLS_MAC_SHA256, key, n_key, bytes, n, digest) != 0 ||
        gnutls_base64_encode2(&plain, &text) != 0) {
        return TALLY_INTERNAL;
    }
    const bool fits = text.size < TALLY_HMAC_TEXT_CAPACITY;
    if (fits) {
        memcpy(ret_text, text.data, text.size);
        ret_text[text.size] = '\0';
    }
    gnutls_free(text.data);
    return fits ? TALLY_OK : TALLY_INTERNAL;
}
