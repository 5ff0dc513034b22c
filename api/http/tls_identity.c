#include "api/http/tls_identity.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <gnutls/x509.h>

enum { MAX_FILE_BYTES = 256 * 1024 }; /* a chain is a few KiB */

/* The files' texts, while they are read. */
struct pem {
    unsigned char bytes[MAX_FILE_BYTES + 1];
    unsigned n;
    mode_t mode;
};

static enum tally_status read_pem(const char *field, const char *path, bool regular_only,
                                  struct pem *pem, struct tally_error *err)
{
    struct stat about;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | (regular_only ? O_NONBLOCK : 0));
    bool ok = fd >= 0 && fstat(fd, &about) == 0;
    ssize_t n = 0;
    pem->n = 0;
    if (ok && regular_only && !S_ISREG(about.st_mode)) {
        close(fd);
        return tally_fail(err, TALLY_INVALID_ARGUMENT, field, "%s is not a regular file", path);
    }
    while (ok && pem->n < sizeof pem->bytes) {
        n = read(fd, pem->bytes + pem->n, sizeof pem->bytes - pem->n);
        if (n <= 0) {
            ok = n == 0;
            break;
        }
        pem->n += (unsigned)n;
    }
    const int reason = errno;
    if (fd >= 0) {
        close(fd);
    }
    if (!ok) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, field, "cannot read %s: %s", path,
                          strerror(reason));
    }
    if (pem->n > MAX_FILE_BYTES) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, field, "%s is longer than %d bytes", path,
                          MAX_FILE_BYTES);
    }
    pem->mode = about.st_mode;
    return TALLY_OK;
}

/* "2026-11-21" */
static void print_day(time_t when, char ret_text[16])
{
    struct tm day;
    if (gmtime_r(&when, &day) == NULL || strftime(ret_text, 16, "%Y-%m-%d", &day) == 0) {
        memcpy(ret_text, "another time", sizeof "another time");
    }
}

static enum tally_status check_dates(const char *path, struct tls_identity *identity, int64_t now_s,
                                     struct tally_error *err)
{
    gnutls_x509_crt_t cert;
    if (gnutls_x509_crt_init(&cert) != 0) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a certificate");
    }
    int code = gnutls_x509_crt_import(cert, &identity->certs[0].cert, GNUTLS_X509_FMT_DER);
    const time_t from = gnutls_x509_crt_get_activation_time(cert);
    const time_t until = gnutls_x509_crt_get_expiration_time(cert);
    gnutls_x509_crt_deinit(cert);
    char day[16];
    if (code != 0) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "tls-cert", "%s: %s", path,
                          gnutls_strerror(code));
    }
    if ((int64_t)until < now_s) {
        print_day(until, day);
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "tls-cert",
                          "the certificate in %s has expired on %s", path, day);
    }
    if ((int64_t)from > now_s) {
        print_day(from, day);
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "tls-cert",
                          "the certificate in %s is not valid before %s", path, day);
    }
    identity->expires_s = (int64_t)until;
    return TALLY_OK;
}

static enum tally_status load_chain(const char *path, const struct pem *pem, int64_t now_s,
                                    struct tls_identity *identity, struct tally_error *err)
{
    const gnutls_datum_t text = {.data = (unsigned char *)pem->bytes, .size = pem->n};
    unsigned n = TLS_MAX_CHAIN;
    int code = gnutls_pcert_list_import_x509_raw(identity->certs, &n, &text, GNUTLS_X509_FMT_PEM,
                                                 GNUTLS_X509_CRT_LIST_SORT);
    if (code < 0 || n == 0) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "tls-cert",
                          "%s holds no certificate chain in PEM form: %s", path,
                          gnutls_strerror(code));
    }
    identity->n_certs = n;
    return check_dates(path, identity, now_s, err);
}

static enum tally_status load_key(const char *path, const struct pem *pem,
                                  struct tls_identity *identity, struct tally_error *err)
{
    const gnutls_datum_t text = {.data = (unsigned char *)pem->bytes, .size = pem->n};
    if (gnutls_privkey_init(&identity->key) != 0) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a private key");
    }
    int code = gnutls_privkey_import_x509_raw(identity->key, &text, GNUTLS_X509_FMT_PEM, NULL, 0);
    if (code == GNUTLS_E_DECRYPTION_FAILED) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "tls-key",
                          "the private key in %s is encrypted; a server cannot ask for its "
                          "password",
                          path);
    }
    if (code != 0) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, "tls-key",
                          "%s holds no private key in PEM form: %s", path, gnutls_strerror(code));
    }
    identity->key_is_exposed = (pem->mode & (S_IRWXG | S_IRWXO)) != 0;
    return TALLY_OK;
}

static bool belong_together(const struct tls_identity *identity)
{
    unsigned char ours[64], theirs[64];
    size_t n_ours = sizeof ours, n_theirs = sizeof theirs;
    gnutls_pubkey_t public_key = NULL;
    bool same = gnutls_pubkey_init(&public_key) == 0 &&
                gnutls_pubkey_import_privkey(public_key, identity->key, 0, 0) == 0 &&
                gnutls_pubkey_get_key_id(public_key, 0, ours, &n_ours) == 0 &&
                gnutls_pubkey_get_key_id(identity->certs[0].pubkey, 0, theirs, &n_theirs) == 0 &&
                n_ours == n_theirs && memcmp(ours, theirs, n_ours) == 0;
    if (public_key != NULL) {
        gnutls_pubkey_deinit(public_key);
    }
    return same;
}

enum tally_status tls_identity_load(const char *cert_path, const char *key_path, bool regular_only,
                                    int64_t now_s, struct tls_identity **ret_identity,
                                    struct tally_error *err)
{
    struct tls_identity *identity = calloc(1, sizeof *identity);
    struct pem *pem = calloc(1, sizeof *pem);
    if (identity == NULL || pem == NULL) {
        free(identity);
        free(pem);
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a certificate");
    }
    identity->n_users = 1;
    enum tally_status status = read_pem("tls-cert", cert_path, regular_only, pem, err);
    if (status == TALLY_OK) {
        status = load_chain(cert_path, pem, now_s, identity, err);
    }
    if (status == TALLY_OK) {
        status = read_pem("tls-key", key_path, regular_only, pem, err);
    }
    if (status == TALLY_OK) {
        status = load_key(key_path, pem, identity, err);
    }
    if (status == TALLY_OK && !belong_together(identity)) {
        status = tally_fail(err, TALLY_INVALID_ARGUMENT, "tls-key",
                            "the key in %s does not belong to the certificate in %s", key_path,
                            cert_path);
    }
    explicit_bzero(pem, sizeof *pem);
    free(pem);
    if (status != TALLY_OK) {
        tls_identity_release(identity);
        return status;
    }
    *ret_identity = identity;
    return TALLY_OK;
}

void tls_identity_release(struct tls_identity *identity)
{
    if (identity == NULL || --identity->n_users > 0) {
        return;
    }
    for (unsigned i = 0; i < identity->n_certs; i++) {
        gnutls_pcert_deinit(&identity->certs[i]);
    }
    if (identity->key != NULL) {
        gnutls_privkey_deinit(identity->key);
    }
    free(identity);
}
