/* client_token: the token that a program sends to the coordinator, from --token-file or
 * TALLY_TOKEN. */
#ifndef TALLY_SERVICES_BASE_CLIENT_TOKEN_H
#define TALLY_SERVICES_BASE_CLIENT_TOKEN_H

#include "services/base/options.h"
#include "services/base/token_file.h"

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
