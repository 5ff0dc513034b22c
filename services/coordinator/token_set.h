/* token_set: the digests of the coordinator's tokens, and the roles that each one grants.
 *
 * Tokens themselves are not kept: a digest is enough to recognize one, and memory reveals none. A
 * lookup compares the given token's digest with every stored digest, in full. The time that this
 * takes reveals neither how nearly a guess was right nor the length of any stored token. */
#ifndef TALLY_SERVICES_COORDINATOR_TOKEN_SET_H
#define TALLY_SERVICES_COORDINATOR_TOKEN_SET_H

#include <stdbool.h>
#include <stdint.h>

#include "api/http/sha256.h"
#include "codec/error.h"
#include "services/base/token_file.h"

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
    int n_shared; /* pairs of roles that share a token; token_sources.h counts them */
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

/* Whether the tokens are equal, whatever their names and expiry times are. */
bool same_token(const struct known_token *a, const struct known_token *b);
bool same_identity(const struct token_identity *a, const struct token_identity *b);

#endif
