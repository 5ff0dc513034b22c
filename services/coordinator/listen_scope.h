/* listen_scope: the syntax of a listening address, who can reach it, and how this machine does. */
#ifndef TALLY_SERVICES_COORDINATOR_LISTEN_SCOPE_H
#define TALLY_SERVICES_COORDINATOR_LISTEN_SCOPE_H

#include <stdbool.h>

#include "codec/error.h"

enum { LISTEN_CAPACITY = 80 };

/* Reads ADDRESS:PORT or [ADDRESS]:PORT, where ADDRESS is numeric or localhost, which is 127.0.0.1.
 * *ret_listen has the numeric address. Errors: INVALID_ARGUMENT; the message says what is wrong
 * with the syntax, and what was probably meant. */
enum tally_status listen_read(const char *text, char ret_listen[LISTEN_CAPACITY],
                              struct tally_error *err);

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
