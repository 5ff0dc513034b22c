/* listen_scope: who can reach a listening address, and how this machine reaches it. */
#ifndef TALLY_SERVICES_COORDINATOR_ACCESS_LISTEN_SCOPE_H
#define TALLY_SERVICES_COORDINATOR_ACCESS_LISTEN_SCOPE_H

#include <stdbool.h>

/* Whether only this machine can connect to ADDRESS:PORT: 127.0.0.0/8, [::1], and IPv4-mapped
 * [::ffff:127.0.0.0/104]. False if the address is malformed. */
bool listen_is_loopback(const char *listen);
/* Whether ADDRESS:PORT names one address and one port, so that other machines can use it. */
bool listen_is_one_address(const char *listen);

enum { LISTEN_URL_CAPACITY = 80 };
/* The URL at which this machine reaches a server on ADDRESS:PORT: a wildcard address becomes
 * 127.0.0.1, where [::] listens as well. False if the address is malformed or the port is 0. */
bool listen_own_url(const char *listen, bool is_tls, char ret_url[LISTEN_URL_CAPACITY]);

#endif
