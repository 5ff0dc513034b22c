#include "services/coordinator/token_sources.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/base/log.h"

static const struct {
    const char *option, *variable;
} SOURCES[N_TOKEN_ROLES] = {[TOKEN_ADMIN] = {"admin-token-file", "TALLY_ADMIN_TOKEN"},
                            [TOKEN_WORKER] = {"worker-token-file", "TALLY_WORKER_TOKEN"},
                            [TOKEN_METRICS] = {"metrics-token-file", "TALLY_METRICS_TOKEN"}};

/* "--worker-token-file FILE:LINE name=NAME" */
enum { PLACE_CAPACITY = 320 };

static enum tally_status add(void *context, const struct tally_token *token,
                             struct tally_error *err)
{
    return token_set_add(context, token, err);
}

/* Whether a container engine or systemd provides the file. They choose its mode and keep other
 * users from reaching it. */
static bool is_handed_over(const char *path)
{
    const char *credentials = getenv("CREDENTIALS_DIRECTORY");
    return strncmp(path, "/run/secrets/", 13) == 0 ||
           (credentials != NULL && credentials[0] != '\0' &&
            strncmp(path, credentials, strlen(credentials)) == 0);
}

static enum tally_status read_file(const char *path, bool regular_only, struct token_set *set,
                                   struct tally_error *err)
{
    struct tally_token_file file = {
        .path = path, .regular_only = regular_only, .on_token = add, .context = set};
    enum tally_status status = tally_token_file_read(&file, err);
    if (status == TALLY_OK && file.ret_is_exposed && !is_handed_over(path)) {
        tally_log(TALLY_LOG_WARN, tally_log_event("token file can be read by others"),
                  tally_log_text("file", path), tally_log_text("remedy", "chmod 600"));
    }
    return status;
}

static enum tally_status take_variable(const char *name, bool has_file, struct token_set *set,
                                       struct tally_error *err)
{
    static struct tally_token token; /* wiped below */
    bool found = false;
    token = (struct tally_token){.until_ms = INT64_MAX};
    enum tally_status status = tally_token_take_environment(name, token.text, &found, err);
    if (status == TALLY_OK && found && has_file) {
        status = tally_fail(err, TALLY_INVALID_ARGUMENT, NULL,
                            "%s holds a token, and a token file is given, too: use only one", name);
    } else if (status == TALLY_OK && found) {
        status = token_set_add(set, &token, err);
        if (status != TALLY_OK) {
            tally_error_wrap(err, "%s", name);
        }
    }
    explicit_bzero(&token, sizeof token);
    return status;
}

/* Writes the place of a token, never the token itself. */
static void describe(const struct tally_options *options, enum token_role role,
                     const struct known_token *token, char ret_place[PLACE_CAPACITY])
{
    const bool has_name = token->name[0] != '\0';
    if (token->line == 0) {
        snprintf(ret_place, PLACE_CAPACITY, "%s", SOURCES[role].variable);
    } else {
        snprintf(ret_place, PLACE_CAPACITY, "--%s %.200s:%d%s%s", SOURCES[role].option,
                 tally_options_text(options, SOURCES[role].option), token->line,
                 has_name ? " name=" : "", token->name);
    }
}

typedef void shared_token_fn(const char *first, const char *second);

/* Calls on_pair() with the places of every token that has both roles. Returns their number. */
static int walk_pair(const struct tally_options *options, const struct tally_tokens *tokens,
                     enum token_role a, enum token_role b, shared_token_fn *on_pair)
{
    int n = 0;
    for (int i = 0; i < tokens->roles[a].n; i++) {
        for (int j = 0; j < tokens->roles[b].n; j++) {
            const struct known_token *one = &tokens->roles[a].items[i];
            const struct known_token *other = &tokens->roles[b].items[j];
            if (same_token(one, other)) {
                char first[PLACE_CAPACITY], second[PLACE_CAPACITY];
                describe(options, a, one, first);
                describe(options, b, other, second);
                on_pair(first, second);
                n++;
            }
        }
    }
    return n;
}

static int walk_shared(const struct tally_options *options, const struct tally_tokens *tokens,
                       shared_token_fn *on_pair)
{
    return walk_pair(options, tokens, TOKEN_ADMIN, TOKEN_WORKER, on_pair) +
           walk_pair(options, tokens, TOKEN_ADMIN, TOKEN_METRICS, on_pair) +
           walk_pair(options, tokens, TOKEN_WORKER, TOKEN_METRICS, on_pair);
}

static void log_shared(const char *first, const char *second)
{
    tally_log(TALLY_LOG_WARN, tally_log_event("one token grants two roles"),
              tally_log_text("first", first), tally_log_text("second", second),
              tally_log_text("remedy", "give each role tokens of its own"));
}

static void print_shared(const char *first, const char *second)
{
    printf("warn  %s and %s hold the same token: give each role tokens of its own\n", first,
           second);
}

void tokens_print_shared(const struct tally_options *options, const struct tally_tokens *tokens)
{
    walk_shared(options, tokens, print_shared);
}

enum tally_status tokens_load(const struct tally_options *options, struct tally_tokens *ret_tokens,
                              struct tally_error *err)
{
    enum tally_status status = TALLY_OK;
    *ret_tokens = (struct tally_tokens){0};
    for (int role = 0; status == TALLY_OK && role < N_TOKEN_ROLES; role++) {
        struct token_set *set = &ret_tokens->roles[role];
        const char *path = tally_options_text(options, SOURCES[role].option);
        status = take_variable(SOURCES[role].variable, path != NULL, set, err);
        if (status == TALLY_OK && path != NULL) {
            status = read_file(path, false, set, err);
        }
    }
    if (status == TALLY_OK) {
        ret_tokens->n_shared = walk_shared(options, ret_tokens, log_shared);
    }
    return status;
}

enum tally_status tokens_reload(const struct tally_options *options, struct tally_tokens *tokens,
                                struct tally_error *err)
{
    struct tally_tokens *fresh = malloc(sizeof *fresh);
    if (fresh == NULL) {
        return tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for tokens");
    }
    *fresh = *tokens;
    enum tally_status status = TALLY_OK;
    for (int role = 0; status == TALLY_OK && role < N_TOKEN_ROLES; role++) {
        const char *path = tally_options_text(options, SOURCES[role].option);
        if (path != NULL) {
            fresh->roles[role].n = 0;
            /* A pipe was read at the start; waiting for another writer would block the loop. */
            status = read_file(path, true, &fresh->roles[role], err);
        }
    }
    if (status == TALLY_OK) {
        fresh->n_shared = walk_shared(options, fresh, log_shared);
        *tokens = *fresh;
    }
    free(fresh);
    return status;
}
