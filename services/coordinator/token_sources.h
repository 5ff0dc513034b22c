/* token_sources: where the coordinator's tokens come from: files, and the environment. */
#ifndef TALLY_SERVICES_COORDINATOR_TOKEN_SOURCES_H
#define TALLY_SERVICES_COORDINATOR_TOKEN_SOURCES_H

#include "services/base/options.h"
#include "services/coordinator/token_set.h"

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
