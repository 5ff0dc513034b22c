/* http_handshake: TLS handshakes, and the certificate that they use.
 *
 * libmicrohttpd (MHD) 0.9.75 runs its loop without a pause while a handshake waits for the peer,
 * because it does not notice that the socket has nothing to read. So a connection is given to MHD
 * when the peer's first message is complete, and suspended ("parked") until the rest of the
 * handshake arrives:
 *
 *     peer                      here                           MHD
 *     ClientHello  ------->     first message complete   --->  handshake begins
 *                               park                           (suspended)
 *     Finished     ------->     bytes arrived: resume    --->  handshake ends
 *
 * MHD scans all suspended connections whenever one is resumed. Few are parked at a time. */
#ifndef TALLY_API_HTTP_HTTP_HANDSHAKE_H
#define TALLY_API_HTTP_HTTP_HANDSHAKE_H

#include "api/http/http_peer.h"

/* TLS 1.2 and 1.3; ephemeral keys and authenticated ciphers only. */
extern const char HTTP_TLS_PRIORITIES[];

/* Loads certificate and key for the handshakes that begin from now on; tls_identity.h has the
 * errors. On failure the current ones stay. */
enum tally_status http_handshake_load(struct http_peers *peers, const char *cert, const char *key,
                                      bool regular_only, struct tally_error *err);
/* GnuTLS asks for the certificate. */
int http_handshake_retrieve(gnutls_session_t session, const struct gnutls_cert_retr_st *info,
                            gnutls_pcert_st **ret_certs, unsigned *ret_n_certs,
                            gnutls_ocsp_data_st **ret_ocsp, unsigned *ret_n_ocsp,
                            gnutls_privkey_t *ret_key, unsigned *ret_flags);

/* Whether the peer's first TLS record is complete, or cannot be one: MHD then refuses it. */
bool http_handshake_can_begin(const struct http_peer *peer);
/* To be called when MHD has the connection, and its socket the peer's first message. */
void http_handshake_begin(struct http_peer *peer);
/* To be called when a parked connection has bytes. */
void http_handshake_on_bytes(struct http_peer *peer);
/* Gives a parked connection back to MHD; does nothing for others. */
void http_handshake_resume(struct http_peer *peer);
/* To be called when the connection is over. */
void http_handshake_forget(struct http_peer *peer);
/* To be called after MHD ran: parks the handshakes that are still in progress. */
void http_handshake_park_awake(struct http_peers *peers);

#endif
