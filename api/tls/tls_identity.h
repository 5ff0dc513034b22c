/* tls_identity: the certificate chain and private key that a server shows, from two PEM files.
 *
 * Loading checks what would otherwise fail at the first client: that both files can be read and
 * belong together, and that the certificate is valid today. An identity is counted: the handshakes
 * that used it keep it alive when a newer one has taken its place. */
#ifndef TALLY_API_TLS_TLS_IDENTITY_H
#define TALLY_API_TLS_TLS_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>

#include <gnutls/abstract.h>

#include "codec/base/error.h"

enum { TLS_MAX_CHAIN = 16 };

struct tls_identity {
    unsigned n_users;
    unsigned n_certs;
    gnutls_pcert_st certs[TLS_MAX_CHAIN]; /* the server's own first */
    gnutls_privkey_t key;
    int64_t expires_s;   /* Unix time */
    bool key_is_exposed; /* others than its owner may read the key file */
};

/* `now_s` is Unix time. `regular_only` refuses what reading could block on. The caller is its first
 * user. Errors: INVALID_ARGUMENT with the field "tls-cert" or "tls-key", NO_MEMORY. */
enum tally_status tls_identity_load(const char *cert_path, const char *key_path, bool regular_only,
                                    int64_t now_s, struct tls_identity **ret_identity,
                                    struct tally_error *err);
/* One user less; the last one frees it. NULL is allowed. */
void tls_identity_release(struct tls_identity *identity);

#endif
