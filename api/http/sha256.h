/* sha256: the hash of FIPS 180-4, so that a program can recognise a secret without keeping it, and
 * signatures made with it (GnuTLS). */
#ifndef TALLY_API_HTTP_SHA256_H
#define TALLY_API_HTTP_SHA256_H

#include <stddef.h>
#include <stdint.h>

#include "codec/error.h"

enum { TALLY_SHA256_BYTES = 32 };

void tally_sha256(const void *bytes, size_t n, uint8_t ret_digest[TALLY_SHA256_BYTES]);

enum { TALLY_HMAC_TEXT_CAPACITY = 48 }; /* 44 characters and NUL */
/* HMAC-SHA256 (RFC 2104), in base64. Errors: INTERNAL. */
enum tally_status tally_hmac_sha256_base64(const void *key, size_t n_key, const void *bytes,
                                           size_t n, char ret_text[TALLY_HMAC_TEXT_CAPACITY]);

#endif
