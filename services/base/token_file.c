#include "services/base/token_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "codec/utf8.h"
#include "services/base/time.h"

/* Begins every message with the file and, unless it is 0, the line. */
static enum tally_status fail(struct tally_error *err, const char *path, int line,
                              const char *problem)
{
    return line > 0 ? tally_fail(err, TALLY_INVALID_ARGUMENT, NULL, "token file %.200s:%d: %s",
                                 path, line, problem)
                    : tally_fail(err, TALLY_INVALID_ARGUMENT, NULL, "token file %.200s: %s", path,
                                 problem);
}

/* What is wrong with a token of n bytes; NULL if it is valid. */
static const char *check_token(const char *token, size_t n, char problem[64])
{
    if (n >= TALLY_TOKEN_CAPACITY) {
        snprintf(problem, 64, "the token is longer than %d bytes", TALLY_TOKEN_CAPACITY - 1);
        return problem;
    }
    for (size_t i = 0; i < n; i++) {
        if (token[i] <= ' ' || token[i] > '~') {
            snprintf(problem, 64, "byte %zu is not a visible ASCII character", i + 1);
            return problem;
        }
    }
    return NULL;
}

static bool set_name(struct tally_token *token, const char *name, size_t n)
{
    static const char ALLOWED[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                  "0123456789._-";
    if (n == 0 || n >= sizeof token->name || strspn(name, ALLOWED) < n) {
        return false;
    }
    memcpy(token->name, name, n);
    token->name[n] = '\0';
    return true;
}

static bool set_until(struct tally_token *token, const char *until, size_t n)
{
    char text[TALLY_TIMESTAMP_CAPACITY];
    if (n >= sizeof text) {
        return false;
    }
    memcpy(text, until, n);
    text[n] = '\0';
    return tally_timestamp_parse(text, &token->until_ms);
}

static const char *skip_blanks(const char *at)
{
    return at + strspn(at, " \t");
}

/* Reads the words after the token. Returns what is wrong with them, or NULL. */
static const char *read_attributes(const char *at, struct tally_token *token)
{
    bool has_name = false, has_until = false;
    for (at = skip_blanks(at); *at != '\0'; at = skip_blanks(at)) {
        const size_t n = strcspn(at, " \t");
        if (!has_name && n >= 5 && memcmp(at, "name=", 5) == 0) {
            has_name = true;
            if (!set_name(token, at + 5, n - 5)) {
                return "name= must be 1 to 64 letters, digits, '.', '_' or '-'";
            }
        } else if (!has_until && n >= 6 && memcmp(at, "until=", 6) == 0) {
            has_until = true;
            if (!set_until(token, at + 6, n - 6)) {
                return "until= must be a time in UTC such as 2026-12-01T00:00:00Z";
            }
        } else {
            return "only name=NAME and until=TIME may follow the token, once each";
        }
        at += n;
    }
    return NULL;
}

/* Reads a line without its newline. Returns what is wrong with it, or NULL; ret_token->text is ""
 * if the line has no token. */
static const char *read_line(const char *line, struct tally_token *ret_token, char problem[64])
{
    const char *at = skip_blanks(line);
    ret_token->text[0] = ret_token->name[0] = '\0';
    ret_token->until_ms = INT64_MAX;
    if (*at == '\0' || *at == '#') {
        return NULL;
    }
    const size_t n = strcspn(at, " \t");
    const char *wrong = check_token(at, n, problem);
    if (wrong == NULL) {
        memcpy(ret_token->text, at, n);
        ret_token->text[n] = '\0';
        wrong = read_attributes(at + n, ret_token);
    }
    return wrong;
}

/* Whether an earlier line of `text` begins with the same token. The lines before `end` are known
 * to be right, and end in NUL. */
static bool is_repeated(const char *text, const char *end, const char *token)
{
    const size_t n = strlen(token);
    for (const char *line = text; line < end; line += strlen(line) + 1) {
        const char *at = skip_blanks(line);
        if (strcspn(at, " \t") == n && memcmp(at, token, n) == 0) {
            return true;
        }
    }
    return false;
}

/* `text` ends in NUL and is split into lines in place. */
static enum tally_status read_lines(const struct tally_token_file *file, char *text, size_t n_text,
                                    struct tally_token *token, struct tally_error *err)
{
    int n_tokens = 0, line_number = 0;
    for (char *line = text, *next; line < text + n_text; line = next) {
        const size_t n = strcspn(line, "\n");
        const bool holds_nul = line + n < text + n_text && line[n] == '\0';
        next = line + n + 1;
        line_number++;
        line[n] = '\0';
        if (n > 0 && line[n - 1] == '\r') {
            line[n - 1] = ' ';
        }
        char problem[64];
        const char *wrong = holds_nul ? "it contains a NUL byte" : read_line(line, token, problem);
        if (wrong == NULL && token->text[0] == '\0') {
            continue;
        }
        if (wrong == NULL && is_repeated(text, line, token->text)) {
            wrong = "the token is also on an earlier line";
        }
        if (wrong == NULL && ++n_tokens > TALLY_TOKENS_PER_FILE) {
            snprintf(problem, sizeof problem, "more than %d tokens", TALLY_TOKENS_PER_FILE);
            wrong = problem;
        }
        if (wrong != NULL) {
            return fail(err, file->path, line_number, wrong);
        }
        token->line = line_number;
        enum tally_status status = file->on_token(file->context, token, err);
        if (status != TALLY_OK) {
            tally_error_wrap(err, "token file %.120s:%d", file->path, line_number);
            return status;
        }
    }
    return n_tokens > 0 ? TALLY_OK : fail(err, file->path, 0, "it contains no token");
}

/* Up to `capacity` bytes, or -1 with errno. */
static ssize_t read_all(int fd, char *bytes, size_t capacity)
{
    size_t n = 0;
    while (n < capacity) {
        const ssize_t more = read(fd, bytes + n, capacity - n);
        if (more == 0) {
            break;
        }
        if (more < 0 && errno != EINTR) {
            return -1;
        }
        n += more > 0 ? (size_t)more : 0;
    }
    return (ssize_t)n;
}

/* Opens the file; -1 with errno set, or with errno 0 if it is not a regular file although it must
 * be. */
static int open_file(struct tally_token_file *file)
{
    struct stat info;
    const int fd = open(file->path, O_RDONLY | O_CLOEXEC | (file->regular_only ? O_NONBLOCK : 0));
    if (fd < 0) {
        return -1;
    }
    const bool known = fstat(fd, &info) == 0;
    if (!known || (file->regular_only && !S_ISREG(info.st_mode))) {
        const int saved_errno = known ? 0 : errno;
        close(fd);
        errno = saved_errno;
        return -1;
    }
    file->ret_is_exposed = S_ISREG(info.st_mode) && (info.st_mode & (S_IRGRP | S_IROTH)) != 0;
    return fd;
}

enum tally_status tally_token_file_read(struct tally_token_file *file, struct tally_error *err)
{
    const size_t capacity = TALLY_TOKEN_FILE_BYTES + 1;
    const int fd = open_file(file);
    if (fd < 0) {
        return fail(err, file->path, 0, errno != 0 ? strerror(errno) : "is not a regular file");
    }
    char *text = malloc(capacity + 1);
    struct tally_token *token = malloc(sizeof *token);
    enum tally_status status = TALLY_OK;
    if (text == NULL || token == NULL) {
        status = tally_fail(err, TALLY_NO_MEMORY, NULL, "no memory for a token file");
    }
    const ssize_t n = status == TALLY_OK ? read_all(fd, text, capacity) : 0;
    if (n < 0) {
        status = fail(err, file->path, 0, strerror(errno));
    } else if ((size_t)n == capacity) {
        char problem[64];
        snprintf(problem, sizeof problem, "longer than %d bytes", TALLY_TOKEN_FILE_BYTES);
        status = fail(err, file->path, 0, problem);
    } else if (status == TALLY_OK) {
        text[n] = '\0';
        const size_t n_mark = tally_utf8_mark(text, (size_t)n);
        status = read_lines(file, text + n_mark, (size_t)n - n_mark, token, err);
    }
    close(fd);
    if (text != NULL) {
        explicit_bzero(text, capacity + 1);
    }
    if (token != NULL) {
        explicit_bzero(token, sizeof *token);
    }
    free(text);
    free(token);
    return status;
}

struct choice {
    int64_t now_ms;
    char *token;
    bool found;
};

static enum tally_status choose(void *context, const struct tally_token *token,
                                struct tally_error *err)
{
    (void)err;
    struct choice *choice = context;
    if (!choice->found && choice->now_ms < token->until_ms) {
        memcpy(choice->token, token->text, strlen(token->text) + 1);
        choice->found = true;
    }
    return TALLY_OK;
}

enum tally_status tally_token_file_first(const char *path, int64_t now_ms,
                                         char ret_token[TALLY_TOKEN_CAPACITY], bool *ret_is_exposed,
                                         struct tally_error *err)
{
    char token[TALLY_TOKEN_CAPACITY];
    struct choice choice = {.now_ms = now_ms, .token = token};
    struct tally_token_file file = {.path = path, .on_token = choose, .context = &choice};
    enum tally_status status = tally_token_file_read(&file, err);
    if (status == TALLY_OK && !choice.found) {
        status = fail(err, path, 0, "all its tokens have expired");
    }
    if (status == TALLY_OK) {
        memcpy(ret_token, token, strlen(token) + 1);
        *ret_is_exposed = file.ret_is_exposed;
    }
    explicit_bzero(token, sizeof token);
    return status;
}

enum tally_status tally_token_take_environment(const char *name,
                                               char ret_token[TALLY_TOKEN_CAPACITY],
                                               bool *ret_found, struct tally_error *err)
{
    char *value = getenv(name);
    const size_t n = value != NULL ? strlen(value) : 0;
    *ret_found = n > 0;
    if (n == 0) {
        return TALLY_OK;
    }
    char problem[64];
    const char *wrong = check_token(value, n, problem);
    if (wrong == NULL) {
        memcpy(ret_token, value, n + 1);
    }
    explicit_bzero(value, n);
    return wrong == NULL ? TALLY_OK
                         : tally_fail(err, TALLY_INVALID_ARGUMENT, NULL, "%s: %s", name, wrong);
}

enum tally_status tally_client_token_read(const struct tally_options *options,
                                          struct tally_client_token *ret_token,
                                          struct tally_error *err)
{
    const char *path = tally_options_text(options, "token-file");
    bool found = false;
    ret_token->text[0] = '\0';
    ret_token->is_exposed = false;
    enum tally_status status =
        tally_token_take_environment("TALLY_TOKEN", ret_token->text, &found, err);
    if (status == TALLY_OK && found && path != NULL) {
        return tally_options_refuse(options, "token-file", err,
                                    "TALLY_TOKEN holds a token, too: use only one");
    }
    return status == TALLY_OK && path != NULL
               ? tally_token_file_first(path, tally_realtime_ms(), ret_token->text,
                                        &ret_token->is_exposed, err)
               : status;
}
