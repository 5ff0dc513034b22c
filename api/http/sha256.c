#include "api/http/sha256.h"

#include <stdbool.h>
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
