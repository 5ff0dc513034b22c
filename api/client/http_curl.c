#include "api/client/http_curl.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static void init_once(void)
{
    (void)curl_global_init(CURL_GLOBAL_DEFAULT);
}

void tally_curl_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, init_once);
}

enum tally_status tally_curl_check_ca(const char *path, const char *field, struct tally_error *err)
{
    char line[128];
    bool has_certificate = false;
    errno = 0;
    FILE *file = fopen(path, "re");
    while (file != NULL && !has_certificate && fgets(line, sizeof line, file) != NULL) {
        has_certificate = strncmp(line, "-----BEGIN ", 11) == 0 && strstr(line, "CERTIFICATE-----");
    }
    const int reason = errno;
    if (file != NULL) {
        fclose(file);
    }
    if (has_certificate) {
        return TALLY_OK;
    }
    return reason != 0 ? tally_fail(err, TALLY_INVALID_ARGUMENT, field, "cannot read %s: %s", path,
                                    strerror(reason))
                       : tally_fail(err, TALLY_INVALID_ARGUMENT, field,
                                    "%s holds no certificate in PEM form", path);
}

enum tally_status tally_curl_set_tls(CURL *easy, const char *ca, struct tally_error *err)
{
    bool ok =
        curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2) == CURLE_OK &&
        curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 1L) == CURLE_OK &&
        curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 2L) == CURLE_OK;
    if (ca != NULL) {
        ok = ok && curl_easy_setopt(easy, CURLOPT_CAINFO, ca) == CURLE_OK &&
             curl_easy_setopt(easy, CURLOPT_CAPATH, NULL) == CURLE_OK; /* not also the system's */
    }
    return ok ? TALLY_OK : tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for an HTTP client");
}

enum tally_status tally_curl_status(CURL *easy, CURLcode code)
{
    curl_off_t ready_us = 0; /* when the connection was established; 0 = never */
    switch ((int)code) {
    case CURLE_OPERATION_TIMEDOUT:
        curl_easy_getinfo(easy, CURLINFO_PRETRANSFER_TIME_T, &ready_us);
        return ready_us > 0 ? TALLY_DEADLINE : TALLY_UNAVAILABLE;
    case CURLE_OUT_OF_MEMORY:
        return TALLY_NO_MEMORY;
    case CURLE_URL_MALFORMAT:
        return TALLY_INVALID_ARGUMENT;
    default:
        return TALLY_UNAVAILABLE;
    }
}
