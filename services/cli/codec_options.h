/* codec_options: what `tally encode` and `tally decode` share: encoding and grid on the command
 * line, and the facts about a message that they print. */
#ifndef TALLY_SERVICES_CLI_CODEC_OPTIONS_H
#define TALLY_SERVICES_CLI_CODEC_OPTIONS_H

#include "codec/encoding.h"
#include "services/cli/cli.h"

enum { TALLY_CODEC_MAX_DIM = 1 << 28 };

/* --encoding. Errors: INVALID_ARGUMENT. */
enum tally_status tally_codec_encoding_of(const struct tally_options *options,
                                          const struct tally_encoding **ret_encoding,
                                          struct tally_error *err);

/* --intervals and --step. Errors: INVALID_ARGUMENT, OUT_OF_RANGE. */
enum tally_status tally_codec_grid_of(const struct tally_options *options,
                                      struct tally_grid *ret_grid, struct tally_error *err);

/* A message and everything that its receiver has to know. */
struct tally_codec_facts {
    const struct tally_encoding *encoding;
    size_t dim;
    struct tally_grid grid;
    struct tally_level_stats stats;
    uint64_t clipped;
};

/* Prints them as JSON: on standard output, or on standard error if `out` is "-", where the bytes
 * go. Returns an exit code. */
int tally_codec_print_facts(const struct tally_codec_facts *facts, const char *out);

#endif
