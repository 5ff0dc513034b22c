/* token_file: bearer tokens (RFC 6750) kept where neither `ps` nor the log shows them.
 *
 *   # the tokens of the workers
 *   6f1c...e2 name=site-a
 *   90ab...77 name=site-a until=2026-12-01T00:00:00Z
 *   TOKEN [name=NAME] [until=TIME]
 *
 * One token per line; blank lines and lines that begin with '#' are ignored. Several tokens allow
 * rotation and distinguish clients: tokens of the same name are the same client, and a token
 * without a name is a client of its own. `until` is a time (RFC 3339, in UTC) from which the token
 * is no longer valid.
 *
 * A token is 1 to 4,096 bytes of visible ASCII: other bytes are invalid in a header, or would let a
 * file inject headers. A name is 1 to 64 letters, digits, '.', '_' and '-'. */
#ifndef TALLY_SERVICES_BASE_TOKEN_FILE_H
#define TALLY_SERVICES_BASE_TOKEN_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "codec/error.h"
#include "services/base/options.h"

enum {
    /* A token with its NUL: servers commonly reject headers above 8 KiB, so a token of 4,096 bytes
     * always fits. */
    TALLY_TOKEN_CAPACITY = 4096 + 1,
    TALLY_TOKEN_NAME_CAPACITY = 64 + 1,
    TALLY_TOKENS_PER_FILE = 64,
    TALLY_TOKEN_FILE_BYTES = 512 * 1024 /* far more than 64 tokens take */
};

struct tally_token {
    char text[TALLY_TOKEN_CAPACITY];
    char name[TALLY_TOKEN_NAME_CAPACITY]; /* "" = none */
    int64_t until_ms;                     /* Unix time; INT64_MAX = no end */
    int line;                             /* of the file, from 1 */
};

/* Receives one token, and must not keep a pointer to it. */
typedef enum tally_status tally_token_fn(void *context, const struct tally_token *token,
                                         struct tally_error *err);

struct tally_token_file {
    const char *path;  /* may be a pipe; borrowed */
    bool regular_only; /* refuse files on which reading could block */
    tally_token_fn *on_token;
    void *context;
    bool ret_is_exposed; /* its group or others may read it */
};

/* Reads the file and passes its tokens to on_token, in order. Errors: those of on_token,
 * INVALID_ARGUMENT (not readable, no token, more than 64, the same token twice, a malformed line).
 * Messages name file and line but never quote the line, because any word may be a misplaced
 * token. */
enum tally_status tally_token_file_read(struct tally_token_file *file, struct tally_error *err);

/* The first token in the file that is valid at `now_ms`, for a program that sends a single token.
 * Errors as above, and INVALID_ARGUMENT if every token has expired. */
enum tally_status tally_token_file_first(const char *path, int64_t now_ms,
                                         char ret_token[TALLY_TOKEN_CAPACITY], bool *ret_is_exposed,
                                         struct tally_error *err);

/* The token in the environment variable `name`, which is then wiped, so that /proc/PID/environ no
 * longer shows it. *ret_found is false if the variable is unset or empty. Errors:
 * INVALID_ARGUMENT. */
enum tally_status tally_token_take_environment(const char *name,
                                               char ret_token[TALLY_TOKEN_CAPACITY],
                                               bool *ret_found, struct tally_error *err);

/* ---- The token that a program sends to the coordinator, from --token-file or
 * TALLY_TOKEN. */

struct tally_client_token {
    char text[TALLY_TOKEN_CAPACITY]; /* "" = none */
    bool is_exposed;                 /* its file may be read by its group or others */
};

/* `options` have "token-file". If a file has several tokens, reads the first that has not expired.
 * Errors: INVALID_ARGUMENT. */
enum tally_status tally_client_token_read(const struct tally_options *options,
                                          struct tally_client_token *ret_token,
                                          struct tally_error *err);

#endif
