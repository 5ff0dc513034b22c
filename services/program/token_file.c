#include "services/program/token_file.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static enum tally_status check_token(const char *path, const char *token, size_t n,
                                     struct tally_error *err)
{
    if (n == 0) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL, "token file %.200s: is empty", path);
    }
    if (n >= TALLY_TOKEN_CAPACITY) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL,
                          "token file %.200s: longer than %d bytes", path,
                          TALLY_TOKEN_CAPACITY - 1);
    }
    for (size_t i = 0; i < n; i++) {
        if (token[i] <= ' ' || token[i] > '~') {
            return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL,
                              "token file %.200s: byte %zu is not a visible ASCII character", path,
                              i + 1);
        }
    }
    return TALLY_OK;
}

enum tally_status tally_token_file_read(const char *path, char ret_token[TALLY_TOKEN_CAPACITY],
                                        struct tally_error *err)
{
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL, "token file %.200s: %s", path,
                          strerror(errno));
    }
    char bytes[TALLY_TOKEN_CAPACITY + 2]; /* one too many, and a line end */
    size_t n = fread(bytes, 1, sizeof bytes, file);
    int read_errno = ferror(file) ? errno : 0;
    fclose(file);
    if (read_errno != 0) {
        return tally_fail(err, TALLY_INVALID_ARGUMENT, NULL, "token file %.200s: %s", path,
                          strerror(read_errno));
    }
    if (n > 0 && bytes[n - 1] == '\n') {
        n--;
    }
    if (n > 0 && bytes[n - 1] == '\r') {
        n--;
    }
    enum tally_status status = check_token(path, bytes, n, err);
    if (status == TALLY_OK) {
        memcpy(ret_token, bytes, n);
        ret_token[n] = '\0';
    }
    explicit_bzero(bytes, sizeof bytes);
    return status;
}
