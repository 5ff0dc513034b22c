/* sha256: the hash of FIPS 180-4, so that a program can recognise a secret without keeping it
 * (GnuTLS). */
#ifndef TALLY_API_HTTP_SHA256_H
#define TALLY_API_HTTP_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { TALLY_SHA256_BYTES = 32 };

void tally_sha256(const void *bytes, size_t n, uint8_t ret_digest[TALLY_SHA256_BYTES]);

#endif
