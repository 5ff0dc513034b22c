/* origin_policy: recognizes requests that a browser sends for a web page of another origin.
 *
 * A browser sends requests for any page to any address, also to 127.0.0.1. Headers that a page
 * cannot set reveal such requests:
 *
 *   Host    is the server's name in the URL. With DNS rebinding, evil.test resolves to 127.0.0.1.
 *           The browser then treats the coordinator as part of the page's own origin, and the page
 *           may read every response. Only Host still shows the name evil.test. An IP literal or
 *           "localhost" cannot be rebound by a stranger's DNS.
 *   Origin  and Sec-Fetch-Site name the page that sends a write. The browser hides the response
 *           from the page, but by then the write has happened.
 *
 * Names are compared without regard to case or a trailing dot. */
#ifndef TALLY_SERVICES_COORDINATOR_ORIGIN_POLICY_H
#define TALLY_SERVICES_COORDINATOR_ORIGIN_POLICY_H

#include <stdbool.h>

/* Whether a Host header, "NAME", "NAME:PORT" or "[IPV6]:PORT", is an IP literal, "localhost" or in
 * `allowed`: names separated by ':', NULL = none. False if it is malformed. */
bool host_is_allowed(const char *host, const char *allowed);

/* Whether a write comes from a page of another origin than `host`, the request's Host header.
 * `origin` and `fetch_site` are the headers Origin and Sec-Fetch-Site. Each may be NULL = absent,
 * as in requests that no browser sends.
 *
 * An origin is ours if its host and port are those of `host`. A missing port is the default port of
 * the origin's scheme, so that a proxy in front may terminate TLS. Of Sec-Fetch-Site only
 * "same-origin" and "none" (the user did it) are ours: "same-site" is another port of this host, or
 * another host of its domain, and may have another owner. */
bool write_is_foreign(const char *host, const char *origin, const char *fetch_site);

/* Whether the text may be in a list of allowed names: only letters, digits, '.', '-' and '_', and
 * not digits alone, which would be a port. */
bool is_host_name(const char *text);

#endif
