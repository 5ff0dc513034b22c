/* proxy: a network connection between a store and PostgreSQL that a test can break.
 *
 * A thread forwards bytes between a port of 127.0.0.1 and the server of TALLY_POSTGRES. */
#ifndef TALLY_TESTS_CONTRACT_SUPPORT_PROXY_H
#define TALLY_TESTS_CONTRACT_SUPPORT_PROXY_H

struct proxy;

enum proxy_mode {
    PROXY_PASS,
    PROXY_SILENT, /* nothing is forwarded; the kernel still accepts connections and bytes */
    PROXY_HOLE,   /* connections are cut, and new ones get no response at all */
};

struct proxy *proxy_start(void);
void proxy_stop(struct proxy *proxy);
int proxy_port(const struct proxy *proxy);
/* On return, nothing is forwarded that the mode does not allow. */
void proxy_set(struct proxy *proxy, enum proxy_mode mode);
/* Limits the bytes per second, approximately; 0 = no limit. */
void proxy_limit(struct proxy *proxy, int bytes_per_s);

#endif
