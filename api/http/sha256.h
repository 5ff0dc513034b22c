/* sha256: the hash of FIPS 180-4, so that a program can recognise a secret without keeping it, and
 * signatures made with it (GnuTLS). */
#ifndef TALLY_API_HTTP_SHA256_H
#define TALLY_API_HTTP_SHA256_H

#include <stddef.h>
#include <stdint.h>

#include "codec/error.h"

enum { TALLY_SHA256_BYTES = 32 };

void tally_sha256(const void *bytes, size_t n, uint8_t ret_digest[TALLY_SHA256_BYTES]);

/* The same of bytes that come piece by piece. */
struct tally_sha256_stream;
struct tally_sha256_stream *tally_sha256_begin(void);
void tally_sha256_add(struct tally_sha256_stream *stream, const void *bytes, size_t n);
/* Frees the stream. */
void tally_sha256_end(struct tally_sha256_stream *stream, uint8_t ret_digest[TALLY_SHA256_BYTES]);

enum { TALLY_SHA256_TEXT_CAPACITY = 2 * TALLY_SHA256_BYTES + 1 };
/* Lower-case hexadecimal digits, and NUL. */
void tally_sha256_text(const uint8_t digest[TALLY_SHA256_BYTES],
                       char ret_text[TALLY_SHA256_TEXT_CAPACITY]);

enum { TALLY_HMAC_TEXT_CAPACITY = 48 }; /* 44 characters and NUL */
/* HMAC-SHA256 (RFC 2104), in base64. Errors: INTERNAL. */
enum tally_status tally_hmac_sha256_base64(const void *key, size_t n_key, const void *bytes,
                                           size_t n, char ret_text[TALLY_HMAC_TEXT_CAPACITY]);

#endif
