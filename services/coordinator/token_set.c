#include "services/coordinator/token_set.h"

#include <stdio.h>
#include <string.h>

/* Takes the same time whichever bytes differ. */
static bool same_digest(const uint8_t a[TALLY_SHA256_BYTES], const uint8_t b[TALLY_SHA256_BYTES])
{
    unsigned difference = 0;
    for (int i = 0; i < TALLY_SHA256_BYTES; i++) {
        difference |= (unsigned)(a[i] ^ b[i]);
    }
    return difference == 0;
}

bool same_token(const struct known_token *a, const struct known_token *b)
{
    return same_digest(a->digest, b->digest);
}

bool same_identity(const struct token_identity *a, const struct token_identity *b)
{
    return same_digest(a->bytes, b->bytes);
}

enum tally_status token_set_add(struct token_set *set, const struct tally_token *token,
                                struct tally_error *err)
{
    const size_t n = strlen(token->text);
    if (n < TOKEN_MIN_BYTES) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL,
                          "the token has %zu bytes, fewer than %d", n, TOKEN_MIN_BYTES);
    }
    if (set->n == TALLY_TOKENS_PER_FILE) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL, "more than %d tokens",
                          TALLY_TOKENS_PER_FILE);
    }
    struct known_token *known = &set->items[set->n++];
    tally_sha256(token->text, n, known->digest);
    memcpy(known->name, token->name, sizeof known->name);
    known->until_ms = token->until_ms;
    known->line = token->line;
    if (token->name[0] == '\0') {
        memcpy(known->identity.bytes, known->digest, sizeof known->digest);
    } else { /* tokens contain no spaces, so none has this digest */
        char text[sizeof "name " + TALLY_TOKEN_NAME_CAPACITY];
        snprintf(text, sizeof text, "name %s", token->name);
        tally_sha256(text, strlen(text), known->identity.bytes);
    }
    return TALLY_OK;
}

enum token_verdict token_look_up(const struct tally_tokens *tokens, unsigned wanted,
                                 const char *given, int64_t now_ms,
                                 const struct known_token **ret_token)
{
    uint8_t digest[TALLY_SHA256_BYTES];
    enum token_verdict best = TOKEN_UNKNOWN;
    tally_sha256(given, strlen(given), digest);
    for (unsigned role = 0; role < N_TOKEN_ROLES; role++) {
        const struct token_set *set = &tokens->roles[role];
        for (int i = 0; i < set->n; i++) {
            const struct known_token *known = &set->items[i];
            const bool is_it = same_digest(digest, known->digest);
            const enum token_verdict verdict = now_ms >= known->until_ms    ? TOKEN_EXPIRED
                                               : (wanted >> role & 1U) != 0 ? TOKEN_RIGHT
                                                                            : TOKEN_OTHER_ROLE;
            if (is_it && verdict > best) {
                best = verdict;
                *ret_token = known;
            }
        }
    }
    return best;
}
