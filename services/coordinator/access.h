/* access: who may reach the coordinator: addresses to listen on, origins of web pages, tokens. */
#ifndef TALLY_SERVICES_COORDINATOR_ACCESS_H
#define TALLY_SERVICES_COORDINATOR_ACCESS_H

#include <stdbool.h>
#include <stdint.h>

#include "api/http/sha256.h"
#include "codec/error.h"
#include "services/base/options.h"
#include "services/base/token_file.h"

/* ---- The syntax of a listening address, who can reach it, and how this machine does. */

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

/* ---- Recognizes requests that a browser sends for a web page of another origin.
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

/* Whether a Host header, "NAME", "NAME:PORT" or "[IPV6]:PORT", is an IP literal, "localhost" or in
 * `allowed`: names separated by ':', NULL = none. False if it is malformed. */
bool access_host_is_allowed(const char *host, const char *allowed);

/* Whether a write comes from a page of another origin than `host`, the request's Host header.
 * `origin` and `fetch_site` are the headers Origin and Sec-Fetch-Site. Each may be NULL = absent,
 * as in requests that no browser sends.
 *
 * An origin is ours if its host and port are those of `host`. A missing port is the default port of
 * the origin's scheme, so that a proxy in front may terminate TLS. Of Sec-Fetch-Site only
 * "same-origin" and "none" (the user did it) are ours: "same-site" is another port of this host, or
 * another host of its domain, and may have another owner. */
bool access_write_is_foreign(const char *host, const char *origin, const char *fetch_site);

/* Whether the text may be in a list of allowed names: only letters, digits, '.', '-' and '_', and
 * not digits alone, which would be a port. */
bool access_is_host_name(const char *text);

/* ---- The digests of the coordinator's tokens, and the roles that each one grants.
 *
 * Tokens themselves are not kept: a digest is enough to recognize one, and memory reveals none. A
 * lookup compares the given token's digest with every stored digest, in full. The time that this
 * takes reveals neither how nearly a guess was right nor the length of any stored token. */

enum token_role { TOKEN_ADMIN, TOKEN_WORKER, TOKEN_METRICS, N_TOKEN_ROLES };

/* Shorter tokens can be guessed: only the number of connections limits the rate of attempts. */
enum { TOKEN_MIN_BYTES = 16 };

/* The identity behind a token: the digest of its name, or of the token if it has no name. All zero
 * where no token is needed. */
struct token_identity {
    uint8_t bytes[TALLY_SHA256_BYTES];
};

struct known_token {
    uint8_t digest[TALLY_SHA256_BYTES];
    struct token_identity identity;
    char name[TALLY_TOKEN_NAME_CAPACITY]; /* "" = none */
    int64_t until_ms;                     /* Unix time; INT64_MAX = never expires */
    int line;                             /* of its file, from 1; 0 = from the environment */
};

struct token_set {
    int n;
    struct known_token items[TALLY_TOKENS_PER_FILE];
};

/* A role without tokens is open to all callers, except TOKEN_METRICS (rest_authorization.c). */
struct tally_tokens {
    struct token_set roles[N_TOKEN_ROLES];
    int n_shared; /* pairs of roles that share a token; access.h counts them */
};

/* Errors: INVALID_ARGUMENT (shorter than 16 bytes, more than 64). */
enum tally_status token_set_add(struct token_set *set, const struct tally_token *token,
                                struct tally_error *err);

enum token_verdict {
    TOKEN_UNKNOWN,    /* in no role */
    TOKEN_EXPIRED,    /* known, but past its expiry time */
    TOKEN_OTHER_ROLE, /* known and valid, but for a different role */
    TOKEN_RIGHT
};

/* Looks up the text `given` in the roles of `wanted`, a mask of 1 << role. *ret_token is set if the
 * verdict is RIGHT, and points into `tokens`. */
enum token_verdict token_look_up(const struct tally_tokens *tokens, unsigned wanted,
                                 const char *given, int64_t now_ms,
                                 const struct known_token **ret_token);

bool access_same_identity(const struct token_identity *a, const struct token_identity *b);

/* ---- Where the coordinator's tokens come from: files, and the environment. */

/* Reads --admin-token-file, --worker-token-file and --metrics-token-file, or TALLY_ADMIN_TOKEN,
 * TALLY_WORKER_TOKEN and TALLY_METRICS_TOKEN, and wipes these variables. Logs a warning for a file
 * that others can read, and for a token that grants two roles. Errors: INVALID_ARGUMENT,
 * NO_MEMORY. */
enum tally_status tokens_load(const struct tally_options *options, struct tally_tokens *ret_tokens,
                              struct tally_error *err);

/* Reads the files again; tokens from the environment stay. On failure all tokens stay as they
 * were. */
enum tally_status tokens_reload(const struct tally_options *options, struct tally_tokens *tokens,
                                struct tally_error *err);

/* Prints a line of --check for each token that grants two roles, with its places. */
void tokens_print_shared(const struct tally_options *options, const struct tally_tokens *tokens);

#endif
