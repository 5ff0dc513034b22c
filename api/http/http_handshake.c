#include "api/http/http_handshake.h"

#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>

enum {
    /* An honest handshake arrives in two or three pieces, a certificate chain included. */
    MAX_WAKES = 32,
    RECORD_HEADER_BYTES = 5,
    HANDSHAKE_RECORD = 22,
    MAX_RECORD_BYTES = 18 * 1024 /* RFC 8446 allows a little less */
};

const char HTTP_TLS_PRIORITIES[] =
    "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:-KX-ALL:+ECDHE-ECDSA:+ECDHE-RSA:-CIPHER-ALL:"
    "+AES-256-GCM:+AES-128-GCM:+CHACHA20-POLY1305:-MAC-ALL:+AEAD:-SIGN-RSA-SHA1:-SIGN-ECDSA-SHA1:"
    "%SERVER_PRECEDENCE";

enum tally_status http_handshake_load(struct http_peers *peers, const char *cert, const char *key,
                                      bool regular_only, struct tally_error *err)
{
    struct tls_identity *identity;
    enum tally_status status =
        tls_identity_load(cert, key, regular_only, (int64_t)time(NULL), &identity, err);
    if (status == TALLY_OK) {
        tls_identity_release(peers->identity);
        peers->identity = identity;
    }
    return status;
}

int http_handshake_retrieve(gnutls_session_t session, const struct gnutls_cert_retr_st *info,
                            gnutls_pcert_st **ret_certs, unsigned *ret_n_certs,
                            gnutls_ocsp_data_st **ret_ocsp, unsigned *ret_n_ocsp,
                            gnutls_privkey_t *ret_key, unsigned *ret_flags)
{
    (void)info;
    struct http_peer *peer = http_peer_of(gnutls_session_get_ptr(session));
    struct tls_identity *identity = peer->peers->identity;
    identity->n_users++;
    tls_identity_release(peer->identity);
    peer->identity = identity;
    *ret_certs = identity->certs;
    *ret_n_certs = identity->n_certs;
    *ret_ocsp = NULL;
    *ret_n_ocsp = 0;
    *ret_key = identity->key;
    *ret_flags = 0; /* GnuTLS frees none of them */
    return 0;
}

static void add_awake(struct http_peer *peer)
{
    tally_list_append(&peer->peers->awake, &peer->in_awake);
}

void http_handshake_forget(struct http_peer *peer)
{
    tally_list_remove(&peer->in_awake);
}

/* GnuTLS has sent or received a Finished message. With one each way the handshake is over. */
static int on_finished(gnutls_session_t session, unsigned type, unsigned when, unsigned incoming,
                       const gnutls_datum_t *message)
{
    (void)type, (void)when, (void)message;
    struct http_peer *peer = http_peer_of(gnutls_session_get_ptr(session));
    *(incoming != 0 ? &peer->finished_in : &peer->finished_out) = true;
    if (peer->is_shaking && peer->finished_in && peer->finished_out) {
        peer->is_shaking = false;
        http_peer_enter(peer, HTTP_IDLE);
    }
    return 0;
}

bool http_handshake_can_begin(const struct http_peer *peer)
{
    unsigned char head[RECORD_HEADER_BYTES];
    int n = 0;
    if (recv(peer->base.fd, head, sizeof head, MSG_PEEK | MSG_DONTWAIT) < (ssize_t)sizeof head) {
        return false;
    }
    const int n_record = head[3] << 8 | head[4];
    return head[0] != HANDSHAKE_RECORD || n_record > MAX_RECORD_BYTES ||
           (ioctl(peer->base.fd, FIONREAD, &n) == 0 && n >= n_record + (int)sizeof head);
}

void http_handshake_begin(struct http_peer *peer)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(peer->mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    gnutls_handshake_set_hook_function((gnutls_session_t)info->tls_session,
                                       GNUTLS_HANDSHAKE_FINISHED, GNUTLS_HOOK_POST, on_finished);
    peer->is_shaking = true;
    add_awake(peer);
}

void http_handshake_park_awake(struct http_peers *peers)
{
    struct http_peer *peer;
    while ((peer = TALLY_LIST_FIRST(struct http_peer, in_awake, &peers->awake)) != NULL) {
        http_handshake_forget(peer);
        if (peer->is_shaking && !peer->is_dropped) {
            MHD_suspend_connection(peer->mhd);
            peer->is_parked = true;
            http_peer_watch(peer, EPOLLIN | EPOLLRDHUP | EPOLLET);
        }
    }
}

void http_handshake_resume(struct http_peer *peer)
{
    if (!peer->is_parked) {
        return;
    }
    http_peer_unwatch(peer);
    peer->is_parked = false;
    peer->n_wakes++;
    add_awake(peer);
    peer->peers->has_resumed = true;
    MHD_resume_connection(peer->mhd);
}

void http_handshake_on_bytes(struct http_peer *peer)
{
    if (peer->n_wakes >= MAX_WAKES) {
        http_peer_drop(peer, TALLY_HTTP_REFUSED_REQUEST_TIMEOUT);
    } else {
        http_handshake_resume(peer);
    }
}
