/* http_curl: what both users of libcurl share, http_client.c and http_forward.c. */
#ifndef TALLY_API_CLIENT_HTTP_CURL_H
#define TALLY_API_CLIENT_HTTP_CURL_H

#include <curl/curl.h>

#include "codec/error.h"

/* Must be called before any other function of libcurl; from any thread, any number of times. */
void tally_curl_init(void);

/* Requires TLS 1.2 or later and checks the certificate. `ca` is a PEM file of the authorities to
 * trust, and no others; NULL = the system's. Errors: NO_MEMORY. */
enum tally_status tally_curl_set_tls(CURL *easy, const char *ca, struct tally_error *err);

/* Checks the file now; libcurl reads it only when it connects, too late to report a mistyped name.
 * Errors: INVALID_ARGUMENT (in `field`). */
enum tally_status tally_curl_check_ca(const char *path, const char *field, struct tally_error *err);

/* The status of an exchange that libcurl ended with `code`, which is not CURLE_OK: UNAVAILABLE (no
 * connection, or it broke), DEADLINE, NO_MEMORY, INVALID_ARGUMENT (the URL). */
enum tally_status tally_curl_status(CURL *easy, CURLcode code);

#endif
