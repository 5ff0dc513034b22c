/* proxy: a network between a store and PostgreSQL that the test can break.
 *
 * A thread passes bytes on between a port of 127.0.0.1 and the server of TALLY_POSTGRES. */
#ifndef TALLY_TESTS_CONTRACT_SUPPORT_PROXY_H
#define TALLY_TESTS_CONTRACT_SUPPORT_PROXY_H

struct proxy;

enum proxy_mode {
    PROXY_PASS,
    PROXY_SILENT, /* nothing is passed on; the kernel still accepts connections and takes bytes */
    PROXY_HOLE,   /* connections are cut, and to new ones there is no answer at all */
};

struct proxy *proxy_start(void);
void proxy_stop(struct proxy *proxy);
int proxy_port(const struct proxy *proxy);
/* When it returns, nothing is passed on that the mode does not allow. */
void proxy_set(struct proxy *proxy, enum proxy_mode mode);
/* From now on no more than about this many bytes pass in a second; 0 = no limit. */
void proxy_limit(struct proxy *proxy, int bytes_per_s);

#endif
