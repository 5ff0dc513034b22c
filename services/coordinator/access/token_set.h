/* token_set: the tokens that the coordinator knows, by their digests, and what each one opens.
 *
 * The tokens themselves are not kept: a digest is enough to know one again, and memory tells none
 * of them. Looking one up compares its digest with all of them, whole, whatever comes out on the
 * way: the time it takes tells nothing about which token was nearly right, or about its length. */
#ifndef TALLY_SERVICES_COORDINATOR_ACCESS_TOKEN_SET_H
#define TALLY_SERVICES_COORDINATOR_ACCESS_TOKEN_SET_H

#include <stdbool.h>
#include <stdint.h>

#include "api/tls/sha256.h"
#include "codec/base/error.h"
#include "services/base/tokens/token_file.h"

enum token_role { TOKEN_ADMIN, TOKEN_WORKER, TOKEN_METRICS, N_TOKEN_ROLES };

/* Fewer can be guessed: nothing but the number of connections limits how many are tried. */
enum { TOKEN_MIN_BYTES = 16 };

/* The identity behind a token: a digest of its name, else of the token. All zero: none, where no
 * token is needed. */
struct token_identity {
    uint8_t bytes[TALLY_SHA256_BYTES];
};

struct known_token {
    uint8_t digest[TALLY_SHA256_BYTES];
    struct token_identity identity;
    char name[TALLY_TOKEN_NAME_CAPACITY]; /* "" = none */
    int64_t until_ms;                     /* Unix time; INT64_MAX = no end */
    int line;                             /* of its file, from 1; 0 = from the environment */
};

struct token_set {
    int n;
    struct known_token items[TALLY_TOKENS_PER_FILE];
};

/* A role without tokens is open to all callers, except TOKEN_METRICS (rest/authorization.c). */
struct tally_tokens {
    struct token_set roles[N_TOKEN_ROLES];
    int n_shared; /* pairs of the same token in two roles; token_sources.h counts them */
};

/* Errors: INVALID_ARGUMENT (shorter than 16 bytes, more than 64). */
enum tally_status token_set_add(struct token_set *set, const struct tally_token *token,
                                struct tally_error *err);

enum token_verdict {
    TOKEN_UNKNOWN,    /* in no role */
    TOKEN_EXPIRED,    /* known, but not any more */
    TOKEN_OTHER_ROLE, /* known and valid, but for something else */
    TOKEN_RIGHT
};

/* What a given text is to the roles of `wanted`, a mask of 1 << role. *ret_token, set if it is
 * RIGHT, points into `tokens`. */
enum token_verdict token_look_up(const struct tally_tokens *tokens, unsigned wanted,
                                 const char *given, int64_t now_ms,
                                 const struct known_token **ret_token);

/* Whether the tokens are equal, whatever their names and expiry times are. */
bool same_token(const struct known_token *a, const struct known_token *b);
bool same_identity(const struct token_identity *a, const struct token_identity *b);

#endif
