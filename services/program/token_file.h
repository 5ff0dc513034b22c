/* token_file: a bearer token (RFC 6750) kept in a file, where neither `ps` nor the log shows it. */
#ifndef TALLY_SERVICES_PROGRAM_TOKEN_FILE_H
#define TALLY_SERVICES_PROGRAM_TOKEN_FILE_H

#include "codec/base/error.h"

/* Of the token with its NUL: servers commonly refuse headers past 8 KiB, so 4,096 bytes of token
 * are what surely passes. */
enum { TALLY_TOKEN_CAPACITY = 4096 + 1 };

/* Reads the file, which may be a pipe, without the line end after the token. Only visible ASCII is
 * a token: anything else could not stand in a header, or would let a file write headers. Errors:
 * INVALID_ARGUMENT (not readable, empty, longer than 4,096 bytes, other characters); messages name
 * the file and the place, never the token. */
enum tally_status tally_token_file_read(const char *path, char ret_token[TALLY_TOKEN_CAPACITY],
                                        struct tally_error *err);

#endif
