/* tls_identity: the certificate chain and private key of a server, from two PEM files.
 *
 * Loading finds the errors that would otherwise appear with the first client: a file cannot be
 * read, the two do not belong together, or the certificate is not valid today. Identities are
 * reference counted: connections keep the one of their handshake alive after a newer one has been
 * loaded. */
#ifndef TALLY_API_HTTP_TLS_IDENTITY_H
#define TALLY_API_HTTP_TLS_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>

#include <gnutls/abstract.h>

#include "codec/error.h"

enum { TLS_MAX_CHAIN = 16 };

struct tls_identity {
    unsigned n_users;
    unsigned n_certs;
    gnutls_pcert_st certs[TLS_MAX_CHAIN]; /* the server's own certificate first */
    gnutls_privkey_t key;
    int64_t expires_s;   /* Unix time */
    bool key_is_exposed; /* the key file is readable by more than its owner */
};

/* `now_s` is Unix time. `regular_only` refuses files on which reading could block. The caller holds
 * the first reference. Errors: INVALID_ARGUMENT with the field "tls-cert" or "tls-key",
 * NO_MEMORY. */
enum tally_status tls_identity_load(const char *cert_path, const char *key_path, bool regular_only,
                                    int64_t now_s, struct tls_identity **ret_identity,
                                    struct tally_error *err);
/* Drops a reference; dropping the last one frees the identity. NULL is allowed. */
void tls_identity_release(struct tls_identity *identity);

#endif
