/* listen_scope: who can reach a listening address. */
#ifndef TALLY_SERVICES_COORDINATOR_ACCESS_LISTEN_SCOPE_H
#define TALLY_SERVICES_COORDINATOR_ACCESS_LISTEN_SCOPE_H

#include <stdbool.h>

/* Whether only this machine can connect to ADDRESS:PORT: 127.0.0.0/8, [::1], and IPv4-mapped
 * [::ffff:127.0.0.0/104]. False if the address is malformed. */
bool listen_is_loopback(const char *listen);
/* Whether ADDRESS:PORT names one address and one port, so that other machines can use it. */
bool listen_is_one_address(const char *listen);

#endif
