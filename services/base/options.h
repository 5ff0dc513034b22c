/* options: one const table drives flags, environment, config file, --help and --version.
 *
 * A value comes from the strongest source that names it:
 *
 *   default  <  config file  <  environment  <  command line
 *
 * One name everywhere: `--round-limit 5` or `--round-limit=5`, TALLY_ROUND_LIMIT=5 (an empty
 * variable counts as unset), and the line `round-limit = 5` or `round_limit = 5` of the file that
 * `--config FILE` or TALLY_CONFIG names. In that file `#` at the start of a line or after a blank
 * begins a comment; a value in double quotes may hold blanks and `#`. Every option set has
 * `--config`, `--help` (`-h`) and `--version`. The last two exist only on the command line, because
 * build systems often set a variable TALLY_VERSION.
 *
 * Errors name the source: "--clients: 0 outside [1, 4096]", "TALLY_CLIENTS: ...",
 * "tally.conf:3: clients: ...". */
#ifndef TALLY_SERVICES_BASE_OPTIONS_H
#define TALLY_SERVICES_BASE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/buffer.h"
#include "codec/error.h"

struct tally_option {
    const char *name;     /* "round-limit"; NULL ends a table */
    const char *value;    /* placeholder "N" for --help; NULL = a switch, which is true or false;
                           * "N..." = a list: the command line may give the option several times,
                           * and its text is all its values, joined with ':' */
    const char *fallback; /* text of the default; NULL = none, or off for a switch */
    const char *help;     /* one clause; --help adds default and environment */
    const char *group;    /* heading in --help; NULL = "Options". Rows of a group are adjacent. */
};

enum { TALLY_OPTIONS_MAX_TABLES = 4 };

/* --config, --help and --version, which every program has: the last table of every option set. */
extern const struct tally_option TALLY_BUILTIN_OPTIONS[];

/* What a program or sub-command understands. */
struct tally_options_spec {
    const char *program;     /* "tally submit": begins the usage line and every message */
    const char *synopsis;    /* after the program in the usage line: "FILE|- [OPTION]..." */
    const char *description; /* paragraphs, '\n' between them; --help wraps them */
    const struct tally_option *tables[TALLY_OPTIONS_MAX_TABLES]; /* NULL after the last table */
    /* NULL-terminated list of tables whose keys this program ignores in a config file, so that
     * sub-commands can share a file; NULL = none. */
    const struct tally_option *const *other_tables;
    int min_positionals;
    int max_positionals;
    const char *epilogue; /* printed as it is after the options; NULL = none */
};

enum tally_options_request { TALLY_OPTIONS_RUN, TALLY_OPTIONS_HELP, TALLY_OPTIONS_VERSION };

struct tally_options;

/* Reads all sources. `argv` and `environment` (NULL-terminated "NAME=value" texts) must outlive the
 * result, as must `spec`. Reading stops at --help or --version, which tally_options_request() then
 * reports. Errors: INVALID_ARGUMENT (unknown option, missing value, number of positionals, a config
 * file that is unreadable or malformed), NO_MEMORY; err->field is the option's name. */
enum tally_status tally_options_new(const struct tally_options_spec *spec, int argc,
                                    char *const *argv, char *const *environment,
                                    struct tally_options **ret_options, struct tally_error *err);
void tally_options_free(struct tally_options *options);

enum tally_options_request tally_options_request(const struct tally_options *options);
const char *tally_options_positional(const struct tally_options *options, int index);

/* Accessors. `name` must be in the table. Errors: INVALID_ARGUMENT (a value of the wrong type, or
 * an option that was not given and has no default), OUT_OF_RANGE; *ret_value is unchanged then.
 * `err` keeps the first error, so that a program can read all its options and check err->status
 * once. */

bool tally_options_has(const struct tally_options *options, const char *name); /* has a value */
bool tally_options_is_given(const struct tally_options *options, const char *name); /* no default */
const char *tally_options_text(const struct tally_options *options, const char *name); /* or NULL */
/* Item `index` of an option that is a list, from 0; NULL past the last. Each use on the command
 * line is one item; a value from another source is a single item. */
const char *tally_options_item(const struct tally_options *options, const char *name, size_t index);
bool tally_options_bool(const struct tally_options *options, const char *name);
/* Inclusive limits. Durations are integers whose names end in their unit ("interval-ms"). */
enum tally_status tally_options_integer(const struct tally_options *options, const char *name,
                                        int64_t min, int64_t max, int64_t *ret_value,
                                        struct tally_error *err);
enum tally_status tally_options_real(const struct tally_options *options, const char *name,
                                     double min, double max, double *ret_value,
                                     struct tally_error *err);
/* Index of the value in the NULL-terminated `choices`. */
enum tally_status tally_options_choice(const struct tally_options *options, const char *name,
                                       const char *const *choices, int *ret_index,
                                       struct tally_error *err);
/* Refuses an option's value for a reason that only the program knows. The message names the source
 * of the value. Returns INVALID_ARGUMENT. */
enum tally_status tally_options_refuse(const struct tally_options *options, const char *name,
                                       struct tally_error *err, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* For main(). Reads all sources from argv and environ, prints what --help and --version ask for on
 * stdout and errors on stderr. True: continue with *ret_options. False: exit with *ret_exit_code, 0
 * after help, 2 after a usage error. */
bool tally_options_start(const struct tally_options_spec *spec, int argc, char *const *argv,
                         struct tally_options **ret_options, int *ret_exit_code);
/* Prints "PROGRAM: message" and where to find help on stderr; returns exit code 2. */
int tally_options_usage_error(const struct tally_options_spec *spec, const struct tally_error *err);

/* Appends what --help prints. Errors: NO_MEMORY. */
enum tally_status tally_options_help(const struct tally_options_spec *spec,
                                     struct tally_buffer *out);

/* Index in argv of the first word that is neither an option of `spec` nor an option's value: the
 * sub-command of a program that has sub-commands. argc if there is none, or if --help or --version
 * comes first. */
int tally_options_first_positional(const struct tally_options_spec *spec, int argc,
                                   char *const *argv);

#endif
