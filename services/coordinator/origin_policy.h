/* origin_policy: tells the requests that a foreign web page causes from all others.
 *
 * A browser sends requests to any address on behalf of any page, also to 127.0.0.1. Two of its
 * headers, which a page cannot set, say so:
 *
 *   Host    names the server as the page's URL does. With DNS rebinding a page at evil.test has
 *           evil.test point to 127.0.0.1, and for the browser the coordinator is then part of the
 *           page's own origin: the page may read every answer. Only Host still tells the name. IP
 *           literals and "localhost" never come out of a stranger's DNS.
 *   Origin  (and Sec-Fetch-Site) names the page that sends a write. The page may not read the
 *           answer, but the write has happened by then.
 *
 * Names are compared without case and without the trailing dot of a full name. */
#ifndef TALLY_SERVICES_COORDINATOR_ORIGIN_POLICY_H
#define TALLY_SERVICES_COORDINATOR_ORIGIN_POLICY_H

#include <stdbool.h>

/* Whether a Host header, "NAME", "NAME:PORT" or "[IPV6]:PORT", is an IP literal, "localhost" or in
 * `allowed`: names with ':' in between, NULL = none. False for what is not a Host. */
bool host_is_allowed(const char *host, const char *allowed);

/* Whether a write comes from a page of another origin than `host`, the request's Host header.
 * `origin` and `fetch_site` are the headers Origin and Sec-Fetch-Site. Each may be NULL = absent,
 * as in requests that no browser sends.
 *
 * An origin is ours if its host and port are those of `host`; a missing port is the default one of
 * the origin's scheme, so that a proxy may terminate TLS in front. Of Sec-Fetch-Site only
 * "same-origin" and "none" (the user did it) are ours: "same-site" is another port of this host, or
 * another host of this domain, and has another owner. */
bool write_is_foreign(const char *host, const char *origin, const char *fetch_site);

/* Whether the text can stand in a list of allowed names: letters, digits, '.', '-' and '_', and not
 * digits alone, which would be a port. */
bool is_host_name(const char *text);

#endif
