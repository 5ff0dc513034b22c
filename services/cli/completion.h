/* completion: scripts that complete the command line of `tally` in bash and zsh, generated from the
 * same tables as --help.
 *
 * They complete commands, the options of a command, file names if an option or argument is a file,
 * and the ids of the newest jobs if an argument is a job (the script calls `tally list`). */
#ifndef TALLY_SERVICES_CLI_COMPLETION_H
#define TALLY_SERVICES_CLI_COMPLETION_H

#include <stddef.h>

#include "services/cli/commands.h"

struct tally_completion {
    const struct tally_command *commands;
    size_t n_commands;
};

/* Appends the script. Errors: NO_MEMORY. */
enum tally_status tally_completion_bash(const struct tally_completion *completion,
                                        struct tally_buffer *out);
enum tally_status tally_completion_zsh(const struct tally_completion *completion,
                                       struct tally_buffer *out);

#endif
